"""The Experiments tab in a browser, around experiments that measure nothing; and the report without a network."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.app import experiments
from tests.app.live import Live, live
from tests.browser.conftest import Watch, leaving
from tests.browser.test_page import CONTRAST, NAMELESS, open_page, open_tab_on_a_phone, pick_sample, show
from tests.synthetic import HOSTILE
from tests.unit.evaluation.results import hostile
from visualizations.report import page as report_page

POINT = "#experiment-figure .js-plotly-plot .points path.point"


@pytest.fixture(scope="module")
def lab(tmp_path_factory) -> Iterator[Live]:
    """A page whose experiments are made for the test."""
    with pytest.MonkeyPatch.context() as patch, live(tmp_path_factory.mktemp("samples"), 0.02) as page:
        experiments.install(patch)
        yield page


def run(page: Page) -> None:
    page.locator("#run-experiment").click()
    expect(page.locator("#experiment-status")).to_contain_text("Measured.")


def wait_for_questions(page: Page) -> None:
    """The sample's own questions are filled in when the tab opens."""
    expect(page.locator("#experiment-questions textarea")).not_to_have_value("")


def test_it_opens_on_a_recorded_result_without_a_model(page: Page, tmp_path):
    with live(tmp_path) as served, leaving(page):
        open_page(page, served.url)
        show(page, "Experiments")
        expect(page.locator("#experiment-heading")).to_contain_text("recorded earlier")
        expect(page.locator(POINT).first).to_be_visible()
        expect(page.locator("#experiment-open")).to_be_hidden()
        page.locator("#run-experiment").click()
        expect(page.locator("#experiment-status [role=alert]")).to_contain_text("There is no question")
        page.locator("#experiment-questions textarea").fill("Who?")
        page.locator("#run-experiment").click()
        expect(page.locator("#experiment-status [role=alert]")).to_contain_text("There are no documents yet")
        assert served.studio.loaded is None


def test_an_experiment_is_run_seen_and_exported(page: Page, lab: Live):
    open_page(page, lab.url)
    pick_sample(page)
    show(page, "Experiments")
    wait_for_questions(page)
    expect(page.locator("#experiment-questions textarea")).to_have_value("Who wrote first?\nWhen was first written?")
    page.locator("#experiment-list button", has_text="Policy frontier").click()
    expect(page.locator("#experiment-list [aria-pressed=true]")).to_be_focused()
    run(page)
    expect(page.locator("#experiment-heading")).to_contain_text("your documents · fake-1M")
    expect(page.locator("#experiment-heading .finding")).to_contain_text("PrimeBlend at 30 %")
    expect(page.locator("#experiment-notes")).to_contain_text("2 questions")
    expect(page.locator("#experiment-notes")).to_contain_text("Nothing of importance.")
    expect(page.locator("#experiment-points .points")).to_be_hidden()
    page.get_by_role("button", name="Points as a table").click()
    expect(page.locator("#experiment-points tbody tr")).to_have_count(8)
    for kind, rows in (("csv", 9), ("jsonl", 8)):
        with page.expect_download() as points:
            page.locator(f"#download-{kind}").click()
        assert points.value.suggested_filename == f"frontier.{kind}"
        assert len(points.value.path().read_text().splitlines()) == rows
    page.locator("#prepare-report").click()
    with page.expect_download() as report:
        page.locator("#download-report").click()
    assert "fake-1M" in report.value.path().read_text()
    expect(page.locator("#experiment-which")).to_be_visible()


def test_a_point_that_is_clicked_opens_in_inspect(page: Page, lab: Live):
    open_page(page, lab.url)
    pick_sample(page)
    show(page, "Experiments")
    wait_for_questions(page)
    run(page)
    expect(page.locator("#experiment-point input")).to_have_value("full reuse · 2")
    middle = page.locator(POINT).nth(2)
    middle.scroll_into_view_if_needed()
    box = middle.bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(page.get_by_role("tab", name="Inspect")).to_have_attribute("aria-selected", "true")
    expect(page.locator("#map-kv-deviation canvas").first).to_be_visible()
    (session,) = [s for s in lab.studio.sessions._by_id.values() if s.runs]
    (kept,) = session.runs.values()
    assert kept.comparison.inspection is not None and kept.comparison.question == "Who wrote first?"
    show(page, "Experiments")
    wait_for_questions(page)
    expect(page.locator("#experiment-point input")).not_to_have_value("full reuse · 2")
    show(page, "Timeline")
    expect(page.locator("#lanes .js-plotly-plot")).to_be_visible()
    show(page, "Compare")
    expect(page.locator("#heading h2")).to_have_text("Who wrote first?")
    expect(page.locator("#heading .badge")).to_contain_text("your run")


