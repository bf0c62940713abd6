"""A studio without weights: an engine that answers from a script, and an embedder that counts words."""

from __future__ import annotations

import copy
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import torch

from cacheblend import cancel as cancelling
from cacheblend.caches import Precomputed
from cacheblend.collection import Collection
from cacheblend.config import BlendConfig
from cacheblend.controller import RatioChoice, ratio_for_device
from cacheblend.cost import ComputeProfile, Workload
from cacheblend.documents import Chunk
from cacheblend.events import Compared, Event, Finished, FirstToken, Started, TextDelta
from cacheblend.kv import ChunkKey, ChunkKV, LayerKV
from cacheblend.loading import Device, LoadConfig, Place, StoreConfig
from cacheblend.machine import Machine
from cacheblend.meeting import stretch_of
from cacheblend.prompt import PromptPlan, PromptTooLongError
from cacheblend.recipes import RecipeBook
from cacheblend.retrieval import Hit
from cacheblend.store import StoreFullError, open_store
from cacheblend.trace import (
    COMPARED,
    ON_CHUNKS,
    ON_REPLIES,
    Comparison,
    Environment,
    Fidelity,
    Inspection,
    Lane,
    Loading,
    Mode,
    Recipe,
    Reply,
    Segment,
    SegmentKind,
    Span,
    StoredAttention,
    Trace,
)
from tests.synthetic import synthetic_comparison
from tests.unit.documents.uploads import tiny_tokenizer
from ui.studio import Studio

ANSWERS = {
    Mode.FULL: "It was Ada.",
    Mode.PREFIX: "It was Ada.",
    Mode.UNPLACED: "Nobody.",
    Mode.REUSE: "Nobody knows.",
    Mode.BLEND: "It was Ada.",
    Mode.PRIME: "It was Ada.",
    Mode.MAP_REDUCE: "Ada, perhaps.",
    Mode.MAP_RERANK: "Charles.",
}
TTFT_MS = {
    Mode.FULL: 4200.0,
    Mode.PREFIX: 4000.0,
    Mode.UNPLACED: 120.0,
    Mode.REUSE: 120.0,
    Mode.BLEND: 900.0,
    Mode.PRIME: 950.0,
    Mode.MAP_REDUCE: 8100.0,
    Mode.MAP_RERANK: 6100.0,
}
SHARES = {Mode.UNPLACED: 0.0, Mode.REUSE: 0.0, Mode.BLEND: 0.15, Mode.PRIME: 0.15}
ENVIRONMENT = Environment(
    model="fake-1M", device="cpu", dtype="float32", threads=1, torch_version="0", recorded_at="2026-01-01T00:00:00Z"
)
CONTEXT_LIMIT = 20_000
PROFILE = ComputeProfile(
    label="fake-1M",
    num_layers=6,
    kv_bytes=1000,
    project_row=0.002,
    finish_row=0.01,
    causal_cell=1e-6,
    masked_cell=1e-6,
    first_token=0.5,
)


class FakeEmbedder:
    """Words hashed into 64 places."""

    def encode(self, texts: list[str]) -> np.ndarray:
        vectors = np.full((len(texts), 64), 1e-3, dtype=np.float32)
        for row, text in enumerate(texts):
            for word in text.lower().split():
                vectors[row, zlib.crc32(word.encode()) % 64] += 1
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


