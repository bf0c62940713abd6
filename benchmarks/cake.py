"""Cake against computing alone and loading alone, in one run: bandwidth × share of the processor × context length.

`python -m benchmarks.cake` prints the form of the paper's table 3 (2410.03065): how many times sooner the first token
is than when loading alone \\ than when computing alone. Bandwidths are emulated, as multiples of the one at which both
take equally long on this machine, and so are shares of the processor. Random token ids: neither way depends on what the
text says. Rounds interleave what is compared, and medians of the rounds' own ratios are printed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from benchmarks.ttft import environment
from cacheblend.engine import Engine
from cacheblend.fusion.busy import BusySpans
from cacheblend.fusion.cake import cake
from cacheblend.fusion.extend import KVCache, extend, prefill_chunk
from cacheblend.fusion.fusor import fuse
from cacheblend.fusion.pipeline import opened
from cacheblend.fusion.policies import HKVD, NoRows, SelectionPolicy
from cacheblend.fusion.source import ChunkSource
from cacheblend.fusion.spans import SpanRecorder
from cacheblend.kv import LOSSLESS, ChunkKey, ChunkKV, StoredChunk
from cacheblend.kv.codecs import CODECS
from cacheblend.kv.encoded import EncodedChunk
from cacheblend.loading import Device, LoadConfig
from cacheblend.meeting import Meeting, predict_meeting
from cacheblend.metrics import kl_divergence
from cacheblend.models.layerwise import LayerwiseModel
from cacheblend.prefixes import UNIT_TOKENS, prefill_units
from cacheblend.prompt import PromptPlan
from cacheblend.store.throttle import Link
from cacheblend.trace import Lane

SUFFIX_TOKENS = 24
MULTIPLES = (1 / 4, 1 / 2, 1, 2, 4)  # of the bandwidth at which loading takes as long as computing
BLEND_MULTIPLES = (1 / 4, 1, 4)
FAR_ENDS = (1 / 16, 32)
SHARES = (1.0, 0.5, 0.125)
BLEND = HKVD(0.15)
REUSE = NoRows()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much is measured; all in context tokens."""

    grid: int  # bandwidth × share
    lengths: tuple[int, ...]  # at balance, the whole processor
    far: int  # the far ends, where loading alone takes many times as long as anything else
    rounds: int


