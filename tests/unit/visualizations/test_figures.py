"""Every figure: renders on a full comparison, says so when empty, stays small, and shows the numbers it was given."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import plotly.graph_objects as go
import pytest

from cacheblend.trace import Comparison, Inspection, Lane, Mode, Span
from tests.synthetic import synthetic_comparison
from visualizations.agreement import rank_correlation_figure, topk_overlap_figure
from visualizations.deviation import deviation_cdf_figure, layer_profile_figure
from visualizations.timeline import timeline_figure
from visualizations.ttft import ttft_figure

FIGURES: dict[str, Callable[[Comparison], go.Figure]] = {
    "timeline": lambda c: timeline_figure(c.traces),
    "timeline until first token": lambda c: timeline_figure(c.traces, until_first_token=True),
    "timeline zoomed": lambda c: timeline_figure(c.traces, own_axes=True),
    "ttft": ttft_figure,
    "cdf reuse": lambda c: deviation_cdf_figure(c.inspection, Mode.REUSE, context_tokens=c.context_tokens),
    "cdf blend": lambda c: deviation_cdf_figure(c.inspection, Mode.BLEND, context_tokens=c.context_tokens),
    "profile": lambda c: layer_profile_figure(c.inspection, context_tokens=c.context_tokens),
    "rank correlation": lambda c: rank_correlation_figure(c.inspection, context_tokens=c.context_tokens),
    "top-k overlap": lambda c: topk_overlap_figure(c.inspection, context_tokens=c.context_tokens),
}


def _title(figure: go.Figure) -> str:
    return figure.layout.title.text.replace("<br>", " ")


@pytest.fixture(scope="module")
def large() -> Comparison:
    return synthetic_comparison(4000, layers=30, decoded=128)


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_of_a_large_run_is_titled_sized_and_small(name: str, large: Comparison) -> None:
    figure = FIGURES[name](large)
    assert figure.layout.title.text
    assert figure.layout.height >= 200
    assert len(figure.data) > 0
    assert len(figure.to_json()) < 300_000


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_without_data_is_titled_and_says_why(name: str, large: Comparison) -> None:
    figure = FIGURES[name](replace(large, traces=(), inspection=None))
    assert figure.layout.title.text
    assert len(figure.data) == 0
    assert "run" in figure.layout.annotations[0].text


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_of_one_mode_or_one_layer_still_renders(name: str) -> None:
    small = synthetic_comparison(60, layers=1, chunks=1, decoded=0)
    assert FIGURES[name](replace(small, traces=small.traces[2:])).to_json()


def test_timeline_bars_are_the_spans(large: Comparison) -> None:
    figure = timeline_figure(large.traces)
    drawn = sorted((float(b), float(x)) for bar in figure.data for b, x in zip(bar.base, bar.x, strict=True))
    given = sorted((s.start_ms, s.duration_ms) for t in large.traces for s in t.spans)
    np.testing.assert_allclose(drawn, given)


def test_timeline_can_leave_decoding_out_and_share_or_split_its_axis(large: Comparison) -> None:
    assert not any(Lane.DECODE.value in bar.y for bar in timeline_figure(large.traces, until_first_token=True).data)
    assert timeline_figure(large.traces).layout.xaxis.matches is not None
    assert timeline_figure(large.traces, own_axes=True).layout.xaxis.matches is None


def test_timeline_says_what_is_emulated_and_escapes_span_names(large: Comparison) -> None:
    assert "(measured)" in _title(timeline_figure(large.traces))
    fake = Span(lane=Lane.LOAD, name="<b>slow</b>", start_ms=0, end_ms=9, layer=3, emulated=True)
    figure = timeline_figure([replace(large.traces[2], spans=(*large.traces[2].spans, fake))])
    assert "emulated" in _title(figure)
    hovers = [(bar.hovertemplate, text) for bar in figure.data for text in bar.customdata if "slow" in text]
    assert [text for _, text in hovers] == ["&lt;b&gt;slow&lt;/b&gt; (layer 3)"]
    assert "emulated" in hovers[0][0]


def test_ttft_bars_sum_to_the_parts_and_name_the_speedup(large: Comparison) -> None:
    figure = ttft_figure(large)
    for i, trace in enumerate(large.traces):
        assert sum(bar.x[i] for bar in figure.data) == pytest.approx(sum(trace.ttft_parts.values()))
    texts = [a.text for a in figure.layout.annotations]
    assert any(f"{large.speedup(Mode.BLEND):.1f} ×" in t for t in texts)
    assert "×" not in texts[0]


def test_profile_shows_blend_below_reuse_and_counts_context_only(large: Comparison) -> None:
    inspection = large.inspection
    assert inspection is not None
    polluted = {m: a.copy() for m, a in inspection.kv_deviation.items()}
    for array in polluted.values():
        array[:, large.context_tokens :] = 1e6
    drawn = layer_profile_figure(replace(inspection, kv_deviation=polluted), context_tokens=large.context_tokens)
    expected = inspection.kv_deviation[Mode.REUSE][:, : large.context_tokens].mean(axis=1)
    np.testing.assert_allclose(drawn.data[0].y, expected, rtol=1e-5)
    assert (drawn.data[1].y[1:] < drawn.data[0].y[1:]).all()


def test_layer_zero_has_no_ranks_and_the_axis_says_so(large: Comparison) -> None:
    figure = rank_correlation_figure(large.inspection, context_tokens=large.context_tokens)
    assert np.isnan(figure.data[0].z[0]).all()
    assert "empty: 0, no deviation" in figure.layout.xaxis2.title.text


def test_no_deviation_at_all_is_said_not_divided_by() -> None:
    small = synthetic_comparison(80, layers=4)
    assert small.inspection is not None
    zeros = {m: np.zeros_like(a) for m, a in small.inspection.kv_deviation.items()}
    inspection: Inspection = replace(small.inspection, kv_deviation=zeros)
    cdf = deviation_cdf_figure(inspection, Mode.REUSE, context_tokens=small.context_tokens)
    assert "no token deviates" in _title(cdf)
    ranked = rank_correlation_figure(inspection, context_tokens=small.context_tokens)
    assert "undefined" in _title(ranked)
