"""Experiments on a visitor's documents, and their points opened: the generators and handlers, without a page."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import replace

import plotly.graph_objects as go
import pytest

from cacheblend.cancel import Cancelled
from cacheblend.evaluation.experiments import EXPERIMENTS
from cacheblend.evaluation.points import Picked, Point
from cacheblend.trace import COMPARED, Recipe
from tests.app import experiments
from tests.app.fakes import FakeEngine, fake_studio, indexed, sample
from tests.synthetic import HOSTILE
from tests.unit.evaluation.results import hostile, result
from ui import asking, experiment_view, experimenting, guard, opening, performed
from ui.background import THREADS
from ui.experimenting import Pace, Wish, parse
from ui.panes.experiment_result import drawn_of, report_of
from ui.performed import Performed
from ui.sessions import MAX_EXPERIMENTS
from ui.settings import Settings

TEXTS = {"ada.txt": "Ada wrote the first program.", "charles.txt": "Charles drew the engine."}
WISH = Wish(name="frontier", questions=("Who wrote it?", "Who drew it?"), chunks=2, ratio=0.15)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(asking, "SETTLE_S", 0)
    monkeypatch.setattr(experimenting, "TOLD_EVERY_S", 0.0)
    experiments.install(monkeypatch)


@pytest.fixture
def studio(tmp_path):
    return fake_studio(samples=[sample(tmp_path, "first")])


@pytest.fixture
def session(studio, tmp_path):
    session = studio.sessions.open(None)
    session.collection = indexed(studio, TEXTS, tmp_path)
    return session


def run(studio, session, wish=WISH):
    *steps, last = experimenting.run(studio, session, wish)
    return steps, last


def test_the_form_is_parsed():
    wish = parse("fig16", " Who? \n\nWhen?\nWho?", 4, 30)
    assert wish == Wish(name="fig16", questions=("Who?", "When?"), chunks=4, ratio=0.3)
    assert len(parse("fig16", "\n".join(map(str, range(20))), 1, 0).questions) == 20


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (("fig99", "Who?", 6, 15), "no such experiment"),
        (("", "Who?", 6, 15), "no such experiment"),
        (("fig16", " \n ", 6, 15), "no question"),
        (("fig16", None, 6, 15), "no question"),
        (("fig16", "\n".join(map(str, range(21))), 6, 15), "21 questions: keep the 20"),
        (("fig16", "x" * 2001, 6, 15), "shorten it"),
        (("fig16", "Who?", 0, 15), "number of chunks must lie between 1 and 24"),
        (("fig16", "Who?", math.nan, 15), "number of chunks"),
        (("fig16", "Who?", None, 15), "number of chunks"),
        (("fig16", "Who?", 6, 101), "ratio must lie between 0 and 100"),
        (("fig16", "Who?", 6, "15"), "ratio must lie"),
        (("fig16", "Who?", 6, True), "ratio must lie"),
    ],
)
def test_values_outside_the_form_are_refused_in_a_sentence(values, said):
    with pytest.raises(ValueError, match=said):
        parse(*values)


def test_the_questions_of_the_run_on_screen_and_of_the_sample_are_offered(studio, session):
    assert experimenting.suggested(studio, None, None) == ""
    assert experimenting.suggested(studio, session, "recorded") == ""
    session.sample = "first"
    *_, last = asking.ask(studio, session, "Who\nwrote it?", Settings())
    offered = experimenting.suggested(studio, session, last.run_id)
    assert offered.splitlines() == ["Who wrote it?", "Who wrote first?", "When was first written?"]


def test_a_result_is_measured_and_kept_with_what_was_asked(studio, session):
    steps, last = run(studio, session)
    said = " ".join(step.status for step in steps)
    assert "Computing chunk caches: 2 of 2" in said
    assert "0 of 6: question 1, none|bare|0" in said and "left: question 2" in said
    made = last.performed
    assert list(session.experiments) == [made] and performed.find(session, made.id) is made
    assert made.result.questions == 2 and made.result.left_out == ("Nothing of importance.",)
    assert [question for question, _ in made.asked] == ["Who wrote it?", "Who drew it?"]
    assert all(len(hits) == 2 for _, hits in made.asked)


def test_known_answers_go_with_their_questions(studio, session, monkeypatch):
    seen = []
    monkeypatch.setitem(EXPERIMENTS, "fig16", lambda bench: seen.append(bench) or [])
    run(studio, session, Wish(name="fig16", questions=("Who wrote first?", "Who?"), chunks=1, ratio=0.4))
    (bench,) = seen
    assert [one.answers for one in bench.asked] == [("Ada", "ada"), ()]
    assert (bench.ratio, bench.engine.caches._tenant) == (0.4, session.tenant)


def test_nothing_is_run_without_documents(studio):
    for visitor in (None, studio.sessions.open(None)):
        with pytest.raises(ValueError, match="no documents yet"):
            list(experimenting.run(studio, visitor, WISH))


def test_a_stop_ends_it_and_gives_the_turn_back(session, studio):
    steps = experimenting.run(studio, session, WISH)
    for step in steps:
        if "1 of 6" in step.status:
            session.stop()
            break
    with pytest.raises(Cancelled):
        list(steps)
    assert not studio.turn.locked() and not session.experiments
    *_, last = guard.guarded(experimenting.run(studio, session, WISH), experimenting.Step)
    assert last.performed is not None


def test_whoever_leaves_stops_it(studio, session):
    steps = experimenting.run(studio, session, WISH)
    next(step for step in steps if "0 of 6" in step.status)
    steps.close()
    assert not still_running(), "an experiment went on for a visitor who had left"
    assert not studio.turn.locked()


def test_closing_the_page_ends_it(studio, session):
    """Else the process would stay until the experiment's end."""
    done = []
    reader = threading.Thread(target=lambda: done.extend(guard.guarded(endless(studio, session), experimenting.Step)))
    reader.start()
    while session._job is None:
        time.sleep(0.01)
    studio.close()
    reader.join(10)
    assert not reader.is_alive() and not still_running() and not studio.turn.locked()
    assert "Stopped" in done[-1].status and not session.experiments


