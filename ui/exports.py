"""A run as files, the Perfetto trace and the whole comparison, in the page's private folder until it tidies up."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from gradio.utils import get_upload_folder

from cacheblend.recording import to_json
from cacheblend.trace import Comparison
from ui import notices
from ui.inspecting import GONE
from ui.loading import store_attention
from ui.studio import Studio
from visualizations.perfetto import chrome_trace


@dataclass(frozen=True, slots=True)
class Step:
    """How far a file is; its path comes last."""

    status: str
    path: Path | None = None


def perfetto(comparison: Comparison) -> Path:
    """Write the trace that ui.perfetto.dev and chrome://tracing read."""
    return write(chrome_trace(comparison.traces), f"{_stem(comparison)}.trace.json")


def whole_run(studio: Studio, run_id: str) -> Iterator[Step]:
    """Write everything there is of a run; live attention is pooled first, which takes the model a while."""
    run = studio.run(run_id)
    if run is None:
        raise ValueError(GONE)
    yield Step(notices.progress("Gathering the run"))
    stored = _stored(run.comparison)
    yield Step(notices.done("The run is ready."), write(to_json(stored), f"{_stem(stored)}.json"))


def _stored(comparison: Comparison) -> Comparison:
    if comparison.inspection is None:
        return comparison
    return replace(comparison, inspection=store_attention(comparison.inspection, len(comparison.tokens)))


def _stem(comparison: Comparison) -> str:
    """A file name from the question: letters and digits alone."""
    words = re.findall(r"[a-z0-9]+", comparison.question.lower())
    return "-".join(["cacheblend", *words[:6]])


def write(text: str, name: str) -> Path:
    """Put a file into a folder of its own, whose name cannot be guessed."""
    folder = Path(get_upload_folder())
    folder.mkdir(parents=True, exist_ok=True)
    path = Path(tempfile.mkdtemp(dir=folder)) / name
    path.write_text(text, encoding="utf-8")
    return path
