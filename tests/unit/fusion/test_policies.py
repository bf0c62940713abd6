"""Law 6: what every policy owes, whatever it selects by."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cacheblend.config import BlendConfig
from cacheblend.fusion.evidence import gather
from cacheblend.fusion.fusor import fuse
from cacheblend.fusion.policies import HKVD, POLICIES, AllRows, NoRows, SelectionView
from cacheblend.fusion.policies.query import QueryAttention
from cacheblend.fusion.spans import SpanRecorder
from cacheblend.prompt import PromptPlan
from cacheblend.schedule import gradual_shares
from cacheblend.trace import Deviation, Lane, Mode, Selector
from tests import reference

RATIOS = (0.0, 0.05, 0.3, 0.77, 1.0)
CASES = [
    POLICIES["all"].make(1.0, Selector.SINGLE),
    POLICIES["none"].make(0.0, Selector.SINGLE),
    *(POLICIES["hkvd"].make(ratio, selector) for ratio in RATIOS for selector in Selector),
    *(POLICIES["random"].make(ratio, Selector.SINGLE) for ratio in RATIOS),
    *(POLICIES["first"].make(ratio, Selector.SINGLE) for ratio in RATIOS),
    *(POLICIES["query"].make(ratio, Selector.SINGLE) for ratio in RATIOS),
    *(POLICIES["late-query"].make(ratio, Selector.SINGLE) for ratio in RATIOS),
    *(POLICIES["query-deviation"].make(ratio, Selector.SINGLE) for ratio in RATIOS),
    *(POLICIES["layers"].make(ratio, Selector.SINGLE) for ratio in RATIOS),
    *(POLICIES["oracle"].make(ratio, Selector.SINGLE) for ratio in RATIOS),
]
PLAN = PromptPlan.of(range(3, 8), [range(10, 60), range(60, 90)], range(5))
LAYERS = 6


def view(
    layer: int, rows: torch.Tensor, deviation: torch.Tensor, importance: torch.Tensor | None = None
) -> SelectionView:
    return SelectionView(layer, LAYERS, rows, deviation, rows >= PLAN.context_tokens, PLAN, importance)


def test_the_matrix_has_every_policy():
    made = {type(policy) for policy in CASES}
    assert made == {type(entry.make(0.15, Selector.SINGLE)) for entry in POLICIES.values()}


@pytest.mark.parametrize("policy", CASES, ids=repr)
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_every_policy_keeps_sorted_unique_live_rows_and_the_suffix(policy, seed):
    generator = torch.Generator().manual_seed(seed)
    importance = torch.rand(LAYERS, PLAN.context_tokens, generator=generator) if policy.evidence else None
    rows = policy.start(PLAN, importance)
    suffix = set(range(PLAN.context_tokens, PLAN.num_tokens))
    assert suffix <= set(rows.tolist())
    assert rows.tolist() == sorted(set(rows.tolist()))
    for layer in range(LAYERS):
        if policy.selects_at(layer):
            deviation = torch.rand(len(rows), generator=generator)
            kept = policy.select(view(layer, rows, deviation, importance))
            assert kept.tolist() == sorted(set(kept.tolist()))
            assert int(kept.min()) >= 0 and int(kept.max()) < len(rows)
            rows = rows[kept]
        assert suffix <= set(rows.tolist())
        assert len(rows) - len(suffix) == policy.budget(layer, LAYERS, PLAN.context_tokens), "exact budget"


@pytest.mark.parametrize("policy", CASES, ids=repr)
def test_the_budget_is_the_ratio_in_the_mean_over_the_layers_after_the_first(policy):
    ratio = getattr(policy, "ratio", None)
    if ratio is not None:
        counts = [policy.budget(layer, LAYERS, PLAN.context_tokens) for layer in range(1, LAYERS)]
        assert sum(counts) == pytest.approx(ratio * (LAYERS - 1) * PLAN.context_tokens, abs=LAYERS)


@pytest.mark.parametrize("name", [name for name in POLICIES if name not in ("all", "none")])
@pytest.mark.parametrize(("ratio", "mode"), [(0.0, NoRows()), (1.0, AllRows())], ids=["0", "1"])
def test_ratio_0_is_reuse_and_ratio_1_is_full(llama, name, ratio, mode):
    policy = POLICIES[name].make(ratio, Selector.SINGLE)
    importance, source = gathered(llama, policy)
    fused = fuse(llama.model, llama.plan, source, policy, importance=importance)
    expected = fuse(llama.model, llama.plan, llama.source(), mode)
    assert torch.equal(fused.logits, expected.logits)
    for layer in range(llama.model.num_layers):
        assert torch.equal(fused.cache.layer(layer).keys, expected.cache.layer(layer).keys)
        assert torch.equal(fused.cache.layer(layer).values, expected.cache.layer(layer).values)


def test_evidence_is_paid_for_on_the_lane_of_selecting(llama):
    for name in ("query", "oracle"):
        spans = SpanRecorder(llama.model.device)
        gathered(llama, POLICIES[name].make(0.3, Selector.SINGLE), spans)
        assert {span.lane for span in spans.spans()} == {Lane.SELECT}


def test_query_attention_is_what_transformers_own_attention_says(case):
    found, source = gathered(case, QueryAttention(0.3))
    layers = reference.suffix_weights(case.model.hf_model, case.prefix, case.chunks, case.suffix, apart=True)
    wanted = torch.stack([layer[:, :, : case.plan.context_tokens].sum(dim=(0, 1)) for layer in layers])
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)
    fresh = case.source()
    front = case.plan.context_tokens
    for layer in range(case.model.num_layers):
        assert torch.equal(source.layer(layer).keys[:front], fresh.layer(layer).keys[:front]), "read, not changed"


def test_the_true_deviation_is_the_distance_to_transformers_own_forward(llama):
    found, _ = gathered(llama, POLICIES["oracle"].make(0.3, Selector.SINGLE))
    _, full = reference.full_forward(llama.model.hf_model, list(llama.plan.token_ids))
    _, reuse = reference.reuse_forward(llama.model.hf_model, llama.prefix, llama.chunks, llama.suffix)
    front = llama.plan.context_tokens
    layers = [((a[1] - b[1])[:front] ** 2).sum(dim=(1, 2)) for a, b in zip(full, reuse, strict=True)]
    wanted = torch.stack([d / d.mean() for d in layers[1:]])
    torch.testing.assert_close(found[1:], wanted, atol=1e-3, rtol=1e-3)
    assert float(found[1:, : len(llama.prefix)].max()) < 1e-4, "the first segment has seen all there is"


def test_late_query_attention_counts_the_later_half_and_leaves_out_the_first_segment():
    importance = torch.zeros(LAYERS, PLAN.context_tokens)
    importance[LAYERS // 2 - 1, 60] = 9  # an early layer
    importance[LAYERS // 2, [20, 70]] = torch.tensor([1.0, 2.0])
    importance[-1, [3, 30]] = torch.tensor([9.0, 0.5])  # the first of them in the first segment
    rows = POLICIES["late-query"].make(3 / PLAN.context_tokens, Selector.SINGLE).start(PLAN, importance)
    assert rows.tolist() == [20, 30, 70, *range(PLAN.context_tokens, PLAN.num_tokens)]


def test_first_tokens_come_evenly_from_every_segment_but_the_first():
    rows = POLICIES["first"].make(12 / PLAN.context_tokens, Selector.SINGLE).start(PLAN)
    assert rows.tolist() == [*range(5, 11), *range(55, 61), *range(PLAN.context_tokens, PLAN.num_tokens)]


def test_a_layer_range_computes_whole_layers_and_then_none(llama):
    fused = fuse(llama.model, llama.plan, llama.source(), POLICIES["layers"].make(0.5, Selector.SINGLE))
    whole = llama.plan.context_tokens
    assert fused.kept_per_layer == (whole, whole, whole, 0, 0)
    full = fuse(llama.model, llama.plan, llama.source(), AllRows())
    for layer in (0, 1, 2):
        assert torch.equal(fused.cache.layer(layer).values, full.cache.layer(layer).values)


def test_a_policy_without_its_evidence_says_so(llama):
    with pytest.raises(ValueError, match="evidence"):
        fuse(llama.model, llama.plan, llama.source(), QueryAttention(0.3))


def gathered(case, policy, spans=None):
    spans = spans or SpanRecorder(case.model.device)
    return gather(policy.evidence, case.model, case.plan, case.source(), Deviation.VALUE, spans=spans)


def test_hkvd_keeps_exactly_the_top_rows_of_a_hand_made_deviation():
    rows = torch.arange(PLAN.num_tokens)
    deviation = torch.zeros(PLAN.num_tokens)
    wanted = [7, 12, 13, 40, 41, 42, 70, 83]
    deviation[wanted] = torch.tensor([5.0, 9.0, 1.0, 2.0, 8.0, 3.0, 7.0, 4.0])
    policy = HKVD(ratio=8 / PLAN.context_tokens)
    kept = policy.select(view(1, rows, deviation)).tolist()
    assert kept == [*wanted, *range(PLAN.context_tokens, PLAN.num_tokens)]


@given(ratio=st.floats(0.001, 1), num_layers=st.integers(2, 90))
def test_gradual_shares_fall_and_their_mean_is_the_ratio(ratio, num_layers):
    first, *later = gradual_shares(ratio, num_layers)
    assert first == 1
    assert all(a >= b - 1e-12 for a, b in itertools.pairwise(later))
    assert sum(later) / len(later) == pytest.approx(ratio)
    assert all(-1e-9 <= share <= 1 + 1e-9 for share in later)


@pytest.mark.parametrize("ratio", [-0.1, 1.01, float("nan")])
def test_a_ratio_outside_its_range_is_refused(ratio):
    with pytest.raises(ValueError, match="ratio must be in"):
        HKVD(ratio=ratio)
    with pytest.raises(ValueError, match="ratio must be in"):
        BlendConfig(ratio=ratio)


def test_full_has_no_policy():
    with pytest.raises(ValueError, match="no policy"):
        BlendConfig().selection(Mode.FULL)
