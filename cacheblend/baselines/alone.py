"""Every chunk is asked alone, as LangChain's MapReduce and MapRerank chains do it, in words of our own.

Knows prompts as token ids: chunk and question are plain text in them, whatever they spell. Nothing of time or caches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cacheblend.documents.split import SEPARATOR
from cacheblend.prompt import PromptBuilder, PromptPlan
from cacheblend.trace import Mode, Reply, SegmentKind

EXTRACT_TOKENS = 64  # ours: what a chunk may contribute to MapReduce's last prompt
SCORE_TOKENS = 16  # ours: room behind a MapRerank answer for its score


class Frame(NamedTuple):
    """The words around one passage and the question."""

    instruction: str
    passage: str
    question: str


EXTRACT = Frame(
    "You find what a passage says about a question.",
    "Passage:\n\n",
    "Question: {question}\n"
    "Copy the sentences of the passage that help to answer it, word for word. If there are none, write: nothing.",
)
# Without a sample reply: small models copy its words.
RATE = Frame(
    "Answer the question from the passage with a few words, and say how sure you are.",
    "Passage:\n\n",
    "Question: {question}\n\nReply in this form:\n<a few words>\n"
    "Score: <a number from 0 to 100, which is 0 if the passage does not answer the question>",
)


@dataclass(frozen=True, slots=True)
class AskedAlone:
    """One prompt for each chunk, with the same question. max_new_tokens: of a reply."""

    question: tuple[int, ...]
    plans: tuple[PromptPlan, ...]
    sources: tuple[str, ...]
    max_new_tokens: int

    @classmethod
    def of(
        cls, prompts: PromptBuilder, plan: PromptPlan, mode: Mode, max_new_tokens: int, context_limit: int
    ) -> AskedAlone:
        """Take a plan's chunks and question apart. PromptTooLongError if a chunk alone is more than the model takes."""
        chunks = [segment for segment in plan.context if segment.kind is SegmentKind.CHUNK]
        if not chunks:
            raise ValueError(f"{mode} asks every chunk, and the prompt has none: retrieve at least one.")
        is_rated = mode is Mode.MAP_RERANK
        most = max_new_tokens + SCORE_TOKENS if is_rated else EXTRACT_TOKENS
        framed, question = prompts.framed(*(RATE if is_rated else EXTRACT)), prompts.question(plan)
        plans = [
            framed.plan_ids(question, [plan.ids(chunk)], [(chunk.source, chunk.score)], context_limit - most)
            for chunk in chunks
        ]
        return cls(question, tuple(plans), tuple(chunk.source for chunk in chunks), most)

    def together(self, prompts: PromptBuilder, replies: Sequence[Reply], limit: int) -> PromptPlan:
        """The usual prompt, in which each chunk's reply stands in the chunk's place; empty replies are left out."""
        return prompts.plan_ids(
            self.question,
            [prompts.plain(reply.text + SEPARATOR) if reply.text else () for reply in replies],
            [(reply.source, None) for reply in replies],
            limit,
        )
