"""The controller's two questions for devices nobody has to own: pure predictions, live without a model.

Knows nothing of Gradio. The machine is the paper's until this one has been measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeGuard

from cacheblend.controller import PAPER_PROFILE, device_for_ratio, ratio_for_device, sweep_ratios
from cacheblend.cost import ComputeProfile, Workload
from cacheblend.loading import PRESETS, Device
from ui import devices, notices
from ui.background import stream
from ui.reloading import Step, measured
from ui.sessions import Session
from ui.studio import Studio
from visualizations.ratio import devices_figure, ratio_figure

if TYPE_CHECKING:
    import plotly.graph_objects as go

PAPER, HERE = "paper", "here"
SUFFIX_TOKENS = 32  # a question of ordinary length
MAX_TOKENS = 131_072
UNMEASURED = "This machine has not been measured yet: measure it, or look at the paper's example."


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What to predict for. floor and ratio: shares; prices: of PRESETS, in their order, per GB and month."""

    device: Device
    context_tokens: int
    floor: float
    ratio: float
    prices: tuple[float, ...]


def parse(
    bandwidth: float, latency_ms: float, tokens: float, floor: float, ratio: float, prices: Sequence[Sequence[object]]
) -> Question:
    """Read the form's raw values, percent and MB/s; a Question or a ValueError for the visitor."""
    if not all(_is_number(n) and 0 <= n <= 100 for n in (floor, ratio)):
        raise ValueError("The floor and the ratio must lie between 0 and 100 %.")
    if not _is_number(tokens) or not 1 <= tokens <= MAX_TOKENS:
        raise ValueError(f"The context must have between 1 and {MAX_TOKENS:,} tokens.")
    return Question(
        device=devices.own(bandwidth, "MB/s", latency_ms),
        context_tokens=int(tokens),
        floor=floor / 100,
        ratio=ratio / 100,
        prices=_prices(prices),
    )


def profile_of(studio: Studio, whose: str) -> ComputeProfile:
    """The paper's machine or this one; ValueError while this one is not measured."""
    if whose == PAPER:
        return PAPER_PROFILE
    profile = studio.loaded.machine.profile if studio.loaded else None
    if profile is None:
        raise ValueError(UNMEASURED)
    return profile


def figures(profile: ComputeProfile, question: Question) -> tuple[go.Figure, go.Figure]:
    """TTFT against the ratio on the device asked about, and device by device at the ratio asked about."""
    workload = Workload(context_tokens=question.context_tokens, suffix_tokens=SUFFIX_TOKENS)
    choice = ratio_for_device(profile, question.device, workload, floor=question.floor)
    priced = [replace(device, price=price) for device, price in zip(PRESETS, question.prices, strict=True)]
    return (
        ratio_figure(sweep_ratios(profile, question.device, workload), choice, question.device.name),
        devices_figure(device_for_ratio(profile, priced, workload, question.ratio)),
    )


def measure(studio: Studio, session: Session) -> Iterator[Step]:
    """Load the model if need be, and measure what computing costs here."""
    with session.job() as cancel:
        yield from stream(studio.engine, lambda said: Step(notices.progress(said)))
        yield from measured(studio, cancel, again=True)
    yield Step(notices.done("Measured: the figures are this machine's now."))


def _prices(rows: Sequence[Sequence[object]]) -> tuple[float, ...]:
    prices = [row[-1] for row in rows if isinstance(row, list | tuple) and row]
    numbers = tuple(price for price in prices if _is_number(price) and price >= 0)
    if len(numbers) != len(PRESETS):
        raise ValueError("Every device needs a price, a number of at least 0.")
    return numbers


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
