"""A mode's column as HTML: its answer, its time, and how far it is from full. Functions of what is known so far."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from cacheblend.policies import PRIME_RECIPE, RECIPE, apart, is_papers, picks_none
from cacheblend.samples import SampleQuestion, is_right
from cacheblend.trace import COMPARED, ON_CHUNKS, ON_REPLIES, Comparison, Lane, Mode, Trace
from ui import replies, words
from ui.verdict import verdict

TITLES = {
    Mode.FULL: "Full recompute",
    Mode.PREFIX: "Prefix caching",
    Mode.UNPLACED: "Reuse, positions uncorrected",
    Mode.REUSE: "Full reuse",
    Mode.BLEND: "CacheBlend",
    Mode.PRIME: "PrimeBlend (ours)",
    Mode.MAP_REDUCE: "MapReduce",
    Mode.MAP_RERANK: "MapRerank",
}
OWN_TITLE = "Blend, own choice"
PROMISES = {
    Mode.FULL: "every token of the prompt computed together",
    Mode.PREFIX: "what is stored of exactly this beginning, the rest computed: exact",
    Mode.UNPLACED: "a control: chunk caches as they are, every chunk at position 0",
    Mode.REUSE: "chunk caches as they are, positions corrected",
    Mode.BLEND: "chunk caches, the most deviating tokens recomputed",
    Mode.PRIME: f"chunk caches made {RECIPE[PRIME_RECIPE].behind}, recomputed where the question looks",
    Mode.MAP_REDUCE: "every chunk asked alone, then what they replied, together",
    Mode.MAP_RERANK: "every chunk asked alone, the reply that rates itself highest",
}
OWN_PROMISE = "chunk caches, a share of the tokens recomputed"


class Phase(StrEnum):
    """How far a column is."""

    WAITING = "waiting"
    RUNNING = "running"
    STREAMING = "streaming"
    STOPPED = "stopped"
    DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One column. `answer` grows while streaming; `trace` comes when the mode is done, `full` when all modes are.

    policy: as traces describe it, known before the run; slowest_ms: the bar's whole width, the largest TTFT on screen;
    chunks_nbytes: what the prompt's chunk caches take, where a mode that reads them ran beside this one.
    """

    mode: Mode
    phase: Phase = Phase.WAITING
    policy: str = ""
    answer: str = ""
    ttft_ms: float | None = None
    trace: Trace | None = None
    full: Trace | None = None
    slowest_ms: float | None = None
    chunks_nbytes: int | None = None

    @property
    def title(self) -> str:
        """The mode's name; blend has the paper's only where policy and recipe are the paper's."""
        return OWN_TITLE if self._is_own else TITLES[self.mode]

    @property
    def promise(self) -> str:
        """What the mode does, in half a sentence."""
        return OWN_PROMISE if self._is_own else PROMISES[self.mode]

    @property
    def _is_own(self) -> bool:
        return self.mode is Mode.BLEND and bool(self.policy) and not is_papers(self.policy)


def cards_of(comparison: Comparison) -> dict[Mode, Card]:
    """Return the columns of a finished comparison, those of the modes that ran."""
    slowest = max((t.ttft_ms for t in comparison.traces), default=None)
    held = [t.stored_nbytes for t in comparison.traces if t.mode in ON_CHUNKS and t.stored_nbytes]
    done = {
        t.mode: replace(
            with_trace(Card(mode=t.mode), t),
            full=comparison.trace(Mode.FULL),
            slowest_ms=slowest,
            chunks_nbytes=min(held, default=None),
        )
        for t in comparison.traces
    }
    return {mode: done[mode] for mode in Mode if mode in done}


def with_trace(card: Card, trace: Trace) -> Card:
    """Return the column of a mode that has just finished, not yet compared."""
    return replace(card, phase=Phase.DONE, policy=trace.policy, answer=trace.answer, ttft_ms=trace.ttft_ms, trace=trace)


def render(card: Card, expected: SampleQuestion | None = None, *, beside: int = len(COMPARED)) -> str:
    """Return the column as HTML; the answer is shown as text, whatever it contains, and judged if it is known.

    beside: how many columns there are, which share rows of at most four.
    """
    busy = "true" if card.phase in {Phase.WAITING, Phase.RUNNING, Phase.STREAMING} else "false"
    return (
        f'<article class="card mode-{card.mode} is-{card.phase} of-{beside}" aria-busy="{busy}">'
        f"<header><h3>{card.title}</h3><p>{card.promise}</p></header>"
        f"{_answer(card)}{_judged(card, expected)}{_time(card)}{_facts(card)}{replies.render(card.trace)}"
        f"{_verdict(card, expected)}</article>"
    )


def _answer(card: Card) -> str:
    label = {Phase.WAITING: "waits for its turn", Phase.RUNNING: "reading the prompt"}.get(card.phase)
    if card.phase is Phase.STOPPED and not card.answer:
        return '<p class="answer quiet">Stopped before it answered.</p>'
    if label and not card.answer:
        return f'<p class="answer pending"><span class="pulse"></span>{label} …</p>'
    shown = words.text(card.answer.strip()) or '<span class="quiet">(an empty answer)</span>'
    caret = '<span class="caret"></span>' if card.phase is Phase.STREAMING else ""
    return f'<p class="answer">{shown}{caret}</p>'


