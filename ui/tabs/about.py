"""How it works: every mode in a picture, policies and recipes in a line, and what was measured on the samples."""

from __future__ import annotations

from collections.abc import Iterable

import gradio as gr

from cacheblend.policies import POLICIES_TOLD, POLICY, PRIME_POLICY, PRIME_RECIPE, RECIPE
from cacheblend.trace import COMPARED, Mode
from ui import measured, words
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
        "At 0 % it is full reuse, at 100 % full recompute. (CacheBlend, EuroSys'25)"
    ),
    Mode.PRIME: (
        "Our own combination, not the paper’s. The chunk caches are made "
        f"{RECIPE[PRIME_RECIPE].behind}, so that no chunk takes its first tokens for the beginning of a text; and what "
        f"is recomputed is chosen by {POLICY[PRIME_POLICY].title}: {POLICY[PRIME_POLICY].explained[0].lower()}"
        f"{POLICY[PRIME_POLICY].explained[1:]} What they change by is carried on, in part, to the tokens behind "
        "them in the same chunk. It needs the caches whole before it begins, so computing hides less "
        "of a slow device."
    ),
    Mode.PREFIX: (
        "What serving systems do. The KV of exactly this beginning is looked up, token by token, and the rest is "
        "computed: exact, and quick where a prompt begins like an earlier one. Passages in another order are another "
        "beginning: it takes one copy for each passage and what stands in front of it."
    ),
    Mode.UNPLACED: (
        "A control: full reuse, but keys keep the positions they had when each passage was read alone, so all passages "
        "stand in one place, one on another. It shows what the rotation is for."
    ),
    Mode.MAP_REDUCE: (
        "Every passage is asked alone for what helps, all at once; what they replied is put into a prompt of its own. "
        "Nothing can be shown before the replies are there. (after LangChain’s chain, in prompts of our own)"
    ),
    Mode.MAP_RERANK: (
        "Every passage answers alone and rates its answer from 0 to 100; the highest wins. No passage sees another. A "
        "score that cannot be read counts as 0, and the column says so. (after LangChain’s chain)"
    ),
}
REPLIES = {Mode.MAP_REDUCE: "ask · ask · ask → answer", Mode.MAP_RERANK: "answer · answer · answer → the best"}
OFFERED = tuple(mode for mode in EXPLAINED if mode not in COMPARED)
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
        gr.HTML(
            f'<div class="about">{_modes()}{_policies()}{_recipes()}{_glossary()}{measured.render(measured.load())}'
            "</div>"
        )


def _modes() -> str:
    key = '<p class="key"><i class="fresh"></i>computed now <i class="kept"></i>from a cache</p>'
    return (
        f'<h2>Three ways to read the same passages</h2>{key}<div class="modes">{_sections(COMPARED)}</div>'
        '<h2>And five to hold them against</h2><p class="lead">They are off at first: add them under Settings.</p>'
        f'<div class="modes">{_sections(OFFERED)}</div>'
    )


def _sections(modes: Iterable[Mode]) -> str:
    return "".join(
        f'<section class="mode-{mode}"><h3>{TITLES[mode]}</h3>{_picture(mode)}<p>{EXPLAINED[mode]}</p></section>'
        for mode in modes
    )


def _picture(mode: Mode) -> str:
    """Three passages and the question as cells; drawn, not measured."""
    if mode in REPLIES:
        return f'<p class="steps">{REPLIES[mode]}</p>'
    chunks = [[_is_fresh(mode, chunk, cell) for cell in range(CELLS)] for chunk in range(CHUNKS)]
    groups = "".join(f'<span class="group">{_cells(chunk)}</span>' for chunk in [*chunks, [True] * QUESTION_CELLS])
    return f'<div class="picture" role="img" aria-label="{TITLES[mode]}: which tokens are computed">{groups}</div>'


def _is_fresh(mode: Mode, chunk: int, cell: int) -> bool:
    if mode is Mode.PREFIX:
        return chunk > 0  # the first passage was first before
    return mode is Mode.FULL or (mode in (Mode.BLEND, Mode.PRIME) and cell in FRESH[chunk])


def _cells(fresh: list[bool]) -> str:
    return "".join(f'<i class="{"fresh" if is_fresh else "kept"}"></i>' for is_fresh in fresh)


def _policies() -> str:
    rows = "".join(
        f'<tr><th scope="row">{words.text(about.title)}</th><td>{words.text(about.explained)}</td>'
        f'<td data-label="choosing costs">{words.text(about.costs)}</td>'
        f'<td data-label="from">{words.text(about.source or "a control")}</td></tr>'
        for about in POLICIES_TOLD
        if about.is_choice
    )
    head = "".join(f'<th scope="col">{name}</th>' for name in ("policy", "recomputes", "choosing costs", "from"))
    return (
        '<h2>Which tokens to recompute</h2><p class="lead">All at the same budget; “own choice” under Settings takes '
        "any of them, and each pays for its own choosing in TTFT: the part “select”, and what it computes more. How "
        "far each comes on your own documents is measured under Experiments, by the policy frontier.</p>"
        f"{_table('policies', head, rows)}"
    )


def _recipes() -> str:
    rows = "".join(
        f'<tr><th scope="row">{words.text(about.title)}</th><td>{words.text(about.explained)}</td>'
        f'<td data-label="from">{words.text(about.source or "ours")}</td></tr>'
        for about in RECIPE.values()
    )
    head = "".join(f'<th scope="col">{name}</th>' for name in ("recipe", "in front of the chunk", "from"))
    return (
        '<h2>What stands in front of a chunk when its cache is made</h2><p class="lead">Only the chunk’s own KV is '
        "kept. It costs time once, when the cache is made, and a cache of its own in the store; a question with a "
        "recipe makes what is missing before any clock starts.</p>"
        f"{_table('recipes', head, rows)}"
    )


def _table(name: str, head: str, rows: str) -> str:
    return (
        f'<div class="measured told" tabindex="0" role="region" aria-label="{name}"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _glossary() -> str:
    items = "".join(f"<div><dt>{term}</dt><dd>{meaning}</dd></div>" for term, meaning in GLOSSARY.items())
    return f'<h2>What the numbers mean</h2><dl class="glossary">{items}</dl>'
