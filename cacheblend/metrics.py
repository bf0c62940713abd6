"""How far one answer, or one next-token distribution, lies from another. Knows nothing of how either was made."""

from __future__ import annotations

import re
import string
from collections import Counter

import torch

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def kl_divergence(reference: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """KL(reference || other) of two sets of logits (…, vocab), in nats, float32 (…)."""
    p, q = reference.float().log_softmax(-1), other.float().log_softmax(-1)
    return (p.exp() * (p - q)).sum(-1).clamp_min(0)


def top1_agreement(reference: torch.Tensor, other: torch.Tensor) -> float:
    """Share of rows (rows, vocab) whose largest logit is the same token."""
    return float((reference.argmax(-1) == other.argmax(-1)).float().mean())


def normalise(text: str) -> list[str]:
    """Words, lower case, without punctuation and articles (SQuAD's convention)."""
    return _ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split()


def word_f1(answer: str, reference: str) -> float:
    """F1 of the words of two texts as multisets (SQuAD); two empty texts agree."""
    words, expected = normalise(answer), normalise(reference)
    if not words or not expected:
        return float(words == expected)
    common = sum((Counter(words) & Counter(expected)).values())
    return 2 * common / (len(words) + len(expected))
