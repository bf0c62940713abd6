"""The first tokens of each chunk (EPIC's LegoLink)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cacheblend.fusion.policies.ahead import ChosenAhead
from cacheblend.prompt import PromptPlan


@dataclass(frozen=True, slots=True)
class FirstRows(ChosenAhead):
    """Recompute the first tokens of every segment but the first (LegoLink of EPIC, ICML'25, 2410.15332).

    A chunk prefilled alone takes its own first tokens for the beginning of the text and lets everything attend to them;
    computed behind the others they lose that. Departs from the paper in counting by a share of the context where
    LegoLink takes up to 32 tokens of a chunk, so that policies stand at the same budget. The first segment has seen all
    there is in front of it, and comes last.
    """

    def score(self, plan: PromptPlan, importance: torch.Tensor | None) -> torch.Tensor:
        """The lower a token's number in its segment, the higher; the first segment behind all others."""
        score = torch.empty(plan.context_tokens)
        for number, segment in enumerate(plan.context):
            places = -torch.arange(segment.num_tokens, dtype=score.dtype)
            score[segment.start : segment.stop] = places if number else places - plan.context_tokens
        return score
