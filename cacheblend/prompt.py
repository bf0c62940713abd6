"""Question and chunks → the prompt as token ids in segments: prefix · chunks · suffix.

Respects the model's chat template. Chunks and question are tokenised alone and as plain text: ids are never merged
across borders, and text that spells a control token stays text. Knows nothing of KV.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from cacheblend.documents.plain import PlainTokenizer
from cacheblend.trace import Segment, SegmentKind

INSTRUCTION = "Answer the question from the passages. Answer with a few words."
PASSAGES = "Passages:\n\n"
QUESTION = "Question: {question}\nAnswer:"
# Stand where the passages and the question go while the template is rendered; no template or user writes them.
_PASSAGES_HERE, _QUESTION_HERE = "\ue000passages\ue000", "\ue000question\ue000"


class PromptTooLongError(ValueError):
    """The prompt exceeds the model's context; the message says which chunks to drop."""


@dataclass(frozen=True, slots=True)
class PromptPlan:
    """Token ids of a whole prompt and the segments they fall into, in order and without gaps."""

    token_ids: tuple[int, ...]
    segments: tuple[Segment, ...]

    def __post_init__(self) -> None:
        borders = [0, *(s.stop for s in self.segments)]
        if [s.start for s in self.segments] != borders[:-1] or borders[-1] != len(self.token_ids):
            raise ValueError("segments must cover the prompt in order and without gaps")
        if not self.segments or self.segments[-1].kind is not SegmentKind.SUFFIX or not self.segments[-1].num_tokens:
            raise ValueError("the prompt must end with a suffix of at least one token: it is never reused")

    @classmethod
    def of(
        cls,
        prefix: Sequence[int],
        chunks: Sequence[Sequence[int]],
        suffix: Sequence[int],
        sources: Sequence[tuple[str, float | None]] | None = None,
    ) -> PromptPlan:
        """Lay token ids out as prefix, chunks and suffix; empty stretches get no segment. sources: (name, score)."""
        names = sources if sources is not None else [(f"chunk {i + 1}", None) for i in range(len(chunks))]
        parts: list[tuple[SegmentKind, Sequence[int], str, float | None]] = [(SegmentKind.PREFIX, prefix, "", None)]
        parts += [(SegmentKind.CHUNK, ids, *name) for ids, name in zip(chunks, names, strict=True)]
        parts += [(SegmentKind.SUFFIX, suffix, "", None)]
        segments: list[Segment] = []
        token_ids: list[int] = []
        for kind, ids, source, score in parts:
            if ids:
                start, stop = len(token_ids), len(token_ids) + len(ids)
                segments.append(Segment(kind=kind, start=start, stop=stop, source=source, score=score))
                token_ids += ids
        return cls(tuple(token_ids), tuple(segments))

    @property
    def num_tokens(self) -> int:
        """Length of the whole prompt."""
        return len(self.token_ids)

    @property
    def context(self) -> tuple[Segment, ...]:
        """The segments that can be reused: prefix and chunks."""
        return self.segments[:-1]

    @property
    def context_tokens(self) -> int:
        """Tokens in front of the suffix."""
        return self.segments[-1].start

    def ids(self, segment: Segment) -> tuple[int, ...]:
        """Token ids of one segment."""
        return self.token_ids[segment.start : segment.stop]

    def behind(self, front: int) -> PromptPlan:
        """What is left of the plan behind the first `front` tokens of its context; positions count from there."""
        cut = tuple(
            replace(s, start=max(s.start - front, 0), stop=s.stop - front) for s in self.segments if s.stop > front
        )
        return PromptPlan(self.token_ids[front:], cut)

    def visible_from(self) -> np.ndarray:
        """int64 (tokens,): the first position a row saw when its segment was prefilled alone; 0 for suffix rows."""
        starts = np.zeros(self.num_tokens, dtype=np.int64)
        for segment in self.context:
            starts[segment.start : segment.stop] = segment.start
        return starts

    def place_alone(self) -> np.ndarray:
        """int64 (tokens,): where each token of the context stood in its segment alone; suffix rows as they are."""
        places: np.ndarray = np.arange(self.num_tokens, dtype=np.int64) - self.visible_from()
        return places


