"""How fast a place is read: the latency and bandwidth of a tier, measured on the chunks it holds."""

from __future__ import annotations

import logging
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from cacheblend.fit import nonnegative_fit
from cacheblend.kv import ChunkKey, ChunkKV, ChunkLostError, LayerKV, StoredChunk
from cacheblend.loading import Device
from cacheblend.store.base import Tier, TierFullError

logger = logging.getLogger(__name__)


def measure_device(reads: Iterable[Callable[[], int]], name: str, price: float = 0.0) -> Device:
    """Time reads, each once, and fit latency + bytes / bandwidth to the median of every size. Nothing is emulated.

    reads: each reads once and returns how many bytes. With reads of one size only, all of their time counts as
    bandwidth. ValueError if nothing was read.
    """
    times: dict[int, list[float]] = defaultdict(list)
    for read in reads:
        began = time.perf_counter()
        nbytes = read()
        times[nbytes].append(1000 * (time.perf_counter() - began))
    sizes = sorted(nbytes for nbytes in times if nbytes > 0)
    if not sizes:
        raise ValueError(f"nothing was read from {name}, so its speed is not known")
    latency, per_byte = nonnegative_fit(
        [(float(len(sizes) > 1), nbytes) for nbytes in sizes], [statistics.median(times[nbytes]) for nbytes in sizes]
    )
    bandwidth = 1000 / per_byte if per_byte > 0 else float("inf")
    return Device(name=name, bandwidth=bandwidth, latency_ms=latency, price=price, is_emulated=False)


def measure_tier(tier: Tier, layer: LayerKV, num_layers: int) -> Device | None:
    """Measure a tier on two random chunks that are put there and removed again; None if it cannot take them.

    layer: of the larger chunk, keys and values (tokens, kv_heads, head_dim); the smaller one has a quarter of it.
    """
    chunks = [_probe(layer.first(tokens), num_layers) for tokens in (len(layer.keys) // 4, len(layer.keys))]
    held: list[StoredChunk] = []
    try:
        for prepared in [tier.prepare(chunk) for chunk in chunks]:
            if tier.nbytes + prepared.nbytes > tier.capacity:
                return None
            tier.put(prepared)
            held += filter(None, [tier.get(prepared.key)])
        return measure_device(chunk_reads(held), tier.place)
    except (TierFullError, ChunkLostError, ValueError) as error:
        logger.warning("the speed of %s could not be measured: %s", tier.place, error)
        return None
    finally:
        for chunk in chunks:
            tier.remove(chunk.key)


def _probe(layer: LayerKV, num_layers: int) -> ChunkKV:
    """A chunk of one layer's content in every layer; its model is called by no name a model has."""
    token_ids = tuple(range(len(layer.keys)))
    return ChunkKV(ChunkKey.of("probe", token_ids), token_ids, (layer,) * num_layers)


def chunk_reads(chunks: Sequence[StoredChunk]) -> Iterator[Callable[[], int]]:
    """Reads for `measure_device`: every layer of every chunk, as it is stored, not decoded."""
    for chunk in chunks:
        out = chunk.empty_layer()
        for layer in range(chunk.num_layers):
            yield partial(_fetched_bytes, chunk, layer, out)


def _fetched_bytes(chunk: StoredChunk, layer: int, out: LayerKV) -> int:
    payload = chunk.fetch(layer, out)
    return out.nbytes if payload is None else len(payload)
