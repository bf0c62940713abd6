"""The engine over tiers, emulated devices and codecs: what comes in, how it is told, and who shares it."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
import torch

from cacheblend import calibration
from cacheblend.controller import QUALITY_FLOOR
from cacheblend.cost import ComputeProfile
from cacheblend.documents import Chunk
from cacheblend.engine import Engine
from cacheblend.events import Compared
from cacheblend.kv import LOSSLESS
from cacheblend.kv.codecs import CODECS, LEVELS
from cacheblend.loading import Device, LoadConfig, LoadOrder, Place, StoreConfig
from cacheblend.prompt import PromptPlan
from cacheblend.recording import from_json, to_json
from cacheblend.retrieval import Hit
from cacheblend.trace import Comparison, Lane, Mode
from tests.tiny import random_ids, tiny, tiny_tokenizer
from tests.unit.store.test_remote import Valkey

QUESTION = "who lit it ?"
SLOW = Device(name="slow", bandwidth=2e6, latency_ms=0.1)
MEMORY = StoreConfig(memory_bytes=10**7)


def tiny_engine(store: StoreConfig = MEMORY) -> Engine:
    return Engine(tiny("llama"), tiny_tokenizer(), name="tiny", store=store)


@pytest.fixture
def engine() -> Engine:
    return tiny_engine()


@pytest.fixture
def hits() -> list[Hit]:
    return [Hit(Chunk(f"doc{i}.txt", 0, "…", tuple(random_ids(20 + i, 40 + i))), 0.9 - i / 10) for i in range(4)]


def compare(engine: Engine, hits: list[Hit], **options) -> Comparison:
    events = list(engine.compare(QUESTION, hits, max_new_tokens=4, **options))
    assert isinstance(events[-1], Compared)
    return events[-1].comparison


def profile(engine: Engine) -> ComputeProfile:
    layer_bytes = engine.kv_bytes_per_token // engine.model.num_layers
    return ComputeProfile(label="made up", num_layers=engine.model.num_layers, kv_bytes=layer_bytes, finish_row=0.01)


def test_an_emulated_device_changes_times_and_nothing_else(engine, hits):
    engine.precompute([h.chunk for h in hits])
    plain = compare(engine, hits, modes=[Mode.BLEND]).trace(Mode.BLEND)
    slow = compare(engine, hits, modes=[Mode.BLEND], loading=LoadConfig(device=SLOW)).trace(Mode.BLEND)
    assert slow.answer_ids == plain.answer_ids
    assert slow.loading.device == "slow" and plain.loading.device == ""
    assert slow.loading.places == plain.loading.places == (Place.MEMORY,)
    loads = [s for s in slow.spans if s.lane is Lane.LOAD]
    assert all(s.emulated for s in loads) and not any(s.emulated for s in plain.spans)
    assert sum(s.duration_ms for s in loads) >= 1000 * slow.loading.nbytes / SLOW.bandwidth


@pytest.mark.parametrize("codec", [name for name in CODECS if name != LOSSLESS])
def test_every_codec_answers_and_says_so(engine, hits, codec):
    trace = compare(engine, hits, modes=[Mode.REUSE], loading=LoadConfig(codec=codec)).trace(Mode.REUSE)
    assert trace.loading.codec == codec and trace.answer_ids
    lossless = compare(engine, hits, modes=[Mode.REUSE]).trace(Mode.REUSE)
    assert trace.loading.nbytes < lossless.loading.nbytes
    assert any(s.lane is Lane.DECOMPRESS for s in trace.spans)
    assert engine.machine.decode_ms[codec] > 0


def test_a_run_from_both_ends_is_predicted_too(engine, hits):
    engine.machine.profile = profile(engine)
    loading = LoadConfig(device=SLOW, order=LoadOrder.CAKE)
    trace = compare(engine, hits, modes=[Mode.BLEND], loading=loading).trace(Mode.BLEND)
    assert trace.loading.met_at is not None and trace.predicted_ttft_ms > 0


def test_a_comparison_with_its_loading_round_trips_through_json(engine, hits):
    engine.machine.profile = profile(engine)
    comparison = compare(engine, hits, loading=LoadConfig(device=SLOW))
    assert comparison.trace(Mode.FULL).loading is None
    assert from_json(to_json(comparison)) == comparison
    assert all(trace.predicted for trace in comparison.traces)


def test_a_machine_that_was_never_measured_predicts_nothing(engine, hits):
    engine.machine.profile = None
    assert compare(engine, hits, loading=LoadConfig(device=SLOW)).trace(Mode.BLEND).predicted == ()


def test_the_controller_chooses_more_the_slower_the_device_and_never_less_than_the_floor(engine, hits):
    engine.machine.profile = profile(engine)
    ratios = []
    for bandwidth in (1e12, 3e6, 2e5):
        device = Device(name="some", bandwidth=bandwidth)
        blend = compare(engine, hits, modes=[Mode.BLEND], blend=auto(), loading=LoadConfig(device=device))
        ratios.append(blend.trace(Mode.BLEND).ratio)
    assert ratios == sorted(ratios) and ratios[0] == QUALITY_FLOOR and ratios[-1] > QUALITY_FLOOR
    assert ratios[-1] <= 1


def test_auto_measures_the_machine_once(engine, hits, monkeypatch, tmp_path):
    monkeypatch.setattr(calibration, "cache_directory", lambda: tmp_path)
    engine.machine.profile = None
    blend = compare(engine, hits, modes=[Mode.BLEND], blend=auto()).trace(Mode.BLEND)
    assert engine.machine.profile is not None and QUALITY_FLOOR <= blend.ratio <= 1
    assert tiny_engine().machine.profile == engine.machine.profile, "kept in a file"


def test_calibrating_measures_every_tier_and_leaves_nothing_there(tmp_path, monkeypatch):
    monkeypatch.setattr(calibration, "cache_directory", lambda: tmp_path)
    engine = tiny_engine(StoreConfig(memory_bytes=10**7, disk=tmp_path / "kv"))
    engine.calibrate()
    assert set(engine.machine.devices) == {Place.MEMORY, Place.DISK}
    assert all(device.bandwidth > 0 and not device.is_emulated for device in engine.machine.devices.values())
    assert [len(tier) for tier in engine.store.tiers] == [0, 0]


def auto():
    from cacheblend.config import BlendConfig

    return BlendConfig(ratio="auto")


def test_tenants_share_nothing(engine, hits):
    chunks = [h.chunk for h in hits]
    assert engine.of("ada").precompute(chunks).prefilled == 5
    assert engine.of("ada").precompute(chunks).prefilled == 0
    assert engine.of("bob").precompute(chunks).prefilled == 5
    assert engine.precompute(chunks).prefilled == 5
    traces = [compare(e, hits, modes=[Mode.REUSE]).trace(Mode.REUSE) for e in (engine.of("ada"), engine.of("eve"))]
    assert [t.is_warm for t in traces] == [True, False]
    assert traces[0].answer_ids == traces[1].answer_ids


def test_a_restart_answers_from_what_was_written(hits, tmp_path):
    store = StoreConfig(memory_bytes=10**7, disk=tmp_path / "kv")
    first = tiny_engine(store)
    first.precompute([h.chunk for h in hits])
    answer = compare(first, hits, modes=[Mode.BLEND]).trace(Mode.BLEND)
    second = tiny_engine(store)
    again = compare(second, hits, modes=[Mode.BLEND]).trace(Mode.BLEND)
    assert again.is_warm and again.loading.places == (Place.DISK,) and again.loading.is_pipelined
    assert again.answer_ids == answer.answer_ids
    third = compare(second, hits, modes=[Mode.BLEND]).trace(Mode.BLEND)
    assert third.loading.places == (Place.MEMORY,), "promoted once nobody waited"


def test_a_damaged_file_is_computed_again_in_the_middle_of_a_run(hits, tmp_path):
    store = StoreConfig(memory_bytes=10**7, disk=tmp_path / "kv")
    engine = tiny_engine(store)
    engine.precompute([h.chunk for h in hits])
    expected = compare(engine, hits, modes=[Mode.BLEND]).trace(Mode.BLEND)
    files = [path for path in (tmp_path / "kv").rglob("*") if path.is_file() and path.stat().st_size > 4096]
    damaged = max(files, key=lambda path: path.stat().st_size)
    data = bytearray(damaged.read_bytes())
    data[-5000] ^= 0xFF
    damaged.write_bytes(data)
    again = tiny_engine(store)
    trace = compare(again, hits, modes=[Mode.BLEND]).trace(Mode.BLEND)
    assert trace.answer_ids == expected.answer_ids
    assert any(s.lane is Lane.PRECOMPUTE for s in trace.spans)
    disk = again.store.stats[1]
    assert disk.losses == 1
    assert compare(tiny_engine(store), hits, modes=[Mode.BLEND]).trace(Mode.BLEND).answer_ids == expected.answer_ids


@pytest.mark.parametrize("loading", [LoadConfig(codec="int8"), LoadConfig(device=SLOW, target_ms=1e6)])
def test_a_file_damaged_before_it_is_encoded_is_computed_again(hits, tmp_path, loading):
    store = StoreConfig(memory_bytes=10**7, disk=tmp_path / "kv")
    tiny_engine(store).precompute([h.chunk for h in hits])
    for path in (tmp_path / "kv").glob("*.kv"):
        path.write_bytes(path.read_bytes()[:-5] + b"wrong")
    again = tiny_engine(store)
    again.machine.profile = replace(profile(again), finish_row=1e3)
    trace = compare(again, hits, modes=[Mode.REUSE], loading=loading).trace(Mode.REUSE)
    assert trace.answer_ids and again.store.stats[1].losses == 5
    fresh = tiny_engine(StoreConfig(memory_bytes=10**7, disk=tmp_path / "kv"))
    for path in (tmp_path / "kv").glob("*.kv"):
        path.write_bytes(path.read_bytes()[:-5] + b"wrong")
    assert fresh.inspect(QUESTION, hits, max_new_tokens=4).selected.any(), "Inspect goes on as well"


def test_an_encoded_tier_says_what_its_values_went_through(hits, tmp_path):
    store = StoreConfig(memory_bytes=10**7, disk=tmp_path / "kv", codec="int8")
    tiny_engine(store).precompute([h.chunk for h in hits])
    second = tiny_engine(store)
    for place in (Place.DISK, Place.MEMORY):
        trace = compare(second, hits, modes=[Mode.REUSE]).trace(Mode.REUSE)
        assert trace.loading.places == (place,) and trace.loading.codec == "int8"


def test_prefilling_by_token_ids_takes_a_loading_too(engine):
    chunks, suffix = [random_ids(30, 2), random_ids(30, 3)], random_ids(4, 4)
    plain = engine.prefill(chunks=chunks, suffix=suffix)
    for order in LoadOrder:
        made = engine.prefill(chunks=chunks, suffix=suffix, loading=LoadConfig(device=SLOW, order=order))
        assert made.logits.isfinite().all()
        if order is LoadOrder.LAYERWISE:
            assert torch.equal(made.logits, plain.logits)


@pytest.mark.parametrize("order", list(LoadOrder))
@pytest.mark.parametrize("stored_tokens", [0, 128, 300, 333])
def test_a_stored_prefix_is_full_recompute(engine, order, stored_tokens):
    """Whatever part of it is stored, and from whichever end it is loaded."""
    context, suffix = random_ids(333, 7), random_ids(6, 8)
    plan = PromptPlan.of((), [context], suffix)
    units = engine.caches.precompute_prefix(context[:stored_tokens])
    assert units == -(-stored_tokens // 128)
    assert engine.caches.precompute_prefix(context[:stored_tokens]) == 0
    full = engine.prefill_plan(plan, Mode.FULL)
    made = engine.prefill_prefix(plan, loading=LoadConfig(order=order, device=SLOW, compute_chunk=64))
    torch.testing.assert_close(made.logits, full.logits, atol=1e-5, rtol=1e-4)
    for ours, theirs in zip(made.layers, full.layers, strict=True):
        torch.testing.assert_close(ours.keys, theirs.keys, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(ours.values, theirs.values, atol=1e-5, rtol=1e-4)
    assert made.is_warm == (stored_tokens == 333)


@pytest.mark.parametrize("order", list(LoadOrder))
def test_a_prefix_that_is_lost_on_the_way_is_computed_again(order, tmp_path):
    context, suffix = random_ids(400, 7), random_ids(6, 8)
    plan, store = PromptPlan.of((), [context], suffix), StoreConfig(memory_bytes=10**7, disk=tmp_path / "kv")
    engine = tiny_engine(store)
    engine.caches.precompute_prefix(context)
    for path in (path for path in (tmp_path / "kv").rglob("*") if path.is_file() and path.stat().st_size > 5000):
        data = bytearray(path.read_bytes())
        data[-5] ^= 0xFF
        path.write_bytes(data)
    again = tiny_engine(store)
    made = again.prefill_prefix(plan, loading=LoadConfig(order=order))
    torch.testing.assert_close(made.logits, engine.prefill_plan(plan, Mode.FULL).logits, atol=1e-5, rtol=1e-4)
    assert again.store.stats[1].losses > 0


def test_a_server_killed_in_the_middle_of_a_run_costs_time_and_nothing_else(hits, tmp_path):
    valkey = Valkey()
    try:
        store = StoreConfig(memory_bytes=10**7, remote=valkey.url)
        first = tiny_engine(store)
        first.precompute([h.chunk for h in hits])
        expected = compare(first, hits, modes=[Mode.BLEND]).trace(Mode.BLEND)
        again = tiny_engine(store)
        threading.Timer(0.4, valkey.kill).start()
        slow = LoadConfig(device=Device(name="slow", bandwidth=1e5))
        trace = compare(again, hits, modes=[Mode.BLEND], loading=slow).trace(Mode.BLEND)
        assert trace.loading.places == (Place.REMOTE,) and trace.answer_ids == expected.answer_ids
        assert any(s.lane is Lane.PRECOMPUTE for s in trace.spans), "it was killed before all was read"
        assert compare(tiny_engine(store), hits, modes=[Mode.BLEND]).trace(Mode.BLEND).answer_ids == trace.answer_ids
    finally:
        valkey.end()


def test_a_target_chooses_coarser_levels_the_less_time_there_is(engine, hits):
    engine.machine.profile = replace(profile(engine), finish_row=1e3)  # computing is never sooner
    engine.machine.decode_ms.update((level.name, 0.0) for level in LEVELS)
    plain = compare(engine, hits, modes=[Mode.REUSE]).trace(Mode.REUSE)
    needed = 1000 * plain.loading.nbytes / SLOW.bandwidth
    read = []
    for share in (2.0, 0.5, 0.25):
        loading = LoadConfig(device=SLOW, target_ms=share * needed)
        read.append(compare(engine, hits, modes=[Mode.REUSE], loading=loading).trace(Mode.REUSE).loading)
    assert read[0].codec == LOSSLESS and read[0].nbytes == plain.loading.nbytes
    assert read[0].nbytes > read[1].nbytes >= read[2].nbytes
    assert "cachegen" in read[2].codec


def test_a_target_computes_what_would_take_longer_to_load(engine, hits):
    engine.machine.profile = replace(profile(engine), finish_row=1e-6)
    loading = LoadConfig(device=Device(name="snail", bandwidth=10.0), target_ms=1.0)
    trace = compare(engine, hits, modes=[Mode.REUSE], loading=loading).trace(Mode.REUSE)
    assert sum(s.lane is Lane.PRECOMPUTE for s in trace.spans) == 5 and not trace.is_warm
    assert trace.answer_ids == compare(engine, hits, modes=[Mode.REUSE]).trace(Mode.REUSE).answer_ids


def test_a_target_and_a_codec_exclude_each_other():
    with pytest.raises(ValueError, match="chooses the codec itself"):
        LoadConfig(codec="int8", target_ms=10.0)
