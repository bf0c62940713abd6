"""Figure 7 drawn: the distribution of the tokens' KV deviation in three neighbouring layers.

Everything is divided by its own median, the paper's curves too: absolute units differ between models.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from cacheblend.evaluation.points import Point, Result
from visualizations import paper, theme
from visualizations.experiments.lines import PAPER_SYMBOLS, Curve, Look, Panel, panels_figure

WIDEST = 6.0  # medians that are shown: the tail is thin
EVERY = 3  # so-manieth of the paper's 100 points: their marks would hide the lines
COLOURS = (theme.LAYERS[0], theme.LAYERS[2], theme.LAYERS[4])


def draw(result: Result) -> go.Figure:
    """One curve a layer, and of each of the paper's models the middle one of its three layers."""
    cdf = [point for point in result.points if point.panel == "CDF"]
    names = list(dict.fromkeys(point.series for point in cdf))
    looks = {
        name: Look(name=name, colour=COLOURS[i % len(COLOURS)], draw="lines", dash=("solid", "dash", "dashdot")[i % 3])
        for i, name in enumerate(names)
    }
    panel = Panel(name="CDF", x="KV deviation ÷ median of its layer", y="share of tokens", curves=paper_cdfs())
    farthest = max((point.x for point in cdf), default=0.0)
    note = f"Tokens of chunks after the first; the farthest lies at {farthest:.0f} medians."
    figure = panels_figure(_title(result.points), cdf, [panel], looks, note=note, counted="tokens")
    if cdf:
        figure.update_xaxes(range=[0, min(WIDEST, 1.05 * farthest)])
        figure.update_yaxes(range=[0, 1.02], tickformat=".0%")
        figure.update_annotations(visible=False)  # one panel needs no name
    return figure


def paper_cdfs() -> tuple[Curve, ...]:
    """The paper's curves, x divided by where each passes one half."""
    curves = []
    for number, model in enumerate(paper.curves("fig7")["panels"]):
        layer, pairs = list(model["series"].items())[1]
        x, y = np.asarray(pairs).T
        symbol = PAPER_SYMBOLS[number]
        name = f"{model['model']}, {layer}"
        scaled = x / median_of(x, y)
        shown = np.flatnonzero(scaled <= WIDEST)[::EVERY]
        curves.append(Curve(name=name, x=tuple(scaled[shown]), y=tuple(y[shown]), symbol=symbol))
    return tuple(curves)


def median_of(x: np.ndarray, shares: np.ndarray, share: float = 0.5) -> float:
    """Where a cumulative distribution passes a share, between its points along a straight line."""
    return float(np.interp(share, shares, x))


def paper_tails() -> tuple[float, float]:
    """The least and the greatest p90 / median among the paper's curves."""
    tails = []
    for model in paper.curves("fig7")["panels"]:
        for pairs in model["series"].values():
            x, y = np.asarray(pairs).T
            tails.append(median_of(x, y, 0.9) / median_of(x, y))
    return min(tails), max(tails)


def _title(points: Sequence[Point]) -> str:
    tails = [point.y for point in points if point.panel == "p90 / median"]
    if not tails:
        return "Distribution of KV deviation over tokens"
    low, high = paper_tails()
    ours = (
        f"{min(tails):.1f}" if f"{min(tails):.1f}" == f"{max(tails):.1f}" else f"{min(tails):.1f} to {max(tails):.1f}"
    )
    return f"One token in ten deviates by more than {ours} × the median (paper: {low:.1f} to {high:.1f} ×)"
