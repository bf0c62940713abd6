"""Model jobs of the page: how an event waits its turn, says so at once, and is stopped."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import gradio as gr
from gradio.components import Component
from gradio.events import Dependency

from ui import notices
from ui.frame import Page
from ui.guard import STOPPED
from ui.studio import STOP_WAIT_S

FAILED = notices.failed(["This could not be done: the value was refused, the queue is full, or something broke."])
WAITING = notices.progress("Waiting for the model")


def model_job(
    trigger: Callable[..., Dependency],
    handler: Callable[..., Any],
    inputs: Sequence[Component],
    outputs: Sequence[Component],
    *,
    status: gr.HTML,
    api_name: str | None = None,
) -> Dependency:
    """Run `handler` on `trigger`, one model job at a time; the browser says that it waits before the server answers."""
    trigger(fn=None, js=f"() => {json.dumps(WAITING)}", outputs=status, api_visibility="private")
    visibility = {"api_name": api_name} if api_name else {"api_visibility": "private"}
    job = trigger(
        handler, inputs, outputs, concurrency_id="model", concurrency_limit=1,
        show_progress="minimal", show_progress_on=status, **visibility,
    )  # fmt: skip
    still_busy = f"(shown) => shown.includes('busy') ? {json.dumps(FAILED)} : shown"
    job.failure(fn=None, js=still_busy, inputs=status, outputs=status, api_visibility="private")
    return job


def stop_button(page: Page, jobs: Sequence[Dependency], status: gr.HTML) -> gr.Button:
    """A button, shown while `status` is busy: ends the visitor's running job, or takes a waiting one off the queue."""

    def stop(session_id: str | None) -> str:
        session = page.studio.sessions.find(session_id)
        if session is not None:
            session.stop(wait_s=STOP_WAIT_S)
        return STOPPED

    button = gr.Button("Stop", size="sm", variant="stop", elem_classes="stop")
    stopped = button.click(stop, page.session, status, queue=False, show_progress="hidden", api_visibility="private")
    # Gradio's own cancelling reacts to a component's event alone, and comes second: a running job has ended by itself.
    withdraw = gr.Button("Withdraw", visible="hidden", elem_id=f"withdraw-{status.elem_id}")
    withdraw.click(fn=None, cancels=list(jobs), api_visibility="private")
    stopped.then(fn=None, js=f"() => document.getElementById('{withdraw.elem_id}').click()", api_visibility="private")
    return button
