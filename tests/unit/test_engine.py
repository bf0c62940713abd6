"""The engine on a tiny random model: every mode, the store behind it, cancelling, and what it refuses."""

from __future__ import annotations

import threading

import pytest
import torch

from cacheblend.cancel import Cancelled
from cacheblend.documents import Chunk
from cacheblend.engine import Engine
from cacheblend.events import Compared, Finished, FirstToken, Started, TextDelta
from cacheblend.inspection import store_attention
from cacheblend.loading import StoreConfig
from cacheblend.metrics import word_f1
from cacheblend.prompt import PromptTooLongError
from cacheblend.recording import from_json, to_json
from cacheblend.retrieval import Hit
from cacheblend.trace import COMPARED, ON_CHUNKS, ON_REPLIES, Comparison, Lane, Mode, SegmentKind
from tests import reference
from tests.tiny import random_ids, tiny, tiny_tokenizer

QUESTION = "who lit it ?"


@pytest.fixture
def engine() -> Engine:
    return Engine(tiny("llama"), tiny_tokenizer(), name="tiny", store=StoreConfig(memory_bytes=10**7))


@pytest.fixture
def hits() -> list[Hit]:
    return [Hit(Chunk(f"doc{i}.txt", 0, "…", tuple(random_ids(20 + i, 40 + i))), 0.9 - i / 10) for i in range(4)]


def compare(engine: Engine, hits: list[Hit], **options) -> tuple[list, Comparison]:
    events = list(engine.compare(QUESTION, hits, max_new_tokens=6, **options))
    assert isinstance(events[-1], Compared)
    return events, events[-1].comparison


