"""How good an answer is, against gold answers. Knows texts and a tokenizer; nothing of models.

`f1` and `rouge_l` follow the authors' scripts (YaoJiayi/CacheBlend, example/utils.py), quirks included, because their
figures were made that way; `squad_f1` and `exact_match` are SQuAD's (Rajpurkar et al., 2016). All four look at the
first line of the answer, and the best of several gold answers counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from cacheblend.metrics import normalise, word_f1

Encode = Callable[[str], Sequence[int]]  # text → token ids, nothing added


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Each from 0 to 1."""

    f1: float
    rouge_l: float
    squad_f1: float
    exact_match: float


def score(answer: str, golds: Sequence[str], encode: Encode) -> Scores | None:
    """Score an answer against the gold answers; None if there are none. encode: the model's own tokenizer."""
    if not golds:
        return None
    line = first_line(answer)
    return Scores(
        f1=max(token_f1(line, gold, encode) for gold in golds),
        rouge_l=max(rouge_l(line, gold) for gold in golds),
        squad_f1=max(word_f1(line, gold) for gold in golds),
        exact_match=max(float(normalise(line) == normalise(gold)) for gold in golds),
    )


def first_line(answer: str) -> str:
    """What is scored: models that go on after the answer begin a new line."""
    return answer.lstrip("\n").split("\n", 1)[0]


def token_f1(line: str, gold: str, encode: Encode) -> float:
    """F1 of the model's tokens as multisets, after SQuAD's normalisation; two empty texts agree."""
    found, wanted = (list(encode(" ".join(normalise(text)))) for text in (yes_or_no(line), gold))
    if not found or not wanted:
        return float(found == wanted)
    common = sum((Counter(found) & Counter(wanted)).values())
    return 2 * common / (len(found) + len(wanted))


def yes_or_no(line: str) -> str:
    """A line that begins with yes or no is only that. As in the authors' scripts, “North” begins with no."""
    if line.startswith(("Yes", "yes")):
        return "Yes"
    return "No" if line.lstrip().startswith(("No", "no")) else line


def rouge_l(line: str, gold: str) -> float:
    """F-measure of the longest common subsequence of stemmed words (Lin, 2004)."""
    return float(_rouge().score(gold, line)["rougeL"].fmeasure)


@cache
def _rouge() -> Any:
    """Made on first use: the stemmer's package takes seconds to import."""
    return import_module("rouge_score.rouge_scorer").RougeScorer(["rougeL"], use_stemmer=True)
