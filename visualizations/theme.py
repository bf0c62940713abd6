"""What colours and text look like in every figure and widget; a colour means one thing wherever it appears.

Hues are from the Okabe–Ito and Paul Tol sets, chosen to stay apart under deuteranopia and protanopia.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap

import plotly.graph_objects as go

from cacheblend.policies import in_short, is_papers
from cacheblend.trace import Lane, Mode, SegmentKind, Trace

RECOMPUTED = "#d55e00"
REUSED = "#56b4e9"
LOADING = "#cc79a7"
PLACING = "#8f74d8"
QUESTION = "#8a8f98"  # suffix: the question and what follows it
PREFIX = "#b4b8bf"

MODE_COLOURS = {
    Mode.FULL: "#0072b2",
    Mode.PREFIX: "#3d8ea8",
    Mode.UNPLACED: "#a8720c",
    Mode.REUSE: "#e69f00",
    Mode.BLEND: "#009e73",
    Mode.PRIME: "#aa3377",
    Mode.MAP_REDUCE: "#7c58e8",
    Mode.MAP_RERANK: "#999933",
}
MODE_LABELS = {
    Mode.FULL: "full recompute",
    Mode.PREFIX: "prefix caching",
    Mode.UNPLACED: "reuse, positions uncorrected",
    Mode.REUSE: "full reuse",
    Mode.BLEND: "blend",
    Mode.PRIME: "PrimeBlend",
    Mode.MAP_REDUCE: "MapReduce",
    Mode.MAP_RERANK: "MapRerank",
}
LANE_COLOURS = {
    Lane.PRECOMPUTE: "#999933",
    Lane.LOOKUP: "#1f7f74",
    Lane.LOAD: LOADING,
    Lane.DECOMPRESS: "#882255",
    Lane.SELECT: "#ddaa33",
    Lane.PLACE: PLACING,
    Lane.COMPUTE: RECOMPUTED,
    Lane.FIRST_TOKEN: "#4477aa",
    Lane.DECODE: QUESTION,
}
CHUNK_COLOURS = (
    "#4477aa",
    "#ddaa33",
    "#117733",
    "#ee8866",
    "#7b5fc0",
    "#44bb99",
    "#aa4466",
    "#99bb44",
    "#006699",
    "#ffaabb",
    "#997700",
    "#77aadd",
)

SEQUENTIAL = (
    "#00224e",
    "#123570",
    "#3b496c",
    "#575d6d",
    "#707173",
    "#8a8678",
    "#a59c74",
    "#c3b369",
    "#e1cc55",
    "#fee838",
)  # cividis
DIVERGING = ("#2d004b", "#542788", "#8073ac", "#b2abd2", "#f7f7f7", "#fdb863", "#e08214", "#b35806", "#7f3b08")  # PuOr
LAYERS = ("#4a86e8", "#8f74d8", "#c562a8", "#e0694f", "#d98a1f")  # first to last; legible on light and dark
PLOTLY_SEQUENTIAL = [[i / (len(SEQUENTIAL) - 1), colour] for i, colour in enumerate(SEQUENTIAL)]

TITLE_CHARS, NOTE_CHARS = 42, 60  # what a phone's width holds: Plotly does not wrap titles itself
TITLE_LINE, NOTE_LINE = 19, 15  # pixels
GRID = "rgba(128,128,128,0.25)"
FONT = "system-ui, -apple-system, 'Segoe UI', sans-serif"
CSS_FILE = Path(__file__).with_name("theme.css")


def css() -> str:
    """The rules that let figures follow the page's light or dark text colour, for the page's stylesheet."""
    return CSS_FILE.read_text(encoding="utf-8")


def label(trace: Trace) -> str:
    """What a run is called: its mode, and its policy and recipe where they are not those that the name stands for."""
    name, told = MODE_LABELS[trace.mode], in_short(trace.policy)
    if trace.mode is Mode.BLEND and not is_papers(trace.policy):
        return f"{name} by {told}"
    _, comma, recipe = told.partition(", ")
    return f"{name}, {recipe}" if trace.mode is Mode.REUSE and comma else name


def sentence(text: str) -> str:
    """Begin with a capital and leave the rest: names have capitals of their own."""
    return text[:1].upper() + text[1:]


def segment_colour(kind: SegmentKind, chunk: int) -> str:
    """Colour of a stretch of the prompt; `chunk` counts chunks from 0, and colours return after twelve."""
    if kind is SegmentKind.CHUNK:
        return CHUNK_COLOURS[chunk % len(CHUNK_COLOURS)]
    return PREFIX if kind is SegmentKind.PREFIX else QUESTION


def figure(title: str, *, height: int, x: str, y: str) -> go.Figure:
    """An empty figure in the house's look: transparent, of explicit height, with a title and units on its axes."""
    made = go.Figure()
    axis = {"gridcolor": GRID, "zerolinecolor": GRID, "linecolor": GRID, "automargin": True}
    lines = wrap(title, TITLE_CHARS)
    margin = {"l": 64, "r": 24, "t": 32 + TITLE_LINE * len(lines), "b": 56}
    made.update_layout(
        meta={"finding": title, "notes": []},
        title={
            "text": "<br>".join(lines),
            "x": 0.012,
            "y": 1,
            "yanchor": "top",
            "pad": {"t": 18},
            "font": {"size": 14},
        },
        height=height,
        template="none",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": FONT, "size": 12, "color": "#777777"},
        margin=margin,
        hoverlabel={"font": {"family": FONT}},
        legend={"orientation": "h", "x": 0, "y": -66 / (height - margin["t"] - 84), "yanchor": "top"},
        uirevision="keep",
        xaxis={**axis, "title": {"text": x}},
        yaxis={**axis, "title": {"text": y}},
    )
    return made


