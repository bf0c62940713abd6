"""Figure 15 drawn: time to first token against the number of chunks, their length, and the batch size.

The paper's curves are rescaled, so that only their shape can be compared.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from cacheblend.evaluation.points import Point, Result
from cacheblend.trace import Mode
from visualizations import paper
from visualizations.experiments.lines import Curve, Look, Panel, mode_look, panels_figure, paper_curves

CHUNKS, LENGTH, BATCH = "number of chunks", "chunk length", "batch size"
PAPER_PANELS = {CHUNKS: "a", LENGTH: "b", BATCH: "c"}
PAPER_FULL, PAPER_BLEND = "Full KV recompute", "CacheBlend"
BEYOND = 2.0  # times what we measured: farther points of the paper would press ours into a corner
LOOKS: dict[str, Look] = {
    Mode.FULL: mode_look(Mode.FULL),
    Mode.REUSE: mode_look(Mode.REUSE, symbol="triangle-up"),
    Mode.BLEND: mode_look(Mode.BLEND, symbol="diamond"),
}


def draw(result: Result) -> go.Figure:
    """Three panels; in each, full, reuse and blend."""
    points = result.points
    said = {
        CHUNKS: (CHUNKS, "chunks", "TTFT, ms"),
        LENGTH: (LENGTH, "tokens of a chunk, mean", "TTFT, ms"),
        BATCH: ("batch size: questions one after another", "questions at once", "first token of the last, ms"),
    }
    panels = []
    for name, (title, x, y) in said.items():
        curves = rescaled(points, name)
        counts = {p.x for p in points if p.panel == name} | {place for curve in curves for place in curve.x}
        ticks = tuple(sorted(counts)) if name != LENGTH else ()
        panels.append(Panel(name=name, title=title, x=x, y=y, curves=curves, x_ticks=ticks))
    note = (
        "Caches are warm. Every mode takes a batch one after another; full could be batched in one forward, which this "
        "engine does not do. Paper (Mistral-7B) rescaled: its full at its first x is ours there."
    )
    return panels_figure(_title(points), points, panels, LOOKS, note=note)


def rescaled(points: Sequence[Point], panel: str) -> tuple[Curve, ...]:
    """The paper's curves of a panel in our milliseconds; none where full was not measured.

    Their full at its first x equals ours there, read between our points, or at the nearest of them. Of each curve at
    least two points are drawn.
    """
    ours = sorted((p.x, p.y) for p in points if (p.panel, p.series) == (panel, Mode.FULL))
    if not ours:
        return ()
    theirs = next(one for one in paper.curves("fig15") if one["panel"] == PAPER_PANELS[panel])["series"]
    first_x, first_y = theirs[PAPER_FULL][0]
    factor = float(np.interp(first_x, [x for x, _ in ours], [y for _, y in ours])) / first_y
    end = max(BEYOND * ours[-1][0], theirs[PAPER_FULL][1][0])
    return paper_curves(
        (f"{name}, rescaled", [(x, y * factor) for x, y in theirs[name] if x <= end])
        for name in (PAPER_FULL, PAPER_BLEND)
    )


def _title(points: Sequence[Point]) -> str:
    full = {(p.panel, p.x): p.y for p in points if p.series == Mode.FULL}
    chunks = sorted((p for p in points if p.series == Mode.BLEND and p.panel == CHUNKS), key=lambda p: p.x)
    if not chunks or any((p.panel, p.x) not in full for p in chunks):
        return "Time to first token against chunks, their length and batch size"
    gains = [full[p.panel, p.x] / p.y for p in chunks]
    if len(gains) == 1:
        return f"Blend's first token comes {gains[0]:.1f} × sooner than full's"
    return (
        f"Blend's first token comes {gains[0]:.1f} × sooner than full's with {_chunks(chunks[0].x)}, "
        f"{gains[-1]:.1f} × with {_chunks(chunks[-1].x)}"
    )


def _chunks(count: float) -> str:
    return "one chunk" if count == 1 else f"{count:g} chunks"
