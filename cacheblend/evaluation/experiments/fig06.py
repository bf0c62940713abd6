"""Figure 6: how the question's attention comes back as more tokens are recomputed.

Knows nothing of pictures.
"""

from __future__ import annotations

from collections import defaultdict

from cacheblend.config import BlendConfig
from cacheblend.evaluation.experiments.base import Bench
from cacheblend.evaluation.experiments.means import mean_points
from cacheblend.evaluation.experiments.rounds import Setting, rounds
from cacheblend.evaluation.points import Point
from cacheblend.trace import Fidelity, Mode

ATTENTION, KV = "forward attention deviation", "KV deviation"
RATIOS = (0.005, 0.02, 0.05, 0.10, 0.15, 0.30, 0.50)
SERIES = {"HKVD": "hkvd", "random tokens": "random"}


def run(bench: Bench) -> list[Point]:
    """Series HKVD and random tokens; x: per cent recomputed; y: deviation, divided by the same question's at 0 %."""
    settings = [Setting("nothing recomputed", Mode.REUSE)] + [
        Setting(f"{series} {100 * ratio:g} %", Mode.BLEND, BlendConfig(ratio=ratio, policy=policy))
        for series, policy in SERIES.items()
        for ratio in RATIOS
    ]
    places = [(series, 100 * ratio) for series in SERIES for ratio in RATIOS]
    found: dict[tuple[str, str, float], list[float]] = defaultdict(list)
    for done in rounds(bench, settings, deviations=True):
        distances = [_distances(trace.fidelity) for trace in done.traces]
        for panel, start in distances[0].items():
            if not start > 0:
                bench.left_out.append(f"{panel}: “{done.asked.question}” has none to begin with.")
                continue
            for series in SERIES:
                found[panel, series, 0.0].append(1.0)
            for (series, x), distance in zip(places, distances[1:], strict=True):
                found[panel, series, x].append(distance[panel] / start)
    return [
        point
        for (panel, series, x), values in sorted(found.items())
        for point in mean_points(values, panel=panel, series=series, x=x)
    ]


def _distances(fidelity: Fidelity | None) -> dict[str, float]:
    if fidelity is None or fidelity.attention_deviation is None or fidelity.kv_deviation is None:
        raise ValueError("deviations were not measured")
    return {ATTENTION: fidelity.attention_deviation, KV: fidelity.kv_deviation}
