"""How far each token's KV is from full recompute, as a distribution and along the layers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.colors import sample_colorscale

from cacheblend.analysis import empirical_cdf
from cacheblend.trace import Inspection, Mode
from visualizations import theme

HEIGHT = 430
KV_UNIT = "KV deviation (relative L2 distance)"


def deviation_cdf_figure(
    inspection: Inspection | None, mode: Mode, *, context_tokens: int, layers: Sequence[int] | None = None
) -> go.Figure:
    """CDF of the context tokens' KV deviation, one curve a layer (paper, Fig. 7); layers default to six, evenly spread.

    Layer index 0 cannot deviate and is left out of the default; suffix tokens are never reused and do not count.
    """
    title = f"KV deviation of {theme.MODE_LABELS[mode]}"
    if inspection is None or mode not in inspection.kv_deviation or context_tokens < 1:
        return theme.empty_figure(title, height=HEIGHT, why="This run was not inspected.")
    matrix = inspection.kv_deviation[mode][:, :context_tokens]
    picked = _spread(len(matrix)) if layers is None else list(layers)
    figure = theme.figure(_cdf_title(matrix, mode), height=HEIGHT, x=KV_UNIT, y="share of context tokens")
    for i, layer in enumerate(picked):
        values, share = empirical_cdf(matrix[layer])
        colour = sample_colorscale(list(theme.LAYERS), [i / max(1, len(picked) - 1)])[0]
        figure.add_scatter(
            x=values.astype(np.float32),
            y=share.astype(np.float32),
            mode="lines",
            name=f"layer {layer}",
            line={"color": colour, "width": 2, "shape": "hv"},
            hovertemplate=f"layer {layer}: %{{y:.0%}} of tokens deviate by at most %{{x:.3g}}<extra></extra>",
        )
    figure.update_yaxes(range=[0, 1.02], tickformat=".0%")
    return figure


def layer_profile_figure(inspection: Inspection | None, *, context_tokens: int) -> go.Figure:
    """Mean KV deviation (solid) and attention deviation (dashed, right axis) of context tokens per layer, by mode."""
    title = "Deviation from full recompute, layer by layer"
    if inspection is None or not inspection.kv_deviation or context_tokens < 1:
        return theme.empty_figure(title, height=HEIGHT, why="This run was not inspected.")
    means = {m: a[:, :context_tokens].mean(axis=1) for m, a in inspection.kv_deviation.items()}
    figure = theme.figure(
        _profile_title(means, inspection.fused), height=HEIGHT, x="layer index", y="KV deviation (relative L2)"
    )
    for mode, profile in means.items():
        figure.add_scatter(y=profile, mode="lines+markers", **_line(mode, "KV"))
    for mode, array in inspection.attention_deviation.items():
        profile = array[:, :context_tokens].mean(axis=1)
        figure.add_scatter(y=profile, mode="lines", yaxis="y2", **_line(mode, "attention"))
    figure.update_layout(
        yaxis2={
            "overlaying": "y",
            "side": "right",
            "title": {"text": "attention deviation (L2, dashed)"},
            "showgrid": False,
            "rangemode": "tozero",
            "automargin": True,
        },
        margin={"r": 72},
    )
    figure.update_yaxes(rangemode="tozero")
    return figure


def _line(mode: Mode, what: str) -> dict[str, object]:
    return {
        "name": f"{theme.MODE_LABELS[mode]}, {what}",
        "line": {"color": theme.MODE_COLOURS[mode], "width": 2, "dash": "solid" if what == "KV" else "dash"},
        "hovertemplate": f"layer %{{x}}, {theme.MODE_LABELS[mode]}: {what} deviation %{{y:.3g}}<extra></extra>",
    }


def _spread(num_layers: int) -> list[int]:
    return sorted({int(i) for i in np.linspace(min(1, num_layers - 1), num_layers - 1, 6)})


def _cdf_title(matrix: np.ndarray, mode: Mode) -> str:
    top = np.sort(matrix.mean(axis=0))[::-1]
    total = float(top.sum())
    name = theme.sentence(theme.MODE_LABELS[mode])
    if total == 0:
        return f"{name}: no token deviates from full recompute"
    held = float(top[: max(1, round(0.15 * len(top)))].sum()) / total
    return f"{name}: the 15 % of tokens that deviate most hold {theme.percent(held)} of the KV deviation"


def _profile_title(means: dict[Mode, np.ndarray], fused: Mode) -> str:
    if Mode.REUSE not in means or fused not in means or means[Mode.REUSE].sum() == 0:
        return "Deviation from full recompute, layer by layer"
    change = 1 - float(means[fused].sum() / means[Mode.REUSE].sum())
    direction, name = "removes" if change >= 0 else "adds", theme.sentence(theme.MODE_LABELS[fused])
    return f"{name} {direction} {theme.percent(abs(change))} of the KV deviation that full reuse of the same caches has"
