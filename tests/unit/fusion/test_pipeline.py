"""Reading ahead: the same bytes, in order, bounded, and trouble surfaces by name. Law 10."""

from __future__ import annotations

import threading
import time

import pytest
import torch

from cacheblend.cancel import Cancelled
from cacheblend.fusion.fusor import fuse
from cacheblend.fusion.pipeline import PrefetchedSource, opened
from cacheblend.fusion.policies import HKVD, AllRows, NoRows
from cacheblend.fusion.source import ChunkSource, unread_layers
from cacheblend.fusion.spans import SpanRecorder
from cacheblend.kv import ChunkKV, ChunkLostError, LayerKV
from cacheblend.loading import PRESETS, Device, LoadConfig
from cacheblend.store.throttle import Link
from cacheblend.trace import Lane, Selector

SSD = next(device for device in PRESETS if device.name.startswith("SSD"))
CPU = torch.device("cpu")


class Watched(ChunkKV):
    """A chunk that remembers which layers were read, and loses one if told so."""

    __slots__ = ("__dict__",)

    def fetch(self, layer: int, out: LayerKV) -> None:
        self.seen.append(layer)
        if layer == self.lost_at:
            raise ChunkLostError(self.key, layer, "the disk has gone")
        ChunkKV.fetch(self, layer, out)


def watched(chunk: ChunkKV, lost_at: int | None = None) -> Watched:
    made = Watched(chunk.key, chunk.token_ids, chunk.layers)
    made.__dict__.update(seen=[], lost_at=lost_at)
    return made


def run(case, loading: LoadConfig, chunks=None, repair=None, spans=None, cancel=None):
    spans = spans or SpanRecorder()
    chunks = case.caches() if chunks is None else chunks
    n = case.plan.num_tokens
    with opened(case.model, chunks, n, loading, spans=spans, repair=repair, cancel=cancel) as source:
        return fuse(case.model, case.plan, source, HKVD(0.3), spans=spans, cancel=cancel), spans.spans()


def assert_same(a, b) -> None:
    assert torch.equal(a.logits, b.logits)
    for layer in range(len(a.kept_per_layer)):
        assert torch.equal(a.cache.layer(layer).keys, b.cache.layer(layer).keys)
        assert torch.equal(a.cache.layer(layer).values, b.cache.layer(layer).values)


@pytest.mark.parametrize("prefetch", [1, 2, 5])
def test_pipelined_is_sequential_bit_for_bit(case, prefetch):
    plain, _ = run(case, LoadConfig())
    sequential, _ = run(case, LoadConfig(pipelined=False, device=SSD))
    pipelined, spans = run(case, LoadConfig(prefetch=prefetch, device=SSD))
    assert_same(plain, sequential)
    assert_same(plain, pipelined)
    loads = [s for s in spans if s.lane is Lane.LOAD]
    assert [s.layer for s in loads] == list(range(case.model.num_layers)) and all(s.emulated for s in loads)
    first_compute = {s.layer: s for s in reversed(spans) if s.lane is Lane.COMPUTE}
    for load in loads:
        assert load.end_ms <= first_compute[load.layer].start_ms, "a layer is computed on what has arrived"


@pytest.mark.parametrize(
    ("policy", "unread"),
    [(HKVD(0.3), 1), (HKVD(0.3, Selector.GRADUAL), 1), (HKVD(0), 0), (NoRows(), 0), (AllRows(), 5)],
)
def test_layers_that_are_computed_whole_are_not_read(case, policy, unread):
    """Layer 0 never deviates: blend is the same whatever its cached KV holds."""
    assert unread_layers(policy, case.plan, case.model.num_layers) == unread
    n, caches = case.plan.num_tokens, [watched(chunk) for chunk in case.caches()]
    everything = fuse(case.model, case.plan, ChunkSource(case.model, case.caches(), n), policy)
    with opened(
        case.model, caches, n, LoadConfig(device=SSD), spans=SpanRecorder(), repair=None, first_layer=unread
    ) as source:
        assert_same(fuse(case.model, case.plan, source, policy), everything)
    assert all(chunk.seen == list(range(unread, case.model.num_layers)) for chunk in caches)


