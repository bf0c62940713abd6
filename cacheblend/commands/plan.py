"""`python -m cacheblend plan`: the ratio for a device and the device for a ratio, on this machine. All predicted."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from cacheblend.commands import options
from cacheblend.commands.options import say
from cacheblend.controller import (
    QUALITY_FLOOR,
    DeviceChoice,
    DeviceRow,
    RatioChoice,
    device_for_ratio,
    ratio_for_device,
)
from cacheblend.cost import ComputeProfile, Workload
from cacheblend.engine import Engine
from cacheblend.loading import PRESETS, Device
from cacheblend.prediction import predict
from cacheblend.trace import Environment, Selector

RATIO_HEADERS = ("device", "loading", "hides", "ratio", "TTFT", "why")
DEVICE_HEADERS = ("device", "cost", "loading", "computing", "TTFT", "not pipelined", "hidden")


def add_arguments(plan: argparse.ArgumentParser) -> None:
    """Say what `plan` takes."""
    plan.add_argument("--tokens", type=int, default=3072, help="cached context (3072)")
    plan.add_argument("--suffix", type=int, default=32, help="the question, which is never cached (32)")
    plan.add_argument("--chunk-tokens", type=int, default=512)
    plan.add_argument("--selector", type=options.one_of(Selector), choices=list(Selector), default=Selector.SINGLE)
    plan.add_argument("--storage", type=options.device, metavar="DEVICE", help="“SSD 1 GB/s”, “7Gbps” … (every preset)")
    plan.add_argument("--latency-ms", type=float, help="of one read from --storage")
    plan.add_argument("--ratio", type=float, default=QUALITY_FLOOR, help="to choose a device for (0.15)")
    plan.add_argument("--floor", type=float, default=QUALITY_FLOOR, help="the least that quality needs (0.15)")
    plan.add_argument("--months", type=float, default=1.0, help="how long the context is kept (1)")
    plan.add_argument(
        "--price", action="append", type=_price, default=[], metavar="DEVICE=0.1", help="per GB and month"
    )
    plan.add_argument("--recalibrate", action="store_true", help="measure this machine again")
    plan.add_argument("--json", type=Path, metavar="OUT", help="write everything as JSON")
    options.add_model(plan)


def run(args: argparse.Namespace) -> int:
    """Calibrate if need be, choose, print."""
    devices = _devices(args)
    workload = Workload(
        context_tokens=args.tokens,
        suffix_tokens=args.suffix,
        reads_per_layer=math.ceil(args.tokens / args.chunk_tokens),
        selector=args.selector,
    )
    environment, profile = _profile(args)
    asked = [device for device in devices if args.storage is None or device.name == args.storage.name]
    ratios = [(device, ratio_for_device(profile, device, workload, args.floor)) for device in asked]
    choice = device_for_ratio(profile, devices, workload, args.ratio, args.months)
    _print(environment, profile, workload, ratios, choice)
    if args.json:
        args.json.write_text(json.dumps(summary(environment, profile, workload, ratios, choice), indent=1))
    return 0


def summary(
    environment: Environment,
    profile: ComputeProfile,
    workload: Workload,
    ratios: Sequence[tuple[Device, RatioChoice]],
    choice: DeviceChoice,
) -> dict[str, Any]:
    """What `plan --json` writes."""
    return {
        "environment": asdict(environment),
        "profile": asdict(profile),
        "workload": asdict(workload),
        "ratio_for_device": [
            {
                "device": device.name,
                "hidden_ratio": ratio.hidden_ratio,
                "ratio": ratio.ratio,
                "why": ratio.why,
                "load_ms": ratio.prediction.load_ms,
                "compute_ms": ratio.prediction.compute_ms,
                "ttft_ms": ratio.prediction.ttft_ms,
            }
            for device, ratio in ratios
        ],
        "device_for_ratio": {
            "ratio": choice.ratio,
            "chosen": choice.chosen.device.name,
            "why": choice.why,
            "devices": [
                {
                    "device": row.device.name,
                    "cost": row.cost,
                    "load_ms": row.pipelined.load_ms,
                    "compute_ms": row.pipelined.compute_ms,
                    "ttft_ms": row.pipelined.ttft_ms,
                    "unpipelined_ttft_ms": row.unpipelined.ttft_ms,
                    "is_hidden": row.is_hidden,
                }
                for row in choice.rows
            ],
        },
    }


def _profile(args: argparse.Namespace) -> tuple[Environment, ComputeProfile]:
    """Where this runs and what computing costs there."""
    engine = Engine.load(args.model, device=args.device, dtype=args.dtype, progress=say)
    try:
        if args.recalibrate or engine.machine.profile is None:
            say("measuring what computing costs here, a few seconds")
        return engine.environment, engine.calibrate(recalibrate=args.recalibrate)
    finally:
        engine.store.close()


def _devices(args: argparse.Namespace) -> list[Device]:
    """The presets, the storage asked for among them, at the prices given."""
    if args.latency_ms is not None:
        if args.storage is None:
            raise ValueError("--latency-ms belongs to a device: name it with --storage")
        args.storage = replace(args.storage, latency_ms=args.latency_ms)
    own = [] if args.storage is None else [args.storage]
    prices: dict[str, float] = {device.name: price for device, price in args.price}
    named = {device.name: device for device in (*PRESETS, *own)}
    unknown = next((name for name in prices if name not in named), None)
    if unknown is not None:
        raise ValueError(f"--price names “{unknown}”, which is neither a preset nor what --storage names")
    if own and own[0].price == 0 and own[0].name not in prices:
        say(f"“{own[0].name}” counts as free: --price '{own[0].name}=0.1' gives it a price per GB and month")
    return [replace(device, price=prices.get(name, device.price)) for name, device in named.items()]


def _price(text: str) -> tuple[Device, float]:
    name, _, price = text.rpartition("=")
    return options.device(name), float(price)


def _print(
    environment: Environment,
    profile: ComputeProfile,
    workload: Workload,
    ratios: Sequence[tuple[Device, RatioChoice]],
    choice: DeviceChoice,
) -> None:
    full_ms, blend = profile.prefill_ms(workload.num_tokens), predict(profile, PRESETS[0], workload, choice.ratio)
    print(f"{environment.model} · {environment.device} · {environment.dtype} · {environment.threads} threads")
    print(f"{workload.context_tokens} cached tokens, {workload.suffix_tokens} suffix tokens; all times are predicted")
    print(f"computing everything {_ms(full_ms)}, {choice.ratio:.0%} of the context {_ms(blend.compute_ms)}")
    print("\nThe ratio for a device")
    _table(RATIO_HEADERS, [_ratio_cells(device, ratio) for device, ratio in ratios])
    print(f"\nThe device for {choice.ratio:.0%}: {choice.chosen.device.name}, {choice.why}")
    _table(DEVICE_HEADERS, [_device_cells(row) for row in choice.rows])


def _ratio_cells(device: Device, choice: RatioChoice) -> tuple[str, ...]:
    run = choice.prediction
    shares = (f"{choice.hidden_ratio:.1%}", f"{choice.ratio:.1%}")
    return device.name, _ms(run.load_ms), *shares, _ms(run.ttft_ms), choice.why


def _device_cells(row: DeviceRow) -> tuple[str, ...]:
    run = row.pipelined
    times = (_ms(run.load_ms), _ms(run.compute_ms), _ms(run.ttft_ms), _ms(row.unpipelined.ttft_ms))
    return row.device.name, f"{row.cost:.2g}", *times, "yes" if row.is_hidden else "no"


def _table(headers: tuple[str, ...], cells: Sequence[tuple[str, ...]]) -> None:
    rows = [headers, *cells]
    widths = [max(len(row[i]) for row in rows) for i in range(len(headers))]
    for row in rows:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _ms(milliseconds: float) -> str:
    return f"{milliseconds:.0f} ms" if milliseconds >= 10 else f"{milliseconds:.2g} ms"
