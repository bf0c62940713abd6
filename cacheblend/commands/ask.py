"""`python -m cacheblend ask FILE… --question Q`: one question in several modes. What it prints comes from traces."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cacheblend.commands import options, tiers
from cacheblend.commands.options import say
from cacheblend.config import AUTO, BlendConfig
from cacheblend.events import Compared
from cacheblend.kv import LOSSLESS
from cacheblend.loading import LoadConfig, LoadOrder
from cacheblend.policies import PAPERS, POLICIES_TOLD, RECIPE
from cacheblend.retrieval.ordering import Ordering
from cacheblend.trace import (
    COMPARED,
    ON_CHUNKS,
    Comparison,
    Deviation,
    Mode,
    Recipe,
    SegmentKind,
    Selector,
    Trace,
)

if TYPE_CHECKING:
    from cacheblend.engine import Engine
    from cacheblend.retrieval import Hit

HEADERS = ("mode", "TTFT ms", "speed-up", "recomputed", "KL first", "top-1", "F1 to full", "answer")
ANSWER_WIDTH = 60


def add_arguments(ask: argparse.ArgumentParser) -> None:
    """Say what `ask` takes."""
    ask.add_argument("files", nargs="+", type=Path, metavar="FILE", help="PDF, DOCX, HTML, Markdown or text")
    ask.add_argument("--question", required=True)
    options.add_several(ask, "--modes", Mode, COMPARED, "which ways to answer")
    ask.add_argument(
        "--ratio", type=_ratio, default=0.15, help="share of context tokens blend recomputes (0.15), or “auto”"
    )
    ask.add_argument(
        "--policy",
        choices=[about.name for about in POLICIES_TOLD],
        default=PAPERS,
        metavar="POLICY",
        help="which tokens blend recomputes: " + ", ".join(f"{about.name} ({about.title})" for about in POLICIES_TOLD),
    )
    ask.add_argument(
        "--recipe",
        type=options.one_of(Recipe),
        default=Recipe.BARE,
        metavar="RECIPE",
        help="what stands in front of a chunk when its cache is made: "
        + ", ".join(f"{recipe} ({about.title})" for recipe, about in RECIPE.items()),
    )
    ask.add_argument("--selector", type=options.one_of(Selector), choices=list(Selector), default=Selector.SINGLE)
    ask.add_argument("--deviation", type=options.one_of(Deviation), choices=list(Deviation), default=Deviation.VALUE)
    ask.add_argument("--top-k", type=int, default=6, help="chunks retrieved (6)")
    ask.add_argument("--order", type=options.one_of(Ordering), choices=list(Ordering), default=Ordering.RELEVANCE)
    ask.add_argument("--seed", type=int, default=0, help="of the shuffled order")
    ask.add_argument("--max-new-tokens", type=int, default=64)
    ask.add_argument("--cold", action="store_true", help="do not precompute chunk caches before the question")
    ask.add_argument("--json", type=Path, metavar="OUT", help="write the comparison as JSON")
    loading = ask.add_argument_group("how the caches come in")
    loading.add_argument("--emulate", type=options.device, metavar="DEVICE", help="slower: “SSD 1 GB/s”, “7Gbps” …")
    loading.add_argument(
        "--load-order", type=options.one_of(LoadOrder), choices=list(LoadOrder), default=LoadOrder.LAYERWISE
    )
    loading.add_argument("--load-codec", default=LOSSLESS, help="encode the caches on their way")
    loading.add_argument("--load-target-ms", type=float, help="choose each chunk's level so that all are there by then")
    loading.add_argument("--no-pipeline", action="store_true", help="do not read ahead")
    options.add_collection(ask)
    options.add_model(ask)
    tiers.add_store(ask)


def run(args: argparse.Namespace) -> int:
    """Index, retrieve, compare, print."""
    blend = BlendConfig(
        ratio=args.ratio,
        policy=args.policy,
        selector=args.selector,
        deviation=args.deviation,
        recipe=args.recipe,
    )
    loading = LoadConfig(
        device=args.emulate,
        order=args.load_order,
        codec=args.load_codec,
        target_ms=args.load_target_ms,
        pipelined=not args.no_pipeline,
    )
    with options.engine(args) as engine:
        hits = _retrieve(engine, args, blend)
        events = engine.compare(
            args.question, hits, modes=args.modes, blend=blend, loading=loading, max_new_tokens=args.max_new_tokens
        )
        comparison = next(event.comparison for event in events if isinstance(event, Compared))
    _print_table(comparison)
    if args.json:
        args.json.write_text(json.dumps(summary(comparison), ensure_ascii=False, indent=1))
    return 0


def _ratio(text: str) -> float | str:
    return text if text == AUTO else float(text)


def _retrieve(engine: Engine, args: argparse.Namespace, blend: BlendConfig) -> list[Hit]:
    """Index the files, say what could not be read, and search; make the caches that the modes read."""
    collection = options.collection(engine, args)
    hits = collection.search(args.question, top_k=args.top_k, ordering=args.order, seed=args.seed)
    recipes = {blend.of(mode).recipe for mode in args.modes if mode in ON_CHUNKS}
    if Recipe.SIMILAR in recipes:
        engine.learn_similar(collection.chunks)
    for recipe in [] if args.cold else sorted(recipes, key=list(Recipe).index):
        say(f"precomputing {len(hits)} chunk caches, made {RECIPE[recipe].behind}")
        engine.precompute([hit.chunk for hit in hits], recipe)
    return hits


def summary(comparison: Comparison) -> dict[str, Any]:
    """What `ask --json` writes."""
    return {
        "question": comparison.question,
        "model": comparison.environment.model,
        "environment": asdict(comparison.environment),
        "context_tokens": comparison.context_tokens,
        "suffix_tokens": comparison.suffix_tokens,
        "chunks": [
            {"source": s.source, "tokens": s.num_tokens, "score": s.score}
            for s in comparison.segments
            if s.kind is SegmentKind.CHUNK
        ],
        "runs": [
            {
                "mode": trace.mode,
                "policy": trace.policy,
                "ratio": trace.ratio,
                "answer": trace.answer,
                "ttft_ms": trace.ttft_ms,
                "is_warm": trace.is_warm,
                "predicted_ttft_ms": trace.predicted_ttft_ms,
                "loading": asdict(trace.loading) if trace.loading else None,
                "recomputed_tokens": trace.recomputed_tokens,
                "recomputed_share": trace.recomputed_share,
                "first_token_kl": trace.fidelity.first_token_kl if trace.fidelity else None,
                "top1_agreement": trace.fidelity.top1_agreement if trace.fidelity else None,
                "f1_to_full": trace.f1_to_full,
                "stored_nbytes": trace.stored_nbytes,
                "stored_new_nbytes": trace.stored_new_nbytes,
                "replies": [asdict(reply) for reply in trace.replies],
            }
            for trace in comparison.traces
        ],
    }


def _print_table(comparison: Comparison) -> None:
    env = comparison.environment
    print(f"{env.model} · {env.device} · {env.dtype} · {env.threads} threads")
    print(f"{comparison.context_tokens} context tokens, {comparison.suffix_tokens} suffix tokens")
    rows = [HEADERS, *(_row(comparison, trace.mode) for trace in comparison.traces)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADERS))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    for trace in comparison.traces:
        if told := _told(trace):
            print(f"{trace.mode}: {told}")
        for line in _replies(trace):
            print(line)


def _told(trace: Trace) -> str:
    """One line: where the caches were, what they went through, and what was expected."""
    parts, loading = [], trace.loading
    if loading is not None:
        read = f"{loading.nbytes / 1e6:.1f} MB from {', '.join(loading.places)}"
        parts += [read if loading.places else "nothing was stored"]
        parts += [f"as slow as {loading.device} (emulated)"] if loading.device else []
        parts += [loading.codec] if loading.codec != LOSSLESS else []
        parts += [loading.order] if loading.met_at is None else [f"{loading.order}, met after {loading.met_at} tokens"]
    if trace.mode is Mode.PREFIX and trace.stored_nbytes is not None:
        parts += [f"{trace.stored_nbytes / 1e6:.1f} MB kept for this beginning alone, {_new(trace)}"]
    if trace.mode in (Mode.BLEND, Mode.PRIME):
        parts += [trace.policy]
    if trace.replies:
        parts += ["what each chunk replied"]
    expected = trace.predicted_ttft_ms
    parts += [f"first token predicted after {expected:.0f} ms"] if expected is not None else []
    return " · ".join(parts)


def _new(trace: Trace) -> str:
    return f"{(trace.stored_new_nbytes or 0) / 1e6:.1f} MB of that new"


def _replies(trace: Trace) -> list[str]:
    """One line for each chunk that was asked alone: what it replied, and with what score."""
    lines = []
    for reply in trace.replies:
        score = "no readable score, counts as 0" if reply.score is None else f"score {reply.score}"
        rated = f" ({score})" if trace.mode is Mode.MAP_RERANK else ""
        lines.append(f"  {reply.source}{rated}: {_cut(reply.text) or '(nothing)'}")
    return lines


def _cut(text: str) -> str:
    """One line of a reply or an answer."""
    line = " ".join(text.split())
    return line if len(line) <= ANSWER_WIDTH else line[: ANSWER_WIDTH - 1] + "…"


def _row(comparison: Comparison, mode: Mode) -> tuple[str, ...]:
    trace = comparison.trace(mode)
    if trace is None:
        raise ValueError(f"mode {mode} did not run")
    speedup, fidelity = comparison.speedup(mode), trace.fidelity
    f1 = "–" if trace.f1_to_full is None else f"{trace.f1_to_full:.2f}"
    near = (f"{fidelity.first_token_kl:.3f}", f"{fidelity.top1_agreement:.0%}") if fidelity else ("–", "–")
    return (
        f"{mode}{'' if trace.is_warm else ' (cold)'}",
        f"{trace.ttft_ms:.0f}",
        f"{speedup:.2f} ×" if speedup else "–",
        f"{trace.recomputed_tokens} ({trace.recomputed_share:.0%})",
        *near,
        f1,
        _cut(trace.answer),
    )
