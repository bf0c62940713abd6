"""The question pane: the question, the questions of the chosen sample, and the settings of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import gradio as gr
from gradio.components import Component

from cacheblend.trace import COMPARED, Deviation, Selector
from ui import samples_list, settings
from ui.cards import TITLES
from ui.frame import Page
from ui.panes.documents import DocumentsPane
from ui.pickable import pickable
from ui.settings import DEVIATIONS, MAX_NEW_TOKENS, MAX_QUESTION, MAX_TOP_K, ORDERINGS, SELECTORS


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionPane:
    """form: the inputs in the order of `settings.parse`."""

    question: gr.Textbox
    ask: gr.Button
    status: gr.HTML
    stop_place: gr.Row
    form: tuple[Component, ...]


def build(page: Page, documents: DocumentsPane) -> QuestionPane:
    """Lay the pane out; picking a sample fills in its first question."""
    gr.HTML('<h2 class="step"><i>2</i>Question</h2>')
    question = gr.Textbox(
        label="Your question",
        placeholder="Ask something the documents answer together",
        lines=1,
        max_lines=5,
        max_length=MAX_QUESTION,
        elem_id="question",
    )
    sample = gr.State(None)
    ask = gr.Button("Ask in every mode", variant="primary", elem_id="ask")
    status = gr.HTML(elem_id="ask-status", elem_classes="status")
    stop_place = gr.Row(elem_classes="stop-row")
    suggestions = pickable(elem_id="suggestions")
    form = _settings()

    def on_sample(event: gr.EventData) -> tuple[str, str, str | None, str]:
        chosen = page.studio.samples.get(str(event.value))
        first = chosen.questions[0].question if chosen and chosen.questions else ""
        samples = samples_list.render_samples(page.studio.samples.values(), chosen.slug if chosen else None)
        return first, samples_list.render_questions(chosen), chosen.slug if chosen else None, samples

    def on_suggestion(slug: str | None, event: gr.EventData) -> str:
        chosen = page.studio.samples.get(slug or "")
        number = str(event.value)
        questions = chosen.questions if chosen else ()
        known = number.isdecimal() and int(number) < len(questions)
        return questions[int(number)].question if known else gr.skip()

    documents.samples.pick(
        on_sample, None, [question, suggestions, sample, documents.samples],
        queue=False, show_progress="hidden", api_visibility="private",
    )  # fmt: skip
    suggestions.pick(on_suggestion, sample, question, queue=False, show_progress="hidden", api_visibility="private")
    return QuestionPane(question=question, ask=ask, status=status, stop_place=stop_place, form=form)


def _settings() -> tuple[Component, ...]:
    """The inputs of `settings.parse`, in its order."""
    default = settings.Settings()
    with gr.Accordion("Settings", open=False, elem_id="settings"):
        modes = gr.CheckboxGroup(
            [(TITLES[m], m.value) for m in COMPARED], value=[m.value for m in COMPARED], label="Modes"
        )
        ratio = gr.Slider(
            0,
            100,
            value=100 * default.ratio,
            step=1,
            label="Recompute ratio (%)",
            info="CacheBlend: share of context tokens",
        )
        selector = gr.Radio(_choices(SELECTORS), value=Selector.SINGLE.value, label="Tokens are chosen")
        deviation = gr.Radio(_choices(DEVIATIONS), value=Deviation.VALUE.value, label="Deviation of the cached")
        top_k = gr.Slider(1, MAX_TOP_K, value=default.top_k, step=1, label="Chunks to retrieve")
        order = gr.Radio(_choices(ORDERINGS), value=default.ordering.value, label="Order of chunks")
        seed = gr.Number(default.seed, precision=0, minimum=0, label="Seed of the shuffle", visible=False)
        length = gr.Slider(1, MAX_NEW_TOKENS, value=default.max_new_tokens, step=1, label="Answer, at most (tokens)")
        order.change(
            fn=None, js="(order) => ({ visible: order === 'shuffled', __type__: 'update' })",
            inputs=order, outputs=seed, api_visibility="private",
        )  # fmt: skip
    return modes, ratio, selector, deviation, top_k, order, seed, length


def _choices(named: Mapping[str, StrEnum]) -> list[tuple[str, str]]:
    return [(label, value.value) for label, value in named.items()]
