"""A store from its settings."""

from __future__ import annotations

import torch

from cacheblend.kv.codecs import codec
from cacheblend.loading import StoreConfig
from cacheblend.store.base import Tier
from cacheblend.store.disk import DiskTier
from cacheblend.store.memory import MemoryTier
from cacheblend.store.remote import RemoteTier
from cacheblend.store.tiered import Store


def open_store(config: StoreConfig, device: torch.device | str = "cpu") -> Store:
    """Open every tier that is asked for; ValueError or OSError says what is wrong with a folder or an address."""
    tiers: list[Tier] = []
    if torch.device(device).type != "cpu" and config.accelerator_bytes:
        tiers.append(MemoryTier(config.accelerator_bytes, device))
    tiers.append(MemoryTier(config.memory_bytes))
    if config.disk is not None:
        tiers.append(DiskTier(config.disk, config.disk_bytes, codec(config.codec)))
    if config.remote is not None:
        tiers.append(RemoteTier(config.remote, codec(config.codec)))
    return Store(tiers)
