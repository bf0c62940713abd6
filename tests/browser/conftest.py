"""A browser for the tests, and pages that are watched: an error or a request to elsewhere fails the test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.app.live import Live, live
from tests.browser.provide import ARGUMENTS, NO_BROWSER, find

HERE = {"127.0.0.1", "localhost"}
PATIENCE_MS = 60_000  # nothing here is a timing: a busy machine may take its time, and a test passes when it is there
expect.set_options(timeout=PATIENCE_MS)


@dataclass
class Watch:
    """What went wrong or out while pages of a context were open."""

    errors: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)

    def over(self, context: BrowserContext) -> None:
        context.on("request", lambda request: self._request(request.url))
        context.on("console", lambda said: self.errors.append(said.text) if said.type == "error" else None)
        context.on("weberror", lambda error: self.errors.append(str(error.error)))

    def _request(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"data", "blob"} and parts.hostname not in HERE:
            self.elsewhere.append(url)


@contextmanager
def leaving(page: Page) -> Iterator[None]:
    """Leave the site while its server is there: what a page still asks for afterwards counts as an error."""
    yield
    page.goto("about:blank")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A headless Chromium; without one the tests fail, they are never skipped."""
    path = find()
    if path is None:
        pytest.fail(NO_BROWSER)
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Iterator[Live]:
    """The page around a fake engine whose every step takes a moment."""
    with live(tmp_path_factory.mktemp("samples"), pause_s=0.05) as page:
        yield page


@pytest.fixture
def page_url(served: Live) -> str:
    return served.url


@pytest.fixture
def watch() -> Iterator[Watch]:
    """Watches contexts, and fails the test for what it saw."""
    made = Watch()
    yield made
    assert made.errors == []
    assert made.elsewhere == []


@pytest.fixture
def page(browser: Browser, watch: Watch) -> Iterator[Page]:
    """A watched page at 1440 × 1000 in the light."""
    context = browser.new_context(viewport={"width": 1440, "height": 1000}, accept_downloads=True)
    watch.over(context)
    context.set_default_timeout(PATIENCE_MS)
    yield context.new_page()
    context.close()
