"""The recording pass behind the Inspect tab, with progress. Knows nothing of Gradio or figures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from cacheblend.trace import Comparison, Mode
from ui import notices
from ui.background import stream
from ui.studio import Studio

FUSED = (Mode.BLEND, Mode.PRIME)  # what can be looked into
GONE = "This run is no longer in memory: ask the question again to look inside."


@dataclass(frozen=True, slots=True)
class Step:
    """How far the pass is; the inspected comparison comes last."""

    status: str
    comparison: Comparison | None = None


def choices(comparison: Comparison) -> list[Mode]:
    """The columns of a run that can be looked into; blend by the run's settings where none of them ran."""
    return [mode for mode in FUSED if comparison.trace(mode)] or [Mode.BLEND]


def look(studio: Studio, session_id: str | None, run_id: str | None, mode: Mode = Mode.BLEND) -> Iterator[Step]:
    """Run the prompt once more with a recorder, and keep what it saw with the visitor's run, in place of an earlier
    look into another mode."""
    if run_id is None:
        yield Step("")
        return
    session = studio.sessions.find(session_id)
    run = session.runs.get(run_id) if session else None
    if session is None or run is None or run.hits is None or run.blend is None:
        raise ValueError(GONE)
    hits, blend = run.hits, run.blend
    with session.job() as cancel:
        engine = studio.engine_of(session, lambda _: None)
        inspection = yield from stream(
            lambda tell: engine.inspect(
                run.comparison.question,
                hits,
                mode=mode,
                blend=blend,
                max_new_tokens=run.max_new_tokens,
                progress=tell,
                cancel=cancel,
            ),
            lambda done, total: Step(notices.progress("Recording the inside of the model", done, total)),
        )
    inspected = replace(run.comparison, inspection=inspection)
    session.keep(replace(run, comparison=inspected))
    yield Step("", inspected)
