"""How far full reuse's KV is from full's, question by question: what figures 7 and 8 are made of.

Knows an engine that is looked into; nothing of what is done with the numbers.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cacheblend.evaluation.experiments.base import Bench
from cacheblend.evaluation.experiments.timed import fitting
from cacheblend.trace import Mode, SegmentKind


def deviations(bench: Bench) -> Iterator[np.ndarray]:
    """One array (layers, tokens) a question: relative L2 distance of K and V, of every chunk after the first.

    What stands in front of them, and the first chunk unless a system prefix does, has nothing to deviate from.
    Questions with one chunk are left out.
    """
    asked = fitting(bench)
    for number, one in enumerate(asked):
        bench.step(number, len(asked), f"looking into question {number + 1} of {len(asked)}")
        plan = bench.engine.plan(one.question, one.hits, max_new_tokens=bench.max_new_tokens)
        chunks = [segment for segment in plan.context if segment.kind is SegmentKind.CHUNK]
        if len(chunks) < 2:
            bench.left_out.append(f"“{one.question}” is left out: it has one chunk, and nothing stands before that.")
            continue
        seen = bench.engine.inspect(one.question, one.hits, max_new_tokens=bench.max_new_tokens, cancel=bench.cancel)
        yield seen.kv_deviation[Mode.REUSE][:, chunks[1].start : chunks[-1].stop]
    bench.step(len(asked), len(asked), "done")
