"""The KV cache of one chunk, the key it is found by, and what every stored form of it can do.

Keys (of attention) are stored before RoPE and after any k_norm: placing a chunk at an offset is then one rotation by
the model's own RoPE, exact in every dtype and under every fixed scaling. Knows nothing of where caches are kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from cacheblend.loading import LOSSLESS, Place

Ids = Sequence[int] | np.ndarray


class ChunkLostError(Exception):
    """A chunk's stored KV is not there any more, or is not what was written: a miss that shows only while reading.

    key: of the chunk; layer: the one that could not be read.
    """

    def __init__(self, key: ChunkKey, layer: int, why: str) -> None:
        super().__init__(f"chunk {key.digest[:12]}, layer {layer}: {why}")
        self.key, self.layer = key, layer


@dataclass(frozen=True, slots=True)
class LayerKV:
    """Keys and values of one layer, each (tokens, kv_heads, head_dim)."""

    keys: torch.Tensor
    values: torch.Tensor

    def write(self, rows: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Overwrite some rows in place."""
        self.keys[rows] = keys
        self.values[rows] = values

    def rows(self, start: int, stop: int) -> LayerKV:
        """A view of some tokens."""
        return LayerKV(self.keys[start:stop], self.values[start:stop])

    def first(self, num_tokens: int) -> LayerKV:
        """A view of the first tokens."""
        return self.rows(0, num_tokens)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.keys.nbytes + self.values.nbytes


@dataclass(frozen=True, slots=True)
class ChunkKey:
    """What a chunk's KV depends on, hashed.

    model names weights, revision and dtype; recipe is the token ids that stood in front of the chunk when it was
    prefilled (empty: bare, as in the paper); tenant is a salt that keeps people who do not share caches apart.
    """

    digest: str

    @classmethod
    def of(cls, model: str, token_ids: Ids, recipe: Ids = (), tenant: str = "") -> ChunkKey:
        """Hash model, recipe, token ids and tenant, each with its length so that borders cannot shift."""
        sha = hashlib.sha256()
        for part in (
            model.encode(),
            np.asarray(recipe, dtype=np.int64).tobytes(),
            np.asarray(token_ids, dtype=np.int64).tobytes(),
            tenant.encode(),
        ):
            sha.update(len(part).to_bytes(8, "little"))
            sha.update(part)
        return cls(sha.hexdigest())


class StoredChunk(Protocol):
    """One chunk's KV wherever it is kept, read layer by layer. Reading never changes what is stored."""

    @property
    def key(self) -> ChunkKey:
        """What it was found by."""
        ...

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The chunk's tokens, which verify a hit."""
        ...

    @property
    def num_tokens(self) -> int:
        """Length in tokens."""
        ...

    @property
    def num_layers(self) -> int:
        """How many layers there are."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes as stored."""
        ...

    @property
    def place(self) -> Place:
        """Where it is read from."""
        ...

    @property
    def codec(self) -> str:
        """Name of the codec its layers went through; “lossless” by default."""
        ...

    def empty_layer(self) -> LayerKV:
        """Fresh tensors of one layer's shape, to fetch into."""
        ...

    def fetch(self, layer: int, out: LayerKV) -> bytes | None:
        """Read one layer as it is stored, blocking. ChunkLostError if it is gone or damaged.

        Plain tensors go straight into `out`, (tokens, kv_heads, head_dim) contiguous, and None is returned; anything
        else is returned for `kv.codecs.decode(codec, payload, out)`.
        """
        ...


@dataclass(frozen=True, slots=True)
class ChunkKV:
    """One chunk's KV in every layer as tensors; token_ids verify a hit, so that a hash alone is never trusted.

    codec: what the values went through, if they come back from a tier that keeps them in fewer bits.
    """

    key: ChunkKey
    token_ids: tuple[int, ...]
    layers: tuple[LayerKV, ...]
    codec: str = LOSSLESS

    @property
    def num_tokens(self) -> int:
        """Length in tokens."""
        return len(self.token_ids)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(layer.nbytes for layer in self.layers)

    @property
    def place(self) -> Place:
        """Accelerator or host memory."""
        return Place.MEMORY if self.layers[0].keys.device.type == "cpu" else Place.DEVICE

    @property
    def num_layers(self) -> int:
        """How many layers there are."""
        return len(self.layers)

    def empty_layer(self) -> LayerKV:
        """Fresh tensors of one layer's shape."""
        return LayerKV(torch.empty_like(self.layers[0].keys), torch.empty_like(self.layers[0].values))

    def fetch(self, layer: int, out: LayerKV) -> None:
        """Copy one layer into `out`."""
        stored = self.layers[layer]
        copy(stored.keys, out.keys)
        copy(stored.values, out.values)


def copy(source: torch.Tensor, target: torch.Tensor) -> None:
    """Copy between tensors of one shape and dtype.

    On the CPU with numpy: torch would copy with a second team of threads when this runs beside the computation.
    """
    if source.device.type == target.device.type == "cpu":
        np.copyto(as_bytes(target), as_bytes(source))
    else:
        target.copy_(source, non_blocking=True)


def as_bytes(tensor: torch.Tensor) -> np.ndarray:
    """A contiguous CPU tensor's memory as uint8 (bytes,), not copied."""
    return tensor.view(-1).view(torch.uint8).numpy()
