"""What every tab is handed: the studio, and the visitor's state on the page."""

from __future__ import annotations

from dataclasses import dataclass

import gradio as gr

from ui.studio import Studio


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """session: the visitor's id or None; run: the id of the run on screen; header: the bar on top; tabs: all tabs."""

    studio: Studio
    session: gr.State
    run: gr.State
    header: gr.HTML
    tabs: gr.Tabs
