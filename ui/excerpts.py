"""The retrieved chunks of a prompt as HTML, each with its document, score, tokens and text."""

from __future__ import annotations

from dataclasses import dataclass

from cacheblend.trace import Comparison, SegmentKind
from ui import words
from visualizations.theme import CHUNK_COLOURS


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """A chunk as it stands in the prompt."""

    source: str
    num_tokens: int
    score: float | None
    text: str


def excerpts_of(comparison: Comparison) -> list[Excerpt]:
    """Return the chunks of a comparison, in prompt order."""
    return [
        Excerpt(
            source=segment.source,
            num_tokens=segment.num_tokens,
            score=segment.score,
            text="".join(comparison.tokens[segment.start : segment.stop]),
        )
        for segment in comparison.segments
        if segment.kind is SegmentKind.CHUNK
    ]


def render(excerpts: list[Excerpt]) -> str:
    """Return the chunks as a list that opens to their text."""
    if not excerpts:
        return ""
    total = sum(e.num_tokens for e in excerpts)
    counts = f"{words.count(len(excerpts), 'chunk')} · {words.count(total, 'token')}, in prompt order"
    head = f"<h3>Retrieved <span>{counts}</span></h3>"
    return f'<section class="excerpts">{head}<ol>{"".join(_item(i, e) for i, e in enumerate(excerpts))}</ol></section>'


def _item(index: int, excerpt: Excerpt) -> str:
    score = (
        "" if excerpt.score is None else f'<span title="cosine similarity to the question">{excerpt.score:.2f}</span>'
    )
    tokens = f"<span>{words.count(excerpt.num_tokens, 'token')}</span>"
    summary = f"<summary><i></i><b>{words.text(_together(excerpt.source))}</b>{score}{tokens}</summary>"
    text = f"<p>{words.text(excerpt.text.strip())}</p>"
    return f'<li class="chunk-{index % len(CHUNK_COLOURS)}"><details>{summary}{text}</details></li>'


def _together(source: str) -> str:
    """Keep a chunk's number on the line where the document's name ends."""
    name, dot, number = source.rpartition(" · ")
    return f"{name}\N{NO-BREAK SPACE}·\N{NO-BREAK SPACE}{number}" if dot else source
