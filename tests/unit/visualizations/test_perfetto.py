"""The exported trace follows the rules of the Trace Event format."""

import json
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

from cacheblend.trace import Lane, Mode, Span
from tests.synthetic import synthetic_comparison
from visualizations.perfetto import chrome_trace


def test_every_span_is_there_and_no_thread_overlaps() -> None:
    traces = synthetic_comparison(500).traces
    clash = Span(lane=Lane.LOAD, name="load ahead", start_ms=0.0, end_ms=5.0, layer=9, emulated=True)
    traces = (*traces[:2], replace(traces[2], spans=(*traces[2].spans, clash)))
    events = json.loads(chrome_trace(traces))["traceEvents"]
    spans = [e for e in events if e["ph"] == "X"]
    assert len(spans) == sum(len(t.spans) for t in traces)
    threads = defaultdict(list)
    for event in spans:
        threads[event["pid"], event["tid"]].append(event)
    for thread in threads.values():
        assert len({e["cat"] for e in thread}) == 1
        ordered = sorted(thread, key=lambda e: e["ts"])
        assert all(a["ts"] + a["dur"] <= b["ts"] + 1e-6 for a, b in pairwise(ordered))
    assert [e["name"] for e in spans if e["args"]["source"] == "emulated"] == ["load ahead"]


def test_processes_are_modes_threads_are_lanes_and_time_is_microseconds() -> None:
    trace = synthetic_comparison(100).trace(Mode.BLEND)
    assert trace is not None
    events = json.loads(chrome_trace([trace]))["traceEvents"]
    assert [e["args"]["name"] for e in events if e["name"] == "process_name"] == ["blend"]
    lanes = [e["args"]["name"] for e in events if e["name"] == "thread_name"]
    assert lanes == ["lookup", "load", "place", "compute", "first token", "decode"]
    first = next(e for e in events if e["ph"] == "X")
    assert (first["ts"], first["dur"]) == (0, 300)
