"""What some policies have to know before the first layer, and the passes over the caches that find it out.

Both are recorded on the lane of selecting, so that a policy pays for them in TTFT.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import torch

from cacheblend import cancel as cancelling
from cacheblend.fusion.deviation import kv_deviation
from cacheblend.fusion.extend import prefill_chunk
from cacheblend.fusion.policies import Evidence
from cacheblend.fusion.source import LayerSource
from cacheblend.fusion.spans import SpanRecorder
from cacheblend.kv import LayerKV
from cacheblend.models.layerwise import LayerwiseModel
from cacheblend.prompt import PromptPlan
from cacheblend.trace import Deviation, Lane


class KeptSource:
    """Layers that a first pass has brought in already, each handed on once (fusion.source.LayerSource)."""

    def __init__(self, layers: Sequence[LayerKV]) -> None:
        self._layers = list(layers)

    def layer(self, index: int) -> LayerKV:
        """One layer's buffers."""
        return self._layers[index]


def gather(
    evidence: Evidence | None,
    model: LayerwiseModel,
    plan: PromptPlan,
    source: LayerSource,
    deviation: Deviation,
    *,
    spans: SpanRecorder,
    cancel: threading.Event | None = None,
) -> tuple[torch.Tensor | None, LayerSource]:
    """Find out what a policy asks for: float32 (layers, context_tokens), and a source that still has every layer.

    evidence None costs nothing and returns the source as it is.
    """
    if evidence is None:
        return None, source
    if evidence is Evidence.QUERY_ATTENTION:
        return query_attention(model, plan, source, spans=spans, cancel=cancel)
    return true_deviation(model, plan, source, deviation, spans=spans, cancel=cancel)


@torch.inference_mode()
def query_attention(
    model: LayerwiseModel,
    plan: PromptPlan,
    source: LayerSource,
    *,
    spans: SpanRecorder,
    cancel: threading.Event | None = None,
) -> tuple[torch.Tensor, LayerSource]:
    """Attention of the suffix to each context token on the reused KV, a layer each, summed over heads and suffix rows.

    One pass of the suffix, as in full reuse; the cached layers are left as they were read.
    """
    num_tokens, front = plan.num_tokens, plan.context_tokens
    rotary = model.rotary(torch.arange(num_tokens, device=model.device))
    rows = torch.arange(front, num_tokens, device=model.device)
    hidden_from = torch.arange(num_tokens, device=model.device) > rows[:, None]
    hidden = model.embed(torch.tensor(plan.token_ids[front:], device=model.device))
    importance = torch.zeros(model.num_layers, front, device=model.device)
    layers: list[LayerKV] = []
    for layer in range(model.num_layers):
        cancelling.check(cancel)
        buffers = source.layer(layer)
        layers.append(buffers)
        with spans.span(Lane.SELECT, f"question at layer {layer}", layer):
            q, k, v = model.qkv(layer, hidden)
            mixed = buffers.first(num_tokens)
            mixed.write(rows, k, v)
            keys = model.rotate(layer, mixed.keys, rotary)
            queries = model.rotate_(layer, q, rotary.at(rows))
            weights = attention_weights(queries, keys, hidden_from, model.scale)
            importance[layer] = weights[..., :front].sum(dim=(0, 1, 2))
            hidden = model.finish_layer(layer, hidden, attended(weights, mixed.values))
    return importance, KeptSource(layers)


@torch.inference_mode()
def true_deviation(
    model: LayerwiseModel,
    plan: PromptPlan,
    source: LayerSource,
    kind: Deviation,
    *,
    spans: SpanRecorder,
    cancel: threading.Event | None = None,
) -> tuple[torch.Tensor, LayerSource]:
    """Squared distance of each context token's cached KV from a full prefill's, a layer each.

    Each layer's is divided by its mean, so that the last layers, whose values are larger, do not decide alone.
    """
    front = plan.context_tokens
    layers = [source.layer(layer) for layer in range(model.num_layers)]
    with spans.span(Lane.SELECT, "full prefill, to know the truth"):
        token_ids = torch.tensor(plan.token_ids[:front], device=model.device)
        true = prefill_chunk(model, token_ids, cancel=cancel)
        distances = torch.stack(
            [kv_deviation(fresh, cached.first(front), kind) for cached, fresh in zip(layers, true, strict=True)]
        )
        means = distances.mean(dim=1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny)
    return distances / means, KeptSource(layers)


def attention_weights(queries: torch.Tensor, keys: torch.Tensor, hidden: torch.Tensor, scale: float) -> torch.Tensor:
    """Attention weights, float32 (kv_heads, group, rows, tokens). hidden: bool (rows, tokens)."""
    rows, heads, head_dim = queries.shape
    kv_heads = keys.shape[1]
    grouped = queries.view(rows, kv_heads, heads // kv_heads, head_dim).permute(1, 2, 0, 3)
    scores = (grouped @ keys.permute(1, 2, 0)[:, None]).float() * scale
    return scores.masked_fill_(hidden, -torch.inf).softmax(-1)


def attended(weights: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Weighted values, (rows, heads * head_dim)."""
    out = weights.to(values.dtype) @ values.transpose(0, 1)[:, None]
    return out.permute(2, 0, 1, 3).flatten(1)
