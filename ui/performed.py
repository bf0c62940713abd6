"""An experiment that a visitor ran, and what it was run on, so that one of its points can be run again and opened."""

from __future__ import annotations

from dataclasses import dataclass

from cacheblend.evaluation.points import Result
from cacheblend.retrieval import Hit


@dataclass(frozen=True, slots=True, kw_only=True)
class Performed:
    """A result; asked: each question with the chunks in front of it, nothing for the recorded result."""

    id: str
    result: Result
    asked: tuple[tuple[str, tuple[Hit, ...]], ...] = ()
