"""Results → figures: one file an experiment, entered in FIGURES under its name."""

from collections.abc import Callable

import plotly.graph_objects as go

from cacheblend.evaluation.points import Result

FIGURES: dict[str, Callable[[Result], go.Figure]] = {}
