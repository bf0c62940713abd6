"""One run as the loading controller expects it: when each layer is read, decoded, placed and computed.

CacheBlend (EuroSys'25), section 5.2, on a measured profile instead of one prefill time. Pure arithmetic, no torch;
everything here is predicted, nothing measured. Times are milliseconds from the start of a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from cacheblend.cost import ComputeProfile, LayerCost, Workload
from cacheblend.loading import Device
from cacheblend.meeting import stretch
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CakePrediction:
    """A run from both ends as expected. met_at: tokens computed when the fronts meet, after meet_ms.

    blend_ms: what follows on the rows behind the front; first_token_ms: the logits.
    """

    context_tokens: int
    met_at: int
    meet_ms: float
    blend_ms: float
    first_token_ms: float
    is_emulated: bool

    @property
    def ttft_ms(self) -> float:
        """Time to first token."""
        return self.meet_ms + self.blend_ms + self.first_token_ms

    @property
    def spans(self) -> tuple[Span, ...]:
        """The run as spans to lay beside measured ones; `emulated` where the device is."""
        blended = self.meet_ms + self.blend_ms
        made = (
            _span(Lane.LOAD, None, 0.0, self.meet_ms, emulated=self.is_emulated),
            _span(Lane.COMPUTE, None, 0.0, self.meet_ms),
            _span(Lane.COMPUTE, None, self.meet_ms, blended),
            _span(Lane.FIRST_TOKEN, None, blended, self.ttft_ms),
        )
        names = (
            f"predicted load {stretch(self.met_at, self.context_tokens)}",
            f"predicted compute {stretch(0, self.met_at)}",
            f"predicted blend behind {self.met_at}",
            "predicted first token",
        )
        return tuple(replace(span, name=name) for span, name in zip(made, names, strict=True) if span.duration_ms > 0)


def predict_cake(
    profile: ComputeProfile, device: Device, workload: Workload, ratio: float, *, compute_share: float = 1.0
) -> CakePrediction:
    """Where Cake's fronts meet and when the first token comes, if units were as small as one likes.

    Reading and decoding run beside each other; reads_per_layer is how many units there are in all. What was loaded is
    blended at `ratio` behind a front that is final.
    """
    total, reads = workload.context_tokens, profile.num_layers * workload.reads_per_layer
    nbytes = profile.num_layers * profile.kv_bytes / workload.size_ratio

    def loading_ms(tokens: float) -> float:
        read = _read_until(device, 0.0, nbytes * tokens, 1) + device.latency_ms * (reads * tokens / total - 1)
        return max(read, workload.decode_ms_per_token * tokens, 0.0)

    def computing_ms(tokens: float) -> float:
        layer = profile.project_row + profile.finish_row + profile.causal_cell * tokens / 2
        return (profile.start_row + profile.num_layers * layer) * tokens / compute_share

    low, high = 0.0, float(total)
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if computing_ms(middle) < loading_ms(total - middle) else (low, middle)
    met_at = round(low)
    behind = replace(workload, context_tokens=max(total - met_at, 1))
    rows = ratio * behind.context_tokens + workload.suffix_tokens
    in_front = profile.num_layers * profile.masked_cell * rows * met_at
    costs = sum(sum(cost) for cost in profile.layer_costs(behind, ratio))
    return CakePrediction(
        context_tokens=total,
        met_at=met_at,
        meet_ms=computing_ms(met_at),
        blend_ms=(profile.start_ms(behind, ratio) + costs + in_front) / compute_share,
        first_token_ms=profile.first_token / compute_share,
        is_emulated=device.is_emulated,
    )


def predict_full(profile: ComputeProfile, num_tokens: int) -> tuple[Span, ...]:
    """Full recompute of a prompt as spans: every layer alike, then the logits."""
    done_ms = profile.prefill_ms(num_tokens)
    layer_ms = (done_ms - profile.first_token) / profile.num_layers
    layers = [_span(Lane.COMPUTE, i, i * layer_ms, (i + 1) * layer_ms) for i in range(profile.num_layers)]
    return *layers, _span(Lane.FIRST_TOKEN, None, done_ms - profile.first_token, done_ms)


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
