"""Time to first token of full, reuse and blend, decoding speed and peak memory, as ratios within one run.

`python -m benchmarks.ttft` measures 6 chunks of 512 tokens; `--lengths` adds cost against context length. Random token
ids: the cost of a prefill does not depend on what the text says. Rounds interleave everything that is compared, and
medians of the rounds are printed, because machines drift.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import DynamicCache

from cacheblend.config import BlendConfig
from cacheblend.engine import Engine
from cacheblend.fusion.extend import extend
from cacheblend.prompt import PromptPlan
from cacheblend.trace import Mode, Selector
from visualizations.length import length_figure

SUFFIX_TOKENS = 24
PREFIX_TOKENS = 24
RATIO = 0.15


def main() -> None:
    """Measure, print, and write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--dtype")
    parser.add_argument("--device")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--chunks", type=int, default=6)
    parser.add_argument("--chunk-tokens", type=int, default=512)
    parser.add_argument("--lengths", type=int, nargs="*", default=[])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--figure", type=Path, help="cost against context length as an HTML page")
    args = parser.parse_args()
    engine = Engine.load(args.model, device=args.device, dtype=args.dtype, progress=lambda what: None)
    result: dict[str, Any] = {"environment": environment(engine), "ttft": ttft(engine, args)}
    print_ttft(result["ttft"], result["environment"])
    result["decode"] = decoding(engine, args)
    print(f"decoding: {result['decode']['ratio']:.2f} × transformers generate, tokens per second")
    if args.lengths:
        result["lengths"] = [length_row(engine, n, args) for n in args.lengths]
        print_lengths(result["lengths"])
    if args.lengths and args.figure:
        length_figure(result["lengths"]).write_html(args.figure, include_plotlyjs=True)
    if args.json:
        args.json.write_text(json.dumps(result, indent=1))


def environment(engine: Engine) -> dict[str, Any]:
    """Model and machine of this run."""
    env = engine.environment
    return {name: getattr(env, name) for name in ("model", "device", "dtype", "threads", "torch_version")}


def random_plan(engine: Engine, chunks: int, chunk_tokens: int, seed: int = 0) -> PromptPlan:
    """A prompt of random ordinary tokens."""
    generator = torch.Generator().manual_seed(seed)

    def ids(n: int) -> list[int]:
        return torch.randint(100, engine.model.vocab - 100, (n,), generator=generator).tolist()

    return PromptPlan.of(ids(PREFIX_TOKENS), [ids(chunk_tokens) for _ in range(chunks)], ids(SUFFIX_TOKENS))


def seconds(engine: Engine, work: Callable[[], Any]) -> float:
    """Wall time of one call, the device's queue emptied before and after."""
    synchronize(engine)
    start = time.perf_counter()
    work()
    synchronize(engine)
    return time.perf_counter() - start


def synchronize(engine: Engine) -> None:
    """Wait for an accelerator; nothing on a CPU."""
    if engine.model.device.type == "cuda":
        torch.cuda.synchronize()


def contenders(engine: Engine, plan: PromptPlan) -> dict[str, Callable[[], Any]]:
    """What is timed against each other, each from token ids to first-token logits, chunk caches in memory."""
    token_ids = torch.tensor([plan.token_ids], device=engine.model.device)

    @torch.inference_mode()
    def transformers_forward() -> Any:
        return engine.hf_model(token_ids, past_key_values=DynamicCache(), use_cache=True, logits_to_keep=1)

    def prefill(mode: Mode, selector: Selector = Selector.SINGLE) -> Callable[[], Any]:
        return lambda: engine.prefill_plan(plan, mode, BlendConfig(ratio=RATIO, selector=selector)).logits

    return {
        "transformers": transformers_forward,
        "full": prefill(Mode.FULL),
        "blend single": prefill(Mode.BLEND),
        "blend gradual": prefill(Mode.BLEND, Selector.GRADUAL),
        "reuse": prefill(Mode.REUSE),
    }


