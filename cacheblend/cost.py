"""What one layer of a model costs on a machine, as a formula with measured coefficients.

Arithmetic only, no torch: the page and the controller use it. `calibration.py` measures the coefficients.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import NamedTuple

from cacheblend.schedule import gradual_shares
from cacheblend.trace import Selector

CACHED_NOT_KEPT = 1e-9  # a ratio at which blend takes its usual course and keeps as good as nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One prompt whose context is cached, and how its KV comes in.

    reads_per_layer: one for each stored stretch; prefetch: layers read ahead at most; size_ratio: how many times
    smaller the stored bytes are than plain KV; decode_ms_per_token: to decode one token's KV of all layers.
    """

    context_tokens: int
    suffix_tokens: int
    reads_per_layer: int = 1
    selector: Selector = Selector.SINGLE
    prefetch: int = 2
    size_ratio: float = 1.0
    decode_ms_per_token: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "selector", Selector(self.selector))
        if self.context_tokens < 1 or self.suffix_tokens < 0:
            raise ValueError("a workload needs a context of at least 1 token and a suffix of at least 0")
        if self.reads_per_layer < 1 or self.prefetch < 1:
            raise ValueError("reads_per_layer and prefetch must be at least 1")
        if not (self.size_ratio > 0 and self.decode_ms_per_token >= 0):
            raise ValueError("size_ratio must be positive and decode_ms_per_token not negative")

    @property
    def num_tokens(self) -> int:
        """Length of the prompt."""
        return self.context_tokens + self.suffix_tokens


class LayerCost(NamedTuple):
    """Milliseconds of one layer in the order in which they are spent."""

    project: float  # Q, K and V of the rows that came in, and the choice of those that go on
    place: float  # rotating cached keys to their positions
    finish: float  # attention, output projection and MLP of the rows that go on


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeProfile:
    """What one layer costs, in milliseconds; every layer of the model counts as the same.

    kv_bytes: K and V of one token in one layer; project_*, finish_*: fixed and per row; causal_cell: one query row on
    one token it sees where the whole prompt is computed; masked_cell: the same where some rows are; place_row,
    select_row and mask_cell: per cached token, per row chosen from, and per cell of the mask of the rows chosen;
    start_row: per row before the first layer; first_token: the logits of the last row; max_blocks, block_rows: how
    attention splits rows (fusion/attention.py); check_layer: where rows are chosen, before it all are computed.
    """

    label: str
    num_layers: int
    kv_bytes: int
    project_fixed: float = 0.0
    project_row: float = 0.0
    finish_fixed: float = 0.0
    finish_row: float = 0.0
    causal_cell: float = 0.0
    masked_cell: float = 0.0
    place_row: float = 0.0
    select_row: float = 0.0
    mask_cell: float = 0.0
    start_row: float = 0.0
    first_token: float = 0.0
    max_blocks: int = 1
    block_rows: float = 1.0
    check_layer: int = 1

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if field.name != "label" and not (is_number and math.isfinite(value) and value >= 0):
                raise ValueError(f"{field.name} of a compute profile must be a number of at least 0, got {value!r}")
        if min(self.num_layers, self.kv_bytes, self.max_blocks) < 1 or self.block_rows <= 0:
            raise ValueError("num_layers, kv_bytes, max_blocks and block_rows of a compute profile must be positive")

    def layer_ms(self, rows: float, context_tokens: float) -> float:
        """One layer on `rows` rows spread evenly over so many tokens, placing apart."""
        cells = self.visited_cells(rows, 0, context_tokens)
        return self.project_ms(rows) + self.finish_ms(rows) + self.masked_cell * cells

    def prefill_ms(self, num_tokens: int) -> float:
        """Full prefill up to the first token; attention visits half of the square."""
        layer = self.project_ms(num_tokens) + self.finish_ms(num_tokens) + self.causal_cell * num_tokens**2 / 2
        return self.start_row * num_tokens + self.num_layers * layer + self.first_token

    def project_ms(self, rows: float) -> float:
        """Q, K and V of so many rows."""
        return self.project_fixed + self.project_row * rows

    def finish_ms(self, rows: float) -> float:
        """Output projection and MLP of so many rows, without attention."""
        return self.finish_fixed + self.finish_row * rows

    def visited_cells(self, spread_rows: float, last_rows: float, num_tokens: float) -> float:
        """Rows × tokens that attention visits: rows spread evenly, and rows at the very end.

        A block of rows needs tokens up to its last row's: b blocks visit (1 + 1/b) / 2 of the rectangle. b is not
        rounded, so that a row more never costs less.
        """
        blocks = min(max((spread_rows + last_rows) / self.block_rows, 1.0), float(self.max_blocks))
        return num_tokens * (spread_rows * (1 + 1 / blocks) / 2 + last_rows)

    def start_ms(self, workload: Workload, ratio: float) -> float:
        """Before the first layer: embedding, and the angles of RoPE."""
        return self.start_row * (workload.num_tokens if ratio > 0 else workload.suffix_tokens)

    def unread_layers(self, ratio: float) -> int:
        """How many of the first layers are not read, because every row of them is computed (fusion/source.py)."""
        return 0 if ratio == 0 else self.num_layers if ratio == 1 else self.check_layer

    def layer_costs(self, workload: Workload, ratio: float) -> list[LayerCost]:
        """Every layer of a blend at that ratio, 0 being full reuse and 1 every row.

        Blend computes all rows before the check layer, projects all of them there, and goes on with those it keeps.
        """
        place = self.place_row * workload.num_tokens
        costs, rows = [], float(workload.num_tokens if ratio > 0 else workload.suffix_tokens)
        for layer in range(self.num_layers):
            project = self.project_ms(rows)
            if self._selects_at(workload, ratio, layer):
                came, rows = rows, self._kept(workload, ratio, layer)
                project += self.select_row * came + self.mask_cell * rows * workload.num_tokens
            is_whole = ratio == 1 or (ratio > 0 and layer < self.check_layer)
            costs.append(LayerCost(project, place, self.finish_ms(rows) + self._attention_ms(workload, rows, is_whole)))
        return costs

    def _selects_at(self, workload: Workload, ratio: float, layer: int) -> bool:
        """As the policy does: ratios 0 and 1 have nothing to choose."""
        is_later = layer > self.check_layer and workload.selector is Selector.GRADUAL
        return 0 < ratio < 1 and (layer == self.check_layer or is_later)

    def _kept(self, workload: Workload, ratio: float, layer: int) -> float:
        """Rows that go on through attention where some are chosen."""
        is_gradual = workload.selector is Selector.GRADUAL
        share = gradual_shares(ratio, self.num_layers)[layer] if is_gradual else ratio
        return share * workload.context_tokens + workload.suffix_tokens

    def _attention_ms(self, workload: Workload, rows: float, is_whole: bool) -> float:
        if is_whole:  # the kernel has a mask of its own for the whole prompt
            return self.causal_cell * workload.num_tokens**2 / 2
        spread = rows - workload.suffix_tokens
        return self.masked_cell * self.visited_cells(spread, workload.suffix_tokens, workload.num_tokens)
