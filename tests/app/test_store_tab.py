"""The Store tab: what is shown is what the store holds, one's own alone by name; warming and clearing."""

from __future__ import annotations

import re

import pytest

from cacheblend.cancel import Cancelled
from cacheblend.loading import Place, StoreConfig
from cacheblend.store import Happening
from cacheblend.trace import Mode, Recipe
from tests.app.fakes import FakeEngine, fake_studio, indexed
from tests.synthetic import HOSTILE
from ui import asking, codecs_table, indexing, store_board, storing
from ui.indexing import outcome
from ui.sessions import Session
from ui.settings import Settings
from ui.studio import Studio

MINE = {"mine.txt": "Mine alone, about Ada.", "more.txt": "More of mine."}
THEIRS = {"secret-plans.txt": "Theirs, which nobody else may see."}


@pytest.fixture
def studio(tmp_path):
    config = StoreConfig(memory_bytes=10_000_000, disk=tmp_path / "kv", disk_bytes=10_000_000)
    return fake_studio(FakeEngine(store=config))


def visitor(studio: Studio, texts: dict[str, str], folder) -> Session:
    session = studio.sessions.open(None)
    session.collection = indexed(studio, texts, folder)
    list(storing.warm(studio, session))
    return session


def text(html: str) -> str:
    return re.sub(r"<[^>]+>", " ", html)


def test_before_a_model_is_loaded_there_is_no_store(studio):
    assert "not open" in store_board.render(storing.board(studio, None))
    with pytest.raises(ValueError, match="upload documents"):
        list(storing.warm(studio, None))
    with pytest.raises(ValueError, match="upload documents"):
        list(storing.clear(studio, studio.sessions.open(None)))


def test_a_visitor_sees_their_own_entries_where_they_are(studio, tmp_path):
    mine = visitor(studio, MINE, tmp_path)
    seen = storing.board(studio, mine)
    assert {h.owned.label: h.places for h in seen.holdings} == {
        "mine.txt · 1": (Place.MEMORY, Place.DISK),
        "more.txt · 1": (Place.MEMORY, Place.DISK),
    }
    tokens = {chunk.document: len(chunk.token_ids) for chunk in mine.chunks}
    assert {h.owned.document: h.owned.num_tokens for h in seen.holdings} == tokens
    assert {h.nbytes for h in seen.holdings} == {1000 * n for n in tokens.values()}
    assert seen.own_nbytes[Place.MEMORY] == 1000 * sum(tokens.values())


def test_nobody_sees_anothers_documents_nor_what_happens_to_them(studio, tmp_path):
    mine, theirs = visitor(studio, MINE, tmp_path), visitor(studio, THEIRS, tmp_path)
    for session, names, others in ((mine, MINE, THEIRS), (theirs, THEIRS, MINE)):
        html = store_board.render(storing.board(studio, session))
        assert all(name in html for name in names)
        assert not any(name in html for name in others)
    seen = storing.board(studio, mine)
    assert seen.others == {"stored": 1}
    assert {owned.document for _, owned in seen.events} == set(MINE)
    assert "Others: 2 entries" in text(store_board.render(seen))  # in memory and on disk
    assert "Others, counted only: 1 stored" in text(store_board.render(seen))
    assert "mine.txt" not in store_board.render(storing.board(studio, None))


def test_the_same_text_of_two_visitors_is_two_entries_unless_caches_are_shared(tmp_path):
    for shares, entries in ((False, 2), (True, 1)):
        studio = fake_studio(FakeEngine(), shares_caches=shares)
        for _ in range(2):
            visitor(studio, THEIRS, tmp_path)
        assert studio.loaded.store.stats[0].entries == entries


def test_clearing_removes_ones_own_from_every_tier_and_nothing_else(studio, tmp_path):
    mine, theirs = visitor(studio, MINE, tmp_path), visitor(studio, THEIRS, tmp_path)
    *_, said = storing.clear(studio, mine)
    assert "2 chunk caches removed" in said
    assert storing.board(studio, mine).holdings == ()
    assert len(storing.board(studio, theirs).holdings) == 1
    assert [tier.entries for tier in studio.loaded.store.stats] == [1, 1]
    *steps, said = storing.warm(studio, mine)
    assert "2 caches computed" in said
    assert any("1 of 2" in step for step in steps)
    assert "All were there" in list(storing.warm(studio, mine))[-1]


def test_clearing_reaches_documents_that_were_removed_from_the_list(studio, tmp_path):
    mine = visitor(studio, MINE, tmp_path)
    storing.board(studio, mine)
    mine.collection.remove("mine.txt")
    assert "mine.txt" in store_board.render(storing.board(studio, mine))
    list(storing.clear(studio, mine))
    assert [tier.entries for tier in studio.loaded.store.stats] == [0, 0]


def test_warming_can_be_stopped(tmp_path):
    studio = fake_studio(FakeEngine(pause_s=0.7))
    session = studio.sessions.open(None)
    session.collection = indexed(studio, MINE, tmp_path)
    steps = storing.warm(studio, session)
    assert "1 of 2" in next(steps)
    session.stop()
    with pytest.raises(Cancelled):
        list(steps)
    assert studio.loaded.store.stats[0].entries == 1


def test_what_does_not_fit_is_said(tmp_path):
    studio = fake_studio(FakeEngine(store=StoreConfig(memory_bytes=10)))
    session = studio.sessions.open(None)
    session.collection = indexed(studio, MINE, tmp_path)
    *_, said = storing.warm(studio, session)
    assert "2 caches did not fit into the store" in said
    report = type("Report", (), {"added": session.collection.documents, "failures": ()})()
    assert "2 documents added: 2 chunks, 1 cache did not fit" in outcome(report, 1)
    assert "caches ready" in outcome(report)


