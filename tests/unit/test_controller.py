"""The loading controller against a simulation in ticks, hand-computed layers, and the paper's own example."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cacheblend.controller import (
    PAPER_DEVICES,
    PAPER_PROFILE,
    PAPER_WORKLOAD,
    DeviceReason,
    RatioReason,
    device_for_ratio,
    hidden_ratio,
    ratio_for_device,
    sweep_ratios,
)
from cacheblend.cost import ComputeProfile, LayerCost, Workload
from cacheblend.loading import PRESETS, Device
from cacheblend.prediction import predict, predict_cake
from cacheblend.trace import Lane, Selector

SSD = Device(name="SSD 1 GB/s", bandwidth=1e9)
# Of the order of a small model on a CPU.
CPU = ComputeProfile(
    label="cpu",
    num_layers=30,
    kv_bytes=768,
    project_fixed=0.2,
    project_row=0.004,
    finish_fixed=0.3,
    finish_row=0.012,
    causal_cell=1.2e-5,
    masked_cell=1.6e-5,
    place_row=0.0004,
    select_row=0.001,
    mask_cell=1e-7,
    start_row=0.0005,
    first_token=6.0,
    max_blocks=7,
    block_rows=64,
)
LENGTHS = Workload(context_tokens=3072, suffix_tokens=32, reads_per_layer=7)

milliseconds = st.integers(0, 6)
profiles = st.builds(
    ComputeProfile,
    label=st.just("random"),
    num_layers=st.integers(1, 7),
    kv_bytes=st.integers(1, 4),
    project_fixed=milliseconds,
    project_row=st.integers(0, 2),
    finish_fixed=milliseconds,
    finish_row=st.integers(0, 3),
    causal_cell=st.sampled_from([0, 2]),
    masked_cell=st.sampled_from([0, 1]),
    place_row=st.integers(0, 1),
    select_row=st.integers(0, 1),
    start_row=st.integers(0, 1),
    first_token=milliseconds,
)
workloads = st.builds(
    Workload,
    context_tokens=st.integers(1, 5).map(lambda n: 4 * n),
    suffix_tokens=st.integers(1, 3),
    prefetch=st.integers(1, 3),
    reads_per_layer=st.integers(1, 3),
    selector=st.sampled_from(Selector),
)
bandwidths = st.floats(1e2, 1e6)


def in_ticks(costs: list[LayerCost], start: int, loads: list[int], prefetch: int, pipelined: bool) -> int:
    """Reader and computer, one millisecond at a time: when the last layer is done."""
    num_layers, now = len(costs), 0
    work = [round(sum(cost)) for cost in costs]
    read_left, work_left = list(loads), list(work)
    reading = computing = 0
    begun = [False] * num_layers  # layers handed over to the computer
    while True:
        moved = True
        while moved:  # everything that takes no time
            moved = False
            if computing < num_layers and not begun[computing] and now >= start and reading > computing:
                begun[computing] = moved = True
            if computing < num_layers and begun[computing] and work_left[computing] == 0:
                computing, moved = computing + 1, True
            may_read = reading < num_layers and _may_read(reading, begun, computing, prefetch, pipelined, now >= start)
            if may_read and read_left[reading] == 0:
                reading, moved = reading + 1, True
        if computing == num_layers:
            return now
        if may_read:
            read_left[reading] -= 1
        if begun[computing]:
            work_left[computing] -= 1
        now += 1


def _may_read(layer: int, begun: list[bool], computing: int, prefetch: int, pipelined: bool, is_started: bool) -> bool:
    if not pipelined:
        return is_started and computing == layer
    return layer < prefetch or begun[layer - prefetch]


@settings(max_examples=150, deadline=None)
@given(
    profile=profiles, workload=workloads, ratio=st.sampled_from([0, 0.25, 0.5, 1]), load=milliseconds, data=st.data()
)
def test_a_prediction_is_what_a_simulation_in_ticks_arrives_at(profile, workload, ratio, load, data):
    pipelined = data.draw(st.booleans())
    workload = replace(workload, selector=Selector.SINGLE)  # whole rows, so whole milliseconds
    nbytes = profile.kv_bytes * workload.context_tokens
    device = Device(name="ticks", bandwidth=1000 * nbytes / load if load else math.inf)
    predicted = predict(profile, device, workload, ratio, pipelined=pipelined)
    start = round(profile.start_ms(workload, ratio))
    unread = {0: 0, 1: profile.num_layers}.get(ratio, 1)
    loads = [0 if layer < unread else load for layer in range(profile.num_layers)]
    simulated = in_ticks(profile.layer_costs(workload, ratio), start, loads, workload.prefetch, pipelined)
    assert predicted.ttft_ms == pytest.approx(simulated + profile.first_token)


@settings(max_examples=150, deadline=None)
@given(profile=profiles, workload=workloads, ratio=st.floats(0, 1), bandwidth=bandwidths, latency=st.floats(0, 3))
def test_a_pipeline_is_between_the_longer_part_and_the_sum(profile, workload, ratio, bandwidth, latency):
    device = Device(name="any", bandwidth=bandwidth, latency_ms=latency)
    pipelined = predict(profile, device, workload, ratio)
    unpipelined = predict(profile, device, workload, ratio, pipelined=False)
    longer = max(pipelined.load_ms, pipelined.compute_ms)
    assert longer <= pipelined.ttft_ms * (1 + 1e-9)
    assert pipelined.ttft_ms <= unpipelined.ttft_ms * (1 + 1e-9)
    assert unpipelined.ttft_ms == pytest.approx(pipelined.load_ms + pipelined.compute_ms)


@settings(max_examples=100, deadline=None)
@given(
    profile=profiles,
    workload=workloads,
    bandwidth=bandwidths,
    slower=st.floats(1, 20),
    floor=st.floats(0, 1),
)
def test_a_ratio_keeps_its_floor_and_never_falls_on_a_slower_device(profile, workload, bandwidth, slower, floor):
    fast = ratio_for_device(profile, Device(name="fast", bandwidth=bandwidth), workload, floor)
    slow = ratio_for_device(profile, Device(name="slow", bandwidth=bandwidth / slower), workload, floor)
    assert floor <= fast.ratio <= 1
    assert slow.ratio >= fast.ratio - 1e-6


def last_layer_begins(costs: list[LayerCost], start: float, load: float, prefetch: int) -> float:
    """The pipeline's recurrence for a blend: a layer waits for the one before, and all but layer 0 for their KV."""
    begun, read, done = [], 0.0, start
    for i, cost in enumerate(costs):
        read = max(read, begun[i - prefetch] if i >= prefetch else 0.0) + (load if i > 0 else 0.0)
        begun.append(max(done, read))
        done = begun[-1] + sum(cost)
    return begun[-1]


