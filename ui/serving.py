"""Serving the page: no analytics, no history, no fonts or scripts from elsewhere, bounded uploads."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import gradio as gr
from starlette.middleware import Middleware

from ui import page, theme
from ui.studio import Studio
from ui.visitor import VisitorCookie

MAX_UPLOAD = "25mb"  # a little above the limit for documents, whose own refusal says more
MAX_WAITING = 20  # jobs in the queue
QUIET = {"GRADIO_ANALYTICS_ENABLED": "False", "HF_HUB_DISABLE_TELEMETRY": "1"}
FAVICON = Path(__file__).parent.parent / "assets" / "favicon.svg"


def serve(studio: Studio, *, host: str, port: int | None, block: bool = True) -> tuple[gr.Blocks, str]:
    """Build the page and serve it; returns the page and its address once it is up, at once if not `block`."""
    _keep_private()
    blocks = page.build(studio)
    blocks.queue(max_size=MAX_WAITING)
    _, address, _ = blocks.launch(
        server_name=host,
        server_port=port,
        prevent_thread_lock=not block,
        quiet=not block,
        theme=theme.theme(),
        css=theme.style_sheet(),
        favicon_path=FAVICON,
        app_kwargs={"middleware": [Middleware(VisitorCookie)]},
        **_closed(),
    )
    return blocks, address


def _closed() -> dict[str, Any]:
    """What Gradio would otherwise offer, record or leave unbounded."""
    return {
        "share": False,
        "run_history": False,
        "enable_monitoring": False,
        "ssr_mode": False,
        "max_file_size": MAX_UPLOAD,
        "footer_links": [],
        "show_error": False,
        "mcp_server": False,
    }


def _keep_private() -> None:
    """Give this process a folder of its own for uploads and downloads, gone when it ends."""
    os.environ.update(QUIET)
    if "GRADIO_TEMP_DIR" not in os.environ:
        folder = tempfile.mkdtemp(prefix="cacheblend-studio-")
        os.environ["GRADIO_TEMP_DIR"] = folder
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
