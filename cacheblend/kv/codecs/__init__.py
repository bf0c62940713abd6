"""Codecs that chunk KV is stored and sent with. One codec is one file; a new one is added to CODECS."""

from __future__ import annotations

from cacheblend.kv.chunk import LayerKV
from cacheblend.kv.codecs.base import Codec
from cacheblend.kv.codecs.cachegen import CacheGen
from cacheblend.kv.codecs.entropy import Coder
from cacheblend.kv.codecs.int8 import Int8
from cacheblend.kv.codecs.lossless import Lossless

LEVELS = (  # of CacheGen, finest first
    CacheGen(name="cachegen-1", bins=(0.1, 0.1, 0.1)),
    CacheGen(name="cachegen-2", bins=(0.2, 0.2, 0.2)),
    CacheGen(name="cachegen-3", bins=(0.4, 0.4, 0.4)),
    CacheGen(name="cachegen-4", bins=(0.7, 0.7, 0.7), coder=Coder.ANS),  # for space rather than speed
)
CODECS: dict[str, Codec] = {codec.name: codec for codec in (Lossless(), Int8(), *LEVELS)}

__all__ = ["CODECS", "LEVELS", "Codec", "codec", "decode"]


def codec(name: str) -> Codec:
    """Look a codec up by name; ValueError names those there are."""
    if name not in CODECS:
        raise ValueError(f"there is no codec “{name}”; there are {', '.join(CODECS)}.")
    return CODECS[name]


def decode(name: str, payload: bytes | memoryview, out: LayerKV) -> None:
    """Decode one layer that the codec of this name encoded; ValueError if it cannot be."""
    codec(name).decode(payload, out)
