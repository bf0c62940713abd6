"""Where cached KV is kept and how it is brought in: places, devices and settings, as plain facts.

The standard library only: the page, the controller and the figures use this without torch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

LOSSLESS = "lossless"  # the codec that is always there
GBPS = 1e9 / 8  # one gigabit per second, in bytes per second


class Place(StrEnum):
    """The tiers of a store, fastest first."""

    DEVICE = "accelerator"
    MEMORY = "memory"
    DISK = "disk"
    REMOTE = "remote"


class LoadOrder(StrEnum):
    """What is loaded next while something is being computed."""

    LAYERWISE = "layer-wise"  # layer i+1 of every chunk while layer i is computed (CacheBlend, section 5)
    CAKE = "cake"  # chunks from the back while chunks from the front are computed (Cake, 2410.03065)


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """Something that KV is read from. is_emulated: a real, faster place slowed down to this.

    bandwidth: bytes per second; latency_ms: of one read; jitter: standard deviation of a read's duration as a share of
    it; price: per GB and month, in any currency, for comparing; over_time: (seconds, bandwidth) steps from the start of
    a run on, which replace `bandwidth`.
    """

    name: str
    bandwidth: float = math.inf
    latency_ms: float = 0.0
    jitter: float = 0.0
    price: float = 0.0
    is_emulated: bool = True
    over_time: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        if not self.bandwidth > 0 or any(not b > 0 for _, b in self.over_time):
            raise ValueError(f"the bandwidth of {self.name} must be positive")
        if self.latency_ms < 0 or self.price < 0 or not 0 <= self.jitter <= 1:
            raise ValueError(f"latency and price of {self.name} must not be negative, its jitter lies between 0 and 1")

    def read_ms(self, nbytes: float, reads: int = 1) -> float:
        """How long so many bytes take in so many reads, without jitter."""
        return reads * self.latency_ms + 1000 * nbytes / self.bandwidth


# Bandwidths: the paper's testbed (NVMe) and its figures 10 and 17 (SSD, disk), Cake's table 3 (networks). Latencies and
# prices are ours, round figures of the order that vendors publish; the page lets both be edited.
PRESETS = (
    Device(name="RAM", price=3.0),
    Device(name="NVMe 4.8 GB/s", bandwidth=4.8e9, latency_ms=0.1, price=0.2),
    Device(name="SSD 1 GB/s", bandwidth=1e9, latency_ms=0.1, price=0.1),
    Device(name="disk 4 Gbps", bandwidth=4 * GBPS, latency_ms=0.2, price=0.05),
    Device(name="network 7 Gbps", bandwidth=7 * GBPS, latency_ms=0.5, price=0.025),
    Device(name="network 25 Gbps", bandwidth=25 * GBPS, latency_ms=0.5, price=0.04),
    Device(name="network 32 Gbps", bandwidth=32 * GBPS, latency_ms=0.5, price=0.05),
    Device(name="network 56 Gbps", bandwidth=56 * GBPS, latency_ms=0.3, price=0.08),
    Device(name="network 100 Gbps", bandwidth=100 * GBPS, latency_ms=0.1, price=0.12),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """The tiers of a store and their bounds in bytes; a bound of 0 leaves a tier out, memory is always there.

    accelerator_bytes: used only where the model is on one; disk: a folder that several processes may share; remote:
    redis://host:port/0; codec: what chunks are encoded with on disk and remotely, by name.
    """

    memory_bytes: int = 4 * 2**30
    accelerator_bytes: int = 2 * 2**30
    disk: Path | None = None
    disk_bytes: int = 16 * 2**30
    remote: str | None = None
    codec: str = LOSSLESS

    def __post_init__(self) -> None:
        if self.memory_bytes <= 0 or self.accelerator_bytes < 0 or self.disk_bytes <= 0:
            raise ValueError("the bounds of a store must be positive (accelerator_bytes may be 0)")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadConfig:
    """How cached KV reaches the layer that needs it.

    pipelined: read layer i+1 while layer i is computed, at most `prefetch` layers ahead; device: emulate one by slowing
    the place where the caches really are; codec: what the caches are encoded with on the way, by name; target_ms:
    choose the codec's level for each chunk instead, so that all of them are there by then (CacheGen, section 5.3);
    order: layer by layer, or Cake's two fronts, computing `compute_chunk` tokens at a time; compute_share: emulate a
    processor of which only this share is free.
    """

    pipelined: bool = True
    prefetch: int = 4
    device: Device | None = None
    codec: str = LOSSLESS
    target_ms: float | None = None
    order: LoadOrder = LoadOrder.LAYERWISE
    compute_chunk: int = 512
    compute_share: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "order", LoadOrder(self.order))
        if self.prefetch < 1 or self.compute_chunk < 1:
            raise ValueError("prefetch and compute_chunk must be at least 1")
        if self.target_ms is not None and not (self.target_ms > 0 and self.codec == LOSSLESS):
            raise ValueError("target_ms must be positive, and chooses the codec itself: leave codec at lossless")
        if not 0 < self.compute_share <= 1:
            raise ValueError(f"compute_share must be above 0 and at most 1, got {self.compute_share}")
