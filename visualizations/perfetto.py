"""Traces in the Chrome Trace Event format, which ui.perfetto.dev and chrome://tracing open."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from cacheblend.trace import Lane, Mode, Span, Trace
from visualizations import theme


def chrome_trace(traces: Iterable[Trace]) -> str:
    """Return JSON: one process per mode, one thread per lane, times in microseconds from the start of each run.

    Spans of one lane that overlap go to further threads of the same name, as a thread's events must nest or follow.
    """
    events = [event for trace in traces for event in _mode_events(trace)]
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}, ensure_ascii=False)


def _mode_events(trace: Trace) -> list[dict[str, Any]]:
    pid = list(Mode).index(trace.mode) + 1
    events = [_metadata("process_name", pid, 0, theme.label(trace))]
    tid = 0
    for lane in Lane:
        for track in _tracks(s for s in trace.spans if s.lane is lane):
            tid += 1
            events.append(_metadata("thread_name", pid, tid, lane.value))
            events.append({**_metadata("thread_sort_index", pid, tid, ""), "args": {"sort_index": tid}})
            events += [_event(span, pid, tid) for span in track]
    return events


def _tracks(spans: Iterable[Span]) -> list[list[Span]]:
    """Spread spans over as few tracks as it takes for none to overlap another."""
    tracks: list[list[Span]] = []
    for span in sorted(spans, key=lambda s: (s.start_ms, s.end_ms)):
        free = next((t for t in tracks if _microseconds(t[-1].end_ms) <= _microseconds(span.start_ms)), None)
        if free is None:
            tracks.append([span])
        else:
            free.append(span)
    return tracks


def _microseconds(ms: float) -> float:
    return round(ms * 1000, 3)


def _event(span: Span, pid: int, tid: int) -> dict[str, Any]:
    start = _microseconds(span.start_ms)
    args: dict[str, Any] = {"source": "emulated" if span.emulated else "measured"}
    if span.layer is not None:
        args["layer"] = span.layer
    duration = round(_microseconds(span.end_ms) - start, 3)
    place = {"pid": pid, "tid": tid}
    return {"name": span.name, "cat": span.lane.value, "ph": "X", "ts": start, "dur": duration, **place, "args": args}


def _metadata(kind: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}
