"""What recomputed rows changed by, carried on to the rows behind them that are not recomputed.

Rows of one chunk deviate in common from what they would be in the prompt: each misses the same text in front of it. So
the rows that are recomputed tell something of the others. Ours, in PrimeBlend. Knows one layer; not who chose the rows.
"""

from __future__ import annotations

import torch

from cacheblend.kv import LayerKV
from cacheblend.prompt import PromptPlan

SHARE = 0.5  # of the mean change
DOUBT = 4  # rows that count as unchanged beside those recomputed: a chunk's first tokens change unlike the others


def carry_on_(cached: LayerKV, fresh: LayerKV, rows: torch.Tensor, plan: PromptPlan) -> None:
    """Add to each cached row a share of the mean change of the recomputed rows in front of it in its segment, in place.

    cached: one layer's KV of the whole plan, keys before RoPE; fresh: what `rows` (int64, ascending) became there.
    A row takes over nothing from rows behind it, so that none sees what comes later; suffix rows are left out.
    """
    inside = int((rows < plan.context_tokens).sum())
    if inside == 0:
        return
    rows, context = rows[:inside], torch.arange(plan.context_tokens, device=rows.device)
    starts = torch.tensor([segment.start for segment in plan.context], device=rows.device)
    first = torch.searchsorted(rows, starts)  # in `rows`, for each segment
    order = torch.arange(inside, device=rows.device)
    begins = first[torch.searchsorted(starts, rows, right=True) - 1]
    counts = (order + 1 - begins + DOUBT)[:, None, None]
    last = torch.searchsorted(rows, context, right=True) - 1  # of the recomputed rows up to each token
    moved = (last >= first[torch.searchsorted(starts, context, right=True) - 1]).nonzero().squeeze(1)
    for part, new in ((cached.keys, fresh.keys), (cached.values, fresh.values)):
        changes = new[:inside].float() - part[rows].float()
        sums = changes.cumsum(0)
        mean = (sums - sums[begins] + changes[begins]) / counts
        part.index_add_(0, moved, (SHARE * mean).to(part.dtype)[last[moved]])
