"""Experiments about quality on a tiny random model: what they promise to return, and what has to be exact."""

from __future__ import annotations

import gc
import threading
from dataclasses import replace
from statistics import median

import numpy as np
import pytest

from cacheblend.cancel import Cancelled
from cacheblend.documents import Chunk
from cacheblend.engine import Engine
from cacheblend.evaluation.experiments import fig02, fig06, fig12, fig13, fig16, frontier
from cacheblend.evaluation.experiments.base import Asked, Bench
from cacheblend.evaluation.experiments.means import closed_points, mean_points
from cacheblend.evaluation.experiments.rounds import Setting, rounds
from cacheblend.evaluation.experiments.timed import TOO_SMALL
from cacheblend.evaluation.measure import Measure
from cacheblend.evaluation.points import Picked, Point
from cacheblend.fusion.extend import KVCache
from cacheblend.loading import StoreConfig
from cacheblend.policies import POLICIES_TOLD
from cacheblend.retrieval import Hit
from cacheblend.trace import Mode, Recipe, Trace
from tests.tiny import random_ids, tiny, tiny_tokenizer

CHUNK_TOKENS = (17, 23, 11)


class Alike:
    """An embedder for which texts are vectors by lot."""

    def encode(self, texts):
        vectors = np.random.default_rng(0).normal(size=(len(texts), 8)).astype(np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def engine() -> Engine:
    made = Engine(tiny("llama"), tiny_tokenizer(), name="tiny", store=StoreConfig(memory_bytes=10**8))
    made._embedder = Alike()
    return made


def asked(seed: int, chunks: int = 3, answers: tuple[str, ...] = ("w20 w21",)) -> Asked:
    hits = tuple(
        Hit(Chunk(f"d{seed}", number, f"text {seed} {number}", tuple(random_ids(length, 10 * seed + number))), 0.5)
        for number, length in enumerate(CHUNK_TOKENS[:chunks])
    )
    return Asked(question=f"who lit w{20 + seed} ?", hits=hits, answers=answers)


def bench(engine: Engine, **options) -> Bench:
    options.setdefault("asked", (asked(1), asked(2)))
    return Bench(engine=engine, max_new_tokens=4, **options)


def at(points: list[Point], panel: str, series: str) -> dict[float, Point]:
    return {point.x: point for point in points if (point.panel, point.series) == (panel, series)}


def test_fig02_has_every_mode_at_every_number_of_chunks(engine):
    points = fig02.run(bench(engine, asked=(asked(1), asked(2, chunks=2))))
    for panel in (fig02.F1, fig02.KL):
        for mode in (Mode.FULL, Mode.REUSE, Mode.BLEND, Mode.PRIME):
            assert {x: point.n for x, point in at(points, panel, mode).items()} == {1: 2, 2: 2, 3: 1}
    assert all(point.y == 0 for point in at(points, fig02.KL, Mode.FULL).values())
    assert all(point.low is None for point in points if point.n == 1)
    assert all(point.low <= point.y <= point.high for point in points if point.n > 1)


def test_fig06_begins_at_one_and_is_measured_against_the_same_question(engine):
    one = bench(engine, asked=(asked(1),))
    points = fig06.run(one)
    for panel in (fig06.ATTENTION, fig06.KV):
        for series in fig06.SERIES:
            line = at(points, panel, series)
            assert sorted(line) == [0, 0.5, 2, 5, 10, 15, 30, 50]
            assert line[0].y == 1.0
    measure = Measure(engine, one.asked[0].question, one.asked[0].hits, max_new_tokens=4, deviations=True)
    reuse, blend = measure.run(Mode.REUSE).fidelity, measure.run(Mode.BLEND).fidelity
    expected = blend.attention_deviation / reuse.attention_deviation
    assert at(points, fig06.ATTENTION, "HKVD")[15].y == pytest.approx(expected)


def test_full_ratio_leaves_no_distance(engine, monkeypatch):
    monkeypatch.setattr(fig06, "RATIOS", (1.0,))
    monkeypatch.setattr(fig16, "RATIOS", (1.0,))
    for panel in (fig06.ATTENTION, fig06.KV):
        assert at(fig06.run(bench(engine)), panel, "HKVD")[100].y == pytest.approx(0, abs=1e-4)
    points = fig16.run(bench(engine))
    for series in (fig16.SINGLE, fig16.GRADUAL, fig16.PRIMED):
        assert at(points, fig16.CLOSED, series)[100].y == pytest.approx(1, abs=1e-4)


def test_fig16_begins_at_bare_reuse_and_has_every_ratio(engine):
    points = fig16.run(bench(engine))
    for series in (fig16.SINGLE, fig16.GRADUAL, fig16.PRIMED):
        for panel in (fig16.CLOSED, fig16.F1):
            assert sorted(at(points, panel, series)) == [0, 2.5, 5, 10, 15, 20, 30, 50, 100]
    assert at(points, fig16.CLOSED, fig16.SINGLE)[0].y == at(points, fig16.CLOSED, fig16.GRADUAL)[0].y == 0
    assert at(points, fig16.CLOSED, fig16.PRIMED)[0].y != 0, "its recipe alone changes something"


def test_there_is_no_f1_where_nobody_knows_the_answer(engine):
    unknown = bench(engine, asked=(asked(1, answers=()),))
    assert {point.panel for point in fig16.run(unknown)} == {fig16.CLOSED}
    assert {point.panel for point in fig02.run(unknown)} == {fig02.KL}


def test_fig12_has_a_point_a_mode(engine):
    points = fig12.run(bench(engine))
    for panel in (fig12.CLOSED, fig12.F1):
        assert {point.series for point in points if point.panel == panel} == {Mode.FULL, *fig12.MODES}
    closed = {point.series: point for point in points if point.panel == fig12.CLOSED}
    assert (closed[Mode.FULL].x, closed[Mode.FULL].y) == (1, 1)
    assert closed[Mode.REUSE].y == 0
    assert closed[Mode.PREFIX].y == pytest.approx(1, abs=1e-4), "prefix caching is exact"


def test_prefix_caching_finds_the_first_chunk_and_nothing_that_was_asked_before(engine):
    for _ in range(2):
        (done,) = rounds(bench(engine, asked=(asked(1),)), [Setting("prefix", Mode.PREFIX)])
        plan = engine.plan(done.asked.question, done.asked.hits)
        rest = sum(CHUNK_TOKENS[1:])
        assert done.traces[0].recomputed_share == pytest.approx(rest / plan.context_tokens)


def test_fig13_says_how_many_replies_had_no_score(engine):
    watched = bench(engine)
    points = fig13.run(watched)
    assert {point.series for point in points} == {Mode.FULL, Mode.BLEND, Mode.MAP_REDUCE, Mode.MAP_RERANK}
    assert {point.panel for point in points} == {fig13.GOLD}
    (rerank,) = at(points, fig13.GOLD, Mode.MAP_RERANK).values()
    assert "of 6 replies" in rerank.label
    assert watched.left_out and "of 6 replies" in watched.left_out[0], "random weights write no scores"
    unknown = fig13.run(bench(engine, asked=(asked(1, answers=()),)))
    assert {point.panel for point in unknown} == {fig13.TO_FULL}
    assert at(unknown, fig13.TO_FULL, Mode.FULL)[1].y == 1


def test_the_frontier_has_every_policy_and_recipe_and_says_how_each_was_run(engine):
    points = frontier.run(bench(engine, asked=(asked(1),)))
    choices = {about.name for about in POLICIES_TOLD if about.is_choice}
    for panel in (frontier.BUDGET, frontier.TIME):
        shown = [point for point in points if point.panel == panel]
        assert {point.series for point in shown} == choices | {Mode.FULL, Mode.REUSE, Mode.PRIME}
        for policy in choices:
            mine = [Picked.of(point.label) for point in shown if point.series == policy]
            assert mine == [Picked(policy, Recipe.BARE, ratio) for ratio in (0.05, 0.15, 0.3)]
        reused = [Picked.of(point.label) for point in shown if point.series == Mode.REUSE]
        assert reused == [Picked("none", recipe, 0) for recipe in Recipe]
    budgets = at(points, frontier.BUDGET, "hkvd")
    assert [round(x) for x in budgets] == pytest.approx([5, 15, 30], abs=1.5)
    heights = [{p.label: p.y for p in points if p.panel == panel} for panel in (frontier.BUDGET, frontier.TIME)]
    assert heights[0] == heights[1]


def test_labels_are_read_back():
    assert Picked("hkvd", Recipe.BARE, 0.15).label == "hkvd|bare|0.15"
    assert Picked.of("query|neutral|0.05") == Picked("query", Recipe.NEUTRAL, 0.05)
    for label in ("", "TTFT 12 ms", "hkvd|none of these|0.1", "hkvd|bare|much", "a|b|c|d"):
        assert Picked.of(label) is None


@pytest.mark.parametrize("experiment", [fig02, fig06, fig12, fig13, fig16, frontier])
def test_stopping_raises_and_the_next_run_is_whole(engine, experiment):
    stop = threading.Event()
    seen = []

    def progress(done: int, total: int, what: str) -> None:
        seen.append((done, total, what))
        if len(seen) == 4:
            stop.set()

    with pytest.raises(Cancelled):
        experiment.run(bench(engine, asked=(asked(3),), progress=progress, cancel=stop))
    assert len(seen) == 4 and all(0 <= done < total and what for done, total, what in seen)


def test_a_question_that_does_not_fit_is_left_out_and_said(engine):
    long = replace(asked(1), hits=tuple(Hit(Chunk("d", i, "t", tuple(random_ids(200, i))), 0.5) for i in range(3)))
    watched = bench(engine, asked=(long, asked(2)))
    (done,) = rounds(watched, [Setting("reuse", Mode.REUSE)])
    assert done.asked == asked(2)
    (said,) = watched.left_out
    assert "who lit w21" in said and "3 chunks" in said
    nothing = bench(engine, asked=(long,))
    assert fig12.run(nothing) == fig16.run(nothing) == frontier.run(nothing) == []


def test_caches_for_which_the_store_is_too_small_are_said_where_time_counts():
    size = 40 * tiny("llama").config.num_hidden_layers * 2 * 2 * 8 * 4  # 40 tokens: two chunks at most
    small = Engine(tiny("llama"), tiny_tokenizer(), name="tiny", store=StoreConfig(memory_bytes=size))
    watched = bench(small, asked=(asked(1),))
    done = list(rounds(watched, [Setting("reuse", Mode.REUSE)], timed=True))
    assert not done[0].traces[0].is_warm
    assert watched.left_out == [TOO_SMALL]


def test_nothing_but_numbers_is_kept_from_one_question_to_the_next(engine):
    def held() -> int:
        gc.collect()
        return sum(type(thing) in (KVCache, Measure, Trace) for thing in gc.get_objects())

    watched, counted = bench(engine, asked=tuple(asked(seed) for seed in range(1, 5))), []
    before = held()
    for done in rounds(watched, [Setting("reuse", Mode.REUSE)], deviations=True):
        assert len(done.traces) == 1
        counted.append(held())
    assert len(set(counted)) == 1
    del done
    assert held() == before


def test_means_and_shares_against_numbers_by_hand():
    (mean,) = mean_points([0.2, None, 0.4], series="s", x=1.0)
    assert (mean.y, mean.n) == (pytest.approx(0.3), 2)
    assert (mean.low, mean.high) == (pytest.approx(0.2), pytest.approx(0.4))
    assert mean_points([None], series="s", x=1.0) == []
    (alone,) = mean_points([0.2], series="s", x=1.0)
    assert (alone.low, alone.high) == (None, None)
    (share,) = closed_points([0.1, 0.1], [0.1, 0.7], series="s", x=1.0)
    assert share.y == pytest.approx(1 - 0.2 / 0.8)
    assert (share.low, share.high) == (pytest.approx(0.0), pytest.approx(1 - 0.1 / 0.7))
    assert closed_points([0.0], [0.0], series="s", x=1.0) == []


def test_ttft_is_divided_by_fulls_of_the_same_question(engine, monkeypatch):
    """The share is the median of shares, not a share of medians: two questions with known times."""
    known = {1: (100.0, 50.0), 2: (1000.0, 100.0)}

    def run(self, mode, blend, loading):
        trace = original(self, mode, blend, loading)
        full_ms, other_ms = known[int(self.hits[0].chunk.document[1:])]
        spans = tuple(
            replace(span, start_ms=0.0, end_ms=full_ms if mode is Mode.FULL else other_ms) for span in trace.spans
        )
        return replace(trace, spans=spans)

    original = Measure._run
    monkeypatch.setattr(Measure, "_run", run)
    monkeypatch.setattr(fig12, "MODES", (Mode.REUSE,))
    points = fig12.run(bench(engine))
    assert {p.x for p in points if p.series == Mode.REUSE} == {median([0.5, 0.1])}
    assert {p.label for p in points if p.series == Mode.FULL} == {"TTFT 550 ms"}
