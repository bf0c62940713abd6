"""The store over several tiers: who is evicted, where it goes, what is counted. Law 9."""

from __future__ import annotations

from collections import OrderedDict

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cacheblend.kv import ChunkKey, ChunkKV, ChunkLostError, LayerKV
from cacheblend.loading import Place
from cacheblend.store import Happening, MemoryTier, Store, StoreFullError, TierFullError

BYTES_PER_TOKEN = 2 * 2 * 4 * 2  # K and V, two KV heads, head_dim 4, bfloat16


def entry(name: int, num_tokens: int = 4) -> ChunkKV:
    ids = tuple([name] * num_tokens)
    tensor = torch.randn(num_tokens, 2, 4, generator=torch.Generator().manual_seed(name)).to(torch.bfloat16)
    return ChunkKV(ChunkKey.of("model", ids), ids, (LayerKV(tensor, tensor + 1),))


def tier(tokens: int, place: Place = Place.MEMORY) -> MemoryTier:
    """Room for so many tokens; a place other than memory only says how the store treats it."""
    made = MemoryTier(tokens * BYTES_PER_TOKEN)
    made.place = place
    return made


def held(store: Store, level: int) -> list[tuple[int, ...]]:
    """Token ids in one tier, least recently used first."""
    return [store.tiers[level].take(e.key).token_ids for e in store.tiers[level].entries()]


def test_an_entry_comes_back_with_its_bits():
    store, made = Store([tier(100)]), entry(1)
    expected = made.layers[0].keys.clone()
    store.put(made)
    found = store.get(made.key, made.token_ids)
    out = found.empty_layer()
    assert found.fetch(0, out) is None
    assert torch.equal(out.keys, expected) and out.keys.data_ptr() != made.layers[0].keys.data_ptr()


def test_a_hit_is_verified_by_token_ids():
    store, made = Store([tier(100)]), entry(1)
    store.put(made)
    assert store.get(made.key, (9, 9, 9, 9)) is None
    assert (store.stats[0].hits, store.stats[0].misses) == (0, 1)


def test_keys_differ_by_model_recipe_tenant_and_borders():
    keys = {
        ChunkKey.of("m", (1, 2, 3)),
        ChunkKey.of("n", (1, 2, 3)),
        ChunkKey.of("m", (1, 2, 3), recipe=(7,)),
        ChunkKey.of("m", (2, 3), recipe=(1,)),
        ChunkKey.of("m", (3,), recipe=(1, 2)),
        ChunkKey.of("m", (1, 2, 3), tenant="somebody"),
        ChunkKey.of("m", (1, 2, 3), tenant="somebody else"),
    }
    assert len(keys) == 7
    assert ChunkKey.of("m", [1, 2, 3]) == ChunkKey.of("m", (1, 2, 3))


def test_pinned_entries_stay():
    one, two, three = entry(1), entry(2), entry(3)
    store = Store([tier(8)])
    store.put(one)
    store.put(two)
    with store.pinned([one.key]):
        store.put(three)
        assert one.key in store and three.key in store and two.key not in store
        with store.pinned([one.key, three.key]), pytest.raises(StoreFullError, match="raise its size"):
            store.put(entry(4))
        assert one.key in store and three.key in store, "a refusal loses nothing"
        store.put(entry(4))
        assert one.key in store, "held once more, let go once"
    store.put(entry(5))
    assert one.key not in store


def test_what_leaves_a_tier_goes_down_and_a_hit_brings_it_back():
    store = Store([tier(8), tier(100, Place.DISK)])
    chunks = [entry(name) for name in range(3)]
    for chunk in chunks:
        store.put(chunk)
    assert held(store, 0) == [chunks[1].token_ids, chunks[2].token_ids]
    assert store.where(chunks[0].key) == (Place.DISK,)
    assert store.stats[0].demotions == store.stats[0].evictions == 1
    assert store.get(chunks[0].key, chunks[0].token_ids) is not None
    assert store.where(chunks[0].key) == (Place.DISK,), "nobody is kept waiting for a promotion"
    store.settle()
    assert store.where(chunks[0].key) == (Place.MEMORY, Place.DISK)
    assert (store.stats[1].hits, store.stats[0].promotions) == (1, 1)
    assert held(store, 0) == [chunks[2].token_ids, chunks[0].token_ids]


def test_new_entries_are_written_down_when_the_store_settles():
    store, made = Store([tier(8), tier(100, Place.DISK), tier(100, Place.REMOTE)]), entry(1)
    store.put(made)
    assert store.where(made.key) == (Place.MEMORY,)
    store.settle()
    assert store.where(made.key) == (Place.MEMORY, Place.DISK, Place.REMOTE)


