"""A studio without weights: an engine that answers from a script, and an embedder that counts words."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from cacheblend import cancel as cancelling
from cacheblend.collection import Collection
from cacheblend.config import BlendConfig
from cacheblend.documents import Chunk
from cacheblend.events import Compared, Event, Finished, FirstToken, Started, TextDelta
from cacheblend.prompt import PromptTooLongError
from cacheblend.retrieval import Hit
from cacheblend.trace import (
    Comparison,
    Environment,
    Fidelity,
    Inspection,
    Lane,
    Mode,
    Segment,
    SegmentKind,
    Span,
    Trace,
)
from tests.synthetic import synthetic_comparison
from tests.unit.documents.uploads import tiny_tokenizer
from ui.studio import Studio

ANSWERS = {Mode.FULL: "It was Ada.", Mode.REUSE: "Nobody knows.", Mode.BLEND: "It was Ada."}
TTFT_MS = {Mode.FULL: 4200.0, Mode.REUSE: 120.0, Mode.BLEND: 900.0}
ENVIRONMENT = Environment(
    model="fake-1M", device="cpu", dtype="float32", threads=1, torch_version="0", recorded_at="2026-01-01T00:00:00Z"
)
CONTEXT_LIMIT = 20_000


class FakeEmbedder:
    """Words hashed into 64 places."""

    def encode(self, texts: list[str]) -> np.ndarray:
        vectors = np.full((len(texts), 64), 1e-3, dtype=np.float32)
        for row, text in enumerate(texts):
            for word in text.lower().split():
                vectors[row, zlib.crc32(word.encode()) % 64] += 1
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


class FakeEngine:
    """Speaks the engine's contract; `pause_s` is how long each step takes, during which it can be stopped."""

    def __init__(self, pause_s: float = 0.0) -> None:
        self.environment = ENVIRONMENT
        self.tokenizer = tiny_tokenizer()
        self.context_limit = CONTEXT_LIMIT
        self.kv_bytes_per_token = 1000
        self.cached: set[tuple[int, ...]] = set()
        self.store = FakeStore(self)
        self.pause_s = pause_s
        self.num_asked = 0
        self.num_running = 0
        self.most_running = 0

    def collection(self, chunk_tokens: int = 512) -> Collection:
        return Collection(self.tokenizer, FakeEmbedder(), chunk_tokens=chunk_tokens)

    def precompute(
        self,
        chunks: Sequence[Chunk],
        progress: Callable[[int, int], None] | None = None,
        cancel: threading.Event | None = None,
    ) -> int:
        new = [chunk for chunk in chunks if chunk.token_ids not in self.cached]
        for done, chunk in enumerate(new, start=1):
            self._step(cancel)
            self.cached.add(chunk.token_ids)
            if progress:
                progress(done, len(new))
        return len(new)

    def compare(
        self,
        question: str,
        hits: Sequence[Hit],
        *,
        modes: Sequence[Mode] = tuple(Mode),
        blend: BlendConfig | None = None,
        max_new_tokens: int = 64,
        cancel: threading.Event | None = None,
    ) -> Iterator[Event]:
        if sum(len(h.chunk.token_ids) for h in hits) > self.context_limit:
            raise PromptTooLongError(f"The prompt is too long: drop {hits[-1].chunk.label}.")
        self.num_asked += 1
        self.num_running += 1
        self.most_running = max(self.most_running, self.num_running)
        try:
            yield from self._compare(question, hits, modes, cancel)
        finally:
            self.num_running -= 1

    def inspect(
        self,
        question: str,
        hits: Sequence[Hit],
        *,
        blend: BlendConfig | None = None,
        max_new_tokens: int = 64,
        progress: Callable[[int, int], None] | None = None,
        cancel: threading.Event | None = None,
    ) -> Inspection:
        self._step(cancel)
        num_tokens = len(fake_comparison(question, hits, []).tokens)
        made = synthetic_comparison(num_tokens, layers=6, chunks=len(hits)).inspection
        assert made is not None
        return made

    def _compare(
        self, question: str, hits: Sequence[Hit], modes: Sequence[Mode], cancel: threading.Event | None
    ) -> Iterator[Event]:
        traces = []
        for mode in modes:
            yield Started(mode)
            self._step(cancel)
            yield FirstToken(mode, TTFT_MS[mode], True)
            words = ANSWERS[mode].split(" ")
            for i in range(len(words)):
                self._step(cancel)
                yield TextDelta(mode, " ".join(words[: i + 1]))
            traces.append(fake_trace(mode))
            yield Finished(mode, traces[-1])
        yield Compared(fake_comparison(question, hits, traces))

    def _step(self, cancel: threading.Event | None) -> None:
        if self.pause_s:
            (cancel or threading.Event()).wait(self.pause_s)
        cancelling.check(cancel)


