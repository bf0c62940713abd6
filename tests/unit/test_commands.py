"""The command line without a model: looking after caches, and reading devices and sizes."""

from __future__ import annotations

import argparse

import pytest

from cacheblend.cli import main
from cacheblend.commands.options import device
from cacheblend.loading import GBPS
from cacheblend.store import DiskTier
from tests.unit.store.test_tiered import entry


@pytest.fixture
def folder(tmp_path):
    tier = DiskTier(tmp_path / "kv", 10**9)
    for name in range(3):
        tier.put(tier.prepare(entry(name, 40)))
    tier.close()
    return tmp_path / "kv"


def test_stats_count_what_is_kept(folder, capsys):
    assert main(["store", "stats", "--kv-cache", str(folder)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("disk: 3 chunks, 0.000 of 16.0 GB, last used 20")


def test_verify_names_and_removes_what_is_damaged(folder, capsys):
    assert main(["store", "verify", "--kv-cache", str(folder)]) == 0
    assert "3 good, 0 damaged" in capsys.readouterr().out
    largest = max((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    data = bytearray(largest.read_bytes())
    data[-1] ^= 1
    largest.write_bytes(data)
    assert main(["store", "verify", "--kv-cache", str(folder)]) == 1
    said = capsys.readouterr().out
    assert "2 good, 1 damaged" in said and largest.name in said
    assert main(["store", "verify", "--kv-cache", str(folder)]) == 0


def test_clear_drops_everything(folder, capsys):
    assert main(["store", "clear", "--kv-cache", str(folder)]) == 0
    assert "3 chunks dropped" in capsys.readouterr().out
    assert len(DiskTier(folder, 10**9)) == 0


def test_nothing_to_look_after_is_one_sentence(capsys):
    assert main(["store", "stats", "--no-disk"]) == 2
    assert "nothing to look after" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "bandwidth"), [("7Gbps", 7 * GBPS), ("500 MB/s", 5e8), ("1.5 gb/s", 1.5e9), ("80 Mbps", 1e7)]
)
def test_a_device_by_bandwidth(text, bandwidth):
    assert device(text).bandwidth == pytest.approx(bandwidth) and device(text).is_emulated


def test_a_device_by_name():
    assert device("ssd 1 gb/s").name == "SSD 1 GB/s"
    for wrong in ("fast", "0 GB/s", "-1 Gbps", "7"):
        with pytest.raises(argparse.ArgumentTypeError, match="neither a bandwidth"):
            device(wrong)
