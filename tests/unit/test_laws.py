"""The laws that everything else stands on, each against an independent oracle (tests/reference.py)."""

from __future__ import annotations

import pytest
import torch

from cacheblend.fusion.deviation import kv_deviation
from cacheblend.fusion.extend import KVCache, extend, prefill_chunk
from cacheblend.fusion.fusor import WriteBack, fuse
from cacheblend.fusion.policies import HKVD, AllRows, NoRows, SelectionPolicy
from cacheblend.kv import LayerKV
from cacheblend.models.layerwise import LayerwiseModel
from cacheblend.prompt import PromptPlan
from cacheblend.trace import Deviation, Selector
from tests import reference
from tests.conftest import make_case
from tests.tiny import random_ids, tiny

EXACT = {"atol": 1e-5, "rtol": 1e-4}


class Garbage:
    """A source whose caches hold nothing true."""

    def __init__(self, model: LayerwiseModel, capacity: int) -> None:
        self.shape = (capacity, model.kv_heads, model.head_dim)

    def layer(self, index: int) -> LayerKV:
        return LayerKV(torch.full(self.shape, 1e4 + index), torch.full(self.shape, -1e4))


def assert_same_kv(cache: KVCache, layers, what: str) -> None:
    for i, (keys, values) in enumerate(layers):
        torch.testing.assert_close(cache.layer(i).keys, keys, msg=lambda m, i=i: f"{what}, keys {i}: {m}", **EXACT)
        torch.testing.assert_close(
            cache.layer(i).values, values, msg=lambda m, i=i: f"{what}, values {i}: {m}", **EXACT
        )


def top_values(num_context: int, ratio: float):
    """The naive choice of the released code: once, at layer 1, by value deviation."""

    def choose(layer, rows, deviations):
        if layer != 1:
            return rows
        ranked = sorted((r for r in rows if r < num_context), key=lambda r: -deviations[rows.index(r)])
        return sorted(ranked[: round(ratio * num_context)] + [r for r in rows if r >= num_context])

    return choose


def test_law_1_layerwise_forward_is_the_models_own(case):
    plan = case.plan
    logits, layers = reference.full_forward(case.model.hf_model, list(plan.token_ids))
    cache = KVCache(case.model, plan.num_tokens)
    torch.testing.assert_close(extend(case.model, cache, torch.tensor(plan.token_ids)), logits, **EXACT)
    assert_same_kv(cache, layers, "full prefill")


@pytest.mark.parametrize("policy", [AllRows(), HKVD(ratio=1.0), HKVD(ratio=1.0, selector=Selector.GRADUAL)])
def test_law_2_ratio_1_is_full_prefill_whatever_the_source_holds(case, policy):
    plan = case.plan
    logits, layers = reference.full_forward(case.model.hf_model, list(plan.token_ids))
    for source in (case.source(), Garbage(case.model, plan.num_tokens)):
        fused = fuse(case.model, plan, source, policy)
        torch.testing.assert_close(fused.logits, logits[-1], **EXACT)
        assert_same_kv(fused.cache, layers, "ratio 1")


def test_law_2_ratio_1_has_the_bits_of_full_prefill(llama):
    plan = llama.plan
    cache = KVCache(llama.model, plan.num_tokens)
    logits = extend(llama.model, cache, torch.tensor(plan.token_ids), last_only=True)[0]
    fused = fuse(llama.model, plan, llama.source(), HKVD(ratio=1.0))
    assert torch.equal(fused.logits, logits)
    assert all(torch.equal(fused.cache.layer(i).keys, cache.layer(i).keys) for i in range(llama.model.num_layers))


@pytest.mark.parametrize("policy", [NoRows(), HKVD(ratio=0.0)])
def test_law_3_ratio_0_is_block_diagonal_attention(case, policy):
    logits, layers = reference.reuse_forward(case.model.hf_model, case.prefix, case.chunks, case.suffix)
    fused = fuse(case.model, case.plan, case.source(), policy)
    torch.testing.assert_close(fused.logits, logits[-1], **EXACT)
    assert_same_kv(fused.cache, layers, "reuse")


@pytest.mark.parametrize("offset", [0, 1, 37, 300])
def test_law_4_a_placed_chunk_is_the_chunk_run_at_its_positions(case, offset):
    ids = case.chunks[0]
    positions = list(range(offset, offset + len(ids)))
    _, layers = reference.forward_at(case.model.hf_model, ids, positions)
    rotary = case.model.rotary(torch.tensor(positions))
    for i, kv in enumerate(prefill_chunk(case.model, torch.tensor(ids))):
        torch.testing.assert_close(case.model.rotate(i, kv.keys, rotary), layers[i][0], **EXACT)
        torch.testing.assert_close(kv.values, layers[i][1], **EXACT)


