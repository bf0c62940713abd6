"""Whole layers in place of tokens (DroidSpeak)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from cacheblend.fusion.policies.base import SelectionPolicy, SelectionView, check_ratio, suffix_rows
from cacheblend.prompt import PromptPlan


@dataclass(frozen=True, slots=True)
class LayerRange(SelectionPolicy):
    """Recompute every token in the first layers and none in the others (after DroidSpeak, NSDI'26).

    ratio: share of all rows of all layers but the first, which the policies have in common at no cost of choice.
    Departs from DroidSpeak in that the range begins at layer 0: one that begins deeper needs the hidden states in front
    of it in the store beside the KV, and profiling to find it.
    """

    by_deviation: ClassVar = False
    ratio: float = 0.15

    def __post_init__(self) -> None:
        check_ratio(self.ratio)

    def start(self, plan: PromptPlan, importance: torch.Tensor | None = None) -> torch.Tensor:
        """All rows, unless nothing is to be recomputed."""
        return torch.arange(plan.num_tokens) if self.ratio > 0 else suffix_rows(plan)

    def selects_at(self, layer: int) -> bool:
        """Wherever fewer rows may go on than before: only `select` knows how many layers there are."""
        return layer > 0 and 0 < self.ratio < 1

    def select(self, view: SelectionView) -> torch.Tensor:
        """All rows inside the range; in the layer behind it as many as the budget leaves, and every pinned row."""
        budget = self.budget(view.layer, view.num_layers, view.plan.context_tokens)
        return view.top(-view.rows.float(), budget)

    def budget(self, layer: int, num_layers: int, context_tokens: int) -> int:
        """The whole context in the first layers, what is left of the share in one, nothing behind it."""
        if layer == 0:
            return context_tokens if self.ratio > 0 else 0
        rows = round(self.ratio * (num_layers - 1) * context_tokens)
        return max(0, min(context_tokens, rows - (layer - 1) * context_tokens))