def endless(studio, session):
    """Twenty questions, a second each."""
    studio.engine(lambda said: None).pause_s = 1.0
    return experimenting.run(studio, session, replace(WISH, questions=tuple(f"Who was number {i}?" for i in range(20))))


def still_running():
    """The jobs that have not ended after some time."""
    jobs = [thread for thread in threading.enumerate() if thread.name.startswith(THREADS)]
    for job in jobs:
        job.join(10)
    return [job.name for job in jobs if job.is_alive()]


def test_the_turn_is_free_between_two_runs():
    turn, seen = threading.Lock(), []
    with turn:
        Pace(turn, lambda *told: seen.append((turn.locked(), told))).step(2, 4, "what")
        assert turn.locked()
    ((was_locked, told),) = seen
    assert not was_locked and told[:3] == (2, 4, "what") and told[3] >= 0


def test_an_experiment_that_fails_is_a_sentence(studio, session, monkeypatch):
    def refuses(bench):
        raise ValueError("No question fits.")

    monkeypatch.setitem(EXPERIMENTS, "frontier", refuses)
    *_, last = guard.guarded(experimenting.run(studio, session, WISH), experimenting.Step)
    assert "No question fits." in last.status and 'role="alert"' in last.status
    assert not studio.turn.locked()


def test_twelve_results_are_kept_and_nobody_sees_anothers(studio, session):
    ids = [run(studio, session)[1].performed.id for _ in range(MAX_EXPERIMENTS + 1)]
    assert performed.find(session, ids[0]) is None
    assert [each.id for each in performed.listed(session)][:2] == [ids[-1], ids[-2]]
    other = studio.sessions.open(None)
    assert all(performed.find(other, known) is None for known in ids)
    assert not any(each.id in ids for each in performed.listed(other))


def test_a_point_is_run_again_on_one_question_and_can_be_looked_into(studio, session, monkeypatch):
    made = run(studio, session)[1].performed
    said, labels = zip(*opening.choices(made), strict=True)
    assert labels == ("none|bare|0", "hkvd|bare|0.15", "query|neutral|0.3")
    assert said[0] == "full reuse · 2" and said[1] == "HKVD 15 % · 1" and "behind a neutral text · 0" in said[2]
    seen = []
    compare = FakeEngine.compare
    monkeypatch.setattr(FakeEngine, "compare", lambda self, *a, **k: seen.append((a, k)) or compare(self, *a, **k))
    *steps, last = opening.open_point(studio, session, made.id, labels[2], 1)
    kept = session.runs[last.run_id]
    (((question, hits), options),) = seen
    assert question == "Who drew it?" and hits == made.asked[1][1] and options["modes"] == COMPARED
    assert (kept.blend.policy, kept.blend.recipe, kept.blend.ratio) == ("query", Recipe.NEUTRAL, 0.3)
    assert kept.comparison.question == "Who drew it?" and kept.hits == hits
    assert any("running" in step.status for step in steps)


