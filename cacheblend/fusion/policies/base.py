"""What a selection policy sees and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from cacheblend.prompt import PromptPlan


@dataclass(frozen=True, slots=True)
class SelectionView:
    """The rows of one layer whose K and V have just been projected.

    rows: their positions, int64 (rows,) ascending; deviation: float32 (rows,), how far their fresh KV lies from the
    cached, 0 for suffix rows, which have none; pinned: bool (rows,), suffix rows, which every policy must keep.
    """

    layer: int
    num_layers: int
    rows: torch.Tensor
    deviation: torch.Tensor
    pinned: torch.Tensor
    plan: PromptPlan


class SelectionPolicy(Protocol):
    """Decides, before the first layer and after any projection, which rows are computed."""

    def start(self, plan: PromptPlan) -> torch.Tensor:
        """Positions computed from layer 0 on, int64 ascending; the suffix is among them."""
        ...

    def selects_at(self, layer: int) -> bool:
        """Whether this layer narrows the rows; only then is deviation measured and `select` called."""
        ...

    def select(self, view: SelectionView) -> torch.Tensor:
        """Indices into view.rows that go on, int64 ascending; every pinned row is among them."""
        ...


def suffix_rows(plan: PromptPlan) -> torch.Tensor:
    """Positions of the suffix."""
    return torch.arange(plan.context_tokens, plan.num_tokens)
