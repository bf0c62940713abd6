"""Law 6: what every policy owes, whatever it selects by."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cacheblend.config import BlendConfig
from cacheblend.fusion.policies import HKVD, AllRows, NoRows, SelectionView
from cacheblend.prompt import PromptPlan
from cacheblend.schedule import gradual_shares
from cacheblend.trace import Mode, Selector

POLICIES = [
    AllRows(),
    NoRows(),
    *(HKVD(ratio, selector) for ratio in (0.0, 0.05, 0.3, 0.77, 1.0) for selector in Selector),
]
PLAN = PromptPlan.of(range(3, 8), [range(10, 60), range(60, 90)], range(5))


def view(layer: int, rows: torch.Tensor, deviation: torch.Tensor) -> SelectionView:
    return SelectionView(layer, 6, rows, deviation, rows >= PLAN.context_tokens, PLAN)


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_every_policy_keeps_sorted_unique_live_rows_and_the_suffix(policy, seed):
    generator = torch.Generator().manual_seed(seed)
    rows = policy.start(PLAN)
    suffix = set(range(PLAN.context_tokens, PLAN.num_tokens))
    assert suffix <= set(rows.tolist())
    for layer in range(6):
        if not policy.selects_at(layer):
            continue
        kept = policy.select(view(layer, rows, torch.rand(len(rows), generator=generator)))
        assert kept.tolist() == sorted(set(kept.tolist()))
        assert int(kept.min()) >= 0 and int(kept.max()) < len(rows)
        rows = rows[kept]
        assert suffix <= set(rows.tolist())
        assert len(rows) - len(suffix) == policy.budget(layer, 6, PLAN.context_tokens), "exact budget"


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
