"""Requests that come at random, whether or not earlier ones are done, to one server: how long each of them waits.

Arrivals are Poisson, served first come, first served (an M/G/1 queue). Knows times and orders; nothing of models,
modes or stores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from cacheblend.evaluation.experiments.base import Asked

ARRIVALS = 20_000  # per rate; the served requests' times are gone through again and again until so many have come
STEPS = 100  # of the grid on which the sustained rate is looked for


class Served(NamedTuple):
    """One request. service_s: how long it kept the server busy, from its start until its answer was done."""

    ttft_s: float
    service_s: float


def stream(asked: Sequence[Asked], times: int, seed: int = 0) -> tuple[Asked, ...]:
    """Every question `times` times, its chunks in another order each time, all in one random order."""
    if times < 1:
        raise ValueError(f"every question has to be asked at least once, got {times}")
    rng = np.random.default_rng(seed)
    repeated = [one for _ in range(times) for one in asked]
    requests = [replace(one, hits=tuple(one.hits[i] for i in rng.permutation(len(one.hits)))) for one in repeated]
    return tuple(requests[i] for i in rng.permutation(len(requests)))


def arrivals(rate: float, count: int, seed: int = 0) -> np.ndarray:
    """Seconds at which requests arrive, `rate` of them a second on average; one seed is one sequence at any rate."""
    if not rate > 0:
        raise ValueError(f"the rate must be positive, got {rate}")
    return np.random.default_rng(seed).exponential(size=count).cumsum() / rate


def waits(arrived: np.ndarray, service_s: np.ndarray) -> np.ndarray:
    """How long each request waits until its service starts (Lindley, 1952).

    A request waits as long as the one in front of it waited and was served, less the time between the two.
    """
    steps = np.concatenate(([0.0], service_s[:-1] - np.diff(arrived))).cumsum()
    waited: np.ndarray = steps - np.minimum.accumulate(steps)
    return waited


def capacity(served: Sequence[Served]) -> float:
    """Requests a second that keep the server busy all the time: at this rate, waiting grows without end."""
    return 1.0 / float(np.mean([one.service_s for one in served]))


def ttfts(served: Sequence[Served], rate: float, *, count: int = ARRIVALS, seed: int = 0) -> np.ndarray:
    """Time to first token of every request at a rate, waiting included, in seconds."""
    ttft_s, service_s = (np.resize(times, count) for times in zip(*served, strict=True))
    return waits(arrivals(rate, count, seed), service_s) + ttft_s


def sustained(served: Sequence[Served], limit_s: float, *, count: int = ARRIVALS, seed: int = 0) -> float:
    """The largest rate, in per cents of the capacity, at which 95 % of the requests have a first token within limit_s.

    0 where even requests that never wait take longer.
    """
    most = capacity(served)
    for step in range(STEPS - 1, 0, -1):
        rate = most * step / STEPS
        if np.quantile(ttfts(served, rate, count=count, seed=seed), 0.95) <= limit_s:
            return rate
    return 0.0
