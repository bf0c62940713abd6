"""A control: rows drawn by lot."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cacheblend.fusion.policies.ahead import ChosenAhead
from cacheblend.prompt import PromptPlan


@dataclass(frozen=True, slots=True)
class RandomRows(ChosenAhead):
    """Recompute tokens drawn by lot, the same for the same prompt length: what any choice has to beat."""

    seed: int = 0

    def score(self, plan: PromptPlan, importance: torch.Tensor | None) -> torch.Tensor:
        """Uniform numbers from the seed."""
        return torch.rand(plan.context_tokens, generator=torch.Generator().manual_seed(self.seed))
