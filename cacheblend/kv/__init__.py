"""Chunk KV: the key it is found by, its stored forms, and the codecs it is stored with."""

from cacheblend.kv.chunk import ChunkKey, ChunkKV, ChunkLostError, LayerKV, StoredChunk
from cacheblend.loading import LOSSLESS

__all__ = ["LOSSLESS", "ChunkKV", "ChunkKey", "ChunkLostError", "LayerKV", "StoredChunk"]