@pytest.mark.parametrize(
    ("label", "number"),
    [("hkvd|bare|0.99", 0), ("hkvd|bare|0.15", 2), ("hkvd|bare|0.15", -1), ("rm|bare|0", 0), (HOSTILE, 0), ("None", 0)],
)
def test_a_point_that_is_not_there_is_refused(studio, session, label, number):
    made = run(studio, session)[1].performed
    with pytest.raises(ValueError, match="no such point"):
        list(opening.open_point(studio, session, made.id, label, number))


def test_other_peoples_and_recorded_results_do_not_open(studio, session, monkeypatch):
    made = run(studio, session)[1].performed
    with pytest.raises(ValueError, match="no longer in memory"):
        list(opening.open_point(studio, studio.sessions.open(None), made.id, "hkvd|bare|0.15", 0))
    recorded = Performed(id=performed.RECORDED, result=made.result)
    monkeypatch.setattr(performed, "recorded", lambda: recorded)
    assert opening.choices(recorded) == []
    with pytest.raises(ValueError, match="recorded earlier"):
        list(opening.open_point(studio, session, performed.RECORDED, "hkvd|bare|0.15", 0))


def test_only_labels_that_name_settings_can_be_picked():
    assert opening.picked_of(Point(series="s", x=0, y=0, label="hkvd|bare|0.15")) == Picked("hkvd", Recipe.BARE, 0.15)
    for label in ("", "full", "6 chunks", "none such|bare|0.1", "hkvd|raw|0.1", "a|b"):
        assert opening.picked_of(Point(series="s", x=0, y=0, label=label)) is None


def test_texts_of_a_result_are_text():
    of = Performed(id="x", result=hostile("unheard of"), asked=((HOSTILE * 3, ()),))
    for html in (
        experiment_view.render_heading(of, HOSTILE, [HOSTILE]),
        experiment_view.render_notes(of),
        experiment_view.render_points(of),
        experiment_view.render_catalogue(HOSTILE),
    ):
        assert "<img" not in html and "<script" not in html
    assert len(opening.questions(of)[0][0]) <= 90
    finding, notes, figure = drawn_of(of)
    assert finding == "unheard of" and notes == [] and isinstance(figure, go.Figure)


def test_a_result_is_shown_with_what_was_left_out():
    of = Performed(id="x", result=result("fig16"), asked=(("Who?", ()),))
    assert "3 questions, context of 100 to 240 tokens." in experiment_view.render_notes(of)
    assert "A question does not fit." in experiment_view.render_notes(of)
    assert "your documents · tiny" in experiment_view.render_heading(of)
    assert experiment_view.title(of).startswith("00:00:00 UTC · ")
    assert experiment_view.render_points(of).count("<tr>") == 5
    assert "Nothing has been measured" in experiment_view.render_heading(None)


def test_the_catalogue_has_two_groups_and_tells_of_the_chosen_one():
    html = experiment_view.render_catalogue("fig16")
    assert html.index("The paper’s figures") < html.index('data-pick="fig16"') < html.index("Ours")
    assert html.count('aria-pressed="true"') == 1
    assert "How it is measured" in html and "How it is measured" not in experiment_view.render_catalogue("")


def test_the_report_holds_everything_that_this_visitor_ran(studio, session, monkeypatch):
    monkeypatch.setattr(performed, "recorded", lambda: Performed(id="recorded", result=result("fig16")))
    assert 'download="fig16.csv"' in report_of(None).read_text()
    for name in ("fig02", "frontier"):
        run(studio, session, Wish(name=name, questions=("Who?",), chunks=1, ratio=0.15))
    html = report_of(session).read_text()
    assert 'download="fig02.csv"' in html and 'download="frontier.csv"' in html and 'download="fig16.csv"' not in html
