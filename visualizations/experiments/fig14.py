"""Figure 14 drawn: time to first token under load, and the rate that each mode sustains.

Axes are in units of full recompute without waiting, so that a small model and the paper's fit on them together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import plotly.graph_objects as go

from cacheblend.evaluation.points import Point, Result
from cacheblend.trace import Mode
from visualizations import paper, theme
from visualizations.experiments.lines import Curve, Look, Panel, mode_look, panels_figure, paper_curves

MEDIAN, TAIL, SUSTAINED = "p50", "p95", "sustained"
SYMBOLS = {Mode.FULL: "circle", Mode.PREFIX: "square", Mode.REUSE: "triangle-up", Mode.BLEND: "diamond"}
LOOKS: dict[str, Look] = {mode: mode_look(mode, symbol=symbol) for mode, symbol in SYMBOLS.items()}
PAPER_MODEL, PAPER_DATASET = "Mistral-7B", "Musique extended"
PAPER_FULL = "Full KV recompute"
HIGHEST = 6.0  # TTFT shown, × full's: where a queue grows, lines leave the frame


def draw(result: Result) -> go.Figure:
    """The middle and the slow end of TTFT; what each mode sustains stands on the line of the criterion."""
    full = next((p.y for p in result.points if p.panel == MEDIAN and p.series == Mode.FULL and p.x == 0), None)
    if not full:
        return panels_figure(_title([], 0.0), (), (), LOOKS)
    scaled = [replace(point, x=point.x * full, y=point.y / full) for point in result.points]
    rate, ttft = "requests per TTFT of full", "TTFT ÷ full's, nobody waiting"
    panels = [
        Panel(name=MEDIAN, title="half of the requests are sooner (p50)", x=rate, y=ttft, curves=paper_load()),
        Panel(name=TAIL, title="19 of 20 requests are sooner (p95)", x=rate, y=ttft),
    ]
    sustained = [point for point in scaled if point.panel == SUSTAINED]
    limit = sustained[0].y if sustained else 0.0
    note = (
        f"TTFT of full without waiting: {theme.duration(1000 * full)}. A rate is sustained while p95 stays below "
        f"{limit:.3g} of these (large markers). Measured one request after another; waiting is computed from Poisson "
        "arrivals. The paper does not say which average it draws."
    )
    lines = [point for point in scaled if point.panel != SUSTAINED]
    figure = panels_figure(_title(result.points, limit), lines, panels, LOOKS, note=note, counted="requests")
    farthest = max(*(point.x for point in lines), *(x for curve in paper_load() for x in curve.x))
    figure.update_xaxes(range=[-0.02 * farthest, 1.02 * farthest])  # one range, so that panels compare
    figure.add_hline(y=limit, line={"color": theme.QUESTION, "width": 1.5, "dash": "dash"}, row=2, col=1)
    for point, real in zip(sustained, (p for p in result.points if p.panel == SUSTAINED), strict=True):
        look = LOOKS[Mode(point.series)]
        figure.add_scatter(
            x=[point.x],
            y=[limit],
            mode="markers",
            name=look.name,
            legendgroup=look.name,
            showlegend=False,
            marker={"color": look.colour, "symbol": look.symbol, "size": 16, "line": {"color": "white", "width": 2}},
            hovertemplate=f"sustains {real.x:.3g} requests/s<br>{point.label}<extra>{look.name}</extra>",
            row=2,
            col=1,
        )
    figure.update_yaxes(range=[0, HIGHEST])
    return figure


def paper_load() -> tuple[Curve, ...]:
    """The paper's lines for one model and dataset, on the same axes: its full at its lowest rate is the unit."""
    chosen = next(
        one for one in paper.curves("fig14") if (one["model"], one["dataset"]) == (PAPER_MODEL, PAPER_DATASET)
    )
    full = chosen["series"][PAPER_FULL][0][1]
    return paper_curves(
        (f"{PAPER_MODEL}, {name}", [(x * full, y / full) for x, y in pairs]) for name, pairs in chosen["series"].items()
    )


def _title(points: Sequence[Point], limit: float) -> str:
    rates = {point.series: point.x for point in points if point.panel == SUSTAINED}
    full = rates.pop(Mode.FULL, 0.0)
    if not full or not rates:
        return "Time to first token under load"
    said = ", ".join(
        f"{theme.MODE_LABELS[Mode(name)]} {rate / full:.2g}\N{NO-BREAK SPACE}×" for name, rate in rates.items()
    )
    return f"Requests sustained, compared with full recompute: {said}"
