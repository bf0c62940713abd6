"""Cake's front that comes from the back: stored units are read, last one first, until what was computed is met.

Reads and decodes on threads of its own, into buffers of its own. Knows nothing of models' layers or of blending.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import accumulate

import torch

from cacheblend import cancel as cancelling
from cacheblend.fusion.source import decode, fetch
from cacheblend.fusion.spans import SpanRecorder
from cacheblend.kv import ChunkLostError, LayerKV, StoredChunk
from cacheblend.meeting import stretch
from cacheblend.trace import Lane

logger = logging.getLogger(__name__)


class Fronts:
    """How far each side has come in each layer: tokens below `computed` are computed, those from `loaded` on loaded.

    Each side moves its own numbers and reads the other's, so no lock is needed. Computing climbs from layer 0 and
    loading descends to it; so the two have met in every layer when they have met in layer 0.
    """

    def __init__(self, num_layers: int, context_tokens: int) -> None:
        self.computed, self.loaded = [0] * num_layers, [context_tokens] * num_layers

    @property
    def gap(self) -> int:
        """Tokens of layer 0 that neither side has brought yet; zero or less once the fronts have met."""
        return self.loaded[0] - self.computed[0]

    def compute(self, layer: int, stop: int) -> None:
        """Tokens up to stop-1 are computed in this layer."""
        self.computed[layer] = stop

    def load(self, layer: int, start: int) -> None:
        """Tokens from start on are loaded in this layer."""
        self.loaded[layer] = start


class BackFront:
    """Loads units from the back into `buffers`, one LayerKV a layer that covers the context, keys before RoPE.

    A unit's last layer is read first. splits: each layer counts at once, and layers that were computed meanwhile are
    not read, so that both sides bring the last unit together; otherwise a unit counts when it is whole. stop: ends the
    loading between two reads. nbytes: read, as stored; num_lost: units that were not there any more. Loading ends at
    the first of them, because everything in front of it has to be computed anyway.
    """

    def __init__(
        self,
        units: Sequence[StoredChunk],
        buffers: Sequence[LayerKV],
        fronts: Fronts,
        *,
        splits: bool,
        spans: SpanRecorder,
        is_emulated: bool,
        stop: threading.Event,
    ) -> None:
        starts = [0, *accumulate(unit.num_tokens for unit in units)]
        self._units = list(zip(starts, units, strict=False))
        self._buffers, self._fronts, self._splits = buffers, fronts, splits
        self._spans, self._is_emulated, self._stop = spans, is_emulated, stop
        self.nbytes = self.num_lost = 0
        device = buffers[0].keys.device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        if self._stream is not None:  # what still uses the buffers' memory was queued before they were made
            self._stream.wait_stream(torch.cuda.current_stream(device))

    def load(self) -> None:
        """Load until the fronts meet, `stop` is set, or a unit is lost."""
        try:
            with ThreadPoolExecutor(1, thread_name_prefix="kv decoder") as decoder:
                self._load(decoder)
        except cancelling.Cancelled:
            pass  # the other front was there first
        except ChunkLostError as error:
            self.num_lost += 1
            logger.warning("%s; what is in front of its end is computed", error)
        finally:
            self._settle()

    @torch.inference_mode()
    def _load(self, decoder: ThreadPoolExecutor) -> None:
        """While one unit is read, the one behind it is decoded."""
        decoding: Future[None] | None = None
        for start, unit in reversed(self._units):
            if self._fronts.computed[-1] >= start + unit.num_tokens:
                break
            payloads = self._read(start, unit, counts_at_once=self._splits and decoding is None)
            if decoding is not None:
                decoding.result()
            if any(payload is not None for payload in payloads.values()):
                decoding = decoder.submit(self._decode, start, unit, payloads)
            else:
                decoding = None
                self._land(payloads, start)
        if decoding is not None:
            decoding.result()

    def _read(self, start: int, unit: StoredChunk, *, counts_at_once: bool) -> dict[int, bytes | None]:
        """Read layers from the last down to those that were computed meanwhile; None stands for plain tensors."""
        stop, payloads = start + unit.num_tokens, {}
        name = f"load {stretch(start, stop)}"
        with torch.cuda.stream(self._stream), self._spans.span(Lane.LOAD, name, emulated=self._is_emulated):
            for layer in reversed(range(len(self._buffers))):
                cancelling.check(self._stop)
                if self._fronts.computed[layer if self._splits else -1] >= stop:
                    break
                rows = self._buffers[layer].rows(start, stop)
                payload = payloads[layer] = fetch(unit, layer, rows)
                self.nbytes += rows.nbytes if payload is None else len(payload)
                if payload is None and counts_at_once:
                    self._land([layer], start)
        return payloads

    @torch.inference_mode()
    def _decode(self, start: int, unit: StoredChunk, payloads: dict[int, bytes | None]) -> None:
        """Decode a unit's layers in the order in which they were read."""
        stop = start + unit.num_tokens
        name = f"decompress {stretch(start, stop)}"
        with torch.cuda.stream(self._stream), self._spans.span(Lane.DECOMPRESS, name):
            for layer, payload in payloads.items():
                cancelling.check(self._stop)
                if payload is not None:
                    decode(unit, layer, payload, self._buffers[layer].rows(start, stop))
                if self._splits:
                    self._land([layer], start)
        self._land(payloads, start)

    def _land(self, layers: Iterable[int], start: int) -> None:
        """Move the front in some layers, once their bytes are there."""
        self._settle()
        for layer in layers:
            self._fronts.load(layer, start)

    def _settle(self) -> None:
        """Wait until no copy is under way; on a CPU none ever is."""
        if self._stream is not None:
            self._stream.synchronize()
