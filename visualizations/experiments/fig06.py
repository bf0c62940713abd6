"""Figure 6: attention and KV deviation against the share recomputed, with the paper's three models behind it.

Knows points; nothing of how they were measured.
"""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from cacheblend.evaluation.points import Point, Result
from visualizations import paper, theme
from visualizations.experiments.frontier import policy_look
from visualizations.experiments.lines import Panel, panels_figure, paper_curves

ATTENTION, KV = "forward attention deviation", "KV deviation"
HKVD, RANDOM = "HKVD", "random tokens"
LOOKS = {HKVD: policy_look("hkvd"), RANDOM: policy_look("random")}
TOLD_AT = 15.0  # per cent: the paper's ratio


def draw(result: Result) -> go.Figure:
    """Both deviations, 1 where nothing is recomputed."""
    read = paper.curves("fig6")
    curves = paper_curves((f"{model}, {read['dataset']}", pairs) for model, pairs in read["series"].items())
    x, y = "context tokens recomputed, %", "deviation (1 at 0 %)"
    panels = [Panel(name=ATTENTION, x=x, y=y, curves=curves), Panel(name=KV, x=x, y=y)]
    return panels_figure(_title(result.points), result.points, panels, LOOKS)


def _title(points: Sequence[Point]) -> str:
    left = {point.series: point.y for point in points if (point.panel, point.x) == (ATTENTION, TOLD_AT)}
    if not left:
        return "Attention deviation against the share recomputed"
    said = "; ".join(f"{theme.percent(left[name])} with {name}" for name in LOOKS if name in left)
    return f"Recomputing {TOLD_AT:g} % leaves of reuse's attention deviation {said}"
