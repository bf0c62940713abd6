"""The in-memory store: least recently used goes first, the bound in bytes always holds."""

from __future__ import annotations

from collections import OrderedDict

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cacheblend.kv import ChunkKey, ChunkKV, LayerKV
from cacheblend.store import MemoryStore, StoreFullError

BYTES_PER_TOKEN = 2 * 2 * 4 * 2  # K and V, two KV heads, head_dim 4, bfloat16


def entry(name: int, num_tokens: int = 4) -> ChunkKV:
    ids = tuple([name] * num_tokens)
    tensor = torch.randn(num_tokens, 2, 4).to(torch.bfloat16)
    return ChunkKV(ChunkKey.of("model", ids), ids, (LayerKV(tensor, tensor + 1),))


def test_an_entry_comes_back_with_its_bits():
    store, made = MemoryStore(10_000), entry(1)
    expected = made.layers[0].keys.clone()
    store.put(made)
    found = store.get(made.key, made.token_ids)
    assert found is not None and torch.equal(found.layers[0].keys, expected)


def test_a_hit_is_verified_by_token_ids():
    store, made = MemoryStore(10_000), entry(1)
    store.put(made)
    assert store.get(made.key, (9, 9, 9, 9)) is None
    assert (store.stats.hits, store.stats.misses) == (0, 1)


def test_keys_differ_by_model_recipe_and_borders():
    keys = {
        ChunkKey.of("m", (1, 2, 3)),
        ChunkKey.of("n", (1, 2, 3)),
        ChunkKey.of("m", (1, 2, 3), recipe=(7,)),
        ChunkKey.of("m", (2, 3), recipe=(1,)),
        ChunkKey.of("m", (3,), recipe=(1, 2)),
    }
    assert len(keys) == 5
    assert ChunkKey.of("m", [1, 2, 3]) == ChunkKey.of("m", (1, 2, 3))


def test_pinned_entries_stay():
    one, two, three = entry(1), entry(2), entry(3)
    store = MemoryStore(one.nbytes * 2)
    store.put(one)
    store.put(two)
    store.put(three, pinned=[one.key])
    assert one.key in store and three.key in store and two.key not in store
    with pytest.raises(StoreFullError):
        store.put(entry(4), pinned=[one.key, three.key])
    assert one.key in store and three.key in store, "a refusal loses nothing"


def test_a_useless_capacity_is_refused():
    with pytest.raises(ValueError, match="capacity"):
        MemoryStore(0)


@settings(max_examples=60, deadline=None)
@given(
    capacity=st.integers(4, 30),
    steps=st.lists(st.tuples(st.booleans(), st.integers(0, 7), st.integers(1, 6)), max_size=60),
)
def test_it_is_an_lru_bounded_in_bytes(capacity, steps):
    """Against a naive model: names in order of last use."""
    store = MemoryStore(capacity * BYTES_PER_TOKEN)
    model: OrderedDict[tuple[int, ...], int] = OrderedDict()
    for is_put, name, num_tokens in steps:
        made = entry(name, num_tokens)
        if is_put and num_tokens <= capacity:
            model.pop(made.token_ids, None)
            while sum(model.values()) + num_tokens > capacity:
                model.popitem(last=False)
            model[made.token_ids] = num_tokens
            store.put(made)
        elif not is_put:
            assert (store.get(made.key, made.token_ids) is not None) == (made.token_ids in model)
            if made.token_ids in model:
                model.move_to_end(made.token_ids)
        assert store.nbytes == sum(model.values()) * BYTES_PER_TOKEN <= store.capacity
        assert len(store) == len(model)
