"""What an experiment is given: an engine, questions, and somebody who watches.

Knows nothing of pictures, pages or files.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cacheblend import cancel as cancelling
from cacheblend.engine import Engine
from cacheblend.evaluation.points import Point
from cacheblend.retrieval import Hit

Progress = Callable[[int, int, str], None]  # done, total, what is being measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question with the chunks in front of it; answers: any of them is right, none where nobody knows."""

    question: str
    hits: tuple[Hit, ...]
    answers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """An engine, the questions to measure with, and somebody who watches and may stop it.

    ratio: of blend where a figure does not vary it; left_out: experiments add a sentence for what cannot be measured.
    """

    engine: Engine
    asked: tuple[Asked, ...]
    ratio: float = 0.15
    max_new_tokens: int = 16
    progress: Progress = field(default=lambda done, total, what: None)
    cancel: threading.Event | None = None
    left_out: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.asked or any(not one.hits for one in self.asked):
            raise ValueError("An experiment needs at least one question, and chunks in front of each.")

    def step(self, done: int, total: int, what: str) -> None:
        """Say how far it is; raises Cancelled once somebody has asked to stop."""
        cancelling.check(self.cancel)
        self.progress(done, total, what)


Experiment = Callable[[Bench], Sequence[Point]]
