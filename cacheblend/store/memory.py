"""Chunk caches as tensors in memory: the host's, or an accelerator's."""

from __future__ import annotations

import threading
from collections.abc import Container, Iterator

import torch

from cacheblend.kv import ChunkKey, ChunkKV, LayerKV
from cacheblend.kv.encoded import materialise
from cacheblend.loading import Place
from cacheblend.store.base import Entry, Movable
from cacheblend.store.index import LRU


class MemoryTier:
    """Tensors on one device. What is kept encoded elsewhere is decoded here; stored tensors are never written."""

    refusals = 0  # memory refuses nothing it has room for
    losses = 0

    def __init__(self, capacity: int, device: torch.device | str = "cpu") -> None:
        if capacity <= 0:
            raise ValueError(f"capacity must be positive, got {capacity}")
        self.capacity = capacity
        self._device = torch.device(device)
        self.place = Place.MEMORY if self._device.type == "cpu" else Place.DEVICE
        self._index = LRU()
        self._chunks: dict[ChunkKey, ChunkKV] = {}
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return self._index.nbytes

    def __len__(self) -> int:
        return len(self._index)

    def __contains__(self, key: ChunkKey) -> bool:
        return key in self._index

    def get(self, key: ChunkKey) -> ChunkKV | None:
        """The entry itself; stays readable after it was evicted."""
        with self._lock:
            return self._chunks[key] if self._index.touch(key) else None

    def prepare(self, chunk: Movable) -> ChunkKV:
        """As tensors on this device."""
        kv = chunk if isinstance(chunk, ChunkKV) else materialise(chunk)
        layers = tuple(LayerKV(layer.keys.to(self._device), layer.values.to(self._device)) for layer in kv.layers)
        return ChunkKV(kv.key, kv.token_ids, layers, kv.codec)

    def put(self, prepared: Movable) -> None:
        """Keep the tensors."""
        if not isinstance(prepared, ChunkKV):
            raise TypeError("memory keeps tensors: prepare the chunk first")
        with self._lock:
            self._index.add(prepared.key, prepared.nbytes)
            self._chunks[prepared.key] = prepared

    def take(self, key: ChunkKey) -> ChunkKV | None:
        """The entry, not marked as used."""
        with self._lock:
            return self._chunks.get(key)

    def remove(self, key: ChunkKey) -> None:
        """Let go of the tensors."""
        with self._lock:
            if self._index.discard(key):
                del self._chunks[key]

    def oldest(self, pinned: Container[ChunkKey]) -> ChunkKey | None:
        """The least recently used entry that is not pinned."""
        with self._lock:
            return self._index.oldest(pinned)

    def entries(self) -> Iterator[Entry]:
        """Every entry, least recently used first."""
        with self._lock:
            return self._index.entries()

    def clear(self) -> None:
        """Let go of all tensors."""
        with self._lock:
            self._index.clear()
            self._chunks.clear()

    def close(self) -> None:
        """Nothing to let go of."""
