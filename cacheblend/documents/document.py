"""What an upload becomes once it is read. Knows nothing of file formats, tokens or disks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class DocumentKind(StrEnum):
    """The format a document was read as."""

    PDF = "pdf"
    DOCX = "docx"
    HTML = "html"
    MARKDOWN = "markdown"
    TEXT = "text"


class DocumentError(ValueError):
    """An upload that cannot be used; its text is one plain sentence naming the file and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """The text of one upload. `name` and `text` are as untrusted as the upload itself: escape them where shown.

    num_pages: None where the format has no pages; warnings: sentences on what was lost or guessed while reading.
    """

    name: str
    kind: DocumentKind
    text: str
    num_pages: int | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Extract:
    """What one parser found: text that is not yet cleaned or measured."""

    text: str
    num_pages: int | None = None
    warnings: tuple[str, ...] = ()
