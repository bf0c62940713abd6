"""One verb for every mode: prefill, answer, compare. Composes model, store, prompt and fusor.

Knows nothing of pages or files. One caller at a time: a model does one job at once.
"""

from __future__ import annotations

import copy
import datetime
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Self

import torch

from cacheblend.caches import ChunkCaches, Found, Piece, Precomputed, Stored
from cacheblend.calibration import load_profile, profile_for, profile_key
from cacheblend.collection import Collection
from cacheblend.config import AUTO, HKVD_NAME, BlendConfig
from cacheblend.controller import RatioChoice, ratio_for_device
from cacheblend.cost import ComputeProfile, Workload
from cacheblend.decoding import stop_ids, token_texts
from cacheblend.documents import Chunk
from cacheblend.events import Compared, Event, TextDelta
from cacheblend.fusion.extend import KVCache, extend
from cacheblend.fusion.orders import bring
from cacheblend.fusion.pipeline import reads_ahead
from cacheblend.fusion.policies import NoRows
from cacheblend.fusion.spans import SpanRecorder
from cacheblend.inspection import inspect_plan
from cacheblend.kv import LOSSLESS, ChunkKV, LayerKV, StoredChunk
from cacheblend.kv.codecs import codec
from cacheblend.kv.encoded import EncodedChunk
from cacheblend.loading import LoadConfig, LoadOrder, Place, StoreConfig
from cacheblend.machine import Machine
from cacheblend.models.layerwise import LayerwiseModel
from cacheblend.models.selfcheck import check_model
from cacheblend.models.weights import EMBEDDED, display_name, load_model
from cacheblend.places import measure_tier
from cacheblend.prefixes import ComputedRows
from cacheblend.prompt import PromptBuilder, PromptPlan
from cacheblend.recipes import RecipeBook
from cacheblend.retrieval import Embedder, Hit, load_embedder
from cacheblend.run import Prefilled, Reference, Run
from cacheblend.store import Store, open_store
from cacheblend.streaming import in_time
from cacheblend.trace import (
    COMPARED,
    ON_REPLIES,
    Comparison,
    Environment,
    Inspection,
    Lane,
    Loading,
    Mode,
    Recipe,
    Segment,
    SegmentKind,
    Span,
    Trace,
)

logger = logging.getLogger(__name__)

PROBE_TOKENS = 512  # of the chunk that a tier is measured with
DEFAULT_BLEND, DEFAULT_LOADING, DEFAULT_STORE = BlendConfig(), LoadConfig(), StoreConfig()


