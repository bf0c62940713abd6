"""How many tokens each layer computes afresh."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from cacheblend.trace import LayerRecord
from visualizations import theme

HEIGHT = 300
TITLE = "Tokens computed per layer"


def recomputed_figure(layers: Sequence[LayerRecord], *, context_tokens: int) -> go.Figure:
    """Context tokens each layer computed fully (bars) and projected to compare (line); the question is not counted."""
    if not layers or context_tokens < 1:
        return theme.empty_figure(TITLE, height=HEIGHT, why="This run recorded no layers.")
    index = np.array([r.layer for r in layers])
    kept = np.array([np.count_nonzero(r.kept < context_tokens) for r in layers])
    projected = np.array([np.count_nonzero(r.projected < context_tokens) for r in layers])
    later = kept[index > 0]
    share = (
        f"{theme.percent(later.mean() / context_tokens)} of {context_tokens:,} context tokens"
        if len(later)
        else "layer 0 alone"
    )
    figure = theme.figure(f"Layers after the first compute {share}", height=HEIGHT, x="layer index", y="context tokens")
    figure.add_bar(
        x=index,
        y=kept,
        name="computed through attention and MLP",
        marker_color=theme.RECOMPUTED,
        customdata=(kept / context_tokens).astype(np.float32),
        hovertemplate="layer %{x}: %{y} tokens, %{customdata:.1%}<extra></extra>",
    )
    figure.add_scatter(
        x=index,
        y=projected,
        name="K and V projected",
        mode="lines",
        line={"color": theme.REUSED, "shape": "hvh", "width": 2},
        hovertemplate="layer %{x}: K and V of %{y} tokens<extra></extra>",
    )
    figure.update_yaxes(rangemode="tozero")
    return figure
