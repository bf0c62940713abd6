"""Every question in the same settings, one after another: what most experiments do before they take means.

Knows an engine through Measure; nothing of what is done with the traces, of which it keeps none.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cacheblend.caches import ChunkCaches
from cacheblend.config import BlendConfig
from cacheblend.documents import plain_tokenizer
from cacheblend.engine import DEFAULT_BLEND, Engine
from cacheblend.evaluation.experiments.base import Asked, Bench
from cacheblend.evaluation.measure import Measure
from cacheblend.evaluation.scores import score
from cacheblend.loading import StoreConfig
from cacheblend.store import open_store
from cacheblend.trace import ON_CHUNKS, Mode, Recipe, SegmentKind, Trace

SHOWN_CHARS = 60  # of a question, where it is named


@dataclass(frozen=True, slots=True)
class Setting:
    """One way to answer. what: in a few words, for whoever watches."""

    what: str
    mode: Mode
    blend: BlendConfig = DEFAULT_BLEND


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One question, answered in full and in every setting; traces: in the order of the settings.

    f1: of each trace against the gold answers, None where nobody knows any; full_f1: of full.
    """

    asked: Asked
    full: Trace
    traces: tuple[Trace, ...]
    full_f1: float | None
    f1: tuple[float | None, ...]


def rounds(
    bench: Bench,
    settings: Sequence[Setting],
    cases: Sequence[Asked] | None = None,
    *,
    deviations: bool = False,
    timed: bool = False,
) -> Iterator[Round]:
    """Answer the bench's questions, or other cases, in full and in every setting; those that do not fit are left out.

    timed: TTFT is what is looked at, so one run that does not count comes first, and caches that were missing are said.
    Chunk caches are made before anything is timed. Raises Cancelled between two runs once somebody asked to stop.
    """
    recipes = {setting.blend.of(setting.mode).recipe for setting in settings if setting.mode in ON_CHUNKS}
    cases = bench.asked if cases is None else cases
    total, cold = len(cases) * (1 + len(settings)), 0
    if timed:
        warm_up(bench)
    for number, asked in enumerate(cases):
        done, which = number * (1 + len(settings)), f"question {number + 1} of {len(cases)}"
        bench.step(done, total, f"{which}, full recompute")
        try:
            measure = Measure(
                bench.engine,
                asked.question,
                asked.hits,
                max_new_tokens=bench.max_new_tokens,
                deviations=deviations,
                cancel=bench.cancel,
            )
            measure.precompute(recipe for recipe in Recipe if recipe in recipes)
        except ValueError as error:  # the prompt, or a chunk behind its recipe, is longer than the model takes
            bench.left_out.append(f"{_shown(asked)} is left out: {error}")
            continue
        full, traces = measure.full(), []
        for i, setting in enumerate(settings, 1):
            bench.step(done + i, total, f"{which}, {setting.what}")
            traces.append(_run(measure, setting))
        cold += sum(not trace.is_warm for trace in traces if trace.mode in ON_CHUNKS)
        yield Round(
            asked=asked,
            full=full,
            traces=tuple(traces),
            full_f1=gold_f1(bench.engine, asked, full),
            f1=tuple(gold_f1(bench.engine, asked, trace) for trace in traces),
        )
    if timed and cold:
        bench.left_out.append(
            f"The store is too small for the chunks: {cold} runs had to prefill some, as part of TTFT."
        )
    bench.step(total, total, "done")


def warm_up(bench: Bench) -> None:
    """Run the first question that fits once: what a process does only once is no part of any TTFT."""
    for asked in bench.asked:
        bench.step(0, 1, "warming up")
        try:
            measure = Measure(bench.engine, asked.question, asked.hits, max_new_tokens=1, cancel=bench.cancel)
        except ValueError:  # too long: `rounds` says so
            continue
        measure.run(Mode.REUSE)
        return


def gold_f1(engine: Engine, asked: Asked, trace: Trace) -> float | None:
    """F1 of an answer against the gold answers, by the paper's convention; None where nobody knows any."""
    scores = score(trace.answer, asked.answers, plain_tokenizer(engine.tokenizer).encode)
    return scores.f1 if scores else None


def mean_kl(trace: Trace) -> float:
    """Mean KL to full along full's answer, nats. ValueError for a mode whose prompt is another."""
    if trace.fidelity is None:
        raise ValueError(f"{trace.mode} answers another prompt than full, so it has no distance to full")
    return trace.fidelity.mean_kl


def _run(measure: Measure, setting: Setting) -> Trace:
    if setting.mode is not Mode.PREFIX:
        return measure.run(setting.mode, setting.blend)
    usual = measure.engine
    measure.engine = _knowing_first_chunk(measure)
    try:
        return measure.run(Mode.PREFIX)
    finally:
        measure.engine = usual


def _knowing_first_chunk(measure: Measure) -> Engine:
    """The engine with a store of its own that holds the prompt's beginning, up to its first chunk's end.

    What another prompt with the same first chunk leaves behind: the best case of prefix caching in the paper's
    evaluation. The engine's own store may hold more, from the same question asked before, or less.
    """
    plan, engine = measure.plan, copy.copy(measure.engine)
    size = 2 * plan.num_tokens * engine.kv_bytes_per_token
    engine.store = open_store(StoreConfig(memory_bytes=size, accelerator_bytes=size), engine.model.device)
    engine.caches = ChunkCaches(engine.model, engine.store)
    first = next(i for i, segment in enumerate(plan.context) if segment.kind is SegmentKind.CHUNK)
    borders = [segment.stop for segment in plan.context[: first + 1]]
    engine.caches.precompute_prefix(plan.token_ids[: borders[-1]], borders=borders, cancel=measure.cancel)
    return engine


def _shown(asked: Asked) -> str:
    short = asked.question if len(asked.question) <= SHOWN_CHARS else f"{asked.question[:SHOWN_CHARS]}…"
    return f"“{short}” with {len(asked.hits)} chunks"