class Engine:
    """A model, its chunk caches, and every way to prefill a prompt with them."""

    def __init__(
        self,
        hf_model: Any,
        tokenizer: Any,
        *,
        name: str,
        store: StoreConfig | Store = DEFAULT_STORE,
        embedder: str = EMBEDDED,
    ) -> None:
        """Check the model (UnsupportedModelError if it cannot be driven exactly) and open its store."""
        self.hf_model, self.tokenizer = hf_model, tokenizer
        self.model = LayerwiseModel(hf_model)
        self.self_check = check_model(self.model)
        self.store = open_store(store, self.model.device) if isinstance(store, StoreConfig) else store
        self.caches = ChunkCaches(self.model, self.store)
        self.machine = Machine(load_profile(profile_key(self.model)))
        self.prompts = PromptBuilder(tokenizer)
        self.recipes = RecipeBook(tokenizer, self.prompts.prefix)
        self._name, self._embedder_name = name, embedder
        self._embedder: Embedder | None = None
        self.stop_ids = stop_ids(hf_model, tokenizer)

    @classmethod
    def load(
        cls,
        model: str = EMBEDDED,
        *,
        device: str | None = None,
        dtype: str | None = None,
        store: StoreConfig = DEFAULT_STORE,
        embedder: str = EMBEDDED,
        progress: Callable[[str], None] = logger.info,
    ) -> Engine:
        """Load a model by name (“embedded”, a folder, a .gguf file, a hub name) and check that it can be fused."""
        hf_model, tokenizer = load_model(model, device=device, dtype=dtype, progress=progress)
        progress("checking the model")
        return cls(hf_model, tokenizer, name=display_name(model), store=store, embedder=embedder)

    @property
    def environment(self) -> Environment:
        """Where this engine runs, at this moment."""
        return Environment(
            model=self._name,
            device=str(self.model.device),
            dtype=str(self.model.dtype).removeprefix("torch."),
            threads=torch.get_num_threads(),
            torch_version=torch.__version__,
            recorded_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        )

    @property
    def context_limit(self) -> int:
        """The longest prompt and answer together, in tokens."""
        return self.model.context_limit

    @property
    def kv_bytes_per_token(self) -> int:
        """What one cached token costs in the store."""
        return self.model.kv_bytes_per_token

    def collection(self, chunk_tokens: int = 512) -> Collection:
        """An empty collection of documents, sized by this model's tokens; loads the embedder on first use."""
        return Collection(self.tokenizer, self.embedder, chunk_tokens=chunk_tokens)

    @property
    def embedder(self) -> Embedder:
        """What finds chunks; loaded on first use."""
        if self._embedder is None:
            self._embedder = load_embedder(self._embedder_name)
        return self._embedder

    def calibrate(
        self,
        *,
        recalibrate: bool = False,
        progress: Callable[[int, int], None] | None = None,
        cancel: threading.Event | None = None,
    ) -> ComputeProfile:
        """Measure what computing costs here, in a few seconds and once, and how fast each tier is read.

        The profile is kept in the user's cache folder. From then on every run says what was expected of it.
        """
        profile = profile_for(self.model, label=self._name, recalibrate=recalibrate, progress=progress, cancel=cancel)
        self.machine.profile = profile
        shape = (PROBE_TOKENS, self.model.kv_heads, self.model.head_dim)
        layer = LayerKV(*(torch.randn(shape).to(self.model.dtype) for _ in range(2)))
        for tier in self.store.tiers:
            device = measure_tier(tier, layer, self.model.num_layers)
            if device is not None:
                self.machine.devices[tier.place] = device
        return profile

    # Chunk caches

    def of(self, tenant: str, recipes: RecipeBook | None = None) -> Self:
        """The same engine for somebody who shares no caches with others; every tenant "" shares with every other.

        recipes: what is known of this tenant's chunks already; nothing by default.
        """
        other = copy.copy(self)
        other.caches, other.recipes = self.caches.of(tenant), recipes or self.recipes.blank()
        return other

    def precompute(
        self,
        chunks: Sequence[Chunk],
        recipe: Recipe = Recipe.BARE,
        *,
        progress: Callable[[int, int], None] | None = None,
        cancel: threading.Event | None = None,
    ) -> Precomputed:
        """Prefill every chunk whose KV is not in the store, and the prompt's prefix.

        recipe: what stands in front of each chunk meanwhile. SIMILAR compares these chunks with each other, unless
        `learn_similar` was told of more.
        """
        if recipe is Recipe.SIMILAR:
            self.learn_similar(chunks)
        wanted = [Piece(tuple(chunk.token_ids), self._front(recipe, chunk.token_ids)) for chunk in chunks]
        return self.caches.precompute([Piece(tuple(self.prompts.prefix)), *wanted], progress=progress, cancel=cancel)

    def learn_similar(self, chunks: Sequence[Chunk]) -> None:
        """Find out which chunks of a collection are alike, for recipe SIMILAR; what was found before stays."""
        if not all(self.recipes.knows(chunk.token_ids) for chunk in chunks):
            vectors = self.embedder.encode([chunk.text for chunk in chunks])
            self.recipes.learn([tuple(chunk.token_ids) for chunk in chunks], vectors)

    # Prompts

    def plan(self, question: str, hits: Sequence[Hit], *, max_new_tokens: int = 64) -> PromptPlan:
        """Lay out a question behind its chunks; PromptTooLongError says which to drop."""
        return self.prompts.plan(
            question,
            [hit.chunk.token_ids for hit in hits],
            [(hit.chunk.label, hit.score) for hit in hits],
            self.context_limit - max_new_tokens,
        )

    def prefill(
        self,
        *,
        prefix: Sequence[int] = (),
        chunks: Sequence[Sequence[int]] = (),
        suffix: Sequence[int],
        mode: Mode | str = Mode.BLEND,
        loading: LoadConfig = DEFAULT_LOADING,
        reserve: int = 0,
        **blend: Any,
    ) -> Prefilled:
        """Prefill token ids laid out as prefix, chunks and suffix. blend: the fields of BlendConfig.

        reserve: room for tokens to be decoded behind the prompt.
        """
        plan = PromptPlan.of(prefix, chunks, suffix)
        made = self.prefill_plan(plan, Mode(mode), BlendConfig(**blend), loading=loading, reserve=reserve)
        self.keep(plan, made)
        self.store.settle()
        return made

    def prefill_plan(
        self,
        plan: PromptPlan,
        mode: Mode,
        blend: BlendConfig = DEFAULT_BLEND,
        *,
        loading: LoadConfig = DEFAULT_LOADING,
        reserve: int = 0,
        cancel: threading.Event | None = None,
    ) -> Prefilled:
        """Prefill a plan in one mode; chunk caches that are missing are computed first, as spans of their own.

        What is new or was found in a slow tier stays where it is until the store settles, when nobody waits; what a
        prefix run computed is not stored until `keep` is called. ValueError for the modes that decode replies before
        they have a prompt: those are for `answer` and `compare`.
        """
        if mode in ON_REPLIES:
            raise ValueError(f"{mode} asks every chunk before it has a prompt: use answer or compare.")
        if mode is Mode.PREFIX:
            return self.prefill_prefix(plan, loading=loading, reserve=reserve, cancel=cancel)
        capacity = plan.num_tokens + reserve
        is_auto = mode is Mode.BLEND and blend.ratio == AUTO
        if (is_auto or loading.target_ms is not None) and self.machine.profile is None:
            self.calibrate()  # before the clock starts
        spans = SpanRecorder(self.model.device)
        if mode is Mode.FULL:
            return self.prefill_full(plan, capacity, spans, cancel)
        blend = blend.of(mode)
        found = held = self.caches.find(plan, spans, cancel, self._fronts(plan, blend.recipe))
        if loading.codec != LOSSLESS or loading.target_ms is not None:
            forms = self._encoded(found, self.caches.tensors(found, spans, cancel), loading)
            spans = SpanRecorder(self.model.device)  # encoding is part of storing: the clock starts behind it
            found = self.caches.fill(found, forms, spans, cancel)
        facts = _facts(found, loading)
        device = loading.device or self.machine.device(facts)
        size_ratio = self.kv_bytes_per_token * plan.context_tokens / max(facts.nbytes, 1)
        workload = self._workload(plan.segments, blend, loading, facts.codec, size_ratio)
        if is_auto:
            blend = replace(blend, ratio=self.machine.choose_ratio(device, workload))
        with self.store.pinned(chunk.key for chunk in found.chunks):
            brought = bring(
                self.model,
                plan,
                found.chunks,
                blend.selection(mode),
                loading,
                placed_at=torch.from_numpy(plan.place_alone()) if mode is Mode.UNPLACED else None,
                fresh=found.fresh,
                repair=self.caches.repair(found, spans, cancel),
                capacity=capacity,
                deviation=blend.deviation,
                write_back=blend.write_back,
                spans=spans,
                cancel=cancel,
            )
        facts = replace(facts, nbytes=brought.nbytes, met_at=brought.met_at)
        ratio = blend.asked_ratio(mode)
        expected: tuple[Span, ...] = ()
        if mode is not Mode.UNPLACED and (mode is Mode.REUSE or blend.policy == HKVD_NAME):  # what the formula knows
            expected = self.machine.predict(device, workload, ratio, loading, pipelined=facts.is_pipelined)
        if loading.order is LoadOrder.LAYERWISE:
            self.machine.note(facts, spans.spans(), plan.context_tokens)
        return Prefilled(
            cache=brought.fused.cache,
            logits=brought.fused.logits,
            spans=spans,
            kept_per_layer=brought.fused.kept_per_layer,
            is_warm=not found.fresh,
            ratio=ratio,
            loading=facts,
            predicted=expected,
            found=held,
        )

    def prefill_prefix(
        self,
        plan: PromptPlan,
        *,
        loading: LoadConfig = DEFAULT_LOADING,
        reserve: int = 0,
        cancel: threading.Event | None = None,
    ) -> Prefilled:
        """Full prefill of a plan whose context was stored as a prefix, as far as it was (`keep`).

        Equal to full recompute in either order of loading: every stored token has seen everything in front of it.
        """
        spans, computed = SpanRecorder(self.model.device), ComputedRows()
        found = held = self.caches.find_prefix(plan, spans)
        units = found.chunks
        if loading.codec != LOSSLESS:
            whole = self.caches.tensors(found, spans, cancel)
            found = Found(tuple(EncodedChunk.of(unit, codec(loading.codec)) for unit in whole), found.fronts)
            spans = SpanRecorder(self.model.device)  # as in `prefill_plan`
        stored = sum(unit.num_tokens for unit in units)
        behind = PromptPlan.of((), [unit.token_ids for unit in units], plan.token_ids[stored:])
        with self.store.pinned(unit.key for unit in units):
            brought = bring(
                self.model,
                behind,
                found.chunks,
                NoRows(),
                loading,
                are_prefix=True,
                repair=self.caches.repair(found, spans, cancel),
                capacity=plan.num_tokens + reserve,
                deviation=DEFAULT_BLEND.deviation,
                write_back=DEFAULT_BLEND.write_back,
                spans=spans,
                observer=computed,
                cancel=cancel,
            )
        is_exact = all(unit.codec == LOSSLESS for unit in found.chunks)
        missing = plan.context_tokens - stored
        return Prefilled(
            cache=brought.fused.cache,
            logits=brought.fused.logits,
            spans=spans,
            kept_per_layer=tuple(missing + kept for kept in brought.fused.kept_per_layer),
            is_warm=missing == 0,
            ratio=1.0,
            loading=replace(_facts(found, loading), nbytes=brought.nbytes, met_at=brought.met_at),
            found=held,
            computed=computed if is_exact else None,
        )

    def prefill_full(
        self, plan: PromptPlan, capacity: int, spans: SpanRecorder, cancel: threading.Event | None
    ) -> Prefilled:
        """Every token together. capacity: tokens the cache is to hold; the clock is that of `spans`."""
        cache = KVCache(self.model, capacity)
        token_ids = torch.tensor(plan.token_ids, device=self.model.device)
        logits = extend(self.model, cache, token_ids, last_only=True, spans=spans, cancel=cancel)[0]
        return Prefilled(
            cache=cache,
            logits=logits,
            spans=spans,
            kept_per_layer=(plan.context_tokens,) * self.model.num_layers,
            is_warm=True,
            ratio=1.0,
            predicted=self.machine.predict_full(plan.num_tokens),
        )

    def keep(self, plan: PromptPlan, made: Prefilled) -> Stored | None:
        """Store what a prefix run computed, now that nobody waits; what the prompt takes in the store, in any mode.

        None for modes that store nothing. What was computed behind a lossy copy is not exact, and not kept.
        """
        if made.found is None:
            return None
        if made.computed is None:
            return self.caches.held(made.found)
        return self.caches.keep_prefix(plan, made.found, made.computed)

    # Questions

    def answer(
        self,
        question: str,
        hits: Sequence[Hit],
        *,
        mode: Mode | str = Mode.BLEND,
        loading: LoadConfig = DEFAULT_LOADING,
        max_new_tokens: int = 64,
        cancel: threading.Event | None = None,
        **blend: Any,
    ) -> Iterator[str]:
        """Stream the answer to a question over retrieved chunks, piece by piece. blend: the fields of BlendConfig."""
        plan = self.plan(question, hits, max_new_tokens=max_new_tokens)
        run = Run(self, plan, Mode(mode), BlendConfig(**blend), loading, max_new_tokens, cancel)
        shown = ""
        for event in run.events(None):
            if isinstance(event, TextDelta):
                yield event.text[len(shown) :]
                shown = event.text
        self.store.settle()

    def compare(
        self,
        question: str,
        hits: Sequence[Hit],
        *,
        modes: Sequence[Mode] = COMPARED,
        blend: BlendConfig = DEFAULT_BLEND,
        loading: LoadConfig = DEFAULT_LOADING,
        max_new_tokens: int = 64,
        cancel: threading.Event | None = None,
    ) -> Iterator[Event]:
        """Run one question in several modes on the same chunks in the same order; full goes first, others are held
        against it. Raises PromptTooLongError before anything runs, Cancelled when stopped."""
        plan = self.plan(question, hits, max_new_tokens=max_new_tokens)
        reference: Reference | None = None
        traces: list[Trace] = []
        order = sorted(set(modes), key=list(Mode).index)
        for run in [Run(self, plan, mode, blend, loading, max_new_tokens, cancel) for mode in order]:
            yield from run.events(reference)
            reference = run.reference if run.mode is Mode.FULL else reference
            traces.append(run.trace)
        self.store.settle()
        yield Compared(
            Comparison(
                question=question,
                tokens=token_texts(self.tokenizer, plan.token_ids),
                segments=plan.segments,
                environment=self.environment,
                traces=tuple(traces),
            )
        )

    def inspect(
        self,
        question: str,
        hits: Sequence[Hit],
        *,
        mode: Mode = Mode.BLEND,
        blend: BlendConfig = DEFAULT_BLEND,
        max_new_tokens: int = 64,
        progress: Callable[[int, int], None] | None = None,
        cancel: threading.Event | None = None,
    ) -> Inspection:
        """Look inside full, reuse and a mode that fuses on the same prompt, in a pass of its own that is not timed.

        Reuse is on the same chunk caches: PRIME's are primed.
        """
        blend = blend.of(mode)
        plan = self.plan(question, hits, max_new_tokens=max_new_tokens)
        found = self.caches.find(plan, SpanRecorder(self.model.device), cancel, self._fronts(plan, blend.recipe))
        self.store.settle()
        caches = self.caches.tensors(found, SpanRecorder(self.model.device), cancel)
        return inspect_plan(self.model, plan, caches, found.fronts, blend, mode, progress=progress, cancel=cancel)

    def advise(
        self, comparison: Comparison, trace: Trace, blend: BlendConfig, loading: LoadConfig
    ) -> RatioChoice | None:
        """What the controller would choose for a run's prompt, by HKVD and layer by layer, on the same device.

        None where it does not know the machine, the device or the codec.
        """
        facts, profile, context = trace.loading, self.machine.profile, comparison.context_tokens
        if facts is None or profile is None or context == 0:
            return None
        device = loading.device or self.machine.device(facts)
        layers = {span.layer for span in trace.spans if span.lane is Lane.LOAD}
        read = len(layers) / self.model.num_layers if facts.met_at is None else 1 - facts.met_at / context
        plain = self.kv_bytes_per_token * context * read
        # Cake begins to read more than it comes to use; no codec makes KV larger.
        size_ratio = max(1.0, plain / facts.nbytes) if facts.nbytes > 0 else 1.0
        workload = self._workload(comparison.segments, blend, loading, facts.codec, size_ratio)
        return None if device is None or workload is None else ratio_for_device(profile, device, workload)

    def text(self, token_ids: Sequence[int]) -> str:
        """Answer ids as text."""
        decoded: str = self.tokenizer.decode(list(token_ids), skip_special_tokens=True)
        return decoded.strip()

    # Within

    def _fronts(self, plan: PromptPlan, recipe: Recipe) -> list[tuple[int, ...]]:
        """What stands in front of each segment of the context when it is prefilled; nothing in front of the prefix."""
        return [
            () if segment.kind is SegmentKind.PREFIX else self._front(recipe, plan.ids(segment))
            for segment in plan.context
        ]

    def _front(self, recipe: Recipe, token_ids: Sequence[int]) -> tuple[int, ...]:
        """What stands in front of one chunk when it is prefilled; ValueError if the model cannot take both."""
        front = self.recipes.front(recipe, token_ids)
        if len(front) + len(token_ids) > self.context_limit:
            raise ValueError(
                f"with recipe “{recipe}” a chunk of {len(token_ids)} tokens stands behind {len(front)}, together "
                f"longer than the {self.context_limit} the model takes: use smaller chunks or another recipe."
            )
        return front

    def _encoded(self, found: Found, whole: Sequence[ChunkKV], loading: LoadConfig) -> Sequence[StoredChunk | None]:
        """The chunks as a tier with that codec would keep them; None where computing is sooner than loading."""
        if loading.target_ms is None:
            return [EncodedChunk.of(chunk, codec(loading.codec)) for chunk in whole]
        device, profile = loading.device or self.machine.device(_facts(found, loading)), self.machine.profile
        if device is None or profile is None:
            raise ValueError("a target needs a device whose bandwidth is known: name one to emulate.")
        bandwidth = device.over_time[0][1] if device.over_time else device.bandwidth
        return in_time(whole, loading.target_ms, bandwidth, self.machine.decode_ms, profile.prefill_ms)

    def _workload(
        self, segments: Sequence[Segment], blend: BlendConfig, loading: LoadConfig, codec: str, size_ratio: float
    ) -> Workload | None:
        """A run as the controller sees it; None without a context, or with a codec whose speed was never seen."""
        context = [segment for segment in segments if segment.kind is not SegmentKind.SUFFIX]
        decode_ms = self.machine.decode_ms.get(codec)
        if not context or decode_ms is None:
            return None
        context_tokens = sum(segment.num_tokens for segment in context)
        return Workload(
            context_tokens=context_tokens,
            suffix_tokens=sum(segment.num_tokens for segment in segments) - context_tokens,
            reads_per_layer=len(context),
            selector=blend.selector,
            prefetch=loading.prefetch,
            size_ratio=size_ratio,
            decode_ms_per_token=decode_ms,
        )


def _facts(found: Found, loading: LoadConfig) -> Loading:
    """How the chunks of a run were brought in."""
    places = {chunk.place for chunk in found.chunks}
    codecs = sorted({chunk.codec for chunk in found.chunks} - {LOSSLESS})
    return Loading(
        places=tuple(place for place in Place if place in places),
        device=loading.device.name if loading.device else "",
        codec=", ".join(codecs) or LOSSLESS,
        order=loading.order,
        is_pipelined=reads_ahead(found.chunks, loading),
        nbytes=sum(chunk.nbytes for chunk in found.chunks),
    )
