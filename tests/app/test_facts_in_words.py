"""Numbers, verdicts and columns: pure functions from a run to what is read."""

from __future__ import annotations

import re
import sys
from dataclasses import replace

import pytest

from cacheblend.policies import POLICY
from cacheblend.samples import SampleQuestion
from cacheblend.trace import COMPARED, Fidelity, Lane, Mode, Span
from tests.app.fakes import TTFT_MS, fake_comparison, fake_trace, recorded_comparison
from tests.synthetic import HOSTILE
from ui import cards, excerpts, words
from ui.cards import Card, Phase
from ui.tabs import inspect
from ui.verdict import Tone, verdict


@pytest.mark.parametrize(
    ("ms", "said"), [(0.417, "0.42 ms"), (38.2, "38 ms"), (1240, "1.24 s"), (75_300, "75 s"), (999.4, "999 ms")]
)
def test_duration(ms, said):
    assert words.duration(ms) == said


def test_a_tier_is_as_full_as_its_bound_says_or_has_none():
    assert words.filled(93e6, 4 * 10**9) == "93 MB of 4.0 GB"
    assert words.filled(93e6, sys.maxsize) == "93 MB, no bound"


def test_numbers_carry_their_unit_and_plural():
    assert words.count(1, "page") == "1 page"
    assert words.count(3072, "token") == "3,072 tokens"
    assert words.times(4.62) == "4.6 ×"
    assert words.times(34.4) == "34 ×"
    assert [words.share(s) for s in (0, 0.004, 0.15, 1)] == ["0 %", "< 1 %", "15 %", "100 %"]
    assert [words.nbytes(n) for n in (512, 93_000_000, 1_500)] == ["512 B", "93 MB", "1.5 KB"]


def with_fidelity(mode: Mode, f1: float, agreement: float = 1.0, ttft_ms: float | None = None):
    trace = fake_trace(mode)
    if ttft_ms is not None:
        trace = replace(trace, spans=(Span(lane=Lane.FIRST_TOKEN, name="first", start_ms=0, end_ms=ttft_ms),))
    return replace(trace, fidelity=Fidelity(first_token_kl=1, mean_kl=1, top1_agreement=agreement, f1_to_full=f1))


@pytest.mark.parametrize(
    ("f1", "agreement", "ttft_ms", "tone", "sentence"),
    [
        (1.0, 1.0, 900, Tone.GOOD, "Same answer as full, 4.7 × sooner."),
        (0.72, 0.9, 900, Tone.FAIR, "Close to full's answer (word F1 0.72), 4.7 × sooner."),
        (0.1, 0.4, 900, Tone.BAD, "Differs from full: word F1 0.10, 40 % of next tokens agree; 4.7 × sooner."),
        (0.1, 0.9, 900, Tone.BAD, "Differs from full: word F1 0.10, yet 90 % of next tokens agree; 4.7 × sooner."),
        (1.0, 1.0, 4200, Tone.GOOD, "Same answer as full, no sooner."),
        (1.0, 1.0, 8400, Tone.GOOD, "Same answer as full, 2.0 × later."),
    ],
)
def test_verdict(f1, agreement, ttft_ms, tone, sentence):
    said = verdict(with_fidelity(Mode.BLEND, f1, agreement, ttft_ms), fake_trace(Mode.FULL))
    assert (said.tone, said.sentence) == (tone, sentence)


def test_verdict_where_the_answer_is_known():
    expected = SampleQuestion(question="Who?", answer="Ada", accepted=("ada",), documents=("a", "b"))
    full, reuse = fake_trace(Mode.FULL), fake_trace(Mode.REUSE)
    assert verdict(reuse, full, expected).sentence == "Loses the answer that full gives (word F1 0.00), 35 × sooner."
    right, wrong = replace(reuse, answer="Ada did."), replace(full, answer="Nobody knows.")
    assert verdict(right, wrong, expected).sentence.startswith("Right where full is wrong")
    assert verdict(fake_trace(Mode.BLEND), full, expected).sentence.startswith("Same answer as full")


def test_verdict_of_full_and_without_full():
    assert verdict(fake_trace(Mode.FULL), None).sentence.startswith("The reference")
    assert "Run full recompute as well" in verdict(fake_trace(Mode.BLEND), None).sentence


def test_the_bar_is_to_the_scale_of_the_slowest_mode():
    comparison = fake_comparison("?", [], [fake_trace(mode) for mode in COMPARED])
    for mode, card in cards.cards_of(comparison).items():
        widths = [float(w) for w in re.findall(r"width:([\d.]+)%", cards.render(card))]
        assert sum(widths) == pytest.approx(100 * TTFT_MS[mode] / TTFT_MS[Mode.FULL], abs=0.1)


def test_a_column_says_what_was_measured():
    html = cards.render(cards.cards_of(fake_comparison("?", [], [fake_trace(m) for m in COMPARED]))[Mode.BLEND])
    for fact in ("900", "4.7 × faster", "150 tokens · 15 %", "0.000 nats", "100 %", "warm: all in the store"):
        assert fact in html


def test_a_mode_that_was_not_asked_for_has_no_column():
    columns = cards.cards_of(fake_comparison("?", [], [fake_trace(Mode.BLEND)]))
    assert list(columns) == [Mode.BLEND]
    assert "faster" not in cards.render(columns[Mode.BLEND])


def test_answers_and_chunk_names_are_text():
    card = Card(mode=Mode.FULL, phase=Phase.STREAMING, answer=HOSTILE)
    chunk = excerpts.Excerpt(source=HOSTILE, num_tokens=3, score=0.5, text=HOSTILE)
    for html in (cards.render(card), excerpts.render([chunk])):
        assert "<img" not in html
        assert "&lt;img" in html


def test_chunks_of_a_recorded_run_are_shown_with_their_text():
    comparison = recorded_comparison()
    found = excerpts.excerpts_of(comparison)
    assert [e.source for e in found] == [f"report-{i}.pdf · {i + 1}" for i in range(6)]
    assert all(e.text and e.num_tokens for e in found)
    assert "in prompt order" in excerpts.render(found)
    assert excerpts.render([]) == ""


def test_nothing_is_said_of_choosing_where_no_token_was_recomputed():
    comparison = recorded_comparison()
    blend = comparison.trace(Mode.BLEND)
    assert "tokens chosen by HKVD" in inspect.inspected(comparison)
    none = replace(blend, policy=POLICY["none"].title)
    traces = tuple(none if trace is blend else trace for trace in comparison.traces)
    said = inspect.inspected(replace(comparison, traces=traces))
    assert "no token recomputed, chunks made bare" in said and "chosen" not in said
    assert "chosen" not in cards.render(
        Card(mode=Mode.BLEND, phase=Phase.DONE, trace=none, full=comparison.trace(Mode.FULL))
    )
