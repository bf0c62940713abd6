"""Distances between answers, by hand-made cases."""

from __future__ import annotations

import math

import pytest
import torch

from cacheblend.metrics import kl_divergence, top1_agreement, word_f1


def test_kl_of_two_coins():
    fair, biased = torch.tensor([0.5, 0.5]).log(), torch.tensor([0.75, 0.25]).log()
    expected = 0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(0.5 / 0.25)
    assert float(kl_divergence(fair, biased)) == pytest.approx(expected, rel=1e-5)
    assert float(kl_divergence(fair + 7, fair - 3)) == pytest.approx(0, abs=1e-6), "logits have no zero"


def test_kl_is_not_symmetric_and_works_by_row():
    a, b = torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([[0.0, 0.0, 5.0]])
    both = kl_divergence(torch.cat((a, b)), torch.cat((b, a)))
    assert both.shape == (2,) and abs(float(both[0] - both[1])) > 0.1


def test_agreement_counts_rows():
    a = torch.eye(4)
    assert top1_agreement(a, a) == 1.0
    assert top1_agreement(a, a.roll(1, dims=0)) == 0.0
    assert top1_agreement(a, torch.cat((a[:3], a[:1]))) == 0.75


@pytest.mark.parametrize(
    ("answer", "reference", "f1"),
    [
        ("The harbour.", "harbour", 1.0),
        ("in Lisbon", "Lisbon", 2 / 3),
        ("a b c", "c d", 2 * 1 / (2 + 2)),  # the article does not count
        ("to be or not to be", "to be", 2 * 2 / (6 + 2)),
        ("", "", 1.0),
        ("", "x", 0.0),
        ("!?", "x", 0.0),
    ],
)
def test_word_f1(answer, reference, f1):
    assert word_f1(answer, reference) == pytest.approx(f1)