def _judged(card: Card, expected: SampleQuestion | None) -> str:
    if expected is None or card.phase is not Phase.DONE:
        return ""
    right = is_right(card.answer, expected)
    return f'<p class="judged {"right" if right else "wrong"}">{"as expected" if right else "not as expected"}</p>'


def _time(card: Card) -> str:
    if card.ttft_ms is None:
        return '<div class="ttft"><b>–</b><span>to first token</span></div>'
    gain = ""
    if card.full is not None and card.mode is not Mode.FULL:
        gain = f'<em class="gain">{words.times(card.full.ttft_ms / card.ttft_ms)} faster</em>'
        if card.full.ttft_ms < card.ttft_ms:
            gain = f'<em class="gain slower">{words.times(card.ttft_ms / card.full.ttft_ms)} slower</em>'
    number, unit = words.duration(card.ttft_ms).rsplit(" ", 1)
    return f'<div class="ttft"><b>{number}<small>{unit}</small></b><span>to first token</span>{gain}</div>{_bar(card)}'


def _bar(card: Card) -> str:
    """The parts of TTFT to scale: the track is as long as the slowest mode's TTFT."""
    if card.trace is None:
        return '<div class="bar"></div>'
    parts = card.trace.ttft_parts
    whole = card.slowest_ms or card.ttft_ms or 1.0
    cells = "".join(_cell(lane, ms, whole) for lane, ms in parts.items())
    legend = "".join(
        f"<li><i class='lane-{_slug(lane)}'></i>{lane} {words.duration(ms)}</li>" for lane, ms in parts.items()
    )
    label = ", ".join(f"{lane} {words.duration(ms)}" for lane, ms in parts.items())
    return (
        f'<div class="bar" role="img" aria-label="Parts of TTFT: {label}">{cells}</div><ul class="parts">{legend}</ul>'
    )


def _cell(lane: Lane, ms: float, whole_ms: float) -> str:
    width = f"width:{100 * ms / whole_ms:.2f}%"
    return f'<i class="lane-{_slug(lane)}" style="{width}" title="{lane} {words.duration(ms)}"></i>'


def _slug(lane: Lane) -> str:
    return lane.value.replace(" ", "-")


def _facts(card: Card) -> str:
    if card.trace is None:
        return ""
    rows = [*_made(card, card.trace), *_distance(card, card.trace), *_caches(card, card.trace)]
    return '<dl class="facts">' + "".join(f"<div><dt>{k}</dt><dd>{v}</dd></div>" for k, v in rows) + "</dl>"


def _made(card: Card, trace: Trace) -> Iterator[tuple[str, str]]:
    """What was computed, and how it was chosen."""
    if card.mode in ON_REPLIES:
        yield "asked alone", words.count(len(trace.replies), "chunk")
        return
    if card.mode is Mode.PREFIX:
        yield "found in the store", f"{words.share(1 - trace.recomputed_share)} of the context"
    if card.mode in (Mode.BLEND, Mode.PRIME) and not picks_none(trace.policy):
        yield "tokens chosen by", words.text(apart(trace.policy)[0])
    if card.mode in ON_CHUNKS:
        yield "chunks made", words.text(apart(trace.policy)[1])
    yield "recomputed", f"{words.count(trace.recomputed_tokens, 'token')} · {words.share(trace.recomputed_share)}"


def _size(nbytes: int) -> str:
    """Bytes that stay on one line."""
    return f'<span class="size">{words.nbytes(nbytes)}</span>'


def _distance(card: Card, trace: Trace) -> Iterator[tuple[str, str]]:
    """How far it is from full, as far as the two can be compared."""
    if card.full is None:
        return
    if card.mode in ON_REPLIES:
        yield "KL, agreement", "another prompt than full’s: not comparable"
    elif trace.fidelity is not None:
        yield "first-token KL", f"{trace.fidelity.first_token_kl:.3f} nats"
        yield "top-1 agreement", words.share(trace.fidelity.top1_agreement)
    if trace.f1_to_full is not None:
        yield "word F1 to full", f"{trace.f1_to_full:.2f}"


def _caches(card: Card, trace: Trace) -> Iterator[tuple[str, str]]:
    """Whether caches were there, and what they take."""
    if card.mode in ON_CHUNKS:
        yield "chunk caches", "warm: all in the store" if trace.is_warm else "cold: some computed first"
    elif card.mode is not Mode.PREFIX:
        yield "chunk caches", "not used"
    if card.mode is Mode.PREFIX and trace.stored_nbytes is not None:
        yield "kept for this beginning alone", _size(trace.stored_nbytes)
        yield "of that, new", _size(trace.stored_new_nbytes or 0)
        if card.chunks_nbytes is not None:
            yield "the chunks’ caches, for any order", _size(card.chunks_nbytes)


def _verdict(card: Card, expected: SampleQuestion | None) -> str:
    if card.trace is None or (card.full is None and card.slowest_ms is None):
        return ""
    said = verdict(card.trace, card.full, expected)
    return f'<p class="verdict tone-{said.tone}">{words.text(said.sentence)}</p>'
