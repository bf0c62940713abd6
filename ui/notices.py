"""One line that says what is going on, how far it is, or what went wrong, as HTML."""

from __future__ import annotations

from collections.abc import Sequence

from ui import words

IDLE = ""


def progress(sentence: str, done: int | None = None, total: int | None = None) -> str:
    """A job under way; with done and total, a bar."""
    bar = ""
    if done is not None and total:
        percent = 100 * done / total
        bar = (
            f'<span class="gauge" role="progressbar" aria-label="progress" aria-valuemin="0" aria-valuemax="100"'
            f' aria-valuenow="{percent:.0f}"><i style="width:{percent:.0f}%"></i></span>'
        )
    return f'<div class="notice busy" role="status"><span class="pulse"></span>{words.text(sentence)}{bar}</div>'


def done(sentence: str) -> str:
    """A job that ended well."""
    return f'<div class="notice done" role="status">{words.text(sentence)}</div>'


def failed(sentences: Sequence[str]) -> str:
    """What went wrong, a sentence each, as text."""
    items = "".join(f"<p>{words.text(sentence)}</p>" for sentence in sentences)
    return f'<div class="notice failed" role="alert">{items}</div>'
