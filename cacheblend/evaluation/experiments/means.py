"""Values over questions as points: means, and shares of a distance, with bootstrap intervals where there are several.

Knows numbers only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from cacheblend.evaluation.points import Point
from cacheblend.evaluation.statistics import CONFIDENCE, RESAMPLES, estimate

SEED = 0
_BATCH = 100  # resamples drawn at once


def mean_points(values: Iterable[float | None], **where: Any) -> list[Point]:
    """The mean of what is known, as one point, or none if nothing is. where: the other fields of the point."""
    known = [value for value in values if value is not None]
    made = estimate(known, SEED)
    if made is None:
        return []
    low, high = (made.low, made.high) if made.n > 1 else (None, None)
    return [Point(y=made.mean, low=low, high=high, n=made.n, **where)]


def closed_points(distances: Sequence[float], reference: Sequence[float], **where: Any) -> list[Point]:
    """The share of a reference's distance that is closed, 1 − mean / mean of the reference, over the same questions.

    Means first, so that a question on which the reference happens to be right does not blow the share up; questions are
    drawn again in pairs. No point where the reference has no distance.
    """
    near, far = np.asarray(distances, dtype=np.float64), np.asarray(reference, dtype=np.float64)
    if not far.sum() > 0:
        return []
    share, count = float(1 - near.sum() / far.sum()), len(near)
    if count == 1:
        return [Point(y=share, **where)]
    rng = np.random.default_rng(SEED)
    drawn = (rng.integers(0, count, (_BATCH, count)) for _ in range(RESAMPLES // _BATCH))
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.concatenate([1 - near[rows].sum(axis=1) / far[rows].sum(axis=1) for rows in drawn])
    low, high = np.quantile(shares[np.isfinite(shares)], [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return [Point(y=share, low=float(low), high=float(high), n=count, **where)]
