"""How it works: the three modes in a picture each, what the numbers mean, and what was measured on the samples."""

from __future__ import annotations

import gradio as gr

from cacheblend.trace import COMPARED, Mode
from ui import measured
from ui.cards import TITLES
from ui.frame import Page

CHUNKS, CELLS, QUESTION_CELLS = 3, 16, 4
FRESH = {0: {5, 11}, 1: {0, 1, 9}, 2: {0, 6}}  # the picture's recomputed cells; of chunk and place

EXPLAINED = {
    Mode.FULL: (
        "The model reads every passage and the question together. Each token's key and value (its KV) depend on all "
        "that stands before it. It is exact, and the wait before the first token grows with every passage."
    ),
    Mode.REUSE: (
        "Each passage was read once, alone, and its KV was kept. Keys are rotated to the passage's place in this "
        "prompt, and only the question is read anew. It is nearly free, but no passage has seen another: a “she” in "
        "one chunk cannot point at a name in the next."
    ),
    Mode.BLEND: (
        "The kept KV is used, and at one early layer compared with fresh KV. The tokens that deviate most, 15 % by "
        "default, needed the other passages: they are recomputed through the remaining layers, the others stay. "
        "At 0 % it is full reuse, at 100 % full recompute."
    ),
}
GLOSSARY = {
    "Time to first token (TTFT)": (
        "From the question being handed over, its chunks retrieved, to the first token of the answer. The bar shows "
        "its parts to the scale of the slowest mode."
    ),
    "Recomputed": "Context tokens computed anew per layer, mean over the layers after the first, and their share.",
    "First-token KL": "How differently the mode and full weigh every possible first token: 0 is the same.",
    "Top-1 agreement": "Led along full's own answer, how often the mode would choose the same next token.",
    "Word F1 to full": "How many words the two answers share. Where full is wrong, near to full is wrong too.",
    "Warm or cold": "Warm: every chunk's cache was in the store. Cold: some were computed first, inside the TTFT.",
}


def build(page: Page) -> None:
    """Add the tab."""
    with gr.Tab("How it works", id="about"):
        gr.HTML(f'<div class="about">{_modes()}{_glossary()}{measured.render(measured.load())}</div>')


def _modes() -> str:
    rows = "".join(
        f'<section class="mode-{mode}"><h3>{TITLES[mode]}</h3>{_picture(mode)}<p>{EXPLAINED[mode]}</p></section>'
        for mode in COMPARED
    )
    key = '<p class="key"><i class="fresh"></i>computed now <i class="kept"></i>from a cache</p>'
    return f'<h2>Three ways to read the same passages</h2>{key}<div class="modes">{rows}</div>'


def _picture(mode: Mode) -> str:
    """Three passages and the question as cells; drawn, not measured."""
    chunks = [[_is_fresh(mode, chunk, cell) for cell in range(CELLS)] for chunk in range(CHUNKS)]
    groups = "".join(f'<span class="group">{_cells(chunk)}</span>' for chunk in [*chunks, [True] * QUESTION_CELLS])
    return f'<div class="picture" role="img" aria-label="{TITLES[mode]}: which tokens are computed">{groups}</div>'


def _is_fresh(mode: Mode, chunk: int, cell: int) -> bool:
    return mode is Mode.FULL or (mode is Mode.BLEND and cell in FRESH[chunk])


def _cells(fresh: list[bool]) -> str:
    return "".join(f'<i class="{"fresh" if is_fresh else "kept"}"></i>' for is_fresh in fresh)


def _glossary() -> str:
    items = "".join(f"<div><dt>{term}</dt><dd>{meaning}</dd></div>" for term, meaning in GLOSSARY.items())
    return f'<h2>What the numbers mean</h2><dl class="glossary">{items}</dl>'
