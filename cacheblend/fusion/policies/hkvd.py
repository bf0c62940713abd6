"""CacheBlend's own selection: the rows of highest KV deviation (HKVD).

Layer 0 never deviates, because its K and V depend on token and position alone; selection begins at layer index 1, where
K and V are projected for all rows before any is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cacheblend.fusion.policies.base import SelectionPolicy, SelectionView, check_ratio, suffix_rows
from cacheblend.prompt import PromptPlan
from cacheblend.schedule import CHECK_LAYER, gradual_shares
from cacheblend.trace import Selector


@dataclass(frozen=True, slots=True)
class HKVD(SelectionPolicy):
    """Recompute a share of the context's tokens, those that deviate most (CacheBlend, EuroSys'25, section 4.3).

    ratio: share of context tokens, 15 % in the paper; selector SINGLE chooses once, at layer 1 (released code,
    LMCache); GRADUAL narrows layer by layer, its shares having that mean over the layers after the first (paper).
    """

    ratio: float = 0.15
    selector: Selector = Selector.SINGLE

    def __post_init__(self) -> None:
        check_ratio(self.ratio)

    def start(self, plan: PromptPlan, importance: torch.Tensor | None = None) -> torch.Tensor:
        """All rows, unless nothing is to be recomputed."""
        return torch.arange(plan.num_tokens) if self.ratio > 0 else suffix_rows(plan)

    def selects_at(self, layer: int) -> bool:
        """At the check layer, and in every later one when gradual; ratios 0 and 1 have nothing to choose."""
        if self.ratio in (0, 1):
            return False
        return layer == CHECK_LAYER or (layer > CHECK_LAYER and self.selector is Selector.GRADUAL)

    def select(self, view: SelectionView) -> torch.Tensor:
        """The budgeted number of context rows with the largest deviation, and every pinned row."""
        return view.top(view.deviation, self.budget(view.layer, view.num_layers, view.plan.context_tokens))

    def budget(self, layer: int, num_layers: int, context_tokens: int) -> int:
        """Every row in front of the check layer, the selector's share from there on."""
        if layer < CHECK_LAYER and self.ratio > 0:
            return context_tokens
        if self.selector is Selector.SINGLE or self.ratio == 0:
            return round(self.ratio * context_tokens)
        return round(gradual_shares(self.ratio, num_layers)[layer] * context_tokens)
