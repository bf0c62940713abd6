"""The sample collections and their questions as HTML with buttons that can be picked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ui import words

if TYPE_CHECKING:
    from cacheblend.samples import Sample


def render_samples(samples: Iterable[Sample], chosen: str | None = None) -> str:
    """Return a button for each collection."""
    listed = list(samples)
    buttons = "".join(
        f'<button type="button" data-pick="{words.text(sample.slug)}" title="{words.text(sample.description)}"'
        f' aria-pressed="{str(sample.slug == chosen).lower()}">{words.text(sample.title)}</button>'
        for sample in listed
    )
    about = "".join(f"<p>{words.text(sample.description)}</p>" for sample in listed if sample.slug == chosen)
    return f'<div class="samples">{buttons}{about}</div>' if buttons else ""


def render_questions(sample: Sample | None) -> str:
    """Return a button for each question of the collection, picked by its number."""
    if sample is None:
        return ""
    buttons = "".join(
        f'<li><button type="button" data-pick="{i}">{words.text(question.question)}</button></li>'
        for i, question in enumerate(sample.questions)
    )
    return f'<div class="questions"><p>Questions to try</p><ul>{buttons}</ul></div>'
