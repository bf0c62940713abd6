"""A stored prefix: a prompt cut into units, each found by everything in front of it, whose KV is exact.

Knows keys and rows of one model; nothing of where units are kept. A unit's key hashes all tokens up to its end, so the
longest run of units that is found is the longest stored prefix: what vLLM does, and a radix tree up to a unit's length.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, pairwise, takewhile

import numpy as np
import torch

from cacheblend.fusion.extend import prefill_chunk
from cacheblend.kv import ChunkKey, ChunkKV, LayerKV, StoredChunk
from cacheblend.models.layerwise import LayerwiseModel

UNIT_TOKENS = 128  # what Cake loads at once (2410.03065)

Find = Callable[[ChunkKey, tuple[int, ...]], StoredChunk | None]


def cut(token_ids: Sequence[int], unit: int = UNIT_TOKENS, borders: Iterable[int] = ()) -> list[tuple[int, ...]]:
    """Token ids in units, each ending after `unit` tokens or at the next border, whichever comes first.

    borders: positions where what follows may differ from prompt to prompt (segments end there).
    """
    if unit < 1:
        raise ValueError(f"a unit must have at least 1 token, got {unit}")
    stops = sorted({0, len(token_ids), *borders})
    starts = [start for begin, stop in pairwise(stops) for start in range(begin, stop, unit)]
    return [tuple(token_ids[start:stop]) for start, stop in pairwise([*starts, len(token_ids)])]


def unit_keys(
    fingerprint: str,
    token_ids: Sequence[int],
    unit: int = UNIT_TOKENS,
    tenant: str = "",
    *,
    borders: Iterable[int] = (),
) -> list[ChunkKey]:
    """What each unit is found by: its tokens, and as its recipe all tokens in front of it."""
    ids = np.asarray(token_ids, dtype=np.int64)
    stops = accumulate((len(part) for part in cut(token_ids, unit, borders)), initial=0)
    return [ChunkKey.of(fingerprint, ids[start:stop], ids[:start], tenant) for start, stop in pairwise(stops)]


def prefill_units(
    model: LayerwiseModel,
    fingerprint: str,
    token_ids: Sequence[int],
    unit: int = UNIT_TOKENS,
    tenant: str = "",
    *,
    borders: Sequence[int] = (),
    cancel: threading.Event | None = None,
) -> list[ChunkKV]:
    """Every unit's KV from one forward over the whole prefix, keys before RoPE."""
    layers = prefill_chunk(model, torch.tensor(token_ids, device=model.device), cancel=cancel)
    keys = unit_keys(fingerprint, token_ids, unit, tenant, borders=borders)
    return units_of(keys, cut(token_ids, unit, borders), layers)


def units_of(keys: Sequence[ChunkKey], units: Sequence[tuple[int, ...]], layers: Sequence[LayerKV]) -> list[ChunkKV]:
    """Cut the KV of consecutive units, one LayerKV a layer that begins with the first of them."""
    stops = accumulate((len(ids) for ids in units), initial=0)
    return [
        ChunkKV(key, ids, tuple(_copied(kv.rows(start, stop)) for kv in layers))
        for key, ids, (start, stop) in zip(keys, units, pairwise(stops), strict=True)
    ]


def stored_prefix(keys: Iterable[ChunkKey], units: Iterable[tuple[int, ...]], find: Find) -> list[StoredChunk]:
    """The longest prefix that is stored: the units that `find` returns up to the first it does not."""
    found = (find(key, ids) for key, ids in zip(keys, units, strict=True))
    return [unit for unit in takewhile(lambda unit: unit is not None, found) if unit is not None]


class ComputedRows:
    """Remembers what entered each layer of a run, so that its keys before RoPE can be had when nobody waits.

    A LayerObserver that only keeps references: the run takes no longer. The keys it left are rotated, and turning them
    back would cost bits; projecting the same rows again gives the bits that the run had.
    """

    def __init__(self) -> None:
        self._hidden: list[torch.Tensor] = []

    def layer(self, index: int, hidden: torch.Tensor, projected: torch.Tensor, kept: torch.Tensor) -> None:
        """Keep what entered the layer."""
        self._hidden.append(hidden)

    @torch.inference_mode()
    def project(self, model: LayerwiseModel) -> list[LayerKV]:
        """K and V of all rows in every layer, keys before RoPE."""
        return [LayerKV(*model.qkv(layer, hidden)[1:]) for layer, hidden in enumerate(self._hidden)]


def _copied(kv: LayerKV) -> LayerKV:
    """Tensors of its own, so that a unit that is evicted frees its memory."""
    return LayerKV(kv.keys.clone(), kv.values.clone())
