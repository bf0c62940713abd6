"""Colours keep apart, for readers with deuteranopia too, and importing figures stays light."""

import subprocess
import sys
from itertools import combinations, pairwise

import numpy as np
import pytest

from visualizations import theme

# Linear-RGB deuteranopia simulation (severity 1) of Machado, Oliveira and Fernandes, 2009.
DEUTERANOPIA = np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]])


def _seen(colour: str) -> np.ndarray:
    srgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    return np.clip(DEUTERANOPIA @ linear, 0, 1) ** (1 / 2.2)


def _distance(a: str, b: str) -> float:
    return float(np.linalg.norm(_seen(a) - _seen(b)))


@pytest.mark.parametrize(("a", "b"), combinations(theme.MODE_COLOURS.values(), 2))
def test_modes_are_told_apart(a: str, b: str) -> None:
    assert _distance(a, b) > 0.15


@pytest.mark.parametrize(("a", "b"), pairwise([*theme.LANE_COLOURS.values()]))
def test_neighbouring_lanes_are_told_apart(a: str, b: str) -> None:
    assert _distance(a, b) > 0.1


@pytest.mark.parametrize(("a", "b"), pairwise([theme.PREFIX, *theme.CHUNK_COLOURS, theme.QUESTION]))
def test_neighbouring_chunks_are_told_apart(a: str, b: str) -> None:
    assert _distance(a, b) > 0.1


def test_recomputed_and_reused_are_told_apart() -> None:
    assert _distance(theme.RECOMPUTED, theme.REUSED) > 0.3


def test_css_follows_the_pages_text_colour() -> None:
    assert "var(--body-text-color)" in theme.css()


def test_figures_import_neither_torch_nor_gradio() -> None:
    modules = "agreement, deviation, fronts, perfetto, ratio, theme, timeline, ttft"
    heavy = "{'torch', 'transformers', 'faiss', 'gradio'}"
    code = f"from visualizations import {modules}; import sys; sys.exit(bool({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
