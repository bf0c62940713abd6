"""Scores against naive oracles, the package that the authors' scripts use, and cases worked out by hand."""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer

from cacheblend.evaluation.scores import first_line, rouge_l, score, token_f1, yes_or_no


def letters(text: str) -> list[int]:
    """A tokenizer whose tokens are not words: every letter is one, spaces are none."""
    return [ord(letter) for letter in text if letter != " "]


def words(text: str) -> list[int]:
    """A tokenizer whose tokens are words."""
    return [hash(word) for word in text.split()]


def naive_f1(found: list, wanted: list) -> Fraction:
    """Harmonic mean of precision and recall, counting matches by crossing them off one at a time."""
    if not found or not wanted:
        return Fraction(found == wanted)
    left, same = list(wanted), 0
    for token in found:
        if token in left:
            left.remove(token)
            same += 1
    if not same:
        return Fraction(0)
    precision, recall = Fraction(same, len(found)), Fraction(same, len(wanted))
    return 2 * precision * recall / (precision + recall)


def naive_lcs(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    """Longest common subsequence by its definition."""

    @cache
    def longest(i: int, j: int) -> int:
        if i == len(one) or j == len(other):
            return 0
        if one[i] == other[j]:
            return 1 + longest(i + 1, j + 1)
        return max(longest(i + 1, j), longest(i, j + 1))

    return longest(0, 0)


# Words of up to three letters have no stem but themselves; none of these is an article or begins with yes or no.
texts = st.lists(st.sampled_from(["cat", "dog", "sun", "sea", "ox", "7"]), max_size=9).map(tuple)


@given(texts, texts)
def test_token_f1_is_the_naive_one(one, other):
    found = token_f1(" ".join(one), " ".join(other), words)
    assert found == pytest.approx(float(naive_f1(list(one), list(other))))


@given(texts, texts)
def test_rouge_l_is_the_naive_one(one, other):
    common = naive_lcs(one, other)
    expected = 2 * common / (len(one) + len(other)) if common else 0.0
    assert rouge_l(" ".join(one), " ".join(other)) == pytest.approx(expected)


def test_rouge_l_is_what_the_authors_scripts_compute():
    scorer = RougeScorer(["rougeL"], use_stemmer=True)
    for line, gold in [("the runners were running", "a runner runs"), ("", "x"), ("Port-Ember, 1,203!", "port ember")]:
        assert rouge_l(line, gold) == scorer.score(gold, line)["rougeL"].fmeasure


def test_rouge_l_by_hand():
    # run, dog, park are common in this order: 3 of 4 words, and 3 of 3
    assert rouge_l("running dogs park quickly", "runs dog parks") == pytest.approx(2 * 0.75 * 1 / 1.75)
    assert rouge_l("parks dogs", "dog park") == pytest.approx(0.5), "order counts"


def test_f1_counts_the_models_tokens_not_words():
    # normalised “cats” and “cat”: words differ, four letters against three have three in common
    assert token_f1("The cats!", "a cat", words) == 0
    assert token_f1("The cats!", "a cat", letters) == pytest.approx(2 * 3 / 7)


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("Yes, because it rained", "Yes"),
        ("yes", "Yes"),
        ("No.", "No"),
        ("  not at all", "No"),
        ("North Carolina", "No"),  # as the authors' scripts have it
        ("Yesterday", "Yes"),
        ("In Norway", "In Norway"),
        (" yes", " yes"),
        ("", ""),
        ("   ", "   "),
    ],
)
def test_what_begins_with_yes_or_no_is_only_that(line, kept):
    assert yes_or_no(line) == kept


def test_only_the_first_line_is_scored():
    assert first_line("\n\nExeter College\nQuestion: who?") == "Exeter College"
    scores = score("\nExeter College\nand more", ["Exeter College"], words)
    assert (scores.f1, scores.rouge_l, scores.squad_f1, scores.exact_match) == (1, 1, 1, 1)


def test_the_best_of_several_gold_answers_counts_for_each_score():
    scores = score("the Exeter college in Oxford", ["Oxford", "Exeter College, Oxford"], words)
    assert scores.squad_f1 == pytest.approx(2 * 3 / 7) == pytest.approx(scores.f1)
    assert scores.rouge_l == pytest.approx(2 * 3 / 8), "articles are words for Rouge"
    assert scores.exact_match == 0
    assert score("an OXFORD!", ["Exeter", "Oxford"], words).exact_match == 1


def test_squads_f1_knows_nothing_of_yes_and_no():
    scores = score("North Carolina", ["North Carolina"], words)
    assert (scores.f1, scores.squad_f1, scores.exact_match) == (0, 1, 1)


def test_an_empty_answer_scores_nothing_and_no_gold_answer_gives_no_score():
    assert score("", ["Oxford"], words).f1 == 0
    assert score("\n\n", ["Oxford"], words).rouge_l == 0
    assert score("Oxford", [], words) is None
