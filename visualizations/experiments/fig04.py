"""Figure 4 drawn: three attention matrices side by side, on one colour scale.

A cell that nothing attends in stays empty: between chunks, all of full reuse's. Knows points only.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from cacheblend.evaluation.points import Point, Result
from cacheblend.trace import COMPARED, Mode
from visualizations import theme

BORDERS, ACROSS = "segments", "between chunks"
HEIGHT = 470
DECADES = 4  # of the colour scale, below the largest weight
BORDER = "rgba(213,94,0,0.85)"  # theme.RECOMPUTED


def draw(result: Result) -> go.Figure:
    """Rows attend to columns. Colours: the mean weight of a cell's pairs, on a logarithmic scale."""
    cells = {mode: [p for p in result.points if p.panel == mode and p.z is not None] for mode in COMPARED}
    segments = [point for point in result.points if point.panel == BORDERS]
    if not segments or not all(cells.values()):
        return theme.empty_figure("Attention between chunks", height=HEIGHT, why="Nothing was measured.")
    base = theme.figure(_title(result.points), height=HEIGHT, x="", y="")
    figure = make_subplots(rows=1, cols=3, shared_yaxes=True, horizontal_spacing=0.03)
    figure.update_layout(base.layout)
    end = segments[-1].y
    top = np.log10(max(p.z for points in cells.values() for p in points if p.z))
    for col, mode in enumerate(COMPARED, 1):
        x, y, z = matrix(cells[mode], end)
        figure.add_heatmap(
            x=x,
            y=y,
            z=z,
            zmin=top - DECADES,
            zmax=top,
            coloraxis=None,
            colorscale=theme.PLOTLY_SEQUENTIAL,
            showscale=col == 1,
            colorbar=_colour_bar(top),
            hoverongaps=False,
            customdata=10.0**z,
            hovertemplate="token %{y:.0f} → token %{x:.0f}<br>mean weight %{customdata:.2g}<extra>"
            + theme.MODE_LABELS[mode]
            + "</extra>",
            row=1,
            col=col,
        )
        for segment in segments[1:]:
            line = {"color": BORDER, "width": 1.2}
            figure.add_shape(type="line", x0=segment.x, x1=segment.x, y0=segment.x, y1=end, line=line, row=1, col=col)
            figure.add_shape(type="line", x0=0, x1=segment.x, y0=segment.x, y1=segment.x, line=line, row=1, col=col)
        figure.add_annotation(
            text=f"<b>{theme.MODE_LABELS[mode]}</b>",
            x=0.5,
            xref=f"x{col if col > 1 else ''} domain",
            y=1,
            yref="paper",
            yanchor="bottom",
            showarrow=False,
            font={"size": 12},
        )
    axis = {"gridcolor": "rgba(0,0,0,0)", "zeroline": False, "automargin": True}
    figure.update_xaxes(**axis, range=[0, end], nticks=3)
    figure.update_xaxes(title={"text": "token attended to"}, row=1, col=2)
    figure.update_yaxes(**axis, range=[end, 0])
    figure.update_yaxes(title={"text": "token that attends"}, row=1, col=1)
    figure.update_layout(margin={"t": base.layout.margin.t + 20, "b": 120})
    return figure


def matrix(points: Sequence[Point], end: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Column and row edges, and log10 of the weights, float32 (rows, columns); NaN where there is no weight."""
    x, y = (np.unique([getattr(point, axis) for point in points]) for axis in "xy")
    z = np.full((len(y), len(x)), np.nan, dtype=np.float32)
    for point in points:
        if point.z:
            z[np.searchsorted(y, point.y), np.searchsorted(x, point.x)] = np.log10(point.z)
    return np.append(x, end), np.append(y, end), z


def _colour_bar(top: float) -> dict[str, object]:
    ticks = np.arange(np.ceil(top - DECADES), np.floor(top) + 1)
    return {
        "orientation": "h",
        "y": -0.2,
        "yanchor": "top",
        "thickness": 12,
        "len": 0.9,
        "tickvals": ticks,
        "ticktext": [f"{10.0**tick:g}" for tick in ticks],
        "title": {"text": "mean attention weight; empty: none at all", "side": "bottom"},
    }


def _title(points: Sequence[Point]) -> str:
    across = {point.series: point for point in points if point.panel == ACROSS}
    if not across:
        return "Attention between chunks"
    layer = next(point.label for point in points if point.panel == BORDERS)
    shares = {mode: theme.percent(across[mode].y) for mode in COMPARED}
    return (
        f"Chunks give {shares[Mode.FULL]} of their attention to earlier chunks in full recompute, "
        f"{shares[Mode.REUSE]} in full reuse, {shares[Mode.BLEND]} in blend ({layer}, mean over heads)"
    )
