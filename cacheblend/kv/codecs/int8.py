"""Eight bits a number: keys by channel, values by token, each between its own smallest and largest.

Keys are stored before RoPE, so that a channel keeps its range over the tokens. Values are measured better by token: in
the embedded model the KL they add is 6 times lower than by channel (float32, behind their own prefix), because tokens
that much attention goes to have small values.
"""

from __future__ import annotations

import struct

import numpy as np
import torch

from cacheblend.kv.chunk import LayerKV
from cacheblend.kv.codecs.arrays import Reader, floats, place

_MAGIC = b"CBI8"
_VERSION = 1
_HEADER = struct.Struct("<4sBHHI")  # magic, version, kv_heads, head_dim, tokens
_KEY_AXES, _VALUE_AXES = (0,), (1, 2)  # what shares a range in (tokens, kv_heads, head_dim)


class Int8:
    """Asymmetric: 256 even steps from the smallest to the largest number."""

    name = "int8"

    def encode(self, kv: LayerKV, layer: int, num_layers: int) -> bytes:
        """Keys, then values, each with its ranges in front; ValueError for what is not finite."""
        tokens, kv_heads, head_dim = kv.keys.shape
        header = _HEADER.pack(_MAGIC, _VERSION, kv_heads, head_dim, tokens)
        return header + _encode(kv.keys, _KEY_AXES) + _encode(kv.values, _VALUE_AXES)

    def decode(self, payload: bytes | memoryview, out: LayerKV) -> None:
        """Write keys and values; ValueError if the bytes are not a layer of this shape."""
        reader = Reader(payload)
        magic, version, *shape = _HEADER.unpack(reader.take("u1", _HEADER.size).tobytes())
        tokens, kv_heads, head_dim = out.keys.shape
        if (magic, version) != (_MAGIC, _VERSION) or shape != [kv_heads, head_dim, tokens]:
            raise ValueError("not an 8-bit payload of this shape")
        _decode(reader, _KEY_AXES, out.keys)
        _decode(reader, _VALUE_AXES, out.values)
        reader.end()


def _encode(tensor: torch.Tensor, axes: tuple[int, ...]) -> bytes:
    values = floats(tensor).astype(np.float64)
    shape = tuple(1 if i in axes else n for i, n in enumerate(values.shape))
    low, high = (values.min(axis=axes), values.max(axis=axes)) if values.size else (np.zeros(shape), np.zeros(shape))
    low = low.reshape(shape).astype("<f4")
    steps = np.maximum((high.reshape(shape) - low) / 255, 1e-38).astype("<f4")
    codes = np.rint((values - low) / steps).clip(0, 255).astype(np.uint8)
    return b"".join(array.tobytes() for array in (low, steps, codes))


def _decode(reader: Reader, axes: tuple[int, ...], out: torch.Tensor) -> None:
    shape = tuple(1 if i in axes else n for i, n in enumerate(out.shape))
    low, steps = reader.take("<f4", *shape), reader.take("<f4", *shape)
    place(reader.take("u1", *out.shape) * steps + low, out)
