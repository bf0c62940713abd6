"""Prefilling a prompt on cached chunk KV: the layer loop this project exists for (paper, Algorithm 1 and section 4.3).

Knows nothing of text, disks or streams: it sees token ids, a LayerSource and a SelectionPolicy.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from enum import StrEnum

import torch

from cacheblend import cancel as cancelling
from cacheblend.fusion.attention import attend
from cacheblend.fusion.carry import carry_on_
from cacheblend.fusion.deviation import kv_deviation
from cacheblend.fusion.extend import KVCache, LayerObserver
from cacheblend.fusion.policies import SelectionPolicy, SelectionView
from cacheblend.fusion.source import LayerSource
from cacheblend.fusion.spans import SpanRecorder
from cacheblend.kv import LayerKV
from cacheblend.models.layerwise import LayerwiseModel
from cacheblend.prompt import PromptPlan
from cacheblend.trace import Deviation, Lane


class WriteBack(StrEnum):
    """What fresh KV does to cached KV."""

    PROJECTED = "projected"  # replaces it in every row projected at that layer (the authors' code)
    KEPT = "kept"  # replaces it only in the rows that go on (LMCache)
    CARRIED = "carried"  # as PROJECTED, and its change is carried on to rows not computed (ours, fusion/carry.py)


@dataclass(frozen=True, slots=True)
class Fused:
    """What a fuse leaves: the prompt's KV, its next-token logits (vocab,), and the context rows kept per layer."""

    cache: KVCache
    logits: torch.Tensor
    kept_per_layer: tuple[int, ...]


@torch.inference_mode()
def fuse(
    model: LayerwiseModel,
    plan: PromptPlan,
    source: LayerSource,
    policy: SelectionPolicy,
    *,
    importance: torch.Tensor | None = None,
    placed_at: torch.Tensor | None = None,
    front: int = 0,
    capacity: int | None = None,
    deviation: Deviation = Deviation.VALUE,
    write_back: WriteBack = WriteBack.PROJECTED,
    spans: SpanRecorder | None = None,
    observer: LayerObserver | None = None,
    cancel: threading.Event | None = None,
) -> Fused:
    """Prefill `plan` with cached KV from `source`, computing only the rows that `policy` keeps.

    A recomputed row at position p sees tokens 0…p in their mixed KV, never a later one. importance: what the policy's
    evidence is (fusion/evidence.py). placed_at: int64 (tokens,), where keys are placed if not where their tokens stand.
    front: tokens that stand in front of the plan, whose KV the source's buffers begin with, placed and final; rows are
    counted behind them. capacity: what the source's buffers hold, at least front and plan.
    """
    spans = spans or SpanRecorder(model.device)
    num_tokens = front + plan.num_tokens
    rotary = model.rotary(torch.arange(front, num_tokens, device=model.device))
    places = rotary if placed_at is None else model.rotary(placed_at.to(model.device))
    rows = policy.start(plan, importance).to(model.device)
    seen = model.causal_rows(front + rows.cpu())
    hidden = model.embed(torch.tensor(plan.token_ids, device=model.device)[rows])
    layers: list[LayerKV] = []
    counts: list[int] = []
    for layer in range(model.num_layers):
        cancelling.check(cancel)
        buffers = source.layer(layer)
        mixed, cached = buffers.first(num_tokens), buffers.rows(front, num_tokens)
        with spans.span(Lane.COMPUTE, f"layer {layer}", layer):
            q, k, v = model.qkv(layer, hidden)
        kept = None
        if policy.selects_at(layer):
            with spans.span(Lane.SELECT, f"select at layer {layer}", layer):
                pinned = rows >= plan.context_tokens
                distance = _deviation(policy, deviation, rows, LayerKV(k, v), cached).masked_fill(pinned, 0.0)
                kept = policy.select(SelectionView(layer, model.num_layers, rows, distance, pinned, plan, importance))
        with spans.span(Lane.COMPUTE, f"layer {layer}", layer):
            if write_back is WriteBack.CARRIED:
                carry_on_(cached, LayerKV(k, v), rows, plan)
            written = kept if kept is not None and write_back is WriteBack.KEPT else slice(None)
            cached.write(rows[written], k[written], v[written])
        if observer is not None:
            observer.layer(layer, hidden, rows, rows if kept is None else rows[kept])
        if kept is not None:
            rows, hidden, q = rows[kept], hidden[kept], q[kept]
            seen = model.causal_rows(front + rows.cpu())
        with spans.span(Lane.PLACE, f"place layer {layer}", layer):
            model.rotate_(layer, cached.keys, places)
        with spans.span(Lane.COMPUTE, f"layer {layer}", layer):
            queries = model.rotate_(layer, q, rotary.at(rows))
            hidden = model.finish_layer(layer, hidden, attend(queries, mixed.keys, mixed.values, seen, model.scale))
        layers.append(buffers)
        counts.append(len(rows) - (plan.num_tokens - plan.context_tokens))
    with spans.span(Lane.FIRST_TOKEN, "first token"):
        logits = model.logits(hidden[-1:])[0]
    cache = KVCache(model, capacity or num_tokens, layers, num_tokens)
    return Fused(cache, logits, tuple(counts))


def _deviation(
    policy: SelectionPolicy, kind: Deviation, rows: torch.Tensor, fresh: LayerKV, cached: LayerKV
) -> torch.Tensor:
    """How far fresh rows lie from the cached ones, float32 (rows,); zeros for a policy that does not go by it."""
    if not policy.by_deviation:
        return torch.zeros(len(rows), device=rows.device)
    return kv_deviation(fresh, LayerKV(cached.keys[rows], cached.values[rows]), kind)
