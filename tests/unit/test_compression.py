"""The choice of levels against a search of every combination."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cacheblend.compression import RECOMPUTE, Choice, Form, StreamedChunk, plan

LEVELS = ("fine", "middle", "coarse")


@st.composite
def chunk_lists(draw) -> list[StreamedChunk]:
    """One to four chunks in three levels; decoding a coarser level may take longer, recomputing may be impossible."""
    number = st.floats(0, 1e6)
    recompute = st.one_of(st.just(math.inf), st.floats(0, 3000))
    return [
        StreamedChunk(
            forms=tuple(Form(level=level, nbytes=draw(number), decode_ms=draw(st.floats(0, 500))) for level in LEVELS),
            recompute_ms=draw(recompute),
        )
        for _ in range(draw(st.integers(1, 4)))
    ]


BANDWIDTHS = st.floats(1e3, 1e9)
TARGETS = st.floats(0, 5000)


def fastest(chunks: list[StreamedChunk], bandwidth: float) -> float:
    """The least time of all combinations, written a second time."""
    ways = [
        [1000 * form.nbytes / bandwidth + form.decode_ms for form in chunk.forms] + [chunk.recompute_ms]
        for chunk in chunks
    ]
    return min(math.fsum(combination) for combination in itertools.product(*ways))


def coarsest(choices: tuple[Choice, ...]) -> int:
    """The number of the coarsest level among choices; recomputed chunks are exact."""
    return max((LEVELS.index(choice.level) for choice in choices if choice.level != RECOMPUTE), default=-1)


@settings(deadline=None)
@given(chunk_lists(), TARGETS, BANDWIDTHS)
def test_a_target_is_met_whenever_any_combination_meets_it(chunks, target, bandwidth):
    total = math.fsum(choice.ms for choice in plan(chunks, target, bandwidth))
    best = fastest(chunks, bandwidth)
    assert total <= target if best <= target else total == pytest.approx(best)


@settings(deadline=None)
@given(chunk_lists(), TARGETS, BANDWIDTHS)
def test_no_plan_of_uniformly_finer_levels_meets_the_target(chunks, target, bandwidth):
    limit = coarsest(plan(chunks, target, bandwidth))
    for finer in range(limit):
        allowed = [StreamedChunk(forms=chunk.forms[: finer + 1], recompute_ms=chunk.recompute_ms) for chunk in chunks]
        assert fastest(allowed, bandwidth) > target


@settings(deadline=None)
@given(chunk_lists(), TARGETS, BANDWIDTHS, st.floats(1, 100))
def test_more_bandwidth_never_needs_coarser_levels(chunks, target, bandwidth, times):
    def needed(bandwidth: float) -> int:
        """The finest level number within which the target is met; one more than there are if it is not."""
        for limit in range(len(LEVELS)):
            if math.fsum(chunk.best(limit, bandwidth).ms for chunk in chunks) <= target:
                return limit
        return len(LEVELS)

    more = bandwidth * times
    assert needed(more) <= needed(bandwidth)
    assert coarsest(plan(chunks, target, more)) <= min(needed(bandwidth), len(LEVELS) - 1)


@settings(deadline=None)
@given(chunk_lists(), BANDWIDTHS)
def test_without_a_target_everything_is_finest_or_exact(chunks, bandwidth):
    for chunk, choice in zip(chunks, plan(chunks, math.inf, bandwidth), strict=True):
        assert choice.level in ("fine", RECOMPUTE)
        assert (choice.level == RECOMPUTE) == (chunk.recompute_ms <= chunk.forms[0].ms(bandwidth))


def two_level_chunks(count: int) -> list[StreamedChunk]:
    """Chunks of 1 MB or 250 kB, 300 ms to recompute."""
    return [StreamedChunk.of(512, {"fine": 1e6, "coarse": 250e3}, {}, recompute_ms=300) for _ in range(count)]


def test_where_no_choice_makes_it_the_fastest_is_taken():
    (choice,) = plan(two_level_chunks(1), target_ms=10, bandwidth=1e6)
    assert (choice.level, choice.ms) == ("coarse", 250)


def test_decoding_counts():
    chunk = StreamedChunk.of(100, {"fine": 1000.0, "coarse": 500.0}, {"coarse": 1.0})
    assert [form.ms(1e6) for form in chunk.forms] == [1.0, 100.5]


def test_nothing_to_stream_is_no_choice():
    assert plan([], 100, 1e6) == ()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Form(level="fine", nbytes=-1),
        lambda: Form(level="fine", nbytes=math.nan),
        lambda: Form(level="fine", nbytes=1, decode_ms=math.inf),
        lambda: Form(level=RECOMPUTE, nbytes=1),
        lambda: StreamedChunk(forms=()),
        lambda: StreamedChunk(forms=(Form(level="fine", nbytes=1),), recompute_ms=-1),
        lambda: plan(two_level_chunks(1), 100, 0),
        lambda: plan([*two_level_chunks(1), StreamedChunk.of(1, {"other": 1}, {})], 100, 1e6),
    ],
)
def test_nonsense_is_refused(make):
    with pytest.raises(ValueError):
        make()


def test_torch_is_not_needed():
    code = "import sys, cacheblend.compression; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
