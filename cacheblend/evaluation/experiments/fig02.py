"""Figure 2: quality against the number of chunks in front of a question.

Knows nothing of pictures.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from cacheblend.config import BlendConfig
from cacheblend.evaluation.experiments.base import Asked, Bench
from cacheblend.evaluation.experiments.means import mean_points
from cacheblend.evaluation.experiments.rounds import Setting, mean_kl, rounds
from cacheblend.evaluation.points import Point
from cacheblend.trace import Mode

F1, KL = "F1 against the gold answer", "mean KL to full"
COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 45)
MODES = (Mode.REUSE, Mode.BLEND, Mode.PRIME)


def run(bench: Bench) -> list[Point]:
    """Series full, reuse, blend and prime; x: how many of a question's chunks, the first ones, are in front of it."""
    blend = BlendConfig(ratio=bench.ratio)
    settings = [Setting(mode.value, mode, blend) for mode in MODES]
    found: dict[tuple[str, str, int], list[float | None]] = defaultdict(list)
    for done in rounds(bench, settings, _cases(bench.asked)):
        chunks = len(done.asked.hits)
        found[F1, Mode.FULL.value, chunks].append(done.full_f1)
        found[KL, Mode.FULL.value, chunks].append(mean_kl(done.full))
        for mode, trace, f1 in zip(MODES, done.traces, done.f1, strict=True):
            found[F1, mode.value, chunks].append(f1)
            found[KL, mode.value, chunks].append(mean_kl(trace))
    return [
        point
        for (panel, series, chunks), values in found.items()
        for point in mean_points(values, panel=panel, series=series, x=float(chunks))
    ]


def _cases(asked: tuple[Asked, ...]) -> list[Asked]:
    """Every question behind its first 1, 2, 3 … chunks, and behind all that the most have."""
    most = max(len(one.hits) for one in asked)
    counts = sorted({count for count in COUNTS if count < most} | {most})
    return [replace(one, hits=one.hits[:count]) for count in counts for one in asked if count <= len(one.hits)]
