"""How far the KV that a mode ends with is from full's, and what the question makes of the difference.

Measured on the caches that timed passes left behind, placed and whole; nothing of how they came about.
"""

from __future__ import annotations

import torch

from cacheblend.fusion.deviation import kv_deviation
from cacheblend.fusion.evidence import attended, attention_weights
from cacheblend.fusion.extend import KVCache
from cacheblend.models.layerwise import LayerwiseModel
from cacheblend.prompt import PromptPlan
from cacheblend.trace import Deviation


@torch.inference_mode()
def kv_distance(full: KVCache, other: KVCache, plan: PromptPlan, num_layers: int) -> float:
    """Relative L2 distance of the context's K and V, mean over tokens and layers; 0 for full itself."""
    front = plan.context_tokens
    if front == 0:
        return 0.0
    layers = [
        kv_deviation(full.layer(i).first(front), other.layer(i).first(front), Deviation.BOTH).sqrt().mean()
        for i in range(num_layers)
    ]
    return float(torch.stack(layers).mean())


@torch.inference_mode()
def attention_distance(model: LayerwiseModel, full: KVCache, other: KVCache, plan: PromptPlan) -> float:
    """Forward attention deviation (paper, section 4.1): L2 distance of the suffix rows' attention matrices.

    Mean over heads and layers. The suffix is run over both caches side by side; neither is changed.
    """
    front, num_tokens = plan.context_tokens, plan.num_tokens
    rows = torch.arange(front, num_tokens, device=model.device)
    rotary = model.rotary(rows)
    hidden_from = torch.arange(num_tokens, device=model.device) > rows[:, None]
    start = model.embed(torch.tensor(plan.token_ids[front:], device=model.device))
    hiddens = [start, start]
    total = torch.zeros((), device=model.device)
    for layer in range(model.num_layers):
        weights = []
        for which, cache in enumerate((full, other)):
            q, k, v = model.qkv(layer, hiddens[which])
            kv = cache.layer(layer).first(front)
            keys = torch.cat((kv.keys, model.rotate_(layer, k, rotary)))
            weights.append(attention_weights(model.rotate_(layer, q, rotary), keys, hidden_from, model.scale))
            mixed = attended(weights[-1], torch.cat((kv.values, v)))
            hiddens[which] = model.finish_layer(layer, hiddens[which], mixed)
        total += (weights[0] - weights[1]).square().sum(dim=(-2, -1)).sqrt().mean()
    return float(total / model.num_layers)
