"""Cake's front that comes from the back: stored units are read, last one first, until what was computed is met.

Reads and decodes on threads of its own, into buffers of its own. Knows nothing of models' layers or of blending.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate

import torch

from cacheblend import cancel as cancelling
from cacheblend.fusion.source import decode, fetch
from cacheblend.fusion.spans import SpanRecorder
from cacheblend.kv import ChunkLostError, LayerKV, StoredChunk
from cacheblend.meeting import stretch
from cacheblend.trace import Lane

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Fronts:
    """Tokens in front of `computed` are computed, those from `loaded` on are loaded.

    Each side moves its own number and reads the other's, so no lock is needed. The two have met when computed ≥ loaded;
    where they overlap, both sides were done at the same moment.
    """

    computed: int
    loaded: int

    @property
    def gap(self) -> int:
        """Tokens that neither side has brought yet; zero or less once the fronts have met."""
        return self.loaded - self.computed


class BackFront:
    """Loads units from the back into `buffers`, one LayerKV a layer that covers the context, keys before RoPE.

    stop: ends the loading between two reads. nbytes and num_tokens: what was loaded whole; num_lost: units that were
    not there any more; loading ends at the first, because everything in front of it has to be computed anyway.
    """

    def __init__(
        self,
        units: Sequence[StoredChunk],
        buffers: Sequence[LayerKV],
        fronts: Fronts,
        *,
        spans: SpanRecorder,
        is_emulated: bool,
        stop: threading.Event,
    ) -> None:
        starts = [0, *accumulate(unit.num_tokens for unit in units)]
        self._units = list(zip(starts, units, strict=False))
        self._buffers, self._fronts = buffers, fronts
        self._spans, self._is_emulated, self._stop = spans, is_emulated, stop
        self.nbytes = self.num_tokens = self.num_lost = 0
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

    @torch.inference_mode()
    def _load(self, decoder: ThreadPoolExecutor) -> None:
        """While one unit is read, the one behind it is decoded."""
        decoding: Future[None] | None = None
        for start, unit in reversed(self._units):
            if self._fronts.computed >= start + unit.num_tokens:
                break
            payloads = self._read(start, unit)
            if decoding is not None:
                decoding.result()
            decoding = decoder.submit(self._arrive, start, unit, payloads)
        if decoding is not None:
            decoding.result()

    def _read(self, start: int, unit: StoredChunk) -> list[bytes | None]:
        """Read every layer; plain tensors are in the buffers then, payloads are still to be decoded."""
        stop, payloads = start + unit.num_tokens, []
        name = f"load {stretch(start, stop)}"
        with torch.cuda.stream(self._stream), self._spans.span(Lane.LOAD, name, emulated=self._is_emulated):
            for layer, buffer in enumerate(self._buffers):
                cancelling.check(self._stop)
                payloads.append(fetch(unit, layer, buffer.rows(start, stop)))
        return payloads

    @torch.inference_mode()
    def _arrive(self, start: int, unit: StoredChunk, payloads: list[bytes | None]) -> None:
        """Decode what needs it, and move the front."""
        stop = start + unit.num_tokens
        if any(payload is not None for payload in payloads):
            name = f"decompress {stretch(start, stop)}"
            with torch.cuda.stream(self._stream), self._spans.span(Lane.DECOMPRESS, name):
                for layer, payload in enumerate(payloads):
                    cancelling.check(self._stop)
                    if payload is not None:
                        decode(unit, layer, payload, self._buffers[layer].rows(start, stop))
        if self._stream is not None:
            self._stream.synchronize()
        self.nbytes += unit.nbytes
        self.num_tokens += unit.num_tokens
        self._fronts.loaded = start
