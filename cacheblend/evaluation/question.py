"""What an evaluation asks: questions, gold answers, passages. Plain facts; knows nothing of files or models."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

# Ours; a row beyond them is reported and skipped. A passage list of LongBench has at most about 100 000 characters.
MAX_PASSAGES = 500
MAX_CHARACTERS = 4_000_000


class Task(StrEnum):
    """What the model is to do with the passages; it decides the instruction and how long an answer may get."""

    ANSWER = "answer"
    SUMMARY = "summary"

    @property
    def max_new_tokens(self) -> int:
        """The authors' scripts: 32 for questions, 128 for summaries."""
        return 32 if self is Task.ANSWER else 128


@dataclass(frozen=True, slots=True)
class Passage:
    """A text that a question is asked about; title: "" where it has none."""

    title: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question; answers: any of them is right, none where no gold answer is known.

    passages: in the order in which they stand in the prompt; none where they are to be retrieved from documents.
    """

    id: str
    question: str
    answers: tuple[str, ...]
    passages: tuple[Passage, ...]
    task: Task = Task.ANSWER

    def __post_init__(self) -> None:
        if not self.id or not self.question.strip():
            raise ValueError("its question is empty")
        if len(self.passages) > MAX_PASSAGES:
            raise ValueError(f"it has {len(self.passages)} passages; the limit is {MAX_PASSAGES}")
        texts = (self.id, self.question, *self.answers, *(part for p in self.passages for part in (p.title, p.text)))
        if sum(map(len, texts)) > MAX_CHARACTERS:
            raise ValueError(f"it has more than {MAX_CHARACTERS:,} characters")
