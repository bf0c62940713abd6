"""Cake's two fronts, drawn from spans."""

from __future__ import annotations

import pytest

from cacheblend.meeting import stretch
from cacheblend.trace import Lane, Span
from visualizations import theme
from visualizations.fronts import fronts_figure


def span(
    lane: Lane, name: str, start_ms: float, end_ms: float, layer: int | None = None, emulated: bool = False
) -> Span:
    return Span(lane=lane, name=name, start_ms=start_ms, end_ms=end_ms, layer=layer, emulated=emulated)


def compute(start: int, stop: int, begin_ms: float, layer: int, **options) -> Span:
    return span(Lane.COMPUTE, f"compute {stretch(start, stop)}", begin_ms, begin_ms + 10, layer, **options)


def load(start: int, stop: int, begin_ms: float, **options) -> Span:
    return span(Lane.LOAD, f"load {stretch(start, stop)}", begin_ms, begin_ms + 20, **options)


# Two layers. The second chunk shrinks to what is missing, a third is given up; the last unit was partly computed.
RUN = [
    compute(0, 100, 0, 0),
    compute(0, 100, 10, 1),
    load(200, 300, 0, emulated=True),
    compute(100, 200, 20, 0),
    load(140, 200, 20, emulated=True),
    compute(100, 150, 30, 1),
    compute(150, 180, 40, 0),
    span(Lane.COMPUTE, "layer 0", 50, 60, 0),
    span(Lane.FIRST_TOKEN, "first token", 60, 64),
]


def drawn(figure) -> dict[str, list[tuple[float, float]]]:
    return {trace.name: list(zip(trace.x, trace.y, strict=True)) for trace in figure.data if trace.name}


def test_the_fronts_are_steps_of_what_was_finished():
    lines = drawn(fronts_figure(RUN, context_tokens=300, met_at=150))
    assert lines["computed"] == [(0, 0), (0, 0), (20, 100), (20, 100), (40, 150), (40, 150)]
    assert lines["loaded"] == [(0, 300), (0, 300), (20, 200), (20, 200), (40, 150), (40, 150)]
    assert lines["fronts met"] == [(40, 150)]
    assert {x for x, _ in lines["rest of the prefill"]} == {40, 64}
    assert "predicted" not in lines


def test_colours_mean_what_they_mean_elsewhere():
    colours = {t.name: t.line.color for t in fronts_figure(RUN, context_tokens=300, met_at=150).data}
    assert (colours["computed"], colours["loaded"]) == (theme.RECOMPUTED, theme.LOADING)


def test_a_prediction_is_marked_beside_it():
    lines = drawn(fronts_figure(RUN, context_tokens=300, met_at=150, predicted=(35.5, 140.2)))
    assert lines["predicted"] == [(35.5, 140.2)]


@pytest.mark.parametrize(
    ("loads", "computes", "said"),
    [
        (False, False, "(measured)"),
        (True, False, "(device emulated)"),
        (True, True, "(device and processor share"),
        (False, True, "(processor share emulated)"),
    ],
)
def test_the_title_says_what_is_emulated(loads, computes, said):
    spans = [load(100, 200, 0, emulated=loads), compute(0, 100, 0, 0, emulated=computes)]
    title = fronts_figure(spans, context_tokens=200, met_at=100).layout.title.text.replace("<br>", " ")
    assert said in title and "50" in title


@pytest.mark.parametrize("met_at", [0, 200])
def test_one_front_alone_is_drawn_too(met_at):
    spans = [load(0, 200, 0)] if met_at == 0 else [compute(0, 200, 0, 0)]
    figure = fronts_figure(spans, context_tokens=200, met_at=met_at)
    line = drawn(figure)["loaded" if met_at == 0 else "computed"]
    assert line[-1] == (figure.data[0].x[-1], met_at)
    label = figure.layout.annotations[0]
    assert label.ay > 0 if met_at else label.ay < 0, "the label stays inside the figure"


def test_nothing_run_says_so():
    assert "yet" in fronts_figure([], context_tokens=0, met_at=0).to_json()
    assert "yet" in fronts_figure([span(Lane.COMPUTE, "layer 0", 0, 1, 0)], context_tokens=9, met_at=0).to_json()
