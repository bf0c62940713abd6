"""What an experiment is given and what it returns: rows, from which tables, files and figures are made.

An experiment is one file: a function from a Bench to points, and what the figure says of them. It knows engines and
questions; nothing of pictures, pages or files.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cacheblend import cancel as cancelling
from cacheblend.engine import Engine
from cacheblend.retrieval import Hit
from cacheblend.trace import Environment

Progress = Callable[[int, int, str], None]  # done, total, what is being measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One row of a figure. Everything that is drawn is here, so that a figure is a pure function of points.

    panel, series: which part of the figure, which line of it; x, y: in the units that the experiment names; low, high:
    of a 95 % bootstrap interval of y over questions, None where there is one value; n: how many values y is the mean
    of; z: of a matrix, the value of cell (x, y), with the cell's lower edges as x and y; label: what stands beside a
    point, or which settings it was measured with.
    """

    series: str
    x: float
    y: float
    panel: str = ""
    low: float | None = None
    high: float | None = None
    n: int = 1
    z: float | None = None
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question with the chunks in front of it; answers: any of them is right, none where nobody knows."""

    question: str
    hits: tuple[Hit, ...]
    answers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """An engine, the questions to measure with, and somebody who watches and may stop it.

    ratio: of blend where a figure does not vary it.
    """

    engine: Engine
    asked: tuple[Asked, ...]
    ratio: float = 0.15
    max_new_tokens: int = 16
    progress: Progress = field(default=lambda done, total, what: None)
    cancel: threading.Event | None = None

    def __post_init__(self) -> None:
        if not self.asked or any(not one.hits for one in self.asked):
            raise ValueError("An experiment needs at least one question, and chunks in front of each.")

    def step(self, done: int, total: int, what: str) -> None:
        """Say how far it is; raises Cancelled once somebody has asked to stop."""
        cancelling.check(self.cancel)
        self.progress(done, total, what)


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One of the paper's figures, or one of ours.

    name: “fig16”; title: in a few words; asks: the question it answers, one sentence; x, y: axis titles with units, by
    panel where panels differ; measures: how, and where it departs from the paper, in a few sentences; run: the rows.
    """

    name: str
    title: str
    asks: str
    x: str | dict[str, str]
    y: str | dict[str, str]
    measures: str
    run: Callable[[Bench], Sequence[Point]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """An experiment that was run. left_out: what could not be measured, one sentence each."""

    experiment: str
    points: tuple[Point, ...]
    environment: Environment
    questions: int
    context_tokens: tuple[int, int]  # of the shortest and the longest prompt
    left_out: tuple[str, ...] = ()
