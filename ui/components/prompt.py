"""The prompt as the widgets know it: its tokens as text, and the stretches it is made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cacheblend.trace import Comparison, Segment, SegmentKind
from visualizations import theme

MAX_TOKEN_CHARS = 80  # a token is short; a longer one would only be hostile


def prompt_payload(comparison: Comparison) -> dict[str, Any]:
    """Return {"tokens": [text], "segments": [{label, name, kind, start, stop, colour}]}; chunks are counted from 1."""
    segments, chunk = [], 0
    for segment in comparison.segments:
        segments.append(_segment(segment, chunk))
        chunk += segment.kind is SegmentKind.CHUNK
    return {"tokens": [t[:MAX_TOKEN_CHARS] for t in comparison.tokens], "segments": segments}


def _segment(segment: Segment, chunk: int) -> dict[str, Any]:
    is_chunk = segment.kind is SegmentKind.CHUNK
    label = str(chunk + 1) if is_chunk else {SegmentKind.PREFIX: "P", SegmentKind.SUFFIX: "Q"}[segment.kind]
    name = {SegmentKind.PREFIX: "prefix", SegmentKind.SUFFIX: "question", SegmentKind.CHUNK: f"chunk {label}"}[
        segment.kind
    ]
    return {
        "label": label,
        "name": name,
        "source": segment.source[:200],
        "kind": segment.kind.value,
        "start": segment.start,
        "stop": segment.stop,
        "colour": theme.segment_colour(segment.kind, chunk),
    }


def integer(request: Mapping[str, Any], name: str, low: int, high: int) -> int:
    """Read a whole number in low…high from what a browser sent; ValueError says what was wrong."""
    value = request.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"{name} must be a whole number from {low} to {high}")
    return value


def interval(request: Mapping[str, Any], name: str, size: int) -> tuple[int, int]:
    """Read a pair start < stop within 0…size from what a browser sent; ValueError says what was wrong."""
    pair = request.get(name)
    if not isinstance(pair, list) or len(pair) != 2:
        raise ValueError(f"{name} must be a pair of token positions")
    bounds = dict(enumerate(pair))
    start, stop = (integer({name: bounds[i]}, name, 0, size) for i in range(2))
    if start >= stop:
        raise ValueError(f"{name} must not be empty")
    return start, stop
