"""What stands in front of a chunk when its cache is made: part of its key, and exact where it is what stands there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from cacheblend.config import PRIME, BlendConfig
from cacheblend.documents import Chunk
from cacheblend.engine import Engine
from cacheblend.evaluation.measure import Measure
from cacheblend.fusion.extend import prefill_chunk
from cacheblend.loading import StoreConfig
from cacheblend.recipes import NUM_SIMILAR, NUM_SINKS, RecipeBook
from cacheblend.retrieval import Hit
from cacheblend.trace import Lane, Mode, Recipe
from tests import reference
from tests.tiny import random_ids, tiny, tiny_tokenizer

SIMPLE = [recipe for recipe in Recipe if recipe is not Recipe.SIMILAR]


class Alike:
    """An embedder for which every text is a direction of its own, the longer the text the nearer to the first."""

    dimension = 2

    def encode(self, texts):
        angles = np.array([len(text) for text in texts], dtype=np.float32) / 10
        return np.stack((np.cos(angles), np.sin(angles)), axis=1)


@pytest.fixture
def engine() -> Engine:
    made = Engine(tiny("llama"), tiny_tokenizer(), name="tiny", store=StoreConfig(memory_bytes=10**8))
    made._embedder = Alike()
    return made


@pytest.fixture
def hits() -> list[Hit]:
    chunks = [Chunk(f"doc{i}.txt", 0, "x" * (3 + i * i), tuple(random_ids(20 + i, 40 + i))) for i in range(4)]
    return [Hit(chunk, 0.5) for chunk in chunks]


def test_a_recipe_leaves_what_the_model_itself_computes_behind_those_tokens(llama):
    front, chunk = random_ids(9, 1), random_ids(14, 2)
    made = prefill_chunk(llama.model, torch.tensor(chunk), recipe=torch.tensor(front))
    _, expected = reference.full_forward(llama.model.hf_model, [*front, *chunk])
    rotary = llama.model.rotary(torch.arange(len(front), len(front) + len(chunk)))
    for layer, (kv, (keys, values)) in enumerate(zip(made, expected, strict=True)):
        placed = llama.model.rotate(layer, kv.keys, rotary)
        torch.testing.assert_close(placed, keys[len(front) :], atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(kv.values, values[len(front) :], atol=1e-5, rtol=1e-4)


def test_one_chunk_behind_the_prefix_it_was_made_behind_is_full_recompute(engine, hits):
    measure = Measure(engine, "who lit it ?", hits[:1], max_new_tokens=4, deviations=True)
    exact = measure.run(Mode.REUSE, BlendConfig(recipe=Recipe.PREFIX)).fidelity
    bare = measure.run(Mode.REUSE).fidelity
    assert exact.mean_kl < 1e-6 and exact.kv_deviation < 1e-4 and exact.attention_deviation < 1e-4
    assert bare.mean_kl > 1e-4 and bare.kv_deviation > 1e-2 and bare.attention_deviation > 1e-3


@pytest.mark.parametrize("recipe", list(Recipe))
def test_caches_of_a_recipe_are_found_again_and_by_no_other(engine, hits, recipe):
    chunks = [hit.chunk for hit in hits]
    assert engine.precompute(chunks, recipe).prefilled == 1 + len(chunks)
    assert engine.precompute(chunks, recipe).prefilled == 0
    other = Recipe.BARE if recipe is not Recipe.BARE else Recipe.NEUTRAL
    assert engine.precompute(chunks, other).prefilled == len(chunks), "the prefix is there already"
    trace = Measure(engine, "who lit it ?", hits, max_new_tokens=2).run(Mode.REUSE, BlendConfig(recipe=recipe))
    assert trace.is_warm and Lane.PRECOMPUTE not in trace.ttft_parts
    assert trace.fidelity.mean_kl > 0


def test_what_each_recipe_puts_in_front():
    book = RecipeBook(tiny_tokenizer(), [5, 6, 7])
    fronts = {recipe: book.front(recipe, (9, 9)) for recipe in SIMPLE}
    assert fronts[Recipe.BARE] == ()
    assert fronts[Recipe.SINKS] == (tiny_tokenizer().bos_token_id,) * NUM_SINKS
    assert fronts[Recipe.PREFIX] == (5, 6, 7)
    assert fronts[Recipe.NEUTRAL][:3] == (5, 6, 7) and len(fronts[Recipe.NEUTRAL]) > 200


def test_similar_chunks_stand_in_front_the_most_similar_nearest():
    book = RecipeBook(tiny_tokenizer(), [5])
    chunks = [(10,), (20,), (30,), (40,), (10,)]  # the last is the first again
    angles = np.array([0.0, 0.3, 0.1, 1.0, 0.0])
    book.learn(chunks, np.stack((np.cos(angles), np.sin(angles)), axis=1).astype(np.float32))
    assert NUM_SIMILAR == 2
    assert book.front(Recipe.SIMILAR, (10,)) == (5, 20, 30)
    assert book.front(Recipe.SIMILAR, (40,)) == (5, 30, 20)
    book.learn([(10,), (40,)], np.eye(2, dtype=np.float32))
    assert book.front(Recipe.SIMILAR, (10,)) == (5, 20, 30), "a chunk's key must not change"
    with pytest.raises(ValueError, match="precompute the collection"):
        book.front(Recipe.SIMILAR, (50,))


def test_a_single_chunk_has_nothing_similar_but_the_prefix():
    book = RecipeBook(tiny_tokenizer(), [5])
    book.learn([(10,)], np.ones((1, 1), dtype=np.float32))
    assert book.front(Recipe.SIMILAR, (10,)) == (5,)


def test_a_recipe_too_long_for_the_model_is_refused_in_a_sentence(engine):
    chunk = Chunk("long.txt", 0, "x", tuple(random_ids(400, 1)))
    with pytest.raises(ValueError, match="longer than the 512 the model takes"):
        engine.precompute([chunk], Recipe.NEUTRAL)


def test_primeblend_is_the_same_as_blend_with_its_settings(engine, hits):
    measure = Measure(engine, "who lit it ?", hits, max_new_tokens=4)
    mine = measure.run(Mode.PRIME, BlendConfig(ratio=0.3))
    same = measure.run(Mode.BLEND, replace(PRIME, ratio=0.3))
    plain = measure.run(Mode.BLEND, BlendConfig(ratio=0.3, policy=PRIME.policy, recipe=PRIME.recipe))
    assert mine.fidelity == same.fidelity != plain.fidelity
    assert mine.policy == same.policy != plain.policy
    assert mine.recomputed_share == pytest.approx(0.3, abs=0.01)
    assert Lane.SELECT in mine.ttft_parts


def test_inspection_follows_policy_and_recipe(engine, hits):
    blend = BlendConfig(ratio=0.2, policy="query", recipe=Recipe.NEUTRAL)
    looked = engine.inspect("who lit it ?", hits, blend=blend, max_new_tokens=4)
    measure = Measure(engine, "who lit it ?", hits, max_new_tokens=4, deviations=True)
    front = measure.plan.context_tokens
    for mode in (Mode.REUSE, Mode.BLEND):
        seen = looked.kv_deviation[mode][:, :front].mean()
        assert float(seen) == pytest.approx(measure.run(mode, blend).fidelity.kv_deviation, rel=0.02)
    counts = looked.selected[:, :front].sum(axis=1)
    assert set(counts.tolist()) == {round(0.2 * front)}, "chosen before the first layer"
