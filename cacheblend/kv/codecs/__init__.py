"""Codecs that chunk KV is stored and sent with. One codec is one file; a new one is added to CODECS."""

from __future__ import annotations

from cacheblend.kv.chunk import LayerKV
from cacheblend.kv.codecs.base import Codec
from cacheblend.kv.codecs.lossless import Lossless

CODECS: dict[str, Codec] = {codec.name: codec for codec in (Lossless(),)}

__all__ = ["CODECS", "Codec", "codec", "decode"]


def codec(name: str) -> Codec:
    """Look a codec up by name; ValueError names those there are."""
    if name not in CODECS:
        raise ValueError(f"there is no codec “{name}”; there are {', '.join(CODECS)}.")
    return CODECS[name]


def decode(name: str, payload: bytes | memoryview, out: LayerKV) -> None:
    """Decode one layer that the codec of this name encoded; ValueError if it cannot be."""
    codec(name).decode(payload, out)
