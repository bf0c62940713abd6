"""Sample collections: documents and questions of our own writing, and when an answer counts as right.

Reads assets/samples beside the package. Knows nothing of models, retrieval or pages.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SAMPLES_FOLDER = Path(__file__).resolve().parent.parent / "assets" / "samples"
DOCUMENT_SUFFIXES = frozenset({".md", ".txt", ".html"})
_COLLECTION = "collection.json"
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")
_ANNOUNCED = re.compile(r":\s*\n\s*")  # "The answer is:", and the answer on a line of its own
_LIST_START = re.compile(r"(^|:)\s*1\.\s+(?=[^\W\d])")  # "The answer is: 1. Port Ember"
_CONTRAST = re.compile(r",\s+not\b.*")
_WORD = re.compile(r"\d+(?:[.,]\d+)*|[^\W\d_]+")  # a number keeps its decimals: "14" is not in "14.5"
_NEGATIONS = frozenset({"not", "no", "never", "t"})  # "t" is what is left of "isn't"
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")  # "8,600" is read as "8600"


class SamplesError(Exception):
    """The sample collections are missing or damaged; the message says which file and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleQuestion:
    """A question whose answer takes two documents together.

    accepted: strings, lower case, any of which makes an answer right; documents: the file names of the two.
    """

    question: str
    answer: str
    accepted: tuple[str, ...]
    documents: tuple[str, str]

    def __post_init__(self) -> None:
        if not self.question.strip() or not self.answer.strip():
            raise ValueError("a question needs its text and its answer")
        if not self.accepted or any(not _words(s) or s != s.lower() for s in self.accepted):
            raise ValueError(f"accepted strings of {self.question!r} must be non-empty and lower case")
        if len(self.documents) != 2 or len(set(self.documents)) != 2:
            raise ValueError(f"{self.question!r} must name two different documents, got {self.documents}")
        if not is_right(self.answer, self):
            raise ValueError(f"the answer {self.answer!r} of {self.question!r} is none of its accepted strings")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One collection; slug: its folder's name; paths: its documents in the order of their names."""

    slug: str
    title: str
    description: str
    paths: tuple[Path, ...]
    questions: tuple[SampleQuestion, ...]

    def __post_init__(self) -> None:
        names = {path.name for path in self.paths}
        unknown = [name for q in self.questions for name in q.documents if name not in names]
        if unknown:
            raise ValueError(f"questions name documents that are not there: {', '.join(unknown)}")


def load_samples(folder: Path = SAMPLES_FOLDER) -> tuple[Sample, ...]:
    """Read every collection: in the order of `order.json`, the one to show first at the front.

    Raises SamplesError where the folder is absent or a collection cannot be used.
    """
    order = _json(folder / "order.json")
    if not isinstance(order, list) or not order:
        raise SamplesError(f"{folder / 'order.json'} must list the folders of the collections.")
    return tuple(_sample(folder / str(slug)) for slug in order)


def is_right(answer_text: str, question: SampleQuestion) -> bool:
    """Tell whether the first sentence of an answer contains an accepted string and denies nothing.

    Compared word by word, without case and punctuation, whole words only. The first sentence is the first that has a
    word in it, and a line's end also ends it, unless the line ends in a colon; the "1." of a list does not. What a
    model adds after it neither helps nor harms. What follows ", not" is a contrast and not read; any other negation
    makes the answer wrong whatever it names ("Port Ember is not mentioned").
    """
    answer = _words(_first_sentence(answer_text))
    named = any(_contains(answer, _words(accepted)) for accepted in question.accepted)
    return named and _NEGATIONS.isdisjoint(answer)


def _first_sentence(text: str) -> str:
    plain = _LIST_START.sub(r"\1 ", _ANNOUNCED.sub(": ", text))
    sentence = next((s for s in _SENTENCE_END.split(plain) if _words(s)), "")
    return _CONTRAST.sub("", sentence)


def _words(text: str) -> list[str]:
    return _WORD.findall(_THOUSANDS.sub("", text.lower()))


def _contains(words: list[str], wanted: list[str]) -> bool:
    """Tell whether `wanted` stands in `words` as one unbroken run."""
    return any(words[i : i + len(wanted)] == wanted for i in range(len(words) - len(wanted) + 1))


def _sample(folder: Path) -> Sample:
    raw = _json(folder / _COLLECTION)
    try:
        return Sample(
            slug=folder.name,
            title=raw["title"],
            description=raw["description"],
            paths=tuple(sorted(p for p in folder.iterdir() if p.suffix in DOCUMENT_SUFFIXES)),
            questions=tuple(_question(q) for q in raw["questions"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise SamplesError(f"{folder / _COLLECTION} cannot be used: {error}.") from error


def _question(raw: dict[str, Any]) -> SampleQuestion:
    first, second = raw["documents"]
    return SampleQuestion(
        question=raw["question"], answer=raw["answer"], accepted=tuple(raw["accepted"]), documents=(first, second)
    )


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SamplesError(f"The sample collections are missing ({path}): restore assets/samples.") from error
    except ValueError as error:
        raise SamplesError(f"{path} is not valid JSON: {error}.") from error
