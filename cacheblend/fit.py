"""Least squares for a handful of coefficients that cannot be negative."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np


def nonnegative_fit(features: Sequence[Sequence[float]], targets: Sequence[float]) -> list[float]:
    """Least squares of relative errors with coefficients of at least 0. features: (samples, few); targets: (samples,).

    Exact: the best of all subsets of features whose own fit has no negative coefficient. Targets of 0 are left out.
    """
    wanted = np.asarray(targets, dtype=np.float64)
    rows = np.asarray(features, dtype=np.float64)[wanted > 0] / wanted[wanted > 0, None]
    ones, num_features = np.ones(len(rows)), rows.shape[1]
    best, least = np.zeros(num_features), float(len(rows))
    for size in range(1, num_features + 1):
        for subset in combinations(range(num_features), size):
            columns = rows[:, subset]
            scale = np.abs(columns).max(axis=0, initial=1e-300)
            found = np.linalg.lstsq(columns / scale, ones, rcond=None)[0] / scale
            error = float(((columns @ found - ones) ** 2).sum())
            if (found >= 0).all() and error < least * (1 - 1e-9):
                best, least = np.zeros(num_features), error
                best[list(subset)] = found
    return best.tolist()
