"""The KV cache of one chunk, and the key it is found by.

Keys (of attention) are stored before RoPE and after any k_norm: placing a chunk at an offset is then one rotation by
the model's own RoPE, exact in every dtype and under every fixed scaling. Knows nothing of where caches are kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True, slots=True)
class LayerKV:
    """Keys and values of one layer, each (tokens, kv_heads, head_dim)."""

    keys: torch.Tensor
    values: torch.Tensor

    def write(self, rows: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Overwrite some rows in place."""
        self.keys[rows] = keys
        self.values[rows] = values

    def first(self, num_tokens: int) -> LayerKV:
        """A view of the first tokens."""
        return LayerKV(self.keys[:num_tokens], self.values[:num_tokens])

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.keys.nbytes + self.values.nbytes


@dataclass(frozen=True, slots=True)
class ChunkKey:
    """What a chunk's KV depends on, hashed.

    model names weights, revision and dtype; recipe is the token ids that stood in front of the chunk when it was
    prefilled (empty: bare, as in the paper).
    """

    digest: str

    @classmethod
    def of(cls, model: str, token_ids: Sequence[int], recipe: Sequence[int] = ()) -> ChunkKey:
        """Hash model, recipe and token ids, each with its length so that borders cannot shift."""
        sha = hashlib.sha256()
        for part in (
            model.encode(),
            np.asarray(recipe, dtype=np.int64).tobytes(),
            np.asarray(token_ids, dtype=np.int64).tobytes(),
        ):
            sha.update(len(part).to_bytes(8, "little"))
            sha.update(part)
        return cls(sha.hexdigest())


@dataclass(frozen=True, slots=True)
class ChunkKV:
    """One chunk's KV in every layer; token_ids verify a hit, so that a hash alone is never trusted."""

    key: ChunkKey
    token_ids: tuple[int, ...]
    layers: tuple[LayerKV, ...]

    @property
    def num_tokens(self) -> int:
        """Length in tokens."""
        return len(self.token_ids)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(layer.nbytes for layer in self.layers)
