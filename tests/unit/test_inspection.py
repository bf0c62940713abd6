"""What Inspect shows, against transformers' own attention weights and against oracles of reuse and blend."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cacheblend.config import BlendConfig
from cacheblend.inspection import inspect_plan, store_attention
from cacheblend.trace import Inspection, Mode
from tests import reference
from tests.conftest import Case, make_case


@pytest.fixture(params=["llama", "qwen3", "smollm3"])
def case(request) -> Case:
    return make_case(request.param, seed=5)


def look(case: Case, ratio: float = 0.2) -> Inspection:
    return inspect_plan(case.model, case.plan, case.caches(), [()] * len(case.plan.context), BlendConfig(ratio=ratio))


def whole(inspection: Inspection, mode: Mode, layer: int, head: int | None, num_tokens: int) -> np.ndarray:
    """An unpooled attention matrix, 0 above the diagonal."""
    span = (0, num_tokens)
    window = inspection.attention.window(mode, layer, head, rows=span, cols=span, size=num_tokens)
    assert not window.is_pooled
    return np.nan_to_num(window.values)


def eager_attention(case: Case, token_ids, mask=None):
    """transformers' own weights per layer, (heads, tokens, tokens)."""
    model = case.model.hf_model
    model.set_attn_implementation("eager")
    with torch.inference_mode():
        out = model(torch.tensor([token_ids]), attention_mask=mask, output_attentions=True)
    model.set_attn_implementation("sdpa")
    return [a[0].numpy() for a in out.attentions]


def test_full_shows_the_models_own_attention(case):
    plan, inspection = case.plan, look(case)
    expected = eager_attention(case, plan.token_ids)
    for layer in (0, 2, 4):
        for head in (0, 5):
            np.testing.assert_allclose(
                whole(inspection, Mode.FULL, layer, head, plan.num_tokens), expected[layer][head], atol=1e-5
            )
        np.testing.assert_allclose(
            whole(inspection, Mode.FULL, layer, None, plan.num_tokens), expected[layer].mean(0), atol=1e-5
        )


def test_reuse_shows_empty_blocks_between_chunks(case):
    plan, inspection = case.plan, look(case)
    mask = torch.full((plan.num_tokens, plan.num_tokens), float("-inf"))
    for row, first in enumerate(plan.visible_from()):
        mask[row, first : row + 1] = 0
    expected = eager_attention(case, plan.token_ids, mask[None, None])
    for layer in (0, 3):
        shown = whole(inspection, Mode.REUSE, layer, 1, plan.num_tokens)
        np.testing.assert_allclose(shown, expected[layer][1], atol=1e-5)
        second = plan.segments[2]
        assert shown[second.start : second.stop, : second.start].max() == 0


def test_blend_fills_the_rows_it_recomputed_and_no_others(case):
    plan, inspection = case.plan, look(case)
    layer = 3
    shown, alone = (whole(inspection, m, layer, 0, plan.num_tokens) for m in (Mode.BLEND, Mode.REUSE))
    kept = np.flatnonzero(inspection.selected[layer])
    others = np.setdiff1d(np.arange(plan.num_tokens), kept)
    np.testing.assert_array_equal(shown[others], alone[others])
    assert np.allclose(shown.sum(1), 1, atol=1e-5)
    for row in kept:
        first = plan.visible_from()[row]
        if first:
            assert shown[row, :first].sum() > 0, "a recomputed row sees the chunks before its own"


def test_selection_is_the_budget_and_the_suffix(case):
    plan, inspection = case.plan, look(case, ratio=0.2)
    assert inspection.selected[0].all()
    assert set(inspection.selected[1:].sum(1)) == {round(0.2 * plan.context_tokens) + plan.segments[-1].num_tokens}
    assert inspection.selected[:, plan.context_tokens :].all()


def test_kv_deviation_is_the_distance_to_full(case):
    plan, inspection = case.plan, look(case)
    _, full = reference.full_forward(case.model.hf_model, list(plan.token_ids))
    _, reuse = reference.reuse_forward(case.model.hf_model, case.prefix, case.chunks, case.suffix)
    layer = 2

    def distance(kind: int) -> torch.Tensor:
        norm = full[layer][kind].square().sum((1, 2)).mean()
        return (full[layer][kind] - reuse[layer][kind]).square().sum((1, 2)) / norm

    expected = (distance(0) + distance(1)).sqrt().numpy()
    np.testing.assert_allclose(inspection.kv_deviation[Mode.REUSE][layer], expected, atol=1e-4)
    assert inspection.kv_deviation[Mode.BLEND][1].max() < 1e-4, "layer 1 is projected whole and written back"
    assert inspection.kv_deviation[Mode.BLEND].mean() < inspection.kv_deviation[Mode.REUSE].mean()


def test_attention_deviation_is_that_of_the_suffix_rows(case):
    plan, inspection = case.plan, look(case)
    layer = 2
    rows = slice(plan.context_tokens, plan.num_tokens)
    expected = np.mean(
        [
            np.sqrt(
                np.square(
                    whole(inspection, Mode.REUSE, layer, h, plan.num_tokens)[rows]
                    - whole(inspection, Mode.FULL, layer, h, plan.num_tokens)[rows]
                ).sum(0)
            )
            for h in range(case.model.num_heads)
        ],
        axis=0,
    )
    np.testing.assert_allclose(inspection.attention_deviation[Mode.REUSE][layer], expected, atol=1e-5)


def test_ratio_1_deviates_nowhere(case):
    inspection = look(case, ratio=1.0)
    assert inspection.kv_deviation[Mode.BLEND].max() < 1e-3
    assert inspection.attention_deviation[Mode.BLEND].max() < 1e-5
    assert inspection.kv_deviation[Mode.REUSE].max() > 0.01


def test_a_pooled_window_is_the_mean_of_what_causality_allows(case):
    plan, inspection = case.plan, look(case)
    matrix = whole(inspection, Mode.FULL, 2, 1, plan.num_tokens)
    window = inspection.attention.window(Mode.FULL, 2, 1, rows=(10, 50), cols=(5, 41), size=7)
    assert window.is_pooled and window.values.shape == (7, 7)
    for i in range(7):
        for j in range(7):
            pairs = [
                matrix[r, c]
                for r in range(window.row_edges[i], window.row_edges[i + 1])
                for c in range(window.col_edges[j], window.col_edges[j + 1])
                if c <= r
            ]
            assert (
                window.values[i, j] == pytest.approx(np.mean(pairs), abs=1e-6)
                if pairs
                else np.isnan(window.values[i, j])
            )


def test_stored_maps_show_the_same_as_live_ones_to_8_bits(case):
    plan, inspection = case.plan, look(case)
    stored = store_attention(inspection, plan.num_tokens, size=16, every=3)
    assert stored.attention.layers == (0, 3, 4)
    span = (0, plan.num_tokens)
    for head in (None, 2):
        live = inspection.attention.window(Mode.BLEND, 3, head, rows=span, cols=span, size=16)
        kept = stored.attention.window(Mode.BLEND, 3, head, rows=span, cols=span, size=16)
        np.testing.assert_array_equal(live.row_edges, kept.row_edges)
        np.testing.assert_allclose(np.sqrt(live.values), np.sqrt(kept.values), atol=0.5 / 255 + 1e-6)
    part = stored.attention.window(Mode.FULL, 3, None, rows=(20, 40), cols=(0, 40), size=16)
    assert part.row_edges[0] <= 20 and part.row_edges[-1] >= 40 and len(part.col_edges) == part.values.shape[1] + 1
