"""Figures of what is inside and what it costs, from points made by hand."""

from __future__ import annotations

import re

import numpy as np
import pytest

from cacheblend.evaluation.points import Point, Result
from cacheblend.trace import COMPARED, Environment, Mode
from visualizations import paper, theme
from visualizations.experiments import FIGURES, fig04, fig07, fig08, fig14, fig15, fig17

OURS = ("fig04", "fig07", "fig08", "fig14", "fig15", "fig17")
ENVIRONMENT = Environment(
    model="tiny", device="cpu", dtype="float32", threads=1, torch_version="0", recorded_at="2026-01-01T00:00:00Z"
)


def result(*points: Point) -> Result:
    return Result(experiment="figure", points=points, environment=ENVIRONMENT, questions=2, context_tokens=(600, 700))


def title(figure) -> str:
    return re.sub("<[^>]*>", "", figure.layout.title.text.replace("<br>", " ")).replace("\N{NO-BREAK SPACE}", " ")


def drawn(figure, name: str) -> list:
    return [trace for trace in figure.data if trace.name == name]


@pytest.mark.parametrize("name", OURS)
def test_nothing_measured_gives_a_titled_empty_figure(name):
    figure = FIGURES[name](result())
    assert not figure.data and figure.layout.title.text and "Nothing was measured" in figure.layout.annotations[0].text


# Attention


def attention(mode: Mode, z: list[list[float | None]]) -> list[Point]:
    return [
        Point(panel=mode, series=mode, x=10.0 * j, y=10.0 * i, z=value)
        for i, row in enumerate(z)
        for j, value in enumerate(row)
        if value is not None
    ]


MATRICES = {
    Mode.FULL: [[0.5, None, None], [0.1, 0.2, None], [0.05, 0.04, 0.01]],
    Mode.REUSE: [[0.5, None, None], [0.0, 0.2, None], [0.05, 0.04, 0.01]],
    Mode.BLEND: [[0.5, None, None], [0.01, 0.2, None], [0.05, 0.04, 0.01]],
}
SEGMENTS = [
    Point(panel="segments", series="chunk", x=0.0, y=10.0, label="layer 3 of 5"),
    Point(panel="segments", series="chunk", x=10.0, y=20.0, label="layer 3 of 5"),
    Point(panel="segments", series="question", x=20.0, y=25.0, label="layer 3 of 5"),
]
ACROSS = [
    Point(panel="between chunks", series=mode, x=3.0, y=y) for mode, y in zip(COMPARED, (0.29, 0.0, 0.06), strict=True)
]


def test_fig04_draws_three_matrices_on_one_scale():
    cells = [point for mode, z in MATRICES.items() for point in attention(mode, z)]
    figure = FIGURES["fig04"](result(*cells, *SEGMENTS, *ACROSS))
    assert len(figure.data) == 3 and len({(trace.zmin, trace.zmax) for trace in figure.data}) == 1
    full, reuse, _ = (np.asarray(trace.z) for trace in figure.data)
    assert full[1, 0] == pytest.approx(-1.0) and np.isnan(reuse[1, 0])  # nothing is empty, not dark
    assert list(figure.data[0].x) == [0, 10, 20, 25] and list(figure.data[0].y) == [0, 10, 20, 25]
    assert len(figure.layout.shapes) == 3 * 2 * 2
    assert "29 % of their attention" in title(figure) and "0 % in full reuse" in title(figure)
    assert "6 % in blend (layer 3 of 5" in title(figure)


def test_fig04_is_small_enough_to_send():
    cells = [
        Point(panel=mode, series=mode, x=float(j), y=float(i), z=1 / (1 + i + j))
        for mode in COMPARED
        for i in range(48)
        for j in range(i + 1)
    ]
    assert len(FIGURES["fig04"](result(*cells, *SEGMENTS, *ACROSS)).to_json()) < 300_000


# Deviations


def test_fig07_divides_the_papers_curves_by_their_own_medians():
    x, shares = np.array([0.0, 2.0, 4.0, 8.0]), np.array([0.0, 0.4, 0.6, 1.0])
    assert fig07.median_of(x, shares) == pytest.approx(3.0)
    assert fig07.median_of(x, shares, 0.9) == pytest.approx(7.0)
    for curve in fig07.paper_cdfs():
        assert np.interp(0.5, curve.y, curve.x) == pytest.approx(1.0, abs=0.06)
    low, high = fig07.paper_tails()
    assert 1.5 < low < high < 2.1


