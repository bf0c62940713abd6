"""Indexing, asking, inspecting and exporting as the generators they are, without a page."""

from __future__ import annotations

import json
import subprocess
import sys
import threading

import pytest

from cacheblend.recording import from_json
from cacheblend.trace import COMPARED, Mode, Recipe, Selector
from tests.app.fakes import ANSWERS, FakeEngine, fake_studio, indexed, sample
from tests.synthetic import HOSTILE
from ui import asking, cards, documents_list, exports, guard, indexing, inspecting, measured, replies
from ui.asking import View
from ui.cards import Phase
from ui.settings import Settings
from ui.studio import RECORDED
from ui.tabs.inspect import drawings
from ui.turns import polite, undisturbed

TEXTS = {"ada.txt": "Ada wrote the first program.", "charles.txt": "Charles drew the engine."}


@pytest.fixture(autouse=True)
def no_settling(monkeypatch):
    monkeypatch.setattr(asking, "SETTLE_S", 0)


@pytest.fixture
def studio(tmp_path):
    return fake_studio(samples=[sample(tmp_path, "first"), sample(tmp_path, "second", 2)])


@pytest.fixture
def session(studio, tmp_path):
    session = studio.sessions.open(None)
    session.collection = indexed(studio, TEXTS, tmp_path)
    return session


def uploads(folder, texts):
    paths = []
    for name, text in texts.items():
        paths.append(folder / name)
        paths[-1].write_bytes(text if isinstance(text, bytes) else text.encode())
    return [str(path) for path in paths]


def test_one_bad_file_among_ten_leaves_nine(studio, tmp_path):
    texts = {f"good-{i}.txt": f"Chapter {i} is about Ada." for i in range(9)} | {"bad.pdf": b"%PDF-1.4 cut short"}
    paths = uploads(tmp_path, texts)
    session = studio.sessions.open(None)
    *steps, last = indexing.add_uploads(studio, session, paths)
    assert len(session.collection.documents) == 9
    assert "9 documents added" in last.status
    assert "bad.pdf" in last.status
    assert 'role="alert"' in last.status
    assert any("Computing chunk caches" in step.status for step in steps)
    assert not any(path.exists() for path in tmp_path.glob("good-*.txt")), "uploads stay on disk"
    assert studio.loaded.store.stats[0].entries == 9


def test_documents_are_listed_as_text(session, studio, tmp_path):
    html = documents_list.render(session.collection.documents)
    assert "ada.txt" in html
    assert 'aria-label="Remove ada.txt"' in html
    hostile = [type("Info", (), {"name": HOSTILE, "pages": 3, "tokens": 9, "num_chunks": 1, "warnings": (HOSTILE,)})()]
    assert "<img" not in documents_list.render(hostile)


def test_a_sample_takes_the_place_of_another_and_own_documents_stay(session, studio):
    list(indexing.add_sample(studio, session, "first"))
    list(indexing.add_sample(studio, session, "second"))
    names = [info.name for info in session.collection.documents]
    assert names == ["ada.txt", "charles.txt", "second-0.txt", "second-1.txt"]


def test_an_unknown_sample_or_document_is_refused(session, studio):
    with pytest.raises(ValueError, match="no such sample"):
        list(indexing.add_sample(studio, session, "../../etc"))
    with pytest.raises(ValueError, match="no document named"):
        indexing.remove(studio, session, "passwd")
    with pytest.raises(ValueError, match="no documents to remove"):
        indexing.remove(studio, None, "ada.txt")
    assert "ada.txt" not in indexing.remove(studio, session, "ada.txt").documents


def test_asking_streams_three_columns_and_keeps_the_run(session, studio):
    *views, last = asking.ask(studio, session, " Who wrote it? ", Settings())
    assert [view.cards[Mode.FULL].phase for view in views][:2] == [Phase.WAITING, Phase.RUNNING]
    growing = [v.cards[Mode.BLEND].answer for v in views if v.cards[Mode.BLEND].phase is Phase.STREAMING]
    assert growing == ["", "It", "It was", "It was Ada."]
    assert {mode: card.answer for mode, card in last.cards.items()} == {mode: ANSWERS[mode] for mode in COMPARED}
    assert studio.run(last.run_id).comparison.question == "Who wrote it?"
    assert last.run_id in session.runs


def test_modes_that_were_not_chosen_do_not_run(session, studio):
    *_, last = asking.ask(studio, session, "Who?", Settings(modes=(Mode.BLEND,)))
    assert {mode: card.phase for mode, card in last.cards.items()} == {Mode.BLEND: Phase.DONE}


def test_a_question_needs_words_and_documents(studio, session):
    with pytest.raises(ValueError, match="question is empty"):
        list(asking.ask(studio, session, "  ", Settings()))
    with pytest.raises(ValueError, match="shorten it"):
        list(asking.ask(studio, session, "x" * 2001, Settings()))
    with pytest.raises(ValueError, match="no documents yet"):
        list(asking.ask(studio, studio.sessions.open(None), "Who?", Settings()))


