"""Cached KV of a whole prompt, handed over layer by layer.

One blocking verb, `layer(i)`: whatever moves bytes stays behind it. Knows chunks in any stored form; nothing of
selection, of how layers are computed, or of reading ahead (pipeline.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from cacheblend.fusion.policies import SelectionPolicy
from cacheblend.fusion.spans import SpanRecorder
from cacheblend.kv import ChunkKV, ChunkLostError, LayerKV, StoredChunk
from cacheblend.kv.encoded import decode_into
from cacheblend.loading import Place
from cacheblend.models.layerwise import LayerwiseModel
from cacheblend.prompt import PromptPlan
from cacheblend.trace import Lane


class LayerSource(Protocol):
    """Where the fusor gets cached KV from."""

    def layer(self, index: int) -> LayerKV:
        """One layer of the whole prompt, keys before RoPE, in buffers the caller may write.

        Each tensor is (capacity, kv_heads, head_dim); what lies behind the cached context is not set.
        """
        ...


Repair = Callable[[ChunkLostError], ChunkKV]


class ChunkSource:
    """Chunks side by side in a private buffer, read one after the other when a layer is asked for.

    spans: where reading and decoding are recorded; is_emulated marks them. repair: gets a chunk again that was lost
    while it was being read; without it ChunkLostError goes to the caller. first_layer: layers in front of it are not
    read, because the fuse computes every row of them (see `unread_layers`). Stored chunks are only read.
    """

    def __init__(
        self,
        model: LayerwiseModel,
        chunks: Sequence[StoredChunk],
        capacity: int,
        *,
        spans: SpanRecorder | None = None,
        is_emulated: bool = False,
        repair: Repair | None = None,
        first_layer: int = 0,
    ) -> None:
        self._chunks, self._repair, self._first_layer = list(chunks), repair, first_layer
        self._shape = (capacity, model.kv_heads, model.head_dim)
        self._like = torch.empty(0, dtype=model.dtype, device=model.device)
        self._spans, self._is_emulated = spans or SpanRecorder(model.device), is_emulated

    def layer(self, index: int) -> LayerKV:
        """Read one layer of every chunk, mending what was lost."""
        while True:
            try:
                return self.read(index)
            except ChunkLostError as error:
                self.mend(error)

    def mend(self, error: ChunkLostError) -> None:
        """Put another copy in the place of a chunk that was lost, or raise `error` if there is no way to get one."""
        if self._repair is None:
            raise error
        mended = self._repair(error)
        self._chunks = [mended if chunk.key == error.key else chunk for chunk in self._chunks]

    def read(self, index: int) -> LayerKV:
        """Read one layer of every chunk; ChunkLostError if one cannot be read."""
        buffers = LayerKV(self._like.new_empty(self._shape), self._like.new_empty(self._shape))
        if not self._chunks or index < self._first_layer:
            return buffers
        encoded = []
        with self._spans.span(Lane.LOAD, f"load layer {index}", index, emulated=self._is_emulated):
            for chunk, rows in zip(self._chunks, self._rows(buffers), strict=True):
                payload = fetch(chunk, index, rows)
                if payload is not None:
                    encoded.append((chunk, rows, payload))
        if encoded:
            with self._spans.span(Lane.DECOMPRESS, f"decompress layer {index}", index):
                for chunk, rows, payload in encoded:
                    decode(chunk, index, payload, rows)
        return buffers

    def _rows(self, buffers: LayerKV) -> list[LayerKV]:
        """Each chunk's place in the buffers."""
        views, start = [], 0
        for chunk in self._chunks:
            views.append(buffers.rows(start, start + chunk.num_tokens))
            start += chunk.num_tokens
        return views


def unread_layers(policy: SelectionPolicy, plan: PromptPlan, num_layers: int) -> int:
    """How many layers from the first on overwrite all cached KV before anybody looks at it.

    Blend computes every row until it selects, so the KV of layer 0, which never deviates, need not be brought in. A
    policy that asks for evidence looks at every layer.
    """
    if policy.evidence is not None or len(policy.start(plan)) < plan.num_tokens:
        return 0
    return next((layer for layer in range(num_layers) if policy.selects_at(layer)), num_layers)


def fetch(chunk: StoredChunk, layer: int, rows: LayerKV) -> bytes | None:
    """Read one layer of a chunk into `rows`, on whatever device they are; encoded bytes are returned for `decode`."""
    if rows.keys.device.type == "cpu" or chunk.place in (Place.DEVICE, Place.MEMORY):
        return chunk.fetch(layer, rows)
    staged = _pinned(rows)
    payload = chunk.fetch(layer, staged)
    if payload is None:
        _upload(staged, rows)
    return payload


def decode(chunk: StoredChunk, layer: int, payload: bytes, rows: LayerKV) -> None:
    """Decode what `fetch` returned into `rows`; ChunkLostError if the bytes are not what was written."""
    if rows.keys.device.type == "cpu":
        decode_into(chunk, layer, payload, rows)
        return
    staged = _pinned(rows)
    decode_into(chunk, layer, payload, staged)
    _upload(staged, rows)


def _pinned(rows: LayerKV) -> LayerKV:
    """Page-locked host buffers of the same shape, from which a copy does not hold the host up."""
    return LayerKV(*(torch.empty(t.shape, dtype=t.dtype, pin_memory=True) for t in (rows.keys, rows.values)))


def _upload(staged: LayerKV, rows: LayerKV) -> None:
    rows.keys.copy_(staged.keys, non_blocking=True)
    rows.values.copy_(staged.values, non_blocking=True)
