"""What the lossy codecs share: tensors to float32 arrays and back, and a careful reader of payloads.

Numpy throughout: decoding runs beside the computation, where torch would start a second team of threads. Numpy knows no
bfloat16, so that is rounded here by its bits.
"""

from __future__ import annotations

import numpy as np
import torch

from cacheblend.kv.chunk import as_bytes

_BITS = {torch.bfloat16: np.uint16, torch.float16: np.float16, torch.float32: np.float32}

_HALF_RANGE = (-65504.0, 65504.0)  # an error of rounding must not make the largest float16 infinite


def floats(tensor: torch.Tensor) -> np.ndarray:
    """A CPU tensor's values as float32 of the same shape, exact; ValueError unless they are finite 16- or 32-bit."""
    raw = _raw(tensor.contiguous())
    values = (raw.astype(np.uint32) << 16).view(np.float32) if tensor.dtype is torch.bfloat16 else raw
    if not np.isfinite(values).all():
        raise ValueError("KV with infinities or NaN in it cannot be compressed; keep it lossless.")
    return np.asarray(values, dtype=np.float32)


def place(values: np.ndarray, out: torch.Tensor) -> None:
    """Round float32 values to the dtype of a contiguous CPU tensor of the same shape (ties to even) and write them.

    ValueError unless they are finite: they come from a payload that may be damaged.
    """
    if not np.isfinite(values).all():
        raise ValueError("the payload decodes to infinities or NaN")
    target = _raw(out)
    if out.dtype is torch.bfloat16:
        bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
        target[...] = (bits + ((bits >> 16) & 1) + 0x7FFF) >> 16
    else:
        target[...] = values.clip(*_HALF_RANGE) if out.dtype is torch.float16 else values


def _raw(tensor: torch.Tensor) -> np.ndarray:
    if tensor.dtype not in _BITS:
        raise ValueError(f"KV of dtype {tensor.dtype} cannot be compressed; keep it lossless.")
    return as_bytes(tensor).view(_BITS[tensor.dtype]).reshape(tensor.shape)


class Reader:
    """Reads arrays from a payload from the front. ValueError where the payload is too short: it never allocates."""

    def __init__(self, payload: bytes | memoryview) -> None:
        self._rest = memoryview(payload)

    def take(self, dtype: str, *shape: int) -> np.ndarray:
        """The next array of this shape, not copied."""
        count = int(np.prod(shape, dtype=np.int64))
        nbytes = count * np.dtype(dtype).itemsize
        if nbytes > len(self._rest):
            raise ValueError(f"the payload ends early: {nbytes} bytes are wanted, {len(self._rest)} are left")
        taken, self._rest = self._rest[:nbytes], self._rest[nbytes:]
        return np.frombuffer(taken, dtype=dtype, count=count).reshape(shape)

    def rest(self, dtype: str) -> np.ndarray:
        """Everything that is left, as one flat array."""
        count, odd = divmod(len(self._rest), np.dtype(dtype).itemsize)
        if odd:
            raise ValueError("the payload ends in the middle of a number")
        return self.take(dtype, count)

    def end(self) -> None:
        """ValueError unless everything has been read."""
        if self._rest:
            raise ValueError(f"{len(self._rest)} bytes follow the payload")
