"""A file on disk → a Document. The bytes say what it is; its name is only asked where bytes cannot tell."""

from __future__ import annotations

import re
from pathlib import Path

from cacheblend.documents.document import Document, DocumentError
from cacheblend.documents.isolate import extract_apart
from cacheblend.documents.limits import DEFAULT_LIMITS, Limits, megabytes
from cacheblend.documents.sniff import mislabel_warning, sniff
from cacheblend.documents.text import clean

_MAX_NAME = 120


def read_document(path: str | Path, *, name: str | None = None, limits: Limits = DEFAULT_LIMITS) -> Document:
    """Read one file; raise DocumentError, one sentence naming the file and what to do, if that is not possible.

    name: what the uploader called it, if the path does not say. A file whose bytes are of another supported format than
    its name promises is read as what it is, with a warning.
    """
    path = Path(path)
    shown = display_name(path.name if name is None else name)
    data = _read_bytes(path, shown, limits)
    kind = sniff(shown, data)
    extract = extract_apart(kind, shown, data, limits)
    text = clean(extract.text)
    _check_text(shown, text, limits)
    warnings = mislabel_warning(shown, kind) + extract.warnings
    return Document(name=shown, kind=kind, text=text, num_pages=extract.num_pages, warnings=warnings)


def display_name(name: str) -> str:
    """Return a file name for one line of a sentence: no folders, no control characters, not longer than 120."""
    base = re.split(r"[/\\]", name)[-1]
    line = " ".join("".join(c if c.isprintable() else " " for c in base).split())
    if len(line) > _MAX_NAME:
        line = f"{line[: _MAX_NAME - 21]}…{line[-20:]}"
    return line or "unnamed"


def _read_bytes(path: Path, name: str, limits: Limits) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(limits.max_bytes + 1)
    except OSError as error:
        raise DocumentError(f"{name} cannot be opened: upload it again.") from error
    if len(data) > limits.max_bytes:
        raise DocumentError(f"{name} is larger than {megabytes(limits.max_bytes)}, the limit: upload a part of it.")
    if not data.strip():
        raise DocumentError(f"{name} is empty: check the file and upload it again.")
    return data


def _check_text(name: str, text: str, limits: Limits) -> None:
    if not text:
        raise DocumentError(f"{name} has no text to read: upload a file that contains text.")
    if len(text) > limits.max_characters:
        raise DocumentError(
            f"{name} has {len(text):,} characters; the limit is {limits.max_characters:,}: upload a part of it."
        )
