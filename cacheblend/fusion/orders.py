"""The orders in which cached KV and computing meet: layer by layer, or from both ends.

Chooses by LoadConfig and tells both in the same terms; the work is in pipeline.py, fusor.py and cake.py.
"""

from __future__ import annotations

import threading
from collections.abc import Container, Sequence
from dataclasses import dataclass

import torch

from cacheblend.fusion.cake import cake
from cacheblend.fusion.evidence import gather
from cacheblend.fusion.extend import LayerObserver
from cacheblend.fusion.fusor import Fused, WriteBack, fuse
from cacheblend.fusion.pipeline import opened
from cacheblend.fusion.policies import SelectionPolicy
from cacheblend.fusion.source import Repair, unread_layers
from cacheblend.fusion.spans import SpanRecorder
from cacheblend.kv import ChunkKey, StoredChunk
from cacheblend.loading import LoadConfig, LoadOrder
from cacheblend.models.layerwise import LayerwiseModel
from cacheblend.prompt import PromptPlan
from cacheblend.store.throttle import emulated
from cacheblend.trace import Deviation


@dataclass(frozen=True, slots=True)
class Brought:
    """A fused prompt. nbytes: read, as stored; met_at: with Cake, tokens computed from the front, else None."""

    fused: Fused
    nbytes: int
    met_at: int | None


def bring(
    model: LayerwiseModel,
    plan: PromptPlan,
    chunks: Sequence[StoredChunk],
    policy: SelectionPolicy,
    loading: LoadConfig,
    *,
    placed_at: torch.Tensor | None = None,
    fresh: Container[ChunkKey] = (),
    are_prefix: bool = False,
    repair: Repair,
    capacity: int,
    deviation: Deviation,
    write_back: WriteBack,
    spans: SpanRecorder,
    observer: LayerObserver | None = None,
    cancel: threading.Event | None,
) -> Brought:
    """Prefill `plan`, whose context is `chunks`, as `loading` asks for it.

    placed_at: as for `fuse`. fresh: chunks that were computed just now, and do not come from the device that is
    emulated; are_prefix: each chunk was prefilled behind all in front of it, so that its KV is exact; repair: gets a
    lost chunk again.
    """
    if loading.order is LoadOrder.LAYERWISE:
        skipped = unread_layers(policy, plan, model.num_layers)
        with opened(
            model,
            chunks,
            capacity,
            loading,
            spans=spans,
            repair=repair,
            fresh=fresh,
            first_layer=skipped,
            cancel=cancel,
        ) as opened_source:
            importance, source = gather(
                policy.evidence, model, plan, opened_source, deviation, spans=spans, cancel=cancel
            )
            fused = fuse(
                model,
                plan,
                source,
                policy,
                importance=importance,
                placed_at=placed_at,
                capacity=capacity,
                deviation=deviation,
                write_back=write_back,
                spans=spans,
                observer=observer,
                cancel=cancel,
            )
        read = 1 - skipped / model.num_layers
        return Brought(fused, round(read * sum(chunk.nbytes for chunk in chunks)), None)
    if policy.evidence is not None or placed_at is not None:
        raise ValueError("Cake computes from the front while it loads: choose HKVD or no recomputation with it.")
    stop = threading.Event()
    caked = cake(
        model,
        plan,
        emulated(loading.device, chunks, fresh, stop),
        None if are_prefix else policy,
        compute_chunk=loading.compute_chunk,
        compute_share=loading.compute_share,
        capacity=capacity,
        deviation=deviation,
        write_back=write_back,
        spans=spans,
        is_emulated=loading.device is not None,
        stop=stop,
        observer=observer,
        cancel=cancel,
    )
    kept = tuple(caked.met_at + count for count in caked.kept_per_layer)
    return Brought(Fused(caked.cache, caked.logits, kept), caked.nbytes, caked.met_at)
