"""How far full reuse's KV is from full's, question by question: what figures 7 and 8 are made of.

Knows an engine that is looked into; nothing of what is done with the numbers.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cacheblend.evaluation.experiments.base import Asked, Bench
from cacheblend.evaluation.experiments.timed import fitting, plan_of, shown
from cacheblend.trace import Mode, SegmentKind


def deviations(bench: Bench) -> Iterator[np.ndarray]:
    """One array (layers, tokens) a question: relative L2 distance of K and V, of every chunk after the first.

    What stands in front of them, and the first chunk unless a system prefix does, has nothing to deviate from.
    Questions with one chunk are left out.
    """
    asked = fitting(bench)
    for number, one in enumerate(asked):
        bench.step(number, len(asked), f"looking into question {number + 1} of {len(asked)}")
        matrix = _deviations(bench, one)
        if matrix is None:
            bench.left_out.append(f"{shown(one)} is left out: nothing stands before it.")
        else:
            yield matrix
    bench.step(len(asked), len(asked), "done")


def _deviations(bench: Bench, one: Asked) -> np.ndarray | None:
    """Of one question; what was recorded of it is let go here."""
    chunks = [s for s in plan_of(bench, one.question, one.hits).context if s.kind is SegmentKind.CHUNK]
    if len(chunks) < 2:
        return None
    seen = bench.engine.inspect(one.question, one.hits, max_new_tokens=bench.max_new_tokens, cancel=bench.cancel)
    return seen.kv_deviation[Mode.REUSE][:, chunks[1].start : chunks[-1].stop].copy()
