"""Recipe “similar” for several tenants of one engine: nobody's text stands in front of another's chunk."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cacheblend.config import BlendConfig
from cacheblend.documents import Chunk
from cacheblend.engine import Engine
from cacheblend.evaluation.measure import Measure
from cacheblend.kv.encoded import materialise
from cacheblend.loading import StoreConfig
from cacheblend.recipes import RecipeBook
from cacheblend.retrieval import Hit
from cacheblend.trace import Mode, Recipe
from tests import reference
from tests.tiny import random_ids, tiny, tiny_tokenizer

SIMPLE = [recipe for recipe in Recipe if recipe is not Recipe.SIMILAR]
SHARED = tuple(random_ids(21, 1))  # both tenants uploaded this


class Nearest:
    """An embedder that finds texts more alike the nearer their lengths."""

    dimension = 2

    def encode(self, texts):
        angles = np.array([len(text) for text in texts], dtype=np.float32) / 50
        return np.stack((np.cos(angles), np.sin(angles)), axis=1)


def documents(whose: str, seed: int) -> list[Chunk]:
    """The chunk that everybody has, and two of one's own."""
    own = [Chunk(f"{whose}.txt", i, "x" * (2 + i), tuple(random_ids(18 + i, seed + i))) for i in range(2)]
    return [Chunk("shared.txt", 0, "x", SHARED), *own]


ADA, BEN = documents("ada", 10), documents("ben", 20)


@pytest.fixture
def engine() -> Engine:
    made = Engine(tiny("llama"), tiny_tokenizer(), name="tiny", store=StoreConfig(memory_bytes=10**8))
    made._embedder = Nearest()
    return made


def texts(chunks: list[Chunk]) -> set[tuple[int, ...]]:
    return {chunk.token_ids for chunk in chunks}


def behind(engine: Engine, token_ids: tuple[int, ...]) -> torch.Tensor:
    """The values of the last layer, as the store has them for a chunk behind what its tenant has that is similar."""
    front = engine.recipes.front(Recipe.SIMILAR, token_ids)
    stored = engine.store.get(engine.caches.key(token_ids, front), token_ids)
    assert stored is not None
    return materialise(stored).layers[-1].values


def expected(engine: Engine, front: tuple[int, ...], token_ids: tuple[int, ...]) -> torch.Tensor:
    """The same by transformers' own forward over both."""
    _, layers = reference.full_forward(engine.hf_model, [*front, *token_ids])
    return layers[-1][1][len(front) :]


def test_the_same_chunk_of_two_tenants_stands_behind_their_own_texts_alone(engine):
    ada, ben = engine.of("ada"), engine.of("ben")
    prefix = tuple(engine.prompts.prefix)
    for one, own, others in ((ada, ADA, BEN), (ben, BEN, ADA)):
        one.precompute(own, Recipe.SIMILAR)
        alike = one.recipes.similar(SHARED)
        assert set(alike) == texts(own) - {SHARED} and not set(alike) & (texts(others) - {SHARED})
        front = (*prefix, *(token for ids in alike for token in ids))
        assert one.recipes.front(Recipe.SIMILAR, SHARED) == front
        torch.testing.assert_close(behind(one, SHARED), expected(one, front, SHARED), atol=1e-5, rtol=1e-4)
    assert not torch.allclose(behind(ada, SHARED), behind(ben, SHARED), atol=1e-2), "what was in front shows in the KV"


def test_nobody_learns_from_another_tenant_or_from_the_engine_they_share(engine):
    engine.precompute(ADA, Recipe.SIMILAR)
    for other in (engine.of("ben"), engine.of("")):
        assert not other.recipes.compared and not other.recipes.knows(SHARED)
        assert other.recipes.similar(SHARED) == ()
        with pytest.raises(ValueError, match="precompute the collection"):
            other.recipes.front(Recipe.SIMILAR, SHARED)
    engine.of("ben").precompute(BEN, Recipe.SIMILAR)
    assert set(engine.recipes.compared) == texts(ADA)


def test_a_question_over_similar_chunks_needs_ones_own_to_be_compared(engine):
    engine.of("ada").precompute(ADA, Recipe.SIMILAR)
    ben, blend = engine.of("ben"), BlendConfig(recipe=Recipe.SIMILAR)
    hits = [Hit(chunk, 0.5) for chunk in BEN]
    with pytest.raises(ValueError, match="precompute the collection"):
        list(ben.compare("who lit it ?", hits, modes=[Mode.REUSE], blend=blend, max_new_tokens=2))
    measure = Measure(ben, "who lit it ?", hits, max_new_tokens=2)
    first = measure.run(Mode.REUSE, blend)
    assert first.is_warm
    alone = Engine(engine.hf_model, engine.tokenizer, name="tiny", store=StoreConfig(memory_bytes=10**8))
    alone._embedder = Nearest()
    apart = Measure(alone, "who lit it ?", hits, max_new_tokens=2).run(Mode.REUSE, blend)
    assert first.fidelity == apart.fidelity, "as if there were nobody else"


def test_what_is_known_of_a_tenants_chunks_can_be_carried_on(engine):
    engine.of("ada").precompute(ADA, Recipe.SIMILAR)
    known = engine.recipes.blank()
    first = engine.of("ada", known)
    assert first.precompute(ADA, Recipe.SIMILAR).prefilled == 0, "the caches of the tenant are found again"
    again = engine.of("ada", known)
    assert again.recipes is known and set(again.recipes.compared) == texts(ADA)
    assert engine.of("ben").precompute(ADA, Recipe.SIMILAR).prefilled == 1 + len(ADA), "by nobody else"


def test_a_blank_book_has_the_same_recipes_and_knows_no_chunks():
    book = RecipeBook(tiny_tokenizer(), [5, 6])
    book.learn([(10,), (20,)], np.eye(2, dtype=np.float32))
    blank = book.blank()
    assert not blank.compared and set(book.compared) == {(10,), (20,)}
    assert all(blank.front(recipe, (10,)) == book.front(recipe, (10,)) for recipe in SIMPLE)
    blank.learn([(10,), (30,)], np.eye(2, dtype=np.float32))
    assert blank.similar((10,)) == ((30,),) and book.similar((10,)) == ((20,),)
    blank.forget()
    assert not blank.compared and book.similar((10,)) == ((20,),), "one forgets, the other does not"


def test_what_was_removed_stands_in_front_of_nothing_that_is_learned_afterwards():
    book = RecipeBook(tiny_tokenizer(), [5])
    chunks, angles = [(10,), (20,), (30,), (40,)], np.array([0.0, 0.1, 0.2, 0.9])
    vectors = np.stack((np.cos(angles), np.sin(angles)), axis=1).astype(np.float32)
    book.learn(chunks, vectors)
    assert book.similar((10,)) == ((30,), (20,)) and (20,) in book.similar((30,))
    book.forget()
    assert not book.compared and book.similar((10,)) == ()
    left = [0, 2, 3]  # without (20,)
    book.learn([chunks[i] for i in left], vectors[left])
    assert book.similar((10,)) == ((40,), (30,))
    assert not any((20,) in book.similar(ids) for ids in book.compared) and not book.knows((20,))


def test_only_the_chunks_that_are_wanted_are_noted_and_all_are_looked_through():
    book = RecipeBook(tiny_tokenizer(), [5])
    angles = np.array([0.0, 0.3, 0.1])
    vectors = np.stack((np.cos(angles), np.sin(angles)), axis=1).astype(np.float32)
    book.learn([(10,), (20,), (30,)], vectors, wanted={(10,)})
    assert set(book.compared) == {(10,)} and book.similar((10,)) == ((20,), (30,))