class FakeEngine:
    """Speaks the engine's contract around a real store; `pause_s` is how long each step takes, and can be stopped in.

    A token's KV takes 1,000 bytes. Caches come in from devices at their own pace in figures alone: nothing waits.
    """

    def __init__(self, pause_s: float = 0.0, store: StoreConfig | None = None) -> None:
        self.environment = ENVIRONMENT
        self.tokenizer = tiny_tokenizer()
        self.prompts = SimpleNamespace(prefix=())
        self.context_limit = CONTEXT_LIMIT
        self.kv_bytes_per_token = 1000
        self.store = open_store(store or StoreConfig(memory_bytes=10_000_000))
        self.caches = FakeCaches("")
        self.recipes = RecipeBook(self.tokenizer, (1,))
        self.machine = Machine()
        self.pause_s = pause_s
        self.counts = SimpleNamespace(asked=0, running=0, most_running=0, calibrated=0)

    @property
    def num_asked(self) -> int:
        return self.counts.asked

    @property
    def num_running(self) -> int:
        return self.counts.running

    @property
    def most_running(self) -> int:
        return self.counts.most_running

    def of(self, tenant: str, recipes: RecipeBook | None = None) -> FakeEngine:
        other = copy.copy(self)
        other.caches, other.recipes = FakeCaches(tenant), recipes or self.recipes.blank()
        return other

    def plan(self, question: str, hits: Sequence[Hit], *, max_new_tokens: int = 64) -> PromptPlan:
        del max_new_tokens
        return PromptPlan.of((), [hit.chunk.token_ids for hit in hits], range(len(question.split())))

    def advise(
        self, comparison: Comparison, trace: Trace, blend: BlendConfig, loading: LoadConfig
    ) -> RatioChoice | None:
        del trace, blend
        workload = Workload(context_tokens=comparison.context_tokens, suffix_tokens=comparison.suffix_tokens)
        known = loading.device is not None and self.machine.profile is not None
        return ratio_for_device(self.machine.profile, loading.device, workload) if known else None

    def collection(self, chunk_tokens: int = 512) -> Collection:
        return Collection(self.tokenizer, FakeEmbedder(), chunk_tokens=chunk_tokens)

    def calibrate(
        self,
        *,
        recalibrate: bool = False,
        progress: Callable[[int, int], None] | None = None,
        cancel: threading.Event | None = None,
    ) -> ComputeProfile:
        for done in range(4):
            if progress:
                progress(done, 4)
            self._step(cancel)
        self.counts.calibrated += 1
        self.machine.profile = PROFILE
        self.machine.devices[Place.DISK] = Device(name="disk", is_emulated=False)
        return PROFILE

    def precompute(
        self,
        chunks: Sequence[Chunk],
        recipe: Recipe = Recipe.BARE,
        *,
        progress: Callable[[int, int], None] | None = None,
        cancel: threading.Event | None = None,
    ) -> Precomputed:
        fronts = {chunk.token_ids: self.recipes.front(recipe, chunk.token_ids) for chunk in chunks}
        new = [ids for ids, front in fronts.items() if self.caches.key(ids, front) not in self.store]
        for done, ids in enumerate(new, start=1):
            self._step(cancel)
            try:
                self.store.put(self.caches.made(ids, fronts[ids]))
            except StoreFullError:
                return Precomputed(done - 1, len(new) - done + 1)
            if progress:
                progress(done, len(new))
        self.store.settle()
        return Precomputed(len(new), 0)

    def compare(
        self,
        question: str,
        hits: Sequence[Hit],
        *,
        modes: Sequence[Mode] = COMPARED,
        blend: BlendConfig | None = None,
        loading: LoadConfig | None = None,
        max_new_tokens: int = 64,
        cancel: threading.Event | None = None,
    ) -> Iterator[Event]:
        if sum(len(h.chunk.token_ids) for h in hits) > self.context_limit:
            raise PromptTooLongError(f"The prompt is too long: drop {hits[-1].chunk.label}.")
        self.counts.asked += 1
        self.counts.running += 1
        self.counts.most_running = max(self.counts.most_running, self.counts.running)
        try:
            yield from self._compare(question, hits, modes, blend or BlendConfig(), loading or LoadConfig(), cancel)
        finally:
            self.counts.running -= 1

    def inspect(
        self,
        question: str,
        hits: Sequence[Hit],
        *,
        mode: Mode = Mode.BLEND,
        blend: BlendConfig | None = None,
        max_new_tokens: int = 64,
        progress: Callable[[int, int], None] | None = None,
        cancel: threading.Event | None = None,
    ) -> Inspection:
        self._step(cancel)
        num_tokens = len(fake_comparison(question, hits, []).tokens)
        made = synthetic_comparison(num_tokens, layers=6, chunks=len(hits)).inspection
        assert made is not None
        return looked_into(made, mode)

    def _compare(
        self,
        question: str,
        hits: Sequence[Hit],
        modes: Sequence[Mode],
        blend: BlendConfig,
        loading: LoadConfig,
        cancel: threading.Event | None,
    ) -> Iterator[Event]:
        traces = []
        for mode in modes:
            yield Started(mode)
            self._step(cancel)
            is_warm = mode not in ON_CHUNKS or self._find(hits, blend.of(mode).recipe)
            if mode is Mode.PREFIX:
                self._keep_prefix(self.plan(question, hits))
            yield FirstToken(mode, TTFT_MS[mode], is_warm)
            words = ANSWERS[mode].split(" ")
            for i in range(len(words)):
                self._step(cancel)
                yield TextDelta(mode, " ".join(words[: i + 1]))
            facts, predicted = self._loading(mode, hits, loading)
            made = replace(fake_trace(mode), policy=blend.describe(mode), replies=replied(mode, hits))
            traces.append(replace(made, is_warm=is_warm, loading=facts, predicted=predicted))
            if predicted:
                traces[-1] = replace(traces[-1], spans=(*later(predicted), *traces[-1].spans[-1:]))
            yield Finished(mode, traces[-1])
        self.store.settle()
        yield Compared(fake_comparison(question, hits, traces))

    def _find(self, hits: Sequence[Hit], recipe: Recipe) -> bool:
        """Look every chunk up, as a run does; whether all were there."""
        fronts = {hit.chunk.token_ids: self.recipes.front(recipe, hit.chunk.token_ids) for hit in hits}
        found = {ids: self.store.get(self.caches.key(ids, front), ids) for ids, front in fronts.items()}
        for ids, chunk in found.items():
            if chunk is None:
                self.store.put(self.caches.made(ids, fronts[ids]))
        return None not in found.values()

    def _keep_prefix(self, plan: PromptPlan) -> None:
        start = 0
        for ids in self.caches.units(plan)[1]:
            self.store.put(self.caches.made(ids, plan.token_ids[:start]))
            start += len(ids)

    def _loading(self, mode: Mode, hits: Sequence[Hit], loading: LoadConfig) -> tuple[Loading | None, tuple[Span, ...]]:
        if mode not in ON_CHUNKS:
            return None, ()
        tokens = fake_comparison("", hits, ()).context_tokens
        workload = Workload(context_tokens=tokens, suffix_tokens=10)
        predicted = self.machine.predict(loading.device, workload, 0.15, loading, pipelined=loading.pipelined)
        loaded = next((stretch_of(span.name) for span in predicted if span.lane is Lane.LOAD), None)
        facts = Loading(
            places=(Place.MEMORY,),
            device=loading.device.name if loading.device else "",
            codec=loading.codec,
            order=loading.order,
            is_pipelined=loading.pipelined,
            nbytes=tokens * self.kv_bytes_per_token,
            met_at=loaded[0] if loaded else None,
        )
        return facts, predicted

    def _step(self, cancel: threading.Event | None) -> None:
        if self.pause_s:
            (cancel or threading.Event()).wait(self.pause_s)
        cancelling.check(cancel)


