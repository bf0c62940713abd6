"""Timeline: where the time went, to scale, as measured; and the run as files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import gradio as gr
import plotly.graph_objects as go

from cacheblend.trace import COMPARED, Comparison
from ui import exports, notices
from ui.cards import Card
from ui.frame import Page
from ui.guard import guarded
from ui.inspecting import GONE
from ui.jobs import model_job
from ui.panes import reload, what_if
from visualizations.timeline import timeline_figure
from visualizations.ttft import ttft_figure

INTRO = (
    '<p class="lead">Every stretch of time of every mode, as measured; only what is outlined in dashes was predicted '
    "before the run. Drag across a lane to zoom in, double-click to come back. The trace opens in Perfetto and "
    "chrome://tracing, on your own machine.</p>"
)
ALL = "all"


def build(page: Page) -> None:
    """Add the tab; it is drawn when it is opened."""
    with gr.Tab("Timeline", id="timeline") as tab:
        gr.HTML(INTRO)
        with gr.Row(elem_classes="toolbar"):
            mode = gr.Radio(choices_of([Card(mode=mode) for mode in COMPARED]), value=ALL, label="Show")
            zoom = gr.CheckboxGroup(
                [("up to the first token", "first"), ("each mode on its own scale", "own")],
                value=["first"],
                label="Scale",
            )
        status = gr.HTML(elem_id="timeline-status", elem_classes="status")
        parts = gr.Plot(show_label=False, elem_id="ttft")
        lanes = gr.Plot(show_label=False, elem_id="lanes")
        with gr.Row(elem_classes="downloads"):
            trace = gr.DownloadButton("Download trace (Perfetto, JSON)", size="sm", elem_id="download-trace")
            prepare = gr.Button("Prepare the whole run (JSON)", size="sm", elem_id="prepare-run")
            whole = gr.DownloadButton("Download run (JSON)", size="sm", visible=False, elem_id="download-run")
        reload.build(page, tab)
        what_if.build(page)

    def on_open(run_id: str, chosen: str, scale: list[str]) -> tuple[Any, ...]:
        run = page.studio.run(run_id)
        if run is None:
            return notices.failed([GONE]), *[gr.skip()] * 4, gr.update(visible=False)
        shown = [Card(mode=trace.mode, policy=trace.policy) for trace in run.comparison.traces]
        chosen = chosen if chosen in [card.mode for card in shown] else ALL
        figures = ttft_figure(run.comparison), lanes_of(run.comparison, chosen, scale)
        offered = gr.update(choices=choices_of(shown), value=chosen)
        return "", offered, *figures, str(exports.perfetto(run.comparison)), gr.update(visible=False)

    def on_choice(run_id: str, chosen: str, scale: list[str]) -> Any:
        run = page.studio.run(run_id)
        return lanes_of(run.comparison, chosen, scale) if run else gr.skip()

    def on_prepare(run_id: str) -> Iterator[tuple[str, Any]]:
        for step in guarded(exports.whole_run(page.studio, run_id), exports.Step):
            yield step.status, gr.update(value=str(step.path), visible=True) if step.path else gr.skip()

    seen = [page.run, mode, zoom]
    quiet = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
    tab.select(on_open, seen, [status, mode, parts, lanes, trace, whole], **quiet)
    gr.on([mode.change, zoom.change], on_choice, seen, lanes, **quiet)
    model_job(prepare.click, on_prepare, [page.run], [status, whole], status=status)


def choices_of(columns: Sequence[Card]) -> list[tuple[str, str]]:
    """What can be shown of a run."""
    return [("All modes", ALL), *((card.title, card.mode.value) for card in columns)]


def lanes_of(comparison: Comparison, chosen: str, scale: list[str]) -> go.Figure:
    """The lanes of one mode, or of all."""
    traces = [trace for trace in comparison.traces if chosen in {ALL, trace.mode.value}]
    return timeline_figure(traces, until_first_token="first" in scale, own_axes="own" in scale)
