"""Figure 7: how the tokens' KV deviations are distributed, in three neighbouring layers.

Knows nothing of pictures.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from cacheblend.analysis import empirical_cdf
from cacheblend.evaluation.experiments.base import Bench
from cacheblend.evaluation.experiments.deviations import deviations
from cacheblend.evaluation.experiments.means import mean_points
from cacheblend.evaluation.points import Point

DEPTH = 4 / 32  # of the first layer that the paper shows of Mistral-7B, which has 32
NEIGHBOURS = 3
CDF, TAIL = "CDF", "p90 / median"


def run(bench: Bench) -> list[Point]:
    """Panel CDF: x a deviation, divided by its layer's median over all questions' tokens, y the share of tokens.

    Panel p90 / median: x the layer, y the mean over questions. Layers are counted from 1, as in the paper.
    """
    num_layers = bench.engine.model.num_layers
    layers = shown_layers(num_layers)
    pooled: dict[int, list[np.ndarray]] = defaultdict(list)
    tails: dict[int, list[float]] = defaultdict(list)
    for matrix in deviations(bench):
        for layer in layers:
            row = matrix[layer - 1]
            if np.median(row) > 0:
                pooled[layer].append(row.copy())
                tails[layer].append(float(np.quantile(row, 0.9) / np.median(row)))
    points: list[Point] = []
    for layer, rows in pooled.items():
        series = f"layer {layer} of {num_layers}"
        every = np.concatenate(rows)
        values, shares = empirical_cdf(every / np.median(every))
        points += [
            Point(panel=CDF, series=series, x=float(x), y=float(y), n=len(every))
            for x, y in zip(values, shares, strict=True)
        ]
        points += mean_points(tails[layer], panel=TAIL, series=series, x=float(layer))
    return points


def shown_layers(num_layers: int) -> list[int]:
    """Three neighbours as deep as the paper's, counted from 1; never layer 1, which cannot deviate."""
    first = max(2, min(round(DEPTH * num_layers), num_layers - NEIGHBOURS + 1))
    return [layer for layer in range(first, first + NEIGHBOURS) if layer <= num_layers]
