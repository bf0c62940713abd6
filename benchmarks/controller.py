"""How well the loading controller predicts, and whether the ratio it chooses hides the loading. Measured in one run.

`python -m benchmarks.controller` calibrates this machine once, as the page does, and then holds what every run was
expected to take against what it took: context lengths × ratios × devices, pipelined and not. Devices are emulated:
memory whose reads are held back. Presets are joined by multiples of the bandwidth at which loading and recomputing
15 % take equally long here, because a small model on a CPU computes longer than any preset loads. Random token ids,
caches in memory, medians of interleaved rounds; TTFT is what a trace says: from the question to the first logits.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.ttft import environment, random_plan
from cacheblend.config import BlendConfig
from cacheblend.controller import QUALITY_FLOOR, ratio_for_device
from cacheblend.cost import Workload
from cacheblend.engine import Engine
from cacheblend.loading import PRESETS, Device, LoadConfig
from cacheblend.prediction import predict
from cacheblend.prompt import PromptPlan
from cacheblend.trace import Lane, Mode

CHUNK_TOKENS = 512
SWEPT_PRESETS = ("RAM", "SSD 1 GB/s", "disk 4 Gbps", "network 7 Gbps")
SWEPT_MULTIPLES = (0.5, 1.0, 2.0)  # of the balanced bandwidth
CHOSEN_MULTIPLES = (0.25, 0.4, 0.7, 1.0, 1.5, 4.0, 16.0)  # from “recompute everything” to “quality decides”
HIDDEN = (1.05, 1.10)  # TTFT at most this many times the longer of loading and computing


@dataclass(frozen=True)
class Measured:
    """Medians of the rounds of one case, in milliseconds. predicted_ms: what the controller expected before it ran."""

    ttft_ms: float
    load_ms: float
    predicted_ms: float

    @property
    def compute_ms(self) -> float:
        """Without overlap, what is not loading is computing."""
        return self.ttft_ms - self.load_ms

    @property
    def error(self) -> float:
        """Predicted against measured, relative to measured."""
        return self.predicted_ms / self.ttft_ms - 1


@dataclass(frozen=True)
class Case:
    """One prompt, ratio and device, pipelined and one layer after the other."""

    context_tokens: int
    ratio: float
    device: Device
    pipelined: Measured
    unpipelined: Measured

    @property
    def over_longer(self) -> float:
        """Pipelined TTFT over the longer of loading and computing, both taken from the run without overlap."""
        return self.pipelined.ttft_ms / max(self.unpipelined.load_ms, self.unpipelined.compute_ms)

    def row(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "context_tokens": self.context_tokens,
            "ratio": self.ratio,
            "device": self.device.name,
            "bandwidth": None if self.device.bandwidth == float("inf") else self.device.bandwidth,
            "is_emulated": self.device.is_emulated,
            "pipelined_ms": self.pipelined.ttft_ms,
            "pipelined_predicted_ms": self.pipelined.predicted_ms,
            "unpipelined_ms": self.unpipelined.ttft_ms,
            "unpipelined_predicted_ms": self.unpipelined.predicted_ms,
            "load_ms": self.unpipelined.load_ms,
            "compute_ms": self.unpipelined.compute_ms,
            "over_longer": self.over_longer,
        }


def main() -> None:
    """Calibrate, measure, print, and write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--dtype")
    parser.add_argument("--device")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--contexts", type=int, nargs="+", default=[512, 1536, 3072], help="multiples of 512 tokens")
    parser.add_argument("--ratios", type=float, nargs="+", default=[0.0, 0.15, 0.5])
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    engine = Engine.load(args.model, device=args.device, dtype=args.dtype, progress=lambda what: None)
    engine.calibrate(recalibrate=True)
    swept, chosen = [], []
    for context_tokens in args.contexts:
        plan = random_plan(engine, max(1, context_tokens // CHUNK_TOKENS), min(CHUNK_TOKENS, context_tokens))
        engine.prefill_plan(plan, Mode.REUSE)  # chunk caches are computed here, not in a round
        swept += sweep(engine, plan, args.ratios, args.rounds)
        chosen += choices(engine, plan, args.rounds)
    result = {
        "environment": environment(engine),
        "rounds": args.rounds,
        "sweep": [case.row() for case in swept],
        "chosen": [case.row() for case in chosen],
        "summary": summary(swept, chosen),
    }
    print_result(engine, swept, chosen, result["summary"])
    if args.json:
        args.json.write_text(json.dumps(result, indent=1))


def sweep(engine: Engine, plan: PromptPlan, ratios: Sequence[float], rounds: int) -> list[Case]:
    """Given ratios on presets and around the balance."""
    devices = [d for d in PRESETS if d.name in SWEPT_PRESETS] + balanced(engine, plan, SWEPT_MULTIPLES)
    return measure(engine, plan, [(ratio, device) for ratio in ratios for device in devices], rounds)


def choices(engine: Engine, plan: PromptPlan, rounds: int) -> list[Case]:
    """The ratio that the controller chooses for each device."""
    profile = engine.calibrate()
    devices = balanced(engine, plan, CHOSEN_MULTIPLES)
    work = [(ratio_for_device(profile, device, workload(plan)).ratio, device) for device in devices]
    return measure(engine, plan, work, rounds)


def workload(plan: PromptPlan) -> Workload:
    """The plan as the controller sees it."""
    suffix_tokens = plan.num_tokens - plan.context_tokens
    return Workload(context_tokens=plan.context_tokens, suffix_tokens=suffix_tokens, reads_per_layer=len(plan.context))


def balanced(engine: Engine, plan: PromptPlan, multiples: Sequence[float]) -> list[Device]:
    """Devices at multiples of the bandwidth at which loading takes as long as computing at 15 %, as predicted."""
    computing = predict(engine.calibrate(), PRESETS[0], workload(plan), QUALITY_FLOOR).compute_ms
    balance = 1000 * engine.kv_bytes_per_token * plan.context_tokens / computing
    return [Device(name=f"{m * balance / 1e6:.3g} MB/s", bandwidth=m * balance) for m in multiples]


def measure(engine: Engine, plan: PromptPlan, work: Sequence[tuple[float, Device]], rounds: int) -> list[Case]:
    """Every case pipelined and not, in interleaved rounds."""
    runs: dict[tuple[int, bool], list[Measured]] = {}
    for _ in range(rounds):
        for i, (ratio, device) in enumerate(work):
            for pipelined in (True, False):
                runs.setdefault((i, pipelined), []).append(run_once(engine, plan, ratio, device, pipelined))
    return [
        Case(plan.context_tokens, ratio, device, median(runs[i, True]), median(runs[i, False]))
        for i, (ratio, device) in enumerate(work)
    ]


def run_once(engine: Engine, plan: PromptPlan, ratio: float, device: Device, pipelined: bool) -> Measured:
    """One prefill. ValueError if the engine expected nothing, because then there is nothing to compare."""
    loading = LoadConfig(device=device, pipelined=pipelined)
    prefilled = engine.prefill_plan(plan, Mode.BLEND, BlendConfig(ratio=ratio), loading=loading)
    spans = prefilled.spans.spans()
    expected = max((span.end_ms for span in prefilled.predicted), default=None)
    if expected is None:
        raise ValueError("the engine predicted nothing for this run")
    return Measured(
        ttft_ms=next(s.end_ms for s in spans if s.lane is Lane.FIRST_TOKEN),
        load_ms=sum(s.duration_ms for s in spans if s.lane in (Lane.LOAD, Lane.DECOMPRESS)),
        predicted_ms=expected,
    )


def median(runs: Sequence[Measured]) -> Measured:
    """Time by time."""
    return Measured(
        ttft_ms=statistics.median(run.ttft_ms for run in runs),
        load_ms=statistics.median(run.load_ms for run in runs),
        predicted_ms=statistics.median(run.predicted_ms for run in runs),
    )


def summary(swept: Sequence[Case], chosen: Sequence[Case]) -> dict[str, Any]:
    """Errors over the sweep, and how often a chosen ratio hides the loading.

    Hidden: the first token comes at most 5 % (or 10 %) later than the longer of loading alone and computing alone
    would take, both measured in the run without overlap.
    """
    errors = {name: [abs(getattr(case, name).error) for case in swept] for name in ("pipelined", "unpipelined")}
    return {
        "median_error": {name: statistics.median(values) for name, values in errors.items()},
        "worst_error": {name: max(values) for name, values in errors.items()},
        "hidden_share": {f"{limit:.2f}": share_hidden(chosen, limit) for limit in HIDDEN},
        "cases": {"sweep": len(swept), "chosen": len(chosen)},
    }


def share_hidden(cases: Sequence[Case], limit: float) -> float:
    """Share of cases whose TTFT is within the limit."""
    return sum(case.over_longer <= limit for case in cases) / len(cases)


def print_result(engine: Engine, swept: Sequence[Case], chosen: Sequence[Case], found: dict[str, Any]) -> None:
    """Tables and the two numbers that were asked for."""
    env = engine.environment
    print(f"{env.model} · {env.device} · {env.dtype} · {env.threads} threads; devices are emulated")
    print("TTFT predicted and measured, ms")
    print_cases(swept)
    print("\nRatios chosen by the controller")
    print_cases(chosen)
    for name, value in found["median_error"].items():
        print(f"{name}: median error {value:.1%}, worst {found['worst_error'][name]:.1%}, {len(swept)} cases")
    for limit, share in found["hidden_share"].items():
        print(
            f"chosen ratio: TTFT ≤ {limit} × the longer of loading and computing in {share:.0%} of {len(chosen)} cases"
        )


def print_cases(cases: Sequence[Case]) -> None:
    """One row a case."""
    print(
        f"{'tokens':>6} {'ratio':>6} {'device':15} {'pipelined':>9} {'pred.':>7} {'error':>6} "
        f"{'one by one':>10} {'pred.':>7} {'error':>6} {'load':>7} {'compute':>7} {'÷ longer':>8}"
    )
    for case in cases:
        a, b = case.pipelined, case.unpipelined
        print(
            f"{case.context_tokens:6} {case.ratio:6.1%} {case.device.name:15} {a.ttft_ms:9.0f} {a.predicted_ms:7.0f} "
            f"{a.error:6.0%} {b.ttft_ms:10.0f} {b.predicted_ms:7.0f} {b.error:6.0%} {b.load_ms:7.0f} "
            f"{b.compute_ms:7.0f} {case.over_longer:8.2f}"
        )


if __name__ == "__main__":
    main()
