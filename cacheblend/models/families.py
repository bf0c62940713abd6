"""How each family of Hugging Face decoders arranges one layer: the model's own modules, called on chosen rows.

A family is four small functions around modules it did not write. It knows nothing of caches, prompts or attention;
whether a family fits a model is not believed but checked (selfcheck.py).
"""

from __future__ import annotations

from typing import Any

import torch

Heads = torch.Tensor  # (rows, heads or kv_heads, head_dim)


class Llama:
    """Pre-norm blocks with separate q, k and v projections: Llama, SmolLM2, Mistral, Qwen2 and many others."""

    def __init__(self, hf_model: Any) -> None:
        self.decoder = hf_model.model
        self.head = hf_model.lm_head
        self.head_dim: int = self.decoder.layers[0].self_attn.head_dim

    def embed(self, token_ids: torch.Tensor) -> torch.Tensor:
        """Token ids (rows,) to hidden states (rows, d_model)."""
        hidden: torch.Tensor = self.decoder.embed_tokens(token_ids)
        return hidden

    def qkv(self, block: Any, hidden: torch.Tensor) -> tuple[Heads, Heads, Heads]:
        """Project hidden states to queries, keys and values, all before RoPE."""
        normed = block.input_layernorm(hidden)
        attention = block.self_attn
        return (
            self._split(attention.q_proj(normed)),
            self._split(attention.k_proj(normed)),
            self._split(attention.v_proj(normed)),
        )

    def finish(self, block: Any, hidden: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """Output projection, residual, MLP, residual. attended: (rows, heads * head_dim)."""
        hidden = hidden + block.self_attn.o_proj(attended)
        result: torch.Tensor = hidden + block.mlp(block.post_attention_layernorm(hidden))
        return result

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Final norm and language-model head: (rows, d_model) to (rows, vocab)."""
        result: torch.Tensor = self.head(self.decoder.norm(hidden))
        return result

    def uses_rope(self, block: Any) -> bool:
        """Whether this layer's queries and keys are rotated by position."""
        return True

    def _split(self, projected: torch.Tensor) -> Heads:
        return projected.view(*projected.shape[:-1], -1, self.head_dim)


class Qwen3(Llama):
    """Llama with a norm over each head of q and k, before RoPE."""

    def qkv(self, block: Any, hidden: torch.Tensor) -> tuple[Heads, Heads, Heads]:
        """Project and normalise."""
        q, k, v = super().qkv(block, hidden)
        return block.self_attn.q_norm(q), block.self_attn.k_norm(k), v


class SmolLM3(Llama):
    """Llama in which every fourth layer has no RoPE."""

    def uses_rope(self, block: Any) -> bool:
        """Read the layer's own switch."""
        return bool(block.self_attn.use_rope)


class Granite(Llama):
    """Llama with scalar multipliers on embeddings, residuals and logits."""

    def __init__(self, hf_model: Any) -> None:
        super().__init__(hf_model)
        self.embedding_multiplier = float(hf_model.config.embedding_multiplier)
        self.logits_scaling = float(hf_model.config.logits_scaling)

    def embed(self, token_ids: torch.Tensor) -> torch.Tensor:
        """Scaled embeddings."""
        return super().embed(token_ids) * self.embedding_multiplier

    def finish(self, block: Any, hidden: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """Scaled residuals."""
        hidden = hidden + block.self_attn.o_proj(attended) * block.residual_multiplier
        mlp = block.mlp(block.post_attention_layernorm(hidden))
        result: torch.Tensor = hidden + mlp * block.residual_multiplier
        return result

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Scaled logits."""
        return super().logits(hidden) / self.logits_scaling


class Olmo2(Llama):
    """Norms after attention and MLP instead of before, and over all heads of q and k together."""

    def qkv(self, block: Any, hidden: torch.Tensor) -> tuple[Heads, Heads, Heads]:
        """Project, then normalise q and k across heads."""
        attention = block.self_attn
        q = attention.q_norm(attention.q_proj(hidden))
        k = attention.k_norm(attention.k_proj(hidden))
        return self._split(q), self._split(k), self._split(attention.v_proj(hidden))

    def finish(self, block: Any, hidden: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """Norm each branch before it joins the residual."""
        hidden = hidden + block.post_attention_layernorm(block.self_attn.o_proj(attended))
        result: torch.Tensor = hidden + block.post_feedforward_layernorm(block.mlp(hidden))
        return result


class Phi3(Llama):
    """Llama with q, k and v in one projection."""

    def __init__(self, hf_model: Any) -> None:
        super().__init__(hf_model)
        config = hf_model.config
        kv_size = config.num_key_value_heads * self.head_dim
        self.sizes = (config.num_attention_heads * self.head_dim, kv_size, kv_size)

    def qkv(self, block: Any, hidden: torch.Tensor) -> tuple[Heads, Heads, Heads]:
        """Project once and cut."""
        q, k, v = block.self_attn.qkv_proj(block.input_layernorm(hidden)).split(self.sizes, dim=-1)
        return self._split(q), self._split(k), self._split(v)


FAMILIES: dict[str, type[Llama]] = {
    "llama": Llama,
    "mistral": Llama,
    "qwen2": Llama,
    "qwen3": Qwen3,
    "smollm3": SmolLM3,
    "granite": Granite,
    "olmo2": Olmo2,
    "phi3": Phi3,
}