def test_a_prompt_that_is_too_long_says_which_chunk_to_drop(session, studio):
    studio.loaded.context_limit = 5
    with pytest.raises(ValueError, match=r"drop (ada|charles)\.txt"):
        list(asking.ask(studio, session, "Who?", Settings()))


def test_a_stop_ends_the_run_and_leaves_what_was_done(session, studio):
    views = asking.ask(studio, session, "Who?", Settings())
    for view in views:
        if view.cards[Mode.REUSE].phase is Phase.STREAMING:
            session.stop()
            break
    *_, last = views
    assert "Stopped" in last.status
    assert [last.cards[mode].phase for mode in COMPARED] == [Phase.DONE, Phase.STOPPED, Phase.STOPPED]
    assert not session.runs


def test_whoever_stops_reading_stops_the_engine(session, studio):
    views = asking.ask(studio, session, "Who?", Settings())
    next(views)
    next(views)
    assert studio.loaded.num_running == 1
    views.close()
    assert studio.loaded.num_running == 0


def test_errors_become_one_sentence():
    def broken():
        yield "a view"
        raise RuntimeError("out of memory\nat line 3")

    *_, last = guard.guarded(broken(), lambda status: status)
    assert "out of memory" in last
    assert "line 3" not in last
    assert "<b>" not in list(guard.guarded(_raise(ValueError("<b>bold</b>")), str))[-1]


def _raise(error):
    raise error
    yield


def test_unexpected_errors_are_not_swallowed():
    with pytest.raises(ZeroDivisionError):
        list(guard.guarded(_raise(ZeroDivisionError()), str))


def test_a_recording_pass_is_kept_with_the_run(session, studio):
    *_, asked = asking.ask(studio, session, "Who?", Settings())
    *_, last = inspecting.look(studio, session.id, asked.run_id)
    assert last.comparison.inspection is not None
    assert studio.run(asked.run_id).comparison is last.comparison


def test_an_inspected_run_is_exported_whole(session, studio):
    *_, asked = asking.ask(studio, session, "Who?", Settings())
    list(inspecting.look(studio, session.id, asked.run_id))
    *_, last = exports.whole_run(studio, asked.run_id)
    assert from_json(last.path.read_text()).inspection.attention.layers


def test_nobody_inspects_the_run_of_another(session, studio):
    *_, asked = asking.ask(studio, session, "Who?", Settings())
    with pytest.raises(ValueError, match="no longer in memory"):
        list(inspecting.look(studio, studio.sessions.open(None).id, asked.run_id))


def test_exports_are_files_that_can_be_read_back(studio):
    trace = exports.perfetto(studio.recorded.comparison)
    assert trace.name == "cacheblend-what-was-recorded.trace.json"
    assert json.loads(trace.read_text())["traceEvents"]
    *_, last = exports.whole_run(studio, RECORDED)
    assert from_json(last.path.read_text()).question == "What was recorded?"
    with pytest.raises(ValueError, match="no longer in memory"):
        list(exports.whole_run(studio, "a guess"))


def test_two_visitors_never_see_each_others_documents(tmp_path):
    studio = fake_studio(FakeEngine())
    mine, theirs = studio.sessions.open(None), studio.sessions.open(None)
    mine.collection = indexed(studio, {"mine.txt": "My text about Ada."}, tmp_path)
    theirs.collection = indexed(studio, {"theirs.txt": "Their text about Ada."}, tmp_path)
    *_, mine_last = asking.ask(studio, mine, "Ada?", Settings())
    *_, theirs_last = asking.ask(studio, theirs, "Ada?", Settings())
    assert "mine.txt" in mine_last.excerpts
    assert "theirs.txt" not in mine_last.excerpts
    assert "mine.txt" not in theirs_last.excerpts


def test_measurements_are_shown_with_their_failures():
    answered = {"answer": HOSTILE, "is_right": False, "speedup": 4.4}
    row = {"question": "Who?", "expected": "Ada", "found": False, "modes": {mode.value: answered for mode in COMPARED}}
    counts = {"questions": 1, "right": {mode.value: 0 for mode in COMPARED}, "full_right_reuse_wrong": 0}
    counts |= {"full_right_reuse_wrong_blend_right": 0, "full_wrong_blend_right": 0}
    env = {"model": "m", "device": "cpu", "dtype": "float32", "recorded_at": "2026-01-01T00:00:00Z"}
    settings = {"ratio": 0.15, "top_k": 6, "ordering": "relevance"}
    html = measured.render(
        {"rows": [row], "summary": counts, "environment": env, "settings": settings, "note": "n", "command": "c"}
    )
    assert html.count('class="wrong"') == 3
    assert "was not retrieved" in html
    assert "<img" not in html
    assert measured.render(None) == ""