class FakeCaches:
    """Keys of one tenant, and KV of zeros."""

    def __init__(self, tenant: str) -> None:
        self._tenant = tenant

    def key(self, token_ids: Sequence[int], recipe: Sequence[int] = ()) -> ChunkKey:
        return ChunkKey.of("fake", token_ids, recipe, self._tenant)

    def made(self, token_ids: tuple[int, ...], recipe: Sequence[int] = ()) -> ChunkKV:
        keys, values = (torch.zeros(len(token_ids), 1, 125) for _ in range(2))
        return ChunkKV(self.key(token_ids, recipe), token_ids, (LayerKV(keys, values),))

    def units(self, plan: PromptPlan) -> tuple[list[ChunkKey], list[tuple[int, ...]]]:
        """One for each chunk, behind all in front of it."""
        ids = [plan.ids(segment) for segment in plan.context]
        return [self.key(plan.ids(s), plan.token_ids[: s.start]) for s in plan.context], ids


def looked_into(inspection: Inspection, mode: Mode) -> Inspection:
    """The same inspection as that of another mode that fuses."""
    renamed = {Mode.BLEND: mode}
    by_mode = ("kv_deviation", "attention_deviation")
    arrays = {name: {renamed.get(m, m): a for m, a in getattr(inspection, name).items()} for name in by_mode}
    stored = inspection.attention
    assert isinstance(stored, StoredAttention)
    maps = replace(stored, maps={renamed.get(m, m): codes for m, codes in stored.maps.items()})
    return replace(inspection, **arrays, attention=maps)


