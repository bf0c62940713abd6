"""Sessions, settings and streams: what keeps visitors apart and their input in bounds."""

from __future__ import annotations

import threading

import pytest

from cacheblend.retrieval import Ordering
from cacheblend.trace import Deviation, Mode, Recipe, Selector
from tests.app.fakes import fake_comparison
from ui.background import stream
from ui.sessions import MAX_RUNS, Run, Session, Sessions, new_id
from ui.settings import Settings, parse

FORM = (["full", "blend"], 15, "own", "hkvd", "single", "value", "bare", 6, "relevance", 0, 64)


def test_a_session_is_found_by_its_id_alone():
    sessions = Sessions()
    mine, theirs = sessions.open(None), sessions.open("a guess")
    assert mine.id != theirs.id
    assert theirs.id != "a guess"
    assert sessions.open(mine.id) is mine
    assert sessions.find("a guess") is None


def test_ids_are_long_and_differ():
    ids = {new_id() for _ in range(100)}
    assert len(ids) == 100
    assert min(map(len, ids)) >= 24


def test_sessions_expire_and_stop_their_job():
    now = [0.0]
    sessions = Sessions(time_to_live_s=10, clock=lambda: now[0])
    old = sessions.open(None)
    with old.job() as cancel:
        now[0] = 11
        sessions.open(None)
        assert sessions.find(old.id) is None
        assert cancel.is_set()
    assert len(sessions) == 1


def test_a_run_is_kept_with_its_visitor_until_newer_ones_push_it_out():
    sessions = Sessions()
    session = sessions.open(None)
    runs = [Run(id=new_id(), comparison=fake_comparison("?", [], [])) for _ in range(MAX_RUNS + 1)]
    for run in runs:
        session.keep(run)
    assert sessions.find_run(runs[0].id) is None
    assert sessions.find_run(runs[-1].id) is runs[-1]
    sessions.close(session.id)
    assert sessions.find_run(runs[-1].id) is None


def test_stop_waits_for_the_job_to_end():
    session, begun, ended = Session(), threading.Event(), threading.Event()

    def work() -> None:
        with session.job() as cancel:
            begun.set()
            assert cancel.wait(5)
            ended.set()

    worker = threading.Thread(target=work)
    worker.start()
    begun.wait(5)
    session.stop(wait_s=5)
    assert ended.is_set()
    worker.join(5)
    session.stop(wait_s=5)  # nothing runs any more: returns at once


def test_the_form_is_parsed():
    settings = parse(*FORM)
    assert settings.modes == (Mode.FULL, Mode.BLEND)
    assert settings.ratio == 0.15
    assert settings.ordering is Ordering.RELEVANCE
    assert (settings.blend.ratio, settings.blend.selector, settings.blend.deviation) == (
        0.15,
        Selector.SINGLE,
        Deviation.VALUE,
    )


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (0, [], "Choose at least one mode"),
        (0, ["telepathy"], "telepathy"),
        (1, 101, "recompute ratio must lie between 0 and 1"),
        (1, float("nan"), "recompute ratio"),
        (2, "yours", "yours"),
        (3, "luck", "no such selection policy"),
        (3, "all", "no such selection policy"),
        (4, "magic", "magic"),
        (5, "vibes", "vibes"),
        (6, "secret", "secret"),
        (7, 0, "number of chunks must lie between"),
        (7, 10_000, "number of chunks must lie between"),
        (8, "sideways", "sideways"),
        (9, -1, "seed"),
        (10, 100_000, "answer's length"),
        (1, None, "A setting is empty"),
        (9, None, "A setting is empty"),
    ],
)
def test_values_outside_the_form_are_refused_in_a_sentence(place, value, said):
    form = [*FORM]
    form[place] = value
    with pytest.raises(ValueError, match=said):
        parse(*form)


def test_the_papers_preset_is_the_papers_whatever_else_the_form_says():
    settings = parse(["blend"], 15, "paper", "random", "gradual", "key", "neutral", 6, "relevance", 0, 64)
    assert settings.blend == Settings().blend
    assert settings.blend.describe(Mode.BLEND) == "HKVD single, by value"
    own = parse(["prime"], 5, "own", "query", "single", "value", "similar", 6, "relevance", 0, 64).blend
    assert (own.policy, own.recipe) == ("query", Recipe.SIMILAR)


def test_defaults_are_the_papers():
    assert Settings().ratio == 0.15
    assert Settings().top_k == 6


def test_a_stream_yields_reports_and_returns_the_result():
    def collect():
        result = yield from stream(lambda tell: [tell(i, i + 1) for i in range(3)] and "done", lambda i, j: i * 10 + j)
        yield result

    assert list(collect()) == [1, 12, 23, "done"]


def test_a_stream_raises_what_the_job_raised():
    def job(report):
        report("half")
        raise ValueError("broken")

    steps = stream(job, str.upper)
    assert next(steps) == "HALF"
    with pytest.raises(ValueError, match="broken"):
        next(steps)
