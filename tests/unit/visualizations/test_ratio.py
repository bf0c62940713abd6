"""The controller's figures: they show the numbers they were given, and say that these are predicted."""

from __future__ import annotations

from dataclasses import replace

import plotly.graph_objects as go
import pytest

from cacheblend.controller import (
    PAPER_DEVICES,
    PAPER_PROFILE,
    PAPER_WORKLOAD,
    RatioReason,
    device_for_ratio,
    ratio_for_device,
    sweep_ratios,
)
from cacheblend.loading import Device
from visualizations.ratio import devices_figure, ratio_figure

SSD = Device(name="SSD 1 GB/s", bandwidth=1e9)
ROWS = sweep_ratios(PAPER_PROFILE, SSD, PAPER_WORKLOAD)


def _title(figure: go.Figure) -> str:
    return figure.layout.title.text.replace("<br>", " ").replace("\N{NO-BREAK SPACE}", " ")


def _texts(figure: go.Figure) -> list[str]:
    return [a.text.replace("\N{NO-BREAK SPACE}", " ") for a in figure.layout.annotations]


def test_the_papers_figure_10a_is_drawn():
    choice = ratio_for_device(PAPER_PROFILE, SSD, PAPER_WORKLOAD)
    figure = ratio_figure(ROWS, choice, SSD.name)
    unpipelined, pipelined, everything, chosen = figure.data
    assert list(pipelined.y) == [row.pipelined_ms for row in ROWS]
    assert list(unpipelined.y) == [row.unpipelined_ms for row in ROWS]
    assert set(everything.y) == {choice.everything_ms}
    assert (chosen.x[0], chosen.y[0]) == (100 * choice.ratio, choice.prediction.ttft_ms)
    assert _texts(figure) == ["r* 15 %", "r0 27 %"]
    assert _title(figure) == "Loading from SSD 1 GB/s hides recomputing 27 % (predicted)"


@pytest.mark.parametrize(
    ("bandwidth", "why", "says"),
    [
        (1e12, RatioReason.FLOOR, "hides 0 %, quality asks for 15 %"),
        (1e7, RatioReason.ALL, "everything takes no longer than loading from d"),
    ],
)
def test_the_title_says_what_decided(bandwidth, why, says):
    choice = ratio_for_device(PAPER_PROFILE, Device(name="d", bandwidth=bandwidth), PAPER_WORKLOAD)
    assert choice.why is why
    title = _title(ratio_figure(ROWS, choice, "d"))
    assert says in title and "predicted" in title


def test_every_axis_and_hover_says_predicted():
    choice = device_for_ratio(PAPER_PROFILE, PAPER_DEVICES, PAPER_WORKLOAD)
    ratio = ratio_figure(ROWS, ratio_for_device(PAPER_PROFILE, SSD, PAPER_WORKLOAD), SSD.name)
    assert "predicted" in ratio.layout.yaxis.title.text
    devices = devices_figure(choice)
    assert "predicted" in devices.layout.xaxis.title.text and "predicted" in _title(devices)
    assert all("predicted" in trace.hovertemplate for trace in (*ratio.data, *devices.data))


def test_the_papers_figure_10b_is_drawn():
    choice = device_for_ratio(PAPER_PROFILE, PAPER_DEVICES, PAPER_WORKLOAD)
    figure = devices_figure(choice)
    unpipelined, pipelined = figure.data
    assert list(pipelined.x) == [row.pipelined.ttft_ms for row in choice.rows]
    assert list(unpipelined.x) == [row.unpipelined.ttft_ms for row in choice.rows]
    assert list(pipelined.y) == ["SSD 4 Gbps", "<b>▸ SSD 32 Gbps</b>", "CPU RAM", "GPU"]
    assert ["✓" in text for text in _texts(figure)] == [False, True, True, True]
    assert "SSD 32 Gbps is the cheapest" in _title(figure)


def test_a_choice_of_the_fastest_says_so():
    slow = [Device(name="slow", bandwidth=1e6), Device(name="slower", bandwidth=1e5)]
    figure = devices_figure(device_for_ratio(PAPER_PROFILE, slow, PAPER_WORKLOAD))
    assert "hides no device's loading; slow is the fastest" in _title(figure)
    assert not any("✓" in text for text in _texts(figure))


def test_names_are_text_not_markup():
    device = replace(SSD, name="<b>own</b>")
    choice = ratio_for_device(PAPER_PROFILE, device, PAPER_WORKLOAD)
    for figure in (
        ratio_figure(ROWS, choice, device.name),
        devices_figure(device_for_ratio(PAPER_PROFILE, [device], PAPER_WORKLOAD)),
    ):
        assert "<b>own" not in figure.to_json() and "&lt;b&gt;own" in figure.to_json().replace("\\u003c", "<").replace(
            "\\u0026", "&"
        )


def test_nothing_predicted_says_so():
    choice = ratio_for_device(PAPER_PROFILE, SSD, PAPER_WORKLOAD)
    figure = ratio_figure([], choice, SSD.name)
    assert not figure.data and "Nothing was predicted" in figure.layout.annotations[0].text
