"""Tiny random decoders of every supported family, built from a config in the test process: float32, no weights."""

from __future__ import annotations

import functools

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import (
    GraniteConfig,
    GraniteForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Olmo2Config,
    Olmo2ForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    SmolLM3Config,
    SmolLM3ForCausalLM,
)

VOCAB = 97
SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 5,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN_ROPE = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 128}
MODELS = {
    "llama": (LlamaForCausalLM, LlamaConfig, {}),
    "llama-llama3-rope": (LlamaForCausalLM, LlamaConfig, {"rope_parameters": LLAMA3_ROPE}),
    "llama-yarn": (LlamaForCausalLM, LlamaConfig, {"rope_parameters": YARN_ROPE}),
    "mistral": (MistralForCausalLM, MistralConfig, {"sliding_window": None, "head_dim": 8}),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config, {}),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config, {"head_dim": 8}),
    "smollm3": (SmolLM3ForCausalLM, SmolLM3Config, {"no_rope_layer_interval": 2}),
    "granite": (
        GraniteForCausalLM,
        GraniteConfig,
        {"embedding_multiplier": 1.5, "residual_multiplier": 0.6, "attention_multiplier": 0.3, "logits_scaling": 2.0},
    ),
    "olmo2": (Olmo2ForCausalLM, Olmo2Config, {}),
    "phi3": (Phi3ForCausalLM, Phi3Config, {"sliding_window": None}),
}
FAMILIES = tuple(MODELS)


@functools.cache
def tiny(name: str, seed: int = 0):
    """A random model of that family in eval mode; weights scaled up so that attention is far from uniform."""
    model_class, config_class, extra = MODELS[name]
    torch.manual_seed(seed)
    config = config_class(**{**SIZES, **extra}, initializer_range=0.15)
    model = model_class._from_config(config, attn_implementation="sdpa", dtype=torch.float32).eval()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
        if parameter.ndim == 1:  # norms and biases away from their trivial start
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def random_ids(length: int, seed: int) -> list[int]:
    """Token ids that are no special token."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, VOCAB, (length,), generator=generator).tolist()


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """A word-level tokenizer over the tiny models' vocabulary, with a chat template and control tokens."""
    words = ["who", "lit", "it", "?", "x", "ignore", "this", "Question", "Answer", "Passages", ":", ".", "\n"]
    vocabulary = {"<unk>": 0, "<start>": 1, "<end>": 2, **{word: 3 + i for i, word in enumerate(words)}}
    vocabulary |= {f"w{i}": i for i in range(len(vocabulary), VOCAB)}
    backend = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = Whitespace()
    backend.add_special_tokens(["<start>", "<end>"])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<start>", eos_token="<end>")
    tokenizer.chat_template = (
        "{% for m in messages %}<start>{{ m['content'] }}<end>{% endfor %}"
        + "{% if add_generation_prompt %}<start>{% endif %}"
    )
    return tokenizer
