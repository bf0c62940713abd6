"""The question pane: the question, the questions of the chosen sample, and the settings of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import gradio as gr
from gradio.components import Component

from cacheblend.policies import POLICY, RECIPE
from cacheblend.trace import COMPARED, Deviation, Mode, Selector
from ui import samples_list, settings
from ui.cards import TITLES
from ui.frame import Page
from ui.panes.documents import DocumentsPane
from ui.pickable import pickable
from ui.settings import (
    CHOICES,
    DEVIATIONS,
    MAX_NEW_TOKENS,
    MAX_QUESTION,
    MAX_TOP_K,
    ORDERINGS,
    PRESETS,
    SELECTORS,
    Preset,
)

PRIME_TOLD = (
    "PrimeBlend is our own combination, not the paper’s: chunk caches made behind a text, recomputed where the "
    "question looks, and the change carried on."
)


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
            [(TITLES[m], m.value) for m in Mode],
            value=[m.value for m in COMPARED],
            label="Modes",
            info=PRIME_TOLD,
            elem_id="modes",
        )
        ratio = gr.Slider(
            0,
            100,
            value=100 * default.ratio,
            step=1,
            label="Recompute ratio (%)",
            info="CacheBlend and PrimeBlend: share of context tokens",
        )
        blend = _blend(default)
        top_k = gr.Slider(1, MAX_TOP_K, value=default.top_k, step=1, label="Chunks to retrieve")
        order = gr.Radio(_choices(ORDERINGS), value=default.ordering.value, label="Order of chunks")
        seed = gr.Number(default.seed, precision=0, minimum=0, label="Seed of the shuffle", visible=False)
        length = gr.Slider(1, MAX_NEW_TOKENS, value=default.max_new_tokens, step=1, label="Answer, at most (tokens)")
        order.change(
            fn=None, js="(order) => ({ visible: order === 'shuffled', __type__: 'update' })",
            inputs=order, outputs=seed, api_visibility="private",
        )  # fmt: skip
    return modes, ratio, *blend, top_k, order, seed, length


def _blend(default: settings.Settings) -> tuple[Component, ...]:
    """What stands in the column of “blend”: the paper's method, or a choice of one's own."""
    preset = gr.Radio(_choices(PRESETS), value=Preset.PAPER.value, label="In CacheBlend’s column", elem_id="preset")
    with gr.Column(visible=False, elem_id="own-choice") as own:
        policy = gr.Dropdown(
            [(about.label, about.name) for about in CHOICES],
            value=default.policy,
            label="Tokens to recompute",
            info=POLICY[default.policy].explained,
            elem_id="policy",
        )
        selector = gr.Radio(_choices(SELECTORS), value=Selector.SINGLE.value, label="Tokens are chosen")
        deviation = gr.Radio(_choices(DEVIATIONS), value=Deviation.VALUE.value, label="Deviation of the cached")
        recipe = gr.Dropdown(
            [(_titled(about.title, about.source), recipe.value) for recipe, about in RECIPE.items()],
            value=default.recipe.value,
            label="In front of a chunk when its cache is made",
            info=RECIPE[default.recipe].explained,
            elem_id="recipe",
        )
    told = {about.name: [about.explained, about.uses_selector, about.uses_deviation] for about in CHOICES}
    made = {recipe.value: about.explained for recipe, about in RECIPE.items()}
    update = "__type__: 'update'"
    quiet: dict[str, Any] = {"fn": None, "api_visibility": "private"}
    preset.change(
        js=f"(preset) => ({{ visible: preset === '{Preset.OWN}', {update} }})", inputs=preset, outputs=own, **quiet
    )
    policy.change(
        js=f"""(policy) => {{
            const [info, selector, deviation] = {json.dumps(told)}[policy];
            return [{{ info, {update} }}, {{ visible: selector, {update} }}, {{ visible: deviation, {update} }}];
        }}""",
        inputs=policy,
        outputs=[policy, selector, deviation],
        **quiet,
    )
    recipe.change(
        js=f"(recipe) => ({{ info: {json.dumps(made)}[recipe], {update} }})", inputs=recipe, outputs=recipe, **quiet
    )
    return preset, policy, selector, deviation, recipe


def _titled(title: str, source: str) -> str:
    return f"{title} ({source})" if source else f"{title} (ours)"


def _choices(named: Mapping[str, StrEnum]) -> list[tuple[str, str]]:
    return [(label, value.value) for label, value in named.items()]
