"""One run as the loading controller expects it: when each layer is read, decoded, placed and computed.

CacheBlend (EuroSys'25), section 5.2, on a measured profile instead of one prefill time. Pure arithmetic, no torch;
everything here is predicted, nothing measured. Times are milliseconds from the start of a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cacheblend.cost import ComputeProfile, LayerCost, Workload
from cacheblend.loading import Device
from cacheblend.trace import Lane, Span

TOLERANCE = 0.01  # of a time: less than any two runs differ by


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
    return play(profile, device, workload, ratio, profile.layer_costs(workload, ratio), pipelined=pipelined)


def play(
    profile: ComputeProfile,
    device: Device,
    workload: Workload,
    ratio: float,
    costs: Sequence[LayerCost],
    *,
    pipelined: bool = True,
) -> Prediction:
    """`predict` with costs of one's own for the layers."""
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
