"""Causal attention of few rows over many tokens, through torch's own kernel.

The only place where heads move in front of tokens. Knows positions; nothing of chunks or of which rows were chosen.
"""

from __future__ import annotations

import torch
from torch.nn.functional import scaled_dot_product_attention

# Rows are sorted by position, so a block of them needs keys only up to its last row's: with eight blocks the kernel
# visits 9/16 of the rectangle of rows × tokens instead of all of it. More blocks are too short to run well on a CPU.
NUM_BLOCKS = 8
MIN_BLOCK_ROWS = 32


def attend(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, positions: torch.Tensor, scale: float
) -> torch.Tensor:
    """Row i sees tokens 0…positions[i].

    queries: (rows, heads, head_dim), positions: (rows,) ascending, on the CPU, so that shapes are known without
    asking the device; keys, values: (tokens, kv_heads, head_dim), both placed. Returns (rows, heads * head_dim).
    """
    num_rows = queries.shape[0]
    if num_rows == 1:
        last = int(positions[0]) + 1
        return _one_row(queries, keys[:last], values[:last], scale)
    if _is_whole_prompt(positions, num_rows):
        return _whole(queries, keys[:num_rows], values[:num_rows], scale)
    num_blocks = max(1, min(NUM_BLOCKS, num_rows // MIN_BLOCK_ROWS))
    blocks = zip(queries.tensor_split(num_blocks), positions.tensor_split(num_blocks), strict=True)
    return torch.cat([_block(q, keys, values, p, scale) for q, p in blocks])


def _is_whole_prompt(positions: torch.Tensor, num_rows: int) -> bool:
    return int(positions[0]) == 0 and int(positions[-1]) == num_rows - 1


def _whole(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float) -> torch.Tensor:
    """Every row from 0: the kernel's own causal mask, as transformers calls it."""
    q, k, v = _heads_first(queries), _heads_first(keys), _heads_first(values)
    out = scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=True)
    return out[0].transpose(0, 1).flatten(1)


def _one_row(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float) -> torch.Tensor:
    """Decoding: the heads that share a KV head become its rows, so keys are read once."""
    kv_heads, head_dim = keys.shape[1:]
    grouped = queries.view(1, kv_heads, -1, head_dim)
    return scaled_dot_product_attention(grouped, _heads_first(keys), _heads_first(values), scale=scale).view(1, -1)


def _block(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, positions: torch.Tensor, scale: float
) -> torch.Tensor:
    """Some rows over the keys up to the last row's position, masked by position."""
    num_rows, heads, head_dim = queries.shape
    visible_tokens = int(positions[-1]) + 1
    kv_heads = keys.shape[1]
    group = heads // kv_heads
    tokens = torch.arange(visible_tokens, device=queries.device)
    seen_by = positions.to(queries.device).repeat_interleave(group)
    mask = tokens <= seen_by[:, None]
    # Rows of one KV head's group side by side: keys are read once per group, and blocks are long enough to run well.
    grouped = queries.view(num_rows, kv_heads, group, head_dim).transpose(0, 1).reshape(1, kv_heads, -1, head_dim)
    out = scaled_dot_product_attention(
        grouped,
        _heads_first(keys[:visible_tokens]),
        _heads_first(values[:visible_tokens]),
        attn_mask=mask,
        scale=scale,
    )
    return out.view(kv_heads, num_rows, group, head_dim).transpose(0, 1).reshape(num_rows, -1)


def _heads_first(x: torch.Tensor) -> torch.Tensor:
    """(tokens, heads, head_dim) to (1, heads, tokens, head_dim), a view."""
    return x.transpose(0, 1)[None]
