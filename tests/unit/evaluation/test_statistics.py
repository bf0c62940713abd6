"""Intervals against the normal approximation, coverage on known distributions, and pairs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cacheblend.evaluation.statistics import estimate, paired


def test_the_interval_of_many_values_is_the_normal_one():
    values = np.random.default_rng(3).exponential(size=400).tolist()
    found = estimate(values)
    half = 1.96 * np.std(values) / math.sqrt(len(values))
    assert found.mean == pytest.approx(math.fsum(values) / 400) and found.n == 400
    assert found.mean - found.low == pytest.approx(half, rel=0.15)
    assert found.high - found.mean == pytest.approx(half, rel=0.15)


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    rng, covered = np.random.default_rng(5), 0
    for _ in range(60):
        found = estimate(rng.normal(2.0, 1.0, 50).tolist())
        covered += found.low <= 2.0 <= found.high
    assert 50 <= covered <= 60


def test_values_without_spread_have_an_interval_without_width():
    found = estimate([0.5] * 7)
    assert (found.mean, found.low, found.high, found.n) == (0.5, 0.5, 0.5, 7)
    assert estimate([2.0]).high == 2.0
    assert estimate([]) is None


def test_a_seed_gives_one_interval():
    values = np.random.default_rng(7).normal(size=30).tolist()
    assert estimate(values, seed=1) == estimate(values, seed=1) != estimate(values, seed=2)


def test_pairs_remove_what_questions_differ_in():
    full = {str(i): float(i) for i in range(20)}
    blend = {question: value - 0.5 for question, value in full.items()}
    found = paired(blend, full)
    assert found.low == found.high == pytest.approx(-0.5), "all differ by the same"
    assert estimate(list(full.values())).high - estimate(list(full.values())).low > 3


def test_only_whole_pairs_count():
    found = paired({"a": 1.0, "b": None, "c": 3.0, "d": 9.0}, {"a": 0.0, "b": 5.0, "c": None})
    assert (found.mean, found.n) == (1.0, 1)
    assert paired({"a": 1.0}, {}) is None