def test_the_page_is_imported_without_torch():
    code = "import app, sys; print([m for m in ('torch', 'transformers', 'sentence_transformers') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_look_at_attention_waits_while_a_run_is_timed(session, studio):
    *_, asked = asking.ask(studio, session, "Who?", Settings())
    *_, last = inspecting.look(studio, session.id, asked.run_id)
    looked = threading.Event()

    def look() -> None:
        maps, size = polite(last.comparison, studio.turn).inspection.attention, len(last.comparison.tokens)
        maps.window(Mode.FULL, maps.layers[0], None, rows=(0, size), cols=(0, size), size=8)
        looked.set()

    with studio.turn:
        worker = threading.Thread(target=look)
        worker.start()
        assert not looked.wait(0.2)
    assert looked.wait(5)
    worker.join()


def test_a_turn_is_held_while_the_engine_works_and_free_while_a_view_is_shown():
    turn = threading.Lock()

    def working():
        for _ in range(2):
            assert turn.locked()
            yield turn.locked()

    assert [turn.locked() for _ in undisturbed(working(), turn)] == [False, False]


# Other modes, policies and recipes


def test_every_mode_can_be_asked_and_has_its_column_in_order(session, studio):
    *_, last = asking.ask(studio, session, "Who?", Settings(modes=tuple(Mode)))
    assert list(last.cards) == list(Mode)
    assert {mode: card.answer for mode, card in last.cards.items()} == ANSWERS
    html = {mode: cards.render(card, beside=8) for mode, card in last.cards.items()}
    assert "late query attention" in html[Mode.PRIME] and "behind a neutral text" in html[Mode.PRIME]
    assert "behind a neutral text" not in html[Mode.REUSE] + html[Mode.BLEND]
    assert "2.0 MB" in html[Mode.PREFIX] and "found in the store" in html[Mode.PREFIX]
    assert "KL</dt>" not in html[Mode.MAP_RERANK] and "not comparable" in html[Mode.MAP_RERANK]
    assert html[Mode.MAP_RERANK].count(replies.UNREADABLE) == 1 and "score 80" in html[Mode.MAP_RERANK]
    assert "score" not in html[Mode.MAP_REDUCE] and "reply 1" in html[Mode.MAP_REDUCE]


def test_caches_behind_a_text_are_made_before_any_mode_starts(session, studio):
    *views, last = asking.ask(studio, session, "Who?", Settings(modes=(Mode.FULL, Mode.PRIME)))
    said = [view.status for view in views]
    made = "Preparing chunk caches made behind a neutral text: 1 of 2"
    prepared = [i for i, status in enumerate(said) if made in status]
    assert prepared and not views[prepared[0]].cards, "columns appear when everything is there"
    assert last.cards[Mode.PRIME].trace.is_warm
    again = [view.status for view in asking.ask(studio, session, "Who?", Settings(modes=(Mode.PRIME,)))]
    assert not any("1 of 2" in status for status in again), "made once"


def test_preparing_can_be_stopped(session, studio):
    studio.loaded.pause_s = 0.3
    views = asking.ask(studio, session, "Who?", Settings(modes=(Mode.PRIME,)))
    for view in views:
        if "Preparing" in view.status:
            session.stop()
            break
    *_, last = guard.guarded(views, lambda status: View(status=status))
    assert "Stopped" in last.status and not session.runs and studio.loaded.num_asked == 0


def test_blend_is_called_cacheblend_only_where_it_is_the_papers(session, studio):
    own = Settings(modes=(Mode.BLEND,), policy="query", recipe=Recipe.SIMILAR)
    *views, last = asking.ask(studio, session, "Who?", own)
    for view in (*[v for v in views if v.cards], last):
        assert view.cards[Mode.BLEND].title == "Blend, own choice"
    html = cards.render(last.cards[Mode.BLEND])
    assert "query attention" in html and "behind similar chunks" in html and "CacheBlend" not in html
    *_, last = asking.ask(studio, session, "Who?", Settings(modes=(Mode.BLEND,), selector=Selector.GRADUAL))
    assert last.cards[Mode.BLEND].title == "CacheBlend"


def test_primeblend_of_a_run_is_looked_into(session, studio):
    *_, asked = asking.ask(studio, session, "Who?", Settings(modes=(Mode.FULL, Mode.BLEND, Mode.PRIME)))
    assert inspecting.choices(studio.run(asked.run_id).comparison) == [Mode.BLEND, Mode.PRIME]
    *_, last = inspecting.look(studio, session.id, asked.run_id, Mode.PRIME)
    assert last.comparison.inspection.fused is Mode.PRIME
    said, text, *maps = drawings(last.comparison, asked.run_id)
    assert "PrimeBlend (ours)" in said and "late query attention" in said
    assert [c["label"] for c in text["colourings"]][-1] == "computed by PrimeBlend (share of layers)"
    assert "PrimeBlend computes, chosen by late query attention" in maps[2]["title"]
    assert list(maps[3]["labels"]) == ["full", "reuse", "prime"]