class FakeStore:
    """Counts what the engine cached."""

    def __init__(self, engine: FakeEngine) -> None:
        self._engine = engine
        self.capacity = 10_000_000

    def __len__(self) -> int:
        return len(self._engine.cached)

    @property
    def nbytes(self) -> int:
        return sum(len(ids) for ids in self._engine.cached) * self._engine.kv_bytes_per_token


def fake_trace(mode: Mode) -> Trace:
    """A trace with TTFT_MS and a few decode steps."""
    ttft = TTFT_MS[mode]
    spans = [
        Span(lane=Lane.LOOKUP, name="lookup", start_ms=0, end_ms=0.01 * ttft),
        Span(lane=Lane.COMPUTE, name="layer 0", start_ms=0.01 * ttft, end_ms=0.99 * ttft, layer=0),
        Span(lane=Lane.FIRST_TOKEN, name="first token", start_ms=0.99 * ttft, end_ms=ttft),
        Span(lane=Lane.DECODE, name="token 1", start_ms=ttft, end_ms=ttft + 20),
    ]
    same = ANSWERS[mode] == ANSWERS[Mode.FULL]
    share = {Mode.FULL: 1.0, Mode.REUSE: 0.0, Mode.BLEND: 0.15}[mode]
    return Trace(
        mode=mode, policy=mode.value, ratio=share, answer=ANSWERS[mode], answer_ids=(1, 2), spans=tuple(spans),
        recomputed_tokens=round(1000 * share), recomputed_share=share, is_warm=True,
        fidelity=Fidelity(
            first_token_kl=0.0 if same else 2.5, mean_kl=0.0, top1_agreement=1.0 if same else 0.4,
            f1_to_full=float(same),
        ),
    )  # fmt: skip


def fake_comparison(question: str, hits: Sequence[Hit], traces: Sequence[Trace]) -> Comparison:
    """A comparison whose tokens are the words of the real chunks."""
    tokens, segments = ["<s>"], [Segment(kind=SegmentKind.PREFIX, start=0, stop=1)]
    for hit in hits:
        start = len(tokens)
        tokens += [f"{word} " for word in hit.chunk.text.split()]
        segments.append(
            Segment(kind=SegmentKind.CHUNK, start=start, stop=len(tokens), source=hit.chunk.label, score=hit.score)
        )
    start = len(tokens)
    tokens += [f"{word} " for word in question.split()]
    segments.append(Segment(kind=SegmentKind.SUFFIX, start=start, stop=len(tokens)))
    return Comparison(
        question=question, tokens=tuple(tokens), segments=tuple(segments), environment=ENVIRONMENT, traces=tuple(traces)
    )


def recorded_comparison() -> Comparison:
    """Stands in for the recorded run, with a question nobody asks in a test."""
    return replace(synthetic_comparison(500, layers=8), question="What was recorded?")


def sample(folder, slug: str = "fake", num_documents: int = 3) -> SimpleNamespace:
    """A collection of short documents and two questions."""
    paths = []
    for i in range(num_documents):
        path = folder / f"{slug}-{i}.txt"
        path.write_text(f"Document {i} of {slug}. Ada wrote chapter {i}. " * 3)
        paths.append(path)
    questions = [SimpleNamespace(question=f"Who wrote {slug}?", answer="Ada", accepted=("ada",))]
    questions += [SimpleNamespace(question=f"When was {slug} written?", answer="1843", accepted=("1843",))]
    return SimpleNamespace(
        slug=slug, title=slug.title(), description="Made for a test.", paths=tuple(paths), questions=tuple(questions)
    )


def fake_studio(engine: FakeEngine | None = None, samples: Sequence[SimpleNamespace] = ()) -> Studio:
    """A studio around a fake engine; `studio.loaded` is None until it is needed, as with a real one."""
    made = engine or FakeEngine()
    return Studio(lambda say: made, samples, recorded_comparison(), "fake")


def indexed(studio: Studio, texts: dict[str, str], folder) -> Collection:
    """A collection of these texts, made without the page."""
    for name, text in texts.items():
        (folder / name).write_text(text)
    collection = studio.engine(print).collection()
    collection.add([folder / name for name in texts])
    return collection
