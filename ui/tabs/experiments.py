"""Experiments: the paper's figures, and ours, measured on the visitor's own documents and questions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gradio as gr
from gradio.components import Component

from cacheblend.evaluation.catalogue import CATALOGUE
from ui import experimenting, header, performed
from ui.experiment_view import render_catalogue
from ui.frame import Page
from ui.guard import guarded
from ui.jobs import model_job, stop_button
from ui.panes import experiment_result
from ui.panes.experiment_result import ResultPane
from ui.pickable import pickable
from ui.settings import MAX_QUESTION, MAX_TOP_K

INTRO = (
    '<p class="lead">Every figure of the paper, measured again on your own documents and questions, with the paper’s '
    "curve in grey behind yours; and the policy frontier, which holds every way to choose tokens against the others. "
    "Results are kept while you are here, and nobody else sees them.</p>"
)
FIRST = next((about.name for about in CATALOGUE if about.name == "frontier"), CATALOGUE[0].name if CATALOGUE else "")
REFOCUS = "() => document.querySelector('#experiment-list [aria-pressed=true]')?.focus()"
QUIET: dict[str, Any] = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}


def build(page: Page) -> None:
    """Add the tab; it is drawn when it is opened."""
    with gr.Tab("Experiments", id="experiments") as tab:
        gr.HTML(INTRO)
        with gr.Row(elem_id="experiments"):
            with gr.Column(scale=3, min_width=320, elem_id="experiment-form"):
                gr.HTML('<h2 class="step"><i>1</i>Experiment</h2>')
                catalogue, chosen = pickable(render_catalogue(FIRST), elem_id="experiment-list"), gr.State(FIRST)
                questions, *settings = _form()
                run = gr.Button("Run the experiment", variant="primary", elem_id="run-experiment")
                status = gr.HTML(elem_id="experiment-status", elem_classes="status")
                stop_place = gr.Row(elem_classes="stop-row")
            with gr.Column(scale=8, min_width=320, elem_id="experiment-result"):
                pane = experiment_result.build(page)

    def on_pick(event: gr.EventData) -> tuple[str, str]:
        name = str(event.value)
        return render_catalogue(name), name

    def on_run(session_id: str | None, *values: Any) -> Iterator[tuple[Any, ...]]:
        session = page.studio.sessions.find(session_id)

        def steps() -> Iterator[experimenting.Step]:
            yield from experimenting.run(page.studio, session, experimenting.parse(*values))

        for step in guarded(steps(), experimenting.Step):
            shown = pane.show(session, step.performed.id) if step.performed else pane.nothing
            yield step.status, header.render(page.studio), *shown

    catalogue.pick(on_pick, None, [catalogue, chosen], **QUIET).then(fn=None, js=REFOCUS, api_visibility="private")
    with tab:  # beside the tabs its state would count as one of them, and shift those behind it
        _on_open(page, tab, questions, pane)
    form = [page.session, chosen, questions, *settings]
    job = model_job(run.click, on_run, form, [status, page.header, *pane.outputs], status=status)
    with stop_place:
        stop_button(page, [job], status)


def _form() -> tuple[Component, ...]:
    """The inputs of `experimenting.parse` after the name, in its order."""
    gr.HTML('<h2 class="step"><i>2</i>Questions</h2>')
    questions = gr.Textbox(
        label=f"One a line, {experimenting.MAX_QUESTIONS} at most",
        info="More questions: narrower intervals, and a longer wait",
        placeholder="First choose documents in Compare, then write what to ask them",
        lines=4,
        max_lines=10,
        max_length=MAX_QUESTION * experimenting.MAX_QUESTIONS,
        elem_id="experiment-questions",
    )
    chunks = gr.Slider(1, MAX_TOP_K, value=6, step=1, label="Chunks in front of each question")
    ratio = gr.Slider(0, 100, value=15, step=1, label="Recompute ratio (%)", info="Where the figure does not vary it")
    return questions, chunks, ratio


def _on_open(page: Page, tab: gr.Tab, questions: Component, pane: ResultPane) -> None:
    """Offer the visitor's questions unless they wrote some; draw what is to be seen unless it is drawn."""
    offered = gr.State("")

    def on_open(
        session_id: str | None, run_id: str, written: str | None, before: str, drawn: str | None
    ) -> tuple[Any, ...]:
        session = page.studio.sessions.find(session_id)
        suggested = experimenting.suggested(page.studio, session, run_id)
        is_theirs = (written or "").strip() not in {"", before.strip()}
        offer = (gr.skip(), gr.skip()) if is_theirs else (suggested, suggested)
        first = next(iter(performed.listed(session)), None)
        shown = pane.nothing if drawn or first is None else pane.show(session, first.id)
        return *offer, *shown

    inputs = [page.session, page.run, questions, offered, pane.drawn]
    tab.select(on_open, inputs, [questions, offered, *pane.outputs], **QUIET)
