"""Inspect: what fusing did inside the model, layer by token, from a pass of its own that records and is never timed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gradio as gr

from cacheblend.policies import apart, picks_none
from cacheblend.trace import Comparison, Mode, Trace
from ui import inspecting, notices, words
from ui.cards import TITLES, Card
from ui.components.attention_map import attention_map, attention_payload
from ui.components.token_map import TokenQuantity, token_map, token_map_payload
from ui.components.token_text import token_text, token_text_payload
from ui.frame import Page
from ui.guard import guarded
from ui.jobs import model_job, stop_button
from ui.turns import polite
from visualizations.agreement import rank_correlation_figure, topk_overlap_figure
from visualizations.deviation import deviation_cdf_figure, layer_profile_figure

INTRO = (
    '<p class="lead">The question was answered with the clock running and nothing recorded. Here the same prompt is '
    "run once more with everything recorded: how far each cached token's KV is from full recompute, which tokens "
    "are recomputed, and where attention goes. Hover or click a token to find it in every view.</p>"
)


def build(page: Page) -> None:
    """Add the tab; it is drawn when it is opened."""

    def lookup(run_id: str) -> Comparison | None:
        run = page.studio.run(run_id)
        return polite(run.comparison, page.studio.turn) if run else None

    with gr.Tab("Inspect", id="inspect") as tab:
        gr.HTML(INTRO)
        column = gr.Radio([(TITLES[Mode.BLEND], Mode.BLEND.value)], label="Look into", visible=False, elem_id="column")
        status = gr.HTML(elem_id="inspect-status", elem_classes="status")
        again = gr.Button("Look inside this run", size="sm", visible=False, elem_id="look-inside")
        stop_place = gr.Row(elem_classes="stop-row")
        seen = gr.HTML(elem_id="inspected")
        views: list[gr.HTML | gr.Plot] = [seen, token_text(lookup, elem_id="token-text")]
        views += [token_map(lookup, elem_id=f"map-{what.name.lower().replace('_', '-')}") for what in TokenQuantity]
        views += [attention_map(lookup, elem_id="attention-map")]
        with gr.Row(elem_classes="figures"):
            views += [gr.Plot(show_label=False, elem_id="cdf"), gr.Plot(show_label=False, elem_id="profile")]
        with gr.Row(elem_classes="figures"):
            views += [gr.Plot(show_label=False, elem_id="ranks"), gr.Plot(show_label=False, elem_id="overlap")]
        drawn, wanted = gr.State(None), gr.State(None)
    blank = [gr.skip()] * len(views)

    def on_open(run_id: str, drawn_id: str | None) -> tuple[Any, ...]:
        comparison = lookup(run_id)
        if comparison is None:
            hidden = gr.update(visible=False)
            return notices.failed([inspecting.GONE]), hidden, hidden, gr.skip(), gr.skip(), *blank
        modes, inspection = inspecting.choices(comparison), comparison.inspection
        shown = inspection.fused if inspection else modes[0]
        again, wanted_now = gr.update(visible=inspection is None), None if inspection else (run_id, shown.value)
        views = blank if run_id == drawn_id else drawings(comparison, run_id)
        return "", choice(comparison, modes, shown), again, run_id, wanted_now, *views

    def on_wanted(session_id: str | None, run_id: str, column: str) -> Iterator[tuple[Any, ...]]:
        def steps() -> Iterator[inspecting.Step]:
            yield from inspecting.look(page.studio, session_id, run_id, Mode(column))

        for step in guarded(steps(), inspecting.Step):
            shown = drawings(step.comparison, run_id) if step.comparison else blank
            yield step.status, gr.update(visible=False) if step.comparison else gr.skip(), *shown

    def on_first(session_id: str | None, wish: tuple[str, str] | None) -> Iterator[tuple[Any, ...]]:
        if wish is not None:
            yield from on_wanted(session_id, *wish)
        else:
            yield "", gr.skip(), *blank

    opened = [status, column, again, drawn, wanted, *views]
    tab.select(
        on_open, [page.run, drawn], opened, concurrency_limit=None, show_progress="hidden", api_visibility="private"
    )
    recorded = [status, again, *views]
    jobs = [model_job(wanted.change, on_first, [page.session, wanted], recorded, status=status)]
    jobs += [
        model_job(trigger, on_wanted, [page.session, page.run, column], recorded, status=status)
        for trigger in (again.click, column.input)
    ]
    with stop_place:
        stop_button(page, jobs, status)


def choice(comparison: Comparison, modes: list[Mode], shown: Mode) -> Any:
    """The columns that can be looked into, if there is anything to choose."""
    titles = [(_title(comparison.trace(mode), mode), mode.value) for mode in modes]
    return gr.update(choices=titles, value=shown.value, visible=len(modes) > 1)


def _title(trace: Trace | None, mode: Mode) -> str:
    return Card(mode=mode, policy=trace.policy if trace else "").title


def inspected(comparison: Comparison) -> str:
    """Which column the views below are of, and by what policy and recipe it went."""
    inspection = comparison.inspection
    trace = comparison.trace(inspection.fused) if inspection else None
    if trace is None:
        return ""
    how, made = (words.text(part) for part in apart(trace.policy))
    title = words.text(_title(trace, trace.mode))
    chosen = "no token recomputed" if picks_none(trace.policy) else f"tokens chosen by {how}"
    return (
        f'<p class="inspected mode-{trace.mode}"><b>{title}</b>: {chosen}, chunks made {made}. '
        "Full reuse is on the same chunk caches.</p>"
    )


def drawings(comparison: Comparison, run_id: str) -> list[Any]:
    """The tab's views, in order; each says for itself that there is nothing to show yet."""
    inspection, context = comparison.inspection, comparison.context_tokens
    return [
        inspected(comparison),
        token_text_payload(comparison, run_id=run_id),
        *(token_map_payload(comparison, what, run_id=run_id) for what in TokenQuantity),
        attention_payload(comparison, run_id=run_id),
        deviation_cdf_figure(inspection, Mode.REUSE, context_tokens=context),
        layer_profile_figure(inspection, context_tokens=context),
        rank_correlation_figure(inspection, context_tokens=context),
        topk_overlap_figure(inspection, context_tokens=context),
    ]
