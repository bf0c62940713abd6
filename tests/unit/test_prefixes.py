"""Prefix caching: exact whatever was stored, kept without a second prefill, found wherever prompts begin alike."""

from __future__ import annotations

from itertools import accumulate

import pytest
import torch

from cacheblend import caches
from cacheblend.documents import Chunk
from cacheblend.engine import Engine
from cacheblend.events import Compared
from cacheblend.loading import LoadConfig, LoadOrder, StoreConfig
from cacheblend.prefixes import UNIT_TOKENS, cut, prefill_units, unit_keys
from cacheblend.prompt import PromptPlan
from cacheblend.retrieval import Hit
from cacheblend.run import Run
from cacheblend.trace import Mode
from tests import reference
from tests.tiny import random_ids, tiny, tiny_tokenizer

EXACT = {"atol": 1e-5, "rtol": 1e-4}
SYSTEM, FIRST, SECOND, THIRD = random_ids(30, 1), random_ids(150, 2), random_ids(40, 3), random_ids(50, 4)
SUFFIX = random_ids(7, 5)


def tiny_engine(family: str = "llama", memory_bytes: int = 10**7) -> Engine:
    return Engine(tiny(family), tiny_tokenizer(), name="tiny", store=StoreConfig(memory_bytes=memory_bytes))


@pytest.fixture
def engine() -> Engine:
    return tiny_engine()


def prefill(engine: Engine, *chunks, loading: LoadConfig | None = None, suffix=SUFFIX):
    """A prefix run over the system prefix and these chunks, held against transformers' own forward."""
    made = engine.prefill(prefix=SYSTEM, chunks=chunks, suffix=suffix, mode="prefix", loading=loading or LoadConfig())
    logits, layers = reference.full_forward(engine.hf_model, [*SYSTEM, *(t for c in chunks for t in c), *suffix])
    torch.testing.assert_close(made.logits, logits[-1], **EXACT)
    for ours, (keys, values) in zip(made.layers, layers, strict=True):
        torch.testing.assert_close(ours.keys, keys, **EXACT)
        torch.testing.assert_close(ours.values, values, **EXACT)
    return made


def computed(made) -> int:
    """Context tokens that were not found."""
    assert len(set(made.kept_per_layer)) == 1
    return made.kept_per_layer[0]


@pytest.mark.parametrize("order", list(LoadOrder))
@pytest.mark.parametrize("family", ["llama", "qwen3", "smollm3", "phi3"])
def test_a_prefix_run_is_full_recompute_however_much_is_stored(family, order):
    engine, loading = tiny_engine(family), LoadConfig(order=order, compute_chunk=64)
    cold = prefill(engine, FIRST, SECOND, loading=loading)
    if order is LoadOrder.LAYERWISE:
        assert computed(cold) == 220 and not cold.is_warm
        same_first = prefill(engine, FIRST, THIRD, loading=loading)
        assert computed(same_first) == len(THIRD), "system prefix and first chunk are found whatever follows"
        assert computed(prefill(engine, SECOND, FIRST, loading=loading)) == 190, (
            "of another first chunk only the system"
        )
        again = prefill(engine, FIRST, SECOND, loading=loading, suffix=random_ids(3, 6))
        assert computed(again) == 0 and again.is_warm
        return
    for chunks in ((FIRST, SECOND), (FIRST, THIRD), (SECOND, FIRST)):
        prefill(engine, *chunks, loading=loading)
    units = len(engine.store.tiers[0])
    assert prefill(engine, FIRST, THIRD, loading=loading).is_warm, "and either order keeps what it computed"
    assert len(engine.store.tiers[0]) == units


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("order", list(LoadOrder))
def test_what_is_kept_has_the_bits_of_the_run(order, dtype, monkeypatch):
    """Of its own K and V, and of `prefill_units` over as many rows (of another number a kernel may round otherwise)."""
    engine = Engine(_in(dtype), tiny_tokenizer(), name="tiny", store=StoreConfig(memory_bytes=10**7))
    plan = PromptPlan.of(SYSTEM, [FIRST, SECOND], SUFFIX)
    with monkeypatch.context() as held:
        held.setattr(caches, "prefill_chunk", lambda *args, **options: pytest.fail("a second prefill"))
        held.setattr(caches, "prefill_units", lambda *args, **options: pytest.fail("a second prefill"))
        made = engine.prefill_prefix(plan, loading=LoadConfig(order=order))
        assert len(engine.store.tiers[0]) == 0, "nothing is stored while somebody waits"
        spans = made.spans.spans()
        engine.keep(plan, made)
        assert made.spans.spans() == spans, "and keeping is no part of the run"
    found = engine.caches.find_prefix(plan, made.spans)
    assert [unit.num_tokens for unit in found.chunks] == [30, 128, 22, 40]
    borders = list(accumulate((30, 150, 40)))
    fingerprint = engine.caches._fingerprint
    expected = prefill_units(engine.model, fingerprint, plan.token_ids, borders=borders)[:-1]
    rotary = engine.model.rotary(torch.arange(220))
    start = 0
    for kept, alone in zip(found.chunks, expected, strict=True):
        assert kept.key == alone.key and kept.token_ids == alone.token_ids
        stop = start + kept.num_tokens
        for layer in range(engine.model.num_layers):
            ours, theirs, run = kept.layers[layer], alone.layers[layer], made.layers[layer].rows(start, stop)
            assert torch.equal(engine.model.rotate(layer, ours.keys, rotary.at(slice(start, stop))), run.keys)
            assert torch.equal(ours.values, run.values)
            assert ours.keys.untyped_storage().nbytes() == ours.keys.nbytes, "an evicted unit frees its memory"
            assert torch.equal(ours.keys, theirs.keys) and torch.equal(ours.values, theirs.values)
        start = stop


