"""What experiments about time share: the questions that fit, one timed prefill, an engine with a store of its own.

Knows an engine; nothing of answers or of what is compared.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

from cacheblend.caches import ChunkCaches
from cacheblend.config import BlendConfig
from cacheblend.engine import DEFAULT_LOADING, Engine
from cacheblend.evaluation.experiments.base import Asked, Bench
from cacheblend.loading import LoadConfig
from cacheblend.prompt import PromptPlan, PromptTooLongError
from cacheblend.retrieval import Hit
from cacheblend.run import Prefilled
from cacheblend.store import MemoryTier, Store
from cacheblend.trace import Lane, Mode

ROUNDS = 3  # of which the median counts
QUESTIONS = 3  # prompts of one length take one time: a few are enough where nothing but time is measured


def fitting(bench: Bench, most: int | None = None) -> list[Asked]:
    """The questions that the model can take, the first `most` of them; says what it leaves out."""
    fits: list[Asked] = []
    for one in bench.asked:
        try:
            plan_of(bench, one.question, one.hits)
            fits.append(one)
        except PromptTooLongError as error:
            bench.left_out.append(f"“{one.question}” is left out: {error}")
    if most is not None and len(fits) > most:
        bench.left_out.append(f"Measured with the first {most} of {len(fits)} questions.")
        return fits[:most]
    return fits


def plan_of(bench: Bench, question: str, hits: Sequence[Hit]) -> PromptPlan:
    """The prompt, with room for an answer."""
    return bench.engine.plan(question, hits, max_new_tokens=bench.max_new_tokens)


def ttft_ms(bench: Bench, plan: PromptPlan, mode: Mode, loading: LoadConfig = DEFAULT_LOADING) -> float:
    """One prefill, to its first token, in milliseconds; nothing is decoded, and no prefix is kept."""
    made = bench.engine.prefill_plan(plan, mode, BlendConfig(ratio=bench.ratio), loading=loading, cancel=bench.cancel)
    bench.engine.store.settle()
    return first_token_ms(made)


def first_token_ms(made: Prefilled) -> float:
    """When the first token was there, from the start of the run."""
    return next(span.end_ms for span in made.spans.spans() if span.lane is Lane.FIRST_TOKEN)


def with_store(engine: Engine, room: int) -> Engine:
    """The same engine with an empty store of so many bytes, where its fastest one is."""
    other = copy.copy(engine)
    other.store = Store([MemoryTier(room, engine.model.device)])
    other.caches = ChunkCaches(engine.model, other.store)
    return other


def shortened(hits: Sequence[Hit], tokens: int) -> tuple[Hit, ...]:
    """The same chunks, cut to their first `tokens` tokens as far as they have more."""
    return tuple(
        Hit(replace(hit.chunk, token_ids=hit.chunk.token_ids[:tokens]), hit.score)
        if len(hit.chunk.token_ids) > tokens
        else hit
        for hit in hits
    )
