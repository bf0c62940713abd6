"""Calibration: fits against brute force, steps against the run they came from, files that are damaged."""

from __future__ import annotations

import json
import logging
import threading
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cacheblend import calibration, places
from cacheblend.calibration import (
    calibrate,
    load_profile,
    profile_for,
    profile_key,
    save_profile,
)
from cacheblend.cancel import Cancelled
from cacheblend.cost import ComputeProfile, Workload
from cacheblend.fit import nonnegative_fit
from cacheblend.fusion.fusor import fuse
from cacheblend.fusion.policies import HKVD
from cacheblend.fusion.source import unread_layers
from cacheblend.models.layerwise import LayerwiseModel
from cacheblend.places import chunk_reads, measure_device
from cacheblend.trace import Selector
from tests.conftest import make_case
from tests.tiny import tiny

KNOWN = ComputeProfile(
    label="known",
    num_layers=5,
    kv_bytes=128,
    project_fixed=0.4,
    project_row=0.01,
    finish_fixed=0.7,
    finish_row=0.03,
    causal_cell=6e-5,
    masked_cell=4e-5,
    place_row=3e-4,
    select_row=2e-3,
    mask_cell=5e-6,
    start_row=1e-3,
    first_token=6.0,
    max_blocks=7,
    block_rows=64.0,
)


@pytest.fixture
def model() -> LayerwiseModel:
    return LayerwiseModel(tiny("llama"))


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "cacheblend" / "profiles"


# Fits


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10_000), num_features=st.integers(1, 4))
def test_no_nonnegative_coefficients_fit_better(seed, num_features):
    """Against coordinate descent, which cannot get stuck: the error is convex."""
    generator = np.random.default_rng(seed)
    features = generator.uniform(0, 10, (12, num_features))
    targets = np.abs(features @ generator.normal(size=num_features)) + 0.1
    found = np.array(nonnegative_fit(features.tolist(), targets.tolist()))
    relative = features / targets[:, None]
    naive = np.zeros(num_features)
    for _ in range(1000):
        for i, column in enumerate(relative.T):
            rest = 1 - relative @ naive + column * naive[i]
            naive[i] = max(0.0, column @ rest / (column @ column))
    assert (found >= 0).all()
    assert ((relative @ found - 1) ** 2).sum() <= ((relative @ naive - 1) ** 2).sum() + 1e-6


def test_an_exact_law_is_found_and_times_of_zero_are_left_out():
    features = [(1.0, n, n * n) for n in (10, 20, 30, 40)] + [(1.0, 5.0, 5.0)]
    targets = [2 + 0.5 * n + 0.01 * n * n for n in (10, 20, 30, 40)] + [0.0]
    assert nonnegative_fit(features, targets) == pytest.approx([2, 0.5, 0.01])
    assert nonnegative_fit([(1.0,)], [0.0]) == [0.0]


# Compute


def known_run(model, context_tokens, ratio, cancel):
    """What the fusor would measure on a machine whose profile is KNOWN."""
    workload = Workload(context_tokens=context_tokens, suffix_tokens=calibration.SUFFIX_TOKENS)
    came = workload.num_tokens if ratio > 0 else workload.suffix_tokens
    steps = []
    for layer, cost in enumerate(KNOWN.layer_costs(workload, ratio)[: calibration.NUM_LAYERS]):
        is_chosen = ratio == 0 or layer >= KNOWN.check_layer
        kept = ratio * context_tokens + workload.suffix_tokens if is_chosen else workload.num_tokens
        steps.append(calibration._Step(layer, came, kept, workload.num_tokens, workload.suffix_tokens, *cost))
        came = kept
    return calibration._Run(tuple(steps), KNOWN.start_ms(workload, ratio), KNOWN.first_token)


