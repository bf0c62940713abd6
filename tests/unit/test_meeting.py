"""Cake's closed form against a naive race, and the names of its spans."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheblend.meeting import predict_meeting, stretch, stretch_of

COSTS = [(40, 10, 0, 10), (40, 10, 0, 1000), (33, 5, 0.4, 8), (128, 30, 1.2, 60), (10, 50, 3, 5), (1, 20, 0, 20)]


def race(num_units, compute_ms, growth_ms, load_ms, pieces=2000):
    """Both fronts in small pieces, whichever is due next; returns units computed and milliseconds."""
    computed = loaded = now_computing = now_loading = 0.0
    step = num_units / pieces
    while computed + loaded < num_units - step / 2:
        cost = step * (compute_ms + growth_ms * (computed + step / 2 - 0.5))
        if now_computing + cost <= now_loading + step * load_ms:
            computed, now_computing = computed + step, now_computing + cost
        else:
            loaded, now_loading = loaded + step, now_loading + step * load_ms
    return computed, max(now_computing, now_loading)


@pytest.mark.parametrize(("num_units", "compute_ms", "growth_ms", "load_ms"), COSTS)
def test_the_closed_form_is_the_race(num_units, compute_ms, growth_ms, load_ms):
    expected = predict_meeting(num_units, compute_ms=compute_ms, growth_ms=growth_ms, load_ms=load_ms)
    met_at, milliseconds = race(num_units, compute_ms, growth_ms, load_ms)
    assert expected.met_at == pytest.approx(met_at, rel=0.01, abs=0.01 * num_units)
    assert expected.cake_ms == pytest.approx(milliseconds, rel=0.01)


@pytest.mark.parametrize(("num_units", "compute_ms", "growth_ms", "load_ms"), COSTS)
def test_one_resource_alone_is_a_sum(num_units, compute_ms, growth_ms, load_ms):
    expected = predict_meeting(num_units, compute_ms=compute_ms, growth_ms=growth_ms, load_ms=load_ms, suffix_ms=7)
    assert expected.compute_only_ms == pytest.approx(sum(compute_ms + growth_ms * i for i in range(num_units)) + 7)
    assert expected.load_only_ms == pytest.approx(sum([load_ms] * num_units) + 7)


@given(
    num_units=st.integers(1, 500),
    compute_ms=st.floats(1, 1e3),
    growth_share=st.floats(0, 1),
    load_ms=st.floats(0, 1e5),
)
def test_both_at_once_never_lose_and_at_best_halve(num_units, compute_ms, growth_share, load_ms):
    expected = predict_meeting(num_units, compute_ms=compute_ms, growth_ms=growth_share * compute_ms, load_ms=load_ms)
    better = min(expected.compute_only_ms, expected.load_only_ms)
    assert 0 <= expected.met_at <= num_units * (1 + 1e-9)
    assert expected.cake_ms <= better * (1 + 1e-9) + 1e-6
    if growth_share == 0:
        assert expected.cake_ms >= better / 2 * (1 - 1e-9)


def test_balance_is_twice_as_fast_and_a_free_device_is_left_alone():
    balanced = predict_meeting(10, compute_ms=5, growth_ms=0, load_ms=5)
    assert (balanced.met_at, balanced.cake_ms, balanced.load_only_ms) == (5, 25, 50)
    free = predict_meeting(10, compute_ms=5, growth_ms=1, load_ms=0, suffix_ms=3)
    assert (free.met_at, free.cake_ms) == (0, 3)


@pytest.mark.parametrize("wrong", [{"compute_ms": 0}, {"growth_ms": -1}, {"load_ms": -1}, {"suffix_ms": -1}])
def test_impossible_costs_are_refused(wrong):
    costs = {"compute_ms": 1, "growth_ms": 0, "load_ms": 1, **wrong}
    with pytest.raises(ValueError, match="negative"):
        predict_meeting(3, **costs)


def test_names_tell_their_tokens():
    assert stretch_of(f"load {stretch(128, 256)}") == (128, 256)
    assert stretch_of("layer 3") is None
    assert stretch_of(f"{stretch(0, 1)} of a document called so") is None


def test_the_page_predicts_without_torch():
    code = "import sys, cacheblend.meeting; print('torch' in sys.modules or 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
