"""Chunks of random KV for tests of where chunks are kept: no model, any dtype, every bit pattern."""

from __future__ import annotations

import torch

from cacheblend.kv import ChunkKey, ChunkKV, LayerKV, StoredChunk
from cacheblend.kv.encoded import decode_into


def random_chunk(
    name: int,
    *,
    tokens: int = 3,
    layers: int = 2,
    kv_heads: int = 2,
    head_dim: int = 8,
    dtype: torch.dtype = torch.bfloat16,
    seed: int | None = None,
) -> ChunkKV:
    """The chunk called `name`, keys and values of random bits: NaN payloads and denormals too."""
    generator = torch.Generator().manual_seed(name if seed is None else seed)
    ids = tuple([name] * tokens)

    def bits() -> torch.Tensor:
        shape = (tokens, kv_heads, head_dim * dtype.itemsize)
        return torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8).view(dtype)

    return ChunkKV(ChunkKey.of("model", ids), ids, tuple(LayerKV(bits(), bits()) for _ in range(layers)))


def bytes_of(kv: LayerKV) -> bytes:
    """Keys, then values, as they lie in memory."""
    return b"".join(bytes(t.contiguous().view(torch.uint8).flatten().tolist()) for t in (kv.keys, kv.values))


def read(chunk: StoredChunk, layer: int) -> bytes:
    """One layer, fetched and decoded as a reader does."""
    out = chunk.empty_layer()
    payload = chunk.fetch(layer, out)
    if payload is not None:
        decode_into(chunk, layer, payload, out)
    return bytes_of(out)


def content(chunk: StoredChunk) -> list[bytes]:
    """Every layer."""
    return [read(chunk, layer) for layer in range(chunk.num_layers)]
