"""What the store holds of a visitor, what happens in it, and the Store tab's jobs. Knows nothing of Gradio or HTML.

Only a visitor's own entries are named; of all others there are counts and bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cacheblend.loading import Place
from ui import notices, words
from ui.background import stream
from ui.indexing import without_room
from ui.ownership import Owned, note_owned
from ui.sessions import Session
from ui.studio import Studio

if TYPE_CHECKING:
    from cacheblend.kv import ChunkKey
    from cacheblend.store import Entry, StoreEvent, TierStats

NOTHING = "You have no chunk caches yet: upload documents or pick a sample collection first."


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """One of the visitor's entries. nbytes: as the fastest of its places keeps it; used_at: seconds since the epoch."""

    owned: Owned
    places: tuple[Place, ...]
    nbytes: int
    used_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """A snapshot of the store. own_nbytes: the visitor's by tier; events: the visitor's, newest first, with what
    they were about; others: what else happened among the events that the store remembers, counted."""

    tiers: tuple[TierStats, ...]
    own_nbytes: dict[Place, int]
    holdings: tuple[Holding, ...]
    events: tuple[tuple[StoreEvent, Owned], ...]
    others: Counter[str]


def board(studio: Studio, session: Session | None) -> Board | None:
    """Look at the store; None while no model is loaded, and so no store open."""
    if studio.loaded is None:
        return None
    owned = note_owned(studio.engine_of(session, _nothing), session) if session else {}
    store = studio.loaded.store
    entries = [(tier.place, entry) for tier in store.tiers for entry in tier.entries() if entry.key in owned]
    own_nbytes = {tier.place: sum(e.nbytes for place, e in entries if place is tier.place) for tier in store.tiers}
    events = store.events.copy()
    return Board(
        tiers=store.stats,
        own_nbytes=own_nbytes,
        holdings=tuple(_holdings(owned, entries)),
        events=tuple((event, owned[event.key]) for event in reversed(events) if event.key in owned),
        others=Counter(str(event.what) for event in events if event.key not in owned),
    )


def _holdings(owned: dict[ChunkKey, Owned], entries: Sequence[tuple[Place, Entry]]) -> Iterator[Holding]:
    by_key: dict[ChunkKey, list[tuple[Place, Entry]]] = {}
    for place, entry in entries:
        by_key.setdefault(entry.key, []).append((place, entry))
    for key, found in by_key.items():
        yield Holding(
            owned=owned[key],
            places=tuple(place for place, _ in found),
            nbytes=found[0][1].nbytes,
            used_at=max(entry.used_at for _, entry in found),
        )


def warm(studio: Studio, session: Session | None) -> Iterator[str]:
    """Compute what is missing of the visitor's chunk caches; yields what to say."""
    if session is None or not session.chunks:
        raise ValueError(NOTHING)
    with session.job() as cancel:
        engine = studio.engine_of(session, _nothing)
        done = yield from stream(
            lambda tell: engine.precompute(session.chunks, progress=tell, cancel=cancel),
            lambda done, total: notices.progress(f"Computing chunk caches: {done} of {total}", done, total),
        )
    computed = f"{words.count(done.prefilled, 'cache')} computed" if done.prefilled else "All were there"
    yield notices.done(f"{computed}; {without_room(done.skipped)}" if done.skipped else f"{computed}.")


def clear(studio: Studio, session: Session | None) -> Iterator[str]:
    """Remove the visitor's entries from every tier, and nobody else's; yields what to say."""
    if session is None or studio.loaded is None:
        raise ValueError(NOTHING)
    engine = studio.engine_of(session, _nothing)
    held = [key for key in note_owned(engine, session) if key in engine.store]
    for key in held:
        engine.store.remove(key)
    yield notices.done(f"{words.count(len(held), 'chunk cache')} removed from every tier.")


def _nothing(_: str) -> None:
    """The model is loaded: there is nothing to say."""
