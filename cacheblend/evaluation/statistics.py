"""Means with bootstrap confidence intervals, and differences in pairs. Knows numbers only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 2000  # enough for the second digit of a 95 % interval
_BATCH = 100  # resamples drawn at once: quick for few questions, small for thousands
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over n questions, and the percentile bootstrap interval around it (Efron, 1979)."""

    mean: float
    low: float
    high: float
    n: int


def estimate(values: Sequence[float], seed: int = 0) -> Estimate | None:
    """Estimate the mean of values; None if there are none. The same values and seed give the same interval."""
    if not values:
        return None
    sample = np.asarray(values, dtype=np.float64)
    rng = np.random.default_rng(seed)
    drawn = (rng.integers(0, len(sample), (_BATCH, len(sample))) for _ in range(RESAMPLES // _BATCH))
    means = np.concatenate([sample[indices].mean(axis=1) for indices in drawn])
    low, high = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Estimate(float(sample.mean()), float(low), float(high), len(sample))


def paired(values: dict[str, float | None], reference: dict[str, float | None], seed: int = 0) -> Estimate | None:
    """Estimate values − reference over the questions for which both are known; whole pairs are drawn again."""
    pairs = ((value, reference.get(question)) for question, value in values.items())
    return estimate([value - other for value, other in pairs if value is not None and other is not None], seed)