def replied(mode: Mode, hits: Sequence[Hit]) -> tuple[Reply, ...]:
    """What each chunk says alone; only the first can be read as a score."""
    if mode not in ON_REPLIES:
        return ()
    rated = mode is Mode.MAP_RERANK
    return tuple(
        Reply(source=hit.chunk.label, text=f"reply {i}", score=80 if rated and not i else None)
        for i, hit in enumerate(hits)
    )


def later(predicted: Sequence[Span]) -> list[Span]:
    """What a run that takes a tenth longer than was predicted would measure."""
    return [
        replace(s, name=s.name.removeprefix("predicted "), start_ms=1.1 * s.start_ms, end_ms=1.1 * s.end_ms)
        for s in predicted
    ]


def fake_trace(mode: Mode) -> Trace:
    """A trace with TTFT_MS and a few decode steps."""
    ttft = TTFT_MS[mode]
    spans = [
        Span(lane=Lane.LOOKUP, name="lookup", start_ms=0, end_ms=0.01 * ttft),
        Span(lane=Lane.COMPUTE, name="layer 0", start_ms=0.01 * ttft, end_ms=0.99 * ttft, layer=0),
        Span(lane=Lane.FIRST_TOKEN, name="first token", start_ms=0.99 * ttft, end_ms=ttft),
        Span(lane=Lane.DECODE, name="token 1", start_ms=ttft, end_ms=ttft + 20),
    ]
    same, share = ANSWERS[mode] == ANSWERS[Mode.FULL], SHARES.get(mode, 1.0)
    is_stored = mode in ON_CHUNKS or mode is Mode.PREFIX
    return Trace(
        mode=mode, policy=BlendConfig().describe(mode), ratio=share,
        answer=ANSWERS[mode], answer_ids=(1, 2), spans=tuple(spans),
        recomputed_tokens=round(1000 * share), recomputed_share=share, is_warm=True,
        fidelity=Fidelity(
            first_token_kl=0.0 if same else 2.5, mean_kl=0.0, top1_agreement=1.0 if same else 0.4,
            f1_to_full=float(same),
        ) if mode not in ON_REPLIES else None,
        answer_f1=float(same) if mode in ON_REPLIES else None,
        stored_nbytes=2_000_000 if is_stored else None, stored_new_nbytes=500_000 if is_stored else None,
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


def fake_studio(
    engine: FakeEngine | None = None, samples: Sequence[SimpleNamespace] = (), *, shares_caches: bool = False
) -> Studio:
    """A studio around a fake engine; `studio.loaded` is None until it is needed, as with a real one."""
    made = engine or FakeEngine()
    return Studio(lambda say: made, samples, recorded_comparison(), "fake", shares_caches=shares_caches)


def indexed(studio: Studio, texts: dict[str, str], folder) -> Collection:
    """A collection of these texts, made without the page."""
    for name, text in texts.items():
        (folder / name).write_text(text)
    collection = studio.engine(print).collection()
    collection.add([folder / name for name in texts])
    return collection
