"""The runs' spans as lanes, to scale."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import groupby

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from cacheblend.policies import in_short
from cacheblend.trace import ON_CHUNKS, Lane, Mode, Span, Trace
from visualizations import theme

LANE_HEIGHT, PREDICTED_LANE_HEIGHT = 24, 36
GROUP_GAP, MORE_LINE = 62, 17
NAME_CHARS = 13  # of a mode, in front of its time on one line of a phone
# Within its lane of height 1, what was measured stands above what was predicted; offset from the middle, and height.
MEASURED, PREDICTED = (-0.42, 0.5), (0.14, 0.26)
HOLLOW = "rgba(0,0,0,0)"


def timeline_figure(traces: Sequence[Trace], *, until_first_token: bool = False, own_axes: bool = False) -> go.Figure:
    """One group of lanes per mode. All groups share one time axis, unless `own_axes` zooms each to its own run.

    until_first_token leaves out what is decoded after it. Hovering a span says its name, layer, milliseconds, and
    measured or emulated. What the controller expected of a run is outlined in dashes under what was measured, in the
    same lane.
    """
    shown = sorted((t for t in traces if t.spans), key=lambda t: list(Mode).index(t.mode))
    if not shown:
        return theme.empty_figure("Timeline", height=260, why="No run has been timed yet.")
    spans = {t.mode: [s for s in t.spans if not (until_first_token and _is_after(s, t))] for t in shown}
    predicted = {t.mode: t.predicted for t in shown}
    used = [{s.lane for s in (*spans[t.mode], *predicted[t.mode])} for t in shown]
    lanes = [[lane for lane in Lane if lane in there] for there in used]
    titles = [_subtitle(t) for t in shown]
    gap = (GROUP_GAP if own_axes else GROUP_GAP - 20) + MORE_LINE * max(title.count("<br>") for title in titles)
    lane_heights = [PREDICTED_LANE_HEIGHT if predicted[t.mode] else LANE_HEIGHT for t in shown]
    height = 110 + sum(h * len(group) + gap for h, group in zip(lane_heights, lanes, strict=True))
    base = theme.figure(_title(shown), height=height, x="", y="")
    figure = make_subplots(
        rows=len(shown),
        cols=1,
        shared_xaxes=not own_axes,
        row_heights=[h * (len(group) + 0.5) for h, group in zip(lane_heights, lanes, strict=True)],
        vertical_spacing=min(gap / height, 0.8 / len(shown)),
        subplot_titles=titles,
    ).update_layout(base.layout)
    for row, (trace, group) in enumerate(zip(shown, lanes, strict=True), start=1):
        for lane in group:
            for is_emulated, part in groupby(
                sorted((s for s in spans[trace.mode] if s.lane is lane), key=lambda s: s.emulated),
                key=lambda s: s.emulated,
            ):
                bars = _bars(lane, list(part), "emulated" if is_emulated else "measured")
                figure.add_trace(bars.update(_place(predicted[trace.mode], MEASURED)), row=row, col=1)
            expected = [s for s in predicted[trace.mode] if s.lane is lane]
            if expected:
                bars = _bars(lane, expected, "predicted").update(_place(expected, PREDICTED))
                figure.add_trace(bars.update(marker_color=HOLLOW, marker_pattern_shape=""), row=row, col=1)
    _style(figure, len(shown), own_axes=own_axes)
    for row, (trace, group) in enumerate(zip(shown, lanes, strict=True), start=1):
        figure.update_yaxes(categoryorder="array", categoryarray=[lane.value for lane in group], row=row, col=1)
        figure.layout.shapes += tuple(_outline(span, group, row) for span in predicted[trace.mode])
    return figure


def _is_after(span: Span, trace: Trace) -> bool:
    """Decoding that the first token does not wait for; MapReduce and MapRerank decode replies in front of it."""
    return span.lane is Lane.DECODE and span.start_ms >= trace.ttft_ms


def _place(predicted: Sequence[Span], strip: tuple[float, float]) -> dict[str, float]:
    """Where bars stand in a lane that is shared with a prediction; without one they fill it."""
    return {"offset": strip[0], "width": strip[1]} if predicted else {}


def _outline(span: Span, lanes: Sequence[Lane], row: int) -> go.layout.Shape:
    axis, bottom = "" if row == 1 else str(row), lanes.index(span.lane) + PREDICTED[0]
    return go.layout.Shape(
        type="rect",
        xref=f"x{axis}",
        yref=f"y{axis}",
        x0=span.start_ms,
        x1=span.end_ms,
        y0=bottom,
        y1=bottom + PREDICTED[1],
        line={"color": theme.LANE_COLOURS[span.lane], "width": 1.2, "dash": "2px,2px"},
    )


def _bars(lane: Lane, spans: list[Span], source: str) -> go.Bar:
    """source: measured, emulated or predicted."""
    hover = f"%{{customdata}}<br>%{{x:.3f}} ms from %{{base:.3f}} ms<br>{lane.value}, {source}<extra></extra>"
    return go.Bar(
        orientation="h",
        base=np.array([s.start_ms for s in spans]),
        x=np.array([s.duration_ms for s in spans]),
        y=[lane.value] * len(spans),
        customdata=[_hover_name(s) for s in spans],
        marker={
            "color": theme.LANE_COLOURS[lane],
            "line": {"width": 0},
            "pattern": {"shape": "/" if source == "emulated" else ""},
        },
        hovertemplate=hover,
        showlegend=False,
    )


def _hover_name(span: Span) -> str:
    name = escape(span.name)  # Plotly would read markup in it
    return name if span.layer is None else f"{name} (layer {span.layer})"


def _style(figure: go.Figure, rows: int, *, own_axes: bool) -> None:
    axis = {"gridcolor": theme.GRID, "zerolinecolor": theme.GRID, "rangemode": "tozero", "tickangle": 0, "nticks": 6}
    scale = "milliseconds, each run on its own axis" if own_axes else "milliseconds since the start"
    figure.update_layout(barmode="overlay", bargap=0.25)
    figure.update_xaxes(**axis)
    figure.update_xaxes(title_text=scale, row=rows, col=1)
    figure.update_yaxes(autorange="reversed", showgrid=False, automargin=True, title_text="")
    figure.update_annotations(x=0, xanchor="left", xshift=-60, font_size=13, align="left")


def _title(traces: Sequence[Trace]) -> str:
    fastest, slowest = (pick(traces, key=lambda t: t.ttft_ms) for pick in (min, max))
    if fastest.mode is not Mode.FULL:
        slowest = next((t for t in traces if t.mode is Mode.FULL), slowest)
    kind = "hatched spans emulated" if any(s.emulated for t in traces for s in t.spans) else "measured"
    if any(t.predicted for t in traces):
        kind += ", dashed outlines predicted"
    if fastest is slowest:
        return f"First token after {theme.duration(fastest.ttft_ms)} ({kind})"
    first, last = theme.sentence(theme.MODE_LABELS[fastest.mode]), theme.MODE_LABELS[slowest.mode]
    ratio = f"{slowest.ttft_ms / fastest.ttft_ms:.1f}\N{NO-BREAK SPACE}×"
    return f"{first} is {ratio} sooner than {last} ({kind})"


def _subtitle(trace: Trace) -> str:
    warmth = "warm" if trace.is_warm else "cold"
    state = f" ({warmth})" if trace.mode in (*ON_CHUNKS, Mode.PREFIX) else ""
    expected, came = trace.predicted_ttft_ms, theme.duration(trace.ttft_ms)
    # Short enough for a phone, where Plotly cuts off what does not fit.
    said = f"first token after {came}" if expected is None else f"{came}, predicted {theme.duration(expected)}"
    name = theme.MODE_LABELS[trace.mode]
    between = " · " if len(name) <= NAME_CHARS or not state else "<br>"
    return f"<b>{name}</b>{between}{said}{state}{_policy(trace)}"


def _policy(trace: Trace) -> str:
    """A line of its own for a policy or a recipe that the mode's name does not stand for, and for PrimeBlend's."""
    told = trace.mode is Mode.PRIME or theme.label(trace) != theme.MODE_LABELS[trace.mode]
    return f"<br>{escape(in_short(trace.policy))}" if told else ""