FULL = Sizes(grid=1024, lengths=(512, 1024, 2048, 4096), far=1024, rounds=3)
QUICK = Sizes(grid=512, lengths=(512, 1024), far=256, rounds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One way to the first token. logits: (vocab,); met_at: tokens computed from the front, with Cake."""

    seconds: float
    logits: torch.Tensor
    met_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One point of a sweep. bandwidth: bytes per second; the lists hold one entry a round, in seconds."""

    tokens: int
    share: float
    multiple: float
    bandwidth: float
    compute_only: list[float]
    load_only: list[float]
    cake: list[float]
    met_at: list[int]
    predicted_ms: float

    @property
    def over_load(self) -> float:
        """How many times sooner than loading alone."""
        return statistics.median(a / b for a, b in zip(self.load_only, self.cake, strict=True))

    @property
    def over_compute(self) -> float:
        """How many times sooner than computing alone."""
        return statistics.median(a / b for a, b in zip(self.compute_only, self.cake, strict=True))

    @property
    def over_better(self) -> float:
        """Against the better of the two, round by round."""
        rounds = zip(self.compute_only, self.load_only, self.cake, strict=True)
        return statistics.median(min(compute, load) / both for compute, load, both in rounds)


class Contest:
    """One model, one stored prefix of random tokens, and every way to the first token of a prompt behind it."""

    def __init__(self, model: LayerwiseModel, most_tokens: int, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        ids = torch.randint(100, model.vocab - 100, (most_tokens + SUFFIX_TOKENS,), generator=generator).tolist()
        self.model, self._ids, self._suffix = model, ids[:most_tokens], ids[most_tokens:]
        self._units = prefill_units(model, "benchmark", self._ids)

    def plan(self, tokens: int, chunk: int | None = None) -> PromptPlan:
        """A prompt whose context has so many tokens; in bare chunks of some length, or as one prefix."""
        step = chunk or tokens
        return PromptPlan.of([], [self._ids[i : i + step] for i in range(0, tokens, step)], self._suffix)

    def units(self, tokens: int, codec: str = LOSSLESS) -> list[StoredChunk]:
        """The stored prefix of a plan, unit by unit."""
        units = self._units[: tokens // UNIT_TOKENS]
        return list(units) if codec == LOSSLESS else [EncodedChunk.of(unit, CODECS[codec]) for unit in units]

    def chunks(self, plan: PromptPlan) -> list[StoredChunk]:
        """Bare chunks, as CacheBlend stores them."""
        ids = [plan.ids(segment) for segment in plan.context]
        return [
            ChunkKV(
                ChunkKey.of("benchmark", i), i, prefill_chunk(self.model, torch.tensor(i, device=self.model.device))
            )
            for i in ids
        ]

    def compute_only(self, plan: PromptPlan, share: float = 1.0) -> Timed:
        """One prefill of the whole prompt, which reads nothing."""
        token_ids = torch.tensor(plan.token_ids, device=self.model.device)

        def work(spans: SpanRecorder) -> tuple[torch.Tensor, None]:
            cache = KVCache(self.model, plan.num_tokens)
            return extend(self.model, cache, token_ids, last_only=True, spans=spans)[0], None

        return self._timed(work, share)

    def load_only(
        self, plan: PromptPlan, stored: Sequence[StoredChunk], device: Device | None, share: float = 1.0
    ) -> Timed:
        """Load all of the context, place it, and compute the suffix, with the very steps that Cake ends with."""
        context, model = plan.context_tokens, self.model

        @torch.inference_mode()
        def work(spans: SpanRecorder) -> tuple[torch.Tensor, None]:
            source = ChunkSource(model, stored if device is None else behind(device, stored), plan.num_tokens)
            layers = [source.layer(layer) for layer in range(model.num_layers)]
            rotary = model.rotary(torch.arange(context, device=model.device))
            for layer, kv in enumerate(layers):
                with spans.span(Lane.PLACE, f"place layer {layer}", layer):
                    model.rotate_(layer, kv.rows(0, context).keys, rotary)
            suffix = torch.tensor(plan.token_ids[context:], device=model.device)
            cache = KVCache(model, plan.num_tokens, layers, context)
            return extend(model, cache, suffix, last_only=True, spans=spans)[0], None

        return self._timed(work, share)

    def layerwise(
        self, plan: PromptPlan, stored: Sequence[StoredChunk], device: Device, policy: SelectionPolicy = REUSE
    ) -> Timed:
        """Load layer i + 1 while layer i of the suffix, and of what the policy keeps, is computed."""

        def work(spans: SpanRecorder) -> tuple[torch.Tensor, None]:
            config = LoadConfig(device=device)
            with opened(self.model, stored, plan.num_tokens, config, spans=spans, repair=None) as source:
                return fuse(self.model, plan, source, policy, spans=spans).logits, None

        return self._timed(work, 1.0)

    def cake(
        self,
        plan: PromptPlan,
        stored: Sequence[StoredChunk],
        device: Device,
        share: float = 1.0,
        policy: SelectionPolicy | None = None,
    ) -> Timed:
        """Both at once; a policy blends what was loaded, which is then not a prefix's exact KV."""

        def work(spans: SpanRecorder) -> tuple[torch.Tensor, int]:
            stop = threading.Event()
            units = behind(device, stored, stop)
            made = cake(self.model, plan, units, policy, spans=spans, is_emulated=True, stop=stop)
            return made.logits, made.met_at

        return self._timed(work, share)

    @cached_property
    def bytes_per_token(self) -> float:
        """Of KV, as it is stored."""
        return self._units[0].nbytes / self._units[0].num_tokens

    def _timed(self, work: Callable[[SpanRecorder], tuple[torch.Tensor, int | None]], share: float) -> Timed:
        """Wall time from token ids to first-token logits, on a processor of which a share is free."""
        spans = BusySpans(SpanRecorder(self.model.device), share, self.model.device)
        self._synchronize()
        start = time.perf_counter()
        logits, met_at = work(spans)
        self._synchronize()
        return Timed(seconds=time.perf_counter() - start, logits=logits, met_at=met_at)

    def _synchronize(self) -> None:
        if self.model.device.type == "cuda":
            torch.cuda.synchronize()


def behind(device: Device, stored: Sequence[StoredChunk], stop: threading.Event | None = None) -> list[StoredChunk]:
    """The units behind one emulated device, whose time begins with the first read."""
    link = Link(device)
    return [link.behind(unit, stop) for unit in stored]


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What units cost on this machine, for the closed form; measured before the sweeps, with nothing else running."""

    compute_ms: float
    growth_ms: float
    suffix_ms: float
    balance: float  # bytes per second at which loading `tokens` takes as long as computing them
    tokens: int

    @classmethod
    def measure(cls, contest: Contest, tokens: int, rounds: int = 3) -> Costs:
        """Two prefills give a line for the cost of a unit; a load from memory gives the suffix."""
        half, whole = (
            statistics.median(contest.compute_only(contest.plan(n)).seconds for _ in range(rounds)) * 1000
            for n in (tokens // 2, tokens)
        )
        plan, units = contest.plan(tokens), contest.units(tokens)
        suffix = statistics.median(contest.load_only(plan, units, None).seconds for _ in range(rounds)) * 1000
        n = tokens / UNIT_TOKENS
        first, second = (half - suffix) / (n / 2), (whole - suffix) / n  # mean cost of a unit in each
        growth = min(max(0.0, (second - first) * 4 / n), second / n)  # whatever noise says, a unit costs something
        return cls(
            compute_ms=second - growth * (n - 1) / 2,
            growth_ms=growth,
            suffix_ms=suffix,
            balance=1000 * contest.bytes_per_token * tokens / (whole - suffix),
            tokens=tokens,
        )

    def expect(self, contest: Contest, tokens: int, share: float, bandwidth: float) -> Meeting:
        """What the closed form says of one cell."""
        return predict_meeting(
            tokens / UNIT_TOKENS,
            compute_ms=self.compute_ms / share,
            growth_ms=self.growth_ms / share,
            load_ms=1000 * contest.bytes_per_token * UNIT_TOKENS / bandwidth,
            suffix_ms=self.suffix_ms / share,
        )


def main() -> None:
    """Measure, print, and write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--dtype")
    parser.add_argument("--device")
    parser.add_argument("--rounds", type=int, help="how often everything is measured")
    parser.add_argument("--quick", action="store_true", help="shorter contexts and one round: about a minute")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    sizes = QUICK if args.quick else FULL
    rounds = args.rounds or sizes.rounds
    engine = Engine.load(args.model, device=args.device, dtype=args.dtype, progress=lambda what: None)
    contest = Contest(engine.model, max(*sizes.lengths, sizes.grid))
    contest.compute_only(contest.plan(sizes.grid))  # not counted
    costs = Costs.measure(contest, sizes.grid, rounds)
    env = environment(engine)
    print(f"{env['model']} · {env['device']} · {env['dtype']} · {env['threads']} threads · {rounds} rounds")
    print(f"balance at {costs.tokens} tokens: {costs.balance / 1e6:.1f} MB/s of KV; every bandwidth below is emulated,")
    print("as is every share of the processor below 100 %\n")
    grid = sweep(contest, costs, [sizes.grid], SHARES, MULTIPLES, rounds)
    print_grid(grid)
    lengths = sweep(contest, costs, sizes.lengths, (1.0,), (1.0,), rounds)
    print_lengths(lengths)
    far = sweep(contest, costs, [sizes.far], (1.0,), FAR_ENDS, rounds)
    print_far(contest, costs, far)
    result = {
        "environment": env,
        "costs": asdict(costs),
        "grid": [asdict(cell) for cell in grid],
        "lengths": [asdict(cell) for cell in lengths],
        "far": [asdict(cell) for cell in far],
        "codecs": codecs(contest, costs, sizes.grid, rounds),
        "blend": blend(contest, costs, sizes.grid, rounds),
        "changing": changing(contest, costs, sizes.grid, rounds),
    }
    summary(grid + lengths, far)
    if args.json:
        args.json.write_text(json.dumps(result, indent=1))


def sweep(
    contest: Contest,
    costs: Costs,
    lengths: Sequence[int],
    shares: Sequence[float],
    multiples: Sequence[float],
    rounds: int,
) -> list[Cell]:
    """Every combination, round by round. Computing alone knows no bandwidth: it is timed once a round."""
    cells = [
        Cell(
            tokens=tokens,
            share=share,
            multiple=multiple,
            bandwidth=multiple * costs.balance,
            compute_only=[],
            load_only=[],
            cake=[],
            met_at=[],
            predicted_ms=costs.expect(contest, tokens, share, multiple * costs.balance).cake_ms,
        )
        for tokens in lengths
        for share in shares
        for multiple in multiples
    ]
    for _ in range(rounds):
        alone: dict[tuple[int, float], float] = {}
        for cell in cells:
            plan, units, device = contest.plan(cell.tokens), contest.units(cell.tokens), emulated(cell.bandwidth)
            if (cell.tokens, cell.share) not in alone:
                alone[cell.tokens, cell.share] = contest.compute_only(plan, cell.share).seconds
            made = contest.cake(plan, units, device, cell.share)
            cell.compute_only.append(alone[cell.tokens, cell.share])
            cell.load_only.append(contest.load_only(plan, units, device, cell.share).seconds)
            cell.cake.append(made.seconds)
            cell.met_at.append(made.met_at or 0)
    return cells


def emulated(bandwidth: float) -> Device:
    """A device of this bandwidth without latency."""
    return Device(name=f"{bandwidth / 1e6:.1f} MB/s", bandwidth=bandwidth)


def pair(over_load: float, over_compute: float) -> str:
    """As the paper prints both ratios."""
    return f"{over_load:.2f}\\{over_compute:.2f}"


def print_grid(cells: Sequence[Cell]) -> None:
    """The paper's table 3."""
    print(f"{cells[0].tokens} tokens: vs load-only \\ vs compute-only, TTFT")
    columns = [cell for cell in cells if cell.share == 1.0]
    print("  share " + "".join(f"{cell.bandwidth / 1e6:7.1f} MB/s" for cell in columns))
    for share in SHARES:
        row = [cell for cell in cells if cell.share == share]
        print(f"{share:7.1%} " + "".join(f"{pair(c.over_load, c.over_compute):>12}" for c in row))
    print("fronts met at, share of the context computed")
    for share in SHARES:
        row = [cell for cell in cells if cell.share == share]
        print(f"{share:7.1%} " + "".join(f"{statistics.median(c.met_at) / c.tokens:12.0%}" for c in row))
    errors = [abs(c.predicted_ms / (1000 * statistics.median(c.cake)) - 1) for c in cells]
    print(
        f"closed form against measured: {statistics.median(errors):.0%} off in the median, {max(errors):.0%} at most\n"
    )


def print_lengths(cells: Sequence[Cell]) -> None:
    """Context length at one bandwidth: computing gets dearer per token, loading does not."""
    print(f"context length at {cells[0].bandwidth / 1e6:.1f} MB/s, the whole processor")
    print(
        f"{'tokens':>7} {'compute ms':>11} {'load ms':>8} {'Cake ms':>8} {'expected':>9} {'met at':>7} "
        + "vs load \\ vs compute"
    )
    for c in cells:
        compute, load, both = (1000 * statistics.median(t) for t in (c.compute_only, c.load_only, c.cake))
        met, ratios = statistics.median(c.met_at), pair(c.over_load, c.over_compute)
        print(f"{c.tokens:7} {compute:11.0f} {load:8.0f} {both:8.0f} {c.predicted_ms:9.0f} {met:7.0f}   {ratios}")
    print()


def print_far(contest: Contest, costs: Costs, cells: Sequence[Cell]) -> None:
    """Where one resource dwarfs the other, and what layer-wise loading does there."""
    print(f"far ends, {cells[0].tokens} tokens")
    for c in cells:
        compute, load, both = (1000 * statistics.median(times) for times in (c.compute_only, c.load_only, c.cake))
        print(
            f"  {c.bandwidth / 1e6:8.1f} MB/s: compute {compute:.0f} ms, load {load:.0f} ms, Cake {both:.0f} ms: "
            f"{1 / c.over_better:.2f} × the better one"
        )
    fast = cells[-1]
    plan, units = contest.plan(fast.tokens), contest.units(fast.tokens)
    pipelined = contest.layerwise(plan, units, emulated(fast.bandwidth)).seconds
    print(
        f"  (loading layer by layer beside the suffix: {1000 * pipelined:.0f} ms at {fast.bandwidth / 1e6:.1f} MB/s)\n"
    )


def codecs(contest: Contest, costs: Costs, tokens: int, rounds: int) -> list[dict[str, Any]]:
    """Cake over each codec, at a quarter of the balance; encoding is not part of a run."""
    plan, device, rows = contest.plan(tokens), emulated(costs.balance / 4), []
    print(f"codecs at {device.name}, {tokens} tokens")
    for name in CODECS:
        units = contest.units(tokens, name)
        runs = [
            (contest.compute_only(plan), contest.load_only(plan, units, device), contest.cake(plan, units, device))
            for _ in range(rounds)
        ]
        row = {
            "codec": name,
            "nbytes": sum(unit.nbytes for unit in units),
            "compute_only": [compute.seconds for compute, _, _ in runs],
            "load_only": [load.seconds for _, load, _ in runs],
            "cake": [both.seconds for _, _, both in runs],
            "met_at": [both.met_at for _, _, both in runs],
            "kl": float(kl_divergence(runs[-1][0].logits, runs[-1][2].logits)),
        }
        rows.append(row)
        over_load = statistics.median(load.seconds / both.seconds for _, load, both in runs)
        over_compute = statistics.median(compute.seconds / both.seconds for compute, _, both in runs)
        print(
            f"  Cake + {name:12} {row['nbytes'] / 1e6:6.1f} MB  {1000 * statistics.median(row['cake']):6.0f} ms  "
            f"{pair(over_load, over_compute)}  "
            f"met at {statistics.median(row['met_at']):.0f}  KL to full {row['kl']:.1e}"
        )
    print()
    return rows


def blend(contest: Contest, costs: Costs, tokens: int, rounds: int) -> list[dict[str, Any]]:
    """Bare chunks: blended layer by layer, and blended behind what Cake computes, over bandwidth."""
    plan, rows = contest.plan(tokens, chunk=256), []
    chunks, full = contest.chunks(plan), contest.compute_only(plan)
    print(
        f"{len(chunks)} bare chunks of 256 tokens, {BLEND.ratio:.0%} blended; full takes {1000 * full.seconds:.0f} ms"
    )
    for multiple in BLEND_MULTIPLES:
        device = emulated(multiple * costs.balance)
        pairs = [
            (contest.layerwise(plan, chunks, device, BLEND), contest.cake(plan, chunks, device, policy=BLEND))
            for _ in range(rounds)
        ]
        row = {
            "bandwidth": device.bandwidth,
            "layerwise": [a.seconds for a, _ in pairs],
            "cake": [b.seconds for _, b in pairs],
            "met_at": [b.met_at for _, b in pairs],
            "layerwise_kl": float(kl_divergence(full.logits, pairs[-1][0].logits)),
            "cake_kl": float(kl_divergence(full.logits, pairs[-1][1].logits)),
        }
        rows.append(row)
        layerwise, both = (1000 * statistics.median(row[way]) for way in ("layerwise", "cake"))
        print(
            f"  {device.name:>11}: layer-wise {layerwise:6.0f} ms, KL {row['layerwise_kl']:.4f}"
            f"   Cake {both:6.0f} ms, KL {row['cake_kl']:.4f}, "
            f"met at {statistics.median(row['met_at']):.0f}"
        )
    print("  (KL of the first token to full, of random tokens: compare within a row)\n")
    return rows


def changing(contest: Contest, costs: Costs, tokens: int, rounds: int) -> list[dict[str, Any]]:
    """The bandwidth changes in the middle of a run: nobody tells Cake."""
    plan, units, rows = contest.plan(tokens), contest.units(tokens), []
    turn = costs.expect(contest, tokens, 1.0, costs.balance).cake_ms / 2000
    print(f"bandwidth that changes after {turn:.2f} s, {tokens} tokens")
    for before, after in ((2.0, 0.25), (0.25, 2.0)):
        steps = ((0.0, before * costs.balance), (turn, after * costs.balance))
        device = Device(name=f"{before:g} × balance, then {after:g} ×", bandwidth=steps[0][1], over_time=steps)
        runs = [
            (contest.compute_only(plan), contest.load_only(plan, units, device), contest.cake(plan, units, device))
            for _ in range(rounds)
        ]
        row = {
            "device": device.name,
            "compute_only": [c.seconds for c, _, _ in runs],
            "load_only": [load.seconds for _, load, _ in runs],
            "cake": [both.seconds for _, _, both in runs],
            "met_at": [both.met_at for _, _, both in runs],
        }
        rows.append(row)
        over_load = statistics.median(load.seconds / both.seconds for _, load, both in runs)
        over_compute = statistics.median(c.seconds / both.seconds for c, _, both in runs)
        print(f"  {device.name:30} {pair(over_load, over_compute)}  met at {statistics.median(row['met_at']):.0f}")
    print()
    return rows


def summary(cells: Sequence[Cell], far: Sequence[Cell]) -> None:
    """The two goals."""
    balanced = [c for c in cells if c.share == 1.0 and c.multiple == 1.0]
    worst = max(1 / c.over_better for c in [*cells, *far])
    print("balanced: " + ", ".join(f"{c.over_better:.2f} × at {c.tokens} tokens" for c in balanced) + " (goal: 1.8 ×)")
    print(f"worst against the better one: {worst:.2f} × its time (goal: at most 1.05 ×)")


if __name__ == "__main__":
    main()