def test_fig07_says_how_long_the_tail_is():
    points = [
        Point(panel="CDF", series=f"layer {layer} of 30", x=x, y=y, n=800)
        for layer in (4, 5)
        for x, y in ((0.2, 0.1), (1.0, 0.5), (2.0, 0.9), (9.0, 1.0))
    ]
    tails = [Point(panel="p90 / median", series=f"layer {n} of 30", x=n, y=y, n=2) for n, y in ((4, 2.0), (5, 2.42))]
    figure = FIGURES["fig07"](result(*points, *tails))
    assert "2.0 to 2.4 × the median (paper: 1.7 to 2.0 ×)" in title(figure) and "9 medians" in title(figure)
    assert list(drawn(figure, "layer 4 of 30")[0].y)[-1] == 1.0
    assert [trace.name for trace in figure.data if trace.name.startswith("paper: ")] == [
        "paper: Mistral-7B, layer 5",
        "paper: Yi-34B, layer 11",
        "paper: Llama-70B, layer 5",
    ]


def test_fig08_puts_the_papers_neighbours_at_their_depth():
    curves = {curve.name: curve for curve in fig08.paper_neighbours()}
    assert curves["Mistral-7B"].x == (18.75, 40.625, 68.75, 100.0)
    assert curves["Mistral-7B"].y == (0.968, 0.989, 0.988, 0.987)


def test_fig08_judges_the_claim_by_what_is_shared():
    points = [
        Point(panel=panel, series=series, x=x, y=y, n=2, low=y - 0.1, high=y + 0.1)
        for panel, series, ys in (
            (fig08.RANKS, fig08.NEIGHBOURS, (0.9, 0.88)),
            (fig08.RANKS, fig08.SELECTING, (0.9, -0.08)),
            (fig08.OVERLAP, fig08.NEIGHBOURS, (0.7, 0.6)),
            (fig08.OVERLAP, fig08.SELECTING, (0.7, 0.1)),
        )
        for x, y in zip((50.0, 100.0), ys, strict=True)
    ]
    figure = FIGURES["fig08"](result(*points))
    assert "ρ 0.89" in title(figure) and "ρ −0.08 and shares 40 %" in title(figure)
    assert figure.layout.yaxis.range[0] < -0.18 and any(a.text == "by chance" for a in figure.layout.annotations)
    assert len(drawn(figure, fig08.SELECTING)) == 2


# Time


def load_points() -> list[Point]:
    points = []
    for panel, grow in (("p50", 1.0), ("p95", 1.5)):
        for mode, ttft in ((Mode.FULL, 2.0), (Mode.BLEND, 0.5)):
            points += [
                Point(panel=panel, series=mode, x=x, y=ttft * (1 + grow * x), n=8, label="busy") for x in (0.0, 0.2)
            ]
    points.append(Point(panel="sustained", series=Mode.FULL, x=0.2, y=6.0, n=8, label="nothing stored"))
    points.append(Point(panel="sustained", series=Mode.BLEND, x=0.5, y=6.0, n=8, label="60 % of 32 look-ups found"))
    return points


def test_fig14_is_drawn_in_units_of_full():
    figure = FIGURES["fig14"](result(*load_points()))
    blend = drawn(figure, theme.MODE_LABELS[Mode.BLEND])
    assert list(blend[0].x) == [0.0, 0.4] and list(blend[0].y) == pytest.approx([0.25, 0.3])
    assert list(blend[2].x) == [1.0] and list(blend[2].y) == [3.0]
    assert "0.5 requests/s" in blend[2].hovertemplate and "60 % of 32" in blend[2].hovertemplate
    assert "blend 2.5 ×" in title(figure) and "p95 stays below 3 of these" in title(figure)


