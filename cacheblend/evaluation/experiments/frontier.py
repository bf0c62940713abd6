"""The policy frontier (ours): distance to full against budget and against time, for every policy and recipe.

Knows nothing of pictures.
"""

from __future__ import annotations

from statistics import fmean, median

from cacheblend.config import PRIME, BlendConfig
from cacheblend.evaluation.experiments.base import Bench
from cacheblend.evaluation.experiments.means import mean_points
from cacheblend.evaluation.experiments.rounds import Setting, mean_kl, rounds
from cacheblend.evaluation.points import Picked, Point
from cacheblend.policies import POLICIES_TOLD, RECIPE
from cacheblend.trace import Mode, Recipe

BUDGET, TIME = "against budget", "against TTFT"
RATIOS = (0.05, 0.15, 0.30)
POLICIES = tuple(about for about in POLICIES_TOLD if about.is_choice)


def run(bench: Bench) -> list[Point]:
    """Series: policies by name on bare chunks; reuse, a point a recipe; prime; full. y: mean KL to full, nats.

    x against budget: per cent of the context's tokens that were recomputed, mean over layers after the first; against
    TTFT: divided by full's of the same question, median. label: which settings, to be read by Picked.
    """
    plan = _plan()
    kls: list[list[float]] = [[] for _ in plan]
    shares: list[list[float]] = [[] for _ in plan]
    times: list[list[float]] = [[] for _ in plan]
    fulls: list[float] = []
    for done in rounds(bench, [setting for _, _, setting in plan], timed=True):
        fulls.append(mean_kl(done.full))
        for i, trace in enumerate(done.traces):
            kls[i].append(mean_kl(trace))
            shares[i].append(trace.recomputed_share)
            times[i].append(trace.ttft_ms / done.full.ttft_ms)
    points = []
    for i, (series, picked, _) in enumerate(plan if fulls else []):
        label = picked.label
        points += mean_points(kls[i], panel=BUDGET, series=series, x=100 * fmean(shares[i]), label=label)
        points += mean_points(kls[i], panel=TIME, series=series, x=median(times[i]), label=label)
    points += mean_points(fulls, panel=BUDGET, series=Mode.FULL.value, x=100.0)
    points += mean_points(fulls, panel=TIME, series=Mode.FULL.value, x=1.0)
    return points


def _plan() -> list[tuple[str, Picked, Setting]]:
    """The series and settings of every point but full's."""
    plan = []
    for recipe in Recipe:
        what = f"full reuse, chunks made {RECIPE[recipe].behind}"
        setting = Setting(what, Mode.REUSE, BlendConfig(recipe=recipe))
        plan.append((Mode.REUSE.value, Picked("none", recipe, 0.0), setting))
    for ratio in RATIOS:
        for about in POLICIES:
            blend = BlendConfig(policy=about.name, ratio=ratio)
            setting = Setting(f"{about.title} {100 * ratio:g} %", Mode.BLEND, blend)
            plan.append((about.name, Picked(about.name, Recipe.BARE, ratio), setting))
        setting = Setting(f"PrimeBlend {100 * ratio:g} %", Mode.PRIME, BlendConfig(ratio=ratio))
        plan.append((Mode.PRIME.value, Picked(PRIME.policy, PRIME.recipe, ratio), setting))
    return plan
