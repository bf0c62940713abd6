"""What the page shares between visitors: one model, the samples, the recorded run; and who is visiting.

The model is loaded when it is first needed; until then everything on screen comes from the recorded run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cacheblend.trace import Comparison
from ui.sessions import Run, Session, Sessions

if TYPE_CHECKING:
    from cacheblend.collection import Collection
    from cacheblend.engine import Engine
    from cacheblend.samples import Sample, SampleQuestion

RECORDED = "recorded"
STOP_WAIT_S = 10.0  # a job looks at its switch between layers and between tokens

Say = Callable[[str], None]


class Studio:
    """Owns the model and the visitors. `load_engine` is called once, with a function that is told what is going on."""

    def __init__(
        self,
        load_engine: Callable[[Say], Engine],
        samples: Sequence[Sample] = (),
        recorded: Comparison | None = None,
        model: str = "embedded",
        *,
        shares_caches: bool = False,
    ) -> None:
        self.sessions = Sessions()
        self.samples = {sample.slug: sample for sample in samples}
        self.recorded = Run(id=RECORDED, comparison=recorded) if recorded else None
        self.model = model
        self.shares_caches = shares_caches
        self._load_engine = load_engine
        self._engine: Engine | None = None
        self._lock = threading.Lock()
        self.turn = threading.Lock()  # held while a run is being timed

    @property
    def loaded(self) -> Engine | None:
        """The engine, if it has been needed already."""
        return self._engine

    def engine(self, say: Say) -> Engine:
        """Return the engine, loading it the first time."""
        with self._lock:
            if self._engine is None:
                say("Loading the language model")
                self._engine = self._load_engine(say)
            return self._engine

    def engine_of(self, session: Session, say: Say) -> Engine:
        """The engine as this visitor sees it: with chunk caches that nobody else finds, unless caches are shared.

        Which chunks are alike is known of each visitor's own alone: nobody's text is put in front of another's.
        """
        engine = self.engine(say)
        if session.recipes is None:
            session.recipes = engine.recipes.blank()
        return engine.of("" if self.shares_caches else session.tenant, session.recipes)

    def close(self) -> None:
        """End what is still under way, write down the chunk caches that are not written yet, and let go of the store.

        A job that went on would keep the process until its end, with a store that is closed.
        """
        self.sessions.stop(STOP_WAIT_S)
        if self._engine is not None:
            self._engine.store.close()

    def collection(self, session: Session, say: Say) -> Collection:
        """Return the visitor's documents; loads the models the first time, whose tokenizer sizes the chunks."""
        engine = self.engine(say)
        if session.collection is None:
            say("Loading the embedding model")
            session.collection = engine.collection()
        return session.collection

    def run(self, run_id: str) -> Run | None:
        """Return the recorded run or a visitor's run; None if the id is unknown or forgotten."""
        return self.recorded if run_id == RECORDED else self.sessions.find_run(run_id)

    def expected(self, question: str) -> SampleQuestion | None:
        """Return the sample question that is asked word for word, whose answer is known."""
        questions = (known for sample in self.samples.values() for known in sample.questions)
        return next((known for known in questions if known.question == question), None)
