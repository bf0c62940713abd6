"""How far a mode's KV and attention are from full's, against weights and caches that transformers itself returns."""

from __future__ import annotations

import pytest
import torch

from cacheblend.distance import attention_distance, kv_distance
from cacheblend.fusion.fusor import fuse
from cacheblend.fusion.policies import HKVD, AllRows, NoRows
from tests import reference


def caches(case):
    full = fuse(case.model, case.plan, case.source(), AllRows()).cache
    return full, fuse(case.model, case.plan, case.source(), NoRows()).cache


def test_attention_distance_is_that_of_transformers_own_weights(case):
    made = attention_distance(case.model, *caches(case), case.plan)
    pair = [
        reference.suffix_weights(case.model.hf_model, case.prefix, case.chunks, case.suffix, apart=apart)
        for apart in (False, True)
    ]
    norms = [torch.linalg.matrix_norm(full - reuse).mean() for full, reuse in zip(*pair, strict=True)]
    assert made == pytest.approx(float(sum(norms) / len(norms)), rel=1e-3)


def test_kv_distance_is_that_of_transformers_own_caches(llama):
    made = kv_distance(*caches(llama), llama.plan, llama.model.num_layers)
    hf, front = llama.model.hf_model, llama.plan.context_tokens
    _, full = reference.full_forward(hf, list(llama.plan.token_ids))
    _, reuse = reference.reuse_forward(hf, llama.prefix, llama.chunks, llama.suffix)
    layers = []
    for wanted, found in zip(full, reuse, strict=True):
        parts = [
            ((w - f)[:front] ** 2).sum(dim=(1, 2)) / (w[:front] ** 2).sum(dim=(1, 2)).mean()
            for w, f in zip(wanted, found, strict=True)
        ]
        layers.append((parts[0] + parts[1]).sqrt().mean())
    assert made == pytest.approx(float(sum(layers) / len(layers)), rel=1e-3)


def test_full_is_at_no_distance_and_recomputing_more_comes_nearer(llama):
    full, reuse = caches(llama)
    half = fuse(llama.model, llama.plan, llama.source(), HKVD(0.5)).cache
    before = [(kv.keys.clone(), kv.values.clone()) for kv in map(reuse.layer, range(llama.model.num_layers))]
    assert attention_distance(llama.model, full, full, llama.plan) == 0
    assert kv_distance(full, full, llama.plan, llama.model.num_layers) == 0
    assert 0 < kv_distance(full, half, llama.plan, 5) < kv_distance(full, reuse, llama.plan, 5)
    assert attention_distance(llama.model, full, half, llama.plan) > 0
    assert attention_distance(llama.model, full, half, llama.plan) < attention_distance(
        llama.model, full, reuse, llama.plan
    )
    for layer, (keys, values) in enumerate(before):
        assert torch.equal(reuse.layer(layer).keys, keys) and torch.equal(reuse.layer(layer).values, values)