def test_the_bars_are_as_full_as_the_tiers(studio, tmp_path):
    mine, _ = visitor(studio, MINE, tmp_path), visitor(studio, THEIRS, tmp_path)
    seen = storing.board(studio, mine)
    html = store_board.render(seen)
    widths = [float(w) for w in re.findall(r'style="width:([\d.]+)%"', html)]
    for tier, own, others in zip(seen.tiers, widths[::2], widths[1::2], strict=True):
        assert own == pytest.approx(100 * seen.own_nbytes[tier.place] / tier.capacity, abs=0.01)
        assert own + others == pytest.approx(100 * tier.nbytes / tier.capacity, abs=0.02)
    assert html.count('role="img" aria-label="') == len(seen.tiers)
    assert html.count('<th scope="col">') == 7


def test_names_are_text(studio, tmp_path):
    mine = visitor(studio, MINE, tmp_path)
    storing.board(studio, mine)
    mine.owned.update({key: type(owned)(document=HOSTILE, number=1, num_tokens=1) for key, owned in mine.owned.items()})
    html = store_board.render(storing.board(studio, mine))
    assert "<img" not in html
    assert "&lt;img" in html


def test_evictions_are_shown_as_they_happen(tmp_path):
    texts = {f"note-{i}.txt": f"Note {i} about something else entirely. " * 4 for i in range(3)}
    probe = indexed(fake_studio(FakeEngine()), texts, tmp_path)
    room = 1000 * max(len(chunk.token_ids) for chunk in probe.chunks) + 10
    studio = fake_studio(FakeEngine(store=StoreConfig(memory_bytes=room)))
    mine = visitor(studio, texts, tmp_path)
    seen = storing.board(studio, mine)
    evicted = [owned.label for event, owned in seen.events if event.what is Happening.EVICTED]
    assert evicted == ["note-1.txt · 1", "note-0.txt · 1"]
    assert len(seen.holdings) == 1


def test_recorded_codecs_are_shown_as_recorded_without_variants_and_only_if_there(tmp_path):
    row = {"codec": HOSTILE, "size_ratio": 3.96, "encode_ms": 100.4, "decode_ms": 20, "key_error": 0.0123}
    row |= {"value_error": 0.02, "kl": 0.00123, "excess_kl_blend": -0.001, "is_variant": False}
    env = {"model": "m", "device": "cpu", "dtype": "bfloat16", "recorded_at": "2026-01-01T00:00:00Z"}
    variant = row | {"codec": "a variant", "is_variant": True}
    html = codecs_table.render({"rows": [row, variant], "environment": env, "command": "python -m x --y"})
    assert "4.0 ×" in html
    assert "1.23%" in html
    assert "−0.0010" in html
    assert "python -m x --y" in html
    assert "Recorded, not from your run" in html
    assert "<img" not in html
    assert "a variant" not in html
    assert codecs_table.render(codecs_table.load(tmp_path / "none.json")) == ""


def test_removing_a_document_removes_what_was_made_of_it_in_every_form(studio, tmp_path, monkeypatch):
    monkeypatch.setattr(asking, "SETTLE_S", 0)
    mine, theirs = visitor(studio, MINE, tmp_path), visitor(studio, THEIRS, tmp_path)
    own = Settings(modes=(Mode.PREFIX, Mode.BLEND, Mode.PRIME), recipe=Recipe.SIMILAR)
    for session in (mine, theirs):
        list(asking.ask(studio, session, "Who is alone?", own))
    seen = storing.board(studio, mine)
    forms = {(h.owned.document, h.owned.form) for h in seen.holdings}
    kept = ("bare", "behind a neutral text", "behind similar chunks", "in its prompt")
    assert forms == {(name, form) for name in MINE for form in kept} - {("mine.txt", "in its prompt")}, (
        "what comes first has seen nothing else"
    )
    assert "behind similar chunks" in text(store_board.render(seen))
    assert "secret-plans" not in store_board.render(seen)
    before = storing.board(studio, theirs).holdings
    indexing.remove(studio, mine, "mine.txt")
    left = {(h.owned.document, h.owned.form) for h in storing.board(studio, mine).holdings}
    assert left <= {("more.txt", form) for form in kept}
    assert {("more.txt", "bare"), ("more.txt", "behind a neutral text")} <= left
    assert ("more.txt", "behind similar chunks") not in left, "it has seen the removed text"
    held = sum(len(h.places) for h in (*storing.board(studio, mine).holdings, *before))
    assert held == sum(tier.entries for tier in studio.loaded.store.stats), "nothing nobody owns is left"
    assert storing.board(studio, theirs).holdings == before
    *_, last = asking.ask(studio, mine, "Who?", own)
    assert "Mine alone" not in last.excerpts


def test_nobodys_text_stands_in_front_of_anothers(studio, tmp_path, monkeypatch):
    monkeypatch.setattr(asking, "SETTLE_S", 0)
    shared = {"shared.txt": "The very same text."}
    mine, theirs = visitor(studio, shared | MINE, tmp_path), visitor(studio, shared | THEIRS, tmp_path)
    own = Settings(modes=(Mode.BLEND,), recipe=Recipe.SIMILAR)
    fronts = []
    for session in (mine, theirs):
        list(asking.ask(studio, session, "the very same text?", own))
        whose = {chunk.token_ids: chunk.document for chunk in session.chunks}
        ids = next(chunk.token_ids for chunk in session.chunks if chunk.document == "shared.txt")
        fronts.append({whose[other] for other in session.recipes.similar(ids)})
    assert fronts == [set(MINE), set(THEIRS)]
