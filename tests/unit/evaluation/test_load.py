"""The queue against a naive simulation and queueing theory, with service times made up by hand."""

from __future__ import annotations

import numpy as np
import pytest

from cacheblend.documents import Chunk
from cacheblend.evaluation.experiments import Asked
from cacheblend.evaluation.load import Served, arrivals, capacity, stream, sustained, ttfts, waits
from cacheblend.retrieval import Hit


def naive_waits(arrived, service_s):
    """One request after another, with a clock."""
    free_at, waited = 0.0, []
    for at, service in zip(arrived, service_s, strict=True):
        starts = max(free_at, at)
        waited.append(starts - at)
        free_at = starts + service
    return waited


@pytest.mark.parametrize("rate", [0.1, 0.7, 0.99, 3.0])
def test_waits_are_those_of_a_naive_simulation(rate):
    rng = np.random.default_rng(7)
    service = rng.gamma(2.0, 0.5, 400)
    arrived = arrivals(rate, 400, seed=3)
    np.testing.assert_allclose(waits(arrived, service), naive_waits(arrived, service), atol=1e-9)


def test_waits_by_hand():
    arrived, service = np.array([0.0, 1.0, 1.5, 9.0]), np.array([2.0, 3.0, 1.0, 1.0])
    assert waits(arrived, service) == pytest.approx([0.0, 1.0, 3.5, 0.0])


@pytest.mark.parametrize("busy", [0.3, 0.6, 0.8])
def test_the_mean_wait_is_that_of_an_m_d_1_queue(busy):
    waited = waits(arrivals(busy / 2.0, 300_000, seed=1), np.full(300_000, 2.0))
    assert waited.mean() == pytest.approx(2.0 * busy / (2 * (1 - busy)), rel=0.05)  # Pollaczek, Khinchine


def test_arrivals_keep_their_rate_and_their_sequence():
    slow, fast = arrivals(0.5, 50_000, seed=4), arrivals(2.0, 50_000, seed=4)
    assert 50_000 / slow[-1] == pytest.approx(0.5, rel=0.02)
    np.testing.assert_allclose(slow, 4 * fast)
    with pytest.raises(ValueError, match="rate"):
        arrivals(0.0, 5)


def test_ttft_is_waiting_and_then_the_first_token():
    served = [Served(0.4, 1.0), Served(0.6, 2.0)]
    at_rest = ttfts(served, 1e-6, count=100)
    assert sorted(set(at_rest.round(9))) == [0.4, 0.6]
    busy = ttfts(served, 0.6, count=100)
    arrived = arrivals(0.6, 100)
    assert busy == pytest.approx(np.add(naive_waits(arrived, [1.0, 2.0] * 50), [0.4, 0.6] * 50))


def test_the_sustained_rate_keeps_its_limit_and_the_next_step_does_not():
    served = [Served(0.5, 1.0)]
    rate = sustained(served, 2.0)
    assert capacity(served) == 1.0 and 0.3 < rate < 0.9
    assert np.quantile(ttfts(served, rate), 0.95) <= 2.0 < np.quantile(ttfts(served, rate + 0.01), 0.95)
    assert sustained([Served(0.25, 0.5)], 2.0) > rate
    assert sustained(served, 0.4) == 0.0


def test_the_stream_asks_everything_as_often_with_chunks_in_other_orders():
    asked = tuple(
        Asked(question=f"q{q}", hits=tuple(Hit(Chunk(f"d{q}", i, "", (q, i)), 0.0) for i in range(5))) for q in range(3)
    )
    requests = stream(asked, 4)
    assert requests == stream(asked, 4) and requests != stream(asked, 4, seed=1)
    assert sorted(one.question for one in requests) == ["q0"] * 4 + ["q1"] * 4 + ["q2"] * 4
    for one in asked:
        orders = [request.hits for request in requests if request.question == one.question]
        assert len(set(orders)) > 1 and all(set(order) == set(one.hits) for order in orders)
    with pytest.raises(ValueError, match="at least once"):
        stream(asked, 0)
