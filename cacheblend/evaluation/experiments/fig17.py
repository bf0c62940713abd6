"""Figure 17: what a slower device costs, where the caches come from memory, or from something as slow as a disk.

Devices are emulated by holding reads from memory back. Knows nothing of pictures.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from statistics import median

from cacheblend.config import BlendConfig
from cacheblend.evaluation.experiments import rounds
from cacheblend.evaluation.experiments.base import Bench
from cacheblend.evaluation.experiments.means import mean_points
from cacheblend.evaluation.experiments.timed import (
    QUESTIONS,
    ROUNDS,
    fitting,
    knowing_first_chunk,
    plan_of,
    ttft_ms,
    warm_up,
)
from cacheblend.evaluation.measure import Measure
from cacheblend.evaluation.points import Point
from cacheblend.loading import PRESETS, Device, LoadConfig
from cacheblend.trace import Mode

MODES = (Mode.PREFIX, Mode.REUSE, Mode.BLEND)
EMULATED = tuple(sorted((d for d in PRESETS if d.bandwidth < math.inf), key=lambda d: -d.bandwidth))
DEVICES: tuple[Device | None, ...] = (None, *EMULATED)  # None: where the caches are, as fast as they come
TTFT, DISTANCE = "TTFT", "distance to full"


def run(bench: Bench) -> list[Point]:
    """x: the number of the device, which the label names; panel TTFT: divided by full's; distance: mean KL to full.

    A round is full and then every mode on every device, so that a machine that slows down slows both.
    """
    asked = fitting(bench, QUESTIONS)
    if not asked:
        return []
    warm_up(bench, asked[0], (Mode.FULL, Mode.REUSE, Mode.BLEND))
    settings = [(mode, number) for number in range(len(DEVICES)) for mode in MODES]
    total, done = len(asked) * (ROUNDS + 1) * len(settings), 0
    found: dict[tuple[str, Mode, int], list[float]] = defaultdict(list)
    for one in asked:
        plan = plan_of(bench, one.question, one.hits)
        bench.engine.precompute([hit.chunk for hit in one.hits], cancel=bench.cancel)
        prefixed = replace(bench, engine=knowing_first_chunk(bench.engine, plan, bench.cancel))
        taken: dict[tuple[Mode, int], list[float]] = defaultdict(list)
        for _ in range(ROUNDS):
            bench.step(done, total, "full recompute")
            full_ms = ttft_ms(bench, plan, Mode.FULL)
            for mode, number in settings:
                bench.step(done, total, f"{mode}, {device_name(DEVICES[number])}")
                engine = prefixed if mode is Mode.PREFIX else bench
                taken[mode, number].append(ttft_ms(engine, plan, mode, loading(number)) / full_ms)
                done += 1
        found[TTFT, Mode.FULL, 0].append(1.0)
        for (mode, number), ratios in taken.items():
            found[TTFT, mode, number].append(median(ratios))
        measure = Measure(
            bench.engine, one.question, one.hits, max_new_tokens=bench.max_new_tokens, cancel=bench.cancel
        )
        measure.full()
        for mode, number in settings:
            bench.step(done, total, f"quality of {mode}, {device_name(DEVICES[number])}")
            trace = rounds.run(measure, mode, BlendConfig(ratio=bench.ratio), loading(number))
            found[DISTANCE, mode, number].append(rounds.mean_kl(trace))
            done += 1
    bench.step(total, total, "done")
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


def loading(number: int) -> LoadConfig:
    """Layer by layer from one of DEVICES, while the layer in front is computed."""
    return LoadConfig(device=DEVICES[number])


def device_name(device: Device | None) -> str:
    """For people; an emulated device says so."""
    return "host memory" if device is None else f"{device.name}, emulated"
