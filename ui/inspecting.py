"""The recording pass behind the Inspect tab, with progress. Knows nothing of Gradio or figures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from cacheblend.trace import Comparison
from ui import notices
from ui.background import stream
from ui.studio import Studio

GONE = "This run is no longer in memory: ask the question again to look inside."


@dataclass(frozen=True, slots=True)
class Step:
    """How far the pass is; the inspected comparison comes last."""

    status: str
    comparison: Comparison | None = None


def look(studio: Studio, session_id: str | None, run_id: str | None) -> Iterator[Step]:
    """Run the prompt once more with a recorder, and keep what it saw with the visitor's run."""
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
