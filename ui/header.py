"""The slim bar on top: the name, the promise, and where things run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ui import words

if TYPE_CHECKING:
    from ui.studio import Studio

CHUNK_ROWS = (4, 14, 24)
FRESH_CELLS = ((7, 4), (20, 14), (27, 14), (13, 24))  # the tokens that are recomputed, x and y
LOGO = (
    '<svg viewBox="0 0 36 36" width="36" height="36" aria-hidden="true">'
    + "".join(f'<rect class="chunk" x="2" y="{y}" width="32" height="8" rx="2"/>' for y in CHUNK_ROWS)
    + "".join(f'<rect class="fresh" x="{x}" y="{y}" width="3" height="8"/>' for x, y in FRESH_CELLS)
    + "</svg>"
)
NAME = "CacheBlend Studio"
PROMISE = "Ask your documents once, and see what fusing cached KV does to the answer, the wait, and the model inside."


def render(studio: Studio) -> str:
    """Return the bar; it says that no model is loaded as long as that is so."""
    chips = "".join(f"<li>{chip}</li>" for chip in _chips(studio))
    return (
        f'<div class="masthead">{LOGO}<div class="name"><h1>{NAME}</h1><p>{PROMISE}</p></div>'
        f'<ul class="chips" aria-label="Where it runs">{chips}</ul></div>'
    )


def _chips(studio: Studio) -> list[str]:
    engine = studio.loaded
    if engine is None:
        return [f"model <b>{words.text(studio.model)}</b>", "not loaded: it loads when first needed"]
    environment = engine.environment
    used = (f"{tier.place} {words.filled(tier.nbytes, tier.capacity)}" for tier in engine.store.stats)
    return [
        f"<b>{words.text(environment.model)}</b>",
        f"{words.text(environment.device)} · {words.text(environment.dtype)}",
        f"chunk caches · {' · '.join(used)}",
    ]
