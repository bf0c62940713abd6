"""The loading controller: the ratio for a device, and the device for a ratio.

CacheBlend (EuroSys'25), section 5.1. Pure arithmetic on predictions, no torch; nothing here was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from cacheblend.cost import CACHED_NOT_KEPT, ComputeProfile, Workload
from cacheblend.loading import GBPS, Device
from cacheblend.prediction import Prediction, play, predict

QUALITY_FLOOR = 0.15  # r*: the paper's figure 16
BISECTIONS = 40
SWEPT_RATIOS = tuple(percent / 100 for percent in range(1, 100, 2))


# The ratio for a device


class RatioReason(StrEnum):
    """Why a ratio was chosen."""

    HIDDEN = "loading hides that much recomputing and no more"
    FLOOR = "loading hides less than quality needs, so quality decides"
    ALL = "computing everything takes no longer than loading"


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioChoice:
    """The ratio for a device. hidden_ratio: the largest that loading hides (r0); prediction: pipelined, at `ratio`.

    everything_ms: TTFT at ratio 1, for which nothing is loaded.
    """

    ratio: float
    hidden_ratio: float
    floor: float
    why: RatioReason
    prediction: Prediction
    everything_ms: float


def hidden_ratio(profile: ComputeProfile, device: Device, workload: Workload) -> float:
    """The largest ratio that loading hides, in [0, 1] (the paper's r0); 0 if it hides none.

    Hidden means free: behind the layer that chooses rows, recomputing them delays nothing, so that the last layer
    begins no later than if those layers kept no row of the context. What is computed whatever the ratio is (all rows
    of the first layers, the suffix in each) is not held against it, nor are the pipeline's two ends: the choosing
    layer, which a bounded prefetch makes the reader wait for, and the last, for which no loading is left. At ratio 1
    nothing is loaded: that is free if the first token is there before loading could have brought it.
    """
    first_free = profile.check_layer + 1
    suffix_only = profile.layer_costs(workload, CACHED_NOT_KEPT)[first_free:]

    def is_hidden(ratio: float) -> bool:
        costs = profile.layer_costs(workload, ratio)
        run = play(profile, device, workload, ratio, costs)
        free = play(profile, device, workload, ratio, [*costs[:first_free], *suffix_only])
        return run.last_layer_ms <= free.last_layer_ms * (1 + 1e-9)

    if predict(profile, device, workload, 1.0).ttft_ms <= predict(profile, device, workload, CACHED_NOT_KEPT).ttft_ms:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if is_hidden(middle) else (low, middle)
    return low


def ratio_for_device(
    profile: ComputeProfile, device: Device, workload: Workload, floor: float = QUALITY_FLOOR
) -> RatioChoice:
    """Recompute as much as loading hides, and never less than quality needs: max(r0, r*) (paper, section 5.1).

    And everything, where that takes no longer.
    """
    if not 0 <= floor <= 1:
        raise ValueError(f"the quality floor must be in [0, 1], got {floor}")
    hidden = hidden_ratio(profile, device, workload)
    ratio, why = max(hidden, floor), RatioReason.FLOOR if hidden < floor else RatioReason.HIDDEN
    prediction, everything = (predict(profile, device, workload, r) for r in (ratio, 1.0))
    if everything.ttft_ms <= prediction.ttft_ms:
        ratio, why, prediction = 1.0, RatioReason.ALL, everything
    return RatioChoice(
        ratio=ratio,
        hidden_ratio=hidden,
        floor=floor,
        why=why,
        prediction=prediction,
        everything_ms=everything.ttft_ms,
    )


# The device for a ratio


class DeviceReason(StrEnum):
    """Why a device was chosen."""

    CHEAPEST = "the cheapest whose loading recomputing hides"
    FASTEST = "recomputing hides the loading of none, so the fastest"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRow:
    """One device at a given ratio. cost: of keeping the context's KV there, in the currency of the device's price."""

    device: Device
    cost: float
    pipelined: Prediction
    unpipelined: Prediction

    @property
    def is_hidden(self) -> bool:
        """Whether recomputing hides its loading."""
        return self.pipelined.is_loading_hidden


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceChoice:
    """The device for a ratio. rows: every device, cheapest first."""

    chosen: DeviceRow
    why: DeviceReason
    ratio: float
    rows: tuple[DeviceRow, ...]


def device_for_ratio(
    profile: ComputeProfile,
    devices: Sequence[Device],
    workload: Workload,
    ratio: float = QUALITY_FLOOR,
    months: float = 1,
) -> DeviceChoice:
    """The cheapest device whose loading the recomputing hides; the fastest if it hides none (paper, section 5.1).

    The paper prints no formula for the cost of storing: here price per GB and month × gigabytes × months. Of equal
    costs the sooner first token wins, of equal first tokens the cheaper device, then the one named first.
    """
    if not devices or months < 0:
        raise ValueError("a choice needs at least one device, and months must not be negative")
    gigabytes = profile.num_layers * profile.kv_bytes * workload.context_tokens / workload.size_ratio / 1e9
    rows = [
        DeviceRow(
            device=device,
            cost=device.price * gigabytes * months,
            pipelined=predict(profile, device, workload, ratio),
            unpipelined=predict(profile, device, workload, ratio, pipelined=False),
        )
        for device in devices
    ]
    rows.sort(key=lambda row: (row.cost, row.pipelined.ttft_ms))
    hidden = [row for row in rows if row.is_hidden]
    chosen = hidden[0] if hidden else min(rows, key=lambda row: row.pipelined.ttft_ms)
    why = DeviceReason.CHEAPEST if hidden else DeviceReason.FASTEST
    return DeviceChoice(chosen=chosen, why=why, ratio=ratio, rows=tuple(rows))


# Sweeps, for figures


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioRow:
    """Predicted times to first token at one ratio, in milliseconds."""

    ratio: float
    pipelined_ms: float
    unpipelined_ms: float


def sweep_ratios(
    profile: ComputeProfile, device: Device, workload: Workload, ratios: Sequence[float] = SWEPT_RATIOS
) -> tuple[RatioRow, ...]:
    """TTFT against the ratio (the paper's figure 10a); `device_for_ratio` gives the rows of figure 10b.

    The ends are left out: at 0 (full reuse) and 1 (full recompute) other layers are computed and read.
    """
    return tuple(
        RatioRow(
            ratio=ratio,
            pipelined_ms=predict(profile, device, workload, ratio).ttft_ms,
            unpipelined_ms=predict(profile, device, workload, ratio, pipelined=False).ttft_ms,
        )
        for ratio in ratios
    )


# The paper's own example, figure 10, read off its drawing: 1.2 s of loading from an SSD of 1 GB/s and a prefill of
# 4.466 s, of which a ratio costs its share in every layer alike. Tokens and layers are not printed; only these products
# matter. Prices are ours.
PAPER_WORKLOAD = Workload(context_tokens=5000, suffix_tokens=0)
PAPER_PROFILE = ComputeProfile(
    label="CacheBlend, figure 10",
    num_layers=60,
    kv_bytes=4000,
    finish_row=4466 / 60 / 5000,
    check_layer=0,
)
PAPER_DEVICES = (
    Device(name="GPU", price=30.0),
    Device(name="CPU RAM", bandwidth=12e9, price=3.0),
    Device(name="SSD 32 Gbps", bandwidth=32 * GBPS, price=0.2),
    Device(name="SSD 4 Gbps", bandwidth=4 * GBPS, price=0.05),
)
