"""Chunk caches that a question needs beyond those made when its documents were added: made before any clock starts."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, TypeVar

from cacheblend.policies import RECIPE
from cacheblend.trace import ON_CHUNKS, Mode, Recipe
from ui import notices
from ui.background import stream

if TYPE_CHECKING:
    import threading

    from cacheblend.config import BlendConfig
    from cacheblend.documents import Chunk
    from cacheblend.engine import Engine
    from ui.sessions import Session

Shown = TypeVar("Shown")


def prepared(
    engine: Engine,
    session: Session,
    chunks: Sequence[Chunk],
    recipes: Sequence[Recipe],
    cancel: threading.Event,
    show: Callable[[str], Shown],
) -> Generator[Shown, None, None]:
    """Make what is missing behind each recipe; yields show(what to say).

    Similar chunks are looked for in all documents of the visitor, not only among those retrieved.
    """
    for recipe in recipes:
        if recipe is Recipe.SIMILAR and session.collection is not None:
            engine.recipes.learn(*session.collection.vectors, wanted={chunk.token_ids for chunk in chunks})
        yield from _made(engine, chunks, recipe, cancel, show)


def _made(
    engine: Engine, chunks: Sequence[Chunk], recipe: Recipe, cancel: threading.Event, show: Callable[[str], Shown]
) -> Generator[Shown, None, None]:
    said = f"Preparing chunk caches made {RECIPE[recipe].behind}"
    yield from stream(
        lambda tell: engine.precompute(chunks, recipe, progress=tell, cancel=cancel),
        lambda done, total: show(notices.progress(f"{said}: {done} of {total}" if total else said, done, total)),
    )


def recipes_of(modes: Sequence[Mode], blend: BlendConfig) -> list[Recipe]:
    """Every recipe that these modes go by but “bare”, whose caches are made when documents are added."""
    asked = {blend.of(mode).recipe for mode in modes if mode in ON_CHUNKS}
    return [recipe for recipe in Recipe if recipe in asked and recipe is not Recipe.BARE]
