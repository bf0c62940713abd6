"""Figure 2: quality against the number of chunks, with the paper's full recompute and full reuse behind it.

Knows points; nothing of how they were measured.
"""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from cacheblend.evaluation.points import Point, Result
from cacheblend.trace import Mode
from visualizations import paper, theme
from visualizations.experiments.lines import Curve, Panel, mode_look, panels_figure, paper_curves

F1, KL = "F1 against the gold answer", "mean KL to full"
SYMBOLS = {Mode.FULL: "circle", Mode.REUSE: "square", Mode.BLEND: "diamond", Mode.PRIME: "triangle-up"}
LOOKS = {mode.value: mode_look(mode, symbol=symbol) for mode, symbol in SYMBOLS.items()}


def draw(result: Result) -> go.Figure:
    """F1 and mean KL to full, each against the number of chunks."""
    measured = {point.x for point in result.points}
    read = _paper()
    f1_ticks = tuple(sorted(measured | {x for curve in read for x in curve.x if x >= 5}))
    panels = [
        Panel(name=F1, x="chunks in front of the question", y="F1", curves=read, log_x=True, x_ticks=_spread(f1_ticks)),
        Panel(name=KL, x="chunks in front of the question", y="KL, nats", x_ticks=tuple(sorted(measured))),
    ]
    return panels_figure(_title(result.points), result.points, panels, LOOKS, note=_note(result))


def _paper() -> tuple[Curve, ...]:
    modes = {"Full KV recompute": Mode.FULL, "Full KV reuse": Mode.REUSE}
    return paper_curves(
        (f"{theme.MODE_LABELS[modes[name]]}, {panel['dataset']}", pairs)
        for panel in paper.curves("fig2")["panels"]
        for name, pairs in panel["series"].items()
    )


def _note(result: Result) -> str:
    if not any(point.panel == F1 for point in result.points):
        return "No question has a gold answer, so there is no F1"
    return "Paper: chunks of 128 tokens, model not named"


def _spread(ticks: Sequence[float]) -> tuple[float, ...]:
    """Ticks that stay apart on a logarithmic axis on a phone."""
    kept: list[float] = []
    for tick in ticks:
        if not kept or tick >= 1.35 * kept[-1]:
            kept.append(tick)
    return tuple(kept)


def _title(points: Sequence[Point]) -> str:
    kl = {point.series: point for point in sorted(points, key=lambda point: point.x) if point.panel == KL}
    if Mode.REUSE not in kl:
        return "Quality against the number of chunks"
    most = kl[Mode.REUSE].x
    first = next(point for point in points if (point.panel, point.series, point.x) == (KL, Mode.REUSE, 1.0))
    said = f"Full reuse is {kl[Mode.REUSE].y:.2g} nats from full with {most:g} chunks, {first.y:.2g} with 1"
    return f"{said}; blend {kl[Mode.BLEND].y:.2g} with {most:g}" if Mode.BLEND in kl else said
