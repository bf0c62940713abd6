"""A point of an experiment, run again on one question as full, reuse and blend, so that Inspect can look inside."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cacheblend.evaluation.points import Picked, Point
from cacheblend.events import Compared, Started
from cacheblend.policies import POLICY, behind
from cacheblend.trace import COMPARED
from ui import asking, cards, notices, words
from ui.background import stream
from ui.loading import blend_config
from ui.performed import Performed, find
from ui.preparing import prepared
from ui.sessions import Run, Session, new_id
from ui.studio import Studio
from ui.turns import undisturbed

if TYPE_CHECKING:
    from cacheblend.config import BlendConfig

GONE = "This result is no longer in memory: run the experiment again to look inside one of its points."
NO_DOCUMENTS = (
    "This result was recorded earlier, and its documents are not here: run the experiment on documents of your own, "
    "and look inside its points."
)


@dataclass(frozen=True, slots=True)
class Step:
    """How far it is; the id of the run comes last."""

    status: str
    run_id: str | None = None


def choices(performed: Performed | None) -> list[tuple[str, str]]:
    """The points that can be opened, (in words, label), each setting once; none of the recorded result."""
    if performed is None or not performed.asked:
        return []
    shown: dict[str, str] = {}
    for point in performed.result.points:
        picked = picked_of(point)
        if picked is not None:
            shown.setdefault(picked.label, f"{in_words(picked)} · {point.y:.3g}")
    return [(said, label) for label, said in shown.items()]


def picked_of(point: Point) -> Picked | None:
    """The settings that a point was measured with, if its label names some that there are."""
    picked = Picked.of(point.label)
    return picked if picked and picked.policy in POLICY else None


def in_words(picked: Picked) -> str:
    """Policy, ratio and recipe: “HKVD 15 %”, “full reuse; chunks made behind a neutral text”."""
    how = "full reuse" if picked.ratio == 0 else f"{POLICY[picked.policy].title} {words.share(picked.ratio)}"
    return behind(how, picked.recipe)


def questions(performed: Performed | None) -> list[tuple[str, int]]:
    """The questions of a result by number; long ones are cut."""
    asked: Sequence[tuple[str, object]] = performed.asked if performed else ()
    return [(_short(question), i) for i, (question, _) in enumerate(asked)]


def _short(text: str, most: int = 90) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def open_point(
    studio: Studio, session: Session | None, performed_id: str | None, label: str, number: int
) -> Iterator[Step]:
    """Compare full, reuse and blend with a point's settings on one question, and keep that as the visitor's run."""
    performed = find(session, performed_id)
    if session is None or performed is None or not performed.asked:
        raise ValueError(NO_DOCUMENTS if performed else GONE)
    picked = Picked.of(label) if label in {known for _, known in choices(performed)} else None
    if picked is None or not 0 <= number < len(performed.asked):
        raise ValueError("There is no such point: choose one of those listed.")
    question, hits = performed.asked[number]
    blend: BlendConfig = blend_config(policy=picked.policy, recipe=picked.recipe, ratio=picked.ratio)
    with session.job() as cancel:
        engine = yield from stream(
            lambda say: studio.engine_of(session, say), lambda said: Step(notices.progress(said))
        )
        yield from prepared(engine, session, [hit.chunk for hit in hits], [blend.recipe], cancel, Step)
        events = engine.compare(
            question, hits, modes=COMPARED, blend=blend, max_new_tokens=performed.max_new_tokens, cancel=cancel
        )
        for event in undisturbed(events, studio.turn):
            if isinstance(event, Started):
                yield Step(notices.progress(f"{cards.TITLES[event.mode]}: running {in_words(picked)} on one question"))
                time.sleep(asking.SETTLE_S)
            elif isinstance(event, Compared):
                run = Run(
                    id=new_id(),
                    comparison=event.comparison,
                    hits=hits,
                    blend=blend,
                    max_new_tokens=performed.max_new_tokens,
                )
                session.keep(run)
                yield Step(notices.IDLE, run.id)
