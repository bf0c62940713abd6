"""Where the time to first token goes, mode by mode."""

from __future__ import annotations

from textwrap import wrap

import plotly.graph_objects as go

from cacheblend.trace import Comparison, Lane, Mode, Trace
from visualizations import theme

HEIGHT, BAR_HEIGHT = 340, 54  # of three modes, and of each one more
NAME_CHARS = 20  # what a phone can spare beside the bars


def ttft_figure(comparison: Comparison) -> go.Figure:
    """Stacked parts of TTFT per mode in milliseconds, the speed-up over full written beside each bar."""
    traces = sorted(comparison.traces, key=lambda t: list(Mode).index(t.mode))
    if not traces:
        return theme.empty_figure("Time to first token", height=HEIGHT, why="No mode has run yet.")
    height = HEIGHT + BAR_HEIGHT * max(0, len(traces) - 3)
    figure = theme.figure(_title(comparison), height=height, x="milliseconds", y="")
    names = ["<br>".join(wrap(theme.label(t), NAME_CHARS)) for t in traces]
    for lane in (lane for lane in Lane if any(lane in t.ttft_parts for t in traces)):
        figure.add_bar(
            orientation="h",
            name=lane.value,
            y=names,
            x=[t.ttft_parts.get(lane, 0.0) for t in traces],
            marker_color=theme.LANE_COLOURS[lane],
            hovertemplate="%{y}, " + lane.value + ": %{x:.2f} ms<extra></extra>",
        )
    longest = max(sum(t.ttft_parts.values()) for t in traces)
    for trace, name in zip(traces, names, strict=True):
        total = sum(trace.ttft_parts.values())
        figure.add_annotation(
            x=total,
            y=name,
            text=_label(comparison, trace, "<br>" if total > longest / 2 else " · "),
            align="left",
            showarrow=False,
            xanchor="left",
            xshift=6,
        )
    figure.update_layout(
        barmode="stack", bargap=0.35, legend={"traceorder": "normal", "entrywidth": 84, "y": -0.5 * HEIGHT / height}
    )
    figure.update_xaxes(range=[0, longest * 1.4])
    figure.update_yaxes(autorange="reversed", showgrid=False)
    return figure


def _title(comparison: Comparison) -> str:
    speedup, blend = comparison.speedup(Mode.BLEND), comparison.trace(Mode.BLEND)
    if speedup is None or blend is None:
        return "Time to first token, and where it goes"
    verb = f"{speedup:.1f}\N{NO-BREAK SPACE}× sooner" if speedup >= 1 else f"{1 / speedup:.1f}\N{NO-BREAK SPACE}× later"
    return f"{theme.sentence(theme.label(blend))} answers {verb} than full recompute"


def _label(comparison: Comparison, trace: Trace, between: str) -> str:
    """between: a new line beside a long bar, which leaves little room on a phone."""
    text = theme.duration(trace.ttft_ms)
    speedup = comparison.speedup(trace.mode)
    if trace.mode is Mode.FULL or speedup is None:
        return text
    return f"{text}{between}{speedup:.{1 if speedup >= 1 else 2}f} ×"
