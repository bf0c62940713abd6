"""Results → figures: one file an experiment, entered in FIGURES under its name."""

from collections.abc import Callable

import plotly.graph_objects as go

from cacheblend.evaluation.points import Result
from visualizations.experiments import (
    fig02,
    fig04,
    fig06,
    fig07,
    fig08,
    fig12,
    fig13,
    fig14,
    fig15,
    fig16,
    fig17,
    frontier,
)

FIGURES: dict[str, Callable[[Result], go.Figure]] = {
    "fig02": fig02.draw,
    "fig04": fig04.draw,
    "fig06": fig06.draw,
    "fig07": fig07.draw,
    "fig08": fig08.draw,
    "fig12": fig12.draw,
    "fig13": fig13.draw,
    "fig14": fig14.draw,
    "fig15": fig15.draw,
    "fig16": fig16.draw,
    "fig17": fig17.draw,
    "frontier": frontier.draw,
}
