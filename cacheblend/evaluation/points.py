"""The rows of an experiment, and what is to be said of them: facts, from which figures, tables and files are made.

The standard library only, and trace.py: a result is drawn where no model is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Self

from cacheblend.trace import Environment, Recipe


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
class About:
    """What an experiment is, for people.

    name: “fig16”; title: in a few words; asks: the question it answers, one sentence; measures: how, and where it
    departs from the paper, a few sentences; slow: what makes it long, a few words, "" where it is quick.
    """

    name: str
    title: str
    asks: str
    measures: str
    slow: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """An experiment that was run. context_tokens: of the shortest and of the longest prompt.

    left_out: what could not be measured, one sentence each.
    """

    experiment: str
    points: tuple[Point, ...]
    environment: Environment
    questions: int
    context_tokens: tuple[int, int]
    left_out: tuple[str, ...] = ()


class Picked(NamedTuple):
    """The settings of blend that a point was measured with, as its label carries them: “hkvd|bare|0.15”."""

    policy: str
    recipe: Recipe
    ratio: float

    @property
    def label(self) -> str:
        """As one string."""
        return f"{self.policy}|{self.recipe}|{self.ratio:g}"

    @classmethod
    def of(cls, label: str) -> Self | None:
        """Read a label; None if it names no settings, as full's does not."""
        parts = label.split("|")
        try:
            policy, recipe, ratio = parts
            return cls(policy, Recipe(recipe), float(ratio))
        except ValueError:
            return None
