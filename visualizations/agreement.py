"""Do the same tokens deviate in every layer? Rank correlation and top-token overlap between layers."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from cacheblend.analysis import spearman, topk_overlap
from cacheblend.trace import Inspection, Mode
from visualizations import theme

HEIGHT = 440
TOP_SHARE = 0.15


def rank_correlation_figure(
    inspection: Inspection | None, mode: Mode = Mode.REUSE, *, context_tokens: int
) -> go.Figure:
    """Spearman correlation of context tokens' KV deviation between every pair of layers, neighbours as a line (Fig. 8).

    A layer where no token deviates (index 0) has no ranks: its cells are empty, which the axis title says.
    """
    title = "Rank correlation of KV deviation between layers"
    if inspection is None or mode not in inspection.kv_deviation or context_tokens < 2:
        return theme.empty_figure(title, height=HEIGHT, why="This run was not inspected.")
    table = spearman(inspection.kv_deviation[mode][:, :context_tokens])
    return _pair_figure(
        table, f"Neighbouring layers rank tokens alike: mean ρ {_neighbour_mean(table)}", "Spearman ρ", -1.0
    )


def topk_overlap_figure(inspection: Inspection | None, mode: Mode = Mode.REUSE, *, context_tokens: int) -> go.Figure:
    """Share of the 15 % highest-deviation context tokens that every pair of layers has in common."""
    title = "Overlap of the highest-deviation tokens between layers"
    if inspection is None or mode not in inspection.kv_deviation or context_tokens < 2:
        return theme.empty_figure(title, height=HEIGHT, why="This run was not inspected.")
    table = topk_overlap(inspection.kv_deviation[mode][:, :context_tokens], TOP_SHARE)
    chance = f"by chance {TOP_SHARE:.2f}"
    finding = f"Neighbouring layers share {_neighbour_mean(table)} of their top {TOP_SHARE:.0%} of tokens ({chance})"
    return _pair_figure(table, finding, "shared top tokens", 0.0)


def _neighbour_mean(table: np.ndarray) -> str:
    steps = np.diagonal(table, 1)
    there = steps[np.isfinite(steps)]
    return f"{there.mean():.2f}" if len(there) else "undefined"


def _pair_figure(table: np.ndarray, title: str, measure: str, lowest: float) -> go.Figure:
    base = theme.figure(title, height=HEIGHT, x="", y="")
    figure = make_subplots(rows=1, cols=2, column_widths=[0.56, 0.44], horizontal_spacing=0.2).update_layout(
        base.layout
    )
    diverging = lowest < 0
    figure.add_heatmap(
        z=table.astype(np.float32),
        zmin=lowest,
        zmax=1,
        colorscale=theme.PLOTLY_DIVERGING if diverging else theme.PLOTLY_SEQUENTIAL,
        colorbar={"title": {"text": measure, "side": "right"}, "x": 0.485, "thickness": 12, "outlinewidth": 0},
        hovertemplate="layers %{y} and %{x}: %{z:.3f}<extra></extra>",
        row=1,
        col=1,
    )
    steps = np.diagonal(table, 1).astype(np.float32)
    figure.add_scatter(
        x=np.arange(1, len(table)),
        y=steps,
        mode="lines+markers",
        line={"color": theme.RECOMPUTED, "width": 2},
        hovertemplate="layer %{x} and the one before: %{y:.3f}<extra></extra>",
        showlegend=False,
        row=1,
        col=2,
    )
    empty = np.flatnonzero(~np.isfinite(np.diagonal(table)))
    note = f" (empty: layer {', '.join(map(str, empty[:3]))}, no deviation)" if len(empty) else ""
    figure.update_xaxes(gridcolor=theme.GRID, zeroline=False)
    figure.update_yaxes(gridcolor=theme.GRID, zeroline=False)
    figure.update_xaxes(title_text=f"layer index{note}", showgrid=False, row=1, col=1)
    figure.update_yaxes(title_text="layer index", autorange="reversed", showgrid=False, row=1, col=1)
    figure.update_xaxes(title_text="layer index, against the one before", row=1, col=2)
    figure.update_yaxes(title_text=measure, range=[min(0.0, float(np.nanmin(steps, initial=0))), 1.04], row=1, col=2)
    return figure
