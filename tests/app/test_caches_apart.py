"""Chunk caches belong to a browser: found again after a restart, and by nobody else unless caches are shared."""

from __future__ import annotations

import httpx
import pytest
from gradio_client import Client

from cacheblend.store import Happening
from tests.app.live import live
from tests.app.test_api import ask, upload
from ui.sessions import Session, Sessions
from ui.visitor import COOKIE

TEXT = {"same.txt": "Ada wrote the same text for everybody."}


def visit(url: str, secret: str | None, folder) -> str:
    """Upload the same text and ask; returns blend's column."""
    client = Client(url, verbose=False, headers={"cookie": f"{COOKIE}={secret}"} if secret else {})
    upload(client, folder, TEXT)
    return ask(client, "Who?")[4]


def cookie(response: httpx.Response) -> str | None:
    return response.headers.get("set-cookie")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with live(tmp_path_factory.mktemp("samples")) as served:
        yield served


def test_a_browser_is_given_one_secret_that_scripts_cannot_read(page):
    given = cookie(httpx.get(page.url))
    assert given is not None
    secret = given.split(";")[0].removeprefix(f"{COOKIE}=")
    assert len(secret) >= 24
    assert {"HttpOnly", "SameSite=Lax"} <= set(given.split("; "))
    assert secret not in httpx.get(page.url, cookies={COOKIE: secret}).text
    assert cookie(httpx.get(page.url, cookies={COOKIE: secret})) is None
    assert cookie(httpx.get(page.url)) != given


@pytest.mark.parametrize("forged", ["", "short", "x" * 65, "a" * 23 + '"', "é" * 30])
def test_a_secret_that_cannot_be_ours_is_replaced(page, forged):
    header = f"{COOKIE}={forged}".encode()
    assert cookie(httpx.get(page.url, headers={b"cookie": header})) is not None


def test_only_pages_carry_the_secret(page):
    assert cookie(httpx.get(page.url.rstrip("/") + "/config")) is None


def test_two_browsers_share_no_hit_and_one_browser_finds_its_own_again(page, tmp_path):
    store = page.engine.store
    visit(page.url, "a" * 24, tmp_path / "a")
    alone = store.stats[0].entries
    store.events.clear()
    visit(page.url, "b" * 24, tmp_path / "b")
    assert store.stats[0].entries == 2 * alone
    own = {event.key for event in store.events if event.what is Happening.STORED}
    assert {event.key for event in store.events if event.what is Happening.HIT} <= own
    store.events.clear()
    visit(page.url, "a" * 24, tmp_path / "again")
    assert Happening.STORED not in {event.what for event in store.events}


def test_without_a_secret_nobody_is_taken_for_somebody_else(page, tmp_path):
    before = page.engine.store.stats[0].entries
    visit(page.url, None, tmp_path / "one")
    visit(page.url, None, tmp_path / "two")
    assert page.engine.store.stats[0].entries == before + 2


def test_shared_caches_are_found_by_everybody(tmp_path):
    with live(tmp_path, shares_caches=True) as served:
        visit(served.url, "a" * 24, tmp_path / "a")
        alone = served.engine.store.stats[0].entries
        visit(served.url, "b" * 24, tmp_path / "b")
        assert served.engine.store.stats[0].entries == alone


def test_the_salt_is_no_session_id_and_is_not_printed():
    session = Sessions().open(None, "s" * 24)
    assert session.tenant == "s" * 24
    assert session.tenant not in repr(session)
    assert session.id != session.tenant
    assert Session().tenant != Session().tenant
