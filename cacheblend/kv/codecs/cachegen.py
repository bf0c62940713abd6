"""CacheGen on a CPU (Liu et al., SIGCOMM 2024, section 5.2): token groups, deltas to an anchor, bins, entropy coding.

Four steps differ from the paper, each because it measures better (benchmarks/codecs.py has the variants beside it):

- The step of quantisation follows each token's own size, head by head. Tokens that much attention goes to, the first
  above all, have small values, and an error on them reaches every answer: KL falls to a tenth at the same size.
- Deltas are taken between quantised numbers, so that anchors need no finer bins; and against none, a quarter, … or all
  of the anchor, whichever makes a channel smallest. In the embedded model neighbouring tokens are hardly alike, neither
  in keys, which are stored before RoPE here, nor in values: the whole delta would have twice the variance.
- Bins are the same in every third of the layers. The paper's, coarser in deeper layers, have the higher KL here.
- Probability tables come from the chunk and travel with it: nothing has to be profiled for a model beforehand.

A token far outside its channels' range is stored in 16 bits a number.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import torch

from cacheblend.kv.chunk import LayerKV
from cacheblend.kv.codecs.arrays import Reader, floats, place
from cacheblend.kv.codecs.entropy import Coder, pack, unpack

_MAGIC = b"CBCG"
_VERSION = 1
_HEADER = struct.Struct("<4sBBHHI")  # magic, version, group, kv_heads, head_dim, tokens
_TABLES = 8  # probability tables of a layer's keys or values; more save less than they cost
_STEPS_PER_OCTAVE = 4  # of a token's size
_FARTHEST = 127  # quantised numbers beyond it make their token an outlier
_REACH = 4  # standard deviations that must lie within it: a wild channel's step is doubled until they do


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheGen:
    """One level.

    bins: the step of quantisation in the first, middle and last third of the layers, as a share of the channels' mean
    standard deviation; group: tokens that share an anchor; shares: how many quarters of the anchor a channel's deltas
    may be taken against; powers: of a token's size that the step of its keys and of its values grows with, 0 for one
    step for all tokens; coder: how numbers become bits.
    """

    name: str
    bins: tuple[float, float, float]
    group: int = 10  # the paper's
    shares: tuple[int, ...] = (0, 1, 2, 3, 4)
    powers: tuple[float, float] = (1.0, 1.25)
    coder: Coder = Coder.HUFFMAN

    def __post_init__(self) -> None:
        if any(not 0.001 <= step < 100 for step in self.bins):
            raise ValueError(f"bins are shares of a standard deviation, from 0.001 to 100, got {self.bins}")
        if any(not 0 <= power <= 1.5 for power in self.powers):  # more would not fit the bytes that sizes are kept in
            raise ValueError(f"powers must lie between 0 and 1.5, got {self.powers}")
        if not 2 <= self.group <= 255 or not self.shares or not set(self.shares) <= set(range(5)):
            raise ValueError("a group has 2 to 255 tokens, and shares are quarters, 0 to 4")

    def encode(self, kv: LayerKV, layer: int, num_layers: int) -> bytes:
        """Keys, then values; ValueError for what is not finite."""
        tokens, kv_heads, head_dim = kv.keys.shape
        step = self.bins[min(3 * layer // num_layers, 2)]
        header = _HEADER.pack(_MAGIC, _VERSION, self.group, kv_heads, head_dim, tokens)
        return header + b"".join(map(self._encode, (kv.keys, kv.values), (step, step), self.powers))

    def decode(self, payload: bytes | memoryview, out: LayerKV) -> None:
        """Decode any level; ValueError if the bytes are not a layer of this shape."""
        reader = Reader(payload)
        magic, version, group, *shape = _HEADER.unpack(reader.take("u1", _HEADER.size).tobytes())
        tokens, kv_heads, head_dim = out.keys.shape
        if (magic, version) != (_MAGIC, _VERSION) or shape != [kv_heads, head_dim, tokens] or group < 2:
            raise ValueError("not a CacheGen payload of this shape")
        for part in (out.keys, out.values):
            _decode(reader, group, part)
        reader.end()

    def _encode(self, tensor: torch.Tensor, bins: float, power: float) -> bytes:
        """One of keys and values (tokens, kv_heads, head_dim)."""
        values = floats(tensor)
        peak = np.float32(np.abs(values).max(initial=0)) or np.float32(1)
        values = values / peak
        sizes = _token_sizes(values, power)
        means = (values.sum(axis=0) / max(len(values), 1)).astype("<f2")
        scaled = (values - means.astype(np.float32)) / _octaves(sizes)
        spread = scaled.std(axis=0) if len(values) else np.zeros_like(means, np.float32)
        step = np.float32(max(bins * spread.mean(), 1e-6))
        widths = np.ceil(np.log2(np.maximum(_REACH * spread / (_FARTHEST * step), 1))).astype(np.uint8)
        numbers = np.rint(scaled / (step * np.exp2(widths, dtype=np.float32))).reshape(len(values), means.size)
        outliers = np.flatnonzero(np.abs(numbers).max(axis=1, initial=0) > _FARTHEST)
        numbers[outliers] = 0
        shares, deltas = self._deltas(numbers.astype(np.int16))
        verbatim, verbatim_scales = _verbatim(values.reshape(numbers.shape)[outliers])
        return b"".join(
            (
                np.array([peak, step], "<f4").tobytes(),
                means.tobytes(),
                np.array(len(outliers), "<u4").tobytes(),
                outliers.astype("<u4").tobytes(),
                verbatim_scales.tobytes(),
                verbatim.tobytes(),
                (shares | widths.reshape(-1) << 3).tobytes(),
                pack(sizes, 1, self.coder),
                pack(deltas, _TABLES, self.coder),
            )
        )

    def _deltas(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The share (channels,) that leaves each channel the smallest numbers; what it leaves (tokens, channels)."""
        candidates = [numbers - _predicted(numbers, self.group, np.int16(share)) for share in self.shares]
        costs = [np.log2(1 + np.abs(deltas)).sum(axis=0) for deltas in candidates]
        best = np.argmin(costs, axis=0)
        deltas = np.take_along_axis(np.stack(candidates), best[None, None, :], axis=0)[0]
        return np.array(self.shares, np.uint8)[best], deltas.astype(np.int8)  # modulo 256, as they are added again


