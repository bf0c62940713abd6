"""Compare: documents and a question on the left, three columns of answers on the right."""

from __future__ import annotations

import gradio as gr

from ui.frame import Page
from ui.panes import documents, question, results


def build(page: Page) -> None:
    """Add the tab."""
    with gr.Tab("Compare", id="compare"), gr.Row(elem_id="compare"):
        with gr.Column(scale=3, min_width=320, elem_id="inputs"):
            shown = documents.build(page)
            asked = question.build(page, shown)
        with gr.Column(scale=8, min_width=320, elem_id="results"):
            results.build(page, asked)
