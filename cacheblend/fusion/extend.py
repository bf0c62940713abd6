"""A KV cache that grows: prefilling rows together, and decoding one at a time.

The ordinary use of a decoder, on the layer loop that fusing also runs on; knows nothing of chunks or reuse.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

import torch

from cacheblend import cancel as cancelling
from cacheblend.fusion.attention import CausalRows, attend
from cacheblend.fusion.spans import SpanRecorder
from cacheblend.kv import LayerKV
from cacheblend.models.layerwise import LayerwiseModel, Rotary
from cacheblend.trace import Lane


class LayerObserver(Protocol):
    """Called once a layer, for those who want to know what went through it."""

    def layer(
        self,
        index: int,
        hidden: torch.Tensor,
        projected: torch.Tensor,
        kept: torch.Tensor,
    ) -> None:
        """hidden (rows, d_model) entered the layer at positions `projected`; positions `kept` went on."""
        ...


class KVCache:
    """Placed keys (after RoPE) and values of one prompt, with room for the tokens to come.

    capacity: tokens it can hold; num_tokens: tokens it holds. The buffers of a fused prompt are taken over, not copied.
    """

    def __init__(
        self, model: LayerwiseModel, capacity: int, layers: Sequence[LayerKV] | None = None, num_tokens: int = 0
    ) -> None:
        shape = (capacity, model.kv_heads, model.head_dim)
        self.capacity = capacity
        self.num_tokens = num_tokens
        self._layers = layers or [
            LayerKV(*(torch.empty(shape, dtype=model.dtype, device=model.device) for _ in range(2)))
            for _ in range(model.num_layers)
        ]

    def layer(self, index: int) -> LayerKV:
        """View of one layer's filled part, each (num_tokens, kv_heads, head_dim)."""
        return self._layers[index].first(self.num_tokens)

    def append(self, index: int, keys: torch.Tensor, values: torch.Tensor) -> LayerKV:
        """Write rows behind the filled part of one layer and return a view that includes them."""
        buffers, stop = self._layers[index], self.num_tokens + keys.shape[0]
        if stop > self.capacity:
            raise ValueError(f"the cache holds {self.capacity} tokens and {stop} are needed")
        buffers.keys[self.num_tokens : stop] = keys
        buffers.values[self.num_tokens : stop] = values
        return buffers.first(stop)

    def crop(self, num_tokens: int) -> None:
        """Forget what lies behind the first tokens."""
        self.num_tokens = min(self.num_tokens, num_tokens)


@torch.inference_mode()
def extend(
    model: LayerwiseModel,
    cache: KVCache,
    token_ids: torch.Tensor,
    *,
    last_only: bool = False,
    spans: SpanRecorder | None = None,
    observer: LayerObserver | None = None,
    cancel: threading.Event | None = None,
) -> torch.Tensor:
    """Run new tokens (rows,) behind what the cache holds, and keep their KV in it.

    Returns next-token logits (rows, vocab), or (1, vocab) with last_only.
    """
    spans = spans or SpanRecorder(model.device)
    start, stop = cache.num_tokens, cache.num_tokens + token_ids.shape[0]
    positions = torch.arange(start, stop)
    rows, rotary = model.causal_rows(positions), model.rotary(positions.to(model.device))
    hidden = model.embed(token_ids)
    for layer in range(model.num_layers):
        cancelling.check(cancel)
        if observer is not None:
            observer.layer(layer, hidden, positions, positions)
        with spans.span(Lane.COMPUTE, f"layer {layer}", layer):
            hidden = extend_layer(model, cache, layer, hidden, rows, rotary)
    cache.num_tokens = stop
    with spans.span(Lane.FIRST_TOKEN, "first token"):
        return model.logits(hidden[-1:] if last_only else hidden)


def extend_layer(
    model: LayerwiseModel, cache: KVCache, layer: int, hidden: torch.Tensor, rows: CausalRows, rotary: Rotary
) -> torch.Tensor:
    """One layer of new rows, hidden (rows, d_model), behind what the cache holds; their KV is written there."""
    q, k, v = model.qkv(layer, hidden)
    kv = cache.append(layer, model.rotate_(layer, k, rotary), v)
    attended = attend(model.rotate_(layer, q, rotary), kv.keys, kv.values, rows, model.scale)
    return model.finish_layer(layer, hidden, attended)


@torch.inference_mode()
def prefill_chunk(
    model: LayerwiseModel,
    token_ids: torch.Tensor,
    *,
    recipe: torch.Tensor | None = None,
    cancel: threading.Event | None = None,
) -> tuple[LayerKV, ...]:
    """KV of a chunk prefilled on its own, keys before RoPE; behind the tokens of a recipe if one is given.

    Returns one LayerKV per layer, each (tokens, kv_heads, head_dim): the recipe's own rows are dropped.
    """
    front = 0 if recipe is None else recipe.shape[0]
    ids = token_ids if recipe is None else torch.cat((recipe, token_ids))
    positions = torch.arange(ids.shape[0])
    rows, rotary = model.causal_rows(positions), model.rotary(positions.to(model.device))
    hidden = model.embed(ids)
    layers = []
    for layer in range(model.num_layers):
        cancelling.check(cancel)
        q, k, v = model.qkv(layer, hidden)
        layers.append(LayerKV(k[front:].clone(), v[front:].clone()))
        attended = attend(model.rotate_(layer, q, rotary), model.rotate_(layer, k, rotary), v, rows, model.scale)
        hidden = model.finish_layer(layer, hidden, attended)
    return tuple(layers)
