"""The default: keys and values as they are, keys first."""

from __future__ import annotations

import numpy as np

from cacheblend.kv.chunk import LayerKV, as_bytes
from cacheblend.loading import LOSSLESS


class Lossless:
    """Raw bytes in the tensors' own dtype."""

    name = LOSSLESS

    def encode(self, kv: LayerKV, layer: int, num_layers: int) -> bytes:
        """Keys, then values."""
        return as_bytes(kv.keys.contiguous()).tobytes() + as_bytes(kv.values.contiguous()).tobytes()

    def decode(self, payload: bytes | memoryview, out: LayerKV) -> None:
        """Copy the bytes back."""
        if len(payload) != out.nbytes:
            raise ValueError(f"{len(payload)} bytes cannot be a layer of {out.nbytes}")
        raw = np.frombuffer(payload, dtype=np.uint8)
        np.copyto(as_bytes(out.keys), raw[: out.keys.nbytes])
        np.copyto(as_bytes(out.values), raw[out.keys.nbytes :])
