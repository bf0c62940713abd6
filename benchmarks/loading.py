"""What waiting for caches costs: blend at 15 % with its caches in RAM, on local disk, and behind emulated devices.

`python -m benchmarks.loading` interleaves everything in rounds and prints medians of the rounds' own ratios. The disk's
page cache is dropped before each read of it, and it is checked that it was. Devices are emulated by holding reads back;
local disk and RAM are not.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import mmap
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.ttft import RATIO, environment, random_plan, seconds
from cacheblend.caches import Piece
from cacheblend.config import BlendConfig
from cacheblend.engine import Engine
from cacheblend.fusion.source import ChunkSource, unread_layers
from cacheblend.fusion.spans import SpanRecorder
from cacheblend.loading import PRESETS, Device, LoadConfig
from cacheblend.prompt import PromptPlan
from cacheblend.store import DiskTier, Store
from cacheblend.store.throttle import Link
from cacheblend.trace import Mode

BLEND = BlendConfig(ratio=RATIO)
RUNS = ("ram", "load", "pipelined", "unpipelined")  # of each device, one right after the other: machines drift
# The presets hide behind a CPU's computing; these are as slow as it, and slower.
SLOW = tuple(Device(name=f"{mb} MB/s", bandwidth=mb * 1e6, latency_ms=0.1) for mb in (400, 200, 100, 50, 25))


def main() -> None:
    """Measure, print, and write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--chunks", type=int, default=6)
    parser.add_argument("--chunk-tokens", type=int, default=512)
    parser.add_argument("--prefetch", type=int, default=LoadConfig().prefetch)
    parser.add_argument("--folder", type=Path, help="where the disk is (a temporary folder here by default)")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder or ".", prefix=".loading-") as folder:
        result = measure(args, Path(folder))
    print_result(result)
    if args.json:
        args.json.write_text(json.dumps(result, indent=1))


def measure(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Every contender in every round."""
    ram = Engine.load(args.model, progress=lambda what: None)
    disk = Engine(ram.hf_model, ram.tokenizer, name="disk", store=Store([DiskTier(folder, 2**34)]))
    plan = random_plan(ram, args.chunks, args.chunk_tokens)
    for engine in (ram, disk):
        engine.caches.precompute([Piece(plan.ids(segment)) for segment in plan.context])
    work = contenders(ram, disk, plan, folder, args.prefetch)
    times: dict[str, list[float]] = {name: [] for name in work}
    for round_ in range(args.rounds + 1):  # the first is not counted
        for name, call in work.items():
            elapsed = call()
            if round_:
                times[name].append(elapsed)
    return {
        "environment": environment(ram),
        "tokens": plan.num_tokens,
        "rounds": args.rounds,
        "prefetch": args.prefetch,
        "kv_mb": plan.context_tokens * ram.kv_bytes_per_token / 1e6,
        "seconds": times,
    }


def contenders(
    ram: Engine, disk: Engine, plan: PromptPlan, folder: Path, prefetch: int
) -> dict[str, Callable[[], float]]:
    """Name → one measured run, in seconds to the first token (loading alone: to the last byte)."""

    def run(engine: Engine, loading: LoadConfig, *, cold: bool = False) -> Callable[[], float]:
        def once() -> float:
            if cold:
                drop(folder)
            return seconds(engine, lambda: engine.prefill_plan(plan, Mode.BLEND, BLEND, loading=loading))

        return once

    def load_only(engine: Engine, device: Device | None, *, cold: bool = False) -> Callable[[], float]:
        def once() -> float:
            if cold:
                drop(folder)
            return seconds(engine, lambda: load_all(engine, plan, device))

        return once

    made = {
        "disk ram": run(ram, LoadConfig()),
        "disk pipelined": run(disk, LoadConfig(prefetch=prefetch), cold=True),
        "disk unpipelined": run(disk, LoadConfig(pipelined=False), cold=True),
        "disk load": load_only(disk, None, cold=True),
    }
    for device in (*PRESETS[1:], *SLOW):
        made[f"{device.name} ram"] = made["disk ram"]
        made[f"{device.name} pipelined"] = run(ram, LoadConfig(device=device, prefetch=prefetch))
        made[f"{device.name} unpipelined"] = run(ram, LoadConfig(device=device, pipelined=False))
        made[f"{device.name} load"] = load_only(ram, device)
    return made


def load_all(engine: Engine, plan: PromptPlan, device: Device | None) -> None:
    """Read every layer that blend reads, and compute nothing."""
    chunks = engine.caches.find(plan, SpanRecorder(), None).chunks
    if device is not None:
        link = Link(device)
        chunks = tuple(link.behind(chunk) for chunk in chunks)
    first = unread_layers(BLEND.selection(Mode.BLEND), plan, engine.model.num_layers)
    source = ChunkSource(engine.model, chunks, plan.num_tokens, first_layer=first)
    for layer in range(engine.model.num_layers):
        source.layer(layer)


def drop(folder: Path) -> None:
    """Put the files of a folder out of the page cache; RuntimeError if pages of them stay there."""
    for path in (path for path in folder.rglob("*") if path.is_file() and path.stat().st_size):
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
            for _ in range(20):  # pages that are still being read ahead cannot be dropped yet
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                left = cached_pages(fd, path.stat().st_size)
                if not left:
                    break
                time.sleep(0.02)
            else:
                raise RuntimeError(f"{left} pages of {path} stay in the page cache")
        finally:
            os.close(fd)


def cached_pages(fd: int, size: int) -> int:
    """How many pages of a file are in the page cache (mincore, which reads nothing)."""
    libc = ctypes.CDLL(None, use_errno=True)
    with mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ) as mapped:
        there = np.zeros(-(-size // mmap.PAGESIZE), dtype=np.uint8)
        address = np.frombuffer(mapped, dtype=np.uint8).ctypes.data
        if libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), ctypes.c_void_p(there.ctypes.data)):
            raise OSError(ctypes.get_errno(), "mincore")
        return int((there & 1).sum())


def print_result(result: dict[str, Any]) -> None:
    """The table: pipelined against RAM, and against the larger of loading and computing."""
    env, times = result["environment"], result["seconds"]
    print(f"{env['model']} · {env['device']} · {env['dtype']} · {env['threads']} threads · {result['tokens']} tokens")
    print(f"blend {RATIO:.0%} with caches in RAM: {ms(times['disk ram'])}; {result['kv_mb']:.0f} MB of KV")
    print(f"{'device':20}{'load':>9}{'pipelined':>11}{'unpipelined':>13}{'÷ RAM':>8}{'÷ max':>8}{'unp. ÷ max':>12}")
    for name in [key.removesuffix(" load") for key in times if key.endswith(" load")]:
        ram, load, pipelined, unpipelined = (times[f"{name} {what}"] for what in RUNS)
        bound = [max(a, b) for a, b in zip(load, ram, strict=True)]
        label = name if name == "disk" else f"{name} *"
        print(
            f"{label:20}{ms(load):>9}{ms(pipelined):>11}{ms(unpipelined):>13}{over(pipelined, ram):>8.2f}"
            f"{over(pipelined, bound):>8.2f}{over(unpipelined, bound):>12.2f}"
        )
    print("* emulated: real reads from RAM, held back; max: the larger of loading alone and blend with caches in RAM")


def ms(times: list[float]) -> str:
    """Median as text."""
    return f"{1000 * statistics.median(times):.0f} ms"


def over(times: list[float], base: list[float]) -> float:
    """Median of the rounds' own ratios."""
    return statistics.median(a / b for a, b in zip(times, base, strict=True))


if __name__ == "__main__":
    main()
