"""How far fresh KV lies from cached KV, row by row (paper, section 4.1).

Both are compared before RoPE: a rotation changes no distance, so keys need not be placed first. Reduced in float32.
"""

from __future__ import annotations

import torch

from cacheblend.kv import LayerKV
from cacheblend.trace import Deviation


def kv_deviation(fresh: LayerKV, cached: LayerKV, kind: Deviation) -> torch.Tensor:
    """Squared L2 distance per row over KV heads and head_dim, float32 (rows,).

    VALUE is what the authors' code selects by, KEY what LMCache does. BOTH (ours) adds the two, each divided by its
    mean squared norm, so that keys, which are several times larger, do not drown values.
    """
    if kind is Deviation.VALUE:
        return _squared_distance(fresh.values, cached.values)
    if kind is Deviation.KEY:
        return _squared_distance(fresh.keys, cached.keys)
    return _relative(fresh.keys, cached.keys) + _relative(fresh.values, cached.values)


def _squared_distance(fresh: torch.Tensor, cached: torch.Tensor) -> torch.Tensor:
    return (fresh.float() - cached.float()).square().sum(dim=(1, 2))


def _relative(fresh: torch.Tensor, cached: torch.Tensor) -> torch.Tensor:
    mean_norm = fresh.float().square().sum(dim=(1, 2)).mean()
    return _squared_distance(fresh, cached) / mean_norm.clamp_min(torch.finfo(torch.float32).tiny)