@settings(max_examples=100, deadline=None)
@given(profile=profiles, workload=workloads, bandwidth=bandwidths)
def test_the_hidden_ratio_delays_nothing_behind_the_check_layer_and_a_larger_one_does(profile, workload, bandwidth):
    device = Device(name="any", bandwidth=bandwidth)
    load = 1000 * profile.kv_bytes * workload.context_tokens / bandwidth

    def delay(ratio: float) -> float:
        costs, none = (profile.layer_costs(workload, r) for r in (ratio, 1e-9))
        start = profile.start_ms(workload, ratio)
        runs = costs, [*costs[:2], *none[2:]]
        there, free = (last_layer_begins(run, start, load, workload.prefetch) for run in runs)
        return there / free - 1 if free else 0.0

    hidden = hidden_ratio(profile, device, workload)
    if hidden == 1:
        everything, nothing = (predict(profile, device, workload, ratio).ttft_ms for ratio in (1, 1e-9))
        assert everything <= nothing
    elif hidden > 0:
        assert delay(hidden) <= 1e-6
    if hidden < 0.98:
        assert delay(hidden + 0.01) > 0


def test_a_layer_that_is_computed_as_fast_as_it_is_read_is_hidden():
    """The paper's rule, layer by layer, on a model whose first layers compute everything."""
    layer = CPU.layer_costs(LENGTHS, 0.4)[-1]
    device = Device(name="as fast", bandwidth=1000 * 768 * 3072 / sum(layer))
    assert hidden_ratio(CPU, device, LENGTHS) == pytest.approx(0.4, abs=0.02)


@given(profile=profiles, workload=workloads, few=st.floats(0.001, 0.998), more=st.floats(0, 0.998))
def test_a_larger_ratio_never_costs_less(profile, workload, few, more):
    few, more = min(few, more) or 0.001, max(few, more)
    for less, greater in zip(profile.layer_costs(workload, few), profile.layer_costs(workload, more), strict=True):
        assert sum(less) <= sum(greater) + 1e-9


