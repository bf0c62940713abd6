"""The whole job on the embedded model: real weights, real documents, real timings."""

from __future__ import annotations

from functools import partial

from playwright.sync_api import Page, expect

from cacheblend.loading import StoreConfig
from cacheblend.samples import load_samples
from ui.loading import load_engine, load_recorded
from ui.serving import serve
from ui.studio import Studio

MINUTES_MS = 180_000


def test_a_sample_question_is_answered_in_three_modes(page: Page):
    studio = Studio(
        partial(load_engine, "embedded", "embedded", None, None, StoreConfig()), load_samples(), load_recorded()
    )
    blocks, url = serve(studio, host="127.0.0.1", port=None, block=False)
    try:
        page.goto(url)
        page.locator("#samples button").first.click()
        expect(page.locator("#documents-status .done")).to_contain_text("documents added", timeout=MINUTES_MS)
        page.get_by_role("button", name="Ask in every mode").click()
        expect(page.locator("#heading .badge")).to_contain_text("your run · SmolLM2-135M", timeout=MINUTES_MS)
        columns = {mode: page.locator(f"#card-{mode}") for mode in ("full", "reuse", "blend")}
        for column in columns.values():
            assert column.locator(".answer").inner_text().strip()
            expect(column.locator(".facts")).to_contain_text("nats")
        expect(columns["full"].locator(".facts")).to_contain_text("0.000 nats")
        expect(columns["reuse"].locator(".facts")).to_contain_text("0 tokens")
        expect(columns["blend"].locator(".facts")).to_contain_text("warm")
        page.get_by_role("tab", name="Inspect").click()
        expect(page.locator("#attention-map canvas")).to_have_count(4, timeout=MINUTES_MS)
    finally:
        blocks.close()
