"""The whole page: header and tabs. A new tab is a file in ui/tabs and one entry here."""

from __future__ import annotations

import gradio as gr

from ui import header
from ui.frame import Page
from ui.sessions import TIME_TO_LIVE_S
from ui.studio import RECORDED, Studio
from ui.tabs import about, compare, experiments, inspect, store, timeline

TABS = (compare.build, inspect.build, timeline.build, experiments.build, store.build, about.build)
CACHE_CHECK_S, CACHE_AGE_S = 600, 3600  # downloads and uploads are deleted after an hour


def build(studio: Studio) -> gr.Blocks:
    """Return the page, not yet served."""
    blocks = gr.Blocks(title=header.NAME, analytics_enabled=False, delete_cache=(CACHE_CHECK_S, CACHE_AGE_S))
    with blocks:
        page = Page(
            studio=studio,
            session=gr.State(None, time_to_live=TIME_TO_LIVE_S, delete_callback=studio.sessions.close),
            run=gr.State(RECORDED),
            header=gr.HTML(header.render(studio), elem_id="masthead"),
            tabs=gr.Tabs(elem_id="tabs"),
        )
        with page.tabs:
            for tab in TABS:
                tab(page)
        blocks.load(lambda: header.render(studio), None, page.header, queue=False, api_visibility="private")
    return blocks
