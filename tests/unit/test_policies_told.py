"""Policies and recipes as people read them: names, sentences, and what is said of each against what it does."""

from __future__ import annotations

import itertools
from dataclasses import fields

import pytest
import torch

from cacheblend.config import PRIME, BlendConfig
from cacheblend.engine import Engine
from cacheblend.fusion.evidence import gather
from cacheblend.fusion.fusor import fuse
from cacheblend.fusion.policies import POLICIES, SelectionPolicy
from cacheblend.fusion.spans import SpanRecorder
from cacheblend.loading import LoadConfig, LoadOrder, StoreConfig
from cacheblend.policies import (
    PAPERS,
    POLICIES_TOLD,
    POLICY,
    PRIME_POLICY,
    PRIME_RECIPE,
    RECIPE,
    AboutPolicy,
    apart,
    described,
    in_short,
    is_hkvd,
    is_papers,
)
from cacheblend.trace import ON_CHUNKS, Deviation, Mode, Recipe, Selector
from tests.tiny import random_ids, tiny, tiny_tokenizer

EVERY = pytest.mark.parametrize("about", POLICIES_TOLD, ids=lambda about: about.name)
EITHER_WAY = list(itertools.product(Recipe, Selector, Deviation))


def made(about: AboutPolicy, selector: Selector = Selector.SINGLE) -> SelectionPolicy:
    return POLICIES[about.name].make(0.3, selector)


@EVERY
def test_every_policy_loads_and_is_told_in_sentences(about):
    assert isinstance(made(about), SelectionPolicy)
    assert BlendConfig(policy=about.name).policy == about.name
    assert about.explained[0].isupper() and about.explained.endswith(".") and about.costs
    assert about.label == (f"{about.title} ({about.source})" if about.source else about.title)


def test_names_and_titles_are_told_once():
    for names in ([about.name for about in POLICIES_TOLD], [about.title for about in POLICIES_TOLD]):
        assert len(names) == len(set(names))
    assert list(POLICY) == list(POLICIES)
    assert set(RECIPE) == set(Recipe)
    assert len({about.behind for about in RECIPE.values()}) == len(Recipe)
    assert all(about.explained.endswith(".") for about in RECIPE.values())


@EVERY
def test_a_policy_waits_if_it_wants_evidence_and_has_a_selector_if_that_is_a_field(about):
    assert about.waits == (made(about).evidence is not None)
    assert about.uses_selector == ("selector" in {field.name for field in fields(made(about))})
    assert about.is_choice == ("ratio" in {field.name for field in fields(made(about))})


@EVERY
def test_a_policy_uses_the_deviation_if_another_one_chooses_other_rows(llama, about):
    policy, rows = made(about), set()
    for deviation in Deviation:
        source, spans, kept = llama.source(), SpanRecorder("cpu"), Kept()
        importance, source = gather(policy.evidence, llama.model, llama.plan, source, deviation, spans=spans)
        fuse(llama.model, llama.plan, source, policy, importance=importance, deviation=deviation, observer=kept)
        rows.add(kept.rows)
    assert (len(rows) > 1) == about.uses_deviation


class Kept:
    """Observes a fuse: which rows went on, layer by layer."""

    def __init__(self) -> None:
        self.rows: tuple[tuple[int, ...], ...] = ()

    def layer(self, index: int, hidden: torch.Tensor, projected: torch.Tensor, kept: torch.Tensor) -> None:
        self.rows += (tuple(kept.tolist()),)


