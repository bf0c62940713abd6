"""Tiers of chunk KV, fastest first: found, put, evicted, demoted, promoted and counted in one place.

Knows tiers, keys and bytes; nothing of media, models or prompts. A hit is verified by its token ids.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from cacheblend.kv import ChunkKey, ChunkKV, ChunkLostError, StoredChunk
from cacheblend.kv.encoded import materialise
from cacheblend.loading import Place
from cacheblend.store.base import Movable, Tier, TierFullError

logger = logging.getLogger(__name__)

KEPT_EVENTS = 200
LASTING = (Place.DISK, Place.REMOTE)  # what is there is still there after a restart


class StoreFullError(ValueError):
    """An entry fits into no tier beside what is pinned."""


class Happening(StrEnum):
    """What the store does with an entry."""

    HIT = "hit"
    MISS = "miss"  # in no tier
    STORED = "stored"
    EVICTED = "evicted"  # out of its tier, and out of the store
    DEMOTED = "demoted"  # out of its tier, still in a slower one
    PROMOTED = "promoted"  # copied into the fastest tier after a hit in a slower one
    LOST = "lost"  # damaged or gone when it was read: computed again
    REFUSED = "refused"  # a tier could not take it


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreEvent:
    """One thing that happened; place: the tier it happened in, None for a miss; at: seconds since the epoch."""

    what: Happening
    key: ChunkKey
    place: Place | None
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TierStats:
    """One tier, counted since the store was opened. misses: lookups that came here and found nothing."""

    place: Place
    entries: int
    nbytes: int
    capacity: int
    hits: int
    misses: int
    evictions: int
    demotions: int
    promotions: int
    refusals: int
    losses: int


class Store:
    """Chunk KV over several tiers. Every method may be called from several threads.

    What is put goes into the fastest tier at once; `settle`, called when nobody waits, writes it down to the tiers that
    last, and promotes what was hit in slower ones.
    """

    def __init__(self, tiers: Sequence[Tier]) -> None:
        if not tiers:
            raise ValueError("a store needs at least one tier")
        self.tiers = tuple(tiers)
        self.events: deque[StoreEvent] = deque(maxlen=KEPT_EVENTS)
        self._lock = threading.RLock()
        self._pins: Counter[ChunkKey] = Counter()
        self._counts: dict[Place, Counter[Happening]] = {tier.place: Counter() for tier in self.tiers}
        self._missed: Counter[Place] = Counter()
        self._unwritten: dict[ChunkKey, ChunkKV] = {}
        self._hit_below: dict[ChunkKey, StoredChunk] = {}

    def get(self, key: ChunkKey, token_ids: tuple[int, ...]) -> StoredChunk | None:
        """Find an entry whose token ids are these, in the fastest tier that has it; None is a miss."""
        with self._lock:
            for level, tier in enumerate(self.tiers):
                chunk = tier.get(key)
                if chunk is not None and chunk.token_ids == token_ids:
                    self._note(Happening.HIT, key, tier)
                    if level > 0:
                        self._hit_below[key] = chunk
                    return chunk
                self._missed[tier.place] += 1
            self._note(Happening.MISS, key, None)
            return None

    def __contains__(self, key: ChunkKey) -> bool:
        return any(key in tier for tier in self.tiers)

    def where(self, key: ChunkKey) -> tuple[Place, ...]:
        """The tiers that hold an entry, fastest first."""
        return tuple(tier.place for tier in self.tiers if key in tier)

    def put(self, chunk: ChunkKV) -> None:
        """Add an entry to the fastest tier that can take it, evicting the least recently used that are not pinned.

        StoreFullError if no tier can.
        """
        with self._lock:
            for level, tier in enumerate(self.tiers):
                if self._put(level, chunk):
                    self._note(Happening.STORED, chunk.key, tier)
                    if any(lower.place in LASTING for lower in self.tiers[level + 1 :]):
                        self._unwritten[chunk.key] = chunk
                    return
        sizes = ", ".join(f"{tier.place} {tier.capacity / 1e6:.0f} MB" for tier in self.tiers)
        raise StoreFullError(
            f"{chunk.nbytes / 1e6:.0f} MB of KV do not fit into the store ({sizes}); "
            "raise its size or ask with fewer chunks."
        )

    def refresh(self, keys: Iterable[ChunkKey]) -> None:
        """Mark entries as used in this order, which decides who is evicted first; not counted as hits."""
        with self._lock:
            for key in keys:
                tier = next((tier for tier in self.tiers if key in tier), None)
                if tier is not None:
                    tier.get(key)

    @contextmanager
    def pinned(self, keys: Iterable[ChunkKey]) -> Iterator[None]:
        """Hold while entries are in use: they are not evicted from any tier."""
        held = list(keys)
        with self._lock:
            self._pins.update(held)
        try:
            yield
        finally:
            with self._lock:
                self._pins -= Counter(held)

    def settle(self) -> None:
        """Write new entries down to the tiers that last, and promote what was hit below the fastest tier."""
        with self._lock:
            new, self._unwritten = self._unwritten, {}
            hit_below, self._hit_below = self._hit_below, {}
            for key, chunk in new.items():
                for level, tier in enumerate(self.tiers):
                    if tier.place in LASTING and key not in tier:
                        self._put(level, chunk)
            for key, found in hit_below.items():
                self._promote(key, found)

    def lose(self, key: ChunkKey) -> None:
        """Note that an entry turned out damaged or gone while it was read, and drop what is left of it."""
        with self._lock:
            self._hit_below.pop(key, None)
            for tier in self.tiers:
                if key in tier:
                    self._note(Happening.LOST, key, tier)
                    tier.remove(key)

    def remove(self, key: ChunkKey) -> None:
        """Drop an entry from every tier."""
        with self._lock:
            self._unwritten.pop(key, None)
            self._hit_below.pop(key, None)
            for tier in self.tiers:
                tier.remove(key)

    def clear(self) -> None:
        """Drop every entry of every tier."""
        with self._lock:
            self._unwritten.clear()
            self._hit_below.clear()
            for tier in self.tiers:
                tier.clear()

    def close(self) -> None:
        """Write down what is not written yet, and let go of files and connections."""
        self.settle()
        for tier in self.tiers:
            tier.close()

    @property
    def stats(self) -> tuple[TierStats, ...]:
        """A snapshot of every tier, fastest first."""
        with self._lock:
            return tuple(self._stats(tier) for tier in self.tiers)

    # Within

    def _stats(self, tier: Tier) -> TierStats:
        counts = self._counts[tier.place]
        return TierStats(
            place=tier.place,
            entries=len(tier),
            nbytes=tier.nbytes,
            capacity=tier.capacity,
            hits=counts[Happening.HIT],
            misses=self._missed[tier.place],
            evictions=counts[Happening.EVICTED] + counts[Happening.DEMOTED],
            demotions=counts[Happening.DEMOTED],
            promotions=counts[Happening.PROMOTED],
            refusals=tier.refusals,
            losses=tier.losses,
        )

    def _put(self, level: int, chunk: Movable) -> bool:
        """Add to one tier, making room first; whether it took the entry."""
        tier = self.tiers[level]
        try:
            prepared = tier.prepare(chunk)
            if not self._make_room(level, prepared):
                return False
            tier.put(prepared)
        except (TierFullError, ChunkLostError) as error:
            logger.warning("%s could not take a chunk: %s", tier.place, error)
            self._note(Happening.REFUSED, chunk.key, tier)
            return False
        return True

    def _make_room(self, level: int, incoming: Movable) -> bool:
        """Evict from one tier until an entry fits; False, with nothing evicted, if it cannot."""
        tier = self.tiers[level]
        tier.remove(incoming.key)  # it is replaced
        held = sum(entry.nbytes for entry in tier.entries() if entry.key in self._pins) if self._pins else 0
        if held + incoming.nbytes > tier.capacity:
            return False
        while tier.nbytes + incoming.nbytes > tier.capacity:
            victim = tier.oldest(self._pins)
            if victim is None:
                return False
            self._evict(level, victim)
        return True

    def _evict(self, level: int, key: ChunkKey) -> None:
        """Take an entry out of its tier, down into the next that takes it."""
        tier = self.tiers[level]
        is_kept = any(key in lower for lower in self.tiers[level + 1 :])
        if not is_kept and level + 1 < len(self.tiers):
            chunk = tier.take(key)
            is_kept = chunk is not None and any(self._put(i, chunk) for i in range(level + 1, len(self.tiers)))
        tier.remove(key)
        self._note(Happening.DEMOTED if is_kept else Happening.EVICTED, key, tier)

    def _promote(self, key: ChunkKey, chunk: StoredChunk) -> None:
        """Copy an entry into the fastest tier; one that has gone meanwhile stays away."""
        if key in self.tiers[0]:
            return
        try:
            if self._put(0, materialise(chunk)):
                self._note(Happening.PROMOTED, key, self.tiers[0])
        except ChunkLostError as error:
            logger.warning("a chunk was lost before it could be promoted: %s", error)
            self.lose(key)

    def _note(self, what: Happening, key: ChunkKey, tier: Tier | None) -> None:
        if tier is not None:
            self._counts[tier.place][what] += 1
        self.events.append(StoreEvent(what=what, key=key, place=None if tier is None else tier.place, at=time.time()))
