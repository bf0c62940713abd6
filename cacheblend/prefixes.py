"""A stored prefix: a prompt cut into units, each found by everything in front of it, whose KV is exact.

Knows keys and one forward; nothing of where units are kept.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile

import torch

from cacheblend.fusion.extend import prefill_chunk
from cacheblend.kv import ChunkKey, ChunkKV, LayerKV, StoredChunk
from cacheblend.models.layerwise import LayerwiseModel

UNIT_TOKENS = 128  # what Cake loads at once (2410.03065)

Find = Callable[[ChunkKey, tuple[int, ...]], StoredChunk | None]


def cut(token_ids: Sequence[int], unit: int = UNIT_TOKENS) -> list[tuple[int, ...]]:
    """Token ids in units; the last one holds what is left."""
    if unit < 1:
        raise ValueError(f"a unit must have at least 1 token, got {unit}")
    return [tuple(token_ids[start : start + unit]) for start in range(0, len(token_ids), unit)]


def unit_keys(fingerprint: str, token_ids: Sequence[int], unit: int = UNIT_TOKENS, tenant: str = "") -> list[ChunkKey]:
    """What each unit is found by: its tokens, and as its recipe all tokens in front of it."""
    starts = range(0, len(token_ids), unit)
    units = cut(token_ids, unit)
    return [ChunkKey.of(fingerprint, ids, token_ids[:start], tenant) for start, ids in zip(starts, units, strict=True)]


def prefill_units(
    model: LayerwiseModel,
    fingerprint: str,
    token_ids: Sequence[int],
    unit: int = UNIT_TOKENS,
    tenant: str = "",
    *,
    cancel: threading.Event | None = None,
) -> list[ChunkKV]:
    """Every unit's KV from one forward over the whole prefix, keys before RoPE."""
    layers = prefill_chunk(model, torch.tensor(token_ids, device=model.device), cancel=cancel)
    stored, start = [], 0
    for key, ids in zip(unit_keys(fingerprint, token_ids, unit, tenant), cut(token_ids, unit), strict=True):
        stop = start + len(ids)
        stored.append(ChunkKV(key, ids, tuple(_copied(kv.rows(start, stop)) for kv in layers)))
        start = stop
    return stored


def stored_prefix(keys: Iterable[ChunkKey], units: Iterable[tuple[int, ...]], find: Find) -> list[StoredChunk]:
    """The longest prefix that is stored: the units that `find` returns up to the first it does not."""
    found = (find(key, ids) for key, ids in zip(keys, units, strict=True))
    return [unit for unit in takewhile(lambda unit: unit is not None, found) if unit is not None]


def _copied(kv: LayerKV) -> LayerKV:
    """Tensors of its own, so that a unit that is evicted frees its memory."""
    return LayerKV(kv.keys.clone(), kv.values.clone())
