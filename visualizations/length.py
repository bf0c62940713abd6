"""Time to first token against context length: rows of a benchmark, drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from cacheblend.trace import COMPARED, Mode
from visualizations import theme

HEIGHT = 420


def length_figure(rows: Sequence[Mapping[str, float]]) -> go.Figure:
    """TTFT of each mode on logarithmic axes. rows: {"tokens": prompt length, mode: milliseconds} per length."""
    if not rows:
        return theme.empty_figure("Cost against context length", height=HEIGHT, why="Nothing was measured.")
    figure = theme.figure(_title(rows), height=HEIGHT, x="prompt, tokens", y="time to first token, ms")
    for mode in COMPARED:
        figure.add_scatter(
            x=[row["tokens"] for row in rows],
            y=[row[mode] for row in rows],
            name=theme.MODE_LABELS[mode],
            mode="lines+markers",
            line={"color": theme.MODE_COLOURS[mode], "width": 2.5},
            hovertemplate="%{x} tokens: %{y:.0f} ms<extra>" + theme.MODE_LABELS[mode] + "</extra>",
        )
    tokens = [row["tokens"] for row in rows]
    figure.update_xaxes(type="log", tickvals=tokens, ticktext=[f"{n:,.0f}" for n in tokens])
    figure.update_yaxes(type="log", dtick=1)
    return figure


def _title(rows: Sequence[Mapping[str, float]]) -> str:
    speedups = [row[Mode.FULL] / row[Mode.BLEND] for row in rows]
    return f"Blend is {min(speedups):.1f} to {max(speedups):.1f} × sooner than full recompute"
