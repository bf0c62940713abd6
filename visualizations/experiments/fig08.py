"""Figure 8 drawn: do the layers agree on which tokens deviate most? Neighbours, and the layer that selects.

Knows points and the paper's numbers; nothing of how ranks are computed.
"""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from cacheblend.evaluation.points import Point, Result
from visualizations import paper, theme
from visualizations.experiments.lines import PAPER_SYMBOLS, Curve, Look, Panel, panels_figure

RANKS, OVERLAP = "rank correlation", "overlap of the top 15 %"
NEIGHBOURS, SELECTING = "neighbouring layers", "the selecting layer and a deeper one"
LOOKS = {
    NEIGHBOURS: Look(name=NEIGHBOURS, colour=theme.LAYERS[0]),
    SELECTING: Look(name=SELECTING, colour=theme.RECOMPUTED, symbol="diamond"),
}
CHANCE = 0.15  # of the overlap, were tokens drawn at random
PAPER_LAYERS = {"Mistral-7B": 32, "Yi-34B": 60, "Llama-70B": 80}


def draw(result: Result) -> go.Figure:
    """Two panels over the depth of the deeper layer of each pair; the paper shows neighbours and ranks only."""
    depth = "depth of the deeper layer, % of all layers"
    panels = [
        Panel(name=RANKS, title="do they rank tokens alike?", x=depth, y="Spearman's ρ", curves=paper_neighbours()),
        Panel(name=OVERLAP, title="do they choose the same tokens?", x=depth, y="shared of the top 15 %"),
    ]
    note = "KV deviation of full reuse, tokens of chunks after the first."
    figure = panels_figure(_title(result.points), result.points, panels, LOOKS, note=note)
    for row, name in enumerate((RANKS, OVERLAP), 1):
        chosen = [point for point in result.points if point.panel == name]
        if chosen:
            figure.update_yaxes(range=[min(0.0, *(_lowest(point) - 0.03 for point in chosen)), 1.04], row=row, col=1)
    if result.points:
        figure.add_hline(
            y=CHANCE,
            line={"color": theme.QUESTION, "width": 1.5, "dash": "dash"},
            annotation={"text": "by chance", "font": {"size": 11}, "xanchor": "right"},
            row=2,
            col=1,
        )
    return figure


def paper_neighbours() -> tuple[Curve, ...]:
    """The pairs of neighbours that the paper shows, at their depth."""
    curves = []
    for number, (model, layers) in enumerate(PAPER_LAYERS.items()):
        pairs = paper.curves("fig8")[model]
        curves.append(
            Curve(
                name=model,
                x=tuple(100 * int(pair.split("v")[1]) / layers for pair in pairs),
                y=tuple(pairs.values()),
                symbol=PAPER_SYMBOLS[number],
                draw="markers",
                texts=tuple(f"{model}, layers {pair.replace('v', ' and ')}" for pair in pairs),
            )
        )
    return tuple(curves)


def _title(points: Sequence[Point]) -> str:
    neighbours = _of(points, RANKS, NEIGHBOURS)
    ranks, shared = _of(points, RANKS, SELECTING), _of(points, OVERLAP, SELECTING)
    if not (neighbours and ranks and shared):
        return "Do the same tokens deviate in every layer?"
    mean = sum(point.y for point in neighbours) / len(neighbours)
    overlap = sum(point.y for point in shared) / len(shared)
    last = max(ranks, key=lambda point: point.x).y
    return (
        f"Neighbouring layers rank tokens alike ({_rho(mean)}); the layer that selects agrees with the last one by "
        f"{_rho(last)} and shares {theme.percent(overlap)} of its choice with deeper layers "
        f"(by chance {theme.percent(CHANCE)})"
    )


def _rho(value: float) -> str:
    return f"ρ\N{NO-BREAK SPACE}{value:.2f}".replace("-", "\N{MINUS SIGN}")


def _lowest(point: Point) -> float:
    return point.y if point.low is None else point.low


def _of(points: Sequence[Point], panel: str, series: str) -> list[Point]:
    return [point for point in points if (point.panel, point.series) == (panel, series)]
