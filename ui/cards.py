"""A mode's column as HTML: its answer, its time, and how far it is from full. Functions of what is known so far."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from cacheblend.samples import SampleQuestion, is_right
from cacheblend.trace import COMPARED, Comparison, Lane, Mode, Trace
from ui import words
from ui.verdict import verdict

TITLES = {Mode.FULL: "Full recompute", Mode.REUSE: "Full reuse", Mode.BLEND: "CacheBlend"}
PROMISES = {
    Mode.FULL: "every token of the prompt computed together",
    Mode.REUSE: "chunk caches as they are, positions corrected",
    Mode.BLEND: "chunk caches, the most deviating tokens recomputed",
}


class Phase(StrEnum):
    """How far a column is."""

    OFF = "off"
    WAITING = "waiting"
    RUNNING = "running"
    STREAMING = "streaming"
    STOPPED = "stopped"
    DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One column. `answer` grows while streaming; `trace` comes when the mode is done, `full` when all modes are."""

    mode: Mode
    phase: Phase = Phase.OFF
    answer: str = ""
    ttft_ms: float | None = None
    trace: Trace | None = None
    full: Trace | None = None
    slowest_ms: float | None = None  # the bar's whole width: the largest TTFT on screen


def cards_of(comparison: Comparison) -> dict[Mode, Card]:
    """Return the three columns of a finished comparison."""
    slowest = max((t.ttft_ms for t in comparison.traces), default=None)
    done = {t.mode: _done(t, comparison.trace(Mode.FULL), slowest) for t in comparison.traces}
    return {mode: done.get(mode, Card(mode=mode)) for mode in COMPARED}


def with_trace(card: Card, trace: Trace) -> Card:
    """Return the column of a mode that has just finished, not yet compared."""
    return replace(card, phase=Phase.DONE, answer=trace.answer, ttft_ms=trace.ttft_ms, trace=trace)


def render(card: Card, expected: SampleQuestion | None = None) -> str:
    """Return the column as HTML; the answer is shown as text, whatever it contains, and judged if it is known."""
    body = (
        _off()
        if card.phase is Phase.OFF
        else _answer(card) + _judged(card, expected) + _time(card) + _facts(card) + _verdict(card, expected)
    )
    busy = "true" if card.phase in {Phase.WAITING, Phase.RUNNING, Phase.STREAMING} else "false"
    return (
        f'<article class="card mode-{card.mode} is-{card.phase}" aria-busy="{busy}">'
        f"<header><h3>{TITLES[card.mode]}</h3><p>{PROMISES[card.mode]}</p></header>{body}</article>"
    )


def _done(trace: Trace, full: Trace | None, slowest_ms: float | None) -> Card:
    card = with_trace(Card(mode=trace.mode), trace)
    return replace(card, full=full, slowest_ms=slowest_ms)


def _off() -> str:
    return '<p class="quiet">Not run.</p>'


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
    trace = card.trace
    if trace is None:
        return ""
    rows = [("recomputed", f"{words.count(trace.recomputed_tokens, 'token')} · {words.share(trace.recomputed_share)}")]
    if trace.fidelity is not None and card.full is not None:
        fidelity = trace.fidelity
        rows += [
            ("first-token KL", f"{fidelity.first_token_kl:.3f} nats"),
            ("top-1 agreement", words.share(fidelity.top1_agreement)),
            ("word F1 to full", f"{fidelity.f1_to_full:.2f}"),
        ]
    warmth = "warm: all in the store" if trace.is_warm else "cold: some computed first"
    rows.append(("chunk caches", "not used" if trace.mode is Mode.FULL else warmth))
    return '<dl class="facts">' + "".join(f"<div><dt>{k}</dt><dd>{v}</dd></div>" for k, v in rows) + "</dl>"


def _verdict(card: Card, expected: SampleQuestion | None) -> str:
    if card.trace is None or (card.full is None and card.slowest_ms is None):
        return ""
    said = verdict(card.trace, card.full, expected)
    return f'<p class="verdict tone-{said.tone}">{words.text(said.sentence)}</p>'
