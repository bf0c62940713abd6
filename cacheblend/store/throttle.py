"""A slow device, emulated: a real and faster place whose reads are held back to a bandwidth and a latency.

The overlap of loading and computing is then really measured. Whatever passes through here is labelled as emulated.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Container, Sequence
from dataclasses import dataclass

from cacheblend.cancel import Cancelled
from cacheblend.kv import ChunkKey, LayerKV, StoredChunk
from cacheblend.loading import Device, Place

# A wait ends a little late. A read that follows at once is given that time back: the wire was never idle.
OVERSLEPT_S = 0.001


class Link:
    """A token bucket that every chunk behind one device shares: reads queue up, as on one wire.

    over_time of the device counts from the first read. Times are seconds of time.perf_counter.
    """

    def __init__(self, device: Device, *, seed: int = 0) -> None:
        self.device = device
        self._random = random.Random(seed)  # noqa: S311 - jitter, not secrets
        self._lock = threading.Lock()
        self._began: float | None = None
        self._free_at = 0.0

    def behind(self, chunk: StoredChunk, stop: threading.Event | None = None) -> StoredChunk:
        """The chunk, read through this link; a wait ends with Cancelled when `stop` is set."""
        return _Throttled(chunk, self, stop or threading.Event())

    def reserve(self, nbytes: int, asked_at: float) -> float:
        """Take the wire for one read and return when it is through."""
        with self._lock:
            if self._began is None:
                self._began = asked_at
            follows = 0 <= asked_at - self._free_at < OVERSLEPT_S
            start = self._free_at if follows else max(asked_at, self._free_at)
            spread = max(0.0, self._random.gauss(1.0, self.device.jitter)) if self.device.jitter else 1.0
            self._free_at = self._through(start + spread * self.device.latency_ms / 1000, spread * nbytes)
            return self._free_at

    def _through(self, now: float, nbytes: float) -> float:
        """When so many bytes are through if they start now."""
        for bandwidth, until in self._rates(now):
            if now + nbytes / bandwidth <= until:
                break
            nbytes -= (until - now) * bandwidth
            now = until
        return now + nbytes / bandwidth

    def _rates(self, now: float) -> list[tuple[float, float]]:
        """The bandwidths from now on, each with the time until which it holds."""
        began = now if self._began is None else self._began
        steps = [(-math.inf, self.device.bandwidth), *((began + at, rate) for at, rate in self.device.over_time)]
        ends = [*(at for at, _ in steps[1:]), math.inf]
        return [(rate, end) for (_, rate), end in zip(steps, ends, strict=True) if end > now]


def emulated(
    device: Device | None, chunks: Sequence[StoredChunk], fresh: Container[ChunkKey], stop: threading.Event | None
) -> list[StoredChunk]:
    """Chunks behind one link, except those that were computed just now; as they are if there is no device."""
    if device is None:
        return list(chunks)
    link = Link(device)
    return [chunk if chunk.key in fresh else link.behind(chunk, stop) for chunk in chunks]


@dataclass(frozen=True, slots=True)
class _Throttled:
    """A stored chunk behind a link. Properties are the chunk's own."""

    chunk: StoredChunk
    link: Link
    stop: threading.Event

    @property
    def key(self) -> ChunkKey:
        return self.chunk.key

    @property
    def token_ids(self) -> tuple[int, ...]:
        return self.chunk.token_ids

    @property
    def num_tokens(self) -> int:
        return self.chunk.num_tokens

    @property
    def num_layers(self) -> int:
        return self.chunk.num_layers

    @property
    def nbytes(self) -> int:
        return self.chunk.nbytes

    @property
    def place(self) -> Place:
        return self.chunk.place

    @property
    def codec(self) -> str:
        return self.chunk.codec

    def empty_layer(self) -> LayerKV:
        return self.chunk.empty_layer()

    def fetch(self, layer: int, out: LayerKV) -> bytes | None:
        """Read for real, then wait until a device as slow as this would be through."""
        asked_at = time.perf_counter()
        payload = self.chunk.fetch(layer, out)
        through = self.link.reserve(out.nbytes if payload is None else len(payload), asked_at)
        while (left := through - time.perf_counter()) > 0:
            if self.stop.wait(left):
                raise Cancelled
        return payload
