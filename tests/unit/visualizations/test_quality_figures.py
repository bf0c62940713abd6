"""Figures of the quality experiments: they draw the points they are given, and the paper's, labelled as the paper's."""

from __future__ import annotations

import importlib
import json

import plotly.graph_objects as go
import pytest

from cacheblend.evaluation.experiments import fig02 as fig02_run
from cacheblend.evaluation.experiments import fig06 as fig06_run
from cacheblend.evaluation.experiments import fig12 as fig12_run
from cacheblend.evaluation.experiments import fig13 as fig13_run
from cacheblend.evaluation.experiments import fig16 as fig16_run
from cacheblend.evaluation.experiments import frontier as frontier_run
from cacheblend.evaluation.points import Picked, Point, Result
from cacheblend.policies import POLICIES_TOLD
from cacheblend.trace import Environment, Mode, Recipe
from visualizations import paper, theme
from visualizations.experiments import fig02, fig06, fig12, fig13, fig16, frontier
from visualizations.experiments.lines import Look, Panel, panels_figure

ENVIRONMENT = Environment(
    model="tiny", device="cpu", dtype="float32", threads=1, torch_version="2", recorded_at="2026-01-01T00:00:00+00:00"
)
FIGURES = {"fig02": fig02, "fig06": fig06, "fig12": fig12, "fig13": fig13, "fig16": fig16, "frontier": frontier}


def result(name: str, points: list[Point]) -> Result:
    return Result(
        experiment=name, points=tuple(points), environment=ENVIRONMENT, questions=5, context_tokens=(100, 200)
    )


def point(panel: str, series: str, x: float, y: float, **options) -> Point:
    options = {"n": 5, "low": y - 0.01, "high": y + 0.01} | options
    return Point(panel=panel, series=series, x=x, y=y, **options)


def title(figure: go.Figure) -> str:
    return figure.layout.title.text.split("<br><span")[0].replace("<br>", " ").replace("\N{NO-BREAK SPACE}", " ")


def notes(figure: go.Figure) -> str:
    small = figure.layout.title.text.split('<span style="font-size:11px">')[1:]
    return " ".join(part.partition("</span>")[0] for part in small)


def measured(figure: go.Figure) -> dict[str, list]:
    return {t.name: list(zip(t.x, t.y, strict=True)) for t in figure.data if not t.name.startswith("paper: ")}


def papers(figure: go.Figure) -> dict[str, list]:
    traces = [t for t in figure.data if t.name.startswith("paper: ")]
    assert all(t.line.color == paper.COLOUR and t.line.dash == paper.DASH for t in traces)
    return {t.name: list(zip(t.x, t.y, strict=True)) for t in traces}


def test_a_page_can_have_the_title_and_the_figure_apart():
    figure = fig16.draw(result("fig16", [point(fig16_run.CLOSED, fig16_run.SINGLE, 15.0, 0.5)]))
    finding, told, bare = theme.untitled(figure)
    assert finding.replace("\N{NO-BREAK SPACE}", " ") == title(figure) and " ".join(told) == notes(figure)
    assert told and bare.layout.title.text is None and figure.layout.title.text
    above = figure.layout.margin.t - bare.layout.margin.t
    assert above == figure.layout.height - bare.layout.height > 0, "what is drawn is as high as before"
    assert len(bare.data) == len(figure.data) and 0 < bare.layout.margin.t < 80


@pytest.mark.parametrize("name", FIGURES)
def test_no_points_are_a_titled_empty_figure(name):
    figure = FIGURES[name].draw(result(name, []))
    assert not figure.data and title(figure)
    assert figure.layout.annotations[0].text == "Nothing was measured."