def test_layers_by_hand():
    profile = ComputeProfile(
        label="by hand",
        num_layers=3,
        kv_bytes=2,
        project_fixed=1,
        project_row=10,
        finish_fixed=100,
        finish_row=1000,
        causal_cell=1e5,
        masked_cell=1e6,
        place_row=3,
        select_row=7,
        mask_cell=0.5,
        first_token=1,
    )
    workload = Workload(context_tokens=8, suffix_tokens=2)
    blend = profile.layer_costs(workload, 0.5)
    assert blend[0] == (1 + 10 * 10, 30, 100 + 10 * 1000 + 1e5 * 50)  # all ten rows
    # All are projected; 4 of the context's and the suffix go on: 6 rows on 10 tokens in one block.
    assert blend[1] == (1 + 10 * 10 + 7 * 10 + 0.5 * 6 * 10, 30, 100 + 6000 + 1e6 * 60)
    assert blend[2] == (1 + 6 * 10, 30, 100 + 6000 + 1e6 * 60)
    assert profile.layer_costs(workload, 0) == [(1 + 2 * 10, 30, 100 + 2000 + 1e6 * 20)] * 3
    assert profile.layer_costs(workload, 1) == [(101, 30, 10_100 + 1e5 * 50)] * 3
    assert profile.prefill_ms(10) == 3 * (101 + 10_100 + 1e5 * 50) + 1


def test_blocks_visit_what_the_loop_over_blocks_does():
    """Rows spread evenly, cut into blocks, each over the tokens up to its last row."""
    rows, tokens, blocks = 700, 7000, 7
    per_block = rows // blocks
    visited = sum(per_block * tokens * (block + 1) // blocks for block in range(blocks))
    assert CPU.visited_cells(rows, 0, tokens) == pytest.approx(visited)
    assert CPU.visited_cells(0, 32, tokens) == 32 * tokens


def test_gradual_and_single_cost_alike():
    single = predict(CPU, SSD, LENGTHS, 0.15).compute_ms
    gradual = predict(CPU, SSD, replace(LENGTHS, selector="gradual"), 0.15).compute_ms
    assert gradual == pytest.approx(single, rel=0.2)


def test_the_papers_knee():
    """Figure 10a: 26.8 % on an SSD of 1 GB/s, TTFT the longer of 1.2 s and 4.466 s × ratio."""
    choice = ratio_for_device(PAPER_PROFILE, SSD, PAPER_WORKLOAD)
    assert (round(choice.ratio, 3), choice.why) == (0.269, RatioReason.HIDDEN)
    assert choice.everything_ms == pytest.approx(4466)
    for row in sweep_ratios(PAPER_PROFILE, SSD, PAPER_WORKLOAD):
        load, compute = 1200, 4466 * row.ratio
        assert row.unpipelined_ms == pytest.approx(load + compute)
        # A pipeline of 60 layers cannot overlap the first layer's loading and the last layer's computing.
        assert row.pipelined_ms == pytest.approx(max(load, compute) + min(load, compute) / 60)


def test_the_papers_device():
    """Figure 10b: at 15 % the SSD of 32 Gbps is the cheapest that is hidden; the slower one is not."""
    choice = device_for_ratio(PAPER_PROFILE, PAPER_DEVICES, PAPER_WORKLOAD)
    assert (choice.chosen.device.name, choice.why) == ("SSD 32 Gbps", DeviceReason.CHEAPEST)
    assert [row.device.name for row in choice.rows] == ["SSD 4 Gbps", "SSD 32 Gbps", "CPU RAM", "GPU"]
    seconds = {row.device.name: row.unpipelined.ttft_ms / 1000 for row in choice.rows}
    assert seconds == pytest.approx({"GPU": 0.67, "CPU RAM": 0.77, "SSD 32 Gbps": 0.97, "SSD 4 Gbps": 3.07}, abs=0.01)
    assert choice.rows[0].pipelined.ttft_ms / 1000 == pytest.approx(2.4, abs=0.02)


def test_a_fast_device_leaves_the_floor_and_a_very_slow_one_everything():
    assert ratio_for_device(CPU, PRESETS[0], LENGTHS).why is RatioReason.FLOOR
    slow = ratio_for_device(CPU, Device(name="slow", bandwidth=1e6), LENGTHS)
    assert (slow.ratio, slow.why) == (1.0, RatioReason.ALL)
    assert slow.prediction.load_ms == 0 and slow.prediction.ttft_ms == slow.everything_ms


def test_everything_is_computed_where_that_is_no_slower_than_the_floor():
    """Rows picked here and there cost more in attention than the whole prompt does."""
    choice = ratio_for_device(CPU, PRESETS[0], LENGTHS, floor=0.95)
    assert predict(CPU, PRESETS[0], LENGTHS, 0.95).ttft_ms > choice.everything_ms
    assert (choice.ratio, choice.why) == (1.0, RatioReason.ALL) and choice.hidden_ratio < 0.01


def test_where_no_device_is_hidden_the_fastest_is_taken_and_ties_go_to_the_cheaper():
    slow = [Device(name=f"{b:g}", bandwidth=b, price=b) for b in (1e6, 2e6)]
    choice = device_for_ratio(CPU, slow, LENGTHS)
    assert (choice.chosen.device.name, choice.why) == ("2e+06", DeviceReason.FASTEST)
    twins = [Device(name=name, bandwidth=1e6, price=price) for name, price in (("dear", 2), ("cheap", 1), ("same", 1))]
    assert device_for_ratio(CPU, twins, LENGTHS).chosen.device.name == "cheap"


def test_cost_is_price_times_gigabytes_times_months():
    device = Device(name="disk", bandwidth=1e9, price=0.5)
    row = device_for_ratio(CPU, [device], replace(LENGTHS, size_ratio=4.0), months=3).chosen
    assert row.cost == pytest.approx(0.5 * 3 * 30 * 768 * 3072 / 4 / 1e9)


def test_spans_tell_the_run_and_what_is_emulated():
    workload = replace(LENGTHS, decode_ms_per_token=0.01)
    predicted = predict(CPU, SSD, workload, 0.15)
    spans = predicted.spans
    by_lane = {lane: [s for s in spans if s.lane is lane] for lane in Lane}
    assert len(by_lane[Lane.PLACE]) == 30
    assert len(by_lane[Lane.LOAD]) == len(by_lane[Lane.DECOMPRESS]) == 29, "layer 0 is computed whole"
    assert sum(s.duration_ms for s in by_lane[Lane.LOAD] + by_lane[Lane.DECOMPRESS]) == pytest.approx(predicted.load_ms)
    assert max(s.end_ms for s in spans) == by_lane[Lane.FIRST_TOKEN][0].end_ms == predicted.ttft_ms
    assert all(s.emulated for s in by_lane[Lane.LOAD]) and not any(s.emulated for s in by_lane[Lane.COMPUTE])
    assert all(s.name.startswith("predicted") for s in spans)


def test_a_bandwidth_that_changes_over_time_is_followed():
    workload = Workload(context_tokens=1000, suffix_tokens=1)
    nothing_to_compute = ComputeProfile(label="", num_layers=2, kv_bytes=1000)  # 1 MB a layer
    device = Device(name="d", bandwidth=1e6, over_time=((0.0, 2e6), (0.25, 0.5e6), (1.25, 4e6)))
    layers = predict(nothing_to_compute, device, workload, 0).layers
    assert [times.decoded for times in layers] == pytest.approx([1250, 1500])
    endless = replace(device, over_time=((0.0, math.inf),))
    assert predict(nothing_to_compute, endless, workload, 0).ttft_ms == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: Workload(context_tokens=0, suffix_tokens=1),
        lambda: Workload(context_tokens=1, suffix_tokens=1, size_ratio=0),
        lambda: Workload(context_tokens=1, suffix_tokens=1, prefetch=0),
        lambda: replace(CPU, finish_row=-1.0),
        lambda: replace(CPU, finish_row=math.nan),
        lambda: replace(CPU, num_layers=0),
        lambda: predict(CPU, SSD, LENGTHS, 1.5),
        lambda: ratio_for_device(CPU, SSD, LENGTHS, floor=-0.1),
        lambda: device_for_ratio(CPU, [], LENGTHS),
    ],
)
def test_nonsense_is_refused(make):
    with pytest.raises(ValueError, match=r"must|needs"):
        make()


