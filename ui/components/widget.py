"""One way to make a widget: static files read at import, a payload as value, guarded calls back from the browser."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gradio as gr

from cacheblend.trace import Comparison

STATIC = Path(__file__).with_name("static")
SHARED = ("controls", "codes", "canvas", "link")  # what all widgets use, run in the function scope of each


def _read(file: str) -> str:
    return (STATIC / file).read_text(encoding="utf-8")


SHARED_JS, SHARED_CSS = "\n".join(_read(f"{part}.js") for part in SHARED), _read("shared.css")

Lookup = Callable[[str], Comparison | None]  # a run's unguessable id → its comparison, None when it is gone
Answer = Callable[[Comparison, Mapping[str, Any]], dict[str, Any]]


def make_widget(name: str, *, server_functions: list[Callable[[Any], dict[str, Any]]], elem_id: str | None) -> gr.HTML:
    """Return the gr.HTML whose script and style are static/<name>.js and .css after the shared ones.

    A plain gr.HTML rather than a subclass: Gradio writes a .pyi file beside the source of every subclass.
    """
    return gr.HTML(
        value=None,
        html_template='<div class="cb-widget"></div>',
        css_template=SHARED_CSS + _read(f"{name}.css"),
        js_on_load=SHARED_JS + _read(f"{name}.js"),
        apply_default_css=False,
        server_functions=server_functions,
        elem_id=elem_id,
        elem_classes=["cb-host"],
    )


def answer_request(lookup: Lookup, request: object, answer: Answer) -> dict[str, Any]:
    """Find the run a browser asks about and answer it, or return {"error": one sentence}. Nothing in it is trusted."""
    if not isinstance(request, dict) or not isinstance(request.get("run"), str):
        return {"error": "This request names no run."}
    comparison = lookup(request["run"])
    if comparison is None:
        return {"error": "This run is no longer in memory; run the question again to zoom into it."}
    try:
        return answer(comparison, request)
    except ValueError as error:
        return {"error": f"This part cannot be shown: {error}."}