def test_an_entry_too_large_for_a_tier_goes_to_the_next():
    store, large = Store([tier(4), tier(100, Place.DISK)]), entry(1, 10)
    small = entry(2)
    store.put(small)
    store.put(large)
    assert store.where(large.key) == (Place.DISK,) and store.where(small.key)[0] is Place.MEMORY
    with pytest.raises(StoreFullError):
        store.put(entry(3, 101))


class Refusing(MemoryTier):
    def put(self, prepared) -> None:
        raise TierFullError("no space left on device")


def test_a_tier_that_refuses_costs_nobody_anything():
    refusing = Refusing(10_000)
    refusing.place = Place.DISK
    store, made = Store([tier(4), refusing]), entry(1)
    store.put(made)
    store.settle()
    assert store.where(made.key) == (Place.MEMORY,)
    store.put(entry(2))
    assert made.key not in store and store.stats[0].evictions == 1 and store.stats[0].demotions == 0
    assert [e.what for e in store.events].count(Happening.REFUSED) == 2


class Forgetful(ChunkKV):
    def fetch(self, layer, out):
        raise ChunkLostError(self.key, layer, "gone")


def test_what_is_lost_is_dropped_and_counted():
    store, made = Store([tier(8), tier(100, Place.DISK)]), entry(1)
    store.tiers[1].put(Forgetful(made.key, made.token_ids, made.layers))
    assert store.get(made.key, made.token_ids) is not None
    store.settle()
    assert made.key not in store
    assert [e.what for e in store.events] == [Happening.HIT, Happening.LOST]


def test_a_store_without_room_is_refused():
    with pytest.raises(ValueError, match="capacity"):
        MemoryTier(0)
    with pytest.raises(ValueError, match="at least one tier"):
        Store([])


@settings(max_examples=80, deadline=None)
@given(
    capacities=st.tuples(st.integers(4, 16), st.integers(4, 24)),
    steps=st.lists(
        st.tuples(st.sampled_from(["put", "get", "settle"]), st.integers(0, 7), st.integers(1, 4)), max_size=60
    ),
)
def test_two_tiers_are_two_lrus_bounded_in_bytes(capacities, steps):
    """Against a naive model: per tier, names in order of last use; what leaves the first goes into the second."""
    store = Store([tier(capacities[0]), tier(capacities[1], Place.DISK)])
    fast: OrderedDict[tuple[int, ...], None] = OrderedDict()
    slow: OrderedDict[tuple[int, ...], None] = OrderedDict()
    new: list[tuple[int, ...]] = []
    hit: list[tuple[int, ...]] = []

    def into_slow(name: tuple[int, ...]) -> None:
        slow.pop(name, None)
        while sum(map(len, slow)) + len(name) > capacities[1]:
            slow.popitem(last=False)
        slow[name] = None

    def into_fast(name: tuple[int, ...]) -> None:
        fast.pop(name, None)
        while sum(map(len, fast)) + len(name) > capacities[0]:
            victim = fast.popitem(last=False)[0]
            if victim not in slow:
                into_slow(victim)
        fast[name] = None

    for verb, name, num_tokens in steps:
        made = entry(name, num_tokens)
        ids = made.token_ids
        if verb == "put":
            store.put(made)
            into_fast(ids)
            new = new if ids in new else [*new, ids]
        elif verb == "get":
            found = store.get(made.key, ids)
            assert (found is not None) == (ids in fast or ids in slow)
            if ids in fast:
                fast.move_to_end(ids)
            elif ids in slow:
                slow.move_to_end(ids)
                hit = hit if ids in hit else [*hit, ids]
            if found is not None:
                out = found.empty_layer()
                found.fetch(0, out)
                assert torch.equal(out.values, made.layers[0].values)
        else:
            store.settle()
            for ids in new:
                if ids not in slow:
                    into_slow(ids)
            for ids in hit:
                if ids not in fast:
                    into_fast(ids)
            new, hit = [], []
        assert held(store, 0) == list(fast) and held(store, 1) == list(slow)
        assert all(t.nbytes <= t.capacity for t in store.tiers)


def test_an_event_names_its_tier_even_when_that_is_empty_by_then():
    store = Store([tier(4), tier(8, Place.DISK)])
    store.put(entry(1))
    store.put(entry(2))
    demoted = next(event for event in store.events if event.what is Happening.DEMOTED)
    assert demoted.place is Place.MEMORY
