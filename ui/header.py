"""The slim bar on top: the name, the promise, and where things run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ui import words

if TYPE_CHECKING:
    from ui.studio import Studio

LOGO = (
    '<svg viewBox="0 0 36 36" width="36" height="36" aria-hidden="true">'
    '<rect class="chunk" x="2" y="4" width="32" height="8" rx="2"/><rect class="chunk" x="2" y="14" width="32" height="8" rx="2"/>'
    '<rect class="chunk" x="2" y="24" width="32" height="8" rx="2"/><rect class="fresh" x="7" y="4" width="3" height="8"/>'
    '<rect class="fresh" x="20" y="14" width="3" height="8"/><rect class="fresh" x="27" y="14" width="3" height="8"/>'
    '<rect class="fresh" x="13" y="24" width="3" height="8"/></svg>'
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
    environment, store = engine.environment, engine.store
    used = f"{words.nbytes(store.nbytes)} of {words.nbytes(store.capacity)}"
    return [
        f"<b>{words.text(environment.model)}</b>",
        f"{words.text(environment.device)} · {words.text(environment.dtype)}",
        f"{words.count(len(store), 'chunk cache')} · {used}",
    ]
