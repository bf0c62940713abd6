"""What a tier of the store is: a bounded place for chunk KV that evicts nothing by itself."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import Protocol

from cacheblend.kv import ChunkKey, ChunkKV, StoredChunk
from cacheblend.kv.encoded import EncodedChunk
from cacheblend.loading import Place

Movable = ChunkKV | EncodedChunk  # a chunk's KV in hand: what can be put into any tier


class TierFullError(Exception):
    """The tier cannot take the entry although room was made for it (a full disk, a server that refuses)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry as `entries` lists it; used_at: seconds since the epoch of its last use."""

    key: ChunkKey
    nbytes: int
    used_at: float


class Tier(Protocol):
    """A bounded place for chunk KV. The store above it decides what is evicted, demoted and promoted.

    Every method may be called from several threads. Trouble with the medium is a miss, or TierFullError when writing:
    logged by the tier, counted in `refusals` and `losses`, never raised as anything else.
    """

    place: Place
    capacity: int  # bytes
    refusals: int  # writes that the medium refused
    losses: int  # entries that were damaged, foreign or unreachable when they were asked for

    @property
    def nbytes(self) -> int:
        """Bytes taken."""
        ...

    def __len__(self) -> int:
        """Entries."""
        ...

    def __contains__(self, key: ChunkKey) -> bool:
        """Whether the entry is there; does not count as a use."""
        ...

    def get(self, key: ChunkKey) -> StoredChunk | None:
        """The entry, to be read layer by layer; marks it as used. It stays readable, or raises ChunkLostError."""
        ...

    def prepare(self, chunk: Movable) -> Movable:
        """The chunk as it would be kept here (encoded, moved to the device): its nbytes is what it would take."""
        ...

    def put(self, prepared: Movable) -> None:
        """Add what `prepare` returned, replacing an entry of the same key; the caller has made room."""
        ...

    def take(self, key: ChunkKey) -> Movable | None:
        """What is stored, in hand, to be put elsewhere; None if it is gone. Does not count as a use."""
        ...

    def remove(self, key: ChunkKey) -> None:
        """Drop one entry; nothing happens if it is not there."""
        ...

    def oldest(self, pinned: Container[ChunkKey]) -> ChunkKey | None:
        """The least recently used entry that is not pinned; None if there is none."""
        ...

    def entries(self) -> Iterator[Entry]:
        """Every entry, least recently used first."""
        ...

    def clear(self) -> None:
        """Drop every entry."""
        ...

    def close(self) -> None:
        """Let go of files and connections; entries stay."""
        ...