def test_fig14_rescales_the_paper_by_its_own_full():
    curves = {curve.name: curve for curve in fig14.paper_load()}
    chosen = next(
        one
        for one in paper.curves("fig14")
        if one["model"] == fig14.PAPER_MODEL and one["dataset"] == fig14.PAPER_DATASET
    )["series"]
    unit = chosen["Full KV recompute"][0][1]
    assert curves["Mistral-7B, Full KV recompute"].y[0] == 1.0
    assert curves["Mistral-7B, CacheBlend"].x[0] == pytest.approx(chosen["CacheBlend"][0][0] * unit)
    assert curves["Mistral-7B, CacheBlend"].y[0] == pytest.approx(chosen["CacheBlend"][0][1] / unit)


def cost_points() -> list[Point]:
    return [
        Point(panel=panel, series=mode, x=x, y=y * x, n=2)
        for panel, xs in (("number of chunks", (1.0, 2.0, 4.0)), ("batch size", (1.0, 2.0, 4.0)))
        for mode, y in ((Mode.FULL, 100.0), (Mode.REUSE, 10.0), (Mode.BLEND, 25.0))
        for x in xs
    ]


def test_fig15_rescales_the_paper_to_our_full_at_its_first_x():
    full, blend = fig15.rescaled(cost_points(), "number of chunks")
    assert full.x[0] == 3.0 and full.y[0] == pytest.approx(300.0)  # between our 2 and 4 chunks
    assert blend.y[0] == pytest.approx(300.0 * 0.022 / 0.266)
    assert full.x == (3.0, 5.0, 7.0)  # 11 chunks lie beyond twice ours
    assert fig15.rescaled([], "number of chunks") == ()


def test_fig15_names_what_is_gained_and_what_is_rescaled():
    figure = FIGURES["fig15"](result(*cost_points()))
    assert "4.0 × sooner than full's with one chunk, 4.0 × with 4 chunks" in title(figure)
    assert drawn(figure, "paper: CacheBlend, rescaled") and len(drawn(figure, theme.MODE_LABELS[Mode.REUSE])) == 2
    assert "one after another" in title(figure)


def device_points(distance: float) -> list[Point]:
    names = ("host memory", "SSD 1 GB/s, emulated", "disk 4 Gbps, emulated")
    points = [Point(panel="TTFT", series=Mode.FULL, x=0.0, y=1.0)]
    for x, name in enumerate(names):
        for mode, y in ((Mode.REUSE, 0.1), (Mode.BLEND, 0.25)):
            points.append(Point(panel="TTFT", series=mode, x=float(x), y=y * (x + 1), label=name))
            points.append(Point(panel="distance to full", series=mode, x=float(x), y=0.2 + distance * x, label=name))
    return points


def test_fig17_marks_what_is_emulated_and_where_the_paper_is():
    figure = FIGURES["fig17"](result(*device_points(0.0)))
    (blend,) = drawn(figure, theme.MODE_LABELS[Mode.BLEND])
    assert list(blend.x) == [0.25, 0.5, 0.75]
    assert list(blend.y) == ["host memory", "SSD 1 GB/s<br>emulated", "disk 4 Gbps<br>emulated"]
    (theirs,) = drawn(figure, "paper: Yi-34B, blend")
    assert list(theirs.x) == pytest.approx([0.55 / 2.22, 1.44 / 2.22])
    assert list(theirs.y) == ["host memory", "disk 4 Gbps<br>emulated"]
    assert "25 % of full's TTFT from host memory, 75 % from disk 4 Gbps, emulated" in title(figure)
    assert "blend 0.2, the same on every device" in title(figure)


def test_fig17_says_when_quality_changes():
    assert "blend 0.2 to 0.6" in title(FIGURES["fig17"](result(*device_points(0.2))))
    assert fig17.paper_ratios()[Mode.REUSE]["host memory"] == pytest.approx(0.144 / 2.22)


def test_fig04_tells_zero_from_missing():
    points = [
        Point(panel="full", series="full", x=0.0, y=0.0, z=0.0),
        Point(panel="full", series="full", x=5.0, y=5.0, z=1.0),
    ]
    x, y, z = fig04.matrix(points, 8.0)
    assert list(x) == list(y) == [0.0, 5.0, 8.0]
    assert np.isnan(z[0, 0]) and np.isnan(z[0, 1]) and z[1, 1] == 0.0
