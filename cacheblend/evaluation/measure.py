"""One prompt, run in one setting after another and held against full.

Chunk caches are made before the clock starts. Knows an engine; nothing of gold answers, rows or files.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

from cacheblend.config import BlendConfig
from cacheblend.engine import DEFAULT_BLEND, DEFAULT_LOADING, Engine
from cacheblend.loading import LoadConfig
from cacheblend.retrieval import Hit
from cacheblend.run import Reference, Run
from cacheblend.trace import ON_CHUNKS, Mode, Recipe, Trace


class Measure:
    """A question behind its chunks, to be run in any mode. Raises PromptTooLongError if the model cannot take it.

    deviations: also measure how far KV and attention are from full's. The engine's store settles after every run.
    """

    def __init__(
        self,
        engine: Engine,
        question: str,
        hits: Sequence[Hit],
        *,
        max_new_tokens: int = 16,
        deviations: bool = False,
        cancel: threading.Event | None = None,
    ) -> None:
        self.engine, self.hits, self.cancel = engine, tuple(hits), cancel
        self.plan = engine.plan(question, hits, max_new_tokens=max_new_tokens)
        self._max_new_tokens, self._deviations = max_new_tokens, deviations
        self._full: Trace | None = None
        self.reference: Reference | None = None

    def precompute(self, recipes: Iterable[Recipe] = (Recipe.BARE,)) -> int:
        """Make the chunk caches of these recipes that are not in the store; how many there were not."""
        chunks = [hit.chunk for hit in self.hits]
        return sum(self.engine.precompute(chunks, recipe, cancel=self.cancel).prefilled for recipe in recipes)

    def full(self) -> Trace:
        """The run that the others are held against, made when it is first needed."""
        if self._full is None:
            self._full = self._run(Mode.FULL, DEFAULT_BLEND, DEFAULT_LOADING)
        return self._full

    def run(self, mode: Mode, blend: BlendConfig = DEFAULT_BLEND, loading: LoadConfig = DEFAULT_LOADING) -> Trace:
        """One timed run with warm chunk caches, and its distance to full. Full itself runs once."""
        full = self.full()
        if mode is Mode.FULL:
            return full
        if mode in ON_CHUNKS:
            self.precompute([blend.of(mode).recipe])
        return self._run(mode, blend, loading)

    def _run(self, mode: Mode, blend: BlendConfig, loading: LoadConfig) -> Trace:
        run = Run(
            self.engine, self.plan, mode, blend, loading, self._max_new_tokens, self.cancel, deviations=self._deviations
        )
        for _ in run.events(self.reference):
            pass
        if mode is Mode.FULL:
            self.reference = run.reference
        self.engine.store.settle()
        return run.trace
