"""Where chunk caches live."""

from cacheblend.store.memory import MemoryStore

__all__ = ["MemoryStore"]
