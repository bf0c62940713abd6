"""Which entries of the store are a visitor's: what was made of their documents, in whatever form.

A form is what the KV has seen: nothing else, a recipe's text, or everything in front of it in one prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cacheblend.policies import RECIPE
from cacheblend.trace import Recipe, SegmentKind

if TYPE_CHECKING:
    from cacheblend.documents import Chunk
    from cacheblend.engine import Engine
    from cacheblend.kv import ChunkKey
    from cacheblend.retrieval import Hit
    from ui.sessions import Session

PREFIX = "what stands before every prompt"
IN_PROMPT = "in its prompt"  # a unit of a stored prefix
FIXED = tuple(recipe for recipe in Recipe if recipe is not Recipe.SIMILAR)  # what they put in front is always the same


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """What an entry is of. number: of the chunk in its document, from 1; None for what is of no document.

    form: what its KV has seen; seen: other documents of the visitor that are part of it.
    """

    document: str
    number: int | None
    num_tokens: int
    form: str = RECIPE[Recipe.BARE].behind
    seen: frozenset[str] = frozenset()

    @property
    def label(self) -> str:
        """As chunks are called elsewhere; with its form unless that is the usual one."""
        name = self.document if self.number is None else f"{self.document} · {self.number}"
        return name if self.form == RECIPE[Recipe.BARE].behind else f"{name}, {self.form}"


def note_owned(engine: Engine, session: Session) -> dict[ChunkKey, Owned]:
    """The visitor's entries by key, wherever they are or if they are nowhere.

    engine: as this visitor sees it. Keys are hashed once, as this is asked every other second.
    """
    prefix = tuple(engine.prompts.prefix)
    if prefix and prefix not in session.noted:
        session.noted.add(prefix)
        session.owned[engine.caches.key(prefix)] = Owned(document=PREFIX, number=None, num_tokens=len(prefix))
    for chunk in session.chunks:
        if chunk.token_ids not in session.noted:
            session.noted.add(chunk.token_ids)
            for recipe in FIXED:
                _note(engine, session, chunk, recipe)
    if engine.recipes.compared:
        _note_similar(engine, session)
    return dict(session.owned)


def _note_similar(engine: Engine, session: Session) -> None:
    """Note the chunks of which it has become known what stands in front of them."""
    whose = {chunk.token_ids: chunk for chunk in session.chunks}
    for ids in engine.recipes.compared - session.noted_similar:
        if ids in whose:
            session.noted_similar.add(ids)
            others = {whose[other].document for other in engine.recipes.similar(ids) if other in whose}
            _note(engine, session, whose[ids], Recipe.SIMILAR, frozenset(others))


def note_prompt(engine: Engine, session: Session, question: str, hits: Sequence[Hit], max_new_tokens: int) -> None:
    """Note the units of the prefix that a prompt leaves in the store: each has seen all documents in front of it."""
    note_owned(engine, session)
    plan = engine.plan(question, hits, max_new_tokens=max_new_tokens)
    chunks = iter(hits)
    behind = [(s, next(chunks).chunk if s.kind is SegmentKind.CHUNK else None) for s in plan.context]
    start = 0
    for key, ids in zip(*engine.caches.units(plan), strict=True):
        seen = frozenset(chunk.document for segment, chunk in behind if chunk and segment.start < start + len(ids))
        chunk = next(chunk for segment, chunk in behind if segment.start <= start < segment.stop)
        made = Owned(
            document=chunk.document if chunk else PREFIX,
            number=chunk.index + 1 if chunk else None,
            num_tokens=len(ids),
            form=IN_PROMPT,
            seen=seen,
        )
        session.owned.setdefault(key, made)  # what begins a prompt may be a bare chunk as well
        start += len(ids)


def forget(engine: Engine, session: Session, document: str) -> list[ChunkKey]:
    """Forget a document that was removed; returns the entries that were made of it and of nothing that is left."""
    gone = {key for key, owned in session.owned.items() if document == owned.document or document in owned.seen}
    for key in gone:
        del session.owned[key]
    session.noted.clear()
    session.noted_similar.clear()
    engine.recipes.forget()
    left = note_owned(engine, session)
    return [key for key in gone if key not in left]


def _note(engine: Engine, session: Session, chunk: Chunk, recipe: Recipe, seen: frozenset[str] = frozenset()) -> None:
    """Note one chunk made one way; with an empty system prefix two recipes may be one, and the first is its name."""
    key = engine.caches.key(chunk.token_ids, engine.recipes.front(recipe, chunk.token_ids))
    session.owned.setdefault(
        key,
        Owned(
            document=chunk.document,
            number=chunk.index + 1,
            num_tokens=len(chunk.token_ids),
            form=RECIPE[recipe].behind,
            seen=seen,
        ),
    )
