"""Where chunk caches live: tiers, and the store that moves chunks between them."""

from cacheblend.store.base import Entry, Tier, TierFullError
from cacheblend.store.disk import DiskTier, Finding, Health
from cacheblend.store.memory import MemoryTier
from cacheblend.store.opening import open_store
from cacheblend.store.remote import RemoteTier
from cacheblend.store.tiered import Happening, Store, StoreEvent, StoreFullError, TierStats

__all__ = [
    "DiskTier",
    "Entry",
    "Finding",
    "Happening",
    "Health",
    "MemoryTier",
    "RemoteTier",
    "Store",
    "StoreEvent",
    "StoreFullError",
    "Tier",
    "TierFullError",
    "TierStats",
    "open_store",
]
