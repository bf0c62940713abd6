"""Figure 15: time to first token against the number of chunks, their length, and how many questions come at once.

Knows nothing of pictures.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from cacheblend.evaluation.experiments.base import Asked, Bench
from cacheblend.evaluation.experiments.means import mean_points
from cacheblend.evaluation.experiments.timed import QUESTIONS, ROUNDS, fitting, plan_of, shortened, ttft_ms, warm_up
from cacheblend.evaluation.points import Point
from cacheblend.trace import Mode

MODES = (Mode.FULL, Mode.REUSE, Mode.BLEND)
COUNTS = (1, 2, 3, 4, 6, 8, 11, 16, 24, 32, 48)
SHORTEST = 32  # tokens of a chunk; doubled until chunks are whole
BATCHES = (1, 2, 4)
CHUNKS, LENGTH, BATCH = "number of chunks", "chunk length", "batch size"


@dataclass(frozen=True, slots=True)
class Case:
    """Questions that come at once, at one place of one panel; label: what was cut."""

    panel: str
    x: float
    batch: tuple[Asked, ...]
    label: str = ""


def run(bench: Bench) -> list[Point]:
    """One panel each: x chunks, tokens of a chunk, or questions at once; y TTFT in ms, of three rounds the median."""
    asked = fitting(bench, QUESTIONS)
    if not asked:
        return []
    warm_up(bench, asked[0], MODES)
    cases = [*by_count(asked), *by_length(asked), *by_batch(asked)]
    total, done = len(cases) * len(MODES) * ROUNDS, 0
    found: dict[tuple[str, float, Mode], list[float]] = defaultdict(list)
    labels: dict[tuple[str, float], str] = {}
    for case in cases:
        plans = [plan_of(bench, one.question, one.hits) for one in case.batch]
        for one in case.batch:
            bench.engine.precompute([hit.chunk for hit in one.hits], cancel=bench.cancel)
        taken: dict[Mode, list[float]] = defaultdict(list)
        for _ in range(ROUNDS):
            for mode in MODES:
                bench.step(done, total, f"{case.panel} {case.x:g}, {mode}")
                taken[mode].append(sum(ttft_ms(bench, plan, mode) for plan in plans))
                done += 1
        labels[case.panel, case.x] = case.label
        for mode, rounds in taken.items():
            found[case.panel, case.x, mode].append(median(rounds))
    points = [
        point
        for (panel, x, mode), values in found.items()
        for point in mean_points(values, panel=panel, series=mode, x=x, label=labels[panel, x])
    ]
    # Batches share questions, so they are no sample to draw from.
    return [replace(point, low=None, high=None) if point.panel == BATCH else point for point in points]


def by_count(asked: Sequence[Asked]) -> list[Case]:
    """The first 1, 2, 3, … chunks of every question that has so many, and all that the longest has."""
    most = max(len(one.hits) for one in asked)
    return [
        Case(CHUNKS, count, (Asked(question=one.question, hits=one.hits[:count]),))
        for count in (*(n for n in COUNTS if n < most), most)
        for one in asked
        if len(one.hits) >= count
    ]


def by_length(asked: Sequence[Asked]) -> list[Case]:
    """All chunks, cut to their first 32, 64, 128, … tokens, and whole; x: the mean of what is left of each chunk."""
    longest = max(len(hit.chunk.token_ids) for one in asked for hit in one.hits)
    cuts: list[int] = []
    while SHORTEST * 2 ** len(cuts) < longest:
        cuts.append(SHORTEST * 2 ** len(cuts))
    cases = []
    for cut in (*cuts, longest):
        batches = [Asked(question=one.question, hits=shortened(one.hits, cut)) for one in asked]
        lengths = [len(hit.chunk.token_ids) for one in batches for hit in one.hits]
        label = "whole chunks" if cut == longest else f"chunks cut to {cut} tokens"
        cases += [Case(LENGTH, sum(lengths) / len(lengths), (one,), label) for one in batches]
    return cases


def by_batch(asked: Sequence[Asked]) -> list[Case]:
    """Several questions at once, one after another: y is when the last of them has its first token."""
    return [
        Case(BATCH, size, tuple(asked[(start + i) % len(asked)] for i in range(size)), "one after another")
        for size in BATCHES
        for start in range(len(asked))
    ]
