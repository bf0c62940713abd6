"""How large a share of the context blend computes at each layer: arithmetic that policies and predictions share."""

from __future__ import annotations

CHECK_LAYER = 1  # the authors' code and LMCache select here
SPREAD = 0.35  # ours: the paper prints no schedule; shares fall from 1.35 r to 0.65 r


def gradual_shares(ratio: float, num_layers: int) -> list[float]:
    """Share kept at each layer: 1 at layer 0, then falling linearly, mean over layers 1… equal to the ratio.

    The spread shrinks near ratio 1, so that no share exceeds 1 and the mean stays exact.
    """
    later = num_layers - 1
    spread = min(SPREAD, (1 - ratio) / ratio) if ratio > 0 else 0.0
    steps = [1 - 2 * i / (later - 1) if later > 1 else 0.0 for i in range(later)]
    return [1.0, *(ratio * (1 + spread * step) for step in steps)]