def test_a_point_is_chosen_and_opened_by_keyboard(page: Page, lab: Live):
    open_page(page, lab.url)
    pick_sample(page)
    show(page, "Experiments")
    wait_for_questions(page)
    page.locator("#run-experiment").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#experiment-status")).to_contain_text("Measured.")
    page.locator("#experiment-question input").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    chosen = page.locator("#experiment-question input").input_value()
    page.locator("#open-point").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#map-kv-deviation canvas").first).to_be_visible()
    session = next(reversed(list(lab.studio.sessions._by_id.values())))
    assert next(reversed(session.runs.values())).comparison.question == chosen


def test_an_experiment_can_be_stopped_and_another_can_follow(page: Page, tmp_path, monkeypatch):
    experiments.install(monkeypatch)
    with live(tmp_path) as served, leaving(page):
        open_page(page, served.url)
        pick_sample(page)
        served.engine.pause_s = 0.5
        show(page, "Experiments")
        wait_for_questions(page)
        page.locator("#run-experiment").click()
        expect(page.locator("#experiment-status")).to_contain_text("of 6")
        expect(page.locator("#experiment-status [role=progressbar]")).to_be_visible()
        page.locator("#experiment-form").get_by_role("button", name="Stop").click()
        expect(page.locator("#experiment-status")).to_contain_text("Stopped.")
        assert not served.studio.turn.locked()
        served.engine.pause_s = 0.0
        run(page)


def test_hostile_and_long_questions_are_text(page: Page, lab: Live):
    open_page(page, lab.url)
    pick_sample(page)
    show(page, "Experiments")
    wait_for_questions(page)
    long = "why " * 300
    page.locator("#experiment-questions textarea").fill(f"{HOSTILE}\n{long}\n{{{{value}}}} ${{7*7}}")
    run(page)
    page.locator("#experiment-question input").click()
    expect(page.get_by_role("option").first).to_contain_text(HOSTILE[:40])
    page.keyboard.press("Escape")
    assert page.evaluate("document.documentElement.scrollWidth") <= 1440
    page.locator("#experiment-questions textarea").fill("x" * 2001)
    page.locator("#run-experiment").click()
    expect(page.locator("#experiment-status [role=alert]")).to_contain_text("shorten it")
    expect(page.locator("#experiment-heading")).to_contain_text("your documents")
    assert page.evaluate("window.__pwned") is None


def test_it_fits_a_phone_and_names_its_controls(browser: Browser, watch: Watch, lab: Live):
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True, color_scheme="dark")
    watch.over(context)
    page = open_page(context.new_page(), lab.url)
    pick_sample(page)
    open_tab_on_a_phone(page, "Experiments")
    wait_for_questions(page)
    run(page)
    expect(page.locator(POINT).first).to_be_visible()
    page.get_by_role("button", name="Points as a table").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    parts = page.locator("#experiments, .catalogue, #experiment-figure, .points, #experiment-open")
    assert parts.evaluate_all("nodes => nodes.every(n => n.getBoundingClientRect().right <= 391)")
    num_controls, nameless = page.evaluate(NAMELESS)
    assert num_controls > 15 and nameless == []
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out(browser: Browser, watch: Watch, lab: Live, scheme: str):
    context = browser.new_context(color_scheme=scheme, viewport={"width": 1440, "height": 1000})
    watch.over(context)
    page = open_page(context.new_page(), lab.url)
    pick_sample(page)
    show(page, "Experiments")
    wait_for_questions(page)
    run(page)
    page.get_by_role("button", name="Points as a table").click()
    num_texts, too_weak = page.evaluate(CONTRAST.replace("#compare *", "#experiments *"))
    assert num_texts > 60
    assert too_weak == []
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_report_is_read_where_nothing_can_be_fetched(browser: Browser, tmp_path, scheme: str):
    path = tmp_path / "report.html"
    path.write_text(report_page([hostile("frontier"), hostile("fig16"), hostile("unheard of")], problems=[HOSTILE]))
    context = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme=scheme, accept_downloads=True)
    asked: list[str] = []
    wrong: list[str] = []
    context.route("http*://**", lambda route: (asked.append(route.request.url), route.abort()))
    context.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    context.on("weberror", lambda error: wrong.append(str(error.error)))
    page = context.new_page()
    page.goto(path.as_uri())
    expect(page.locator(".js-plotly-plot .main-svg").first).to_be_visible()
    assert page.locator(".js-plotly-plot").count() == 2
    page.locator("summary").first.click()
    expect(page.locator(".rows").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    with page.expect_download() as points:
        page.get_by_role("link", name="frontier.jsonl").click()
    assert json.loads(points.value.path().read_text().splitlines()[0])["series"] == HOSTILE
    assert page.evaluate("fetch('https://example.org').then(() => 'fetched', () => 'refused')") == "refused"
    num_texts, too_weak = page.evaluate(CONTRAST.replace("#masthead *, #compare *, #tabs [role=tab]", "main *"))
    assert num_texts > 40 and too_weak == []
    assert page.evaluate("window.__pwned") is None
    assert asked == [] and [said for said in wrong if "Content Security Policy" not in said] == []
    context.close()
