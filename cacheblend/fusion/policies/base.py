"""What a selection policy sees and what it answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

import torch

from cacheblend.prompt import PromptPlan


class Evidence(StrEnum):
    """What has to be found out before the first layer, by a pass that the selection pays for (fusion/evidence.py)."""

    QUERY_ATTENTION = "query attention"  # what the question attends to on the cached KV
    TRUE_DEVIATION = "true deviation"  # how far the cached KV is from a full prefill: no shortcut, an upper bound


@dataclass(frozen=True, slots=True)
class SelectionView:
    """The rows of one layer whose K and V have just been projected.

    rows: their positions, int64 (rows,) ascending; deviation: float32 (rows,), how far their fresh KV lies from the
    cached, 0 for suffix rows, which have none, and everywhere unless the policy goes by it; pinned: bool (rows,),
    suffix rows, which every policy must keep; importance: float32 (layers, context_tokens), the evidence asked for.
    """

    layer: int
    num_layers: int
    rows: torch.Tensor
    deviation: torch.Tensor
    pinned: torch.Tensor
    plan: PromptPlan
    importance: torch.Tensor | None = None

    def top(self, score: torch.Tensor, budget: int) -> torch.Tensor:
        """Indices of the `budget` context rows of the highest score (rows,), and of every pinned row; ascending."""
        keep = min(budget + int(self.pinned.sum()), len(self.rows))
        return score.masked_fill(self.pinned, torch.inf).topk(keep).indices.sort().values


class SelectionPolicy(ABC):
    """Decides, before the first layer and after any projection, which rows are computed.

    A policy that chooses before the first layer needs `start` and `budget` alone.
    """

    evidence: ClassVar[Evidence | None] = None
    by_deviation: ClassVar[bool] = True  # whether `select` looks at deviations, which cost time

    @abstractmethod
    def start(self, plan: PromptPlan, importance: torch.Tensor | None = None) -> torch.Tensor:
        """Positions computed from layer 0 on, int64 ascending; the suffix is among them.

        importance: float32 (layers, context_tokens), the evidence that the policy asks for.
        """

    @abstractmethod
    def budget(self, layer: int, num_layers: int, context_tokens: int) -> int:
        """Context rows that are still computed at the end of one layer."""

    def selects_at(self, layer: int) -> bool:
        """Whether this layer narrows the rows; only then is `select` called."""
        del layer
        return False

    def select(self, view: SelectionView) -> torch.Tensor:
        """Indices into view.rows that go on, int64 ascending; every pinned row is among them."""
        return torch.arange(len(view.rows))


def suffix_rows(plan: PromptPlan) -> torch.Tensor:
    """Positions of the suffix."""
    return torch.arange(plan.context_tokens, plan.num_tokens)


def check_ratio(ratio: float) -> None:
    """ValueError for a share that is none."""
    if not 0 <= ratio <= 1:
        raise ValueError(f"ratio must be in [0, 1], got {ratio}")