def add_notes(figure: go.Figure, notes: Sequence[str]) -> None:
    """Small print below a figure's title, each note on lines of its own. The figure grows no higher by it."""
    lines = [line for note in notes for line in wrap(note, NOTE_CHARS)]
    small = "".join(f'<br><span style="font-size:11px">{line}</span>' for line in lines)
    figure.update_layout(
        title={"text": figure.layout.title.text + small},
        margin={"t": figure.layout.margin.t + NOTE_LINE * len(lines)},
        meta={**figure.layout.meta, "notes": list(notes)},
    )


def untitled(figure: go.Figure) -> tuple[str, list[str], go.Figure]:
    """What a figure found, its notes, and the figure without them, for a page that wraps text itself."""
    lines = figure.layout.title.text.split("<br>")
    notes = sum(line.startswith("<span") for line in lines)
    taken = TITLE_LINE * (len(lines) - notes) + NOTE_LINE * notes
    bare = go.Figure(figure)
    bare.update_layout(title=None, height=bare.layout.height - taken, margin={"t": bare.layout.margin.t - taken})
    return figure.layout.meta["finding"], figure.layout.meta["notes"], bare


def percent(share: float) -> str:
    """A share as a whole number of per cent."""
    return f"{100 * share:.0f}\N{NO-BREAK SPACE}%"


def duration(ms: float) -> str:
    """Milliseconds to three digits, in seconds from one second on."""
    if ms >= 1000:
        return f"{ms / 1000:.2f} s"
    return f"{ms:.0f} ms" if ms >= 100 else f"{ms:.3g} ms"


def empty_figure(title: str, *, height: int, why: str) -> go.Figure:
    """A figure that says it has nothing to show, and why."""
    made = figure(title, height=height, x="", y="")
    made.update_xaxes(visible=False)
    made.update_yaxes(visible=False)
    made.add_annotation(text=why, showarrow=False, x=0.5, y=0.5, xref="paper", yref="paper", font={"size": 13})
    return made
