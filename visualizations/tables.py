"""Rows as HTML tables and as files behind data: links. Everything is escaped; knows nothing of what it shows."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from html import escape

Cell = str | float | None
MAX_ROWS = 400  # more are in the files


def table(headings: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """A table in a box that scrolls by itself; rows beyond MAX_ROWS are counted in a sentence."""
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in headings)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows[:MAX_ROWS])
    more = len(rows) - MAX_ROWS
    cut = f'<p class="quiet">{more:,} more rows are in the files.</p>' if more > 0 else ""
    box = '<div class="rows" tabindex="0" role="region" aria-label="Table of points">'
    return f"{box}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{cut}"


def link(name: str, kind: str, text: str) -> str:
    """A link that saves a text as a file. kind: its MIME type."""
    data = b64encode(text.encode()).decode()
    return f'<a download="{escape(name)}" href="data:{escape(kind)};charset=utf-8;base64,{data}">{escape(name)}</a>'


def number(value: float) -> str:
    """Four significant digits; whole numbers as they are."""
    return f"{value:,.0f}" if abs(value) < 1e15 and value == int(value) else f"{value:.4g}"


def _cell(value: Cell) -> str:
    if value is None:
        return "<td></td>"
    if isinstance(value, str):
        return f'<td class="text">{escape(value)}</td>'
    return f'<td class="number">{number(value)}</td>'
