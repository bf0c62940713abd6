"""Experiments that were run: the recorded one, and a visitor's own, with what they were run on.

What was asked is kept beside a result so that one of its points can be run again and looked into.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from cacheblend.evaluation.points import Result
from cacheblend.evaluation.results import load
from cacheblend.retrieval import Hit

if TYPE_CHECKING:
    from ui.sessions import Session

RECORDED_RESULT = Path(__file__).parent.parent / "assets" / "recorded" / "experiment.json"
RECORDED = "recorded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Performed:
    """A result; asked: each question with the chunks in front of it, nothing for the recorded result."""

    id: str
    result: Result
    asked: tuple[tuple[str, tuple[Hit, ...]], ...] = ()
    max_new_tokens: int = 0


@cache
def recorded(path: Path = RECORDED_RESULT) -> Performed | None:
    """The result that the tab opens on; None if none is shipped."""
    return Performed(id=RECORDED, result=load(path)) if path.is_file() else None


def listed(session: Session | None) -> Sequence[Performed]:
    """What a visitor can look at, the newest first, the recorded result last."""
    first = recorded()
    return [*(reversed(session.experiments) if session else ()), *([first] if first else ())]


def find(session: Session | None, performed_id: str | None) -> Performed | None:
    """One of these by its id; nobody finds another visitor's."""
    return next((performed for performed in listed(session) if performed.id == performed_id), None)
