"""Figure 16: quality against the share of tokens that is recomputed.

Knows nothing of pictures.
"""

from __future__ import annotations

from cacheblend.config import PRIME, BlendConfig
from cacheblend.evaluation.experiments.base import Bench
from cacheblend.evaluation.experiments.means import closed_points, mean_points
from cacheblend.evaluation.experiments.rounds import Setting, mean_kl, rounds
from cacheblend.evaluation.points import Point
from cacheblend.trace import Mode, Selector

CLOSED, F1 = "share of reuse's distance closed", "F1 against the gold answer"
RATIOS = (0.025, 0.05, 0.10, 0.15, 0.20, 0.30, 0.50, 1.0)
SINGLE, GRADUAL, PRIMED = "HKVD single", "HKVD gradual", "PrimeBlend"


def run(bench: Bench) -> list[Point]:
    """Series HKVD single, HKVD gradual and PrimeBlend; x: per cent asked for.

    At 0 % both HKVD series are bare reuse, and PrimeBlend is reuse of chunks that its recipe made.
    """
    plan = _plan()
    kls: list[list[float]] = [[] for _ in plan]
    f1s: list[list[float | None]] = [[] for _ in plan]
    for done in rounds(bench, [setting for _, _, setting in plan]):
        for kl, f1, trace, value in zip(kls, f1s, done.traces, done.f1, strict=True):
            kl.append(mean_kl(trace))
            f1.append(value)
    points = []
    for (names, x, _), kl, f1 in zip(plan, kls, f1s, strict=True):
        for series in names:
            points += closed_points(kl, kls[0], panel=CLOSED, series=series, x=x)
            points += mean_points(f1, panel=F1, series=series, x=x)
    if kls[0] and not any(point.panel == CLOSED for point in points):
        bench.left_out.append("Reuse is as good as full here: it leaves no distance to close.")
    return points


def _plan() -> list[tuple[tuple[str, ...], float, Setting]]:
    """The series and per cent that each setting stands for; bare reuse first."""
    plan = [
        ((SINGLE, GRADUAL), 0.0, Setting("full reuse", Mode.REUSE)),
        ((PRIMED,), 0.0, Setting("full reuse, primed", Mode.REUSE, BlendConfig(recipe=PRIME.recipe))),
    ]
    for ratio in RATIOS:
        for series, mode, selector in (
            (SINGLE, Mode.BLEND, Selector.SINGLE),
            (GRADUAL, Mode.BLEND, Selector.GRADUAL),
            (PRIMED, Mode.PRIME, Selector.SINGLE),
        ):
            blend = BlendConfig(ratio=ratio, selector=selector)
            plan.append(((series,), 100 * ratio, Setting(f"{series} {100 * ratio:g} %", mode, blend)))
    return plan
