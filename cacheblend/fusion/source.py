"""Cached KV of a whole prompt, handed over layer by layer.

One blocking verb, `layer(i)`: whatever moves bytes (memory today) stays behind it. Knows plans and ChunkKV; nothing of
selection or of how layers are computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from cacheblend.kv import ChunkKV, LayerKV
from cacheblend.models.layerwise import LayerwiseModel


class LayerSource(Protocol):
    """Where the fusor gets cached KV from."""

    def layer(self, index: int) -> LayerKV:
        """One layer of the whole prompt, keys before RoPE, in buffers the caller may write.

        Each tensor is (capacity, kv_heads, head_dim); what lies behind the cached context is not set.
        """
        ...


class MemorySource:
    """Chunk caches in memory, laid side by side in a private buffer. Stored tensors are only read."""

    def __init__(self, model: LayerwiseModel, chunks: Sequence[ChunkKV], capacity: int) -> None:
        self._chunks = chunks
        self._shape = (capacity, model.kv_heads, model.head_dim)
        self._like = torch.empty(0, dtype=model.dtype, device=model.device)
        self._context = sum(chunk.num_tokens for chunk in chunks)

    def layer(self, index: int) -> LayerKV:
        """Copy one layer of every chunk."""
        buffers = LayerKV(self._like.new_empty(self._shape), self._like.new_empty(self._shape))
        if self._chunks:
            parts = [chunk.layers[index] for chunk in self._chunks]
            context = buffers.first(self._context)
            torch.cat([part.keys for part in parts], out=context.keys)
            torch.cat([part.values for part in parts], out=context.values)
        return buffers
