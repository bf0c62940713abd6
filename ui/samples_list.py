"""The sample collections and their questions as HTML with buttons that can be picked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ui import words

if TYPE_CHECKING:
    from cacheblend.samples import Sample


def render_samples(samples: Iterable[Sample], chosen: str | None = None) -> str:
    """Return a button for each collection."""
    buttons = "".join(
        f'<button type="button" data-pick="{words.text(sample.slug)}" aria-pressed="{str(sample.slug == chosen).lower()}">'
        f"<b>{words.text(sample.title)}</b><span>{words.text(sample.description)}</span></button>"
        for sample in samples
    )
    return f'<div class="samples">{buttons}</div>' if buttons else ""


def render_questions(sample: Sample | None) -> str:
    """Return a button for each question of the collection, picked by its number."""
    if sample is None:
        return ""
    buttons = "".join(
        f'<li><button type="button" data-pick="{i}">{words.text(question.question)}</button></li>'
        for i, question in enumerate(sample.questions)
    )
    return f'<div class="questions"><p>Questions to try</p><ul>{buttons}</ul></div>'
