"""A recording pass over full, reuse and blend, and the arrays that figures are drawn from. Never timed.

Knows how to run the modes with an observer; what follows from the hidden states they leave is in states.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch

from cacheblend import cancel as cancelling
from cacheblend.config import BlendConfig
from cacheblend.fusion.evidence import gather
from cacheblend.fusion.fusor import fuse
from cacheblend.fusion.policies import AllRows
from cacheblend.fusion.source import ChunkSource
from cacheblend.fusion.spans import SpanRecorder
from cacheblend.inspection.states import HiddenStates, LiveAttention, pool_borders
from cacheblend.kv import StoredChunk
from cacheblend.models.layerwise import LayerwiseModel
from cacheblend.prompt import PromptPlan
from cacheblend.trace import Inspection, Mode, StoredAttention

STORED_SIZE = 64


def inspect_plan(
    model: LayerwiseModel,
    plan: PromptPlan,
    caches: Sequence[StoredChunk],
    fronts: Sequence[tuple[int, ...]],
    blend: BlendConfig,
    mode: Mode = Mode.BLEND,
    *,
    progress: Callable[[int, int], None] | None = None,
    cancel: threading.Event | None = None,
) -> Inspection:
    """Run the prompt in full, reuse and `mode` with an observer; measure, layer by layer, how far both are from full.

    fronts: what stood in front of each chunk when it was prefilled; what a row attended to there is not in any map.
    progress: (passes and layers done, of how many).
    """
    total = 3 + model.num_layers
    report = progress or (lambda done, total: None)
    report(0, total)
    full = HiddenStates()
    fuse(model, plan, ChunkSource(model, (), plan.num_tokens), AllRows(), observer=full, cancel=cancel)
    report(1, total)
    reuse = _reuse_states(model, plan, caches, fronts, blend, cancel)
    report(2, total)
    mixed = HiddenStates()
    policy = blend.selection(mode)
    importance, source = gather(
        policy.evidence,
        model,
        plan,
        ChunkSource(model, caches, plan.num_tokens),
        blend.deviation,
        spans=SpanRecorder(model.device),
        cancel=cancel,
    )
    fuse(
        model,
        plan,
        source,
        policy,
        importance=importance,
        deviation=blend.deviation,
        write_back=blend.write_back,
        observer=mixed,
        cancel=cancel,
    )
    states = LiveAttention(model, plan, full, reuse, mixed, blend.write_back)
    kv: dict[Mode, list[np.ndarray]] = {Mode.REUSE: [], mode: []}
    attention: dict[Mode, list[np.ndarray]] = {Mode.REUSE: [], mode: []}
    for layer in range(model.num_layers):
        cancelling.check(cancel)
        report(3 + layer, total)
        for one in (Mode.REUSE, mode):
            kv[one].append(states.kv_distance(one, layer))
            attention[one].append(states.suffix_attention_distance(one, layer))
    selected = np.zeros((model.num_layers, plan.num_tokens), dtype=bool)
    for layer, rows in enumerate(mixed.kept):
        selected[layer, rows.cpu().numpy()] = True
    report(total, total)
    return Inspection(
        kv_deviation={one: np.stack(rows) for one, rows in kv.items()},
        attention_deviation={one: np.stack(rows) for one, rows in attention.items()},
        selected=selected,
        attention=states,
    )


def store_attention(inspection: Inspection, num_tokens: int, *, size: int = STORED_SIZE, every: int = 1) -> Inspection:
    """Replace live attention maps by pooled ones that can be written to a file.

    every: keep each so-manieth layer, and the last.
    """
    live = inspection.attention
    if not isinstance(live, LiveAttention):
        return inspection
    edges = pool_borders(0, num_tokens, size)
    layers = tuple(sorted({*live.layers[::every], live.layers[-1]}))
    maps: dict[Mode, np.ndarray] = {}
    for mode in inspection.modes:
        by_head = np.nan_to_num([live.pooled(mode, i, range(live.num_heads), edges, edges) for i in layers])
        with_mean = np.concatenate((by_head.mean(1, keepdims=True), by_head), axis=1)
        maps[mode] = (np.sqrt(with_mean.clip(0, 1)) * 255).round().astype(np.uint8)
    stored = StoredAttention(layers=layers, num_heads=live.num_heads, edges=edges, maps=maps)
    return replace(inspection, attention=stored)


def _reuse_states(
    model: LayerwiseModel,
    plan: PromptPlan,
    caches: Sequence[StoredChunk],
    fronts: Sequence[tuple[int, ...]],
    blend: BlendConfig,
    cancel: threading.Event | None,
) -> HiddenStates:
    """Hidden states of full reuse: every segment run alone, the suffix on their caches."""
    parts = []
    for segment, front in zip(plan.context, fronts, strict=True):
        alone = HiddenStates()
        alone_plan = PromptPlan.of((), (), (*front, *plan.ids(segment)))
        source = ChunkSource(model, (), alone_plan.num_tokens)
        fuse(model, alone_plan, source, AllRows(), observer=alone, cancel=cancel)
        parts.append(HiddenStates([hidden[len(front) :] for hidden in alone.hidden]))
    suffix = HiddenStates()
    source = ChunkSource(model, caches, plan.num_tokens)
    fuse(model, plan, source, blend.selection(Mode.REUSE), observer=suffix, cancel=cancel)
    whole = HiddenStates()
    for layer in range(model.num_layers):
        whole.hidden.append(torch.cat([part.hidden[layer] for part in (*parts, suffix)]))
    return whole
