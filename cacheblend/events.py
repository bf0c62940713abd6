"""What a running comparison tells whoever watches it.

In order: for each mode Started, FirstToken, TextDelta…, Finished; then Compared.
"""

from __future__ import annotations

from dataclasses import dataclass

from cacheblend.trace import Comparison, Mode, Trace


@dataclass(frozen=True, slots=True)
class Started:
    """A mode's timed pass begins."""

    mode: Mode


@dataclass(frozen=True, slots=True)
class FirstToken:
    """The first token is there, ttft_ms after the start; is_warm: every chunk cache was in the store."""

    mode: Mode
    ttft_ms: float
    is_warm: bool


@dataclass(frozen=True, slots=True)
class TextDelta:
    """The answer so far, whole."""

    mode: Mode
    text: str


@dataclass(frozen=True, slots=True)
class Finished:
    """A mode has ended; its trace holds its distance to full if full ran before it."""

    mode: Mode
    trace: Trace


@dataclass(frozen=True, slots=True)
class Compared:
    """Every mode has ended."""

    comparison: Comparison


Event = Started | FirstToken | TextDelta | Finished | Compared
