"""An experiment on a visitor's own documents and questions, from the form to a result. Knows nothing of Gradio.

Chunk caches are made first; then everybody's turn is held while something is timed, and given up between two runs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from cacheblend.commands.stopping import duration
from cacheblend.evaluation.catalogue import ABOUT
from cacheblend.prompt import PromptTooLongError
from ui import asking, notices
from ui.background import stream
from ui.ownership import note_owned, note_prompt
from ui.performed import Performed
from ui.sessions import Session, new_id
from ui.settings import MAX_TOP_K
from ui.studio import Studio

if TYPE_CHECKING:
    from cacheblend.engine import Engine
    from cacheblend.evaluation.experiments import Asked
    from cacheblend.evaluation.points import Result

MAX_QUESTIONS = 20
MAX_NEW_TOKENS = 16  # of an answer: the distance to full is measured along it
TOLD_EVERY_S = 1.0  # the browser draws what it is told on this processor
YIELD_S = 0.005  # between two runs, for whoever waits for their turn
NO_DOCUMENTS = "There are no documents yet: upload some under Compare, or pick a sample collection there."


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is to be measured, and on what."""

    name: str
    questions: tuple[str, ...]
    chunks: int
    ratio: float


@dataclass(frozen=True, slots=True)
class Step:
    """How far it is; the result comes last."""

    status: str
    performed: Performed | None = None


def parse(name: str, lines: str, chunks: float, percent: float) -> Wish:
    """Read the form's raw values; whatever they are, the result is a Wish or a ValueError for the visitor."""
    if name not in ABOUT:
        raise ValueError("There is no such experiment: choose one of those shown.")
    questions = tuple(dict.fromkeys(asking.checked(line) for line in (lines or "").splitlines() if line.strip()))
    if not questions:
        raise ValueError("There is no question: write at least one, each on a line of its own.")
    if len(questions) > MAX_QUESTIONS:
        raise ValueError(f"These are {len(questions)} questions: keep the {MAX_QUESTIONS} that matter most.")
    return Wish(
        name=name,
        questions=questions,
        chunks=round(_within("the number of chunks", chunks, 1, MAX_TOP_K)),
        ratio=_within("the recompute ratio", percent, 0, 100) / 100,
    )


def _within(what: str, value: Any, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise ValueError(f"{what.capitalize()} must lie between {low:g} and {high:g}.")
    return float(value)


def suggested(studio: Studio, session: Session | None, run_id: str | None) -> str:
    """The questions to begin with: the one on screen, and those of the sample, each on a line."""
    run = session.runs.get(run_id or "") if session else None
    sample = studio.samples.get(session.sample or "") if session else None
    own = [" ".join(run.comparison.question.split())] if run else []
    questions = [*own, *(known.question for known in (sample.questions if sample else ()))]
    return "\n".join(list(dict.fromkeys(questions))[:MAX_QUESTIONS])


def run(studio: Studio, session: Session | None, wish: Wish) -> Iterator[Step]:
    """Retrieve, make the chunk caches, measure, and keep the result with the visitor."""
    if session is None or session.collection is None or not session.collection.documents:
        raise ValueError(NO_DOCUMENTS)
    collection = session.collection
    with session.job() as cancel:
        engine = yield from stream(
            lambda say: studio.engine_of(session, say), lambda said: Step(notices.progress(said))
        )
        yield Step(notices.progress("Finding the chunks of each question"))
        experiments = import_module("cacheblend.evaluation.experiments")
        asked: tuple[Asked, ...] = tuple(
            experiments.Asked(
                question=question,
                hits=tuple(collection.search(question, wish.chunks)),
                answers=answers(studio, question),
            )
            for question in wish.questions
        )
        chunks = [hit.chunk for one in asked for hit in one.hits]
        yield from stream(
            lambda tell: engine.precompute(chunks, progress=tell, cancel=cancel),
            lambda done, total: Step(notices.progress(f"Computing chunk caches: {done} of {total}", done, total)),
        )
        _note(engine, session, asked)
        result = yield from stream(lambda tell: _measure(studio, engine, wish, asked, tell, cancel), shown)
        performed = Performed(
            id=new_id(),
            result=result,
            asked=tuple((one.question, one.hits) for one in asked),
            max_new_tokens=MAX_NEW_TOKENS,
        )
        session.experiments.append(performed)
        yield Step(notices.done("Measured."), performed)


def _note(engine: Engine, session: Session, asked: tuple[Asked, ...]) -> None:
    """Compare the visitor's chunks with each other, and note the prefixes that stay in the store."""
    collection = session.collection
    if collection is None:
        return
    chunks = {hit.chunk.token_ids for one in asked for hit in one.hits}
    engine.recipes.learn(*collection.vectors, wanted=chunks)
    note_owned(engine, session)
    for one in asked:
        with suppress(PromptTooLongError):  # such a question is left out
            note_prompt(engine, session, one.question, one.hits, MAX_NEW_TOKENS)


def answers(studio: Studio, question: str) -> tuple[str, ...]:
    """What is known to be right: of the samples' own questions, asked word for word."""
    known = studio.expected(question)
    return tuple(dict.fromkeys((known.answer, *known.accepted))) if known else ()


def shown(done: int, total: int, what: str, left_s: float | None) -> Step:
    """How far an experiment is, and how long the rest takes at its pace so far."""
    left = "" if left_s is None else f", about {duration(left_s)} left"
    return Step(notices.progress(f"{done} of {total}{left}: {what}", done, total))


def _measure(
    studio: Studio,
    engine: Engine,
    wish: Wish,
    asked: tuple[Asked, ...],
    tell: Callable[..., None],
    cancel: threading.Event,
) -> Result:
    experiments = import_module("cacheblend.evaluation.experiments")
    with studio.turn:
        bench = experiments.Bench(
            engine=engine,
            asked=asked,
            ratio=wish.ratio,
            max_new_tokens=MAX_NEW_TOKENS,
            progress=Pace(studio.turn, tell).step,
            cancel=cancel,
        )
        result: Result = experiments.perform(wish.name, bench)
        return result


class Pace:
    """Between two timed runs: gives up the turn for a moment, and says now and then how far it is."""

    def __init__(self, turn: threading.Lock, tell: Callable[..., None]) -> None:
        """turn: held by whoever calls `step`."""
        self._turn, self._tell = turn, tell
        self._start, self._told = time.monotonic(), float("-inf")

    def step(self, done: int, total: int, what: str) -> None:
        """A run is about to begin."""
        self._turn.release()
        try:
            now = time.monotonic()
            if now - self._told < TOLD_EVERY_S:
                time.sleep(YIELD_S)
                return
            self._told = now
            self._tell(done, total, what, (now - self._start) / done * (total - done) if done else None)
            time.sleep(asking.SETTLE_S)
        finally:
            self._turn.acquire()
