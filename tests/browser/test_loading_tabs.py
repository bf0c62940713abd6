"""The Store tab, and running again on another device, in a browser; and one browser's caches kept from another's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from cacheblend.loading import StoreConfig
from tests.app.live import Live, live
from tests.browser.conftest import Watch, leaving
from tests.browser.test_page import CONTRAST, NAMELESS, ask, open_page, open_tab_on_a_phone, pick_sample, show


@pytest.fixture(scope="module")
def own(tmp_path_factory) -> Iterator[Live]:
    """A page with two tiers, of which memory holds one chunk."""
    folder = tmp_path_factory.mktemp("samples")
    store = StoreConfig(memory_bytes=120_000, disk=folder / "kv", disk_bytes=5_000_000)
    with live(folder, 0.02, store=store) as page:
        yield page


def test_a_question_is_run_again_on_a_slow_device(page: Page, own: Live):
    open_page(page, own.url)
    show(page, "Timeline")
    expect(page.locator("#reload-note")).to_contain_text("recorded earlier")
    expect(page.locator("#reload")).to_be_disabled()
    show(page, "Compare")
    pick_sample(page)
    ask(page)
    show(page, "Timeline")
    expect(page.locator("#reload")).to_be_enabled()
    expect(page.locator("#reload-lanes")).to_be_hidden()
    page.locator("#reload").click()
    expect(page.locator("#reload-facts h3")).to_contain_text("slow link 50 MB/s (emulated)")
    expect(page.locator("#reload-facts .is-predicted b")).to_be_visible()
    expect(page.locator("#reload-facts .controller")).to_contain_text("would recompute")
    expect(page.locator("#reload-lanes")).to_contain_text("dashed outlines predicted")
    assert page.locator("#reload-lanes .shapelayer path").count() > 10
    page.get_by_label("Cake: from both ends").check()
    page.locator("#reload").click()
    expect(page.locator("#reload-fronts")).to_contain_text("Fronts meet")
    show(page, "Compare")
    show(page, "Timeline")
    expect(page.locator("#reload-facts h3")).to_contain_text("Cake")


def test_a_bandwidth_of_ones_own_is_taken_or_refused_in_a_sentence(page: Page, own: Live):
    open_page(page, own.url)
    pick_sample(page)
    ask(page)
    show(page, "Timeline")
    expect(page.get_by_label("Bandwidth", exact=True)).to_be_hidden()
    page.get_by_label("Device", exact=True).click()
    page.get_by_role("option", name="a bandwidth of my own").click()
    page.get_by_label("Bandwidth", exact=True).fill("7")
    page.get_by_label("Gbps", exact=True).check()
    page.locator("#reload").click()
    expect(page.locator("#reload-facts h3")).to_contain_text("slowed down to 7 Gbps")
    page.get_by_label("Bandwidth", exact=True).fill("0")
    page.locator("#reload").click()
    expect(page.locator("#reload-status [role=alert]")).to_contain_text("The bandwidth must be a number above 0")


def test_a_run_on_a_slow_device_can_be_stopped(page: Page, tmp_path):
    with live(tmp_path) as served, leaving(page):
        open_page(page, served.url)
        pick_sample(page)
        ask(page)
        served.engine.pause_s = 0.5
        show(page, "Timeline")
        page.locator("#reload").click()
        expect(page.locator("#reload-status")).to_contain_text("Measuring what computing costs")
        page.get_by_role("button", name="Stop").click()
        expect(page.locator("#reload-status")).to_contain_text("Stopped.")
        assert served.engine.machine.profile is None


def test_what_if_is_live_before_a_model_is_loaded(page: Page, tmp_path):
    with live(tmp_path, pause_s=0.05) as served, leaving(page):
        open_page(page, served.url)
        show(page, "Timeline")
        page.get_by_text("What if?").click()
        expect(page.locator("#ratio-figure")).to_contain_text("from 1000 MB/s")
        expect(page.locator("#devices-figure")).to_contain_text("predicted")
        page.get_by_label("number input for Device bandwidth (MB/s)").fill("100")
        page.keyboard.press("Tab")
        expect(page.locator("#ratio-figure")).to_contain_text("from 100 MB/s")
        page.get_by_label("this machine", exact=True).check()
        expect(page.locator("#what-if-status [role=alert]")).to_contain_text("not been measured yet")
        assert served.studio.loaded is None
        page.locator("#measure").click()
        expect(page.locator("#what-if-status")).to_contain_text("Measured")
        expect(page.get_by_label("this machine", exact=True)).to_be_checked()
        expect(page.locator("#what-if-status [role=alert]")).to_have_count(0)


def test_the_store_shows_ones_chunks_and_follows_what_happens(page: Page, own: Live):
    open_page(page, own.url)
    pick_sample(page)
    show(page, "Store")
    expect(page.locator(".tier")).to_have_count(2)
    expect(page.locator(".holdings tbody tr")).to_have_count(3)
    expect(page.locator(".events")).to_contain_text("demoted")
    own.engine.store.lose(own.engine.store.events[-1].key)
    expect(page.locator(".events li").first).to_contain_text("lost")  # without a click: the tab follows
    page.locator("#warm").click()
    expect(page.locator("#store-status")).to_contain_text("1 cache computed.")
    page.locator("#clear").click()
    page.locator("#clear-kept").click()
    expect(page.locator("#clear-confirmed")).to_be_hidden()
    expect(page.locator(".holdings tbody tr")).to_have_count(3)
    page.locator("#clear").click()
    page.locator("#clear-confirmed").click()
    expect(page.locator("#store-status")).to_contain_text("3 chunk caches removed from every tier.")
    expect(page.locator("#store-board")).to_contain_text("None in the store.")


def test_the_store_is_not_asked_while_nobody_looks(page: Page, own: Live):
    open_page(page, own.url)
    pick_sample(page)
    show(page, "Store")
    expect(page.locator(".holdings")).to_be_visible()
    with page.expect_request(lambda request: "/run/" in request.url or "/queue/join" in request.url):
        pass  # the timer ticks
    show(page, "How it works")
    page.wait_for_timeout(1000)
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_timeout(2500)
    assert asked == []


def test_two_browsers_share_no_hit_and_a_restart_finds_ones_own(browser: Browser, watch: Watch, tmp_path):
    contexts = [browser.new_context() for _ in range(2)]
    (tmp_path / "samples").mkdir()
    store = StoreConfig(disk=tmp_path / "kv")
    with live(tmp_path / "samples", store=store) as served:
        for context in contexts:
            board = indexed(context, watch, served)
            expect(board.locator(".holdings caption")).to_contain_text("3 of yours")
        expect(board.locator(".holdings caption")).to_contain_text("Others: 6 entries")  # in memory and on disk
        assert [tier.entries for tier in served.engine.store.stats] == [6, 6]
        leave(contexts)
    with live(tmp_path / "samples", store=store) as again:
        board = indexed(contexts[0], watch, again)
        assert [tier.entries for tier in again.engine.store.stats] == [0, 6], "the first browser's were computed again"
        ask_in(board)
        expect(board.locator("#card-blend .facts")).to_contain_text("warm")
        leave(contexts)
    for context in contexts:
        context.close()


def leave(contexts: list[BrowserContext]) -> None:
    """Close every page, which would look for a server that is gone; cookies stay."""
    for context in contexts:
        for page in context.pages:
            page.close()


def indexed(context: BrowserContext, watch: Watch, served: Live) -> Page:
    """A browser's page, its store on screen, after picking a sample."""
    watch.over(context)
    page = open_page(context.new_page(), served.url)
    pick_sample(page)
    show(page, "Store")
    expect(page.locator(".holdings")).to_be_visible()
    return page


