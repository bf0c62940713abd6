"""What the loading controller expects: time to first token against the ratio, and device by device.

The paper's figure 10 for one's own model and machine. Everything drawn here is predicted and says so; knows nothing of
how it was predicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import plotly.graph_objects as go

from cacheblend.controller import DeviceChoice, DeviceReason, RatioChoice, RatioReason, RatioRow
from cacheblend.trace import Mode
from visualizations import theme

HEIGHT = 420
DEVICE_HEIGHT = 44
PIPELINED, UNPIPELINED = "loading while computing", "one after the other"
PIPELINED_COLOUR, UNPIPELINED_COLOUR = theme.MODE_COLOURS[Mode.BLEND], theme.QUESTION


def ratio_figure(rows: Sequence[RatioRow], choice: RatioChoice, device: str) -> go.Figure:
    """TTFT against the ratio, pipelined and not, with the quality floor r*, the knee r0 and the ratio chosen.

    Computing everything, which reads nothing, is a line of its own. device: the name of what caches are read from.
    """
    if not rows:
        return theme.empty_figure("Predicted time to first token", height=HEIGHT, why="Nothing was predicted yet.")
    figure = theme.figure(
        _ratio_title(choice, escape(device)), height=HEIGHT, x="share recomputed, %", y="predicted TTFT, ms"
    )
    for name, colour, dash, values in (
        (UNPIPELINED, UNPIPELINED_COLOUR, "dash", [row.unpipelined_ms for row in rows]),
        (PIPELINED, PIPELINED_COLOUR, "solid", [row.pipelined_ms for row in rows]),
    ):
        figure.add_scatter(
            x=[100 * row.ratio for row in rows],
            y=values,
            name=name,
            mode="lines",
            line={"color": colour, "width": 2.5, "dash": dash},
            hovertemplate="%{x:.0f} %: %{y:.0f} ms predicted<extra>" + name + "</extra>",
        )
    figure.add_scatter(
        x=[0, 100],
        y=[choice.everything_ms] * 2,
        name="computing everything",
        mode="lines",
        line={"color": theme.MODE_COLOURS[Mode.FULL], "width": 1.5, "dash": "dashdot"},
        hovertemplate="%{y:.0f} ms predicted<extra>computing everything</extra>",
    )
    figure.add_scatter(
        x=[100 * choice.ratio],
        y=[choice.prediction.ttft_ms],
        name=f"chosen: {theme.percent(choice.ratio)}",
        mode="markers",
        marker={"color": theme.RECOMPUTED, "size": 13, "symbol": "diamond", "line": {"color": "white", "width": 1.5}},
        hovertemplate="chosen: %{x:.1f} %, %{y:.0f} ms predicted<extra></extra>",
    )
    _mark(figure, choice.floor, f"r* {theme.percent(choice.floor)}", above=True)
    if choice.hidden_ratio > 0:
        _mark(figure, choice.hidden_ratio, f"r0 {theme.percent(choice.hidden_ratio)}", above=False)
    figure.update_layout(legend={"y": -0.32})
    figure.update_xaxes(range=[0, 102], dtick=20)
    figure.update_yaxes(rangemode="tozero")
    return figure


def devices_figure(choice: DeviceChoice) -> go.Figure:
    """TTFT of every device at one ratio, pipelined and not, cheapest on top, the one chosen marked."""
    height = 150 + DEVICE_HEIGHT * len(choice.rows)
    figure = theme.figure(_device_title(choice), height=height, x="predicted TTFT, ms", y="")
    names = [_device_name(row.device.name, is_chosen=row is choice.chosen) for row in choice.rows]
    for name, colour, values in (
        (UNPIPELINED, UNPIPELINED_COLOUR, [row.unpipelined.ttft_ms for row in choice.rows]),
        (PIPELINED, PIPELINED_COLOUR, [row.pipelined.ttft_ms for row in choice.rows]),
    ):
        figure.add_bar(
            orientation="h",
            x=values,
            y=names,
            name=name,
            marker_color=colour,
            customdata=[[row.cost, "hidden" if row.is_hidden else "not hidden"] for row in choice.rows],
            hovertemplate=f"%{{y}}, {name}: %{{x:.0f}} ms predicted<br>cost %{{customdata[0]:.3g}}, loading "
            "%{customdata[1]}<extra></extra>",
        )
    longest = max(row.unpipelined.ttft_ms for row in choice.rows)
    for row, name in zip(choice.rows, names, strict=True):
        figure.add_annotation(
            x=row.unpipelined.ttft_ms,
            y=name,
            text=theme.duration(row.pipelined.ttft_ms) + (" ✓" if row.is_hidden else ""),
            showarrow=False,
            xanchor="left",
            xshift=6,
        )
    figure.update_layout(barmode="group", bargap=0.3, bargroupgap=0.05, legend={"traceorder": "reversed"})
    figure.update_xaxes(range=[0, longest * 1.3], nticks=5)
    figure.update_yaxes(autorange="reversed", showgrid=False)
    return figure


def _mark(figure: go.Figure, ratio: float, text: str, *, above: bool) -> None:
    """A vertical line with its name at the top or, so that two never meet, at the bottom."""
    figure.add_vline(x=100 * ratio, line={"color": "#777777", "width": 1.5, "dash": "dot"})
    figure.add_annotation(
        x=100 * ratio,
        y=1 if above else 0,
        yref="paper",
        yanchor="top" if above else "bottom",
        text=text,
        showarrow=False,
        xanchor="left" if ratio < 0.75 else "right",
        xshift=4 if ratio < 0.75 else -4,
    )


def _ratio_title(choice: RatioChoice, device: str) -> str:
    hidden, floor = theme.percent(choice.hidden_ratio), theme.percent(choice.floor)
    if choice.why is RatioReason.ALL:
        return f"Computing everything takes no longer than loading from {device} (predicted)"
    if choice.why is RatioReason.FLOOR:
        return f"Loading from {device} hides {hidden}, quality asks for {floor} (predicted)"
    return f"Loading from {device} hides recomputing {hidden} (predicted)"


def _device_title(choice: DeviceChoice) -> str:
    name, ratio = escape(choice.chosen.device.name), theme.percent(choice.ratio)
    if choice.why is DeviceReason.CHEAPEST:
        return f"{name} is the cheapest whose loading {ratio} recomputing hides (predicted)"
    return f"Recomputing {ratio} hides no device's loading; {name} is the fastest (predicted)"


def _device_name(name: str, *, is_chosen: bool) -> str:
    return f"<b>▸ {escape(name)}</b>" if is_chosen else escape(name)
