"""The loading controller: how loading and recomputing overlap, the ratio for a device, the device for a ratio.

CacheBlend (EuroSys'25), sections 5.1 and 5.2, on a measured profile instead of one prefill time. Pure arithmetic, no
torch; everything here is predicted, nothing measured. Times are milliseconds from the start of a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from cacheblend.cost import CACHED_NOT_KEPT, ComputeProfile, LayerCost, Workload
from cacheblend.loading import GBPS, Device
from cacheblend.trace import Lane, Span

QUALITY_FLOOR = 0.15  # r*: the paper's figure 16
TOLERANCE = 0.01  # of a time: less than any two runs differ by
BISECTIONS = 40
SWEPT_RATIOS = tuple(percent / 100 for percent in range(1, 100, 2))


class LayerTimes(NamedTuple):
    """When one layer's work begins; each step ends where the next begins, reading where decoding does."""

    read: float
    decode: float
    decoded: float
    project: float
    place: float
    finish: float
    done: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """One run as expected. start_ms: computing before the first layer; first_token_ms: computing after the last."""

    layers: tuple[LayerTimes, ...]
    start_ms: float
    first_token_ms: float
    is_emulated: bool

    @property
    def ttft_ms(self) -> float:
        """Time to first token."""
        return self.layers[-1].done + self.first_token_ms

    @property
    def load_ms(self) -> float:
        """Reading and decoding, if nothing else held them up."""
        return sum(times.decoded - times.read for times in self.layers)

    @property
    def compute_ms(self) -> float:
        """Placing and computing, if every layer were there at once."""
        return self.start_ms + sum(times.done - times.project for times in self.layers) + self.first_token_ms

    @property
    def last_layer_ms(self) -> float:
        """When the last layer begins to be computed: whatever delays it delays the first token."""
        return self.layers[-1].project

    @property
    def is_loading_hidden(self) -> bool:
        """Whether the first token comes as if every layer but the first, which nothing can hide, were there at once."""
        first_ms = self.layers[0].decoded - self.layers[0].read
        return self.ttft_ms <= (self.compute_ms + first_ms) * (1 + TOLERANCE)

    @property
    def spans(self) -> tuple[Span, ...]:
        """The run as spans to lay beside measured ones; `emulated` where the device is."""
        made = []
        for i, t in enumerate(self.layers):
            made.append(_span(Lane.LOAD, i, t.read, t.decode, emulated=self.is_emulated))
            made.append(_span(Lane.DECOMPRESS, i, t.decode, t.decoded))
            made.append(_span(Lane.COMPUTE, i, t.project, t.place))
            made.append(_span(Lane.PLACE, i, t.place, t.finish))
            made.append(_span(Lane.COMPUTE, i, t.finish, t.done))
        made.append(_span(Lane.FIRST_TOKEN, None, self.layers[-1].done, self.ttft_ms))
        return tuple(span for span in made if span.duration_ms > 0 or span.lane is Lane.FIRST_TOKEN)


def predict(
    profile: ComputeProfile, device: Device, workload: Workload, ratio: float, *, pipelined: bool = True
) -> Prediction:
    """Play one run through. ratio: share of the context that is recomputed, 0 is full reuse.

    Pipelined, layer i is read while earlier ones are computed, at most `prefetch` layers ahead of the one being
    computed; otherwise a layer is read when the one before it is done. Layers that compute every row are not read.
    """
    if not 0 <= ratio <= 1:
        raise ValueError(f"ratio must be in [0, 1], got {ratio}")
    return _played(profile, device, workload, ratio, profile.layer_costs(workload, ratio), pipelined=pipelined)


def _played(
    profile: ComputeProfile,
    device: Device,
    workload: Workload,
    ratio: float,
    costs: Sequence[LayerCost],
    *,
    pipelined: bool = True,
) -> Prediction:
    nbytes = profile.kv_bytes * workload.context_tokens / workload.size_ratio
    decode_ms = workload.decode_ms_per_token * workload.context_tokens / profile.num_layers
    unread = profile.unread_layers(ratio)
    done = start_ms = profile.start_ms(workload, ratio)
    read = 0.0
    layers: list[LayerTimes] = []
    for i, cost in enumerate(costs):
        if not pipelined:
            read = done
        elif i >= workload.prefetch:
            read = max(read, layers[i - workload.prefetch].project)
        decode = read if i < unread else _read_until(device, read, nbytes, workload.reads_per_layer)
        decoded = decode if i < unread else decode + decode_ms
        project = max(done, decoded)
        place = project + cost.project
        finish = place + cost.place
        done = finish + cost.finish
        layers.append(LayerTimes(read, decode, decoded, project, place, finish, done))
        read = decoded
    return Prediction(
        layers=tuple(layers), start_ms=start_ms, first_token_ms=profile.first_token, is_emulated=device.is_emulated
    )


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
        run = _played(profile, device, workload, ratio, costs)
        free = _played(profile, device, workload, ratio, [*costs[:first_free], *suffix_only])
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


def _read_until(device: Device, start_ms: float, nbytes: float, reads: int) -> float:
    """When so many bytes in so many reads are there, following the device's bandwidth over time."""
    now, bandwidth = start_ms + reads * device.latency_ms, device.bandwidth
    for begins_s, following in device.over_time:
        if 1000 * begins_s > now:
            sent = bandwidth * (begins_s - now / 1000)
            if sent >= nbytes:
                break
            nbytes, now = nbytes - sent, 1000 * begins_s
        bandwidth = following
    return now + 1000 * nbytes / bandwidth


def _span(lane: Lane, layer: int | None, start_ms: float, end_ms: float, *, emulated: bool = False) -> Span:
    name = "predicted first token" if layer is None else f"predicted layer {layer}"
    return Span(lane=lane, name=name, layer=layer, start_ms=start_ms, end_ms=end_ms, emulated=emulated)
