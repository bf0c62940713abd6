"""Figure 17: what a slower device costs, where the caches come from memory, or from something as slow as a disk.

Devices are emulated by holding reads from memory back. Knows nothing of pictures.
"""

from __future__ import annotations

from collections import defaultdict
from statistics import median

from cacheblend.config import BlendConfig
from cacheblend.evaluation.experiments.base import Bench
from cacheblend.evaluation.experiments.means import mean_points
from cacheblend.evaluation.experiments.rounds import mean_kl, warm_up
from cacheblend.evaluation.experiments.timed import QUESTIONS, ROUNDS, fitting, plan_of, ttft_ms
from cacheblend.evaluation.measure import Measure
from cacheblend.evaluation.points import Point
from cacheblend.loading import PRESETS, Device, LoadConfig
from cacheblend.trace import Mode

MODES = (Mode.REUSE, Mode.BLEND)
EMULATED = tuple(sorted((d for d in PRESETS if d.bandwidth < float("inf")), key=lambda d: -d.bandwidth))
DEVICES: tuple[Device | None, ...] = (None, *EMULATED)  # None: where the caches are, as fast as they come
TTFT, DISTANCE = "TTFT", "distance to full"


def run(bench: Bench) -> list[Point]:
    """x: the number of the device, which the label names; panel TTFT: divided by full's; distance: mean KL to full."""
    asked = fitting(bench, QUESTIONS)
    if not asked:
        return []
    warm_up(bench)
    settings = [(mode, number) for number in range(len(DEVICES)) for mode in MODES]
    total, done = len(asked) * len(settings) * (ROUNDS + 1), 0
    found: dict[tuple[str, Mode, int], list[float]] = defaultdict(list)
    for one in asked:
        plan = plan_of(bench, one.question, one.hits)
        bench.step(done, total, "full recompute")
        full_ms = median(ttft_ms(bench, plan, Mode.FULL) for _ in range(ROUNDS))
        found[TTFT, Mode.FULL, 0].append(1.0)
        measure = Measure(
            bench.engine, one.question, one.hits, max_new_tokens=bench.max_new_tokens, cancel=bench.cancel
        )
        for mode, number in settings:
            device = DEVICES[number]
            loading, taken = LoadConfig(device=device), []
            bench.step(done, total, f"{mode}, {device_name(device)}")
            trace = measure.run(mode, BlendConfig(ratio=bench.ratio), loading)
            found[DISTANCE, mode, number].append(mean_kl(trace))
            for _ in range(ROUNDS):
                done += 1
                bench.step(done, total, f"{mode}, {device_name(device)}")
                taken.append(ttft_ms(bench, plan, mode, loading))
            done += 1
            found[TTFT, mode, number].append(median(taken) / full_ms)
    return [
        point
        for (panel, mode, number), values in found.items()
        for point in mean_points(
            values,
            panel=panel,
            series=mode,
            x=float(number),
            label=device_name(DEVICES[number]) if mode in MODES else "",
        )
    ]


def device_name(device: Device | None) -> str:
    """For people; an emulated device says so."""
    return "host memory" if device is None else f"{device.name}, emulated"