def medians(engine: Engine, work: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Seconds of every contender in every round, after one round that is not counted."""
    times: dict[str, list[float]] = {name: [] for name in work}
    for round_ in range(rounds + 1):
        for name, call in work.items():
            elapsed = seconds(engine, call)
            if round_:
                times[name].append(elapsed)
    return times


def ratio(times: dict[str, list[float]], slower: str, faster: str) -> float:
    """Median of the rounds' own ratios: both sides of each were taken seconds apart."""
    return statistics.median(a / b for a, b in zip(times[slower], times[faster], strict=True))


def ttft(engine: Engine, args: argparse.Namespace) -> dict[str, Any]:
    """The main table."""
    plan = random_plan(engine, args.chunks, args.chunk_tokens)
    times = medians(engine, contenders(engine, plan), args.rounds)
    blend = BlendConfig(ratio=RATIO)
    kept = engine.prefill_plan(plan, Mode.BLEND, blend).kept_per_layer
    rows = [k + plan.num_tokens - plan.context_tokens for k in kept]
    return {
        "tokens": plan.num_tokens,
        "rounds": args.rounds,
        "milliseconds": {name: 1000 * statistics.median(t) for name, t in times.items()},
        "full_over_transformers": ratio(times, "full", "transformers"),
        "speedup": {name: ratio(times, "full", name) for name in ("blend single", "blend gradual", "reuse")},
        "bound_from_rows": engine.model.num_layers * plan.num_tokens / sum(rows),
    }


def print_ttft(result: dict[str, Any], env: dict[str, Any]) -> None:
    """Print the main table."""
    print(f"{env['model']} · {env['device']} · {env['dtype']} · {env['threads']} threads · {result['tokens']} tokens")
    for name, milliseconds in result["milliseconds"].items():
        print(f"  {name:14} {milliseconds:9.1f} ms")
    print(f"full over transformers' own forward: {result['full_over_transformers']:.3f} ×")
    for name, value in result["speedup"].items():
        print(f"{name} at {RATIO:.0%}: {value:.2f} × sooner than full" if "blend" in name else f"{name}: {value:.1f} ×")
    bound, single = result["bound_from_rows"], result["speedup"]["blend single"]
    print(f"bound from rows computed: {bound:.2f} ×; blend single reaches {single / bound:.0%}")


def decoding(engine: Engine, args: argparse.Namespace) -> dict[str, Any]:
    """Tokens per second behind the prompt, against generate on the same prompt (its prefill subtracted)."""
    steps = 32
    plan = random_plan(engine, args.chunks, args.chunk_tokens)
    token_ids = torch.tensor([plan.token_ids], device=engine.model.device)
    options = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0}

    def ours() -> float:
        prefilled = engine.prefill_plan(plan, Mode.FULL, reserve=steps)
        return seconds(engine, lambda: [decode_step(engine, prefilled) for _ in range(steps)])

    def theirs() -> float:
        def generate(n: int) -> float:
            return seconds(engine, lambda: engine.hf_model.generate(token_ids, max_new_tokens=n, **options))

        return generate(steps + 1) - generate(1)

    pairs = [(ours(), theirs()) for _ in range(max(3, args.rounds // 2))]
    return {
        "tokens_per_second": steps / statistics.median(a for a, _ in pairs),
        "generate_tokens_per_second": steps / statistics.median(b for _, b in pairs),
        "ratio": statistics.median(b / a for a, b in pairs),
    }


def decode_step(engine: Engine, prefilled: Any) -> int:
    """One greedy step."""
    token = torch.tensor([int(prefilled.logits.argmax())], device=engine.model.device)
    return int(extend(engine.model, prefilled.cache, token)[0].argmax())


def length_row(engine: Engine, context_tokens: int, args: argparse.Namespace) -> dict[str, Any]:
    """One row of cost against context length."""
    chunk_tokens = min(args.chunk_tokens, context_tokens)
    plan = random_plan(engine, max(1, context_tokens // chunk_tokens), chunk_tokens)
    work = contenders(engine, plan)
    picked = {Mode.FULL: work["full"], Mode.BLEND: work["blend single"], Mode.REUSE: work["reuse"]}
    times = medians(engine, picked, max(2, args.rounds // 2))
    return {
        "tokens": plan.num_tokens,
        **{mode: 1000 * statistics.median(t) for mode, t in times.items()},
        "blend_speedup": ratio(times, Mode.FULL, Mode.BLEND),
        "reuse_speedup": ratio(times, Mode.FULL, Mode.REUSE),
    }


def print_lengths(rows: Sequence[dict[str, Any]]) -> None:
    """Print cost against context length."""
    print(f"{'tokens':>7} {'full ms':>9} {'blend ms':>9} {'reuse ms':>9} {'blend ×':>8} {'reuse ×':>8}")
    for row in rows:
        print(
            f"{row['tokens']:7} {row[Mode.FULL]:9.0f} {row[Mode.BLEND]:9.0f} {row[Mode.REUSE]:9.0f} "
            f"{row['blend_speedup']:8.2f} {row['reuse_speedup']:8.1f}"
        )


if __name__ == "__main__":
    main()