@pytest.mark.parametrize(
    ("run", "drawn", "panels"),
    [
        (fig02_run, fig02, ("F1", "KL")),
        (fig06_run, fig06, ("ATTENTION", "KV")),
        (fig12_run, fig12, ("CLOSED", "F1")),
        (fig13_run, fig13, ("GOLD", "TO_FULL")),
        (fig16_run, fig16, ("CLOSED", "F1", "SINGLE", "GRADUAL", "PRIMED")),
        (frontier_run, frontier, ("BUDGET", "TIME")),
    ],
)
def test_figures_and_experiments_call_things_by_the_same_names(run, drawn, panels):
    assert [getattr(run, name) for name in panels] == [getattr(drawn, name) for name in panels]


def test_every_series_of_every_experiment_has_a_look():
    assert set(fig02.LOOKS) == {Mode.FULL, *fig02_run.MODES}
    assert set(fig06.LOOKS) == set(fig06_run.SERIES)
    assert set(fig12.LOOKS) == {Mode.FULL, *fig12_run.MODES}
    assert set(fig13.LOOKS) == {Mode.FULL, *fig13_run.MODES}
    points = [point(frontier.TIME, series, 0.3, 0.1) for series in _frontier_series()]
    drawn = {t.name for t in frontier.draw(result("frontier", points)).data} - {frontier.UNBEATEN}
    assert len(drawn) == len(points)


def test_fig02_draws_points_beside_the_papers_curves():
    points = [
        point(fig02.F1, "full", 1, 0.2),
        point(fig02.F1, "full", 3, 0.3),
        *(point(fig02.KL, series, x, y) for series, x, y in (("reuse", 1, 0.05), ("reuse", 3, 0.2), ("blend", 3, 0.1))),
    ]
    figure = fig02.draw(result("fig02", points))
    assert measured(figure)["full reuse"] == [(1, 0.05), (3, 0.2)]
    assert measured(figure)["full recompute"] == [(1, 0.2), (3, 0.3)]
    read = papers(figure)
    assert set(read) == {
        f"paper: full {how}, {data}" for how in ("recompute", "reuse") for data in ("Musique", "2WikiMQA")
    }
    assert read["paper: full reuse, Musique"][0] == (1, 0.187)
    assert title(figure) == "Full reuse is 0.2 nats from full with 3 chunks, 0.05 with 1; blend 0.1 with 3"
    assert "128 tokens" in notes(figure)


def test_fig06_draws_the_papers_three_models():
    points = [
        point(fig06.ATTENTION, s, x, y) for s, x, y in (("HKVD", 0, 1), ("HKVD", 15, 0.4), ("random tokens", 15, 0.9))
    ]
    figure = fig06.draw(result("fig06", [*points, point(fig06.KV, "HKVD", 15, 0.5)]))
    assert (
        title(figure)
        == "Recomputing 15 % leaves of reuse's attention deviation 40 % with HKVD; 90 % with random tokens"
    )
    read = papers(figure)
    assert set(read) == {f"paper: {model}, Musique" for model in ("Mistral-7B", "Yi-34B", "Llama-70B")}
    assert (15.0, 0.202) in read["paper: Yi-34B, Musique"]
    assert measured(figure)["HKVD"]


def test_fig12_transforms_the_papers_points():
    points = [
        point(fig12.CLOSED, mode, x, y) for mode, x, y in (("reuse", 0.1, 0), ("blend", 0.3, 0.47), ("prime", 0.3, 0.7))
    ]
    figure = fig12.draw(result("fig12", points))
    assert (
        title(figure)
        == "Blend closes 47 % of reuse's distance at 0.3 × full's TTFT; PrimeBlend 70 % at 0.3 × full's TTFT"
    )
    read = papers(figure)
    assert set(read) == {"paper: blend, 12 panels", "paper: full reuse, 12 panels", "paper: prefix caching, 12 panels"}
    panel = next(p for p in paper.curves("fig12") if (p["dataset"], p["model"]) == ("Musique", "Yi-34B"))
    assert panel["points"]["CacheBlend"] == {"ttft": 0.607, "quality": 0.3382}
    by_hand = (pytest.approx(0.607 / 2.22), pytest.approx((0.3382 - 0.1726) / (0.3581 - 0.1726)))
    assert by_hand in read["paper: blend, 12 panels"]
    assert {y for _, y in read["paper: full reuse, 12 panels"]} == {0}
    assert len(read["paper: blend, 12 panels"]) == 12
    blend = next(t for t in figure.data if t.name == "paper: blend, 12 panels")
    assert "CacheBlend, Yi-34B, Musique" in blend.customdata


