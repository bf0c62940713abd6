"""Panels of lines or dots with intervals, one below the other, and the paper's curves in grey behind them.

Knows points, looks and axes; nothing of what was measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import chain
from textwrap import wrap

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from cacheblend.evaluation.points import Point
from cacheblend.trace import Mode
from visualizations import paper, theme

PANEL, GAP, BOTTOM = 250, 96, 56  # pixels: a panel, what its axis title and the next one's name need, under the last
LEGEND_LINE, LEGEND_CHARS = 29, 46  # what one line of the legend is high, and holds on a phone
WIDE = 0.3  # of the legend's lines on a phone, those on a wide screen
PAPER_SYMBOLS = ("circle-open", "square-open", "diamond-open", "triangle-up-open", "x-thin-open", "cross-thin-open")


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How a series is drawn. draw: as Plotly's scatter names it."""

    name: str
    colour: str
    symbol: str = "circle"
    dash: str = "solid"
    draw: str = "lines+markers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One of the paper's curves, transformed to the panel's axes. name: “Yi-34B, Musique”; the legend adds “paper:”."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    symbol: str = PAPER_SYMBOLS[0]
    draw: str = "lines+markers"
    texts: tuple[str, ...] = ()  # what hovering says of each of its points, in place of the curve's name


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One part of the figure. name: as in Point.panel; title: what stands above it, the name by default."""

    name: str
    x: str
    y: str
    title: str = ""
    curves: tuple[Curve, ...] = ()
    log_x: bool = False
    x_ticks: tuple[float, ...] = ()


def mode_look(mode: Mode, *, symbol: str = "circle", draw: str = "lines+markers") -> Look:
    """A mode, in the colour that it has everywhere."""
    return Look(name=theme.MODE_LABELS[mode], colour=theme.MODE_COLOURS[mode], symbol=symbol, draw=draw)


def paper_curves(named: Iterable[tuple[str, Sequence[Sequence[float]]]]) -> tuple[Curve, ...]:
    """Curves of (x, y) pairs by name, with a marker of its own each."""
    return tuple(
        Curve(
            name=name,
            x=tuple(x for x, _ in pairs),
            y=tuple(y for _, y in pairs),
            symbol=PAPER_SYMBOLS[i % len(PAPER_SYMBOLS)],
        )
        for i, (name, pairs) in enumerate(named)
    )


def panels_figure(
    title: str,
    points: Sequence[Point],
    panels: Sequence[Panel],
    looks: Mapping[str, Look],
    *,
    note: str = "",
    counted: str = "questions",
    height: int = PANEL,
) -> go.Figure:
    """Draw every panel that has points, series as in `looks`, points as they come; else an empty figure.

    note: a sentence below the title; counted: what an interval is over; height: of one panel, pixels. A point's label
    is customdata[3].
    """
    shown = [panel for panel in panels if any(point.panel == panel.name for point in points)]
    if not shown:
        return theme.empty_figure(title, height=PANEL + GAP, why="Nothing was measured.")
    names = list(dict.fromkeys(chain((look.name for look in looks.values()), _paper_names(shown))))
    legend = LEGEND_LINE * len(wrap("  ".join("m" * (len(name) + 6) for name in names), LEGEND_CHARS))
    base = theme.figure(title, height=PANEL + GAP, x="", y="")
    theme.add_notes(base, [text for text in (note, _counts(points, counted)) if text])
    head = base.layout.margin.t + 22
    inner = height * len(shown) + GAP * (len(shown) - 1)
    figure = make_subplots(rows=len(shown), cols=1, vertical_spacing=GAP / inner if len(shown) > 1 else 0)
    figure.update_layout(base.layout)
    figure.update_layout(
        height=head + inner + BOTTOM + legend,
        margin={"t": head, "b": round(BOTTOM + WIDE * legend)},  # more lines take from the panels' height
        legend={"y": -BOTTOM / inner, "yref": "paper"},
    )
    seen: set[str] = set()
    for row, panel in enumerate(shown, 1):
        for curve in panel.curves:
            _add_curve(figure, curve, row, seen)
        for series, look in looks.items():
            chosen = [point for point in points if point.panel == panel.name and point.series == series]
            if chosen:
                _add_series(figure, chosen, look, row, seen)
        _set_axes(figure, panel, row)
    return figure


def _paper_names(panels: Sequence[Panel]) -> list[str]:
    return [f"paper: {curve.name}" for panel in panels for curve in panel.curves]


def _add_curve(figure: go.Figure, curve: Curve, row: int, seen: set[str]) -> None:
    name = f"paper: {curve.name}"
    figure.add_scatter(
        x=curve.x,
        y=curve.y,
        name=name,
        legendgroup=name,
        legendrank=2000,  # below what was measured
        showlegend=name not in seen,
        mode=curve.draw,
        line={"color": paper.COLOUR, "dash": paper.DASH, "width": 1.5},
        marker={"color": paper.COLOUR, "symbol": curve.symbol, "size": 7, "line": {"width": 1.5}},
        customdata=curve.texts or (curve.name,) * len(curve.x),
        hovertemplate="paper: %{customdata}<br>%{x:.3~g}: %{y:.3~g}<extra></extra>",
        row=row,
        col=1,
    )
    seen.add(name)


def _add_series(figure: go.Figure, points: Sequence[Point], look: Look, row: int, seen: set[str]) -> None:
    figure.add_scatter(
        x=[point.x for point in points],
        y=[point.y for point in points],
        name=look.name,
        legendgroup=look.name,
        showlegend=look.name not in seen,
        mode=look.draw,
        line={"color": look.colour, "dash": look.dash, "width": 2.5},
        marker={"color": look.colour, "symbol": look.symbol, "size": 9},
        cliponaxis=False,
        error_y=_error_bars(points, look.colour),
        customdata=[[point.n, point.low, point.high, point.label, _hover(point)] for point in points],
        hovertemplate="%{x:.3~g}: %{y:.3~g}%{customdata[4]}<extra>" + look.name + "</extra>",
        row=row,
        col=1,
    )
    seen.add(look.name)


def _error_bars(points: Sequence[Point], colour: str) -> dict[str, object] | None:
    if all(point.low is None for point in points):
        return None
    return {
        "type": "data",
        "symmetric": False,
        "array": [None if point.high is None else point.high - point.y for point in points],
        "arrayminus": [None if point.low is None else point.y - point.low for point in points],
        "color": colour,
        "thickness": 1.2,
        "width": 4,
    }


def _hover(point: Point) -> str:
    interval = "" if point.low is None else f"<br>95\N{NO-BREAK SPACE}%: {point.low:.3g} to {point.high:.3g}"
    return f"{interval}<br>n = {point.n}" + (f"<br>{escape(point.label)}" if point.label else "")


def _counts(points: Sequence[Point], counted: str) -> str:
    """What the intervals are over; that there are none, where one value is all there is."""
    fewest, most = min(point.n for point in points), max(point.n for point in points)
    n = f"n = {most}" if fewest == most else f"n = {fewest} to {most}"
    if all(point.low is None for point in points):
        return f"{n}, no intervals"
    return f"{n} {counted}; bars: 95\N{NO-BREAK SPACE}% bootstrap intervals"


def _set_axes(figure: go.Figure, panel: Panel, row: int) -> None:
    look = {"gridcolor": theme.GRID, "zerolinecolor": theme.GRID, "linecolor": theme.GRID, "automargin": True}
    figure.update_xaxes(**look, title={"text": panel.x, "standoff": 8}, row=row, col=1)
    figure.update_yaxes(**look, title={"text": panel.y, "standoff": 6}, rangemode="tozero", row=row, col=1)
    if panel.log_x:
        figure.update_xaxes(type="log", row=row, col=1)
    if panel.x_ticks:
        texts = [f"{tick:g}" for tick in panel.x_ticks]
        figure.update_xaxes(tickvals=panel.x_ticks, ticktext=texts, row=row, col=1)
    axis = figure.layout[f"yaxis{row if row > 1 else ''}"]
    figure.add_annotation(
        text=f"<b>{panel.title or panel.name}</b>",
        x=0,
        xref="paper",
        xanchor="left",
        y=axis.domain[1],
        yref="paper",
        yanchor="bottom",
        yshift=4,
        showarrow=False,
        font={"size": 12},
    )


def times(x: float) -> str:
    """A TTFT divided by full's, in words."""
    return f"{x:.2g}\N{NO-BREAK SPACE}× full's TTFT"


def share(y: float) -> str:
    """A share that may be below 0, in per cent."""
    return theme.percent(y).replace("-", "\N{MINUS SIGN}")
