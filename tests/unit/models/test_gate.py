"""The gate at load: a model that fits no family, or whose forward differs, is refused by name."""

from __future__ import annotations

import copy

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

from cacheblend.models.layerwise import LayerwiseModel, UnsupportedModelError
from cacheblend.models.selfcheck import check_model
from cacheblend.models.weights import ModelNotFoundError, load_model
from tests.tiny import FAMILIES, SIZES, tiny


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_passes(family):
    assert check_model(LayerwiseModel(tiny(family))) < 1e-4


def test_half_precision_passes():
    assert check_model(LayerwiseModel(copy.deepcopy(tiny("qwen3")).to(torch.bfloat16))) < 0.06


def test_a_forward_that_differs_is_refused_and_says_where():
    model = copy.deepcopy(tiny("llama"))
    layerwise = LayerwiseModel(model)
    original = layerwise.qkv

    def wrong(layer, hidden):
        q, k, v = original(layer, hidden)
        return q, k, v * (1.5 if layer == 2 else 1)

    layerwise.qkv = wrong
    with pytest.raises(UnsupportedModelError, match="logits differ from transformers' own forward"):
        check_model(layerwise)


def test_sliding_windows_are_refused():
    config = MistralConfig(**SIZES, sliding_window=64)
    with pytest.raises(UnsupportedModelError, match="sliding"):
        LayerwiseModel(MistralForCausalLM._from_config(config))


def test_rope_that_depends_on_the_length_is_refused():
    rope = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
    model = LlamaForCausalLM._from_config(LlamaConfig(**SIZES, rope_parameters=rope))
    with pytest.raises(UnsupportedModelError, match="dynamic"):
        LayerwiseModel(model)


def test_another_architecture_is_refused_by_name():
    model = GPT2LMHeadModel._from_config(GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=97))
    with pytest.raises(UnsupportedModelError, match="gpt2"):
        LayerwiseModel(model)


def test_no_weights_under_a_name_says_what_to_give(tmp_path):
    with pytest.raises(ModelNotFoundError, match="could not be loaded"):
        load_model(str(tmp_path))


def test_a_folder_loads(tmp_path):
    from tests.tiny import tiny_tokenizer

    tiny("qwen2").save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    model, tokenizer = load_model(str(tmp_path), device="cpu", dtype="float32")
    assert check_model(LayerwiseModel(model)) < 1e-4
    assert tokenizer.eos_token_id == 2