def test_law_4_a_recipe_is_what_stood_in_front(case):
    front, ids = case.prefix, case.chunks[0]
    _, layers = reference.full_forward(case.model.hf_model, [*front, *ids])
    rotary = case.model.rotary(torch.arange(len(front), len(front) + len(ids)))
    made = prefill_chunk(case.model, torch.tensor(ids), recipe=torch.tensor(front))
    for i, kv in enumerate(made):
        torch.testing.assert_close(case.model.rotate(i, kv.keys, rotary), layers[i][0][len(front) :], **EXACT)


class Deviations:
    """Observes the deviation of every row at every layer."""

    def __init__(self, case) -> None:
        self.case, self.source, self.seen = case, case.source(), []

    def layer(self, index, hidden, projected, kept):
        _, k, v = self.case.model.qkv(index, hidden)
        cached = self.source.layer(index).first(self.case.plan.num_tokens)
        self.seen.append([kv_deviation(LayerKV(k, v), cached, kind) for kind in Deviation])


def test_law_5_deviation_is_zero_where_nothing_could_differ(case):
    observer = Deviations(case)
    fuse(case.model, case.plan, case.source(), AllRows(), observer=observer)
    first_stop = case.plan.segments[0].stop  # the prefix: the same stood in front of it, nothing
    context = case.plan.context_tokens
    for kind in range(len(Deviation)):
        assert observer.seen[0][kind][:context].max() < 1e-8, "layer 0 knows no context"
        for layer in range(case.model.num_layers):
            assert observer.seen[layer][kind][:first_stop].max() < 1e-8, "the prefix is exact at every layer"
        assert observer.seen[2][kind][first_stop:context].min() > 1e-6, "later chunks missed what stands before them"


@pytest.mark.parametrize("ratio", [0.1, 0.3, 0.7])
@pytest.mark.parametrize("write_back", list(WriteBack))
def test_law_6_blend_is_the_naive_blend(ratio, write_back):
    case = make_case("llama", seed=3)
    plan = case.plan
    logits, layers = reference.naive_llama_blend(
        case.model.hf_model,
        case.prefix,
        case.chunks,
        case.suffix,
        top_values(plan.context_tokens, ratio),
        write_all=write_back is not WriteBack.KEPT,
        carry=write_back is WriteBack.CARRIED,
    )
    fused = fuse(case.model, plan, case.source(), HKVD(ratio=ratio), write_back=write_back)
    torch.testing.assert_close(fused.logits, logits, **EXACT)
    assert_same_kv(fused.cache, layers, "blend")
    later = fused.kept_per_layer[1:]
    assert set(later) == {round(ratio * plan.context_tokens)}


MODES = [AllRows(), NoRows(), HKVD(0.3), HKVD(0.3, selector=Selector.GRADUAL)]


@pytest.mark.parametrize("policy", [AllRows(), NoRows()])
@pytest.mark.parametrize("row", [5, 24, 40])
def test_law_7_no_row_sees_a_later_position(case, policy, row):
    """Changing a later token never changes what an earlier row holds (rows chosen by content are held fixed here)."""
    changed_chunks = [list(c) for c in case.chunks]
    changed_chunks[-1][-1] = (changed_chunks[-1][-1] + 1) % 90 + 3
    before = fuse(case.model, case.plan, case.source(), policy).cache
    case.chunks = changed_chunks
    after = fuse(case.model, case.plan, case.source(), policy).cache
    for i in range(case.model.num_layers):
        torch.testing.assert_close(before.layer(i).keys[:row], after.layer(i).keys[:row], **EXACT)
        torch.testing.assert_close(before.layer(i).values[:row], after.layer(i).values[:row], **EXACT)


class FixedRows(SelectionPolicy):
    """Keeps given positions from layer 1 on, so that a changed token cannot change the choice."""

    def __init__(self, positions):
        self.positions = positions

    def start(self, plan, importance=None):
        return torch.arange(plan.num_tokens)

    def budget(self, layer, num_layers, context_tokens):
        return len(self.positions)

    def selects_at(self, layer):
        return layer == 1

    def select(self, view):
        return (torch.isin(view.rows, torch.tensor(self.positions)) | view.pinned).nonzero().squeeze(1)


