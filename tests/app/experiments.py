"""Experiments that measure nothing, in place of the real ones: a step for every question and setting, and points."""

from __future__ import annotations

from cacheblend.evaluation.experiments import EXPERIMENTS, Bench
from cacheblend.evaluation.points import Picked, Point
from cacheblend.trace import Recipe

PICKED = (Picked("none", Recipe.BARE, 0.0), Picked("hkvd", Recipe.BARE, 0.15), Picked("query", Recipe.NEUTRAL, 0.3))
SERIES = ("reuse", "hkvd", "prime")


def frontier(bench: Bench) -> list[Point]:
    """Three points on either panel, and full; whoever watches is told of every step, and may stop it."""
    total = len(bench.asked) * len(PICKED)
    for i in range(total):
        bench.step(i, total, f"question {i // len(PICKED) + 1}, {PICKED[i % len(PICKED)].label}")
        bench.engine._step(bench.cancel)
    bench.left_out.append("Nothing of importance.")
    points = [
        Point(panel=panel, series="full", x=x, y=0.0) for panel, x in (("against budget", 100), ("against TTFT", 1))
    ]
    for i, (series, picked) in enumerate(zip(SERIES, PICKED, strict=True)):
        for panel, x in (("against budget", 100 * picked.ratio), ("against TTFT", 0.2 + picked.ratio)):
            points.append(Point(panel=panel, series=series, x=x, y=2.0 - i, n=len(bench.asked), label=picked.label))
    return points


def install(monkeypatch) -> None:
    """Put it in the place of every experiment."""
    for name in EXPERIMENTS:
        monkeypatch.setitem(EXPERIMENTS, name, frontier)
    monkeypatch.setitem(EXPERIMENTS, "frontier", frontier)
