"""`python -m cacheblend plan` on a machine whose profile is known."""

from __future__ import annotations

import argparse
import json
from types import SimpleNamespace

import pytest

from cacheblend.commands import plan
from cacheblend.controller import device_for_ratio, ratio_for_device
from cacheblend.cost import Workload
from cacheblend.loading import GBPS, PRESETS, Device
from cacheblend.trace import Environment
from tests.unit.test_controller import CPU

ENVIRONMENT = Environment(
    model="tiny", device="cpu", dtype="float32", threads=1, torch_version="2", recorded_at="2026-01-01"
)
WORKLOAD = Workload(context_tokens=3072, suffix_tokens=32, reads_per_layer=6)


@pytest.fixture
def planned(monkeypatch):
    """Runs the command; returns its status and how it calibrated."""
    calls = []

    def calibrate(*, recalibrate):
        calls.append(recalibrate)
        return CPU

    def load(*args, **options):
        machine, store = SimpleNamespace(profile=CPU), SimpleNamespace(close=lambda: None)
        return SimpleNamespace(environment=ENVIRONMENT, machine=machine, store=store, calibrate=calibrate)

    monkeypatch.setattr(plan.Engine, "load", load)

    def run(*argv: str) -> list[bool]:
        parser = argparse.ArgumentParser()
        plan.add_arguments(parser)
        assert plan.run(parser.parse_args(argv)) == 0
        return calls

    return run


def test_it_prints_both_answers_for_every_preset(planned, capsys):
    assert planned() == [False]
    said = capsys.readouterr().out
    ratios, devices = said.split("The device for 15%: ")
    assert all(preset.name in ratios and preset.name in devices for preset in PRESETS)
    assert devices.startswith(device_for_ratio(CPU, PRESETS, WORKLOAD).chosen.device.name)
    assert "predicted" in said


def test_json_holds_what_the_controller_chose(planned, tmp_path, capsys):
    out = tmp_path / "plan.json"
    assert planned("--storage", "0.3Gbps", "--latency-ms", "0.5", "--recalibrate", "--json", str(out)) == [True]
    written = json.loads(out.read_text())
    expected = ratio_for_device(CPU, Device(name="own", bandwidth=0.3 * GBPS, latency_ms=0.5), WORKLOAD)
    (row,) = written["ratio_for_device"]
    assert (row["ratio"], row["ttft_ms"]) == pytest.approx((expected.ratio, expected.prediction.ttft_ms))
    assert row["device"] == "0.3Gbps" and row["why"] == expected.why
    assert len(written["device_for_ratio"]["devices"]) == len(PRESETS) + 1


def test_prices_decide_the_device(planned, tmp_path, capsys):
    out = tmp_path / "plan.json"
    planned("--price", "ram=0.001", "--months", "2", "--json", str(out))
    chosen = json.loads(out.read_text())["device_for_ratio"]
    assert chosen["chosen"] == "RAM"
    assert chosen["devices"][0]["cost"] == pytest.approx(0.001 * 2 * 30 * 768 * 3072 / 1e9)


@pytest.mark.parametrize(
    ("argv", "says"), [(["--latency-ms", "1"], "name it with --storage"), (["--price", "3Gbps=1"], "3Gbps")]
)
def test_what_cannot_be_meant_is_one_sentence(planned, argv, says):
    with pytest.raises(ValueError, match=says):
        planned(*argv)
