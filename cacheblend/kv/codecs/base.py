"""What a codec does: one layer of one chunk to bytes and back."""

from __future__ import annotations

from typing import Protocol

from cacheblend.kv.chunk import LayerKV


class Codec(Protocol):
    """Encodes layers one at a time, so that loading can be pipelined. Decoding needs nothing but the bytes."""

    @property
    def name(self) -> str:
        """What it is called in files, settings and on the page."""
        ...

    def encode(self, kv: LayerKV, layer: int, num_layers: int) -> bytes:
        """One layer, CPU tensors (tokens, kv_heads, head_dim), as bytes. The layer may decide how coarse it gets."""
        ...

    def decode(self, payload: bytes | memoryview, out: LayerKV) -> None:
        """Write what was encoded into `out`, of the same shape; ValueError if the bytes cannot be that."""
        ...
