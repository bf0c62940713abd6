"""Reading ahead: layer i+1 is on its way while layer i is computed (CacheBlend, section 5).

One reader thread runs the very code that reads without a pipeline, so the bytes are the same. On CUDA it works on a
copy stream of its own. Knows nothing of what is computed meanwhile.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import torch

from cacheblend import cancel as cancelling
from cacheblend.fusion.source import ChunkSource, LayerSource, Repair
from cacheblend.fusion.spans import SpanRecorder
from cacheblend.kv import ChunkKey, ChunkKV, ChunkLostError, LayerKV, StoredChunk
from cacheblend.loading import LoadConfig
from cacheblend.models.layerwise import LayerwiseModel
from cacheblend.store.throttle import emulated

CANCEL_CHECK_S = 0.1


@dataclass(frozen=True, slots=True)
class Read:
    """What the reader hands over: a layer, or why it could not be read. ready: the copy stream's mark behind it."""

    kv: LayerKV | BaseException
    ready: torch.cuda.Event | None


class PrefetchedSource:
    """A source that reads at most `depth` layers ahead of the one that was asked for last; layers come in order.

    stop: what a slow device's wait listens to, set on leaving; cancel: ends waiting for a layer with Cancelled. Use as
    a context manager.
    """

    def __init__(
        self,
        source: ChunkSource,
        num_layers: int,
        *,
        depth: int,
        device: torch.device,
        stop: threading.Event,
        cancel: threading.Event | None = None,
    ) -> None:
        self._source, self._num_layers, self._depth = source, num_layers, depth
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._stop, self._cancel = stop, cancel
        self._start(0)

    def layer(self, index: int) -> LayerKV:
        """Wait until a layer is there. A chunk lost meanwhile is mended here, on the thread that computes."""
        while True:
            read = self._wait()
            self._room.release()
            if not isinstance(read.kv, BaseException):
                if read.ready is not None:
                    torch.cuda.current_stream().wait_event(read.ready)
                return read.kv
            self._reader.join()
            if not isinstance(read.kv, ChunkLostError):
                raise read.kv
            self._source.mend(read.kv)
            self._start(index)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the reader, whatever it waits for."""
        self._stop.set()
        self._room.release()
        self._reader.join()

    def _wait(self) -> Read:
        while True:
            try:
                return self._reads.get(timeout=CANCEL_CHECK_S)
            except queue.Empty:
                cancelling.check(self._cancel)

    def _start(self, first: int) -> None:
        self._reads: queue.SimpleQueue[Read] = queue.SimpleQueue()
        self._room = threading.Semaphore(self._depth)
        self._reader = threading.Thread(target=self._run, args=(first,), name="kv reader", daemon=True)
        self._reader.start()

    def _run(self, first: int) -> None:
        with torch.inference_mode(), torch.cuda.stream(self._stream):
            for index in range(first, self._num_layers):
                self._room.acquire()
                if self._stop.is_set():
                    return
                try:
                    kv = self._source.read(index)
                except BaseException as error:  # noqa: BLE001 - raised again in the thread that asked
                    self._reads.put(Read(error, None))
                    return
                self._reads.put(Read(kv, self._mark(kv)))

    def _mark(self, kv: LayerKV) -> torch.cuda.Event | None:
        """Where the copy stream is now; the tensors are used, and later freed, on the computing stream."""
        if self._stream is None:
            return None
        for tensor in (kv.keys, kv.values):
            tensor.record_stream(torch.cuda.default_stream(tensor.device))
        event: torch.cuda.Event = self._stream.record_event()
        return event


def reads_ahead(chunks: Sequence[StoredChunk], loading: LoadConfig) -> bool:
    """Whether a thread reads ahead, if these chunks are asked for like this.

    Plain tensors in memory are copied when they are needed: a second thread would only take the computation's time.
    """
    is_slow = loading.device is not None or any(not isinstance(chunk, ChunkKV) for chunk in chunks)
    return loading.pipelined and is_slow


@contextmanager
def opened(
    model: LayerwiseModel,
    chunks: Sequence[StoredChunk],
    capacity: int,
    loading: LoadConfig,
    *,
    spans: SpanRecorder,
    repair: Repair | None,
    fresh: Container[ChunkKey] = (),
    first_layer: int = 0,
    cancel: threading.Event | None = None,
) -> Iterator[LayerSource]:
    """A source of these chunks as `loading` asks for it: behind an emulated device or not, read ahead or not.

    fresh: chunks that were computed just now, and do not come from the device; first_layer: layers in front of it are
    not read.
    """
    is_pipelined = reads_ahead(chunks, loading)
    stop = threading.Event() if is_pipelined else cancel
    source = ChunkSource(
        model,
        emulated(loading.device, chunks, fresh, stop),
        capacity,
        spans=spans,
        is_emulated=loading.device is not None,
        repair=repair,
        first_layer=first_layer,
    )
    if not is_pipelined or stop is None:
        yield source
        return
    ahead = PrefetchedSource(
        source, model.num_layers, depth=loading.prefetch, device=model.device, stop=stop, cancel=cancel
    )
    with ahead:
        yield ahead
