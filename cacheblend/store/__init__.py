"""Where chunk caches live."""

from cacheblend.store.memory import MemoryStore, StoreFullError, StoreStats

__all__ = ["MemoryStore", "StoreFullError", "StoreStats"]
