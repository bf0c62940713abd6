"""Looking inside: a recording pass over full, reuse and blend, and the arrays that figures are drawn from.

Keeps the hidden states that entered every layer; K, V and attention of any layer follow from them by one projection, so
an attention matrix is computed when it is asked for and never held whole. Never timed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from cacheblend import cancel as cancelling
from cacheblend.config import BlendConfig
from cacheblend.fusion.deviation import kv_deviation
from cacheblend.fusion.fusor import WriteBack, fuse
from cacheblend.fusion.policies import AllRows
from cacheblend.fusion.source import MemorySource
from cacheblend.kv import ChunkKV, LayerKV
from cacheblend.models.layerwise import LayerwiseModel
from cacheblend.prompt import PromptPlan
from cacheblend.trace import AttentionWindow, Deviation, Inspection, Mode, StoredAttention

ROW_BLOCK = 256  # attention rows held at once
STORED_SIZE = 64


@dataclass
class _Hidden:
    """Observes a fuse: per layer the hidden states that entered it, at which positions, and which rows went on."""

    hidden: list[torch.Tensor] = field(default_factory=list)
    projected: list[torch.Tensor] = field(default_factory=list)
    kept: list[torch.Tensor] = field(default_factory=list)

    def layer(
        self,
        index: int,
        hidden: torch.Tensor,
        projected: torch.Tensor,
        kept: torch.Tensor,
        deviation: torch.Tensor | None,
    ) -> None:
        self.hidden.append(hidden)
        self.projected.append(projected)
        self.kept.append(kept)


def inspect_plan(
    model: LayerwiseModel,
    plan: PromptPlan,
    caches: Sequence[ChunkKV],
    blend: BlendConfig,
    *,
    progress: Callable[[int, int], None] | None = None,
    cancel: threading.Event | None = None,
) -> Inspection:
    """Run the prompt in every mode with an observer and measure, layer by layer, how far reuse and blend are from full.

    progress: (passes and layers done, of how many).
    """
    total = 3 + model.num_layers
    report = progress or (lambda done, total: None)
    report(0, total)
    full = _Hidden()
    fuse(model, plan, MemorySource(model, (), plan.num_tokens), AllRows(), observer=full, cancel=cancel)
    report(1, total)
    reuse = _reuse_states(model, plan, caches, blend, cancel)
    report(2, total)
    mixed = _Hidden()
    source = MemorySource(model, caches, plan.num_tokens)
    fuse(
        model,
        plan,
        source,
        blend.policy(Mode.BLEND),
        deviation=blend.deviation,
        write_back=blend.write_back,
        observer=mixed,
        cancel=cancel,
    )
    states = LiveAttention(model, plan, full, reuse, mixed, blend.write_back)
    kv: dict[Mode, list[np.ndarray]] = {Mode.REUSE: [], Mode.BLEND: []}
    attention: dict[Mode, list[np.ndarray]] = {Mode.REUSE: [], Mode.BLEND: []}
    for layer in range(model.num_layers):
        cancelling.check(cancel)
        report(3 + layer, total)
        for mode in (Mode.REUSE, Mode.BLEND):
            kv[mode].append(states.kv_distance(mode, layer))
            attention[mode].append(states.suffix_attention_distance(mode, layer))
    selected = np.zeros((model.num_layers, plan.num_tokens), dtype=bool)
    for layer, rows in enumerate(mixed.kept):
        selected[layer, rows.cpu().numpy()] = True
    report(total, total)
    return Inspection(
        kv_deviation={mode: np.stack(rows) for mode, rows in kv.items()},
        attention_deviation={mode: np.stack(rows) for mode, rows in attention.items()},
        selected=selected,
        attention=states,
    )


def store_attention(inspection: Inspection, num_tokens: int, size: int = STORED_SIZE) -> Inspection:
    """Replace live attention maps by pooled ones that can be written to a file."""
    live = inspection.attention
    if isinstance(live, StoredAttention):
        return inspection
    heads: list[int | None] = [None, *range(live.num_heads)]
    whole = (0, num_tokens)
    maps: dict[Mode, np.ndarray] = {}
    edges = _edges(*whole, size)
    for mode in (Mode.FULL, Mode.REUSE, Mode.BLEND):
        windows = [
            [live.window(mode, layer, head, rows=whole, cols=whole, size=size).values for head in heads]
            for layer in live.layers
        ]
        codes = np.sqrt(np.nan_to_num(np.array(windows)).clip(0, 1)) * 255
        maps[mode] = codes.round().astype(np.uint8)
    stored = StoredAttention(layers=live.layers, num_heads=live.num_heads, edges=edges, maps=maps)
    return replace(inspection, attention=stored)


def _reuse_states(
    model: LayerwiseModel,
    plan: PromptPlan,
    caches: Sequence[ChunkKV],
    blend: BlendConfig,
    cancel: threading.Event | None,
) -> _Hidden:
    """Hidden states of full reuse: every segment run alone, the suffix on their caches."""
    parts = []
    for segment in plan.context:
        alone = _Hidden()
        alone_plan = PromptPlan.of((), (), plan.ids(segment))
        source = MemorySource(model, (), segment.num_tokens)
        fuse(model, alone_plan, source, AllRows(), observer=alone, cancel=cancel)
        parts.append(alone)
    suffix = _Hidden()
    source = MemorySource(model, caches, plan.num_tokens)
    fuse(model, plan, source, blend.policy(Mode.REUSE), observer=suffix, cancel=cancel)
    whole = _Hidden()
    for layer in range(model.num_layers):
        whole.hidden.append(torch.cat([part.hidden[layer] for part in (*parts, suffix)]))
    return whole


class LiveAttention:
    """Attention matrices of the three modes, computed from hidden states when asked for (trace.AttentionMaps).

    A row that was not recomputed shows the attention its cached KV came from: its own segment only. Holds about
    tokens * d_model * layers * 2.2 values.
    """

    def __init__(
        self,
        model: LayerwiseModel,
        plan: PromptPlan,
        full: _Hidden,
        reuse: _Hidden,
        blend: _Hidden,
        write_back: WriteBack,
    ) -> None:
        self._model, self._plan, self._write_back = model, plan, write_back
        self._full, self._reuse, self._blend = full, reuse, blend
        self._alone_from = torch.from_numpy(plan.visible_from()).to(model.device)
        self._rotary = model.rotary(torch.arange(plan.num_tokens, device=model.device))

    @property
    def layers(self) -> tuple[int, ...]:
        """Every layer."""
        return tuple(range(self._model.num_layers))

    @property
    def num_heads(self) -> int:
        """Every query head."""
        return self._model.num_heads

    @torch.inference_mode()
    def kv_distance(self, mode: Mode, layer: int) -> np.ndarray:
        """Relative L2 distance of K and V to full's, float32 (tokens,)."""
        _, full = self._project(Mode.FULL, layer)
        _, other = self._project(mode, layer)
        distance: np.ndarray = kv_deviation(full, other, Deviation.BOTH).sqrt().cpu().numpy()
        return distance

    @torch.inference_mode()
    def suffix_attention_distance(self, mode: Mode, layer: int) -> np.ndarray:
        """L2 distance over suffix rows of the attention to each token, mean over heads, float32 (tokens,)."""
        rows = (self._plan.context_tokens, self._plan.num_tokens)
        squares = [
            (self._weights(mode, layer, head, rows) - self._weights(Mode.FULL, layer, head, rows)).square().sum(0)
            for head in range(self.num_heads)
        ]
        distance: np.ndarray = torch.stack(squares).sqrt().mean(0).cpu().numpy()
        return distance

    @torch.inference_mode()
    def window(
        self, mode: Mode, layer: int, head: int | None, *, rows: tuple[int, int], cols: tuple[int, int], size: int
    ) -> AttentionWindow:
        """Compute a rectangle and pool it: the mean over the pairs of a cell that causality allows."""
        row_edges, col_edges = _edges(*rows, size), _edges(*cols, size)
        heads = range(self.num_heads) if head is None else (head,)
        sums = np.zeros((len(row_edges) - 1, len(col_edges) - 1))
        for start in range(*rows, ROW_BLOCK):
            stop = min(start + ROW_BLOCK, rows[1])
            weights = sum((self._weights(mode, layer, h, (start, stop)) for h in heads), torch.zeros(())) / len(heads)
            by_col = np.add.reduceat(weights[:, cols[0] : cols[1]].cpu().numpy(), col_edges[:-1] - cols[0], axis=1)
            np.add.at(sums, np.searchsorted(row_edges, np.arange(start, stop), side="right") - 1, by_col)
        visible = _visible_pairs(row_edges, col_edges)
        values = np.divide(sums, visible, out=np.full(sums.shape, np.nan), where=visible > 0)
        is_pooled = bool(np.diff(row_edges).max() > 1 or np.diff(col_edges).max() > 1)
        return AttentionWindow(
            values=values.astype(np.float32), row_edges=row_edges, col_edges=col_edges, is_pooled=is_pooled
        )

    def _weights(self, mode: Mode, layer: int, head: int, rows: tuple[int, int]) -> torch.Tensor:
        """Attention weights of some rows of one head over all tokens, float32 (rows, tokens)."""
        if mode is not Mode.BLEND:
            return self._softmax(*self._projected(mode, layer), head, rows, self._seen_from(mode))
        # Rows that blend kept attend to everything in the mixed cache; the others are as reuse left them.
        weights = self._weights(Mode.REUSE, layer, head, rows)
        kept = self._blend.kept[layer]
        inside = kept[(kept >= rows[0]) & (kept < rows[1])]
        if len(inside):
            fresh = self._softmax(*self._projected(mode, layer), head, rows, torch.zeros_like(self._alone_from))
            weights[inside - rows[0]] = fresh[inside - rows[0]]
        return weights

    def _seen_from(self, mode: Mode) -> torch.Tensor:
        return self._alone_from if mode is Mode.REUSE else torch.zeros_like(self._alone_from)

    def _softmax(
        self, queries: torch.Tensor, keys: torch.Tensor, head: int, rows: tuple[int, int], seen_from: torch.Tensor
    ) -> torch.Tensor:
        kv_head = head // (self._model.num_heads // self._model.kv_heads)
        positions = torch.arange(*rows, device=keys.device)[:, None]
        tokens = torch.arange(keys.shape[0], device=keys.device)
        visible = (tokens <= positions) & (tokens >= seen_from[rows[0] : rows[1], None])
        scores = queries[rows[0] : rows[1], head].float() @ keys[:, kv_head].float().T * self._model.scale
        return scores.masked_fill(~visible, -torch.inf).softmax(-1)

    def _projected(self, mode: Mode, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Queries and keys of all rows at their positions; queries that blend did not compute are reuse's."""
        queries, kv = self._project(mode, layer)
        rotate = self._model.rotate
        return rotate(layer, queries, self._rotary), rotate(layer, kv.keys, self._rotary)

    def _project(self, mode: Mode, layer: int) -> tuple[torch.Tensor, LayerKV]:
        """Queries and KV before RoPE of all rows, (tokens, heads or kv_heads, head_dim), as the mode ends with them."""
        states = self._full if mode is Mode.FULL else self._reuse
        q, k, v = self._model.qkv(layer, states.hidden[layer])
        if mode is Mode.BLEND:
            projected, kept = self._blend.projected[layer], self._blend.kept[layer]
            fresh_q, fresh_k, fresh_v = self._model.qkv(layer, self._blend.hidden[layer])
            written = torch.ones_like(projected, dtype=torch.bool)
            if self._write_back is WriteBack.KEPT:
                written = torch.isin(projected, kept)
            q[projected] = fresh_q
            k[projected[written]], v[projected[written]] = fresh_k[written], fresh_v[written]
        return q, LayerKV(k, v)


def _edges(start: int, stop: int, size: int) -> np.ndarray:
    """Borders of at most `size` cells over positions start…stop-1, int64."""
    num_cells = min(size, stop - start)
    return np.linspace(start, stop, num_cells + 1).round().astype(np.int64)


def _visible_pairs(row_edges: np.ndarray, col_edges: np.ndarray) -> np.ndarray:
    """How many (row, column) pairs of each cell have column ≤ row, (row cells, column cells)."""
    rows = np.arange(row_edges[0], row_edges[-1])
    widths = np.clip(rows[:, None] + 1 - col_edges[None, :-1], 0, np.diff(col_edges)[None])
    pairs: np.ndarray = np.add.reduceat(widths, row_edges[:-1] - row_edges[0], axis=0)
    return pairs