@pytest.mark.parametrize("write_back", list(WriteBack))
def test_law_7_recomputed_rows_do_not_see_the_future(case, write_back):
    """The released code's mask lets them; here a changed last context token leaves every earlier row as it was."""
    policy, last = FixedRows([8, 20, 21, 33, 50, case.plan.context_tokens - 1]), case.plan.context_tokens - 1
    before = fuse(case.model, case.plan, case.source(), policy, write_back=write_back).cache
    case.chunks[-1][-1] = (case.chunks[-1][-1] + 1) % 90 + 3
    after = fuse(case.model, case.plan, case.source(), policy, write_back=write_back).cache
    changed = 0.0
    for i in range(case.model.num_layers):
        torch.testing.assert_close(before.layer(i).values[:last], after.layer(i).values[:last], **EXACT)
        changed += float((before.layer(i).values[last:] - after.layer(i).values[last:]).abs().sum())
    assert changed > 0.1, "the rows that may see the change did change"


def test_what_changes_is_carried_on_to_rows_behind_in_the_same_chunk_and_to_no_other(case):
    policy = FixedRows([20, 40])
    plain = fuse(case.model, case.plan, case.source(), policy).cache
    carried = fuse(case.model, case.plan, case.source(), policy, write_back=WriteBack.CARRIED).cache
    chunks = [next(s for s in case.plan.context if s.start <= row < s.stop) for row in (20, 40)]
    behind = [*range(21, chunks[0].stop), *range(41, chunks[1].stop)]
    differ = (plain.layer(2).values - carried.layer(2).values).flatten(1).norm(dim=1)[: case.plan.context_tokens]
    assert differ.nonzero().squeeze(1).tolist() == behind


def kl_to_full(case, policy) -> float:
    full = reference.full_forward(case.model.hf_model, list(case.plan.token_ids))[0][-1].log_softmax(-1)
    mixed = fuse(case.model, case.plan, case.source(), policy).logits.log_softmax(-1)
    return float((full.exp() * (full - mixed)).sum())


def test_law_8_distance_to_full_falls_with_the_ratio():
    cases = [make_case("llama", seed=seed) for seed in range(8)]
    means = [sum(kl_to_full(c, HKVD(ratio=r)) for c in cases) / len(cases) for r in (0.0, 0.5, 1.0)]
    assert means[0] > 2 * means[1] > 0
    assert means[2] == pytest.approx(0, abs=1e-6)


def test_law_8_deviation_picks_better_rows_than_their_opposite():
    """Keeping the rows that deviate least is worse than keeping those that deviate most."""

    class Lowest(FixedRows):
        def select(self, view):
            budget = round(0.3 * view.plan.context_tokens)
            lowest = view.deviation.masked_fill(view.pinned, torch.inf).topk(budget, largest=False).indices
            return torch.cat((lowest, view.pinned.nonzero().squeeze(1))).sort().values

    cases = [make_case("llama", seed=seed) for seed in range(8)]
    highest = sum(kl_to_full(c, HKVD(ratio=0.3)) for c in cases)
    lowest = sum(kl_to_full(c, Lowest([])) for c in cases)
    assert highest < lowest


def test_law_9_a_fuse_leaves_stored_bytes_unchanged(case):
    caches = case.caches()
    before = [kv.keys.clone() for c in caches for kv in c.layers] + [
        kv.values.clone() for c in caches for kv in c.layers
    ]
    from cacheblend.fusion.source import ChunkSource

    for policy in MODES:
        fuse(case.model, case.plan, ChunkSource(case.model, caches, case.plan.num_tokens), policy)
    after = [kv.keys for c in caches for kv in c.layers] + [kv.values for c in caches for kv in c.layers]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_law_11_decoding_after_ratio_1_is_generate(case):
    plan, steps = case.plan, 12
    from cacheblend.fusion.source import ChunkSource

    source = ChunkSource(case.model, case.caches(), plan.num_tokens + steps)
    fused = fuse(case.model, plan, source, HKVD(ratio=1.0), capacity=plan.num_tokens + steps)
    tokens = [int(fused.logits.argmax())]
    while len(tokens) < steps:
        tokens.append(int(extend(case.model, fused.cache, torch.tensor(tokens[-1:]))[0].argmax()))
    generated = case.model.hf_model.generate(
        torch.tensor([plan.token_ids]), max_new_tokens=steps, do_sample=False, eos_token_id=None, pad_token_id=0
    )
    assert tokens == generated[0, plan.num_tokens :].tolist()


def test_a_plan_must_end_with_a_suffix():
    with pytest.raises(ValueError, match="suffix"):
        PromptPlan.of([3], [[4, 5]], [])


def test_extend_reports_a_cache_that_is_too_small():
    model = LayerwiseModel(tiny("llama"))
    with pytest.raises(ValueError, match="holds 4 tokens and 5 are needed"):
        extend(model, KVCache(model, 4), torch.tensor(random_ids(5, 0)))