@pytest.mark.parametrize("depth", [1, 2])
def test_no_more_than_the_bound_is_read_ahead(case, depth):
    chunk = watched(case.caches()[0])
    source = ChunkSource(case.model, [chunk], chunk.num_tokens)
    with PrefetchedSource(source, case.model.num_layers, depth=depth, device=CPU, stop=threading.Event()) as ahead:
        for layer in range(2):
            ahead.layer(layer)
            time.sleep(0.05)  # time enough to read everything, were it not bounded
            assert chunk.seen == list(range(layer + 1 + depth))


def test_the_computation_overlaps_the_reading(case):
    """Layer 1 is read while layer 0 is held: a sequential source would wait for the caller."""
    chunk = watched(case.caches()[0])
    source = ChunkSource(case.model, [chunk], chunk.num_tokens)
    with PrefetchedSource(source, case.model.num_layers, depth=1, device=CPU, stop=threading.Event()) as ahead:
        ahead.layer(0)
        for _ in range(200):
            if 1 in chunk.seen:
                break
            time.sleep(0.01)
        assert 1 in chunk.seen


@pytest.mark.parametrize("loading", [LoadConfig(device=SSD), LoadConfig(device=SSD, pipelined=False)])
def test_a_failed_read_surfaces_by_name(case, loading):
    chunks = case.caches()
    chunks[1] = watched(chunks[1], lost_at=2)
    with pytest.raises(ChunkLostError, match="layer 2: the disk has gone"):
        run(case, loading, chunks)


@pytest.mark.parametrize("lost_at", [0, 2])
@pytest.mark.parametrize("loading", [LoadConfig(device=SSD), LoadConfig(device=SSD, pipelined=False)])
def test_a_lost_chunk_is_mended_and_changes_nothing(case, loading, lost_at):
    whole, chunks = case.caches(), case.caches()
    chunks[1] = watched(chunks[1], lost_at)
    asked = []

    def repair(error: ChunkLostError) -> ChunkKV:
        asked.append((error.key, error.layer))
        return whole[1]

    mended, _ = run(case, loading, chunks, repair)
    assert asked == [(chunks[1].key, lost_at)]
    assert_same(mended, run(case, LoadConfig())[0])


@pytest.mark.parametrize("pipelined", [True, False])
def test_a_wait_for_a_slow_device_can_be_stopped(case, pipelined):
    cancel = threading.Event()
    threading.Timer(0.2, cancel.set).start()
    before = threading.active_count()
    with pytest.raises(Cancelled):
        run(case, LoadConfig(pipelined=pipelined, device=Device(name="snail", bandwidth=1.0)), cancel=cancel)
    assert threading.active_count() <= before


def test_a_link_is_a_bucket_that_all_chunks_share():
    link = Link(Device(name="slow", bandwidth=1000.0, latency_ms=100.0))
    assert link.reserve(500, 10.0) == pytest.approx(10.6)
    assert link.reserve(500, 10.0) == pytest.approx(11.2), "a second read waits for the first"
    assert link.reserve(100, 11.2005) == pytest.approx(11.4), (
        "a read that follows at once does not pay for oversleeping"
    )
    assert link.reserve(100, 20.0) == pytest.approx(20.2), "an idle wire saves nothing up"


def test_a_link_follows_a_bandwidth_that_changes():
    link = Link(Device(name="changing", bandwidth=1.0, over_time=((0.0, 1000.0), (1.0, 100.0))))
    assert link.reserve(1050, 5.0) == pytest.approx(6.5)
    assert link.reserve(100, 7.0) == pytest.approx(8.0)


def test_jitter_spreads_reads_around_their_mean():
    link = Link(Device(name="shaky", bandwidth=1000.0, jitter=0.2))
    times = [link.reserve(100, 10.0 * i) - 10.0 * i for i in range(400)]
    assert min(times) < 0.09
    assert max(times) > 0.11
    assert sum(times) / len(times) == pytest.approx(0.1, rel=0.05)