def test_fig12_draws_what_is_far_below_reuse_on_the_edge_and_says_where_it_is():
    points = [
        point(fig12.CLOSED, "unplaced", 0.1, -2.014, label="TTFT 9 ms"),
        point(fig12.CLOSED, "blend", 0.3, 0.2, low=-0.9),
        point(fig12.F1, "unplaced", 0.1, 0.0),
    ]
    figure = fig12.draw(result("fig12", points))
    unplaced, f1 = (t for t in figure.data if t.name == "reuse, positions uncorrected")
    assert (unplaced.y, f1.y) == ((fig12.LEAST,), (0.0,))
    assert unplaced.customdata[0][3].replace("\N{NO-BREAK SPACE}", " ") == "really −201 %; TTFT 9 ms"
    said = notes(figure).replace("\N{NO-BREAK SPACE}", " ")
    assert "Drawn at the bottom: reuse, positions uncorrected −201 %" in said
    blend = next(t for t in figure.data if t.name == "blend")
    assert blend.error_y.arrayminus[0] == pytest.approx(0.7)


def test_fig13_divides_the_papers_times_by_those_of_figure_12():
    points = [
        point(fig13.GOLD, mode, x, y) for mode, x, y in (("full", 1, 0.2), ("blend", 0.3, 0.2), ("map-reduce", 2, 0.1))
    ]
    figure = fig13.draw(result("fig13", points))
    read = papers(figure)
    assert read["paper: MapReduce, Yi-34B, 2WikiMQA"] == [(pytest.approx(2.19 / 2.22), 0.2202)]
    assert read["paper: MapRerank, Yi-34B, Musique"] == [(pytest.approx(0.185 / 2.22), 0.06)]
    assert title(figure) == "F1: blend 0.20 at 0.3 × full's TTFT; MapReduce 0.10 at 2 × full's TTFT"
    to_full = fig13.draw(result("fig13", [point(fig13.TO_FULL, "full", 1, 1)]))
    assert not papers(to_full), "the paper's F1 is against gold answers"
    assert "No question has a gold answer" in notes(to_full)


def test_fig16_transforms_the_papers_curves_to_shares_of_the_gap():
    points = [point(fig16.CLOSED, s, 15, y) for s, y in ((fig16.SINGLE, 0.47), (fig16.PRIMED, 0.71))]
    figure = fig16.draw(result("fig16", points))
    assert title(figure) == "At 15 % blend closes 47 % of reuse's distance; PrimeBlend 71 %"
    read = papers(figure)
    assert set(read) == {f"paper: Yi-34B, {name}" for name in ("2WikiMQA", "Musique", "SAMSum", "MultiNews")}
    assert read["paper: Yi-34B, 2WikiMQA"][0] == (3.5, pytest.approx((0.2845 - 0.1512) / (0.3301 - 0.1512)))
    assert read["paper: Yi-34B, Musique"][3] == (19.5, pytest.approx((0.3382 - 0.1726) / (0.3581 - 0.1726)))
    with_f1 = fig16.draw(result("fig16", [*points, point(fig16.F1, fig16.SINGLE, 15, 0.1)]))
    f1 = [t.name for t in with_f1.data if t.xaxis == "x2" and t.name.startswith("paper")]
    assert f1 == ["paper: Yi-34B, 2WikiMQA", "paper: Yi-34B, Musique"], "Rouge-L is another measure"


def _frontier_series() -> list[str]:
    return ["full", "reuse", "prime", *(about.name for about in POLICIES_TOLD if about.is_choice)]


