"""AttentionMap: one layer and head's attention in full, reuse and the mode looked into, and how far both are off."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gradio as gr
import numpy as np

from cacheblend.analysis import pool_matrix
from cacheblend.trace import AttentionWindow, Comparison, Inspection, Mode
from ui.components.codec import encode, encode_signed, top_of
from ui.components.prompt import integer, interval, prompt_payload
from ui.components.widget import Lookup, answer_request, make_widget
from visualizations import theme

OVERVIEW_CELLS = 160  # five panels of 160² and 4,000 tokens stay under 300 KB
WINDOW_CELLS = 192
SHOWN_SHARE = 0.95  # of the weights lie on the scale; sinks and diagonals, which every mode has, lie above it


def attention_map(lookup: Lookup, *, elem_id: str | None = None) -> gr.HTML:
    """Return the widget; its value is an `attention_payload`; another layer, head or zoom asks `lookup` for the run."""

    def window(request: object) -> dict[str, Any]:
        return answer_request(lookup, request, attention_window)

    return make_widget("attention_map", server_functions=[window], elem_id=elem_id)


def attention_payload(comparison: Comparison, *, run_id: str, layer: int | None = None) -> dict[str, Any] | None:
    """Return the widget's value: the whole prompt at one layer (the middle one there is), mean over heads.

    None for a run without attention maps.
    """
    inspection = comparison.inspection
    if inspection is None or not inspection.attention.layers:
        return None
    there = inspection.attention.layers
    chosen = there[len(there) // 2] if layer is None else layer
    size = len(comparison.tokens)
    return {
        "run": run_id,
        "layers": list(there),
        "heads": inspection.attention.num_heads,
        "labels": {mode.value: theme.MODE_LABELS[mode] for mode in inspection.modes},
        "palette": list(theme.SEQUENTIAL),
        "diverging": list(theme.DIVERGING),
        "prompt": prompt_payload(comparison),
        "window": _window(comparison, inspection, chosen, None, (0, size), (0, size), OVERVIEW_CELLS),
    }


def attention_window(comparison: Comparison, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rectangle a browser asks for, at most 192 × 192 cells a panel. ValueError for a bad request."""
    inspection = comparison.inspection
    if inspection is None:
        raise ValueError("attention was not recorded")
    there = inspection.attention.layers
    layer = integer(request, "layer", min(there), max(there))
    if layer not in there:
        raise ValueError(f"layer {layer} was not recorded")
    head = None
    if request.get("head") is not None:
        head = integer(request, "head", 0, inspection.attention.num_heads - 1)
    rows, cols = (interval(request, axis, len(comparison.tokens)) for axis in ("rows", "cols"))
    return _window(comparison, inspection, layer, head, rows, cols, WINDOW_CELLS)


def _window(
    comparison: Comparison,
    inspection: Inspection,
    layer: int,
    head: int | None,
    rows: tuple[int, int],
    cols: tuple[int, int],
    size: int,
) -> dict[str, Any]:
    cut = {
        mode: _fit(inspection.attention.window(mode, layer, head, rows=rows, cols=cols, size=size), size)
        for mode in inspection.modes
    }
    values = {mode: window.values for mode, window in cut.items()}
    full = values.get(Mode.FULL)
    differences = {m: v - full for m, v in values.items() if m is not Mode.FULL} if full is not None else {}
    top = top_of(*values.values(), share=SHOWN_SHARE)
    widest = top_of(*differences.values(), share=SHOWN_SHARE)
    one = next(iter(cut.values()))
    return {
        "layer": layer,
        "head": head,
        "row_edges": one.row_edges.tolist(),
        "col_edges": one.col_edges.tolist(),
        "is_pooled": one.is_pooled,
        "top": top,
        "difference_top": widest,
        "panels": {mode.value: encode(v, top) for mode, v in values.items()},
        "differences": {mode.value: encode_signed(v, widest) for mode, v in differences.items()},
    }


def _fit(window: AttentionWindow, size: int) -> AttentionWindow:
    """Pool a window that came larger than asked for, as a recorded map of fixed resolution may."""
    if max(window.values.shape) <= size:
        return window
    values, rows, cols = pool_matrix(np.asarray(window.values), size)
    return AttentionWindow(
        values=values, row_edges=window.row_edges[rows], col_edges=window.col_edges[cols], is_pooled=True
    )
