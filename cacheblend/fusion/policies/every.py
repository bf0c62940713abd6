"""The two ends of every comparison: recompute all rows, or none."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cacheblend.fusion.policies.base import SelectionView, suffix_rows
from cacheblend.prompt import PromptPlan


@dataclass(frozen=True, slots=True)
class AllRows:
    """Recompute everything: equal to full prefill, whatever the caches hold."""

    def start(self, plan: PromptPlan) -> torch.Tensor:
        """Every position."""
        return torch.arange(plan.num_tokens)

    def selects_at(self, layer: int) -> bool:
        """Never narrows."""
        return False

    def select(self, view: SelectionView) -> torch.Tensor:
        """Every row."""
        return torch.arange(len(view.rows))


@dataclass(frozen=True, slots=True)
class NoRows:
    """Full reuse: only the suffix is computed (PromptCache with positions corrected)."""

    def start(self, plan: PromptPlan) -> torch.Tensor:
        """The suffix."""
        return suffix_rows(plan)

    def selects_at(self, layer: int) -> bool:
        """Never narrows."""
        return False

    def select(self, view: SelectionView) -> torch.Tensor:
        """The suffix."""
        return view.pinned.nonzero().squeeze(1)
