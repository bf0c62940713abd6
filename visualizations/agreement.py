"""Do the same tokens deviate in every layer? Rank correlation and top-token overlap between layers."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from cacheblend.analysis import spearman, topk_overlap
from cacheblend.trace import Inspection, Mode
from visualizations import theme

HEIGHT = 560
TOP_SHARE = 0.15


def rank_correlation_figure(
    inspection: Inspection | None, mode: Mode = Mode.REUSE, *, context_tokens: int
) -> go.Figure:
    """Spearman correlation of context tokens' KV deviation between every pair of layers, neighbours as a line (Fig. 8).

    A layer where no token deviates (index 0) has no ranks: its cells are empty, which the axis says.
    """
    title = "Rank correlation of KV deviation between layers"
    if inspection is None or mode not in inspection.kv_deviation or context_tokens < 2:
        return theme.empty_figure(title, height=HEIGHT, why="This run was not inspected.")
    table = spearman(inspection.kv_deviation[mode][:, :context_tokens])
    finding = f"Neighbouring layers rank tokens alike: mean ρ\N{NO-BREAK SPACE}{_neighbour_mean(table)}"
    return _pair_figure(table, finding, "Spearman ρ")


def topk_overlap_figure(inspection: Inspection | None, mode: Mode = Mode.REUSE, *, context_tokens: int) -> go.Figure:
    """Share of the 15 % highest-deviation context tokens that every pair of layers has in common."""
    title = "Overlap of the highest-deviation tokens between layers"
    if inspection is None or mode not in inspection.kv_deviation or context_tokens < 2:
        return theme.empty_figure(title, height=HEIGHT, why="This run was not inspected.")
    table = topk_overlap(inspection.kv_deviation[mode][:, :context_tokens], TOP_SHARE)
    shared, top = _neighbour_mean(table), theme.percent(TOP_SHARE)
    finding = f"Neighbouring layers share {shared} of their top {top} of tokens (by chance {TOP_SHARE:.2f})"
    return _pair_figure(table, finding, "shared top tokens")


def _neighbour_mean(table: np.ndarray) -> str:
    steps = np.diagonal(table, 1)
    there = steps[np.isfinite(steps)]
    return f"{there.mean():.2f}" if len(there) else "undefined"


def _pair_figure(table: np.ndarray, title: str, measure: str) -> go.Figure:
    base = theme.figure(title, height=HEIGHT, x="", y="")
    figure = make_subplots(rows=2, cols=1, row_heights=[0.7, 0.3], vertical_spacing=0.08, shared_xaxes=True)
    figure.update_layout(base.layout)
    lowest = min(0.0, float(np.nanmin(table, initial=0)))
    figure.add_heatmap(
        z=table.astype(np.float32),
        zmin=lowest,
        zmax=1,
        colorscale=theme.PLOTLY_SEQUENTIAL,
        colorbar={
            "title": {"text": measure, "side": "right"},
            "y": 0.65,
            "len": 0.7,
            "thickness": 12,
            "outlinewidth": 0,
        },
        hovertemplate="layers %{y} and %{x}: %{z:.3f}<extra></extra>",
        row=1,
        col=1,
    )
    figure.add_scatter(
        x=np.arange(1, len(table)),
        y=np.diagonal(table, 1).astype(np.float32),
        mode="lines+markers",
        line={"color": theme.RECOMPUTED, "width": 2},
        hovertemplate="layer %{x} and the one before: %{y:.3f}<extra></extra>",
        showlegend=False,
        row=2,
        col=1,
    )
    empty = np.flatnonzero(~np.isfinite(np.diagonal(table)))
    note = f" (empty: {', '.join(map(str, empty[:3]))}, no deviation)" if len(empty) else ""
    figure.update_xaxes(gridcolor=theme.GRID, zeroline=False)
    figure.update_yaxes(gridcolor=theme.GRID, zeroline=False, automargin=True)
    figure.update_xaxes(title_text=f"layer index{note}", row=2, col=1)
    figure.update_yaxes(title_text="layer index", autorange="reversed", showgrid=False, row=1, col=1)
    figure.update_yaxes(title_text="with the one before", range=[lowest, 1.04], row=2, col=1)
    return figure
