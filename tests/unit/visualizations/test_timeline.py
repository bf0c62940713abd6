"""What was predicted stands in the lanes of what was measured, hollow, apart, and named as what it is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cacheblend.loading import LoadOrder, Place
from cacheblend.trace import Lane, Loading, Mode, Span, Trace
from tests.synthetic import synthetic_comparison
from visualizations import theme
from visualizations.timeline import HOLLOW, timeline_figure

LAYERS = tuple(
    Span(lane=lane, name=f"predicted layer {i}", layer=i, start_ms=40 * i + 7 * at, end_ms=40 * i + 7 * at + 30)
    for i in range(6)
    for at, lane in enumerate((Lane.LOAD, Lane.DECOMPRESS, Lane.COMPUTE))
)
PREDICTED = (*LAYERS, Span(lane=Lane.FIRST_TOKEN, name="predicted first token", start_ms=244, end_ms=251))


@pytest.fixture(scope="module")
def traces() -> list[Trace]:
    return list(synthetic_comparison(300, layers=6, decoded=4).traces)


def with_prediction(trace: Trace, predicted: tuple[Span, ...] = PREDICTED) -> Trace:
    facts = Loading(
        places=(Place.MEMORY,), device="slow", codec="int8", order=LoadOrder.LAYERWISE, is_pipelined=True, nbytes=9
    )  # fmt: skip
    return replace(trace, loading=facts, predicted=predicted)


def test_every_predicted_span_is_outlined_in_its_lane_and_time(traces):
    figure = timeline_figure([traces[0], with_prediction(traces[2])])
    lanes = list(figure.layout.yaxis2.categoryarray)
    drawn = {(s.yref, lanes[round(s.y0)], round(s.x0, 6), round(s.x1, 6)) for s in figure.layout.shapes}
    assert drawn == {("y2", s.lane.value, round(s.start_ms, 6), round(s.end_ms, 6)) for s in PREDICTED}
    assert all("px" in s.line.dash for s in figure.layout.shapes)
    assert {s.line.color for s in figure.layout.shapes} == {theme.LANE_COLOURS[s.lane] for s in PREDICTED}


def test_what_is_predicted_is_hollow_says_so_and_hides_nothing_that_was_measured(traces):
    figure = timeline_figure([with_prediction(traces[2])])
    predicted = [bar for bar in figure.data if "predicted" in bar.hovertemplate]
    measured = [bar for bar in figure.data if "measured" in bar.hovertemplate]
    assert {bar.marker.color for bar in predicted} == {HOLLOW}
    assert sum(len(bar.base) for bar in predicted) == len(PREDICTED)
    assert sum(len(bar.base) for bar in measured) == len(traces[2].spans)
    assert max(bar.offset + bar.width for bar in measured) <= min(bar.offset for bar in predicted)
    assert "dashed outlines predicted" in figure.layout.title.text.replace("<br>", " ")
    assert "predicted 251 ms" in figure.layout.annotations[0].text


def test_a_lane_that_was_only_predicted_is_there(traces):
    lanes = timeline_figure([with_prediction(traces[2])]).layout.yaxis.categoryarray
    assert Lane.DECOMPRESS.value in lanes
    assert list(lanes) == [lane.value for lane in Lane if lane.value in lanes]


def test_without_a_prediction_nothing_changes(traces):
    figure = timeline_figure([with_prediction(traces[2], ())])
    assert not figure.layout.shapes
    assert {(bar.offset, bar.width) for bar in figure.data} == {(None, None)}
    assert "predicted" not in figure.layout.title.text + figure.layout.annotations[0].text


def test_a_prediction_for_a_long_run_stays_small():
    trace = next(t for t in synthetic_comparison(3000, layers=30).traces if t.mode is Mode.BLEND)
    spans = tuple(
        Span(lane=lane, name=f"predicted layer {i}", layer=i, start_ms=i, end_ms=i + 1)
        for i in range(30)
        for lane in (Lane.LOAD, Lane.DECOMPRESS, Lane.COMPUTE, Lane.PLACE, Lane.COMPUTE)
    )
    assert len(timeline_figure([with_prediction(trace, spans)]).to_json()) < 100_000


def test_replies_decoded_in_front_of_the_first_token_are_drawn_and_no_cache_is_claimed(traces):
    full = next(trace for trace in traces if trace.mode is Mode.FULL)
    spans = (
        Span(name="ask", lane=Lane.COMPUTE, start_ms=0, end_ms=40),
        Span(name="reply", lane=Lane.DECODE, start_ms=40, end_ms=90),
        Span(name="first token", lane=Lane.FIRST_TOKEN, start_ms=90, end_ms=91),
        Span(name="answer", lane=Lane.DECODE, start_ms=91, end_ms=120),
    )
    figure = timeline_figure([replace(full, mode=Mode.MAP_RERANK, spans=spans)], until_first_token=True)
    drawn = {(bar.y[i], bar.base[i]) for bar in figure.data for i in range(len(bar.y))}
    assert (Lane.DECODE.value, 40) in drawn and (Lane.DECODE.value, 91) not in drawn
    assert "warm" not in figure.layout.annotations[0].text and "cold" not in figure.layout.annotations[0].text


def test_the_title_holds_the_fastest_against_full(traces):
    slow = [
        replace(
            t,
            mode=Mode.MAP_REDUCE,
            spans=tuple(replace(s, start_ms=9 * s.start_ms, end_ms=9 * s.end_ms) for s in t.spans),
        )
        for t in traces
        if t.mode is Mode.FULL
    ]
    assert "than full recompute" in timeline_figure([*traces, *slow]).layout.title.text.replace("<br>", " ")
