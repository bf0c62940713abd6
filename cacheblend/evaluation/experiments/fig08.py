"""Figure 8: do the same tokens deviate in every layer? Rank correlation, and overlap of those that deviate most.

The paper shows neighbouring layers; one choice serves all layers only if the layer it is made at agrees with every
deeper one, so that is measured beside it. Knows nothing of pictures.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from cacheblend.analysis import spearman, topk_overlap
from cacheblend.evaluation.experiments.base import Bench
from cacheblend.evaluation.experiments.deviations import deviations
from cacheblend.evaluation.experiments.means import mean_points
from cacheblend.evaluation.points import Point
from cacheblend.schedule import CHECK_LAYER

TOP_SHARE = 0.15
RANKS, OVERLAP = "rank correlation", "overlap of the top 15 %"
NEIGHBOURS, SELECTING = "neighbouring layers", "the selecting layer and a deeper one"


def run(bench: Bench) -> list[Point]:
    """x: depth of the deeper layer of a pair, in per cent of all layers; y: mean over questions; label: the pair."""
    num_layers = bench.engine.model.num_layers
    pairs = [(NEIGHBOURS, layer - 1, layer) for layer in range(CHECK_LAYER + 1, num_layers)]
    pairs += [(SELECTING, CHECK_LAYER, layer) for layer in range(CHECK_LAYER + 1, num_layers)]
    found: dict[tuple[str, str, int, int], list[float]] = defaultdict(list)
    for matrix in deviations(bench):
        for panel, table in ((RANKS, spearman(matrix)), (OVERLAP, topk_overlap(matrix, TOP_SHARE))):
            for series, upper, deeper in pairs:
                if np.isfinite(table[upper, deeper]):  # a layer in which nothing deviates has no ranks
                    found[panel, series, upper, deeper].append(float(table[upper, deeper]))
    return [
        point
        for (panel, series, upper, deeper), values in found.items()
        for point in mean_points(
            values,
            panel=panel,
            series=series,
            x=100 * (deeper + 1) / num_layers,
            label=f"layers {upper + 1} and {deeper + 1} of {num_layers}",
        )
    ]