def _in(dtype: torch.dtype):
    import copy

    return copy.deepcopy(tiny("llama")).to(dtype)


def test_bytes_are_counted_once_for_each_beginning(engine):
    """A chunk behind another first chunk is stored again: the price of prefix caching. Chunks alone are stored once."""
    per_token = engine.kv_bytes_per_token

    def traced(mode: Mode, *chunks):
        run = Run(
            engine, _asked(engine, chunks), mode, blend=_blend(), loading=LoadConfig(), max_new_tokens=3, cancel=None
        )
        list(run.events(None))
        return run.trace, run.plan

    prefix_tokens = len(engine.prompts.prefix)
    stored = []
    for chunks, new in (((FIRST, SECOND), 190), ((SECOND, FIRST), 190), ((FIRST, SECOND), 0), ((FIRST, THIRD), 50)):
        trace, plan = traced(Mode.PREFIX, *chunks)
        assert trace.stored_nbytes == per_token * plan.context_tokens
        stored.append(trace.stored_new_nbytes)
        expected = new + (prefix_tokens if len(stored) == 1 else 0)
        assert trace.stored_new_nbytes == per_token * expected
        assert trace.recomputed_tokens == expected and trace.is_warm == (expected == 0)
    assert engine.store.stats[0].nbytes == sum(stored)
    alone = tiny_engine()
    engine = alone
    for chunks, new in (((FIRST, SECOND), 190 + prefix_tokens), ((SECOND, FIRST), 0), ((FIRST, FIRST), 0)):
        trace, plan = traced(Mode.REUSE, *chunks)
        assert trace.stored_new_nbytes == per_token * new
        assert trace.stored_nbytes == per_token * (prefix_tokens + sum(len(c) for c in {tuple(c) for c in chunks}))
    assert traced(Mode.FULL, FIRST)[0].stored_nbytes is None


def _blend():
    from cacheblend.config import BlendConfig

    return BlendConfig()


def _asked(engine: Engine, chunks) -> PromptPlan:
    hits = [Hit(Chunk(f"{i}.txt", 0, "…", tuple(ids)), 0.5) for i, ids in enumerate(chunks)]
    return engine.plan("who lit it ?", hits, max_new_tokens=3)


def test_units_behind_a_gap_are_not_found_and_are_closed_again(engine):
    plan = PromptPlan.of(SYSTEM, [FIRST, SECOND], SUFFIX)
    prefill(engine, FIRST, SECOND)
    keys = engine.caches.units(plan)[0]
    engine.store.remove(keys[1])
    made = prefill(engine, FIRST, SECOND)
    assert computed(made) == 190, "two units are still there, and no use behind the gap"
    assert all(key in engine.store for key in keys)
    assert prefill(engine, FIRST, SECOND).is_warm


