"""Figure 12: time to first token against quality, with the paper's twelve panels behind it.

Knows points; nothing of how they were measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import plotly.graph_objects as go

from cacheblend.evaluation.points import Point, Result
from cacheblend.trace import Mode
from visualizations import paper, theme
from visualizations.experiments.lines import Curve, Look, Panel, mode_look, panels_figure, share, times

CLOSED, F1 = "share of reuse's distance closed", "F1 against the gold answer"
SYMBOLS = {
    Mode.FULL: "circle",
    Mode.PREFIX: "cross",
    Mode.UNPLACED: "x",
    Mode.REUSE: "square",
    Mode.BLEND: "diamond",
    Mode.PRIME: "triangle-up",
}
LOOKS: dict[str, Look] = {
    mode.value: mode_look(mode, symbol=symbol, draw="markers") for mode, symbol in SYMBOLS.items()
}
PAPERS = {"CacheBlend": Mode.BLEND, "Full KV reuse": Mode.REUSE, "Prefix caching": Mode.PREFIX}
X = "TTFT, divided by full recompute's"
LEAST = -0.5  # what is farther from full than reuse by more is drawn here, so that the rest stays apart


def draw(result: Result) -> go.Figure:
    """One point a mode; upper-left is better."""
    panels = [
        Panel(name=CLOSED, x=X, y="1 − KL / KL of reuse", curves=paper_points()),
        Panel(name=F1, x=X, y="F1"),
    ]
    note = (
        "Upper-left is better. Paper: (quality − reuse) / (full − reuse), of F1 or Rouge-L, 3 models × 4 datasets; "
        f"ours: of mean KL to full{_below(result.points)}"
    )
    figure = panels_figure(_title(result.points), [_raised(p) for p in result.points], panels, LOOKS, note=note)
    if result.points:
        figure.update_xaxes(rangemode="tozero", matches="x")
    return figure


def _raised(point: Point) -> Point:
    """The point, or one on the edge that says where it really is."""
    if point.panel != CLOSED or point.y >= LEAST:
        return point if point.low is None or point.panel != CLOSED else replace(point, low=max(point.low, LEAST))
    return replace(point, y=LEAST, low=None, high=None, label=f"really {share(point.y)}; {point.label}")


def _below(points: Sequence[Point]) -> str:
    names = [
        f"{LOOKS[point.series].name} {share(point.y)}" for point in points if point.panel == CLOSED and point.y < LEAST
    ]
    return f". Drawn at the bottom: {', '.join(names)}" if names else ""


def paper_points() -> tuple[Curve, ...]:
    """The paper's points: the share of the gap from reuse to full against TTFT divided by full's, a curve a mode."""
    read = paper.curves("fig12")
    made = []
    for name, mode in PAPERS.items():
        pairs = [_moved(one["points"], name) for one in read]
        made.append(
            Curve(
                name=f"{theme.MODE_LABELS[mode]}, {len(read)} panels",
                x=tuple(x for x, _ in pairs),
                y=tuple(y for _, y in pairs),
                symbol=f"{SYMBOLS[mode]}-open",
                draw="markers",
                texts=tuple(f"{name}, {one['model']}, {one['dataset']}" for one in read),
            )
        )
    return tuple(made)


def _moved(points: dict[str, dict[str, float]], name: str) -> tuple[float, float]:
    one, reuse, full = points[name], points["Full KV reuse"], points["Full KV recompute"]
    closed = (one["quality"] - reuse["quality"]) / (full["quality"] - reuse["quality"])
    return one["ttft"] / full["ttft"], closed


def _title(points: Sequence[Point]) -> str:
    blend = next((point for point in points if (point.panel, point.series) == (CLOSED, Mode.BLEND)), None)
    if blend is None:
        return "Time to first token against quality"
    said = f"Blend closes {share(blend.y)} of reuse's distance at {times(blend.x)}"
    prime = next((point for point in points if (point.panel, point.series) == (CLOSED, Mode.PRIME)), None)
    return f"{said}; PrimeBlend {share(prime.y)} at {times(prime.x)}" if prime else said