def _decode(reader: Reader, group: int, out: torch.Tensor) -> None:
    """One of keys and values, into a tensor (tokens, kv_heads, head_dim)."""
    tokens, kv_heads, head_dim = out.shape
    channels = kv_heads * head_dim
    peak, step = reader.take("<f4", 2)
    means = reader.take("<f2", kv_heads, head_dim).astype(np.float32)
    num_outliers = int(reader.take("<u4", 1)[0])
    outliers = reader.take("<u4", num_outliers)
    verbatim_scales = reader.take("<f4", num_outliers, 1)
    verbatim = reader.take("<i2", num_outliers, channels)
    settings = reader.take("u1", channels)
    shares, widths = settings & 7, np.exp2((settings >> 3).reshape(kv_heads, head_dim), dtype=np.float32)
    sizes = unpack(reader, tokens, kv_heads)
    numbers = unpack(reader, tokens, channels)
    if shares.any():
        numbers = numbers + _predicted(numbers, group, shares.astype(np.int16)).astype(np.int8)
    if num_outliers and int(outliers.max()) >= tokens:
        raise ValueError("an outlier lies behind the last token")
    values = numbers.reshape(tokens, kv_heads, head_dim) * (_octaves(sizes) * step) * widths + means
    values.reshape(tokens, channels)[outliers] = verbatim * verbatim_scales
    place(values * peak, out)


def _token_sizes(values: np.ndarray, power: float) -> np.ndarray:
    """How large each token of values in [-1, 1] is in each head, int8 (tokens, kv_heads), in quarters of an octave."""
    octaves = np.log2(np.maximum(np.sqrt(np.square(values).mean(axis=2)), 2.0**-20))
    return np.asarray(np.rint(_STEPS_PER_OCTAVE * power * octaves), dtype=np.int8)


def _octaves(sizes: np.ndarray) -> np.ndarray:
    """The factors that `sizes` stand for, float32 (tokens, kv_heads, 1)."""
    factors: np.ndarray = np.exp2(sizes.astype(np.float32) / _STEPS_PER_OCTAVE)
    return factors[:, :, None]


def _predicted(numbers: np.ndarray, group: int, shares: np.ndarray | np.int16) -> np.ndarray:
    """What is expected of numbers (tokens, channels) given every group's first row: that many quarters of it."""
    expected: np.ndarray = np.repeat((numbers[::group] * shares + 2) >> 2, group, axis=0)[: len(numbers)]
    expected[::group] = 0
    return expected


def _verbatim(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows (outliers, channels) in 16 bits each, and the scale of each row (outliers, 1)."""
    scales = np.maximum(np.abs(rows).max(axis=1, keepdims=True, initial=0) / 32767, 1e-30).astype("<f4")
    return np.rint(rows / scales).astype("<i2"), scales
