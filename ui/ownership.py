"""Which entries of the store are a visitor's: the caches of every chunk of theirs, and of the prompt's prefix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cacheblend.engine import Engine
    from cacheblend.kv import ChunkKey
    from ui.sessions import Session

PREFIX = "what stands before every prompt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """What an entry is of. number: of the chunk in its document, from 1; None for what is of no document."""

    document: str
    number: int | None
    num_tokens: int

    @property
    def label(self) -> str:
        """As chunks are called elsewhere."""
        return self.document if self.number is None else f"{self.document} · {self.number}"


def note_owned(engine: Engine, session: Session) -> dict[ChunkKey, Owned]:
    """The visitor's entries by key, wherever they are or if they are nowhere; those of removed documents included.

    engine: as this visitor sees it. Keys are hashed once, as this is asked every other second.
    """
    prefix = tuple(engine.prompts.prefix)
    if prefix and prefix not in session.keys:
        session.keys[prefix] = engine.caches.key(prefix)
        session.owned[session.keys[prefix]] = Owned(document=PREFIX, number=None, num_tokens=len(prefix))
    for chunk in session.chunks:
        if chunk.token_ids not in session.keys:
            key = session.keys[chunk.token_ids] = engine.caches.key(chunk.token_ids)
            session.owned[key] = Owned(document=chunk.document, number=chunk.index + 1, num_tokens=len(chunk.token_ids))
    return dict(session.owned)
