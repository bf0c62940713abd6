"""The experiments about what is inside and what it costs, on a tiny random model."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import pytest

from cacheblend.cancel import Cancelled
from cacheblend.documents import Chunk
from cacheblend.engine import Engine
from cacheblend.evaluation.experiments import (
    EXPERIMENTS,
    Asked,
    Bench,
    fig04,
    fig07,
    fig08,
    fig14,
    fig15,
    fig17,
    perform,
    timed,
)
from cacheblend.evaluation.experiments.timed import shortened
from cacheblend.evaluation.load import Served
from cacheblend.evaluation.points import Point
from cacheblend.loading import StoreConfig
from cacheblend.retrieval import Hit
from cacheblend.trace import COMPARED, Mode
from tests.tiny import random_ids, tiny, tiny_tokenizer

OURS = ("fig04", "fig07", "fig08", "fig14", "fig15", "fig17")


def ask(number: int, chunks: int = 3, tokens: int = 40) -> Asked:
    ids = [tuple(random_ids(tokens + i, 10 * number + i)) for i in range(chunks)]
    hits = tuple(Hit(Chunk(f"d{number}.txt", i, "…", one), 0.5) for i, one in enumerate(ids))
    return Asked(question=f"who lit w{20 + number} ?", hits=hits)


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(tiny("llama"), tiny_tokenizer(), name="tiny", store=StoreConfig(memory_bytes=10**7))


@pytest.fixture
def bench(engine) -> Bench:
    return Bench(engine=engine, asked=(ask(0), ask(1)), max_new_tokens=4)


def of(points: Sequence[Point], panel: str, series: str = "") -> list[Point]:
    return [p for p in points if p.panel == panel and (not series or p.series == series)]


@pytest.mark.parametrize("name", OURS)
def test_every_experiment_stops_when_asked_to(engine, name):
    stop, steps = threading.Event(), []

    def watch(done: int, total: int, what: str) -> None:
        steps.append((done, total, what))
        if len(steps) == 2:
            stop.set()

    with pytest.raises(Cancelled):
        perform(name, Bench(engine=engine, asked=(ask(0), ask(1)), max_new_tokens=4, progress=watch, cancel=stop))
    assert len(steps) == 2 and all(0 <= done <= total and what for done, total, what in steps)


@pytest.mark.parametrize("name", OURS)
def test_a_question_that_does_not_fit_is_left_out_and_said_to_be(engine, name):
    bench = Bench(engine=engine, asked=(ask(5, tokens=400),), max_new_tokens=4)
    assert not list(EXPERIMENTS[name](bench))
    assert "508" in bench.left_out[0] and "who lit w25 ?" in bench.left_out[0]


def test_fig04_shows_that_reuse_attends_to_no_other_chunk(bench):
    points = fig04.run(bench)
    chunks = of(points, fig04.BORDERS, "chunk")
    assert [p.series for p in of(points, fig04.BORDERS)] == ["instruction", "chunk", "chunk", "chunk", "question"]
    for mode in COMPARED:
        cells = of(points, mode)
        assert 48 * 48 / 2 <= len(cells) <= 48 * 48 and all(p.z is not None and 0 <= p.z <= 1 for p in cells)
    second = chunks[1]
    crossing = [p for p in of(points, Mode.REUSE) if second.x <= p.y and p.y + 5 < second.y and p.x + 5 < second.x]
    assert len(crossing) > 20 and all(p.z == 0 for p in crossing)
    across = {p.series: p.y for p in of(points, fig04.ACROSS)}
    assert across[Mode.REUSE] == 0 < across[Mode.BLEND] < across[Mode.FULL] < 1


def test_fig04_sums_attention_exactly(bench):
    one = bench.asked[0]
    plan = bench.engine.plan(one.question, one.hits, max_new_tokens=4)
    maps = bench.engine.inspect(one.question, one.hits, max_new_tokens=4).attention
    whole = (0, plan.num_tokens)
    weights = np.nan_to_num(maps.window(Mode.FULL, 2, None, rows=whole, cols=whole, size=plan.num_tokens).values)
    first, second, third = plan.segments[1:4]
    rows = [weights[r, first.start : second.start].sum() for r in range(second.start, second.stop)]
    rows += [weights[r, first.start : third.start].sum() for r in range(third.start, third.stop)]
    assert fig04.share_across(maps, Mode.FULL, 2, plan.segments) == pytest.approx(float(np.mean(rows)), rel=1e-5)
    assert fig04.share_across(maps, Mode.FULL, 2, plan.segments[:2]) is None


def test_fig07_is_a_distribution_around_its_median(bench):
    points = fig07.run(bench)
    names = [f"layer {layer} of 5" for layer in (2, 3, 4)]
    for name in names:
        curve = of(points, fig07.CDF, name)
        x, y = [p.x for p in curve], [p.y for p in curve]
        assert x == sorted(x) and y == sorted(y) and y[-1] == 1.0
        assert np.interp(0.5, y, x) == pytest.approx(1.0, abs=0.05)
        assert curve[0].n == 2 * (41 + 42)  # chunks after the first, of both questions
        (tail,) = of(points, fig07.TAIL, name)
        assert tail.low <= tail.y <= tail.high and tail.n == 2
        assert tail.y == pytest.approx(np.interp(0.9, y, x), rel=0.1)


def test_fig07_takes_layers_as_deep_as_the_papers():
    assert fig07.shown_layers(32) == [4, 5, 6]
    assert fig07.shown_layers(30) == [4, 5, 6]
    assert fig07.shown_layers(80) == [10, 11, 12]
    assert fig07.shown_layers(5) == [2, 3, 4]
    assert fig07.shown_layers(2) == [2]


def naive_spearman(a: np.ndarray, b: np.ndarray) -> float:
    """1 − 6 Σd² / (n³ − n), ranks counted one by one; no two values are equal."""
    ranks = [[sum(other < value for other in row) for value in row] for row in (a, b)]
    n = len(a)
    return 1 - 6 * sum((i - j) ** 2 for i, j in zip(*ranks, strict=True)) / (n**3 - n)


def test_fig08_agrees_with_naive_ranks(bench, monkeypatch):
    matrix = np.random.default_rng(3).random((5, 40)).astype(np.float32)
    matrix[0] = 0.0
    monkeypatch.setattr(fig08, "deviations", lambda _: iter([matrix]))
    points = fig08.run(bench)
    pairs = {fig08.NEIGHBOURS: [(1, 2), (2, 3), (3, 4)], fig08.SELECTING: [(1, 2), (1, 3), (1, 4)]}
    for series, layers in pairs.items():
        for point, (a, b) in zip(of(points, fig08.RANKS, series), layers, strict=True):
            assert point.y == pytest.approx(naive_spearman(matrix[a], matrix[b]), abs=1e-6)
            assert point.x == pytest.approx(100 * (b + 1) / 5) and point.label == f"layers {a + 1} and {b + 1} of 5"
        for point, (a, b) in zip(of(points, fig08.OVERLAP, series), layers, strict=True):
            tops = [set(sorted(range(40), key=lambda t, row=row: -row[t])[:6]) for row in (matrix[a], matrix[b])]
            assert point.y == pytest.approx(len(tops[0] & tops[1]) / 6)


def test_fig08_counts_only_chunks_after_the_first(bench):
    points = fig08.run(bench)
    assert {(p.panel, p.series) for p in points} == {
        (panel, series) for panel in (fig08.RANKS, fig08.OVERLAP) for series in (fig08.NEIGHBOURS, fig08.SELECTING)
    }
    assert all(-1 <= p.y <= 1 and p.n == 2 for p in points)
    alone = Bench(engine=bench.engine, asked=(ask(0, chunks=1),), max_new_tokens=4)
    assert fig08.run(alone) == [] and "1 chunk" in alone.left_out[0]


SERVED = {
    Mode.FULL: [Served(1.0, 1.2), Served(1.0, 1.2)],
    Mode.BLEND: [Served(0.3, 0.5), Served(0.9, 1.1)],
}


def test_fig14_places_times_on_a_grid_of_rates():
    points = fig14.points_of(SERVED, {mode: f"store of {mode}" for mode in SERVED})
    for panel in (fig14.MEDIAN, fig14.TAIL):
        for mode in SERVED:
            line = of(points, panel, mode)
            assert line[0].x == 0 and len(line) > 6
            ys = [p.y for p in line]
            assert ys == sorted(ys)  # the same arrivals, closer together
    assert of(points, fig14.MEDIAN, Mode.FULL)[0].y == 1.0 and of(points, fig14.MEDIAN, Mode.BLEND)[0].y == 0.6
    full, blend = of(points, fig14.SUSTAINED)
    assert full.y == blend.y == 3.0 and 0 < full.x < 1 / 1.2 and full.x < blend.x < 1 / 0.8
    assert blend.label == "store of blend"
    assert max(p.x for p in of(points, fig14.TAIL, Mode.FULL)) <= fig14.BUSIEST / 1.2


def test_fig14_serves_every_request_on_a_store_of_its_own(bench):
    before = bench.engine.store.stats
    room = fig14.store_bytes(bench, bench.asked)
    per_token, prefix = bench.engine.kv_bytes_per_token, len(bench.engine.prompts.prefix)
    assert room == per_token * (prefix + 123)  # one question's chunks are more than half of both's
    server = fig14.Server(bench, Mode.BLEND, room)
    cold, warm, other = server.serve(bench.asked[0]), server.serve(bench.asked[0]), server.serve(bench.asked[1])
    assert all(0 < one.ttft_s <= one.service_s for one in (cold, warm, other))
    (stats,) = server.engine.store.stats
    assert stats.hits == 4 + 1 and stats.misses == 4 + 3 and stats.evictions >= 3 and stats.nbytes <= room
    assert "42 % of 12 look-ups" in server.describe() and f"{stats.evictions} evictions" in server.describe()
    assert bench.engine.store.stats == before


def test_fig14_serves_each_request_in_all_modes_before_the_next(engine):
    steps, seen = [], []
    bench = Bench(engine=engine, asked=(ask(0),), progress=lambda *step: steps.append(step))

    def serving(mode: Mode):
        def serve(request: Asked) -> Served:
            seen.append((mode, request))
            return Served(0.1, 0.2)

        return serve

    requests, modes = [ask(n) for n in range(3)], (Mode.FULL, Mode.REUSE)
    served = fig14.serve_all(bench, requests, {mode: serving(mode) for mode in modes})
    assert served == {mode: [Served(0.1, 0.2)] * 3 for mode in modes}
    assert seen == [(mode, request) for request in requests for mode in modes]
    assert [done for done, _, _ in steps] == list(range(7)) and all(total == 6 for _, total, _ in steps)


def test_fig14_runs_in_every_mode(engine):
    points = fig14.run(Bench(engine=engine, asked=(ask(0, 2, 12), ask(1, 2, 12)), max_new_tokens=3))
    assert [p.series for p in of(points, fig14.SUSTAINED)] == list(fig14.MODES)
    assert all(p.n == 2 * fig14.TIMES and np.isfinite(p.y) and p.y > 0 for p in points)


def test_fig15_measures_counts_lengths_and_batches(engine):
    points = fig15.run(Bench(engine=engine, asked=(ask(0, 3), ask(1, 2)), max_new_tokens=4))
    full = {panel: of(points, panel, Mode.FULL) for panel in (fig15.CHUNKS, fig15.LENGTH, fig15.BATCH)}
    assert [(p.x, p.n) for p in full[fig15.CHUNKS]] == [(1, 2), (2, 2), (3, 1)]
    assert [p.x for p in full[fig15.LENGTH]] == [32, pytest.approx((40 + 41 + 42 + 40 + 41) / 5)]
    assert [p.x for p in full[fig15.BATCH]] == [1, 2, 4] and all(p.low is None for p in full[fig15.BATCH])
    assert {p.series for p in points} == set(fig15.MODES) and all(p.y > 0 for p in points)
    assert "one after another" in full[fig15.BATCH][0].label and "32" in full[fig15.LENGTH][0].label


def test_chunks_are_cut_as_far_as_they_reach():
    hits = shortened(ask(0).hits, 41)
    assert [len(hit.chunk.token_ids) for hit in hits] == [40, 41, 41]
    assert hits[2].chunk.token_ids == ask(0).hits[2].chunk.token_ids[:41]


def test_fig17_changes_time_and_not_quality(engine):
    points = fig17.run(Bench(engine=engine, asked=(ask(0), ask(1)), max_new_tokens=4))
    assert [p.y for p in of(points, fig17.TTFT, Mode.FULL)] == [1.0]
    for mode in fig17.MODES:
        bars, distances = of(points, fig17.TTFT, mode), of(points, fig17.DISTANCE, mode)
        assert [p.x for p in bars] == [p.x for p in distances] == list(range(len(fig17.DEVICES)))
        assert bars[0].label == "host memory" and all(p.label.endswith(", emulated") for p in bars[1:])
        assert len({p.y for p in distances}) == 1  # to the bit
        assert all(p.y > 0 and p.n == 2 for p in bars)
    bandwidths = [device.bandwidth for device in fig17.DEVICES if device]
    assert bandwidths == sorted(bandwidths, reverse=True)


def test_a_store_too_small_for_the_chunks_is_said_once():
    made = Engine(tiny("llama"), tiny_tokenizer(), name="tiny", store=StoreConfig(memory_bytes=40_000))
    bench = Bench(engine=made, asked=(ask(0), ask(1)), max_new_tokens=4)
    one = bench.asked[0]
    timed.warm_up(bench, one, (Mode.FULL, Mode.REUSE))
    for mode in (Mode.REUSE, Mode.BLEND, Mode.FULL):
        assert timed.ttft_ms(bench, timed.plan_of(bench, one.question, one.hits), mode) > 0
    assert bench.left_out == [timed.TOO_SMALL]


def test_long_questions_are_named_shortly():
    assert timed.shown(Asked(question="who " * 40, hits=ask(0).hits[:1])).endswith("who…” with 1 chunk")


def test_how_many_questions_were_measured_is_said(engine):
    bench = Bench(engine=engine, asked=tuple(ask(n) for n in range(4)))
    assert [len(timed.fitting(bench, most)) for most in (None, 4, 3, 1)] == [4, 4, 3, 1]
    assert bench.left_out == ["Measured with the first 3 of 4 questions.", "Measured with the first of 4 questions."]
