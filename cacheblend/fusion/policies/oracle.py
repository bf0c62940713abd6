"""An upper bound that cannot be had in practice: the true deviation from a full prefill."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from cacheblend.fusion.policies.ahead import ChosenAhead
from cacheblend.fusion.policies.base import Evidence
from cacheblend.fusion.policies.query import needed
from cacheblend.prompt import PromptPlan


@dataclass(frozen=True, slots=True)
class Oracle(ChosenAhead):
    """Recompute the tokens whose cached KV is truly farthest from a full prefill's, mean over all layers.

    What HKVD estimates from one layer, known exactly; it costs more than the full prefill it is to save, and its TTFT
    says so.
    """

    evidence: ClassVar = Evidence.TRUE_DEVIATION

    def score(self, plan: PromptPlan, importance: torch.Tensor | None) -> torch.Tensor:
        """The mean over layers."""
        return needed(importance).mean(0)
