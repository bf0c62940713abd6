"""Every question in the same settings, one after another: what most experiments do before they take means.

Knows an engine through Measure; nothing of what is done with the traces, of which it keeps none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cacheblend.config import BlendConfig
from cacheblend.documents import plain_tokenizer
from cacheblend.engine import DEFAULT_BLEND, DEFAULT_LOADING, Engine
from cacheblend.evaluation.experiments.base import Asked, Bench
from cacheblend.evaluation.experiments.timed import TOO_SMALL, knowing_first_chunk, shown
from cacheblend.evaluation.measure import Measure
from cacheblend.evaluation.scores import score
from cacheblend.loading import LoadConfig
from cacheblend.trace import ON_CHUNKS, Mode, Recipe, Trace


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
    total, cold = len(cases) * (1 + len(settings)), False
    if timed:
        _warm_up(bench)
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
            bench.left_out.append(f"{shown(asked)} is left out: {error}")
            continue
        full, traces = measure.full(), []
        for i, setting in enumerate(settings, 1):
            bench.step(done + i, total, f"{which}, {setting.what}")
            traces.append(run(measure, setting.mode, setting.blend))
        cold |= any(not trace.is_warm for trace in traces if trace.mode in ON_CHUNKS)
        yield Round(
            asked=asked,
            full=full,
            traces=tuple(traces),
            full_f1=gold_f1(bench.engine, asked, full),
            f1=tuple(gold_f1(bench.engine, asked, trace) for trace in traces),
        )
    if timed and cold:
        bench.left_out.append(TOO_SMALL)
    bench.step(total, total, "done")


def _warm_up(bench: Bench) -> None:
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


def run(measure: Measure, mode: Mode, blend: BlendConfig, loading: LoadConfig = DEFAULT_LOADING) -> Trace:
    """One run; prefix caching knows the first chunk and nothing else."""
    if mode is not Mode.PREFIX:
        return measure.run(mode, blend, loading)
    usual = measure.engine
    measure.engine = knowing_first_chunk(usual, measure.plan, measure.cancel)
    try:
        return measure.run(mode, blend, loading)
    finally:
        measure.engine = usual