def test_prefill_full_is_the_models_own_forward(engine):
    prefix, chunks, suffix = random_ids(5, 1), [random_ids(17, 2), random_ids(9, 3)], random_ids(4, 4)
    logits, layers = reference.full_forward(engine.hf_model, [*prefix, *chunks[0], *chunks[1], *suffix])
    for options in ({"mode": "full"}, {"mode": "blend", "ratio": 1.0}, {"ratio": 1.0, "selector": "gradual"}):
        made = engine.prefill(prefix=prefix, chunks=chunks, suffix=suffix, **options)
        torch.testing.assert_close(made.logits, logits[-1], atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(made.layers[3].keys, layers[3][0], atol=1e-5, rtol=1e-4)
    reused = engine.prefill(prefix=prefix, chunks=chunks, suffix=suffix, mode="reuse")
    expected = reference.reuse_forward(engine.hf_model, prefix, chunks, suffix)[0][-1]
    torch.testing.assert_close(reused.logits, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("selector", ["single", "gradual"])
@pytest.mark.parametrize("deviation", ["value", "key", "both"])
def test_prefill_takes_every_selector_and_deviation(engine, selector, deviation):
    chunks = [random_ids(30, 2), random_ids(30, 3)]
    made = engine.prefill(chunks=chunks, suffix=random_ids(4, 4), ratio=0.2, selector=selector, deviation=deviation)
    assert made.kept_per_layer[0] == 60
    assert sum(made.kept_per_layer[1:]) / 4 == pytest.approx(12, abs=1)
    assert made.logits.isfinite().all()


@pytest.mark.parametrize(
    ("bad", "said"), [({"ratio": 1.2}, "ratio"), ({"selector": "best"}, "best"), ({"mode": "magic"}, "magic")]
)
def test_prefill_refuses_wrong_settings(engine, bad, said):
    with pytest.raises(ValueError, match=said):
        engine.prefill(chunks=[[5, 6, 7]], suffix=[8], **bad)


def test_compare_runs_the_modes_in_order_on_the_same_prompt(engine, hits):
    events, comparison = compare(engine, hits, modes=[Mode.BLEND, Mode.REUSE, Mode.FULL])
    assert [e.mode for e in events if isinstance(e, Started)] == [Mode.FULL, Mode.REUSE, Mode.BLEND]
    assert all(any(isinstance(e, kind) for e in events) for kind in (FirstToken, TextDelta, Finished))
    kinds = [s.kind for s in comparison.segments]
    assert kinds == [SegmentKind.PREFIX] + [SegmentKind.CHUNK] * 4 + [SegmentKind.SUFFIX]
    assert "".join(comparison.tokens).count("who lit it") == 1
    full, reuse, blend = (comparison.trace(m) for m in COMPARED)
    assert full.recomputed_tokens == comparison.context_tokens and full.recomputed_share == 1
    assert reuse.recomputed_tokens == 0
    assert blend.recomputed_tokens == round(0.15 * comparison.context_tokens)
    assert (full.fidelity.first_token_kl, full.fidelity.top1_agreement, full.fidelity.f1_to_full) == (0, 1, 1)
    assert reuse.fidelity.first_token_kl > 0
    assert comparison.speedup(Mode.FULL) == 1


def test_every_mode_runs_in_one_comparison(engine, hits):
    events, comparison = compare(engine, hits, modes=reversed(list(Mode)))
    assert [trace.mode for trace in comparison.traces] == list(Mode)
    assert [e.mode for e in events if isinstance(e, FirstToken)] == list(Mode)
    full = comparison.trace(Mode.FULL)
    for trace in comparison.traces:
        assert (trace.fidelity is None) == (trace.mode in ON_REPLIES)
        assert trace.f1_to_full == word_f1(trace.answer, full.answer)
        assert (trace.stored_nbytes is None) == (trace.mode is Mode.FULL or trace.mode in ON_REPLIES)
    alone = {comparison.trace(mode).stored_nbytes for mode in ON_CHUNKS}
    assert alone == {engine.kv_bytes_per_token * comparison.context_tokens}, "each chunk once in each form"


def test_a_missing_cache_is_computed_first_and_said(engine, hits):
    cold = compare(engine, hits, modes=[Mode.REUSE])[1].trace(Mode.REUSE)
    warm = compare(engine, hits, modes=[Mode.REUSE])[1].trace(Mode.REUSE)
    assert not cold.is_warm and sum(s.lane is Lane.PRECOMPUTE for s in cold.spans) == 5
    assert warm.is_warm and Lane.PRECOMPUTE not in warm.ttft_parts
    assert cold.answer_ids == warm.answer_ids
    assert warm.fidelity is None, "nothing to be held against without full"


def test_spans_are_in_order_and_add_up_to_the_first_token(engine, hits):
    engine.precompute([h.chunk for h in hits])
    for trace in compare(engine, hits)[1].traces:
        ends = [s.end_ms for s in trace.spans]
        assert ends == sorted(ends)
        assert all(s.start_ms <= s.end_ms for s in trace.spans)
        assert 0 < sum(trace.ttft_parts.values()) <= trace.ttft_ms
        assert len([s for s in trace.spans if s.lane is Lane.DECODE]) == len(trace.answer_ids) - 1


def test_precompute_counts_what_it_did(engine, hits):
    chunks = [h.chunk for h in hits]
    seen = []
    assert engine.precompute(chunks, progress=lambda done, total: seen.append((done, total))).prefilled == 5
    assert seen[0] == (0, 5) and seen[-1] == (5, 5)
    assert engine.precompute(chunks).prefilled == 0
    assert engine.store.stats[0].entries == 5


def test_answer_streams_the_answer_of_compare(engine, hits):
    pieces = list(engine.answer(QUESTION, hits, mode="reuse", max_new_tokens=6))
    assert "".join(pieces) == compare(engine, hits, modes=[Mode.REUSE])[1].trace(Mode.REUSE).answer


def test_cancelling_stops_between_layers(engine, hits):
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(Cancelled):
        list(engine.compare(QUESTION, hits, cancel=cancel))
    with pytest.raises(Cancelled):
        engine.precompute([h.chunk for h in hits], cancel=cancel)


def test_a_prompt_too_long_says_what_to_drop(engine):
    long = [Hit(Chunk(f"d{i}", 0, "…", tuple(random_ids(150, i))), 0.9 - i / 10) for i in range(4)]
    with pytest.raises(PromptTooLongError, match=r"takes 448.*drop “d3 · 1” \(150 tokens\).*lower .* to 2"):
        engine.plan(QUESTION, long)


def test_an_empty_question_is_refused(engine, hits):
    with pytest.raises(ValueError, match="question is empty"):
        list(engine.compare("  ", hits))


def test_a_store_too_small_for_one_prompt_answers_all_the_same(engine, hits):
    small = Engine(tiny("llama"), tiny_tokenizer(), name="tiny", store=StoreConfig(memory_bytes=60_000))
    done = small.precompute([h.chunk for h in hits])
    assert 0 < done.prefilled < 5 and done.prefilled + done.skipped == 5
    answers = [compare(e, hits, modes=[Mode.BLEND])[1].trace(Mode.BLEND).answer_ids for e in (small, engine)]
    assert answers[0] == answers[1]
    assert small.store.stats[0].nbytes <= 60_000


def test_control_tokens_in_a_question_are_text(engine, hits):
    plan = engine.plan("<end> ignore this", hits)
    assert plan.token_ids.count(engine.tokenizer.eos_token_id) == engine.plan("x", hits).token_ids.count(
        engine.tokenizer.eos_token_id
    )


def test_an_inspected_comparison_round_trips_through_json(engine, hits):
    from dataclasses import replace

    comparison = compare(engine, hits)[1]
    inspection = engine.inspect(QUESTION, hits, max_new_tokens=6)
    with pytest.raises(ValueError, match="store the attention"):
        to_json(replace(comparison, inspection=inspection))
    stored = store_attention(inspection, len(comparison.tokens), size=16)
    text = to_json(replace(comparison, inspection=stored))
    again = from_json(text)
    assert to_json(again) == text
    assert again.traces == comparison.traces and again.segments == comparison.segments
    with pytest.raises(ValueError, match="not a recorded comparison"):
        from_json('{"format": "cacheblend-comparison/1"}')
    with pytest.raises(ValueError, match="not a "):
        from_json('{"format": "something else"}')
