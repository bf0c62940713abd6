"""TokenText: the prompt itself, token by token, coloured by chunk, deviation or selection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gradio as gr
import numpy as np

from cacheblend.trace import Comparison, Inspection, Mode
from ui.components.codec import encode, top_of
from ui.components.prompt import integer, prompt_payload
from ui.components.token_map import SHOWN_SHARE
from ui.components.widget import Lookup, answer_request, make_widget
from visualizations import theme


def token_text(lookup: Lookup, *, elem_id: str | None = None) -> gr.HTML:
    """Return the widget; its value is a `token_text_payload`, and choosing a layer asks `lookup` for the run."""

    def layer(request: object) -> dict[str, Any]:
        return answer_request(lookup, request, token_text_layer)

    return make_widget("token_text", server_functions=[layer], elem_id=elem_id)


def token_text_payload(comparison: Comparison, *, run_id: str) -> dict[str, Any]:
    """Return the widget's value; without an inspection the text is coloured by chunk alone.

    Values are means over the layers after the first, whose KV cannot deviate and which computes every token.
    """
    inspection = comparison.inspection
    return {
        "run": run_id,
        "prompt": prompt_payload(comparison),
        "layers": 0 if inspection is None else len(inspection.selected),
        "colour": theme.RECOMPUTED,
        "colourings": [] if inspection is None else _colourings(inspection, None),
    }


def token_text_layer(comparison: Comparison, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return {"colourings"} at one layer. ValueError for a bad request."""
    inspection = comparison.inspection
    if inspection is None:
        raise ValueError("this run was not inspected")
    return {"colourings": _colourings(inspection, integer(request, "layer", 0, len(inspection.selected) - 1))}


def _colourings(inspection: Inspection, layer: int | None) -> list[dict[str, Any]]:
    found = []
    for kind, by_mode in (("KV", inspection.kv_deviation), ("attention", inspection.attention_deviation)):
        cut = {mode: _at(by_mode[mode], layer) for mode in Mode if mode in by_mode}
        top = top_of(*cut.values(), share=SHOWN_SHARE)  # one scale for the modes of one quantity
        names = {mode: f"{kind} deviation, {theme.MODE_LABELS[mode]}" for mode in cut}
        found += [{"label": names[m], "kind": "sequential", "top": top, "data": encode(v, top)} for m, v in cut.items()]
    share = _at(inspection.selected, layer)
    label = f"computed by {theme.MODE_LABELS[inspection.fused]} (share of layers)"
    return [*found, {"label": label, "kind": "share", "top": 1.0, "data": encode(share, 1.0)}]


def _at(matrix: np.ndarray, layer: int | None) -> np.ndarray:
    if layer is not None:
        return matrix[layer].astype(np.float32)
    return matrix[min(1, len(matrix) - 1) :].mean(axis=0, dtype=np.float32)