def ask_in(page: Page) -> None:
    show(page, "Compare")
    ask(page)


@pytest.mark.parametrize("tab", ["Timeline", "Store"])
def test_both_tabs_fit_a_phone_and_name_their_controls(browser: Browser, watch: Watch, own: Live, tab: str):
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True, color_scheme="dark")
    watch.over(context)
    page = open_page(context.new_page(), own.url)
    pick_sample(page)
    ask(page)
    open_tab_on_a_phone(page, tab)
    if tab == "Timeline":
        page.locator("#reload").click()
        expect(page.locator("#reload-lanes .js-plotly-plot")).to_be_visible()
        page.get_by_text("What if?").click()
        expect(page.locator("#devices-figure .js-plotly-plot")).to_be_visible()
    else:
        expect(page.locator(".tier").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    parts = page.locator(".store, .reloaded, .tier, #reload, #ratio-figure")
    assert parts.evaluate_all("nodes => nodes.every(n => n.getBoundingClientRect().right <= 391)")
    _, nameless = page.evaluate(NAMELESS)
    assert nameless == []
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_of_both_tabs_stands_out(browser: Browser, watch: Watch, own: Live, scheme: str):
    context = browser.new_context(color_scheme=scheme, viewport={"width": 1440, "height": 1000})
    watch.over(context)
    page = open_page(context.new_page(), own.url)
    pick_sample(page)
    ask(page)
    show(page, "Timeline")
    page.locator("#reload").click()
    expect(page.locator("#reload-facts .pair")).to_be_visible()
    places = "'#masthead *, #compare *, #tabs [role=tab]'"
    assert places in CONTRAST
    for tab, wanted, least in (("Timeline", ".reloaded", 15), ("Store", ".store", 60)):
        show(page, tab)
        expect(page.locator(wanted)).to_be_visible()
        num_texts, too_weak = page.evaluate(CONTRAST.replace(places, f"'{wanted} *'"))
        assert num_texts > least
        assert too_weak == []
    context.close()
