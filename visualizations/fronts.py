"""Cake's two fronts: which tokens were there when, computed from the front and loaded from the back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import plotly.graph_objects as go

from cacheblend.meeting import stretch_of
from cacheblend.trace import Lane, Span
from visualizations import theme

HEIGHT = 420
TITLE = "Two fronts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Tokens start…stop-1 were worked on from begin_ms to end_ms."""

    start: int
    stop: int
    begin_ms: float
    end_ms: float


def fronts_figure(
    spans: Sequence[Span], *, context_tokens: int, met_at: int, predicted: tuple[float, float] | None = None
) -> go.Figure:
    """Token position over time: computed up from 0, loaded down from the context's end, until they meet at `met_at`.

    spans: a run's, whose names tell their tokens; predicted: (milliseconds, tokens) where the fronts were expected.
    """
    computed, loaded = _computed(spans, met_at), _loaded(spans, met_at)
    if not (computed or loaded):
        return theme.empty_figure(TITLE, height=HEIGHT, why="No run has loaded and computed at once yet.")
    met_ms = max(step.end_ms for step in (*computed, *loaded))
    figure = theme.figure(
        _title(spans, met_at, context_tokens, met_ms),
        height=HEIGHT,
        x="milliseconds from the start of the run",
        y="position in the context, tokens",
    )
    up = [(0.0, 0), *((t, n) for s in computed for t, n in ((s.begin_ms, s.start), (s.end_ms, s.stop)))]
    down = [(0.0, context_tokens), *((t, n) for s in loaded for t, n in ((s.begin_ms, s.stop), (s.end_ms, s.start)))]
    figure.add_trace(_front("computed", [*up, (met_ms, met_at)], theme.RECOMPUTED, fill="tozeroy"))
    top = [(0.0, context_tokens), (met_ms, context_tokens)]
    figure.add_trace(_front("", top, theme.LOADING, fill=None))
    figure.add_trace(_front("loaded", [*down, (met_ms, met_at)], theme.LOADING, fill="tonexty"))
    ttft_ms = max((s.end_ms for s in spans if s.lane is Lane.FIRST_TOKEN), default=met_ms)
    _add_rest(figure, met_ms, ttft_ms, context_tokens)
    _mark(figure, (met_ms, met_at), predicted)
    _label(figure, (met_ms, met_at), is_late=2 * met_ms > ttft_ms, is_high=2 * met_at > context_tokens)
    figure.update_layout(legend_traceorder="normal")
    figure.update_xaxes(rangemode="tozero", nticks=6, tickangle=0)
    figure.update_yaxes(range=[0, 1.06 * context_tokens], nticks=6, tickformat=",d")
    return figure


def _computed(spans: Sequence[Span], met_at: int) -> list[Step]:
    """Chunks that were finished, each over all its layers; rows that loading overtook do not count."""
    told = [(tokens, s) for s in spans if s.lane is Lane.COMPUTE and (tokens := stretch_of(s.name))]
    steps = []
    for start, layers in groupby(sorted(told, key=lambda t: (t[0][0], t[1].start_ms)), key=lambda t: t[0][0]):
        parts = list(layers)
        stop = parts[-1][0][1]
        steps.append(Step(start=start, stop=stop, begin_ms=parts[0][1].start_ms, end_ms=parts[-1][1].end_ms))
    return [step for step in steps if step.start < met_at]


def _loaded(spans: Sequence[Span], met_at: int) -> list[Step]:
    """Units that arrived, last one first; the part that was computed before is cut off."""
    told = [(tokens, s) for s in spans if s.lane is Lane.LOAD and (tokens := stretch_of(s.name))]
    steps = [
        Step(start=max(start, met_at), stop=stop, begin_ms=s.start_ms, end_ms=s.end_ms)
        for (start, stop), s in told
        if stop > met_at
    ]
    return sorted(steps, key=lambda step: step.begin_ms)


def _front(name: str, points: Sequence[tuple[float, float]], colour: str, *, fill: str | None) -> go.Scatter:
    return go.Scatter(
        x=[ms for ms, _ in points],
        y=[tokens for _, tokens in points],
        name=name,
        mode="lines",
        line={"color": colour, "width": 2.5 if name else 0},
        fill=fill,
        fillcolor=_faint(colour),
        showlegend=bool(name),
        hoverinfo="all" if name else "skip",
        hovertemplate=f"{name} to token %{{y:,.0f}}<br>after %{{x:.0f}} ms<extra></extra>" if name else None,
    )


def _add_rest(figure: go.Figure, met_ms: float, ttft_ms: float, context_tokens: int) -> None:
    """What follows once all of the context is there: the suffix, and blending where there is any."""
    box = [(met_ms, 0), (met_ms, context_tokens), (ttft_ms, context_tokens), (ttft_ms, 0)]
    figure.add_trace(
        go.Scatter(
            x=[x for x, _ in box],
            y=[y for _, y in box],
            name="rest of the prefill",
            mode="lines",
            line={"width": 0, "color": theme.QUESTION},
            fill="toself",
            fillcolor=_faint(theme.QUESTION),
            hoveron="fills",
            hoverinfo="text",
            text=f"rest of the prefill, first token after {theme.duration(ttft_ms)}",
        )
    )


def _mark(figure: go.Figure, met: tuple[float, float], predicted: tuple[float, float] | None) -> None:
    marks = [("fronts met", met, "circle")]
    if predicted is not None:
        marks.append(("predicted", predicted, "circle-open"))
    for name, (ms, tokens), symbol in marks:
        figure.add_scatter(
            x=[ms],
            y=[tokens],
            name=name,
            mode="markers",
            marker={"symbol": symbol, "size": 11, "color": "#777777", "line": {"width": 2}},
            hovertemplate=f"{name} at token %{{y:,.0f}}<br>after %{{x:.0f}} ms<extra></extra>",
        )


def _label(figure: go.Figure, met: tuple[float, float], *, is_late: bool, is_high: bool) -> None:
    """Beside the meeting point, on the side where the figure has room."""
    ms, tokens = met
    figure.add_annotation(
        x=ms,
        y=tokens,
        text=f"{tokens:,.0f} tokens, {theme.duration(ms)}",
        ax=-40 if is_late else 40,
        ay=48 if is_high else -48,
        xanchor="right" if is_late else "left",
        arrowhead=0,
        arrowcolor="#777777",
        standoff=7,
        font={"size": 13},
    )


def _title(spans: Sequence[Span], met_at: int, context_tokens: int, met_ms: float) -> str:
    lanes = {s.lane for s in spans if s.emulated}
    emulated = [what for lane, what in ((Lane.LOAD, "device"), (Lane.COMPUTE, "processor share")) if lane in lanes]
    kind = f"{' and '.join(emulated)} emulated" if emulated else "measured"
    share = theme.percent(met_at / context_tokens)
    return f"Fronts meet after {theme.duration(met_ms)} with {share} computed ({kind})"


def _faint(colour: str) -> str:
    """The same colour, mostly transparent."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.25)"
