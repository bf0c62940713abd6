"""Figure 13: blend beside MapReduce and MapRerank, with the paper's points behind them.

Knows points; nothing of how they were measured.
"""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from cacheblend.evaluation.points import Point, Result
from cacheblend.trace import Mode
from visualizations import paper, theme
from visualizations.experiments.lines import Curve, Panel, mode_look, panels_figure, times

GOLD, TO_FULL = "F1 against the gold answer", "F1 to full's answer"
SYMBOLS = {Mode.FULL: "circle", Mode.BLEND: "diamond", Mode.MAP_REDUCE: "pentagon", Mode.MAP_RERANK: "star"}
LOOKS = {mode.value: mode_look(mode, symbol=symbol, draw="markers") for mode, symbol in SYMBOLS.items()}
PAPERS = {"CacheBlend": Mode.BLEND, "MapReduce": Mode.MAP_REDUCE, "MapRerank": Mode.MAP_RERANK}
# In the drawing, what was read off for MapRerank is the top of its marker; its middle, read off the rendered page.
MAP_RERANK_READ = {"2WikiMQA": 0.04, "Musique": 0.06}


def draw(result: Result) -> go.Figure:
    """One point a mode; upper-left is better."""
    x = "TTFT, divided by full recompute's"
    panels = [Panel(name=GOLD, x=x, y="F1", curves=paper_points()), Panel(name=TO_FULL, x=x, y="F1")]
    gold = any(point.panel == GOLD for point in result.points)
    note = "Upper-left is better." + ("" if gold else " No question has a gold answer: answers are compared to full's")
    figure = panels_figure(_title(result.points), result.points, panels, LOOKS, note=note)
    return figure.update_xaxes(rangemode="tozero")


def paper_points() -> tuple[Curve, ...]:
    """The paper's points on its two datasets scored by F1, TTFT divided by that of full recompute in figure 12."""
    full = {
        one["dataset"]: one["points"]["Full KV recompute"]["ttft"]
        for one in paper.curves("fig12")
        if one["model"] == "Yi-34B"
    }
    return tuple(
        Curve(
            name=f"{theme.MODE_LABELS[mode]}, {one['model']}, {one['dataset']}",
            x=(one["points"][name]["ttft"] / full[one["dataset"]],),
            y=(_quality(one, name),),
            symbol=f"{SYMBOLS[mode]}-open",
            draw="markers",
        )
        for one in paper.curves("fig13")
        if one["dataset"] in MAP_RERANK_READ
        for name, mode in PAPERS.items()
    )


def _quality(one: dict[str, dict[str, dict[str, float]]], name: str) -> float:
    return MAP_RERANK_READ[str(one["dataset"])] if name == "MapRerank" else one["points"][name]["quality"]


def _title(points: Sequence[Point]) -> str:
    at = {point.series: point for point in points}
    if not at:
        return "Blend beside MapReduce and MapRerank"
    told = [
        f"{theme.MODE_LABELS[mode]} {at[mode].y:.2f} at {times(at[mode].x)}"
        for mode in (Mode.BLEND, Mode.MAP_REDUCE, Mode.MAP_RERANK)
        if mode in at
    ]
    return f"F1: {'; '.join(told)}"
