"""Cake's laws: exact for a stored prefix wherever the fronts meet, and blended only behind the meeting point.

The race is decided by events, never by time: units arrive when a test says so.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
import torch

from cacheblend.cancel import Cancelled
from cacheblend.fusion import busy, fronts
from cacheblend.fusion import cake as cake_module
from cacheblend.fusion.busy import BusySpans
from cacheblend.fusion.cake import cake
from cacheblend.fusion.extend import KVCache, extend
from cacheblend.fusion.fronts import Fronts
from cacheblend.fusion.fusor import fuse
from cacheblend.fusion.policies import HKVD
from cacheblend.fusion.spans import SpanRecorder
from cacheblend.kv import ChunkKey, ChunkKV, ChunkLostError
from cacheblend.kv.chunk import as_bytes
from cacheblend.meeting import stretch_of
from cacheblend.models.layerwise import LayerwiseModel
from cacheblend.prefixes import cut, prefill_units, stored_prefix, unit_keys
from cacheblend.prompt import PromptPlan
from cacheblend.trace import Lane
from tests import reference
from tests.conftest import make_case
from tests.tiny import FAMILIES, random_ids, tiny

EXACT = {"atol": 1e-5, "rtol": 1e-4}
PATIENCE_S = 20  # how long a test that has gone wrong waits before it fails
CONTEXT, UNIT = 53, 12  # four units of 12 tokens and one of 5
STARTS = [0, 12, 24, 36, 48, 53]


class Race(Fronts):
    """Fronts that a test holds: computing begins once `begin` allows it, and any state can be waited for."""

    def __init__(self, num_layers: int, context_tokens: int, begin) -> None:
        super().__init__(num_layers, context_tokens)
        self.begin = begin

    def load(self, layer: int, start: int) -> None:
        assert start <= self.loaded[layer], "no front moves back"
        super().load(layer, start)

    def wait(self, until) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not until(self):
            assert time.monotonic() < deadline, "the race did not go as the test wanted"
            time.sleep(0.0005)

    @property
    def gap(self) -> int:
        self.wait(self.begin)
        return super().gap


@dataclass
class Unit:
    """A stored unit whose reading a test decides: `before` is called at each layer and may wait or fail."""

    chunk: ChunkKV
    before: object = field(default=lambda layer: None)
    is_encoded: bool = False

    def __getattr__(self, name):
        return getattr(self.chunk, name)

    def fetch(self, layer, out):
        self.before(layer)
        if not self.is_encoded:
            return self.chunk.fetch(layer, out)
        kv = self.chunk.layers[layer]
        return as_bytes(kv.keys).tobytes() + as_bytes(kv.values).tobytes()


@dataclass
class Prefix:
    """A tiny model, a prompt whose context is a stored prefix, and what full prefill makes of it."""

    model: LayerwiseModel
    plan: PromptPlan
    units: list[ChunkKV]

    @classmethod
    def of(cls, family: str, seed: int = 0) -> Prefix:
        model, context, suffix = LayerwiseModel(tiny(family)), random_ids(CONTEXT, seed), random_ids(7, seed + 1)
        units = prefill_units(model, "tiny", context, UNIT)
        return cls(model, PromptPlan.of(context, [], suffix), units)

    def assert_full(self, made) -> None:
        logits, layers = reference.full_forward(self.model.hf_model, list(self.plan.token_ids))
        torch.testing.assert_close(made.logits, logits[-1], **EXACT)
        for i, (keys, values) in enumerate(layers):
            torch.testing.assert_close(made.cache.layer(i).keys, keys, **EXACT)
            torch.testing.assert_close(made.cache.layer(i).values, values, **EXACT)


@pytest.fixture
def prefix() -> Prefix:
    return Prefix.of("llama")


def hold(monkeypatch, begin=lambda race: True) -> list[Race]:
    """Let the next cakes run under a Race; the list receives them."""
    races: list[Race] = []

    def make(num_layers: int, context_tokens: int) -> Race:
        races.append(Race(num_layers, context_tokens, begin))
        return races[-1]

    monkeypatch.setattr(cake_module, "Fronts", make)
    return races


def blocked(stop: threading.Event):
    """Reading that lasts until the race is over, as behind a slow link."""

    def before(layer: int) -> None:
        assert stop.wait(PATIENCE_S)
        raise Cancelled

    return before


def run_met_at(monkeypatch, model, plan, units, met_at, *args, **options):
    """Cake in which exactly the units from `met_at` on were loaded before the rest was computed."""
    hold(monkeypatch, lambda race: race.loaded[0] <= met_at)
    stop, start, held = threading.Event(), 0, []
    for unit in units:
        held.append(Unit(unit) if start >= met_at else Unit(unit, blocked(stop)))
        start += unit.num_tokens
    return cake(model, plan, held, *args, stop=stop, **options)


@pytest.mark.parametrize("met_at", STARTS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_stored_prefix_is_exact_wherever_the_fronts_meet(monkeypatch, family, met_at):
    prefix = Prefix.of(family)
    made = run_met_at(monkeypatch, prefix.model, prefix.plan, prefix.units, met_at, compute_chunk=10)
    assert made.met_at == met_at
    assert made.nbytes == sum(u.nbytes for u, start in zip(prefix.units, STARTS, strict=False) if start >= met_at)
    prefix.assert_full(made)


@pytest.mark.parametrize("units", [1, 2, CONTEXT])
@pytest.mark.parametrize("compute_chunk", [1, 7, 512])
def test_any_cut_is_exact_when_nobody_holds_the_race(prefix, units, compute_chunk):
    stored = prefill_units(prefix.model, "tiny", prefix.plan.token_ids[:CONTEXT], -(-CONTEXT // units))
    made = cake(prefix.model, prefix.plan, stored, compute_chunk=compute_chunk)
    assert 0 <= made.met_at <= CONTEXT
    prefix.assert_full(made)


class Overtaking(SpanRecorder):
    """Stops computing in the middle of a chunk until loading has come down to a token."""

    def __init__(self, races: list[Race], from_token: int, until_loaded: int, go: threading.Event) -> None:
        super().__init__()
        self.races, self.from_token, self.until_loaded, self.go = races, from_token, until_loaded, go

    def span(self, lane, name, layer=None, *, emulated=False):
        if name.startswith(f"compute tokens {self.from_token}–") and layer == 2:
            self.go.set()
            self.races[0].wait(lambda race: race.loaded[3] <= self.until_loaded)
        return super().span(lane, name, layer, emulated=emulated)


@pytest.mark.parametrize(
    ("compute_chunk", "from_token", "until_loaded", "met_at"),
    [
        (512, 0, 36, 36),  # the only chunk loses its tail
        (512, 0, 12, 12),
        (512, 0, 0, 0),  # and is given up
        (24, 24, 36, 36),  # the second chunk loses half
        (24, 24, 24, 24),  # or everything
    ],
)
def test_a_chunk_that_is_overtaken_shrinks_between_layers(
    monkeypatch, prefix, compute_chunk, from_token, until_loaded, met_at
):
    races, go, stop = hold(monkeypatch), threading.Event(), threading.Event()

    def on_go(layer: int) -> None:
        assert go.wait(PATIENCE_S)

    units = [
        Unit(unit, on_go if start >= until_loaded else blocked(stop))
        for start, unit in zip(STARTS, prefix.units, strict=False)
    ]
    spans = Overtaking(races, from_token, until_loaded, go)
    made = cake(prefix.model, prefix.plan, units, compute_chunk=compute_chunk, spans=spans, stop=stop)
    assert made.met_at == met_at
    prefix.assert_full(made)
    rows = [stretch_of(s.name) for s in spans.spans() if s.lane is Lane.COMPUTE and s.name.startswith("compute")]
    assert rows[0] == (0, min(compute_chunk, CONTEXT)), "it began with the whole chunk"
    assert rows[-1][1] == (until_loaded if met_at > from_token else min(from_token + compute_chunk, CONTEXT))


def test_fronts_may_meet_inside_a_unit(monkeypatch, prefix):
    """The unit in the middle of which computing has come is loaded all the same; what is computed stays."""
    stored = prefill_units(prefix.model, "tiny", prefix.plan.token_ids[:CONTEXT], CONTEXT)
    races, stop = hold(monkeypatch), threading.Event()
    go = threading.Event()

    def when_computed(layer: int) -> None:
        races[0].wait(lambda race: race.computed[-1] >= 10)
        assert go.wait(PATIENCE_S)

    spans = Overtaking(races, 20, 0, go)
    made = cake(prefix.model, prefix.plan, [Unit(stored[0], when_computed)], compute_chunk=10, spans=spans, stop=stop)
    assert made.met_at == 20
    prefix.assert_full(made)


def test_a_unit_that_arrives_too_late_is_given_up(prefix):
    """Computing alone wins against reads that never end, and ends them."""
    stop, given_up = threading.Event(), []

    def never(layer: int) -> None:
        assert stop.wait(PATIENCE_S)
        given_up.append(layer)
        raise Cancelled

    made = cake(prefix.model, prefix.plan, [Unit(unit, never) for unit in prefix.units], stop=stop)
    assert (made.met_at, made.nbytes, made.num_lost) == (CONTEXT, 0, 0)
    assert given_up in ([], [4]), "one read was under way at most"
    prefix.assert_full(made)


@pytest.mark.parametrize("lost", range(5))
@pytest.mark.parametrize("is_encoded", [False, True])
def test_a_lost_unit_and_all_in_front_of_it_are_computed(monkeypatch, prefix, lost, is_encoded):
    warnings: list[str] = []

    def warn(message: str, error: ChunkLostError) -> None:
        warnings.append(message % error)

    hold(monkeypatch, lambda race: warnings)
    monkeypatch.setattr(fronts.logger, "warning", warn)

    def gone(layer: int) -> None:
        raise ChunkLostError(prefix.units[lost].key, layer, "it was evicted")

    units = [Unit(unit, gone if i == lost else lambda layer: None) for i, unit in enumerate(prefix.units)]
    if is_encoded:  # read well, but not what was written: noticed while it is decoded
        damaged = prefix.units[lost]
        short = ChunkKV(damaged.key, damaged.token_ids, tuple(kv.rows(0, 2) for kv in damaged.layers))
        units[lost] = Unit(damaged, is_encoded=True)
        units[lost].fetch = lambda layer, out: Unit(short, is_encoded=True).fetch(layer, out)
    made = cake(prefix.model, prefix.plan, units)
    assert (made.met_at, made.num_lost) == (STARTS[lost + 1], 1)
    assert len(warnings) == 1 and prefix.units[lost].key.digest[:12] in warnings[0]
    prefix.assert_full(made)


@pytest.mark.parametrize("layer_lost", range(5))
def test_layers_read_before_a_unit_was_lost_are_used(monkeypatch, prefix, layer_lost):
    def gone(layer: int) -> None:
        if layer == layer_lost:
            raise ChunkLostError(prefix.units[2].key, layer, "it was evicted")

    hold(monkeypatch, lambda race: race.loaded[min(layer_lost + 1, 4)] <= STARTS[2 if layer_lost < 4 else 3])
    units = [Unit(unit, gone if i == 2 else lambda layer: None) for i, unit in enumerate(prefix.units)]
    prefix.assert_full(cake(prefix.model, prefix.plan, units))


def last_unit_half_read(monkeypatch, prefix, num_read, policy, spans):
    """Cake in which only the upper layers of the last unit were read before anything was computed."""
    stop, read = threading.Event(), []

    def before(layer: int) -> None:
        if layer < 5 - num_read:
            read.append(layer)
            blocked(stop)(layer)

    hold(monkeypatch, lambda race: read)
    units = [*(Unit(unit, blocked(stop)) for unit in prefix.units[:4]), Unit(prefix.units[4], before)]
    return cake(prefix.model, prefix.plan, units, policy, spans=spans, stop=stop)


@pytest.mark.parametrize("num_read", range(5))
def test_both_sides_bring_the_last_unit_together(monkeypatch, prefix, num_read):
    """Its upper layers were loaded and are not computed, its lower ones are computed: exact all the same."""
    spans = SpanRecorder()
    made = last_unit_half_read(monkeypatch, prefix, num_read, None, spans)
    assert made.met_at == (48 if num_read else CONTEXT)
    told = [(s.layer, stretch_of(s.name)) for s in spans.spans() if s.name.startswith("compute")]
    assert told == [(layer, (0, CONTEXT if layer < 5 - num_read else 48)) for layer in range(5)]
    assert made.nbytes == prefix.units[4].nbytes * num_read // 5
    prefix.assert_full(made)


@pytest.mark.parametrize("num_read", range(5))
def test_a_unit_that_is_blended_counts_when_it_is_whole(monkeypatch, prefix, num_read):
    made = last_unit_half_read(monkeypatch, prefix, num_read, HKVD(0.5), SpanRecorder())
    assert made.met_at == CONTEXT
    prefix.assert_full(made)


def test_layers_that_were_computed_meanwhile_are_not_read(monkeypatch, prefix):
    """The reader goes on with the unit in front, before computing goes on."""
    races, read = hold(monkeypatch, lambda race: len(read) == 3), []
    stop, goes_on = threading.Event(), threading.Event()

    def until_computed(layer: int) -> None:
        read.append(layer)
        if layer == 2:
            races[0].wait(lambda race: race.computed[1] == CONTEXT)

    def next_unit(layer: int) -> None:
        goes_on.set()
        blocked(stop)(layer)

    class Waiting(SpanRecorder):
        def span(self, lane, name, layer=None, *, emulated=False):
            if lane is Lane.COMPUTE and layer == 2:
                assert goes_on.wait(PATIENCE_S)
            return super().span(lane, name, layer, emulated=emulated)

    units = [*(Unit(u, next_unit) for u in prefix.units[:4]), Unit(prefix.units[4], until_computed)]
    made = cake(prefix.model, prefix.plan, units, spans=Waiting(), stop=stop)
    assert read == [4, 3, 2]
    prefix.assert_full(made)


def test_units_that_have_to_be_decoded_are_exact(monkeypatch, prefix):
    hold(monkeypatch, lambda race: race.loaded[0] == 0)
    spans = SpanRecorder()
    made = cake(prefix.model, prefix.plan, [Unit(u, is_encoded=True) for u in prefix.units], spans=spans)
    assert made.met_at == 0
    prefix.assert_full(made)
    decoded = [stretch_of(s.name) for s in spans.spans() if s.lane is Lane.DECOMPRESS]
    assert decoded == list(pairwise(STARTS))[::-1]


def test_a_reader_that_breaks_is_heard_of(prefix):
    def broken(layer: int) -> None:
        raise RuntimeError("the disk is on fire")

    with pytest.raises(RuntimeError, match="on fire"):
        cake(prefix.model, prefix.plan, [Unit(unit, broken) for unit in prefix.units])


def test_cancelling_ends_both_fronts(monkeypatch, prefix):
    cancel, stop, threads = threading.Event(), threading.Event(), []

    def user_leaves(layer: int) -> None:
        threads.append(threading.current_thread())
        cancel.set()
        assert stop.wait(PATIENCE_S)
        raise Cancelled

    hold(monkeypatch, lambda race: cancel.wait(PATIENCE_S))
    with pytest.raises(Cancelled):
        cake(prefix.model, prefix.plan, [Unit(u, user_leaves) for u in prefix.units], cancel=cancel, stop=stop)
    assert threads and not threads[0].is_alive()


def test_units_must_be_the_context(prefix):
    for wrong in ([], prefix.units[:-1], prefix.units[::-1]):
        with pytest.raises(ValueError, match="context"):
            cake(prefix.model, prefix.plan, wrong)
    with pytest.raises(ValueError, match="compute_share"):
        cake(prefix.model, prefix.plan, prefix.units, compute_share=0)


def test_nothing_stored_is_a_prefill(prefix):
    made = cake(prefix.model, PromptPlan.of([], [], prefix.plan.token_ids), [])
    prefix.assert_full(made)


@pytest.mark.parametrize("met_at", [0, 24])
def test_stored_units_stay_as_they_were(monkeypatch, prefix, met_at):
    tensors = [t for unit in prefix.units for kv in unit.layers for t in (kv.keys, kv.values)]
    before = [t.clone() for t in tensors]
    run_met_at(monkeypatch, prefix.model, prefix.plan, prefix.units, met_at, HKVD(0.5))
    assert all(torch.equal(a, b) for a, b in zip(before, tensors, strict=True))


def test_decoding_goes_on_behind_a_cake(prefix):
    steps, plan = 6, prefix.plan
    made = cake(prefix.model, plan, prefix.units, capacity=plan.num_tokens + steps)
    tokens = [int(made.logits.argmax())]
    while len(tokens) < steps:
        tokens.append(int(extend(prefix.model, made.cache, torch.tensor(tokens[-1:]))[0].argmax()))
    generated = prefix.model.hf_model.generate(
        torch.tensor([plan.token_ids]), max_new_tokens=steps, do_sample=False, eos_token_id=None, pad_token_id=0
    )
    assert tokens == generated[0, plan.num_tokens :].tolist()


# Spans


@pytest.mark.parametrize(("met_at", "copied"), [(24, (0, 24)), (36, (36, 53))])
def test_spans_say_which_tokens_came_from_where(monkeypatch, prefix, met_at, copied):
    spans = SpanRecorder()
    run_met_at(
        monkeypatch, prefix.model, prefix.plan, prefix.units, met_at, compute_chunk=12, spans=spans, is_emulated=True
    )
    loads = [s for s in spans.spans() if s.lane is Lane.LOAD]
    assert [stretch_of(s.name) for s in loads] == [t for t in list(pairwise(STARTS))[::-1] if t[0] >= met_at]
    assert all(s.emulated for s in loads)
    computed = [stretch_of(s.name) for s in spans.spans() if s.lane is Lane.COMPUTE and s.layer == 4]
    assert [s for s in computed if s] == [t for t in pairwise(STARTS) if t[1] <= met_at]
    joined = [s for s in spans.spans() if s.name.startswith("join")]
    assert {stretch_of(s.name) for s in joined} == {copied} and len(joined) == prefix.model.num_layers


def test_a_busy_processor_takes_longer_and_says_so(monkeypatch):
    naps, inner = [], SpanRecorder()
    clock = iter([0.0, 10.0, 10.5])  # the span's own mark, then the work: half a second
    monkeypatch.setattr(busy.time, "sleep", naps.append)
    monkeypatch.setattr(busy.time, "perf_counter", lambda: next(clock, 11.0))
    spans = BusySpans(inner, 0.25, torch.device("cpu"))
    with spans.span(Lane.COMPUTE, "layer 0", 0):
        pass
    assert naps == [pytest.approx(1.5)], "a quarter of the processor: three times the work is waited"
    with spans.span(Lane.LOAD, "load"):
        pass
    assert len(naps) == 1
    assert [(s.lane, s.emulated) for s in spans.spans()] == [(Lane.COMPUTE, True), (Lane.LOAD, False)]


def test_a_share_of_the_processor_changes_no_bits(monkeypatch, prefix):
    monkeypatch.setattr(busy.time, "sleep", lambda seconds: None)
    options = {"compute_chunk": 10}
    free = run_met_at(monkeypatch, prefix.model, prefix.plan, prefix.units, 24, **options)
    spans = SpanRecorder()
    shared = run_met_at(
        monkeypatch, prefix.model, prefix.plan, prefix.units, 24, compute_share=0.5, spans=spans, **options
    )
    assert torch.equal(free.logits, shared.logits)
    assert all(s.emulated == (s.lane is not Lane.LOAD) for s in spans.spans())


# Composed with CacheBlend: bare chunks


def top_behind(met_at: int, num_context: int, ratio: float):
    """The naive choice: the computed front always, and of what was loaded the rows that deviate most at layer 1."""

    def choose(layer, rows, deviations):
        if layer != 1:
            return rows
        loaded = sorted((r for r in rows if met_at <= r < num_context), key=lambda r: -deviations[rows.index(r)])
        budget = round(ratio * (num_context - met_at))
        return sorted(r for r in rows if r < met_at or r >= num_context or r in loaded[:budget])

    return choose


@pytest.mark.parametrize("num_computed", range(5))
def test_only_what_was_loaded_is_blended(monkeypatch, llama, num_computed):
    """Against a Llama in plain loops that recomputes every row in front of the meeting point and some behind it."""
    caches = llama.caches()
    met_at, context = sum(c.num_tokens for c in caches[:num_computed]), llama.plan.context_tokens
    made = run_met_at(monkeypatch, llama.model, llama.plan, caches, met_at, HKVD(0.3))
    assert made.met_at == met_at
    logits, layers = reference.naive_llama_blend(
        llama.model.hf_model, llama.prefix, llama.chunks, llama.suffix, top_behind(met_at, context, 0.3)
    )
    torch.testing.assert_close(made.logits, logits, **EXACT)
    for i, (keys, values) in enumerate(layers):
        torch.testing.assert_close(made.cache.layer(i).keys, keys, **EXACT)
        torch.testing.assert_close(made.cache.layer(i).values, values, **EXACT)
    assert set(made.kept_per_layer[1:]) == {round(0.3 * (context - met_at))}


def test_the_computed_front_is_full_prefill(monkeypatch, case):
    caches = case.caches()
    met_at = sum(c.num_tokens for c in caches[:3])
    made = run_met_at(monkeypatch, case.model, case.plan, caches, met_at, HKVD(0.3))
    _, layers = reference.full_forward(case.model.hf_model, list(case.plan.token_ids))
    for i, (keys, values) in enumerate(layers):
        torch.testing.assert_close(made.cache.layer(i).keys[:met_at], keys[:met_at], **EXACT)
        torch.testing.assert_close(made.cache.layer(i).values[:met_at], values[:met_at], **EXACT)
    behind = made.cache.layer(3).values[met_at:] - layers[3][1][met_at:]
    assert behind.abs().max() > 1e-3, "what was loaded is not exact"


@pytest.mark.parametrize("policy", [HKVD(0.3), HKVD(0.0), HKVD(1.0)])
def test_everything_loaded_is_plain_blend_bit_for_bit(monkeypatch, case, policy):
    made = run_met_at(monkeypatch, case.model, case.plan, case.caches(), 0, policy)
    fused = fuse(case.model, case.plan, case.source(), policy)
    assert torch.equal(made.logits, fused.logits)
    for i in range(case.model.num_layers):
        assert torch.equal(made.cache.layer(i).keys, fused.cache.layer(i).keys)
        assert torch.equal(made.cache.layer(i).values, fused.cache.layer(i).values)


def test_everything_computed_is_full(monkeypatch, case):
    context = case.plan.context_tokens
    made = run_met_at(monkeypatch, case.model, case.plan, case.caches(), context, HKVD(0.3))
    logits, _ = reference.full_forward(case.model.hf_model, list(case.plan.token_ids))
    torch.testing.assert_close(made.logits, logits[-1], **EXACT)
    assert set(made.kept_per_layer) == {0}


def test_distance_to_full_falls_as_more_is_computed(monkeypatch):
    cases = [make_case("llama", seed=seed) for seed in range(8)]
    means = []
    for num_computed in (0, 3, 5):
        total = 0.0
        for case in cases:
            caches = [*case.caches()]
            met_at = sum(c.num_tokens for c in caches[:num_computed])
            mixed = run_met_at(monkeypatch, case.model, case.plan, caches, met_at, HKVD(0.15)).logits.log_softmax(-1)
            full = reference.full_forward(case.model.hf_model, list(case.plan.token_ids))[0][-1].log_softmax(-1)
            total += float((full.exp() * (full - mixed)).sum())
        means.append(total / len(cases))
    assert means[0] > 1.5 * means[1] > 0
    assert means[2] == pytest.approx(0, abs=1e-6)


# Prefixes


@pytest.mark.parametrize("length", [1, UNIT, UNIT + 1, CONTEXT])
def test_units_are_the_prefix_cut(case, length):
    ids = random_ids(length, 9)
    units = prefill_units(case.model, "tiny", ids, UNIT)
    assert tuple(t for unit in units for t in unit.token_ids) == tuple(ids)
    assert [unit.key for unit in units] == unit_keys("tiny", ids, UNIT)
    cache = KVCache(case.model, length)
    extend(case.model, cache, torch.tensor(ids))
    start = 0
    for unit in units:
        assert unit.num_tokens == min(UNIT, length - start)
        rotary = case.model.rotary(torch.arange(start, start + unit.num_tokens))
        for i, kv in enumerate(unit.layers):
            rows = cache.layer(i).rows(start, start + unit.num_tokens)
            torch.testing.assert_close(case.model.rotate(i, kv.keys, rotary), rows.keys, **EXACT)
            torch.testing.assert_close(kv.values, rows.values, **EXACT)
            assert kv.keys.untyped_storage().nbytes() == kv.keys.nbytes, "an evicted unit frees its memory"
        start += unit.num_tokens


def test_a_unit_is_found_by_what_stands_in_front_of_it():
    ids = random_ids(40, 1)
    keys = unit_keys("model", ids, UNIT)
    assert keys == [ChunkKey.of("model", ids[s : s + UNIT], ids[:s]) for s in range(0, 40, UNIT)]
    changed = unit_keys("model", [*ids[:13], ids[13] + 1, *ids[14:]], UNIT)
    assert [a == b for a, b in zip(keys, changed, strict=True)] == [True, False, False, False]
    assert not set(keys) & set(unit_keys("model", ids, UNIT, tenant="somebody"))


def test_the_longest_stored_prefix_ends_at_the_first_gap(prefix):
    ids = prefix.plan.token_ids[:CONTEXT]
    keys, units = unit_keys("tiny", ids, UNIT), cut(ids, UNIT)
    kept = {unit.key: unit for i, unit in enumerate(prefix.units) if i != 2}
    found = stored_prefix(keys, units, lambda key, token_ids: kept.get(key))
    assert found == prefix.units[:2]
    assert stored_prefix(keys, units, lambda key, token_ids: None) == []
    with pytest.raises(ValueError, match="at least 1"):
        cut(ids, 0)
