"""The policy frontier: distance to full against what is recomputed and against time, for every policy and recipe.

Knows points; nothing of how they were measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import plotly.graph_objects as go

from cacheblend.evaluation.points import Picked, Point, Result
from cacheblend.policies import POLICIES_TOLD, RECIPE
from cacheblend.trace import Mode
from visualizations import theme
from visualizations.experiments.lines import Look, Panel, mode_look, panels_figure

BUDGET, TIME = "against budget", "against TTFT"
ORACLE = "oracle"
Y = "mean KL to full, nats (log scale)"
POLICY_COLOURS = ("#009e73", "#cc3311", "#7b5fc0", "#33bbee", "#997700", "#8a8f98", "#99bb44", "#ee8866")
POLICY_SYMBOLS = ("diamond", "square", "cross", "triangle-down", "pentagon", "x", "star", "hexagon", "bowtie")
HEIGHT = 340  # of a panel: many points lie close together
LEAST = 1e-4  # nats: what is nearer to full is drawn here, because a logarithm has no 0
TICKS = tuple(digit * 10.0**power for power in range(-4, 1) for digit in (1, 2, 5))
UNBEATEN = "beaten by none"
RING = {"symbol": "circle-open", "size": 17, "color": theme.QUESTION, "line": {"width": 1.8}}


def draw(result: Result) -> go.Figure:
    """Mean KL to full against the share recomputed and against TTFT, on the same axis; lower-left is better."""
    points = [point for point in result.points if not (point.panel == BUDGET and point.series == Mode.FULL)]
    panels = [
        Panel(name=BUDGET, x="context tokens recomputed, %", y=Y),
        Panel(name=TIME, x="TTFT, divided by full recompute's", y=Y),
    ]
    floor = _floor(points)
    note = (
        "Lower-left is better; rings: no other point is nearer to full and cheaper, the oracle aside, which is not to "
        f"be had. Full recompute (100 %, KL 0) and all KL below {floor:.1g} are drawn at the bottom"
    )
    raised = [replace(p, y=max(p.y, floor), low=p.low and max(p.low, floor)) for p in points]
    figure = panels_figure(_title(points), raised, panels, _looks(), note=note, height=HEIGHT)
    shown = [part for panel in panels if (part := [point for point in points if point.panel == panel.name])]
    if shown:
        figure.update_yaxes(type="log", matches="y", tickvals=TICKS, ticktext=[f"{tick:g}" for tick in TICKS])
        figure.update_xaxes(rangemode="tozero")
    for row, part in enumerate(shown, 1):
        _ring(figure, [replace(point, y=max(point.y, floor)) for point in unbeaten(part)], row)
    return figure


def _floor(points: Sequence[Point]) -> float:
    """A little below the nearest measured point."""
    return max(LEAST, 0.6 * min((point.y for point in points if point.y > LEAST), default=1.0))


def unbeaten(points: Sequence[Point]) -> list[Point]:
    """The points than which no other is at most as far and at most as dear; the oracle neither beats nor counts."""
    real = [point for point in points if point.series != ORACLE]
    return [
        point
        for point in real
        if not any(
            other.x <= point.x and other.y <= point.y and (other.x, other.y) != (point.x, point.y) for other in real
        )
    ]


def _looks() -> dict[str, Look]:
    """Full, reuse and PrimeBlend as everywhere; a policy keeps its colour and marker, which follow the list of all."""
    looks = {
        Mode.FULL.value: mode_look(Mode.FULL, draw="markers"),
        Mode.REUSE.value: mode_look(Mode.REUSE, symbol="hourglass", draw="markers"),
        Mode.PRIME.value: mode_look(Mode.PRIME, symbol="triangle-up"),
    }
    return looks | {about.name: policy_look(about.name) for about in POLICIES_TOLD if about.is_choice}


def policy_look(name: str) -> Look:
    """A selection policy, in the same colour and with the same marker in every figure."""
    i, about = next((i, about) for i, about in enumerate(POLICIES_TOLD) if about.name == name)
    is_oracle = name == ORACLE
    return Look(
        name=f"{about.title}, not to be had" if is_oracle else about.title,
        colour=POLICY_COLOURS[i % len(POLICY_COLOURS)],
        symbol=POLICY_SYMBOLS[i % len(POLICY_SYMBOLS)],
        dash="dot" if is_oracle else "solid",
    )


def _ring(figure: go.Figure, points: Sequence[Point], row: int) -> None:
    figure.add_scatter(
        x=[point.x for point in points],
        y=[point.y for point in points],
        name=UNBEATEN,
        legendgroup=UNBEATEN,
        legendrank=1500,
        showlegend=row == 1,
        mode="markers",
        marker=RING,
        cliponaxis=False,
        hoverinfo="skip",
        row=row,
        col=1,
    )


def _title(points: Sequence[Point]) -> str:
    budget = [point for point in points if point.panel == BUDGET and point.series != ORACLE]
    if not budget:
        return "Distance to full against budget and time"
    best = min((point for point in budget if point.series != Mode.REUSE), key=lambda point: point.y, default=None)
    reuse = min((point for point in budget if point.series == Mode.REUSE), key=lambda point: point.y, default=None)
    said = f"Nearest to full: {_said(best)}" if best else "Distance to full against budget and time"
    return f"{said}; without recomputing: {_said(reuse)}" if best and reuse else said


def _said(point: Point) -> str:
    """A point in words, with its distance."""
    picked = Picked.of(point.label)
    if picked is None or point.series == Mode.REUSE:
        name = f"reuse, {RECIPE[picked.recipe].title}" if picked else point.series
    else:
        titles = {about.name: about.title for about in POLICIES_TOLD} | {Mode.PRIME.value: "PrimeBlend"}
        name = f"{titles[point.series]} at {theme.percent(picked.ratio)}"
    return f"{name} ({point.y:.2g})"
