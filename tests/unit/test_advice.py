"""What the engine would choose for a run that was made: the controller's answer to that run's own facts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cacheblend.config import AUTO, BlendConfig
from cacheblend.controller import RatioChoice, ratio_for_device
from cacheblend.cost import ComputeProfile, Workload
from cacheblend.documents import Chunk
from cacheblend.engine import Engine
from cacheblend.events import Compared
from cacheblend.loading import Device, LoadConfig, LoadOrder, Place, StoreConfig
from cacheblend.retrieval import Hit
from cacheblend.trace import Comparison, Mode, SegmentKind, Selector, Trace
from tests.tiny import random_ids, tiny, tiny_tokenizer

SLOW = Device(name="slow", bandwidth=2e7, latency_ms=0.02)
LAYERS, LAYERS_READ = 5, 4  # the first is computed whole
KV_BYTES = 2 * 2 * 8 * 4  # of a token in a layer of the tiny Llama: K and V, heads, values of a head, bytes
BLEND = BlendConfig(ratio=0.3)


@pytest.fixture
def engine() -> Engine:
    made = Engine(tiny("llama"), tiny_tokenizer(), name="tiny", store=StoreConfig(memory_bytes=10**7))
    made.machine.profile = ComputeProfile(label="made up", num_layers=LAYERS, kv_bytes=KV_BYTES, finish_row=0.01)
    made.machine.devices.clear()
    return made


@pytest.fixture
def hits() -> list[Hit]:
    return [Hit(Chunk(f"doc{i}.txt", 0, "…", tuple(random_ids(20 + i, 40 + i))), 0.9 - i / 10) for i in range(4)]


def made(engine: Engine, hits: list[Hit], loading: LoadConfig, blend: BlendConfig = BLEND) -> tuple[Comparison, Trace]:
    """A blend whose caches were there, and nothing else."""
    engine.precompute([hit.chunk for hit in hits])
    events = engine.compare("who lit it ?", hits, modes=[Mode.BLEND], blend=blend, loading=loading, max_new_tokens=2)
    comparison = next(event.comparison for event in events if isinstance(event, Compared))
    return comparison, comparison.traces[0]


def by_hand(engine: Engine, comparison: Comparison, device: Device, **changed) -> RatioChoice:
    """The controller's choice for the run's prompt as it is laid out: a prefix, four chunks and a question."""
    start = next(s.start for s in comparison.segments if s.kind is SegmentKind.SUFFIX)
    plain = {"context_tokens": start, "suffix_tokens": len(comparison.tokens) - start, "reads_per_layer": 5}
    return ratio_for_device(engine.machine.profile, device, Workload(**plain | {"prefetch": 4} | changed))


def same(choice: RatioChoice | None, wanted: RatioChoice) -> bool:
    return choice is not None and (
        (choice.why, choice.floor) == (wanted.why, wanted.floor)
        and choice.ratio == pytest.approx(wanted.ratio)
        and choice.hidden_ratio == pytest.approx(wanted.hidden_ratio)
        and choice.prediction.ttft_ms == pytest.approx(wanted.prediction.ttft_ms)
        and choice.everything_ms == pytest.approx(wanted.everything_ms)
    )


def test_advice_is_the_controllers_choice_for_the_runs_prompt_and_device(engine, hits):
    loading = LoadConfig(device=SLOW)
    comparison, trace = made(engine, hits, loading)
    choice = engine.advise(comparison, trace, BLEND, loading)
    assert same(choice, by_hand(engine, comparison, SLOW))
    assert choice.ratio != BLEND.ratio, "it advises; it does not repeat"


@pytest.mark.parametrize(
    ("blend", "loading", "changed"),
    [
        (BLEND, LoadConfig(device=SLOW, prefetch=1), {"prefetch": 1}),
        (BlendConfig(ratio=0.3, selector=Selector.GRADUAL), LoadConfig(device=SLOW), {"selector": Selector.GRADUAL}),
    ],
)
def test_advice_heeds_how_far_is_read_ahead_and_when_rows_are_chosen(engine, hits, blend, loading, changed):
    comparison, trace = made(engine, hits, loading, blend)
    choice = engine.advise(comparison, trace, blend, loading)
    assert same(choice, by_hand(engine, comparison, SLOW, **changed))
    assert not same(choice, by_hand(engine, comparison, SLOW)), "the setting makes a difference here"


def test_advice_counts_the_bytes_that_a_codec_leaves_and_the_time_it_takes(engine, hits):
    loading = LoadConfig(device=SLOW, codec="int8")
    comparison, trace = made(engine, hits, loading)
    engine.machine.decode_ms["int8"] = 0.002
    smaller = LAYERS_READ * KV_BYTES * comparison.context_tokens / trace.loading.nbytes
    assert smaller > 2
    wanted = by_hand(engine, comparison, SLOW, size_ratio=smaller, decode_ms_per_token=0.002)
    assert same(engine.advise(comparison, trace, BLEND, loading), wanted)


def test_advice_on_a_run_from_both_ends_is_for_loading_layer_by_layer(engine, hits):
    loading = LoadConfig(device=SLOW, order=LoadOrder.CAKE, compute_chunk=16)
    comparison, trace = made(engine, hits, loading)
    assert trace.loading.met_at is not None
    wanted = by_hand(engine, comparison, SLOW)
    for read in (trace.loading.nbytes, 0, 10 * trace.loading.nbytes):  # what was begun to be read may not be needed
        told = replace(trace, loading=replace(trace.loading, nbytes=read))
        assert same(engine.advise(comparison, told, BLEND, loading), wanted), "lossless, wherever the fronts met"


def test_where_no_device_is_emulated_the_place_counts_as_it_was_read_last(engine, hits):
    comparison, trace = made(engine, hits, LoadConfig())
    engine.machine.devices[Place.MEMORY] = SLOW
    assert same(engine.advise(comparison, trace, BLEND, LoadConfig()), by_hand(engine, comparison, SLOW))


def test_a_ratio_that_the_controller_chose_is_the_one_it_advises(engine, hits):
    loading, blend = LoadConfig(device=SLOW), BlendConfig(ratio=AUTO)
    comparison, trace = made(engine, hits, loading, blend)
    assert trace.ratio == pytest.approx(engine.advise(comparison, trace, blend, loading).ratio)


def test_nothing_is_advised_about_what_is_not_known(engine, hits):
    loading = LoadConfig(device=SLOW, codec="int8")
    comparison, trace = made(engine, hits, loading)
    assert engine.advise(comparison, trace, BLEND, loading) is not None
    assert engine.advise(comparison, replace(trace, loading=None), BLEND, loading) is None, "full reads no cache"

    suffix = replace(comparison.segments[-1], start=0, stop=comparison.suffix_tokens)
    bare = replace(comparison, segments=(suffix,), tokens=comparison.tokens[-comparison.suffix_tokens :])
    assert bare.context_tokens == 0
    assert engine.advise(bare, trace, BLEND, loading) is None, "no context, nothing to load"

    as_found = replace(loading, device=None)
    engine.machine.devices.clear()
    assert engine.advise(comparison, trace, BLEND, as_found) is None, "a place that was never read"
    engine.machine.devices |= {Place.MEMORY: SLOW, Place.DISK: SLOW}
    assert engine.advise(comparison, trace, BLEND, as_found) is not None
    two = replace(trace, loading=replace(trace.loading, places=(Place.MEMORY, Place.DISK)))
    assert engine.advise(comparison, two, BLEND, as_found) is None, "two places are not one device"

    del engine.machine.decode_ms["int8"]
    assert engine.advise(comparison, trace, BLEND, loading) is None, "a codec that was never decoded"
    engine.machine.profile = None
    assert engine.advise(comparison, trace, BLEND, LoadConfig(device=SLOW)) is None, "a machine never measured"
