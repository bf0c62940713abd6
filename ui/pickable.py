"""HTML whose buttons say which one was pressed: any element with data-pick raises `pick` with that value."""

from __future__ import annotations

import gradio as gr

LISTEN = """
element.addEventListener('click', (event) => {
  const button = event.target.closest('[data-pick]');
  if (button && !button.disabled) trigger('pick', { value: button.dataset.pick });
});
"""


def pickable(value: str = "", *, elem_id: str) -> gr.HTML:
    """Return a gr.HTML with a `pick` event; its handler reads `event.value` of a gr.EventData, which can be forged.

    Not a subclass: Gradio writes a .pyi file beside the source of every subclass of a component.
    """
    return gr.HTML(value, js_on_load=LISTEN, elem_id=elem_id)
