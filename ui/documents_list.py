"""The visitor's documents as a table in HTML: pages, tokens, chunks, what was lost in reading, and a way out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ui import words

if TYPE_CHECKING:
    from cacheblend.collection import DocumentInfo

EMPTY = '<p class="quiet empty">No documents yet. Upload your own, or start with a sample collection.</p>'


def render(documents: Sequence[DocumentInfo]) -> str:
    """Return the table; names are shown as text, whatever they contain."""
    if not documents:
        return EMPTY
    total = f"{words.count(len(documents), 'document')} · {words.count(sum(d.tokens for d in documents), 'token')}"
    titles = ("document", "pages", "tokens", "chunks", "<span class='unseen'>remove</span>")
    head = "".join(f"<th>{title}</th>" for title in titles)
    rows = "".join(_row(document) for document in documents)
    table = f"<table><caption>{total}</caption><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f'<div class="documents">{table}</div>'


def _row(document: DocumentInfo) -> str:
    name = words.text(document.name)
    warnings = "".join(f'<small class="warning">{words.text(warning)}</small>' for warning in document.warnings)
    pages = "–" if document.pages is None else words.count(document.pages)
    return (
        f'<tr><td><span class="file" title="{name}">{name}</span>{warnings}</td><td>{pages}</td>'
        f"<td>{words.count(document.tokens)}</td><td>{words.count(document.num_chunks)}</td>"
        f'<td><button type="button" data-pick="{name}" aria-label="Remove {name}" title="Remove">×</button></td></tr>'
    )
