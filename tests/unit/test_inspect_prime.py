"""Looking into PrimeBlend: the rows it computed, and distances that a timed run measures too."""

from __future__ import annotations

import numpy as np
import pytest

from cacheblend.config import PRIME, BlendConfig
from cacheblend.documents import Chunk
from cacheblend.engine import Engine
from cacheblend.evaluation.measure import Measure
from cacheblend.inspection import store_attention
from cacheblend.loading import StoreConfig
from cacheblend.retrieval import Hit
from cacheblend.trace import Inspection, Mode, SegmentKind
from tests.tiny import random_ids, tiny, tiny_tokenizer

QUESTION = "who lit it ?"
BLEND = BlendConfig(ratio=0.2)


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(tiny("llama"), tiny_tokenizer(), name="tiny", store=StoreConfig(memory_bytes=10**8))


@pytest.fixture(scope="module")
def hits() -> list[Hit]:
    return [Hit(Chunk(f"doc{i}.txt", 0, "…", tuple(random_ids(20 + i, 40 + i))), 0.9 - i / 10) for i in range(4)]


@pytest.fixture(scope="module")
def measure(engine, hits) -> Measure:
    return Measure(engine, QUESTION, hits, max_new_tokens=4, deviations=True)


@pytest.fixture(scope="module")
def looked(engine, hits) -> Inspection:
    return engine.inspect(QUESTION, hits, mode=Mode.PRIME, blend=BLEND, max_new_tokens=4)


def test_it_is_primeblend_that_was_looked_into(looked):
    assert looked.fused is Mode.PRIME and looked.modes == (Mode.FULL, Mode.REUSE, Mode.PRIME)
    assert set(looked.kv_deviation) == set(looked.attention_deviation) == {Mode.REUSE, Mode.PRIME}


def test_the_question_and_the_asked_share_of_the_context_were_computed_in_every_layer(looked, measure):
    front = measure.plan.context_tokens
    assert set(looked.selected[:, :front].sum(axis=1).tolist()) == {round(0.2 * front)}, "chosen before the first layer"
    assert looked.selected[:, front:].all()
    assert (looked.selected == looked.selected[0]).all(), "the same rows everywhere"
    first = next(s for s in measure.plan.segments if s.kind is SegmentKind.PREFIX)
    assert not looked.selected[:, first.start : first.stop].any(), "the prefix is exact already"


def test_distances_are_those_of_a_timed_run(looked, measure):
    front = measure.plan.context_tokens
    primed = measure.run(Mode.REUSE, BlendConfig(recipe=PRIME.recipe)).fidelity.kv_deviation
    fused = measure.run(Mode.PRIME, BLEND).fidelity.kv_deviation
    for mode, measured in ((Mode.REUSE, primed), (Mode.PRIME, fused)):
        assert measured > 0.01
        assert float(looked.kv_deviation[mode][:, :front].mean()) == pytest.approx(measured, rel=0.02)
    bare = measure.run(Mode.REUSE).fidelity.kv_deviation
    assert bare != pytest.approx(primed, rel=0.005), "the recipe makes a difference here"


def test_the_question_is_seen_to_attend_to_the_prompt_and_a_reused_row_to_its_own_chunk(looked, measure):
    length, front = measure.plan.num_tokens, measure.plan.context_tokens
    whole = (0, length)
    for layer in (0, 3):
        seen = looked.attention.window(Mode.PRIME, layer, None, rows=whole, cols=whole, size=length).values
        np.testing.assert_allclose(np.nansum(seen, axis=1), 1, atol=1e-4)
        last = [s for s in measure.plan.segments if s.kind is SegmentKind.CHUNK][-1]
        for row in range(last.start, last.stop):
            outside = float(np.nansum(seen[row, : last.start]))
            assert (outside > 0) == bool(looked.selected[layer, row])
        assert (seen[front:, :front] > 0).all()


def test_its_maps_can_be_written_down(looked, measure):
    stored = store_attention(looked, measure.plan.num_tokens, size=8)
    assert set(stored.attention.maps) == set(looked.modes) and stored.fused is Mode.PRIME
