"""Numbers as a reader wants them: short, with their unit, and escaped text for HTML. Knows nothing of runs or pages."""

from __future__ import annotations

import sys
from html import escape

MULTIPLY = "×"
UNITS = ("B", "KB", "MB", "GB", "TB")


def text(value: object) -> str:
    """Return `value` as inert HTML text, quotes included: names and answers come from strangers."""
    return escape(str(value), quote=True)


def duration(ms: float) -> str:
    """Three significant digits at most: 0.42 ms, 38 ms, 1.24 s, 75 s."""
    if ms < 1:
        return f"{ms:.2f} ms"
    if ms < 1000:
        return f"{ms:.0f} ms"
    return f"{ms / 1000:.2f} s" if ms < 10_000 else f"{ms / 1000:.0f} s"


def times(factor: float) -> str:
    """A ratio of times: 4.6 ×, 34 ×."""
    return f"{factor:.1f} {MULTIPLY}" if factor < 10 else f"{factor:.0f} {MULTIPLY}"


def share(fraction: float) -> str:
    """A share of one as percent; what is not nothing never reads as nothing."""
    if 0 < fraction < 0.01:
        return "< 1 %"
    return f"{100 * fraction:.0f} %"


def count(number: float, noun: str = "") -> str:
    """A whole number with thousands apart, and its noun: 3,072 tokens, 1 page."""
    whole = round(number)
    return f"{whole:,} {noun}{'' if whole == 1 else 's'}" if noun else f"{whole:,}"


def nbytes(size: float) -> str:
    """Bytes in powers of 1,000: 512 B, 93 MB."""
    for unit in UNITS[:-1]:
        if size < 1000:
            return f"{size:.0f} {unit}" if size >= 10 or unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} {UNITS[-1]}"


def filled(size: float, capacity: int) -> str:
    """How full a tier is: 93 MB of 4.0 GB; a server that names no bound has none."""
    return f"{nbytes(size)}, no bound" if capacity == sys.maxsize else f"{nbytes(size)} of {nbytes(capacity)}"
