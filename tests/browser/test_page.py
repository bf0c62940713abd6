"""The whole job in a browser, as a visitor does it, around an engine that answers from a script."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Browser, Page, expect

from cacheblend.recording import from_json
from tests.app.live import live
from tests.browser.conftest import Watch, leaving
from tests.synthetic import HOSTILE


def open_page(page: Page, url: str) -> Page:
    page.goto(url)
    expect(page.locator("#card-blend .card")).to_be_visible()
    return page


def pick_sample(page: Page, title: str = "First") -> None:
    page.locator("#samples button", has_text=title).click()
    expect(page.locator("#documents-status .done")).to_contain_text("documents added")


def ask(page: Page) -> None:
    page.get_by_role("button", name="Ask in every mode").click()
    expect(page.locator("#heading .badge")).to_contain_text("your run")


def show(page: Page, tab: str) -> None:
    page.get_by_role("tab", name=tab).click()


def test_the_whole_job(page: Page, tmp_path):
    with live(tmp_path, pause_s=0.05) as served, leaving(page):
        open_page(page, served.url)
        expect(page.locator("#heading")).to_contain_text("recorded run · synthetic-135M")
        expect(page.locator("#masthead")).to_contain_text("not loaded")
        assert served.studio.loaded is None

        pick_sample(page)
        expect(page.locator("#documents tbody tr")).to_have_count(3)
        expect(page.locator("#question textarea")).to_have_value("Who wrote first?")
        expect(page.locator("#masthead")).to_contain_text("fake-1M")

        page.get_by_role("button", name="Ask in every mode").click()
        expect(page.locator("#card-full .answer")).to_contain_text("It was")
        expect(page.locator("#heading .badge")).to_contain_text("your run")
        for mode, answer in {"full": "It was Ada.", "reuse": "Nobody knows.", "blend": "It was Ada."}.items():
            expect(page.locator(f"#card-{mode} .answer")).to_have_text(answer)
        expect(page.locator("#card-blend .verdict")).to_have_text("Same answer as full, 4.7 × sooner.")
        expect(page.locator("#card-blend .judged")).to_have_text("as expected")
        expect(page.locator("#card-reuse .judged")).to_have_text("not as expected")
        page.locator("#excerpts summary").first.click()
        expect(page.locator("#excerpts details[open] p")).to_contain_text("Ada wrote chapter")

        show(page, "Inspect")
        expect(page.locator("#map-kv-deviation canvas").first).to_be_visible()
        page.locator('#token-text [data-token="12"]').hover()
        for view in ("token-text", "map-kv-deviation", "map-selected", "attention-map"):
            expect(page.locator(f"#{view} .cb-status")).to_contain_text("12")
        expect(page.locator("#cdf .js-plotly-plot")).to_be_visible()

        show(page, "Timeline")
        expect(page.locator("#lanes .js-plotly-plot")).to_be_visible()
        with page.expect_download() as trace:
            page.locator("#download-trace").click()
        assert json.loads(trace.value.path().read_text())["traceEvents"]
        page.get_by_role("button", name="Prepare the whole run").click()
        with page.expect_download() as run:
            page.locator("#download-run").click()
        assert from_json(run.value.path().read_text()).question == "Who wrote first?"

        show(page, "How it works")
        assert page.get_by_role("tab").all_text_contents() == [
            "Compare",
            "Inspect",
            "Timeline",
            "Experiments",
            "Store",
            "How it works",
        ]
        expect(page.locator(".about .modes section")).to_have_count(8)


def test_the_recorded_run_is_inspected_without_a_model(page: Page, tmp_path):
    with live(tmp_path) as served, leaving(page):
        open_page(page, served.url)
        show(page, "Inspect")
        expect(page.locator("#attention-map canvas")).to_have_count(4)
        expect(page.locator("#map-kv-deviation canvas").first).to_be_visible()
        show(page, "Timeline")
        expect(page.locator("#lanes .js-plotly-plot")).to_be_visible()
        page.get_by_label("CacheBlend", exact=True).check()
        expect(page.locator("#lanes")).not_to_contain_text("full reuse")
        assert served.studio.loaded is None


def test_uploads_can_be_added_and_removed_and_a_bad_one_is_named(page: Page, page_url: str):
    open_page(page, page_url)
    files = [{"name": f"note-{i}.txt", "mimeType": "text/plain", "buffer": f"Note {i}.".encode()} for i in range(2)]
    files.append({"name": "broken.pdf", "mimeType": "application/pdf", "buffer": b"%PDF-1.4 cut short"})
    page.locator("#uploads input[type=file]").set_input_files(files)
    expect(page.locator("#documents-status .done")).to_contain_text("2 documents added")
    expect(page.get_by_role("alert")).to_contain_text("broken.pdf")
    page.get_by_role("button", name="Remove note-0.txt").click()
    expect(page.locator("#documents tbody tr")).to_have_count(1)


def test_hostile_documents_are_text(page: Page, page_url: str):
    open_page(page, page_url)
    name = "a<img src=x onerror='window.__pwned=1'>.txt"
    page.locator("#uploads input[type=file]").set_input_files(
        {"name": name, "mimeType": "text/plain", "buffer": (f"Ada. {HOSTILE} " * 5).encode()}
    )
    expect(page.locator("#documents tbody tr")).to_have_count(1)
    page.locator("#question textarea").fill(f"Who is {HOSTILE}?")
    ask(page)
    expect(page.locator("#heading h2")).to_have_text(f"Who is {HOSTILE}?")
    page.locator("#excerpts summary").first.click()
    expect(page.locator("#excerpts details[open] p")).to_contain_text(HOSTILE)
    show(page, "Inspect")
    expect(page.locator("#map-selected canvas").first).to_be_visible()
    assert page.evaluate("window.__pwned") is None


def test_text_that_spells_a_template_stays_text(page: Page, page_url: str):
    open_page(page, page_url)
    spelled = "{{#each value}}x{{/each}} ${7*7} {{constructor}} {{{value}}} {{ `${1}` \\\\ $& </b>"
    page.locator("#uploads input[type=file]").set_input_files(
        {"name": "{{value}}.txt", "mimeType": "text/plain", "buffer": f"Ada said {spelled}.".encode()}
    )
    expect(page.locator("#documents tbody tr")).to_have_count(1)
    page.locator("#question textarea").fill(spelled)
    ask(page)
    expect(page.locator("#heading h2")).to_have_text(spelled)
    page.locator("#excerpts summary").first.click()
    expect(page.locator("#excerpts details[open] p")).to_contain_text(spelled)


def test_a_question_without_documents_is_refused_beside_the_button(page: Page, page_url: str):
    open_page(page, page_url)
    page.locator("#question textarea").fill("Who?")
    page.get_by_role("button", name="Ask in every mode").click()
    expect(page.locator("#ask-status [role=alert]")).to_contain_text("There are no documents yet")
    expect(page.locator("#heading .badge")).to_contain_text("recorded run")


def test_what_breaks_unexpectedly_is_said_and_the_page_goes_on(page: Page, tmp_path):
    with live(tmp_path) as served, leaving(page):
        open_page(page, served.url)
        pick_sample(page)
        collection = next(iter(served.studio.sessions._by_id.values())).collection
        collection.search, kept = lambda *_: 1 / 0, collection.search
        page.get_by_role("button", name="Ask in every mode").click()
        expect(page.locator("#ask-status [role=alert]")).to_contain_text("something broke")
        collection.search = kept
        ask(page)


def test_stop_ends_a_run_and_another_can_follow(page: Page, tmp_path):
    with live(tmp_path, pause_s=0.4) as served, leaving(page):
        open_page(page, served.url)
        pick_sample(page)
        page.get_by_role("button", name="Ask in every mode").click()
        expect(page.locator("#card-full .answer")).to_contain_text("It was Ada.")
        page.get_by_role("button", name="Stop").click()
        expect(page.locator("#ask-status")).to_contain_text("Stopped.")
        expect(page.locator("#card-blend .answer")).to_have_text("Stopped before it answered.")
        expect(page.get_by_role("button", name="Stop")).to_be_hidden()
        assert served.engine.num_running == 0
        served.engine.pause_s = 0.01
        ask(page)


@pytest.fixture
def two_visitors(browser: Browser, watch: Watch, tmp_path):
    """Two pages of one server, each with a sample of its own, where an answer takes some seconds."""
    with live(tmp_path, pause_s=0.3) as served:
        contexts = [browser.new_context() for _ in range(2)]
        pages = []
        for context, title in zip(contexts, ("First", "Second"), strict=True):
            watch.over(context)
            pages.append(open_page(context.new_page(), served.url))
            pick_sample(pages[-1], title)
        yield served, *pages
        for context in contexts:
            context.close()


def test_a_second_visitor_waits_in_line_and_sees_only_their_own(two_visitors):
    served, first, second = two_visitors
    for page in (first, second):
        page.get_by_role("button", name="Ask in every mode").click()
    expect(second.locator("#ask-status")).to_contain_text("queue: 1/1")
    expect(first.locator("#heading .badge")).to_contain_text("your run")
    expect(second.locator("#heading .badge")).to_contain_text("your run")
    expect(first.locator("#excerpts")).to_contain_text("first-0.txt")
    expect(first.locator("#excerpts")).not_to_contain_text("second")
    expect(second.locator("#excerpts")).not_to_contain_text("first")
    assert served.engine.most_running == 1


def test_a_waiting_question_can_be_taken_back(two_visitors):
    served, first, second = two_visitors
    for page in (first, second):
        page.get_by_role("button", name="Ask in every mode").click()
    expect(second.locator("#ask-status")).to_contain_text("queue: 1/1")
    second.get_by_role("button", name="Stop").click()
    expect(second.locator("#ask-status")).to_contain_text("Stopped.")
    expect(first.locator("#heading .badge")).to_contain_text("your run")
    second.wait_for_timeout(500)
    expect(second.locator("#heading .badge")).to_contain_text("recorded run")
    assert served.engine.num_asked == 1


@pytest.mark.parametrize("tab", ["Compare", "Inspect", "Timeline", "How it works"])
def test_a_phone_needs_no_sideways_scrolling(browser: Browser, watch: Watch, page_url: str, tab: str):
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True)
    watch.over(context)
    page = open_page(context.new_page(), page_url)
    open_tab_on_a_phone(page, tab)
    drawn = {"Inspect": "#map-selected canvas", "Timeline": "#lanes .js-plotly-plot", "How it works": ".about h2"}
    expect(page.locator(drawn.get(tab, "#card-full")).first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator("#compare, .cb-host, .about").evaluate_all(
        "nodes => nodes.every(n => n.getBoundingClientRect().right <= 391)"
    )
    context.close()


def open_tab_on_a_phone(page: Page, tab: str) -> None:
    """Tabs that have no room are in a menu."""
    shown = page.get_by_role("tab", name=tab)
    if shown.count() == 0 or not shown.first.is_visible():
        page.locator("#tabs .overflow-menu > button").click()
        page.locator("#tabs .overflow-dropdown button", has_text=tab).click()
    else:
        shown.first.click()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_in_the_light_and_in_the_dark(browser: Browser, watch: Watch, page_url: str, scheme: str):
    context = browser.new_context(color_scheme=scheme, viewport={"width": 1440, "height": 1000})
    watch.over(context)
    page = open_page(context.new_page(), page_url)
    pick_sample(page)
    ask(page)
    num_texts, too_weak = page.evaluate(CONTRAST)
    assert num_texts > 80
    assert too_weak == []
    context.close()


def test_everything_can_be_reached_by_keyboard(page: Page, page_url: str):
    open_page(page, page_url)
    reached: set[str] = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        told = page.evaluate("(document.activeElement.textContent || '').trim().slice(0, 40)")
        reached.add(told.replace("\N{NO-BREAK SPACE}", " "))
    for name in ("Compare", "First", "Ask in every mode", "report-0.pdf · 10.8077 tokens"):
        assert name in reached
    page.locator("#samples button", has_text="First").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#documents-status .done")).to_contain_text("documents added")


def test_every_control_and_picture_has_a_name(page: Page, page_url: str):
    open_page(page, page_url)
    num_controls, nameless = page.evaluate(NAMELESS)
    assert num_controls > 10
    assert nameless == []


CONTRAST = """() => {
  const rgb = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const colour = rgb(getComputedStyle(node).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const weak = [];
  let texts = 0;
  const places = '#masthead *, #compare *, #tabs [role=tab]';
  for (const node of document.querySelectorAll(places)) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
    const seen = node.checkVisibility({ opacityProperty: true, visibilityProperty: true });
    if (!own || !seen) continue;
    texts += 1;
    const [a, b] = [light(rgb(getComputedStyle(node).color)), light(behind(node))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) weak.push(`${node.textContent.trim().slice(0, 40)} ${ratio.toFixed(2)} ${node.className}`);
  }
  return [texts, weak];
}"""

NAMELESS = """() => {
  const kinds = 'button, input, textarea, select, [role=img], img, [role=progressbar]';
  const shown = [...document.querySelectorAll(kinds)].filter((node) => node.checkVisibility());
  const nameless = shown.filter((node) => !(node.ariaLabel || node.title || node.alt || node.textContent.trim()
    || node.labels?.length || node.getAttribute('aria-labelledby') || node.closest('label')));
  return [shown.length, nameless.map((node) => node.outerHTML.slice(0, 200))];
}"""
