"""Store: where chunk caches are, whose they are, and what happens to them; warming and clearing one's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr

from ui import codecs_table, header, store_board, storing
from ui.frame import Page
from ui.guard import guarded
from ui.jobs import model_job, stop_button
from ui.sessions import Session
from ui.studio import Studio

TITLE = "Store"
EVERY_S = 2.0
INTRO = (
    '<p class="lead">Chunk caches live in tiers, the fastest first: what is pushed out of one falls into the next, and '
    "what is hit in a slow one is copied up. You see your own entries; of other people’s there are only totals. With "
    "the disk tier they outlive a restart.</p>"
)
SHARED = (
    '<p class="lead">This app was started with --share-caches: whoever uploads the same text finds the same caches.</p>'
)


def build(page: Page) -> None:
    """Add the tab; it is drawn when it is opened, and then every other second as long as it is."""
    with gr.Tab(TITLE, id="store") as tab:
        gr.HTML(INTRO + (SHARED if page.studio.shares_caches else ""))
        with gr.Row(elem_classes="downloads"):
            warm = gr.Button("Warm my caches", size="sm", elem_id="warm")
            ask_clear = gr.Button("Clear my caches", size="sm", elem_id="clear")
        with gr.Row(elem_classes="downloads confirm", visible=False) as confirm:
            gr.HTML("<p>Remove your chunk caches from every tier? They are computed again when they are needed.</p>")
            clear = gr.Button("Remove them", size="sm", variant="stop", elem_id="clear-confirmed")
            keep = gr.Button("Keep them", size="sm", elem_id="clear-kept")
        status = gr.HTML(elem_id="store-status", elem_classes="status")
        stop_place = gr.Row(elem_classes="stop-row")
        board, drawn = gr.HTML(store_board.CLOSED, elem_id="store-board"), gr.State("")
        gr.HTML(codecs_table.render(codecs_table.load()), elem_id="codecs")
        timer = gr.Timer(EVERY_S, active=False)

    def on_open(session_id: str | None) -> tuple[Any, ...]:
        html = look(page.studio, session_id)
        return html, html, gr.Timer(active=True)

    def on_tick(session_id: str | None, before: str) -> tuple[Any, Any]:
        if page.studio.turn.locked():
            return gr.skip(), gr.skip()  # nobody looks while a run is being timed
        html = look(page.studio, session_id)
        return (gr.skip(), gr.skip()) if html == before else (html, html)

    def on_switch(event: gr.SelectData) -> Any:
        return gr.skip() if event.value == TITLE else gr.Timer(active=False)

    def job(steps: Callable[[Studio, Session | None], Iterator[str]]) -> Callable[[str | None], Iterator[Any]]:
        def on_click(session_id: str | None) -> Iterator[tuple[Any, ...]]:
            session = page.studio.sessions.find(session_id)
            for said in guarded(steps(page.studio, session), str):
                html = look(page.studio, session_id)
                yield said, html, html, header.render(page.studio), gr.update(visible=False)

        return on_click

    quiet = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
    tab.select(on_open, page.session, [board, drawn, timer], **quiet)
    timer.tick(on_tick, [page.session, drawn], [board, drawn], **quiet)
    page.tabs.select(on_switch, None, timer, **quiet)
    ask_clear.click(lambda: gr.update(visible=True), None, confirm, **quiet)
    keep.click(lambda: gr.update(visible=False), None, confirm, **quiet)
    outputs = [status, board, drawn, page.header, confirm]
    jobs = [
        model_job(button.click, job(steps), [page.session], outputs, status=status)
        for button, steps in ((warm, storing.warm), (clear, storing.clear))
    ]
    with stop_place:
        stop_button(page, jobs, status)


def look(studio: Studio, session_id: str | None) -> str:
    """The store as this visitor may see it."""
    return store_board.render(storing.board(studio, studio.sessions.find(session_id)))
