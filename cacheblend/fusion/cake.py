"""Cake (2410.03065): compute a context from the front while it is loaded from the back, until the two meet.

Exact where the stored units are the KV of a prefix. Composed with CacheBlend where they are bare chunks: the computed
front is exact, and a policy blends what was loaded. Knows units in any stored form; nothing of tiers or devices.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch

from cacheblend import cancel as cancelling
from cacheblend.fusion.busy import BusySpans
from cacheblend.fusion.extend import KVCache, LayerObserver, extend, extend_layer
from cacheblend.fusion.fronts import BackFront, Fronts
from cacheblend.fusion.fusor import Fused, WriteBack, fuse
from cacheblend.fusion.policies import SelectionPolicy
from cacheblend.fusion.spans import SpanRecorder
from cacheblend.kv import LayerKV, StoredChunk
from cacheblend.meeting import stretch
from cacheblend.models.layerwise import LayerwiseModel
from cacheblend.prompt import PromptPlan
from cacheblend.trace import Deviation, Lane

# Ours: with fewer rows at once a pass over the weights costs more than it saves (CPU, 135M: 128 rows +16 %, 256 none).
MIN_CHUNK = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Cake:
    """What a Cake leaves: the whole prompt's KV, its next-token logits (vocab,), and how the race ended.

    met_at: tokens computed from the front in every layer; nbytes: read from the back, as stored; num_lost: units that
    were stored and could not be read; kept_per_layer: context rows behind `met_at` recomputed in each layer.
    """

    cache: KVCache
    logits: torch.Tensor
    met_at: int
    nbytes: int
    num_lost: int
    kept_per_layer: tuple[int, ...]


@torch.inference_mode()
def cake(
    model: LayerwiseModel,
    plan: PromptPlan,
    stored: Sequence[StoredChunk],
    policy: SelectionPolicy | None = None,
    *,
    compute_chunk: int = 512,  # the paper's
    compute_share: float = 1.0,
    capacity: int | None = None,
    deviation: Deviation = Deviation.VALUE,
    write_back: WriteBack = WriteBack.PROJECTED,
    spans: SpanRecorder | None = None,
    is_emulated: bool = False,
    stop: threading.Event | None = None,
    observer: LayerObserver | None = None,
    cancel: threading.Event | None = None,
) -> Cake:
    """Prefill `plan`, whose context is `stored`: units in the order of the prompt, loaded from the last one on.

    policy: which rows behind the meeting point are recomputed; None where the units are a stored prefix, and exact.
    compute_share: emulate a processor of which only this share is free. is_emulated marks spans of loading; stop: set
    when the fronts have met, for a slow device's wait to listen to; observer: sees the rows that are computed when
    the fronts have met. Neither front waits for the other or estimates anything. ValueError if the units are not the
    context.
    """
    _check(plan, stored)
    capacity, stop = capacity or plan.num_tokens, stop or threading.Event()
    spans = BusySpans(spans or SpanRecorder(model.device), compute_share, model.device)
    computed, loaded = _buffers(model, capacity), _buffers(model, capacity)
    fronts = Fronts(model.num_layers, plan.context_tokens)
    back = BackFront(stored, loaded, fronts, splits=policy is None, spans=spans, is_emulated=is_emulated, stop=stop)
    token_ids = torch.tensor(plan.token_ids, device=model.device)
    cache = KVCache(model, capacity, computed)
    with ThreadPoolExecutor(1, thread_name_prefix="kv reader") as reader:
        loading = reader.submit(back.load)
        try:
            while fronts.gap > 0:
                _compute(model, cache, token_ids, fronts, compute_chunk, spans, cancel)
        finally:
            stop.set()
    loading.result()
    met_at = fronts.computed[-1]
    if policy is None:
        joined = _Joined(computed, loaded, fronts.computed, plan.context_tokens, spans)
        fused = _finish(model, plan, joined, capacity, spans, observer, cancel)
    else:
        fused = fuse(
            model,
            plan.behind(met_at),
            _Joined(computed, loaded, [met_at] * model.num_layers, plan.context_tokens, spans),
            policy,
            front=met_at,
            capacity=capacity,
            deviation=deviation,
            write_back=write_back,
            spans=spans,
            observer=observer,
            cancel=cancel,
        )
    return Cake(
        cache=fused.cache,
        logits=fused.logits,
        met_at=met_at,
        nbytes=back.nbytes,
        num_lost=back.num_lost,
        kept_per_layer=fused.kept_per_layer,
    )


def _compute(
    model: LayerwiseModel,
    cache: KVCache,
    token_ids: torch.Tensor,
    fronts: Fronts,
    most: int,
    spans: SpanRecorder,
    cancel: threading.Event | None,
) -> None:
    """Prefill the next rows. Before each layer those drop out that are loaded from there on: no other row sees them."""
    start = cache.num_tokens
    hidden = model.embed(token_ids[start : start + _next_chunk(fronts, most)])
    num_rows, pace = 0, _Pace(model.device)
    for layer in range(model.num_layers):
        cancelling.check(cancel)
        missing = fronts.loaded[layer] - start
        if missing <= 0:
            break
        hidden = hidden[:missing]
        if len(hidden) != num_rows:
            num_rows = len(hidden)
            positions = torch.arange(start, start + num_rows)
            rows, rotary = model.causal_rows(positions), model.rotary(positions.to(model.device))
        with spans.span(Lane.COMPUTE, f"compute {stretch(start, start + num_rows)}", layer):
            hidden = extend_layer(model, cache, layer, hidden, rows, rotary)
        pace.wait()
        fronts.compute(layer, start + num_rows)
    cache.num_tokens = fronts.computed[0]


def _finish(
    model: LayerwiseModel,
    plan: PromptPlan,
    joined: _Joined,
    capacity: int,
    spans: SpanRecorder,
    observer: LayerObserver | None,
    cancel: threading.Event | None,
) -> Fused:
    """Place what was loaded, and compute the suffix."""
    context, layers = plan.context_tokens, []
    rotary = model.rotary(torch.arange(context, device=model.device))
    for layer, met_at in enumerate(joined.met_at):
        layers.append(joined.layer(layer))
        with spans.span(Lane.PLACE, f"place {stretch(met_at, context)}", layer):
            model.rotate_(layer, layers[layer].rows(met_at, context).keys, rotary.at(slice(met_at, context)))
    cache = KVCache(model, capacity, layers, context)
    suffix = torch.tensor(plan.token_ids[context:], device=model.device)
    logits = extend(model, cache, suffix, last_only=True, spans=spans, observer=observer, cancel=cancel)[0]
    return Fused(cache, logits, (0,) * model.num_layers)


def _next_chunk(fronts: Fronts, most: int) -> int:
    """How many rows to compute at once: half of what is left, since the other side brings about as much meanwhile."""
    return min(most, max(MIN_CHUNK, fronts.gap // 2))


class _Pace:
    """Keeps the host at most one layer ahead of an accelerator, so that “computed” means computed."""

    def __init__(self, device: torch.device) -> None:
        self._is_cuda = device.type == "cuda"
        self._last: torch.cuda.Event | None = None

    def wait(self) -> None:
        """Wait for the layer before the one just queued; nothing on a CPU."""
        if self._is_cuda:
            if self._last is not None:
                self._last.synchronize()
            self._last = torch.cuda.current_stream().record_event()


class _Joined:
    """A LayerSource of both fronts' buffers: the smaller part is copied to the larger, into what is the final cache.

    met_at: for each layer, the tokens to take from what was computed.
    """

    def __init__(
        self,
        computed: Sequence[LayerKV],
        loaded: Sequence[LayerKV],
        met_at: Sequence[int],
        context_tokens: int,
        spans: SpanRecorder,
    ) -> None:
        self._computed, self._loaded, self.met_at = computed, loaded, met_at
        self._context_tokens, self._spans = context_tokens, spans

    def layer(self, index: int) -> LayerKV:
        """One layer of the whole prompt: placed up to the meeting point, before RoPE behind it."""
        computed, loaded, met_at = self._computed[index], self._loaded[index], self.met_at[index]
        if met_at < self._context_tokens - met_at:
            into, source, start, stop = loaded, computed, 0, met_at
        else:
            into, source, start, stop = computed, loaded, met_at, self._context_tokens
        if start < stop:
            with self._spans.span(Lane.PLACE, f"join {stretch(start, stop)}", index):
                into.keys[start:stop].copy_(source.keys[start:stop])
                into.values[start:stop].copy_(source.values[start:stop])
        return into


def _buffers(model: LayerwiseModel, capacity: int) -> list[LayerKV]:
    like = torch.empty(0, dtype=model.dtype, device=model.device)
    shape = (capacity, model.kv_heads, model.head_dim)
    return [LayerKV(like.new_empty(shape), like.new_empty(shape)) for _ in range(model.num_layers)]


def _check(plan: PromptPlan, stored: Sequence[StoredChunk]) -> None:
    token_ids = tuple(token for unit in stored for token in unit.token_ids)
    if token_ids != plan.token_ids[: plan.context_tokens]:
        raise ValueError(
            f"the stored units ({len(token_ids)} tokens) are not the prompt's context ({plan.context_tokens} tokens); "
            "give all units of this context, in order."
        )
