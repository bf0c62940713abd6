"""Causal attention of few rows over many tokens, through torch's own kernel.

The only place where heads move in front of tokens. Knows positions; nothing of chunks or of which rows were chosen.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn.functional import scaled_dot_product_attention

# Rows are sorted by position, so a block of them needs keys only up to its last row's: with seven blocks the kernel
# visits 4/7 of the rectangle of rows × tokens instead of all of it.
MAX_BLOCKS = 7
# Below this many queries per KV head torch's CPU kernel works in smaller tiles and loses more than the block saves.
MIN_BLOCK_QUERIES = 192


@dataclass(frozen=True, slots=True)
class Block:
    """Rows start…stop-1 (indices, not positions), the tokens they need, and what each may see.

    mask: additive, (rows * group, visible_tokens), None where every row sees every needed token.
    """

    start: int
    stop: int
    visible_tokens: int
    mask: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class CausalRows:
    """Which tokens each row sees, prepared once and used by every layer that computes the same rows.

    num_rows: how many; blocks: None where the rows are the whole prompt, for which the kernel has a mask of its own.
    """

    num_rows: int
    blocks: tuple[Block, ...] | None

    @classmethod
    def at(cls, positions: torch.Tensor, *, group: int, like: torch.Tensor) -> CausalRows:
        """Row i sees tokens 0…positions[i]. positions: (rows,) ascending, on the CPU; group: query heads per KV head.

        like: gives the masks their dtype and device.
        """
        num_rows = len(positions)
        if num_rows > 1 and int(positions[0]) == 0 and int(positions[-1]) == num_rows - 1:
            return cls(num_rows, None)
        num_blocks = max(1, min(MAX_BLOCKS, num_rows * group // MIN_BLOCK_QUERIES))
        blocks, start = [], 0
        for part in positions.tensor_split(num_blocks):
            visible = int(part[-1]) + 1
            mask = None if len(part) == 1 else _mask(part, visible, group, like)
            blocks.append(Block(start, start + len(part), visible, mask))
            start += len(part)
        return cls(num_rows, tuple(blocks))


def attend(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, rows: CausalRows, scale: float
) -> torch.Tensor:
    """Attention of rows over the tokens they see.

    queries: (rows, heads, head_dim); keys, values: (tokens, kv_heads, head_dim); both placed. Returns
    (rows, heads * head_dim).
    """
    k, v = _heads_first(keys), _heads_first(values)
    if rows.blocks is None or len(rows.blocks) > 1:  # many rows read them: lay each head's tokens side by side, once
        k, v = k.contiguous(), v.contiguous()
    if rows.blocks is None:
        k, v = k[:, :, : rows.num_rows], v[:, :, : rows.num_rows]
        out = scaled_dot_product_attention(_heads_first(queries), k, v, is_causal=True, scale=scale, enable_gqa=True)
        return out[0].transpose(0, 1).flatten(1)
    return torch.cat([_attend_block(queries[b.start : b.stop], k, v, b, scale) for b in rows.blocks])


def _attend_block(queries: torch.Tensor, k: torch.Tensor, v: torch.Tensor, block: Block, scale: float) -> torch.Tensor:
    """The query heads that share a KV head become its rows: keys are read once, and blocks are long enough.

    k, v: (1, kv_heads, tokens, head_dim).
    """
    num_rows, _, head_dim = queries.shape
    kv_heads = k.shape[1]
    grouped = queries.view(num_rows, kv_heads, -1, head_dim).transpose(0, 1).reshape(1, kv_heads, -1, head_dim)
    k, v = k[:, :, : block.visible_tokens], v[:, :, : block.visible_tokens]
    out = scaled_dot_product_attention(grouped, k, v, attn_mask=block.mask, scale=scale)
    return out.view(kv_heads, num_rows, -1, head_dim).transpose(0, 1).reshape(num_rows, -1)


def _mask(positions: torch.Tensor, visible_tokens: int, group: int, like: torch.Tensor) -> torch.Tensor:
    """0 where a row sees a token and -inf where not, each row `group` times, (rows * group, visible_tokens)."""
    last_seen = positions.to(like.device).repeat_interleave(group)[:, None]
    hidden = torch.arange(visible_tokens, device=like.device) > last_seen
    return like.new_zeros(hidden.shape).masked_fill_(hidden, -torch.inf)


def _heads_first(x: torch.Tensor) -> torch.Tensor:
    """(tokens, heads, head_dim) to (1, heads, tokens, head_dim), a view."""
    return x.transpose(0, 1)[None]
