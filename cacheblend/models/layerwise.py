"""A decoder run layer by layer over any subset of a prompt's rows.

Knows nothing of caches or policies: it embeds rows, projects them, rotates them, and finishes layers. Batch is 1 and
not a dimension.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch

from cacheblend.fusion.attention import CausalRows
from cacheblend.models.families import FAMILIES, Heads, Llama


class UnsupportedModelError(ValueError):
    """The model cannot be run layer by layer exactly; the message says what stands in the way."""


@dataclass(frozen=True, slots=True)
class Rotary:
    """RoPE's cosines and sines for some positions, (rows, 1, rotary_dim), in the model's dtype."""

    cos: torch.Tensor
    sin: torch.Tensor

    def at(self, rows: torch.Tensor | slice) -> Rotary:
        """The same for a subset of the positions."""
        return Rotary(self.cos[rows], self.sin[rows])


class LayerwiseModel:
    """A Hugging Face decoder whose layers can be run one at a time on rows of one's choosing.

    hf_model: a causal language model; UnsupportedModelError if its architecture cannot be driven this way.
    """

    def __init__(self, hf_model: Any) -> None:
        self.hf_model = hf_model.eval()
        config = hf_model.config
        _refuse_by_config(config)
        family = FAMILIES.get(config.model_type, Llama)
        try:
            self._family = family(hf_model)
            self._blocks = list(hf_model.model.layers[: config.num_hidden_layers])
            self.scale: float = self._blocks[0].self_attn.scaling
        except AttributeError as error:
            raise UnsupportedModelError(
                f"models of type “{config.model_type}” are not laid out like any supported family ({error}); "
                f"supported: {', '.join(FAMILIES)}."
            ) from error
        self.num_layers = len(self._blocks)
        self.num_heads: int = config.num_attention_heads
        self.kv_heads: int = config.num_key_value_heads
        self.head_dim = self._family.head_dim
        self.vocab: int = config.vocab_size
        self.context_limit: int = config.max_position_embeddings

    def part(self, start: int, num_layers: int) -> LayerwiseModel:
        """The same model with only some consecutive layers, counted from the first again at the end."""
        few = copy.copy(self)
        few._blocks = [self._blocks[(start + i) % self.num_layers] for i in range(min(num_layers, self.num_layers))]
        few.num_layers = len(few._blocks)
        return few

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        device: torch.device = self.hf_model.device
        return device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of weights and KV."""
        dtype: torch.dtype = self.hf_model.dtype
        return dtype

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of K and V that one token costs over all layers."""
        return 2 * self.num_layers * self.kv_heads * self.head_dim * self.dtype.itemsize

    def causal_rows(self, positions: torch.Tensor) -> CausalRows:
        """Which tokens rows at these positions (rows,), ascending and on the CPU, attend to."""
        like = torch.empty(0, dtype=self.dtype, device=self.device)
        return CausalRows.at(positions, group=self.num_heads // self.kv_heads, like=like)

    def embed(self, token_ids: torch.Tensor) -> torch.Tensor:
        """Token ids (rows,) to hidden states (rows, d_model)."""
        return self._family.embed(token_ids)

    def rotary(self, positions: torch.Tensor) -> Rotary:
        """The model's own RoPE at these positions (rows,)."""
        like = torch.empty(0, dtype=self.dtype, device=self.device)
        cos, sin = self.hf_model.model.rotary_emb(like, positions[None])
        return Rotary(cos[0, :, None], sin[0, :, None])

    def qkv(self, layer: int, hidden: torch.Tensor) -> tuple[Heads, Heads, Heads]:
        """Queries (rows, heads, head_dim), keys and values (rows, kv_heads, head_dim), all before RoPE."""
        return self._family.qkv(self._blocks[layer], hidden)

    def rotate(self, layer: int, x: Heads, rotary: Rotary) -> Heads:
        """Return queries or keys at their positions. The order of operations is transformers' own, so bits agree."""
        if not self._family.uses_rope(self._blocks[layer]):
            return x
        return self.rotate_(layer, x.clone(), rotary)

    def rotate_(self, layer: int, x: Heads, rotary: Rotary) -> Heads:
        """`rotate` in place."""
        if self._family.uses_rope(self._blocks[layer]):
            turned = x[..., : rotary.cos.shape[-1]]
            half = turned.shape[-1] // 2
            crossed = torch.cat((-turned[..., half:], turned[..., :half]), dim=-1) * rotary.sin
            turned.mul_(rotary.cos).add_(crossed)
        return x

    def finish_layer(self, layer: int, hidden: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """Output projection and MLP with their residuals. attended: (rows, heads * head_dim)."""
        return self._family.finish(self._blocks[layer], hidden, attended)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden states (rows, d_model) after the last layer to next-token logits (rows, vocab)."""
        return self._family.logits(hidden)


def _refuse_by_config(config: Any) -> None:
    """Refuse what row-wise attention over the whole context cannot reproduce, by name."""
    kinds = set(getattr(config, "layer_types", None) or ()) - {"full_attention"}
    window = getattr(config, "sliding_window", None)
    uses_window = getattr(config, "use_sliding_window", True) and window is not None
    if kinds or (uses_window and window < config.max_position_embeddings):
        what = ", ".join(sorted(kinds)) or f"a sliding window of {window} tokens"
        raise UnsupportedModelError(f"the model has layers with {what}; only full attention can be blended.")
    rope = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    if rope in ("dynamic", "longrope"):
        raise UnsupportedModelError(
            f"the model's RoPE is “{rope}”: its angles change with the prompt's length, so caches cannot be placed."
        )
