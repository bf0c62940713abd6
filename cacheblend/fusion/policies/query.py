"""What the question attends to (the ProphetKV / A³ family), alone and times deviation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from cacheblend.fusion.policies.ahead import ChosenAhead
from cacheblend.fusion.policies.base import Evidence, SelectionPolicy, SelectionView, check_ratio, suffix_rows
from cacheblend.prompt import PromptPlan
from cacheblend.schedule import CHECK_LAYER


@dataclass(frozen=True, slots=True)
class QueryAttention(ChosenAhead):
    """Recompute the tokens that the question attends to on the cached KV (ProphetKV, ICML'26; A³, 2511.17560).

    Departs from both in its simplicity: attention of all suffix rows, summed over all layers and heads, in one stage.
    The question has to pass through every layer of the caches before anything is recomputed, so the caches are loaded
    whole before blending begins: computing hides less of a slow device than with HKVD.
    """

    evidence: ClassVar = Evidence.QUERY_ATTENTION

    def score(self, plan: PromptPlan, importance: torch.Tensor | None) -> torch.Tensor:
        """The sum over layers."""
        return needed(importance).sum(0)


@dataclass(frozen=True, slots=True)
class LateQueryAttention(QueryAttention):
    """Recompute the tokens that the question attends to in the later half of the layers (ours; in PrimeBlend).

    Early layers look at what is near and at the beginning of the text; what an answer is taken from shows later.
    Departs from ProphetKV in that, and in leaving out the first segment, which has seen all there is in front of it.
    """

    def score(self, plan: PromptPlan, importance: torch.Tensor | None) -> torch.Tensor:
        """The sum over the later half of the layers; the first segment behind all others."""
        layers = needed(importance)
        score = layers[len(layers) // 2 :].sum(0)
        score[: plan.segments[0].stop] -= score.max() + 1
        return score


@dataclass(frozen=True, slots=True)
class QueryDeviation(SelectionPolicy):
    """Recompute the tokens of the highest product of query attention and KV deviation at layer 1 (QCFuse's influence).

    Departs from QCFuse (2606.05875) in taking attention from all layers and no anchors. Like HKVD it computes all rows
    up to layer 1, and like QueryAttention it needs the caches whole before it begins.
    """

    evidence: ClassVar = Evidence.QUERY_ATTENTION
    ratio: float = 0.15

    def __post_init__(self) -> None:
        check_ratio(self.ratio)

    def start(self, plan: PromptPlan, importance: torch.Tensor | None = None) -> torch.Tensor:
        """All rows, unless nothing is to be recomputed."""
        return torch.arange(plan.num_tokens) if self.ratio > 0 else suffix_rows(plan)

    def selects_at(self, layer: int) -> bool:
        """At the check layer; ratios 0 and 1 have nothing to choose."""
        return layer == CHECK_LAYER and self.ratio not in (0, 1)

    def select(self, view: SelectionView) -> torch.Tensor:
        """The budgeted number of context rows with the largest product, and every pinned row."""
        weight = torch.ones_like(view.deviation)
        weight[~view.pinned] = needed(view.importance).sum(0)[view.rows[~view.pinned]]
        return view.top(view.deviation * weight, self.budget(view.layer, view.num_layers, view.plan.context_tokens))

    def budget(self, layer: int, num_layers: int, context_tokens: int) -> int:
        """Every row in front of the check layer, the share from there on."""
        return context_tokens if layer < CHECK_LAYER and self.ratio > 0 else round(self.ratio * context_tokens)


def needed(importance: torch.Tensor | None) -> torch.Tensor:
    """The evidence; ValueError if nobody gathered it."""
    if importance is None:
        raise ValueError("this policy needs evidence that was not gathered: call fusion.evidence.gather first")
    return importance
