"""Every question in every setting, a row each, so that a run that was stopped goes on where it was.

Chunks are the passages as they are given, or what a collection finds; each question's chunk caches are made before its
timed passes and stay in the engine's store. Nothing but rows is kept from one question to the next. TTFT is of one
pass, of caches that are warm unless the row says otherwise.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cacheblend.caches import fingerprint
from cacheblend.collection import Collection
from cacheblend.documents import Chunk, Document, DocumentError, DocumentKind, plain_tokenizer, split
from cacheblend.documents.split import check_chunk_tokens
from cacheblend.engine import DEFAULT_LOADING, Engine
from cacheblend.evaluation.datasets import Dataset
from cacheblend.evaluation.question import Passage, Question, Task
from cacheblend.evaluation.rows import Row, RowFile, Setting
from cacheblend.evaluation.scores import score
from cacheblend.prompt import PromptBuilder, PromptTooLongError
from cacheblend.retrieval import Hit
from cacheblend.run import Reference, Run
from cacheblend.trace import ON_CHUNKS, Mode, Recipe

CHUNKS = 6  # as in the paper
CHUNK_TOKENS = 1024  # the authors' passages have about 555 tokens: they stay whole, as in their scripts
SUMMARISE = "Write a few short sentences that sum up what you are asked about."


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationConfig:
    """How questions are put. chunks: the first so many of a question's chunks are its context.

    chunk_tokens: longer passages are cut; max_new_tokens: the task's by default; deviations: also measure how far KV
    and attention are from full's, which takes about as long as full reuse.
    """

    settings: tuple[Setting, ...]
    chunks: int = CHUNKS
    chunk_tokens: int = CHUNK_TOKENS
    max_new_tokens: int | None = None
    deviations: bool = True

    def __post_init__(self) -> None:
        check_chunk_tokens(self.chunk_tokens)
        if not self.settings or self.chunks < 1 or (self.max_new_tokens is not None and self.max_new_tokens < 1):
            raise ValueError("an evaluation needs at least one setting, one chunk and one token to answer with")

    def described(self, engine: Engine, dataset: Dataset) -> dict[str, Any]:
        """What has to be the same for rows to be of one evaluation, as JSON."""
        environment = asdict(engine.environment)
        del environment["recorded_at"]
        return {
            "dataset": {
                "name": dataset.name,
                "questions": len(dataset.questions),
                "fingerprint": dataset.fingerprint,
            },
            "settings": {setting.label: setting.blend.describe(setting.mode) for setting in self.settings},
            "chunks": self.chunks,
            "chunk_tokens": self.chunk_tokens,
            "max_new_tokens": self.max_new_tokens,
            "deviations": self.deviations,
            "environment": environment,
            "weights": fingerprint(engine.hf_model)[:16],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """One question is done. rows: those that were measured now; skipped: why none could be, one sentence."""

    question_id: str
    rows: tuple[Row, ...] = ()
    prefilled: int = 0  # chunks that were not in the store
    skipped: str = ""


def evaluate(
    engine: Engine,
    dataset: Dataset,
    config: EvaluationConfig,
    file: RowFile,
    *,
    collection: Collection | None = None,
    cancel: threading.Event | None = None,
) -> Iterator[Done]:
    """Ask every question in every setting that `file` has no row of; raises Cancelled when stopped, rows are kept.

    collection: of documents, where a dataset has them in place of passages.
    """
    _compare_chunks(engine, dataset, config, collection)
    engines = {task: _instructed(engine, task) for task in Task}
    for question in dataset.questions:
        missing = [setting for setting in config.settings if (question.id, setting.label) not in file.rows]
        if not missing:
            yield Done(question_id=question.id)
            continue
        try:
            asked = _Asked(engines[question.task], question, config, collection)
        except (DocumentError, PromptTooLongError) as error:
            yield Done(question_id=question.id, skipped=f"Question {question.id} is skipped: {error}")
            continue
        yield asked.run(missing, file, cancel)


def cut(question: Question, tokenizer: Any, chunk_tokens: int, most: int) -> list[Chunk]:
    """The first `most` chunks of a question's passages: title, blank line, text, as in the authors' scripts."""
    chunks: list[Chunk] = []
    for number, passage in enumerate(question.passages, 1):
        if len(chunks) >= most:
            break
        name = passage.title or f"passage {number}"
        pieces = split(_document(name, passage, "\n\n"), tokenizer, chunk_tokens)
        if len(pieces) > 1:  # a blank line would make the title a chunk by itself
            pieces = split(_document(name, passage, ": "), tokenizer, chunk_tokens)
        chunks += pieces
    return chunks[:most]


def _compare_chunks(engine: Engine, dataset: Dataset, config: EvaluationConfig, collection: Collection | None) -> None:
    """Tell which chunks of the whole set are alike, where a recipe goes by it."""
    if all(setting.blend.of(setting.mode).recipe is not Recipe.SIMILAR for setting in config.settings):
        return
    passages = [
        chunk
        for question in dataset.questions
        for chunk in cut(question, engine.tokenizer, config.chunk_tokens, config.chunks)
    ]
    engine.learn_similar([*passages, *(collection.chunks if collection else ())])


def _document(name: str, passage: Passage, between: str) -> Document:
    text = f"{passage.title}{between}{passage.text}" if passage.title else passage.text
    return Document(name=name, kind=DocumentKind.TEXT, text=text)


def _instructed(engine: Engine, task: Task) -> Engine:
    """The same engine, with the instruction of a task."""
    if task is Task.ANSWER:
        return engine
    other = copy.copy(engine)
    other.prompts = PromptBuilder(engine.tokenizer, SUMMARISE)
    return other


class _Asked:
    """One question, with its chunks, put to an engine."""

    def __init__(
        self, engine: Engine, question: Question, config: EvaluationConfig, collection: Collection | None
    ) -> None:
        self.engine, self.question, self.config = engine, question, config
        self.max_new_tokens = config.max_new_tokens or question.task.max_new_tokens
        if question.passages or collection is None:
            chunks = cut(question, engine.tokenizer, config.chunk_tokens, config.chunks)
            self.hits: Sequence[Hit] = [Hit(chunk, 0.0) for chunk in chunks]  # given, so nothing was measured
        else:
            self.hits = collection.search(question.question, config.chunks)
        self.plan = engine.plan(question.question, self.hits, max_new_tokens=self.max_new_tokens)

    def precompute(self, missing: Sequence[Setting], cancel: threading.Event | None) -> int:
        """Make the chunk caches that the settings need and the store has not; how many those were."""
        recipes = dict.fromkeys(s.blend.of(s.mode).recipe for s in missing if s.mode in ON_CHUNKS)
        chunks = [hit.chunk for hit in self.hits]
        return sum(self.engine.precompute(chunks, recipe, cancel=cancel).prefilled for recipe in recipes)

    def run(self, missing: Sequence[Setting], file: RowFile, cancel: threading.Event | None) -> Done:
        """Measure the settings that are missing; full runs again where others are to be held against it."""
        engine = self.engine
        prefilled = self.precompute(missing, cancel)
        reference: Reference | None = None
        rows = []
        for setting in self.config.settings:
            if setting not in missing and setting.mode is not Mode.FULL:
                continue
            run = Run(
                engine,
                self.plan,
                setting.mode,
                setting.blend,
                DEFAULT_LOADING,
                self.max_new_tokens,
                cancel,
                deviations=self.config.deviations,
            )
            for _ in run.events(reference):
                pass
            reference = run.reference if setting.mode is Mode.FULL else reference
            if setting in missing:
                encode = plain_tokenizer(engine.tokenizer).encode
                scores = score(run.trace.answer, self.question.answers, encode)
                lengths = (self.plan.context_tokens, self.plan.num_tokens)
                rows.append(Row.of(self.question.id, setting, run.trace, scores, lengths))
                file.append(rows[-1])
        engine.store.settle()
        return Done(question_id=self.question.id, rows=tuple(rows), prefilled=prefilled)
