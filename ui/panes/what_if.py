"""The what-if pane: the paper's Figure 10 with sliders, predicted for any device, context and price."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gradio as gr

from cacheblend.controller import PAPER_WORKLOAD
from cacheblend.loading import PRESETS
from ui import notices, what_if
from ui.frame import Page
from ui.guard import guarded, sentence
from ui.jobs import model_job, stop_button
from ui.reloading import Step
from ui.visitor import secret_of
from ui.what_if import HERE, PAPER

INTRO = (
    '<p class="lead">Nothing here is measured: all of it is predicted, from what computing costs and what a device '
    "delivers. On the left, how much a device lets you recompute for free (the paper’s Figure 10a; r0 is where the "
    "wait begins to grow); on the right, the cheapest device whose loading a given ratio hides (Figure 10b).</p>"
)
HERE_TOKENS, HERE_BANDWIDTH = 3072, 50  # where a small model on a CPU has something to weigh


def build(page: Page) -> None:
    """Lay the pane out; it is drawn when it is unfolded."""
    with gr.Accordion("What if? Ratio for a device, device for a ratio (predicted)", open=False) as pane:
        gr.HTML(INTRO)
        with gr.Row(elem_classes="toolbar"):
            whose = gr.Radio(
                [("the paper’s example", PAPER), ("this machine", HERE)], value=PAPER, label="Computing on"
            )
            measure = gr.Button("Measure this machine (a few seconds)", size="sm", elem_id="measure")
        status = gr.HTML(elem_id="what-if-status", elem_classes="status")
        stop_place = gr.Row(elem_classes="stop-row")
        with gr.Row(elem_classes="toolbar"):
            bandwidth = gr.Slider(5, 5000, value=1000, step=5, label="Device bandwidth (MB/s)")
            latency = gr.Slider(0, 10, value=0, step=0.1, label="Latency of a read (ms)")
            tokens = gr.Slider(256, 32_768, value=PAPER_WORKLOAD.context_tokens, step=8, label="Context (tokens)")
        with gr.Row(elem_classes="toolbar"):
            floor = gr.Slider(0, 100, value=15, step=1, label="Quality floor r* (%)")
            ratio = gr.Slider(0, 100, value=15, step=1, label="Ratio for the devices on the right (%)")
        with gr.Row(elem_classes="figures"):
            left = gr.Plot(show_label=False, elem_id="ratio-figure")
            right = gr.Plot(show_label=False, elem_id="devices-figure")
        prices = gr.Dataframe(
            [[device.name, device.price] for device in PRESETS],
            headers=["device", "price"],
            datatype=["str", "number"],
            type="array",
            column_count=2,
            static_columns=[0],
            interactive=True,
            label="Prices per GB and month, to edit: any currency, round figures to begin with",
            elem_id="prices",
        )
    form = [whose, bandwidth, latency, tokens, floor, ratio, prices]

    def draw(chosen: str, *values: Any) -> tuple[Any, ...]:
        try:
            return "", *what_if.figures(what_if.profile_of(page.studio, chosen), what_if.parse(*values))
        except ValueError as error:
            return notices.failed([sentence(error)]), gr.skip(), gr.skip()

    def on_measure(session_id: str | None, request: gr.Request) -> Iterator[tuple[Any, ...]]:
        session = page.studio.sessions.open(session_id, secret_of(request))
        for step in guarded(what_if.measure(page.studio, session), Step):
            done = "done" in step.status
            yield step.status, session.id, *((HERE, HERE_BANDWIDTH, HERE_TOKENS) if done else [gr.skip()] * 3)

    drawn = {"queue": False, "show_progress": "hidden", "api_visibility": "private", "trigger_mode": "always_last"}
    gr.on([pane.expand, *(field.change for field in form)], draw, form, [status, left, right], **drawn)
    job = model_job(
        measure.click, on_measure, [page.session], [status, page.session, whose, bandwidth, tokens], status=status
    )
    with stop_place:
        stop_button(page, [job], status)
