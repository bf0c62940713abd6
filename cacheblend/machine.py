"""What is known of the machine a model runs on: what computing costs, and how fast places read and codecs decode.

Knows spans and bytes. What earlier runs showed stands until a later one; what was never seen is not guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cacheblend.controller import QUALITY_FLOOR, ratio_for_device
from cacheblend.cost import ComputeProfile, Workload
from cacheblend.kv import LOSSLESS
from cacheblend.loading import Device, LoadConfig, LoadOrder, Place
from cacheblend.prediction import predict, predict_cake, predict_full
from cacheblend.trace import Lane, Loading, Span


@dataclass(slots=True)
class Machine:
    """profile: None until it was measured; devices: a place as it was read last; decode_ms: of one token, by codec."""

    profile: ComputeProfile | None = None
    devices: dict[Place, Device] = field(default_factory=dict)
    decode_ms: dict[str, float] = field(default_factory=lambda: {LOSSLESS: 0.0})

    def note(self, loading: Loading, spans: Sequence[Span], context_tokens: int) -> None:
        """Learn from a run whose chunks came from one place. Emulated reads say nothing about the place."""
        load_ms = sum(s.duration_ms for s in spans if s.lane is Lane.LOAD and not s.emulated)
        if len(loading.places) == 1 and load_ms > 0:
            place = loading.places[0]
            bandwidth = 1000 * loading.nbytes / load_ms
            self.devices[place] = Device(name=place, bandwidth=bandwidth, is_emulated=False)
        decode_ms = sum(s.duration_ms for s in spans if s.lane is Lane.DECOMPRESS)
        if loading.codec != LOSSLESS and decode_ms > 0:
            self.decode_ms[loading.codec] = decode_ms / context_tokens

    def device(self, loading: Loading) -> Device | None:
        """The one place that chunks are read from, as fast as it was last time; None if it is not known."""
        return self.devices.get(loading.places[0]) if len(loading.places) == 1 else None

    def choose_ratio(self, device: Device | None, workload: Workload | None) -> float:
        """As much as loading hides, never below the quality floor; the floor where device or codec were never seen."""
        if self.profile is None or device is None or workload is None:
            return QUALITY_FLOOR
        return ratio_for_device(self.profile, device, workload).ratio

    def predict(
        self, device: Device | None, workload: Workload | None, ratio: float, loading: LoadConfig, *, pipelined: bool
    ) -> tuple[Span, ...]:
        """A run as spans that were not measured; none where machine, device or codec are not known."""
        if self.profile is None or device is None or workload is None:
            return ()
        if loading.order is LoadOrder.CAKE:
            return predict_cake(self.profile, device, workload, ratio, compute_share=loading.compute_share).spans
        return predict(self.profile, device, workload, ratio, pipelined=pipelined).spans

    def predict_full(self, num_tokens: int) -> tuple[Span, ...]:
        """Full recompute as spans that were not measured; none on a machine that was never measured."""
        return () if self.profile is None else predict_full(self.profile, num_tokens)
