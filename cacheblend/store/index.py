"""Which entries a tier holds, how large they are and when they were last used: bytes and keys, no KV.

One dictionary in order of use, so every step costs the same however many entries there are. Knows nothing of capacity
or of what is evicted when; not safe to call from several threads: a tier calls it under its own lock.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Container, Iterator

from cacheblend.kv import ChunkKey
from cacheblend.store.base import Entry


class LRU:
    """Keys with their bytes, least recently used first.

    nbytes: of all entries together. Times are seconds since the epoch, so that they compare with a file's.
    """

    def __init__(self) -> None:
        self.nbytes = 0
        self._slots: OrderedDict[ChunkKey, tuple[int, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, key: ChunkKey) -> bool:
        return key in self._slots

    def add(self, key: ChunkKey, nbytes: int, used_at: float | None = None) -> None:
        """Add or replace an entry as the most recently used; used_at is now if not given."""
        self.discard(key)
        self._slots[key] = (nbytes, time.time() if used_at is None else used_at)
        self.nbytes += nbytes

    def touch(self, key: ChunkKey, used_at: float | None = None) -> bool:
        """Mark an entry as the most recently used; whether it is there."""
        slot = self._slots.get(key)
        if slot is None:
            return False
        self._slots[key] = (slot[0], time.time() if used_at is None else used_at)
        self._slots.move_to_end(key)
        return True

    def discard(self, key: ChunkKey) -> bool:
        """Forget an entry; whether it was there."""
        slot = self._slots.pop(key, None)
        self.nbytes -= slot[0] if slot else 0
        return slot is not None

    def oldest(self, pinned: Container[ChunkKey] = ()) -> ChunkKey | None:
        """The least recently used key that is not pinned, found by stepping over those that are; None without one."""
        return next((key for key in self._slots if key not in pinned), None)

    def used_at(self, key: ChunkKey) -> float | None:
        """When an entry was last used; None if it is not there."""
        slot = self._slots.get(key)
        return slot and slot[1]

    def entries(self) -> Iterator[Entry]:
        """Every entry as of now, least recently used first."""
        slots = list(self._slots.items())
        return (Entry(key=key, nbytes=nbytes, used_at=used_at) for key, (nbytes, used_at) in slots)

    def clear(self) -> None:
        """Forget everything."""
        self._slots.clear()
        self.nbytes = 0
