"""One plain sentence about a run: how near it came to full recompute, and how much sooner. Facts in, words out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cacheblend.samples import SampleQuestion, is_right
from cacheblend.trace import Mode, Trace
from ui import words

SAME_F1 = 0.999  # ours: the answers share every word
CLOSE_F1 = 0.5  # ours: at least half of the words


class Tone(StrEnum):
    """How a verdict is coloured."""

    NEUTRAL = "neutral"
    GOOD = "good"
    FAIR = "fair"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A sentence and its tone."""

    tone: Tone
    sentence: str


def verdict(trace: Trace, full: Trace | None, expected: SampleQuestion | None = None) -> Verdict:
    """Judge one mode against full recompute of the same prompt, and against the answer where it is known."""
    if trace.mode is Mode.FULL:
        return Verdict(Tone.NEUTRAL, "The reference: every token computed together.")
    f1 = trace.f1_to_full
    if full is None or f1 is None:
        return Verdict(Tone.NEUTRAL, "Run full recompute as well to see how near this is.")
    pace = _pace(full.ttft_ms / trace.ttft_ms)
    if expected is not None and is_right(trace.answer, expected) != is_right(full.answer, expected):
        return _parted(is_right(full.answer, expected), f1, pace)
    if f1 >= SAME_F1:
        return Verdict(Tone.GOOD, f"Same answer as full, {pace}.")
    if f1 >= CLOSE_F1:
        return Verdict(Tone.FAIR, f"Close to full's answer (word F1 {f1:.2f}), {pace}.")
    return Verdict(Tone.BAD, f"Differs from full: word F1 {f1:.2f}, {_drift(trace)}; {pace}.")


def _parted(is_full_right: bool, f1: float, pace: str) -> Verdict:
    """One of the two answers is right: that says more than the words they share."""
    if is_full_right:
        return Verdict(Tone.BAD, f"Loses the answer that full gives (word F1 {f1:.2f}), {pace}.")
    return Verdict(Tone.FAIR, f"Right where full is wrong (word F1 {f1:.2f}), {pace}.")


def _pace(speedup: float) -> str:
    if speedup >= 1.05:
        return f"{words.times(speedup)} sooner"
    return "no sooner" if speedup > 0.95 else f"{words.times(1 / speedup)} later"


def _drift(trace: Trace) -> str:
    """Where the difference shows: few words may differ because one token tipped the answer over."""
    if trace.fidelity is None:
        return "and answers another prompt"
    agreed = words.share(trace.fidelity.top1_agreement)
    return (
        f"yet {agreed} of next tokens agree"
        if trace.fidelity.top1_agreement >= 0.8
        else f"{agreed} of next tokens agree"
    )