@EVERY
def test_cake_goes_with_every_policy_but_those_that_wait(about):
    engine = Engine(tiny("llama"), tiny_tokenizer(), name="tiny", store=StoreConfig(memory_bytes=10**7))
    loading = LoadConfig(order=LoadOrder.CAKE)
    prompt = {"chunks": [random_ids(100, seed) for seed in range(4)], "suffix": random_ids(4, 9), "ratio": 0.3}
    if about.waits:
        with pytest.raises(ValueError, match="Cake computes from the front"):
            engine.prefill(**prompt, policy=about.name, loading=loading)
        return
    engine.prefill(**prompt, mode=Mode.REUSE)  # so that the caches are there
    made_so = engine.prefill(**prompt, policy=about.name, loading=loading)
    met_at = made_so.loading.met_at
    assert met_at is not None and made_so.logits.isfinite().all()
    assert all(met_at <= kept <= 400 for kept in made_so.kept_per_layer)


@EVERY
def test_a_description_comes_apart_into_what_it_was_made_of(about):
    for recipe, selector, deviation in EITHER_WAY:
        told = described(about.name, recipe, selector, deviation)
        how, chunks = apart(told)
        assert chunks == RECIPE[recipe].behind
        assert how == described(about.name, Recipe.BARE, selector, deviation), "bare goes without saying"
        assert how.startswith(about.title)
        assert (selector in how.split(", ")[0]) == about.uses_selector
        assert how.endswith(f"by {deviation}") == about.uses_deviation


@EVERY
def test_in_short_a_description_has_no_settings(about):
    for recipe, selector, deviation in EITHER_WAY:
        short = in_short(described(about.name, recipe, selector, deviation))
        behind = "" if recipe is Recipe.BARE else f", {RECIPE[recipe].behind}"
        assert short == about.title + behind


@EVERY
def test_only_hkvd_on_bare_chunks_is_the_papers(about):
    for recipe, selector, deviation in EITHER_WAY:
        told = described(about.name, recipe, selector, deviation)
        assert is_hkvd(told) == (about.name == PAPERS)
        assert is_papers(told) == (about.name == PAPERS and recipe is Recipe.BARE)


def test_the_papers_description_word_by_word():
    told = described("hkvd", Recipe.NEUTRAL, Selector.GRADUAL, Deviation.KEY)
    assert told == "HKVD gradual, by key; chunks made behind a neutral text"
    assert in_short(told) == "HKVD, behind a neutral text"
    assert apart(told) == ("HKVD gradual, by key", "behind a neutral text")


def test_primeblend_says_that_it_carries_changes_on():
    told = PRIME.describe(Mode.PRIME)
    assert told == "late query attention, changes carried on; chunks made behind a neutral text"
    assert PRIME.describe(Mode.PRIME) == BlendConfig(ratio=0.15).describe(Mode.PRIME)
    assert "carried" not in BlendConfig(policy="late-query").describe(Mode.BLEND)


@pytest.mark.parametrize("mode", list(Mode))
def test_what_a_run_says_of_itself_can_be_shortened_and_taken_apart(mode):
    blend = BlendConfig(policy="first", recipe=Recipe.SINKS)
    how, behind = apart(told := blend.describe(mode))
    wanted = {Mode.BLEND: "first", Mode.PRIME: PRIME_POLICY, Mode.REUSE: "none", Mode.UNPLACED: "none"}
    recipe = PRIME_RECIPE if mode is Mode.PRIME else Recipe.SINKS
    if mode not in ON_CHUNKS or mode is Mode.UNPLACED:
        recipe = Recipe.BARE
    title = POLICY[wanted.get(mode, "all")].title
    carried = ", changes carried on" if mode is Mode.PRIME else ""
    assert (how, behind) == (title + carried, RECIPE[recipe].behind)
    assert in_short(told).partition(", ")[0] == title


def test_words_of_another_policy_are_left_as_they_are():
    assert in_short("a policy of yesterday") == "a policy of yesterday"
    assert not is_papers("a policy of yesterday")


def test_primeblend_is_made_of_a_policy_and_a_recipe_that_are_told():
    assert (PRIME.policy, PRIME.recipe) == (PRIME_POLICY, PRIME_RECIPE)
    assert POLICY[PRIME_POLICY].waits and POLICY[PRIME_POLICY].is_choice