class PromptBuilder:
    """Builds plans for one tokenizer; the prefix and the frame of the suffix are the same for every question."""

    def __init__(self, tokenizer: Any, instruction: str = INSTRUCTION) -> None:
        self.tokenizer = tokenizer
        self._plain = PlainTokenizer(tokenizer)
        self._lay(instruction, PASSAGES, QUESTION)

    def framed(self, instruction: str, passages: str, question: str) -> Self:
        """A builder with other words around passages and question, in which “{question}” stands for the question."""
        other = copy.copy(self)
        other._lay(instruction, passages, question)
        return other

    def plain(self, text: str) -> tuple[int, ...]:
        """Token ids of untrusted text, which are nothing but text."""
        return self._plain.encode(text)

    def suffix(self, question: Sequence[int]) -> list[int]:
        """Token ids of the question in its frame."""
        return [*self._before_question, *question, *self._after_question]

    def question(self, plan: PromptPlan) -> tuple[int, ...]:
        """Token ids of the question in a plan of this builder; ValueError if the plan is not one."""
        suffix = plan.ids(plan.segments[-1])
        question = suffix[len(self._before_question) : len(suffix) - len(self._after_question)]
        if tuple(self.suffix(question)) != suffix:
            raise ValueError("the prompt's question is not known: ask with a question, not with token ids.")
        return question

    def plan(
        self,
        question: str,
        chunks: Sequence[Sequence[int]],
        sources: Sequence[tuple[str, float | None]],
        limit: int,
    ) -> PromptPlan:
        """Lay out a question behind its chunks. PromptTooLongError if more than `limit` tokens result."""
        if not question.strip():
            raise ValueError("The question is empty: type one.")
        return self.plan_ids(self.plain(question.strip()), chunks, sources, limit)

    def plan_ids(
        self,
        question: Sequence[int],
        chunks: Sequence[Sequence[int]],
        sources: Sequence[tuple[str, float | None]],
        limit: int,
    ) -> PromptPlan:
        """`plan` for a question in token ids."""
        plan = PromptPlan.of(self.prefix, chunks, self.suffix(question), sources)
        if plan.num_tokens > limit:
            raise PromptTooLongError(_what_to_drop(plan, limit))
        return plan

    def _lay(self, instruction: str, passages: str, question: str) -> None:
        """Render the frame once, and keep what stands in front of passages, between, and behind the question."""
        content = f"{passages}{_PASSAGES_HERE}{question.format(question=_QUESTION_HERE)}"
        head, rest = self._render(instruction, content).split(_PASSAGES_HERE)
        middle, tail = rest.split(_QUESTION_HERE)
        self.prefix = tuple(self._ids(head))
        self._before_question, self._after_question = self._ids(middle), self._ids(tail)

    def _render(self, instruction: str, content: str) -> str:
        if not getattr(self.tokenizer, "chat_template", None):
            bos = self.tokenizer.bos_token if getattr(self.tokenizer, "add_bos_token", False) else ""
            return f"{bos or ''}{instruction}\n\n{content}"
        messages = [{"role": "system", "content": instruction}, {"role": "user", "content": content}]
        rendered: str = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return rendered

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids


def _what_to_drop(plan: PromptPlan, limit: int) -> str:
    """Name the lowest-scored chunks whose removal makes the prompt fit."""
    excess = plan.num_tokens - limit
    chunks = [s for s in plan.segments if s.kind is SegmentKind.CHUNK]
    dropped: list[str] = []
    for segment in sorted(chunks, key=lambda s: s.score or 0.0):
        if excess <= 0:
            break
        dropped.append(f"“{segment.source}” ({segment.num_tokens} tokens)")
        excess -= segment.num_tokens
    advice = f"drop {', '.join(dropped)}" if excess <= 0 else "shorten the question"
    return (
        f"The prompt has {plan.num_tokens} tokens and the model takes {limit}: {advice}, "
        f"or lower the number of retrieved chunks to {len(chunks) - len(dropped)}."
    )
