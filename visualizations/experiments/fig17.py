"""Figure 17 drawn: time to first token by the device that caches are read from.

Every emulated device says so; knows nothing of how a device is emulated.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import plotly.graph_objects as go

from cacheblend.evaluation.points import Point, Result
from cacheblend.trace import Mode
from visualizations import paper, theme

TTFT, DISTANCE = "TTFT", "distance to full"
MODES = (Mode.PREFIX, Mode.REUSE, Mode.BLEND)
ROW, AXIS = 56, 56  # pixels: a device, what stands under the bars before the legend
SYMBOLS = ("circle", "square", "diamond")  # of the paper's marks; filled, to be seen on bars
PAPER_PLACES = {"CPU RAM": "host memory", "Slower disk 4 Gbps": "disk 4 Gbps, emulated"}
PAPER_MODES = {"Prefix caching": Mode.PREFIX, "Full KV reuse": Mode.REUSE, "CacheBlend": Mode.BLEND}


def draw(result: Result) -> go.Figure:
    """Bars by device, fastest on top, full as a line; the paper's two devices as marks where we have the same."""
    points = [point for point in result.points if point.panel == TTFT and point.series in MODES]
    if not points:
        return theme.empty_figure("Time to first token by device", height=300, why="Nothing was measured.")
    names = {point.x: point.label for point in points}
    emulation = "“emulated”: reads from memory are held back. Prefix caching has the first chunk stored."
    figure = theme.figure(_title(points), height=400, x="TTFT ÷ full's", y="")
    theme.add_notes(figure, [f"{_quality(result.points)} {emulation} {_counts(points)}"])
    for mode in MODES:
        chosen = sorted((point for point in points if point.series == mode), key=lambda point: point.x)
        figure.add_bar(
            orientation="h",
            x=[point.y for point in chosen],
            y=[_wrapped(point.label) for point in chosen],
            name=theme.MODE_LABELS[mode],
            marker_color=theme.MODE_COLOURS[mode],
            error_x=_error_bars(chosen),
            customdata=[point.n for point in chosen],
            hovertemplate="%{y}: %{x:.2f} × full's TTFT<br>n = %{customdata}<extra>"
            + theme.MODE_LABELS[mode]
            + "</extra>",
        )
    figure.add_vline(x=1, line={"color": theme.MODE_COLOURS[Mode.FULL], "width": 2.5, "dash": "dash"})
    _add_paper(figure, set(names.values()))
    head = figure.layout.margin.t
    inner, foot = ROW * len(names), AXIS + 20 * 2 * len(MODES)  # a phone has one line of the legend for each entry
    figure.update_layout(
        height=head + inner + foot,
        margin={"b": foot},
        barmode="group",
        bargap=0.28,
        bargroupgap=0.04,
        legend={"y": -AXIS / inner, "traceorder": "normal"},
    )
    figure.add_annotation(x=1, y=1, yref="paper", yanchor="bottom", text="full", showarrow=False, font={"size": 11})
    figure.update_xaxes(rangemode="tozero", nticks=6, title={"standoff": 8})
    figure.update_yaxes(autorange="reversed", showgrid=False)
    return figure


def paper_ratios() -> dict[Mode, dict[str, float]]:
    """The paper's TTFT divided by its full's, by mode and by what we call the device (Yi-34B, 2WikiMQA)."""
    ratios: dict[Mode, dict[str, float]] = {mode: {} for mode in PAPER_MODES.values()}
    for storage in paper.curves("fig17"):
        full = storage["points"]["Full KV recompute"]["ttft"]
        for name, mode in PAPER_MODES.items():
            ratios[mode][PAPER_PLACES[storage["storage"]]] = storage["points"][name]["ttft"] / full
    return ratios


def _add_paper(figure: go.Figure, names: set[str]) -> None:
    for number, (mode, places) in enumerate(paper_ratios().items()):
        shown = {name: ratio for name, ratio in places.items() if name in names}
        figure.add_scatter(
            x=list(shown.values()),
            y=[_wrapped(name) for name in shown],
            mode="markers",
            name=f"paper: Yi-34B, {theme.MODE_LABELS[mode]}",
            marker={"color": "white", "symbol": SYMBOLS[number], "size": 10, "line": {"color": "#666666", "width": 2}},
            hovertemplate="paper: %{x:.2f} × full's TTFT<extra></extra>",
        )


def _error_bars(points: Sequence[Point]) -> dict[str, object] | None:
    if all(point.low is None for point in points):
        return None
    return {
        "type": "data",
        "symmetric": False,
        "array": [None if point.high is None else point.high - point.y for point in points],
        "arrayminus": [None if point.low is None else point.y - point.low for point in points],
        "color": theme.QUESTION,
        "thickness": 1.2,
        "width": 4,
    }


def _quality(points: Sequence[Point]) -> str:
    """Whether answers change with the device, as was measured."""
    parts = []
    for mode in MODES:
        values = [point.y for point in points if (point.panel, point.series) == (DISTANCE, mode)]
        if values and max(values) == min(values):
            parts.append(f"{theme.MODE_LABELS[mode]} {values[0]:.3g}, the same on every device")
        elif values:
            parts.append(f"{theme.MODE_LABELS[mode]} {min(values):.3g} to {max(values):.3g}")
    return f"Mean KL to full, nats: {'; '.join(parts)}." if parts else ""


def _counts(points: Sequence[Point]) -> str:
    n = max(point.n for point in points)
    return "n = 1, no intervals." if n == 1 else f"n = {n} questions; bars: 95\N{NO-BREAK SPACE}% bootstrap intervals."


def _title(points: Sequence[Point]) -> str:
    blend = sorted((point for point in points if point.series == Mode.BLEND), key=lambda point: point.x)
    if not blend:
        return "Time to first token by device"
    return (
        f"Blend takes {theme.percent(blend[0].y)} of full's TTFT from {blend[0].label}, "
        f"{theme.percent(blend[-1].y)} from {blend[-1].label}"
    )


def _wrapped(name: str) -> str:
    """A device's name in two lines, so that a phone has room for the bars."""
    return escape(name).replace(", emulated", "<br>emulated")
