"""The two ends of every comparison: recompute all rows, or none."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cacheblend.fusion.policies.base import SelectionPolicy, suffix_rows
from cacheblend.prompt import PromptPlan


@dataclass(frozen=True, slots=True)
class AllRows(SelectionPolicy):
    """Recompute everything: equal to full prefill, whatever the caches hold."""

    def start(self, plan: PromptPlan, importance: torch.Tensor | None = None) -> torch.Tensor:
        """Every position."""
        return torch.arange(plan.num_tokens)

    def budget(self, layer: int, num_layers: int, context_tokens: int) -> int:
        """The whole context."""
        return context_tokens


@dataclass(frozen=True, slots=True)
class NoRows(SelectionPolicy):
    """Full reuse: only the suffix is computed (PromptCache with positions corrected)."""

    def start(self, plan: PromptPlan, importance: torch.Tensor | None = None) -> torch.Tensor:
        """The suffix."""
        return suffix_rows(plan)

    def budget(self, layer: int, num_layers: int, context_tokens: int) -> int:
        """Nothing."""
        return 0