def test_the_frontier_rings_what_nobody_beats_and_leaves_the_oracle_out():
    points = [
        point(frontier.BUDGET, "reuse", 0, 0.2, label=Picked("none", Recipe.BARE, 0).label),
        point(frontier.BUDGET, "random", 15, 0.25, label=Picked("random", Recipe.BARE, 0.15).label),
        point(frontier.BUDGET, "hkvd", 15, 0.1, label=Picked("hkvd", Recipe.BARE, 0.15).label),
        point(frontier.BUDGET, "oracle", 5, 0.01, label=Picked("oracle", Recipe.BARE, 0.05).label),
        point(frontier.BUDGET, "full", 100, 0.0),
        point(frontier.TIME, "hkvd", 0.3, 0.1, label=Picked("hkvd", Recipe.BARE, 0.15).label),
        point(frontier.TIME, "full", 1, 0.0),
    ]
    figure = frontier.draw(result("frontier", points))
    rings = [list(zip(t.x, t.y, strict=True)) for t in figure.data if t.name == frontier.UNBEATEN]
    bottom = pytest.approx(0.6 * 0.01)
    assert rings == [[(0, 0.2), (15, 0.1)], [(0.3, 0.1), (1, bottom)]], "a logarithm has no 0"
    assert measured(figure)["full recompute"] == [(1, bottom)]
    assert "KL below 0.006 are drawn at the bottom" in notes(figure)
    assert "Lower-left is better" in notes(figure)
    assert figure.layout.yaxis2.matches == "y"
    assert title(figure) == "Nearest to full: HKVD at 15 % (0.1); without recomputing: reuse, bare (0.2)"
    assert any("not to be had" in t.name for t in figure.data)
    hkvd = next(t for t in figure.data if t.name == "HKVD")
    assert [row[3] for row in hkvd.customdata] == ["hkvd|bare|0.15"], "so that a click can open the run"


def test_policies_differ_in_colour_and_in_marker():
    looks = frontier._looks().values()
    assert len({(look.colour, look.symbol) for look in looks}) == len(looks)
    assert len({look.symbol for look in looks}) >= 10


def test_one_question_has_no_intervals_and_the_figure_says_so():
    alone = [point(fig16.CLOSED, fig16.SINGLE, x, 0.4, n=1, low=None, high=None) for x in (5, 15)]
    figure = fig16.draw(result("fig16", alone))
    assert notes(figure).endswith("n = 1, no intervals")
    assert all(t.error_y.array is None for t in figure.data)
    several = fig16.draw(result("fig16", [point(fig16.CLOSED, fig16.SINGLE, 15, 0.4)]))
    assert notes(several).endswith("n = 5 questions; bars: 95\N{NO-BREAK SPACE}% bootstrap intervals")
    bars = next(t for t in several.data if t.name.startswith("blend")).error_y
    assert (bars.array[0], bars.arrayminus[0]) == (pytest.approx(0.01), pytest.approx(0.01))


def test_labels_are_escaped_and_a_series_stands_in_the_legend_once():
    points = [point(panel, "s", 1, 0.5, label="<b>x</b>") for panel in "ab"]
    panels = [Panel(name=name, x="x", y="y") for name in "ab"]
    figure = panels_figure("t", points, panels, {"s": Look(name="s", colour="#000000")})
    assert "<b>" not in figure.data[0].customdata[0][4] and "&lt;b&gt;" in figure.data[0].customdata[0][4]
    assert [t.showlegend for t in figure.data] == [True, False]


@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_small_and_need_no_torch(name):
    module = importlib.import_module(f"visualizations.experiments.{name}")
    series = {"frontier": _frontier_series()}.get(name) or list(getattr(module, "LOOKS", {}))
    panels = [
        value
        for key, value in vars(module).items()
        if key in ("F1", "KL", "CLOSED", "ATTENTION", "KV", "GOLD", "BUDGET", "TIME")
    ]
    points = [point(panel, one, x, 0.1 * x) for panel in panels for one in series for x in range(1, 12)]
    figure = module.draw(result(name, points))
    text = figure.to_json()
    assert len(text) < 300_000 and json.loads(text)["layout"]["height"] >= 300
