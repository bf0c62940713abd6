"""Figure 16: quality against the share recomputed, with the paper's four curves behind it.

Knows points; nothing of how they were measured.
"""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from cacheblend.evaluation.points import Point, Result
from cacheblend.trace import Lane, Mode
from visualizations import paper, theme
from visualizations.experiments.lines import Curve, Look, Panel, panels_figure, paper_curves, share

CLOSED, F1 = "share of reuse's distance closed", "F1 against the gold answer"
SINGLE, GRADUAL, PRIMED = "HKVD single", "HKVD gradual", "PrimeBlend"
LOOKS = {
    SINGLE: Look(name="blend (HKVD single)", colour=theme.MODE_COLOURS[Mode.BLEND], symbol="diamond"),
    GRADUAL: Look(name="blend (HKVD gradual)", colour=theme.LANE_COLOURS[Lane.LOOKUP], symbol="square", dash="dash"),
    PRIMED: Look(name=PRIMED, colour=theme.MODE_COLOURS[Mode.PRIME], symbol="triangle-up"),
}
TOLD_AT = 15.0  # per cent: the paper's ratio


def draw(result: Result) -> go.Figure:
    """The share of bare reuse's distance to full that is closed, and F1 where questions have gold answers."""
    x = "context tokens recomputed, %"
    panels = [
        Panel(name=CLOSED, x=x, y="1 − KL / KL of reuse", curves=paper_curves_closed()),
        Panel(name=F1, x=x, y="F1", curves=_paper_f1()),
    ]
    note = "Paper: (quality − reuse) / (full − reuse), of F1 or Rouge-L; ours: of mean KL to full"
    return panels_figure(_title(result.points), result.points, panels, LOOKS, note=note)


def paper_curves_closed() -> tuple[Curve, ...]:
    """CacheBlend's curves as shares of the gap between full reuse and full recompute."""
    return paper_curves(
        (f"{one['model']}, {one['dataset']}", [(x, _closed(one["series"], y)) for x, y in one["series"]["CacheBlend"]])
        for one in paper.curves("fig16")
    )


def _closed(series: dict[str, list[list[float]]], quality: float) -> float:
    reuse, full = series["Full KV reuse"][0][1], series["Full KV recompute"][0][1]
    return (quality - reuse) / (full - reuse)


def _paper_f1() -> tuple[Curve, ...]:
    """The curves whose quality is F1: Rouge-L is another measure."""
    curves = paper_curves(
        (f"{one['model']}, {one['dataset']}", one["series"]["CacheBlend"]) for one in paper.curves("fig16")
    )
    return tuple(c for c, one in zip(curves, paper.curves("fig16"), strict=True) if one["y"] == "F1")


def _title(points: Sequence[Point]) -> str:
    at = {point.series: point.y for point in points if (point.panel, point.x) == (CLOSED, TOLD_AT)}
    if not at:
        return "Quality against the share recomputed"
    primed = f"; PrimeBlend {share(at[PRIMED])}" if PRIMED in at else ""
    return f"At {TOLD_AT:g} % blend closes {share(at[SINGLE])} of reuse's distance{primed}"
