"""Figure 12: time to first token against quality, a point a mode.

Knows nothing of pictures.
"""

from __future__ import annotations

from statistics import median

from cacheblend.config import BlendConfig
from cacheblend.evaluation.experiments.base import Bench
from cacheblend.evaluation.experiments.means import closed_points, mean_points
from cacheblend.evaluation.experiments.rounds import Setting, mean_kl, rounds
from cacheblend.evaluation.points import Point
from cacheblend.trace import Mode

CLOSED, F1 = "share of reuse's distance closed", "F1 against the gold answer"
MODES = (Mode.PREFIX, Mode.UNPLACED, Mode.REUSE, Mode.BLEND, Mode.PRIME)


def run(bench: Bench) -> list[Point]:
    """Series are modes; x: TTFT divided by full's of the same question, median; label: TTFT in milliseconds, median."""
    modes = (Mode.FULL, *MODES)
    kls: dict[Mode, list[float]] = {mode: [] for mode in modes}
    f1s: dict[Mode, list[float | None]] = {mode: [] for mode in modes}
    ttfts: dict[Mode, list[float]] = {mode: [] for mode in modes}
    fulls: list[float] = []
    settings = [Setting(mode.value, mode, BlendConfig(ratio=bench.ratio)) for mode in MODES]
    for done in rounds(bench, settings, timed=True):
        fulls.append(done.full.ttft_ms)
        for mode, trace, f1 in zip(modes, (done.full, *done.traces), (done.full_f1, *done.f1), strict=True):
            kls[mode].append(mean_kl(trace))
            f1s[mode].append(f1)
            ttfts[mode].append(trace.ttft_ms)
    points = []
    for mode in modes if fulls else ():
        where = {
            "series": mode.value,
            "x": median(ms / full for ms, full in zip(ttfts[mode], fulls, strict=True)),
            "label": f"TTFT {median(ttfts[mode]):.0f} ms",
        }
        points += closed_points(kls[mode], kls[Mode.REUSE], panel=CLOSED, **where)
        points += mean_points(f1s[mode], panel=F1, **where)
    if fulls and not any(point.panel == CLOSED for point in points):
        bench.left_out.append("Reuse is as good as full here: it leaves no distance to close.")
    return points