def test_it_needs_no_torch():
    code = "import sys, cacheblend.controller; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# Cake


@settings(max_examples=60, deadline=None)
@given(bandwidth=st.floats(1e3, 1e12), ratio=st.sampled_from([0.0, 0.15, 0.5]), share=st.sampled_from([1.0, 0.5]))
def test_cake_meets_where_a_race_in_small_steps_does(bandwidth, ratio, share):
    profile = ComputeProfile(label="", num_layers=4, kv_bytes=100, project_row=0.01, finish_row=0.02, causal_cell=1e-5)
    workload, device = Workload(context_tokens=2000, suffix_tokens=20), Device(name="some", bandwidth=bandwidth)
    predicted = predict_cake(profile, device, workload, ratio, compute_share=share)
    computed, loaded, computing, loading = 0, 2000, 0.0, 0.0
    while computed < loaded:  # whoever is behind in time takes the next token
        if computing <= loading:
            computing += 4 * (0.03 + 1e-5 * (computed + 0.5)) / share
            computed += 1
        else:
            loading += 1000 * 4 * 100 / bandwidth
            loaded -= 1
    assert predicted.met_at == pytest.approx(computed, abs=2)
    assert predicted.meet_ms == pytest.approx(min(computing, loading), abs=2 * (computing / max(computed, 1) + 0.4))
    assert predicted.ttft_ms >= predicted.meet_ms