def test_the_profile_of_a_known_machine_is_found(model, monkeypatch):
    monkeypatch.setattr(calibration, "_fuse_once", known_run)
    found = asdict(calibrate(model, label="known"))
    expected = asdict(replace(KNOWN, kv_bytes=model.kv_bytes_per_token // 5, block_rows=192 / 3))
    assert found.pop("label") == expected.pop("label")
    assert found == pytest.approx(expected, rel=1e-6)


def test_a_run_is_read_without_leaving_time_out():
    case = make_case("llama", lengths=(0, 200, 7))
    run = calibration._fuse_once(case.model.part(0, calibration.NUM_LAYERS), 200, 0.25, None)
    assert [(s.came, s.kept) for s in run.steps] == [(224, 224), (224, 74), (74, 74), (74, 74)]
    nothing = calibration._fuse_once(case.model.part(0, calibration.NUM_LAYERS), 200, 0.0, None)
    assert [(s.came, s.kept) for s in nothing.steps] == [(24, 24)] * 4
    assert case.model.num_layers == 5, "the model itself keeps its layers"


def test_steps_tile_the_time_to_first_token(monkeypatch):
    case, recorders = make_case("llama"), []

    class Kept(calibration.SpanRecorder):
        def __init__(self, device):
            super().__init__(device)
            recorders.append(self)

    monkeypatch.setattr(calibration, "SpanRecorder", Kept)
    run = calibration._fuse_once(case.model.part(0, calibration.NUM_LAYERS), 120, 0.3, None)
    ttft = max(span.end_ms for span in recorders[0].spans())
    steps = sum(s.project_ms + s.place_ms + s.finish_ms for s in run.steps)
    assert run.start_ms + steps + run.first_token_ms == pytest.approx(ttft)


def test_calibrating_a_model_gives_a_usable_profile(model):
    seen = []
    profile = calibrate(model, label="tiny", progress=lambda done, total: seen.append((done, total)))
    assert (profile.label, profile.num_layers, profile.kv_bytes) == ("tiny", 5, 2 * 2 * 8 * 4)
    workload = Workload(context_tokens=400, suffix_tokens=10)
    assert all(sum(cost) > 0 for cost in profile.layer_costs(workload, 0.15))
    assert seen == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_calibration_can_be_stopped(model):
    stop = threading.Event()
    stop.set()
    with pytest.raises(Cancelled):
        calibrate(model, cancel=stop)


def test_a_slow_model_is_calibrated_on_shorter_prompts(model, monkeypatch):
    lengths, clock = [], [0.0]

    def slow_run(model, context_tokens, ratio, cancel):
        clock[0] += context_tokens / 100
        lengths.append(context_tokens)
        return known_run(model, context_tokens, ratio, cancel)

    monkeypatch.setattr(calibration, "_fuse_once", slow_run)
    monkeypatch.setattr(calibration.time, "perf_counter", lambda: clock[0])
    profile = calibrate(model)
    assert sorted(set(lengths)) == [488 // 12, 488 // 3]
    assert profile.finish_row == pytest.approx(KNOWN.finish_row)


@pytest.mark.parametrize("selector", Selector)
@pytest.mark.parametrize("ratio", [0.0, 0.15, 0.5, 1.0])
def test_a_layer_is_charged_for_the_rows_that_the_fusor_computes(selector, ratio):
    case = make_case("llama", lengths=(0, 60, 40, 9))
    policy = HKVD(ratio=ratio, selector=selector)
    kept = fuse(case.model, case.plan, case.source(), policy).kept_per_layer
    a_millisecond_a_row = ComputeProfile(label="", num_layers=5, kv_bytes=1, project_row=1.0, finish_row=1.0)
    workload = Workload(context_tokens=100, suffix_tokens=9, selector=selector)
    costs = a_millisecond_a_row.layer_costs(workload, ratio)
    assert [cost.finish for cost in costs] == pytest.approx([rows + 9 for rows in kept], abs=0.5)
    came = [109 if ratio > 0 else 9, *(rows + 9 for rows in kept[:-1])]
    assert [cost.project for cost in costs] == pytest.approx(came, abs=0.5)
    assert a_millisecond_a_row.unread_layers(ratio) == unread_layers(policy, case.plan, 5)


# Places


class Disk:
    """Reads that take known times on a clock of their own."""

    def __init__(self, monkeypatch, latency_ms: float, bandwidth: float) -> None:
        self.now, self.latency_ms, self.bandwidth = 0.0, latency_ms, bandwidth
        monkeypatch.setattr(places.time, "perf_counter", lambda: self.now)

    def reads(self, *sizes: int):
        def one(nbytes: int) -> int:
            self.now += self.latency_ms / 1000 + nbytes / self.bandwidth
            return nbytes

        return [lambda n=n: one(n) for n in sizes]


def test_latency_and_bandwidth_of_a_place_are_told_apart(monkeypatch):
    disk = Disk(monkeypatch, latency_ms=0.5, bandwidth=2e8)
    device = measure_device(disk.reads(4096, 1_000_000, 8_000_000, 4096), "disk", price=0.1)
    assert (device.latency_ms, device.bandwidth) == pytest.approx((0.5, 2e8))
    assert (device.name, device.price, device.is_emulated) == ("disk", 0.1, False)


def test_with_one_size_all_time_counts_as_bandwidth(monkeypatch):
    device = measure_device(Disk(monkeypatch, 1.0, 1e9).reads(1_000_000, 1_000_000), "disk")
    assert device.latency_ms == 0
    assert device.read_ms(1_000_000) == pytest.approx(2.0)


def test_a_place_that_gives_nothing_has_no_speed():
    with pytest.raises(ValueError, match="nothing was read"):
        measure_device([], "disk")


def test_chunks_are_read_layer_by_layer():
    case = make_case("llama")
    chunks = case.caches()
    sizes = [read() for read in chunk_reads(chunks)]
    assert sizes == [layer.nbytes for chunk in chunks for layer in chunk.layers]
    assert measure_device(chunk_reads(chunks), "memory").bandwidth > 0


# Files


def test_a_profile_comes_back_as_it_was_kept(cache_folder):
    save_profile("key", KNOWN)
    assert load_profile("key") == KNOWN
    assert load_profile("another") is None
    assert [path.name for path in cache_folder.iterdir()] == ["key.json"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'"text"',
        b"\xff\xfe",
        json.dumps({**asdict(KNOWN), "finish_row": -1}).encode(),
        json.dumps({**asdict(KNOWN), "finish_row": "1"}).encode(),
        json.dumps({**asdict(KNOWN), "more": 1}).encode(),
        json.dumps({"label": "half"}).encode(),
    ],
)
def test_a_damaged_profile_is_measured_again_and_said(content, model, cache_folder, monkeypatch, caplog):
    monkeypatch.setattr(calibration, "calibrate", lambda *args, **options: KNOWN)
    cache_folder.mkdir(parents=True)
    path = cache_folder / f"{profile_key(model)}.json"
    path.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert profile_for(model) == KNOWN
    assert "measured again" in caplog.text
    assert load_profile(profile_key(model)) == KNOWN


def test_a_kept_profile_is_used_until_another_is_asked_for(model, monkeypatch):
    made = iter([KNOWN, replace(KNOWN, label="again")])
    monkeypatch.setattr(calibration, "calibrate", lambda *args, **options: next(made))
    assert [profile_for(model).label for _ in range(3)] == ["known"] * 3
    assert profile_for(model, recalibrate=True).label == profile_for(model).label == "again"


def test_the_key_follows_what_decides_the_speed(model):
    other = LayerwiseModel(tiny("qwen2"))
    half = LayerwiseModel(tiny.__wrapped__("llama").to(torch.bfloat16))
    assert len({profile_key(model), profile_key(other), profile_key(half)}) == 3
    assert profile_key(LayerwiseModel(tiny("llama", seed=1))) == profile_key(model), "weights do not"


def test_a_folder_that_cannot_be_written_is_said(tmp_path, monkeypatch, caplog):
    (tmp_path / "cacheblend").write_text("a file stands in the way")
    save_profile("key", KNOWN)
    assert "could not be kept" in caplog.text
