"""The reload pane: how the caches come in, a button that runs the question on screen that way, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gradio as gr
from gradio.components import Component

from cacheblend.loading import LOSSLESS, LoadOrder
from cacheblend.meeting import stretch_of
from cacheblend.trace import Lane, Mode, Trace
from ui import devices, reloaded, reloading
from ui.frame import Page
from ui.guard import guarded
from ui.jobs import model_job, stop_button
from ui.loading import codec_names
from ui.reloading import AUTO, TARGET
from ui.sessions import Run
from visualizations.fronts import fronts_figure
from visualizations.timeline import timeline_figure

INTRO = (
    '<h2 class="section">How the caches come in</h2><p class="lead">Put a slow device between the caches and the model '
    "and see whether computing hides it. The device is emulated by holding back real reads, so that the overlap is "
    "really measured; what the controller predicted is outlined beside it.</p>"
)

PER_CHUNK = ("a level for each chunk, against a target", TARGET)


def build(page: Page, tab: gr.Tab) -> None:
    """Lay the pane out; it is drawn when the tab is opened."""
    gr.HTML(INTRO)
    note = gr.HTML(elem_id="reload-note")
    form, codec = _form()
    again = gr.Button("Run again with these", variant="primary", elem_id="reload")
    status = gr.HTML(elem_id="reload-status", elem_classes="status")
    stop_place = gr.Row(elem_classes="stop-row")
    facts = gr.HTML(elem_id="reload-facts")
    lanes = gr.Plot(show_label=False, elem_id="reload-lanes", visible=False)
    fronts = gr.Plot(show_label=False, elem_id="reload-fronts", visible=False)
    result = [facts, lanes, fronts]

    def on_open(run_id: str) -> tuple[Any, ...]:
        run = page.studio.run(run_id)
        refusal = reloading.why_not(run)
        said = f'<p class="quiet empty">{refusal}</p>' if refusal else ""
        names = codec_names() if page.studio.loaded else [LOSSLESS]
        return said, gr.update(interactive=not refusal), gr.update(choices=[*names, PER_CHUNK]), *drawings(run)

    def on_again(session_id: str | None, run_id: str, *values: Any) -> Iterator[tuple[Any, ...]]:
        def steps() -> Iterator[reloading.Step]:
            yield from reloading.reload(page.studio, session_id, run_id, reloading.parse(*values))

        for step in guarded(steps(), reloading.Step):
            drawn = drawings(page.studio.run(run_id)) if step.reloaded else [gr.skip()] * len(result)
            yield step.status, *drawn

    quiet = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
    tab.select(on_open, page.run, [note, again, codec, *result], **quiet)
    job = model_job(again.click, on_again, [page.session, page.run, *form], [status, *result], status=status)
    with stop_place:
        stop_button(page, [job], status)


def drawings(run: Run | None) -> tuple[Any, ...]:
    """The result's parts: words, lanes and, with Cake, the two fronts; hidden as long as there is none."""
    made = run.reloaded if run else None
    if run is None or made is None:
        return "", gr.update(visible=False), gr.update(visible=False)
    words = reloaded.render(made, run.comparison.trace(Mode.BLEND))
    lanes = gr.update(value=timeline_figure([made.trace], until_first_token=True), visible=True)
    return words, lanes, _fronts(made.trace, run.comparison.context_tokens)


def _fronts(trace: Trace, context_tokens: int) -> Any:
    if trace.loading is None or trace.loading.met_at is None:
        return gr.update(visible=False)
    figure = fronts_figure(
        trace.spans, context_tokens=context_tokens, met_at=trace.loading.met_at, predicted=_expected(trace)
    )
    return gr.update(value=figure, visible=True)


def _expected(trace: Trace) -> tuple[float, int] | None:
    """When and where the fronts were to meet: loading ends there."""
    loads = ((span.end_ms, stretch_of(span.name)) for span in trace.predicted if span.lane is Lane.LOAD)
    return next(((ms, tokens[0]) for ms, tokens in loads if tokens), None)


def _form() -> tuple[tuple[Component, ...], gr.Dropdown]:
    """The inputs of `reloading.parse`, in its order; and the codec, whose choices come with the model."""
    with gr.Row(elem_classes="toolbar", elem_id="reload-form"):
        device = gr.Dropdown(devices.choices(), value=devices.SLOW_LINK.name, label="Device", scale=2, min_width=300)
        codec = gr.Dropdown([LOSSLESS, PER_CHUNK], value=LOSSLESS, label="Codec", min_width=160)
        target = gr.Number(500, minimum=1, label="All chunks there within (ms)", visible=False, elem_id="target")
    with gr.Row(elem_classes="toolbar", visible=False) as own:
        bandwidth = gr.Number(50, minimum=0, label="Bandwidth")
        unit = gr.Radio(list(devices.UNITS), value="MB/s", label="Unit")
        latency = gr.Number(0.5, minimum=0, label="Latency of a read (ms)")
    with gr.Row(elem_classes="toolbar"):
        ratio = gr.Radio([("as in the run", "run"), ("chosen by the controller", AUTO)], value="run", label="Ratio")
        order = gr.Radio([(name, o.value) for o, name in reloaded.ORDERS.items()], value="layer-wise", label="Order")
        busy = gr.Slider(10, 100, value=100, step=5, label="Free share of the processor (%)", visible=False)
        pipelined = gr.Checkbox(value=True, label="Read layers while others are computed (pipelining)")
    device.change(
        fn=None, js=f"(device) => ({{ visible: device === '{devices.OWN}', __type__: 'update' }})",
        inputs=device, outputs=own, api_visibility="private",
    )  # fmt: skip
    codec.change(
        fn=None, js=f"(codec) => ({{ visible: codec === '{TARGET}', __type__: 'update' }})",
        inputs=codec, outputs=target, api_visibility="private",
    )  # fmt: skip
    order.change(
        fn=None, js=f"(order) => ({{ visible: order === '{LoadOrder.CAKE}', __type__: 'update' }})",
        inputs=order, outputs=busy, api_visibility="private",
    )  # fmt: skip
    return (device, bandwidth, unit, latency, pipelined, codec, target, order, busy, ratio), codec
