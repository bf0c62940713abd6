"""The index of a tier, against a naive list in order of use."""

from __future__ import annotations

import time

from hypothesis import given, settings
from hypothesis import strategies as st

from cacheblend.kv import ChunkKey
from cacheblend.store.index import LRU

KEYS = [ChunkKey(f"{n:064x}") for n in range(6)]
STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "touch", "discard"]), st.sampled_from(KEYS), st.integers(0, 9)), max_size=60
)


@settings(max_examples=150, deadline=None)
@given(steps=STEPS, pinned=st.sets(st.sampled_from(KEYS)))
def test_it_keeps_the_order_of_use(steps, pinned):
    index, naive = LRU(), []  # naive: (key, bytes), least recently used first
    for verb, key, nbytes in steps:
        there = [pair for pair in naive if pair[0] == key]
        if verb == "add":
            index.add(key, nbytes)
            there = [(key, nbytes)]
        elif verb == "touch":
            assert index.touch(key) == bool(there)
        else:
            assert index.discard(key) == bool(there)
            there = []
        if verb != "touch" or there:
            naive = [pair for pair in naive if pair[0] != key] + there
        assert [(entry.key, entry.nbytes) for entry in index.entries()] == naive
        assert index.nbytes == sum(nbytes for _, nbytes in naive)
        assert len(index) == len(naive)
        assert all((key in index) == any(key == k for k, _ in naive) for key in KEYS)
        assert index.oldest(pinned) == next((k for k, _ in naive if k not in pinned), None)


def test_times_are_those_of_the_last_use():
    index, before = LRU(), time.time()
    index.add(KEYS[0], 1, used_at=12.5)
    index.add(KEYS[1], 1)
    first, second = index.entries()
    assert first.used_at == 12.5 and before <= second.used_at <= time.time()
    index.touch(KEYS[0])
    assert {entry.key for entry in index.entries() if entry.used_at >= before} == set(KEYS[:2])


def test_entries_may_be_removed_while_they_are_listed():
    index = LRU()
    for key in KEYS:
        index.add(key, 2)
    for entry in index.entries():
        index.discard(entry.key)
    assert len(index) == index.nbytes == 0
    index.add(KEYS[0], 3)
    index.clear()
    assert len(index) == index.nbytes == 0 and index.oldest() is None
