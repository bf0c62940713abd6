"""What experiments share: the questions that fit, one timed prefill, an engine with a store of its own.

Knows an engine; nothing of answers or of what is compared.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from dataclasses import replace
from textwrap import shorten

from cacheblend.caches import ChunkCaches
from cacheblend.config import BlendConfig
from cacheblend.engine import DEFAULT_LOADING, Engine
from cacheblend.evaluation.experiments.base import Asked, Bench
from cacheblend.loading import LoadConfig
from cacheblend.prompt import PromptPlan, PromptTooLongError
from cacheblend.retrieval import Hit
from cacheblend.run import Prefilled
from cacheblend.store import MemoryTier, Store
from cacheblend.trace import ON_CHUNKS, Lane, Mode, SegmentKind

ROUNDS = 3  # of which the median counts
SHOWN_CHARS = 60  # of a question, where it is named
TOO_SMALL = "The store is too small for the chunks: some runs had to prefill them again, as part of TTFT."
QUESTIONS = 3  # prompts of one length take one time: a few are enough where nothing but time is measured


def fitting(bench: Bench, most: int | None = None) -> list[Asked]:
    """The questions that the model can take, the first `most` of them; says what it leaves out."""
    fits: list[Asked] = []
    for one in bench.asked:
        try:
            plan_of(bench, one.question, one.hits)
            fits.append(one)
        except PromptTooLongError as error:
            bench.left_out.append(f"{shown(one)} is left out: {error}")
    if most is not None and len(fits) > most:
        first = "first" if most == 1 else f"first {most}"
        bench.left_out.append(f"Measured with the {first} of {len(fits)} questions.")
        return fits[:most]
    return fits


def shown(asked: Asked) -> str:
    """A question as it is named in a sentence."""
    chunks = "1 chunk" if len(asked.hits) == 1 else f"{len(asked.hits)} chunks"
    return f"“{shorten(asked.question, SHOWN_CHARS, placeholder='…')}” with {chunks}"


def plan_of(bench: Bench, question: str, hits: Sequence[Hit]) -> PromptPlan:
    """The prompt, with room for an answer."""
    return bench.engine.plan(question, hits, max_new_tokens=bench.max_new_tokens)


def ttft_ms(bench: Bench, plan: PromptPlan, mode: Mode, loading: LoadConfig = DEFAULT_LOADING) -> float:
    """One prefill, to its first token, in milliseconds; nothing is decoded, and no prefix is kept."""
    made = bench.engine.prefill_plan(plan, mode, BlendConfig(ratio=bench.ratio), loading=loading, cancel=bench.cancel)
    bench.engine.store.settle()
    if mode in ON_CHUNKS and not made.is_warm and TOO_SMALL not in bench.left_out:
        bench.left_out.append(TOO_SMALL)
    return first_token_ms(made)


def warm_up(bench: Bench, one: Asked, modes: Sequence[Mode]) -> None:
    """Make a question's caches and run it once in every mode: what a process does only once is no part of any TTFT."""
    bench.engine.precompute([hit.chunk for hit in one.hits], cancel=bench.cancel)
    for mode in modes:
        bench.step(0, 1, f"warming up, {mode}")
        ttft_ms(bench, plan_of(bench, one.question, one.hits), mode)


def first_token_ms(made: Prefilled) -> float:
    """When the first token was there, from the start of the run."""
    return next(span.end_ms for span in made.spans.spans() if span.lane is Lane.FIRST_TOKEN)


def with_store(engine: Engine, room: int) -> Engine:
    """The same engine with an empty store of so many bytes, where its fastest one is."""
    other = copy.copy(engine)
    other.store = Store([MemoryTier(room, engine.model.device)])
    other.caches = ChunkCaches(engine.model, other.store)
    return other


def knowing_first_chunk(engine: Engine, plan: PromptPlan, cancel: threading.Event | None = None) -> Engine:
    """The same engine with a store that holds the prompt's beginning alone, up to its first chunk's end.

    What another question behind the same first chunk leaves: the best case of prefix caching in the paper's evaluation.
    The engine's own store may hold more, where the same question was asked before, or less.
    """
    other = with_store(engine, 2 * plan.num_tokens * engine.kv_bytes_per_token)
    first = next(i for i, segment in enumerate(plan.context) if segment.kind is SegmentKind.CHUNK)
    borders = [segment.stop for segment in plan.context[: first + 1]]
    other.caches.precompute_prefix(plan.token_ids[: borders[-1]], borders=borders, cancel=cancel)
    return other


def shortened(hits: Sequence[Hit], tokens: int) -> tuple[Hit, ...]:
    """The same chunks, cut to their first `tokens` tokens as far as they have more."""
    return tuple(
        Hit(replace(hit.chunk, token_ids=hit.chunk.token_ids[:tokens]), hit.score)
        if len(hit.chunk.token_ids) > tokens
        else hit
        for hit in hits
    )
