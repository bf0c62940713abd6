"""What a recording pass keeps, and the attention, K and V of any layer that follow from it.

Only the hidden states that entered every layer are kept; an attention matrix is computed when it is asked for and never
held whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import torch

from cacheblend.fusion.carry import carry_on_
from cacheblend.fusion.deviation import kv_deviation
from cacheblend.fusion.fusor import WriteBack
from cacheblend.kv import LayerKV
from cacheblend.models.layerwise import LayerwiseModel
from cacheblend.prompt import PromptPlan
from cacheblend.trace import AttentionWindow, Deviation, Mode

ROW_BLOCK = 256  # attention rows held at once


@dataclass
class HiddenStates:
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
    ) -> None:
        """Keep what entered the layer (fusor.LayerObserver)."""
        self.hidden.append(hidden)
        self.projected.append(projected)
        self.kept.append(kept)


class LiveAttention:
    """Attention matrices of full, reuse and a fusing mode, from hidden states when asked for (trace.AttentionMaps).

    A row that was not recomputed shows the attention its cached KV came from: its own segment only. Holds about
    tokens * d_model * layers * 2.2 values.
    """

    def __init__(
        self,
        model: LayerwiseModel,
        plan: PromptPlan,
        full: HiddenStates,
        reuse: HiddenStates,
        blend: HiddenStates,
        write_back: WriteBack,
    ) -> None:
        self._model, self._plan, self._write_back = model, plan, write_back
        self._full, self._reuse, self._blend = full, reuse, blend
        self._alone_from = torch.from_numpy(plan.visible_from()).to(model.device)
        self._rotary = model.rotary(torch.arange(plan.num_tokens, device=model.device))
        self._placed = lru_cache(maxsize=len(Mode))(self._place)  # one layer, looked at head by head and row by row

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
        rows, heads = (self._plan.context_tokens, self._plan.num_tokens), range(self.num_heads)
        difference = self._weights(mode, layer, heads, rows) - self._weights(Mode.FULL, layer, heads, rows)
        distance: np.ndarray = difference.square().sum(1).sqrt().mean(0).cpu().numpy()
        return distance

    def window(
        self, mode: Mode, layer: int, head: int | None, *, rows: tuple[int, int], cols: tuple[int, int], size: int
    ) -> AttentionWindow:
        """Compute a rectangle and pool it: the mean over the pairs of a cell that causality allows."""
        row_edges, col_edges = pool_borders(*rows, size), pool_borders(*cols, size)
        heads = range(self.num_heads) if head is None else (head,)
        values = self.pooled(mode, layer, heads, row_edges, col_edges).mean(0)
        is_pooled = bool(np.diff(row_edges).max() > 1 or np.diff(col_edges).max() > 1)
        return AttentionWindow(values=values, row_edges=row_edges, col_edges=col_edges, is_pooled=is_pooled)

    @torch.inference_mode()
    def pooled(
        self, mode: Mode, layer: int, heads: Sequence[int], row_edges: np.ndarray, col_edges: np.ndarray
    ) -> np.ndarray:
        """Mean weight of every cell, float32 (heads, row cells, column cells); NaN above the diagonal."""
        cells = max(1, ROW_BLOCK // int(np.diff(row_edges).max()))  # whole cells, so that blocks can be pooled alone
        blocks = []
        for first in range(0, len(row_edges) - 1, cells):
            edges = row_edges[first : first + cells + 1]
            weights = self._weights(mode, layer, heads, (int(edges[0]), int(edges[-1])))
            inside = weights[:, :, col_edges[0] : col_edges[-1]].cpu().numpy()
            by_col = np.add.reduceat(inside, col_edges[:-1] - col_edges[0], axis=2)
            blocks.append(np.add.reduceat(by_col, edges[:-1] - edges[0], axis=1))
        sums = np.concatenate(blocks, axis=1)
        visible = np.broadcast_to(_visible_pairs(row_edges, col_edges), sums.shape)
        means: np.ndarray = np.divide(
            sums, visible, out=np.full(sums.shape, np.nan, dtype=np.float32), where=visible > 0
        )
        return means

    def _weights(self, mode: Mode, layer: int, heads: Sequence[int], rows: tuple[int, int]) -> torch.Tensor:
        """Attention weights of some rows over all tokens, float32 (heads, rows, tokens)."""
        if mode in (Mode.FULL, Mode.REUSE):
            return self._softmax(*self._placed(mode, layer), heads, rows, self._seen_from(mode))
        # Rows that fusing kept attend to everything in the mixed cache; the others are as reuse left them.
        weights = self._weights(Mode.REUSE, layer, heads, rows)
        kept = self._blend.kept[layer]
        inside = kept[(kept >= rows[0]) & (kept < rows[1])] - rows[0]
        if len(inside):
            fresh = self._softmax(*self._placed(mode, layer), heads, rows, torch.zeros_like(self._alone_from))
            weights[:, inside] = fresh[:, inside]
        return weights

    def _seen_from(self, mode: Mode) -> torch.Tensor:
        return self._alone_from if mode is Mode.REUSE else torch.zeros_like(self._alone_from)

    def _softmax(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        heads: Sequence[int],
        rows: tuple[int, int],
        seen_from: torch.Tensor,
    ) -> torch.Tensor:
        group = self._model.num_heads // self._model.kv_heads
        positions = torch.arange(*rows, device=keys.device)[:, None]
        tokens = torch.arange(keys.shape[0], device=keys.device)
        visible = (tokens <= positions) & (tokens >= seen_from[rows[0] : rows[1], None])
        q = queries[rows[0] : rows[1], list(heads)].float().transpose(0, 1)
        k = keys[:, [head // group for head in heads]].float().permute(1, 2, 0)
        return (q @ k * self._model.scale).masked_fill_(~visible, -torch.inf).softmax(-1)

    def _place(self, mode: Mode, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Queries and keys of all rows at their positions; queries that blend did not compute are reuse's."""
        queries, kv = self._project(mode, layer)
        rotate = self._model.rotate
        return rotate(layer, queries, self._rotary), rotate(layer, kv.keys, self._rotary)

    def _project(self, mode: Mode, layer: int) -> tuple[torch.Tensor, LayerKV]:
        """Queries and KV before RoPE of all rows, (tokens, heads or kv_heads, head_dim), as the mode ends with them."""
        states = self._full if mode is Mode.FULL else self._reuse
        q, k, v = self._model.qkv(layer, states.hidden[layer])
        if mode not in (Mode.FULL, Mode.REUSE):
            projected, kept = self._blend.projected[layer], self._blend.kept[layer]
            fresh_q, fresh_k, fresh_v = self._model.qkv(layer, self._blend.hidden[layer])
            written = torch.ones_like(projected, dtype=torch.bool)
            if self._write_back is WriteBack.KEPT:
                written = torch.isin(projected, kept)
            if self._write_back is WriteBack.CARRIED:
                carry_on_(LayerKV(k, v), LayerKV(fresh_k, fresh_v), projected, self._plan)
            q[projected] = fresh_q
            k[projected[written]], v[projected[written]] = fresh_k[written], fresh_v[written]
        return q, LayerKV(k, v)


def pool_borders(start: int, stop: int, size: int) -> np.ndarray:
    """Borders of at most `size` cells over positions start…stop-1, int64."""
    num_cells = min(size, stop - start)
    return np.linspace(start, stop, num_cells + 1).round().astype(np.int64)


def _visible_pairs(row_edges: np.ndarray, col_edges: np.ndarray) -> np.ndarray:
    """How many (row, column) pairs of each cell have column ≤ row, (row cells, column cells)."""
    rows = np.arange(row_edges[0], row_edges[-1])
    widths = np.clip(rows[:, None] + 1 - col_edges[None, :-1], 0, np.diff(col_edges)[None])
    pairs: np.ndarray = np.add.reduceat(widths, row_edges[:-1] - row_edges[0], axis=0)
    return pairs
