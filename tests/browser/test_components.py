"""The page's widgets in a browser: they draw, point at one token together, zoom, and never run a document's text."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import gradio as gr
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from cacheblend.trace import Comparison
from tests.synthetic import HOSTILE, synthetic_comparison
from ui.components.attention_map import attention_map, attention_payload
from ui.components.token_map import TokenQuantity, token_map, token_map_payload
from ui.components.token_text import token_text, token_text_payload

TOKENS = 3000
KV, SELECTED = TokenQuantity.KV_DEVIATION, TokenQuantity.SELECTED


@dataclass
class Opened:
    """A page, and what went wrong or out while it was open."""

    page: Page
    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def widget(self, name: str) -> Locator:
        return self.page.locator(f"#{name}")

    def status(self, name: str) -> Locator:
        return self.widget(name).locator(".cb-status")

    def token(self, position: int) -> Locator:
        return self.page.locator(f'#text [data-token="{position}"]')


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return synthetic_comparison(TOKENS)


@pytest.fixture(scope="module")
def url(comparison: Comparison) -> Iterator[str]:
    def lookup(run_id: str) -> Comparison | None:
        return comparison if run_id == "run" else None

    with gr.Blocks(analytics_enabled=False) as demo:
        widgets = [
            token_text(lookup, elem_id="text"),
            token_map(lookup, elem_id="deviation"),
            token_map(lookup, elem_id="selected"),
            attention_map(lookup, elem_id="attention"),
        ]
        forget = gr.Button("Forget")
        payloads = [
            token_text_payload(comparison, run_id="run"),
            *(token_map_payload(comparison, what, run_id="run") for what in (KV, SELECTED)),
            attention_payload(comparison, run_id="run"),
        ]
        demo.load(lambda: payloads, None, widgets, api_visibility="private")
        forget.click(lambda: [None] * 4, None, widgets, api_visibility="private")
    fonts = gr.themes.Soft(font=["system-ui"], font_mono=["ui-monospace"])
    address = demo.launch(prevent_thread_lock=True, quiet=True, run_history=False, theme=fonts)[1]
    yield address
    demo.close()


@pytest.fixture
def opened(browser: Browser, url: str) -> Iterator[Opened]:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    made = Opened(page)
    page.on("request", lambda request: made.requests.append(request.url))
    page.on("pageerror", lambda error: made.errors.append(str(error)))
    page.on("console", lambda message: message.type == "error" and made.errors.append(message.text))
    page.goto(url)
    expect(page.locator("#text .cb-text")).to_be_visible()
    expect(page.locator("#attention canvas")).to_have_count(4)
    yield made
    page.close()
    assert made.errors == []


def middle_of(canvas: Locator, across: float = 0.5, down: float = 0.4) -> tuple[float, float]:
    """Scroll a canvas into view and return the place of a point in it."""
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box is not None
    return box["x"] + box["width"] * across, box["y"] + box["height"] * down


def locked_token(opened: Opened, name: str) -> int:
    expect(opened.status(name)).to_contain_text("Locked: token")
    *_, attended = re.findall(r"token (\d+) “", opened.status(name).inner_text())  # of a pair, the one looked at
    return int(attended)


def range_shown(opened: Opened, name: str) -> tuple[int, int]:
    hint, told = opened.widget(name).locator(".cb-hint"), re.compile(r"(?:Tokens|attended) (\d+)–(\d+)")
    expect(hint).to_contain_text(told)  # not while the part is being computed
    found = told.search(hint.inner_text())
    assert found is not None
    return int(found[1]), int(found[2])


def test_every_canvas_draws_more_than_one_colour(opened: Opened) -> None:
    count = """canvas => new Set(new Uint32Array(canvas.getContext("2d").getImageData(
        60, 0, canvas.width - 60, canvas.height - 40).data.buffer)).size"""
    canvases = opened.page.locator("canvas").all()
    assert len(canvases) == 2 + 1 + 4
    assert all(canvas.evaluate(count) >= 3 for canvas in canvases)


def test_a_documents_markup_stays_text_and_nothing_leaves_the_machine(opened: Opened, comparison: Comparison) -> None:
    hostile = opened.token(comparison.tokens.index(HOSTILE))
    hostile.scroll_into_view_if_needed()
    hostile.hover()
    expect(hostile).to_have_text(HOSTILE)
    expect(opened.status("deviation")).to_contain_text(HOSTILE)
    assert opened.page.evaluate("window.__pwned === undefined")
    assert opened.page.locator("img[src='x']").count() == 0
    assert opened.requests
    assert {urlsplit(request).hostname for request in opened.requests} == {"127.0.0.1"}


def test_hovering_a_map_shows_a_tooltip_and_marks_the_text(opened: Opened) -> None:
    opened.page.mouse.move(*middle_of(opened.widget("deviation").locator("canvas").first))
    tooltip = opened.widget("deviation").locator(".cb-tooltip")
    expect(tooltip).to_be_visible()
    expect(tooltip).to_contain_text(re.compile(r"token \d+ “.*layer \d+.*full reuse: .*blend: ", re.DOTALL))
    expect(opened.page.locator("#text .cb-token")).to_have_count(1)
    opened.page.mouse.move(2, 2)
    expect(tooltip).to_be_hidden()
    expect(opened.page.locator("#text .cb-token")).to_have_count(0)


def test_a_click_locks_one_token_in_every_widget_until_escape(opened: Opened) -> None:
    opened.page.mouse.click(*middle_of(opened.widget("deviation").locator("canvas").nth(1), across=0.7))
    token = locked_token(opened, "deviation")
    assert 0.6 * TOKENS < token < 0.8 * TOKENS
    assert {locked_token(opened, name) for name in ("text", "selected", "attention")} == {token}
    expect(opened.token(token)).to_have_class(re.compile("cb-locked"))
    inside = """span => {
        const [own, frame] = [span, span.closest(".cb-text")].map(node => node.getBoundingClientRect());
        return own.top >= frame.top && own.bottom <= frame.bottom;
    }"""
    assert opened.token(token).evaluate(inside)  # the text scrolled to it, 2,000 tokens down
    opened.page.mouse.move(*middle_of(opened.widget("deviation").locator("canvas").nth(1), across=0.3))
    assert locked_token(opened, "text") == token  # hovering elsewhere does not move a lock
    opened.page.keyboard.press("Escape")
    expect(opened.page.locator("#text .cb-locked")).to_have_count(0)


def test_arrow_keys_move_the_locked_token(opened: Opened) -> None:
    opened.token(40).click()
    opened.page.keyboard.press("ArrowRight")
    assert locked_token(opened, "deviation") == 41
    expect(opened.status("text")).to_have_attribute("aria-live", "polite")
    expect(opened.status("deviation")).to_have_attribute("aria-live", "off")
    opened.widget("selected").locator("canvas").focus()
    opened.page.keyboard.press("ArrowLeft")
    opened.page.keyboard.press("ArrowLeft")
    assert locked_token(opened, "text") == 39


def test_attention_points_at_a_pair(opened: Opened) -> None:
    opened.page.mouse.click(*middle_of(opened.widget("attention").locator("canvas").first, across=0.4, down=0.6))
    expect(opened.status("attention")).to_contain_text(re.compile(r"looks at token \d+.*full recompute: .*blend: "))
    expect(opened.page.locator("#text .cb-query")).to_have_count(1)
    assert locked_token(opened, "attention") == locked_token(opened, "text")


def test_dragging_zooms_a_token_map_into_single_tokens_and_a_double_click_resets(opened: Opened) -> None:
    canvas, hint = opened.widget("deviation").locator("canvas").first, opened.widget("deviation").locator(".cb-hint")
    expect(hint).to_contain_text("Pooled 2:1 (maximum)")
    opened.page.mouse.move(*middle_of(canvas, across=0.4))
    opened.page.mouse.down()
    opened.page.mouse.move(*middle_of(canvas, across=0.5), steps=4)
    opened.page.mouse.up()
    first, last = range_shown(opened, "deviation")
    assert 0.3 * TOKENS < first < last < 0.55 * TOKENS
    expect(hint).not_to_contain_text("Pooled")
    opened.page.mouse.dblclick(*middle_of(canvas))
    assert range_shown(opened, "deviation") == (0, TOKENS - 1)


def test_the_wheel_zooms_once_the_map_has_focus_and_scrolls_before(opened: Opened) -> None:
    canvas = opened.widget("deviation").locator("canvas").first
    opened.page.mouse.move(*middle_of(canvas))
    opened.page.mouse.wheel(0, -20)
    assert range_shown(opened, "deviation") == (0, TOKENS - 1)
    opened.page.mouse.click(*middle_of(canvas))
    opened.page.mouse.wheel(0, -20)
    expect(opened.widget("deviation").locator(".cb-hint")).not_to_contain_text(f"Tokens 0–{TOKENS - 1}")


def test_attention_panels_zoom_together_and_fetch_the_window(opened: Opened) -> None:
    with opened.page.expect_request("**/component_server**") as asked:
        opened.widget("attention").get_by_role("button", name="Zoom in").click()
    body = asked.value.post_data_json
    assert body["fn_name"] == "window"
    assert body["data"]["rows"] == [TOKENS // 4, TOKENS * 3 // 4]
    assert range_shown(opened, "attention") == (TOKENS // 4, TOKENS * 3 // 4 - 1)


def test_layer_head_and_difference_are_chosen(opened: Opened) -> None:
    attention = opened.widget("attention")
    with opened.page.expect_response("**/component_server**") as reply:
        attention.get_by_label("Layer", exact=True).select_option("29")
    assert reply.value.json()["layer"] == 29
    with opened.page.expect_response("**/component_server**") as reply:
        attention.get_by_label("Head", exact=True).select_option("1")
    assert (reply.value.json()["layer"], reply.value.json()["head"]) == (29, 1)
    attention.get_by_label("Difference", exact=True).select_option("reuse")
    expect(attention.locator(".cb-panel-label").last).to_have_text("full reuse − full recompute")


def test_text_is_coloured_by_a_quantity_at_a_layer(opened: Opened) -> None:
    text = opened.widget("text")
    text.get_by_label("Colour by", exact=True).select_option(label="computed by blend (share of layers)")
    with opened.page.expect_response("**/component_server**"):
        text.get_by_label("At", exact=True).select_option("5")
    shares = """spans => new Set(spans.map(span => span.style.getPropertyValue("--share")))"""
    found = opened.page.locator("#text [data-token]").evaluate_all(f"spans => [...({shares})(spans)]")
    assert sorted(found) == ["0.00", "1.00"]
    opened.token(TOKENS - 1).hover()
    expect(opened.status("text")).to_contain_text("layer 5: 1")


def test_a_value_that_goes_away_leaves_a_sentence(opened: Opened) -> None:
    opened.page.get_by_role("button", name="Forget").click()
    expect(opened.page.locator(".cb-empty")).to_have_count(4)


def test_a_phone_in_the_dark_has_no_sideways_scroll_and_readable_axes(browser: Browser, url: str) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 844}, device_scale_factor=2)
    page.goto(f"{url}?__theme=dark")
    expect(page.locator("#attention canvas")).to_have_count(4)
    canvas = page.locator("#deviation canvas").first
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    size = canvas.evaluate("c => [c.width, c.clientWidth]")
    assert size[0] == pytest.approx(2 * size[1], abs=2)
    brightest = (
        """c => Math.max(...c.getContext("2d").getImageData(0, 0, 76, c.height).data.filter((_, i) => i % 4 < 3))"""
    )
    assert canvas.evaluate(brightest) > 180
    page.close()
