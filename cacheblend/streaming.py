"""Chunks in the form in which they meet a latency target: a level of a codec each, or to be computed again.

Encodes every chunk at every level, as a store that streams would have done beforehand, and lets compression.py choose.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from cacheblend.compression import RECOMPUTE, StreamedChunk, plan
from cacheblend.kv import LOSSLESS, ChunkKV, StoredChunk
from cacheblend.kv.codecs import LEVELS
from cacheblend.kv.encoded import EncodedChunk, materialise


def in_time(
    chunks: Sequence[ChunkKV],
    target_ms: float,
    bandwidth: float,
    decode_ms: dict[str, float],
    recompute_ms: Callable[[int], float],
) -> list[StoredChunk | None]:
    """Each chunk at the finest level at which all are there within target_ms; None where computing it is sooner.

    bandwidth: bytes per second; decode_ms: of one token by codec, measured here for a codec that is missing in it;
    recompute_ms: of so many tokens.
    """
    forms: list[dict[str, StoredChunk]] = []
    for chunk in chunks:
        encoded = {level.name: EncodedChunk.of(chunk, level) for level in LEVELS}
        for name, form in encoded.items():
            if name not in decode_ms:
                began = time.perf_counter()
                materialise(form)
                decode_ms[name] = 1000 * (time.perf_counter() - began) / chunk.num_tokens
        forms.append({LOSSLESS: chunk, **encoded})
    streamed = [
        StreamedChunk.of(
            chunk.num_tokens,
            {name: form.nbytes for name, form in levels.items()},
            decode_ms,
            recompute_ms(chunk.num_tokens),
        )
        for chunk, levels in zip(chunks, forms, strict=True)
    ]
    choices = plan(streamed, target_ms, bandwidth)
    return [
        None if choice.level == RECOMPUTE else levels[choice.level]
        for choice, levels in zip(choices, forms, strict=True)
    ]
