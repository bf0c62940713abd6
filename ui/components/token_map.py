"""TokenMap: layer × token matrices of one quantity, stacked under one token axis and one colour scale."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import gradio as gr
import numpy as np

from cacheblend.analysis import pool_columns
from cacheblend.policies import in_short, picks_none
from cacheblend.trace import Comparison, Mode
from ui.components.codec import encode, top_of
from ui.components.prompt import integer, prompt_payload
from ui.components.widget import Lookup, answer_request, make_widget
from visualizations import theme

MAX_COLUMNS = 2048
SHOWN_SHARE = 0.99  # of the deviations lie on the scale
MAX_CELLS = 150_000  # in all panels: 200 KB in base64, which leaves room for the tokens in a 300 KB payload


class TokenQuantity(StrEnum):
    """What a token map shows."""

    KV_DEVIATION = "kv deviation"
    ATTENTION_DEVIATION = "attention deviation"
    SELECTED = "selected"


TITLES = {
    TokenQuantity.KV_DEVIATION: ("KV deviation from full recompute", "relative L2 distance"),
    TokenQuantity.ATTENTION_DEVIATION: (
        "Attention deviation from full recompute",
        "L2 distance, question rows, mean over heads",
    ),
}
SELECTED_UNIT = "share of a cell's tokens computed"


def token_map(lookup: Lookup, *, elem_id: str | None = None) -> gr.HTML:
    """Return the widget; its value is a `token_map_payload`, and zooming asks `lookup` for the run in detail."""

    def detail(request: object) -> dict[str, Any]:
        return answer_request(lookup, request, token_map_detail)

    return make_widget("token_map", server_functions=[detail], elem_id=elem_id)


def token_map_payload(comparison: Comparison, what: TokenQuantity, *, run_id: str) -> dict[str, Any] | None:
    """Return the widget's value, None for a run that was not inspected. Pooled where single tokens would not fit."""
    if comparison.inspection is None:
        return None
    is_share = what is TokenQuantity.SELECTED
    title, unit = (_selected_title(comparison), SELECTED_UNIT) if is_share else TITLES[what]
    return {
        "run": run_id,
        "what": what.value,
        "title": title,
        "unit": unit,
        "kind": "share" if is_share else "sequential",
        "pooling": "mean" if is_share else "maximum",
        "palette": [theme.REUSED, theme.RECOMPUTED] if is_share else list(theme.SEQUENTIAL),
        "top": _top(comparison, what),
        "layers": len(comparison.inspection.selected),
        "prompt": prompt_payload(comparison),
        **_cells(comparison, what, 0, len(comparison.tokens)),
    }


def _selected_title(comparison: Comparison) -> str:
    """Name the mode that was looked into and, where its trace is there, the policy that chose."""
    if comparison.inspection is None:
        return ""
    fused = comparison.inspection.fused
    trace = comparison.trace(fused)
    chosen = f", chosen by {in_short(trace.policy).partition(',')[0]}" if trace and not picks_none(trace.policy) else ""
    return f"Tokens each layer of {theme.MODE_LABELS[fused]} computes{chosen}"


def token_map_detail(comparison: Comparison, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return {"edges", "panels"} of tokens start…stop-1, on the overview's scale. ValueError for a bad request."""
    if request.get("what") not in list(TokenQuantity) or comparison.inspection is None:
        raise ValueError("this quantity was not recorded")
    tokens = len(comparison.tokens)
    start = integer(request, "start", 0, tokens - 1)
    stop = integer(request, "stop", start + 1, tokens)
    return _cells(comparison, TokenQuantity(request["what"]), start, stop)


def _matrices(comparison: Comparison, what: TokenQuantity) -> dict[str, np.ndarray]:
    inspection = comparison.inspection
    if inspection is None:
        return {}
    if what is TokenQuantity.SELECTED:
        return {theme.MODE_LABELS[inspection.fused]: inspection.selected}
    by_mode = inspection.kv_deviation if what is TokenQuantity.KV_DEVIATION else inspection.attention_deviation
    return {theme.MODE_LABELS[mode]: by_mode[mode] for mode in Mode if mode in by_mode}


def _top(comparison: Comparison, what: TokenQuantity) -> float:
    return 1.0 if what is TokenQuantity.SELECTED else top_of(*_matrices(comparison, what).values(), share=SHOWN_SHARE)


def _cells(comparison: Comparison, what: TokenQuantity, start: int, stop: int) -> dict[str, Any]:
    matrices = _matrices(comparison, what)
    how = "mean" if what is TokenQuantity.SELECTED else "max"
    rows = sum(len(m) for m in matrices.values())
    columns = max(1, min(MAX_COLUMNS, MAX_CELLS // max(1, rows)))
    top, edges, panels = _top(comparison, what), np.array([0, stop - start]), []
    for label, matrix in matrices.items():
        pooled, edges = pool_columns(matrix[:, start:stop], columns, how)
        panels.append({"label": label, "data": encode(pooled, top)})
    return {"edges": (edges + start).tolist(), "panels": panels}
