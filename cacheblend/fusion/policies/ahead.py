"""Policies that choose before the first layer, so that the rows they leave out are computed nowhere."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch

from cacheblend.fusion.policies.base import SelectionPolicy, check_ratio, suffix_rows
from cacheblend.prompt import PromptPlan


@dataclass(frozen=True, slots=True)
class ChosenAhead(SelectionPolicy):
    """Recompute, at every layer, the share of the context's tokens that a score puts first.

    ratio: share of context tokens.
    """

    ratio: float = 0.15

    def __post_init__(self) -> None:
        check_ratio(self.ratio)

    @abstractmethod
    def score(self, plan: PromptPlan, importance: torch.Tensor | None) -> torch.Tensor:
        """Float (context_tokens,), the higher the sooner recomputed."""

    def start(self, plan: PromptPlan, importance: torch.Tensor | None = None) -> torch.Tensor:
        """The context tokens of the highest score, the earlier first among equals, and the suffix."""
        count = self.budget(0, 0, plan.context_tokens)
        order = self.score(plan, importance).argsort(descending=True, stable=True)
        return torch.cat((order[:count].sort().values.cpu(), suffix_rows(plan)))

    def budget(self, layer: int, num_layers: int, context_tokens: int) -> int:
        """The same share at every layer."""
        return round(self.ratio * context_tokens)
