"""The page's look: Gradio's theme, the fonts in its wheel, and the colours the figures use, as CSS variables."""

from __future__ import annotations

from pathlib import Path

import gradio as gr
from gradio.themes.utils.fonts import LocalFont

from visualizations import theme as figures

FULL_WEIGHTS = (400, 700)  # the SemiBold files in the wheel lack Latin letters
STYLE_SHEETS = Path(__file__).parent.parent / "assets" / "css"
PAPER, SURFACE, LINE, INK, MUTED, ACCENT = "#fbfaf7", "#ffffff", "#e4e0d6", "#1d2125", "#5b626c", "#00735a"
PAPER_DARK, SURFACE_DARK, LINE_DARK, INK_DARK, MUTED_DARK, ACCENT_DARK = (
    "#121416", "#1a1d20", "#30353a", "#ebe8e1", "#a3a9b2", "#45c9a4",
)  # fmt: skip


def theme() -> gr.themes.Base:
    """Return the theme: paper, ink and one accent; nothing is fetched from a font service."""
    return gr.themes.Base(
        radius_size=gr.themes.sizes.radius_md,
        font=[LocalFont("IBM Plex Sans", weights=FULL_WEIGHTS), "system-ui", "sans-serif"],
        font_mono=[LocalFont("IBM Plex Mono", weights=FULL_WEIGHTS), "ui-monospace", "monospace"],
    ).set(**_colours())


def style_sheet() -> str:
    """Return the page's CSS: colours of modes, lanes and chunks, then the style sheets, then the figures' rules."""
    sheets = [(STYLE_SHEETS / name).read_text(encoding="utf-8") for name in ("page.css", "experiments.css")]
    return "\n".join([_palette(), *sheets, figures.css()])


def _colours() -> dict[str, str]:
    pairs = {
        "body_background_fill": (PAPER, PAPER_DARK),
        "body_text_color": (INK, INK_DARK),
        "body_text_color_subdued": (MUTED, MUTED_DARK),
        "background_fill_primary": (SURFACE, SURFACE_DARK),
        "background_fill_secondary": (PAPER, PAPER_DARK),
        "block_background_fill": (SURFACE, SURFACE_DARK),
        "block_border_color": (LINE, LINE_DARK),
        "block_label_text_color": (MUTED, MUTED_DARK),
        "block_title_text_color": (INK, INK_DARK),
        "block_info_text_color": (MUTED, MUTED_DARK),
        "border_color_primary": (LINE, LINE_DARK),
        "border_color_accent": (ACCENT, ACCENT_DARK),
        "color_accent_soft": ("#e3f1ec", "#17332b"),
        "input_background_fill": (SURFACE, "#16191b"),
        "input_border_color": (LINE, LINE_DARK),
        "input_border_color_focus": (ACCENT, ACCENT_DARK),
        "input_placeholder_color": ("#6d747d", "#8d949d"),
        "slider_color": (ACCENT, ACCENT_DARK),
        "link_text_color": (ACCENT, ACCENT_DARK),
        "button_primary_background_fill": (ACCENT, ACCENT_DARK),
        "button_primary_background_fill_hover": ("#005d49", "#6ad9b8"),
        "button_primary_text_color": ("#ffffff", "#0c1a15"),
        "button_secondary_background_fill": (SURFACE, SURFACE_DARK),
        "button_secondary_background_fill_hover": ("#f2efe7", "#24282c"),
        "button_secondary_border_color": (LINE, LINE_DARK),
        "button_secondary_text_color": (INK, INK_DARK),
        "checkbox_background_color_selected": (ACCENT, ACCENT_DARK),
        "checkbox_border_color_selected": (ACCENT, ACCENT_DARK),
        "checkbox_label_background_fill": (SURFACE, SURFACE_DARK),
        "checkbox_label_background_fill_selected": ("#e3f1ec", "#17332b"),
        "checkbox_label_text_color_selected": (INK, INK_DARK),
    }
    light = {name: pair[0] for name, pair in pairs.items()}
    return light | {f"{name}_dark": pair[1] for name, pair in pairs.items()} | {"color_accent": ACCENT}


def _palette() -> str:
    modes = [f"--mode-{mode}: {colour};" for mode, colour in figures.MODE_COLOURS.items()]
    lanes = [f"--lane-{lane.replace(' ', '-')}: {colour};" for lane, colour in figures.LANE_COLOURS.items()]
    chunks = [f"--chunk-{i}: {colour};" for i, colour in enumerate(figures.CHUNK_COLOURS)]
    classes = [f".chunk-{i} {{ --chunk: var(--chunk-{i}); }}" for i in range(len(figures.CHUNK_COLOURS))]
    classes += [f".mode-{mode} {{ --mode: var(--mode-{mode}); }}" for mode in figures.MODE_COLOURS]
    classes += [
        f".lane-{lane.replace(' ', '-')} {{ background: var(--lane-{lane.replace(' ', '-')}); }}"
        for lane in figures.LANE_COLOURS
    ]
    return ":root {" + " ".join(modes + lanes + chunks) + "}\n" + "\n".join(classes)
