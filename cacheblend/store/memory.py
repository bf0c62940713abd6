"""Chunk caches in memory: least recently used goes first when a bound in bytes is reached.

Knows ChunkKV and bytes; nothing of models, chunks' text or prompts.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from cacheblend.kv import ChunkKey, ChunkKV


class StoreFullError(ValueError):
    """An entry is larger than the store, or everything else is pinned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStats:
    """Counters since the store was made."""

    entries: int
    nbytes: int
    capacity: int
    hits: int
    misses: int
    evictions: int


class MemoryStore:
    """An LRU of ChunkKV, bounded in bytes, safe to call from several threads. Stored tensors are never written."""

    def __init__(self, capacity: int) -> None:
        if capacity <= 0:
            raise ValueError(f"capacity must be positive, got {capacity}")
        self.capacity = capacity
        self.nbytes = 0
        self._entries: OrderedDict[ChunkKey, ChunkKV] = OrderedDict()
        self._lock = threading.Lock()
        self._hits = self._misses = self._evictions = 0

    def get(self, key: ChunkKey, token_ids: tuple[int, ...]) -> ChunkKV | None:
        """Return the entry if its token ids are these; None is a miss. Marks it as used."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or entry.token_ids != token_ids:
                self._misses += 1
                return None
            self._hits += 1
            self._entries.move_to_end(key)
            return entry

    def __contains__(self, key: ChunkKey) -> bool:
        with self._lock:
            return key in self._entries

    def __len__(self) -> int:
        with self._lock:
            return len(self._entries)

    def put(self, entry: ChunkKV, pinned: Iterable[ChunkKey] = ()) -> None:
        """Add an entry, evicting the least recently used that are not pinned; StoreFullError if there is no room."""
        with self._lock:
            previous = self._entries.pop(entry.key, None)
            self.nbytes -= previous.nbytes if previous else 0
            self._make_room(entry.nbytes, frozenset(pinned))
            self._entries[entry.key] = entry
            self.nbytes += entry.nbytes

    def clear(self) -> None:
        """Drop every entry."""
        with self._lock:
            self._entries.clear()
            self.nbytes = 0

    @property
    def stats(self) -> StoreStats:
        """A snapshot of the counters."""
        with self._lock:
            return StoreStats(
                entries=len(self._entries),
                nbytes=self.nbytes,
                capacity=self.capacity,
                hits=self._hits,
                misses=self._misses,
                evictions=self._evictions,
            )

    def _make_room(self, nbytes: int, pinned: frozenset[ChunkKey]) -> None:
        victims = [key for key in self._entries if key not in pinned]
        available = self.capacity - self.nbytes + sum(self._entries[key].nbytes for key in victims)
        if nbytes > available:
            raise StoreFullError(
                f"{nbytes / 1e6:.0f} MB of KV do not fit into the store of {self.capacity / 1e6:.0f} MB; "
                "raise its size or ask with fewer chunks."
            )
        for key in victims:
            if self.nbytes + nbytes <= self.capacity:
                return
            self.nbytes -= self._entries.pop(key).nbytes
            self._evictions += 1