def test_a_store_too_small_keeps_the_beginning(engine):
    room = engine.kv_bytes_per_token * 170
    small = tiny_engine(memory_bytes=room)
    assert computed(prefill(small, FIRST, SECOND)) == 220
    assert computed(prefill(small, FIRST, SECOND)) == 220 - 30 - 128, "what does not fit is its end"
    assert small.store.stats[0].evictions == 0


def test_of_a_prefix_the_end_is_evicted_first(engine):
    """Where its beginning went first, nothing of it could be found any more."""
    small = tiny_engine(memory_bytes=engine.kv_bytes_per_token * (220 + 40))
    prefill(small, FIRST, SECOND)
    prefill(small, FIRST, SECOND)
    small.precompute([Chunk("other.txt", 0, "…", tuple(random_ids(60, 9)))])
    assert 0 < small.store.stats[0].evictions < 4
    assert computed(prefill(small, FIRST, SECOND)) < 190


def test_what_was_computed_behind_a_lossy_copy_is_not_kept(engine):
    prefill(engine, FIRST)
    before = len(engine.store.tiers[0])
    engine.prefill(
        prefix=SYSTEM, chunks=[FIRST, SECOND], suffix=SUFFIX, mode="prefix", loading=LoadConfig(codec="int8")
    )
    assert len(engine.store.tiers[0]) == before
    assert computed(prefill(engine, FIRST, SECOND)) == len(SECOND)


def test_nobody_finds_what_another_tenant_stored(engine):
    prefill(engine.of("one"), FIRST)
    assert computed(prefill(engine.of("two"), FIRST)) == 180
    assert prefill(engine.of("one"), FIRST).is_warm


def test_chunk_caches_of_the_bare_system_prefix_serve_as_its_first_unit(engine):
    engine.precompute([])
    trace_plan = _asked(engine, [SECOND])
    made = engine.prefill_plan(trace_plan, Mode.PREFIX)
    assert computed(made) == len(SECOND)


@pytest.mark.parametrize("borders", [(), (30, 180), (128,), (1, 2, 3), (199, 200)])
def test_units_end_at_borders_and_after_so_many_tokens(borders):
    ids = random_ids(200, 1)
    units = cut(ids, 64, borders)
    assert [token for unit in units for token in unit] == ids
    stops = list(accumulate(len(unit) for unit in units))
    assert set(borders) <= set(stops) and max(len(unit) for unit in units) <= 64
    for unit, stop in zip(units, stops, strict=True):
        assert len(unit) == 64 or stop in (*borders, 200), "and nowhere else"
    assert cut([], 64) == []
    assert len(unit_keys("model", ids, 64, borders=borders)) == len(units)


def test_prompts_that_begin_alike_share_the_units_of_what_they_share():
    def keys(*chunks):
        ids = [*SYSTEM, *(t for c in chunks for t in c)]
        return unit_keys("model", ids, UNIT_TOKENS, borders=list(accumulate((30, *map(len, chunks)))))

    assert [a == b for a, b in zip(keys(FIRST, SECOND), keys(FIRST, THIRD), strict=True)] == [True] * 3 + [False]
    assert keys(FIRST, SECOND)[0] == keys(SECOND, FIRST)[0]
    assert not set(keys(FIRST, SECOND)[1:]) & set(keys(SECOND, FIRST)[1:])


def test_a_comparison_holds_prefix_caching_against_full(engine):
    hits = [Hit(Chunk(f"d{i}", 0, "…", tuple(ids)), 0.5) for i, ids in enumerate((FIRST, SECOND))]
    for is_warm in (False, True):
        events = list(engine.compare("who lit it ?", hits, modes=[Mode.FULL, Mode.PREFIX], max_new_tokens=5))
        assert isinstance(events[-1], Compared)
        full, prefix = events[-1].comparison.traces
        assert prefix.answer_ids == full.answer_ids and prefix.is_warm is is_warm
        assert prefix.fidelity.mean_kl == pytest.approx(0, abs=1e-6) and prefix.fidelity.top1_agreement == 1
