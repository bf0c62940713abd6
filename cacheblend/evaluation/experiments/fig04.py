"""Figure 4: attention matrices of one question; what full reuse misses is what chunks would have read in each other.

Knows nothing of pictures.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from cacheblend.config import BlendConfig
from cacheblend.evaluation.experiments.base import Bench
from cacheblend.evaluation.experiments.timed import fitting, plan_of
from cacheblend.evaluation.points import Point
from cacheblend.trace import COMPARED, AttentionMaps, Mode, Segment, SegmentKind

CELLS = 48  # along each side
ROW_CELLS = 16  # of a chunk, where its attention is summed: so many blocks of rows are in memory one after another
BORDERS, ACROSS = "segments", "between chunks"


def run(bench: Bench) -> list[Point]:
    """One panel a mode: x the token that is attended to, y the token that attends, z the mean weight of the cell.

    Panel segments: x where each begins, y where it ends. Panel between chunks: y the share of attention, of the
    chunks after the first, that goes to other chunks; x the layer, counted from 1.
    """
    asked = fitting(bench, 1)
    if not asked:
        return []
    one, done = asked[0], 0
    plan = plan_of(bench, one.question, one.hits)

    def report(passes: int, total: int) -> None:
        bench.step(passes, total, "looking inside")

    seen = bench.engine.inspect(
        one.question,
        one.hits,
        blend=BlendConfig(ratio=bench.ratio),
        max_new_tokens=bench.max_new_tokens,
        progress=report,
        cancel=bench.cancel,
    )
    layer = bench.engine.model.num_layers // 2
    points: list[Point] = []
    for mode in COMPARED:
        bench.step(done, len(COMPARED), f"attention of {mode}")
        whole = (0, plan.num_tokens)
        window = seen.attention.window(mode, layer, None, rows=whole, cols=whole, size=CELLS)
        points += [
            Point(panel=mode, series=mode, x=float(col), y=float(row), z=float(window.values[i, j]))
            for (i, row), (j, col) in product(enumerate(window.row_edges[:-1]), enumerate(window.col_edges[:-1]))
            if np.isfinite(window.values[i, j])
        ]
        across = share_across(seen.attention, mode, layer, plan.segments)
        if across is not None:
            points.append(Point(panel=ACROSS, series=mode, x=layer + 1.0, y=across))
        done += 1
    bench.step(done, len(COMPARED), "done")
    names = {SegmentKind.PREFIX: "instruction", SegmentKind.SUFFIX: "question"}
    return points + [
        Point(
            panel=BORDERS,
            series=names.get(segment.kind, "chunk"),
            x=float(segment.start),
            y=float(segment.stop),
            label=f"layer {layer + 1} of {bench.engine.model.num_layers}",
        )
        for segment in plan.segments
    ]


def share_across(maps: AttentionMaps, mode: Mode, layer: int, segments: Sequence[Segment]) -> float | None:
    """Mean over the tokens of chunks after the first of the attention that goes to chunks in front of their own."""
    chunks = [segment for segment in segments if segment.kind is SegmentKind.CHUNK]
    sums, tokens = 0.0, 0
    for chunk in chunks[1:]:
        window = maps.window(
            mode, layer, None, rows=(chunk.start, chunk.stop), cols=(chunks[0].start, chunk.start), size=ROW_CELLS
        )
        sums += float(np.diff(window.row_edges) @ window.values @ np.diff(window.col_edges))
        tokens += chunk.num_tokens
    return sums / tokens if tokens else None
