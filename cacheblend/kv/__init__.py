"""Chunk KV and the keys it is found by."""

from cacheblend.kv.chunk import ChunkKey, ChunkKV, LayerKV

__all__ = ["ChunkKV", "ChunkKey", "LayerKV"]
