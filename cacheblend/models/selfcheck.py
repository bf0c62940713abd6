"""The correctness gate: a model is accepted if its layerwise forward reproduces its own forward.

Replaces a list of blessed model names. Knows the model only through LayerwiseModel and transformers' own call.
"""

from __future__ import annotations

import torch
from transformers import DynamicCache

from cacheblend.fusion.extend import KVCache, extend
from cacheblend.models.layerwise import LayerwiseModel, UnsupportedModelError

NUM_TOKENS = 200
# Largest accepted difference relative to the largest value: float32 differs by summation order only; half-precision
# kernels may round differently for each shape, and a wrong layer is off by its whole size.
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.06, torch.float16: 0.02}


@torch.inference_mode()
def check_model(model: LayerwiseModel, seed: int = 0) -> float:
    """Compare logits and every layer's K and V on random tokens; return the largest relative difference.

    Raises UnsupportedModelError naming what differs and by how much.
    """
    generator = torch.Generator().manual_seed(seed)
    num_tokens = min(NUM_TOKENS, model.context_limit)
    token_ids = torch.randint(model.vocab, (num_tokens,), generator=generator).to(model.device)
    theirs = model.hf_model(token_ids[None], past_key_values=DynamicCache(), use_cache=True)
    cache = KVCache(model, num_tokens)
    logits = extend(model, cache, token_ids)
    pairs = [("logits", logits, theirs.logits[0])]
    for i, layer in enumerate(theirs.past_key_values.layers):
        ours = cache.layer(i)
        pairs += [(f"keys of layer {i}", ours.keys, layer.keys[0].transpose(0, 1))]
        pairs += [(f"values of layer {i}", ours.values, layer.values[0].transpose(0, 1))]
    worst = 0.0
    for what, ours_, theirs_ in pairs:
        difference = _relative_difference(ours_, theirs_)
        if not difference <= TOLERANCE[model.dtype]:
            raise UnsupportedModelError(
                f"the model failed the self-check: its {what} differ from transformers' own forward by "
                f"{difference:.1e} (relative); its architecture is not supported."
            )
        worst = max(worst, difference)
    return worst


def _relative_difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    if ours.shape != theirs.shape:
        return float("inf")
    return float((ours.float() - theirs.float()).abs().max() / theirs.float().abs().max())
