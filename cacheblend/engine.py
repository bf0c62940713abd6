"""One verb for every mode: prefill, answer, compare. Composes model, store, prompt and fusor.

Knows nothing of pages or files. One caller at a time: a model does one job at once.
"""

from __future__ import annotations

import datetime
import hashlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from cacheblend import cancel as cancelling
from cacheblend.collection import Collection
from cacheblend.config import BlendConfig
from cacheblend.decoding import stop_ids, token_texts
from cacheblend.documents import Chunk
from cacheblend.events import Compared, Event, TextDelta
from cacheblend.fusion.extend import KVCache, extend, prefill_chunk
from cacheblend.fusion.fusor import fuse
from cacheblend.fusion.source import ChunkSource
from cacheblend.fusion.spans import SpanRecorder
from cacheblend.inspection import inspect_plan
from cacheblend.kv import ChunkKey, ChunkKV
from cacheblend.models.layerwise import LayerwiseModel
from cacheblend.models.selfcheck import check_model
from cacheblend.models.weights import EMBEDDED, display_name, load_model
from cacheblend.prompt import PromptBuilder, PromptPlan
from cacheblend.retrieval import Hit, load_embedder
from cacheblend.run import Prefilled, Reference, Run
from cacheblend.store import MemoryStore
from cacheblend.trace import (
    Comparison,
    Environment,
    Inspection,
    Lane,
    Mode,
    Trace,
)

logger = logging.getLogger(__name__)

DEFAULT_STORE_BYTES = 4 * 2**30
ALL_MODES = (Mode.FULL, Mode.REUSE, Mode.BLEND)
DEFAULT_BLEND = BlendConfig()


class Engine:
    """A model, its chunk caches, and every way to prefill a prompt with them."""

    def __init__(
        self,
        hf_model: Any,
        tokenizer: Any,
        *,
        name: str,
        store_bytes: int = DEFAULT_STORE_BYTES,
        embedder: str = EMBEDDED,
    ) -> None:
        """Check the model (UnsupportedModelError if it cannot be driven exactly) and start with an empty store."""
        self.hf_model, self.tokenizer = hf_model, tokenizer
        self.model = LayerwiseModel(hf_model)
        self.self_check = check_model(self.model)
        self.store = MemoryStore(store_bytes)
        self.prompts = PromptBuilder(tokenizer)
        self._name, self._embedder_name = name, embedder
        self._embedder: Any = None
        self.stop_ids = stop_ids(hf_model, tokenizer)
        self._fingerprint = _fingerprint(hf_model)

    @classmethod
    def load(
        cls,
        model: str = EMBEDDED,
        *,
        device: str | None = None,
        dtype: str | None = None,
        store_bytes: int = DEFAULT_STORE_BYTES,
        embedder: str = EMBEDDED,
        progress: Callable[[str], None] = logger.info,
    ) -> Engine:
        """Load a model by name (“embedded”, a folder, a .gguf file, a hub name) and check that it can be fused."""
        hf_model, tokenizer = load_model(model, device=device, dtype=dtype, progress=progress)
        progress("checking the model")
        return cls(hf_model, tokenizer, name=display_name(model), store_bytes=store_bytes, embedder=embedder)

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
        if self._embedder is None:
            self._embedder = load_embedder(self._embedder_name)
        return Collection(self.tokenizer, self._embedder, chunk_tokens=chunk_tokens)

    # Chunk caches

    def precompute(
        self,
        chunks: Sequence[Chunk],
        *,
        progress: Callable[[int, int], None] | None = None,
        cancel: threading.Event | None = None,
    ) -> int:
        """Prefill every chunk whose KV is not in the store, and the prompt's prefix; return how many were prefilled."""
        wanted = [self.prompts.prefix, *(chunk.token_ids for chunk in chunks)]
        missing = [ids for ids in dict.fromkeys(wanted) if ids and self._key(ids) not in self.store]
        for done, token_ids in enumerate(missing):
            if progress is not None:
                progress(done, len(missing))
            self.store.put(self._prefill_chunk(token_ids, cancel))
        if progress is not None:
            progress(len(missing), len(missing))
        return len(missing)

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
        reserve: int = 0,
        **blend: Any,
    ) -> Prefilled:
        """Prefill token ids laid out as prefix, chunks and suffix. blend: the fields of BlendConfig.

        reserve: room for tokens to be decoded behind the prompt.
        """
        plan = PromptPlan.of(prefix, chunks, suffix)
        return self.prefill_plan(plan, Mode(mode), BlendConfig(**blend), reserve=reserve)

    def prefill_plan(
        self,
        plan: PromptPlan,
        mode: Mode,
        blend: BlendConfig = DEFAULT_BLEND,
        *,
        reserve: int = 0,
        cancel: threading.Event | None = None,
    ) -> Prefilled:
        """Prefill a plan in one mode; chunk caches that are missing are computed first, as spans of their own."""
        spans = SpanRecorder(self.model.device)
        capacity = plan.num_tokens + reserve
        if mode is Mode.FULL:
            cache = KVCache(self.model, capacity)
            token_ids = torch.tensor(plan.token_ids, device=self.model.device)
            logits = extend(self.model, cache, token_ids, last_only=True, spans=spans, cancel=cancel)[0]
            return Prefilled(cache, logits, spans, (plan.context_tokens,) * self.model.num_layers, True)
        caches, num_missing = self._caches(plan, spans, cancel)
        fused = fuse(
            self.model,
            plan,
            ChunkSource(self.model, caches, capacity),
            blend.policy(mode),
            capacity=capacity,
            deviation=blend.deviation,
            write_back=blend.write_back,
            spans=spans,
            cancel=cancel,
        )
        return Prefilled(fused.cache, fused.logits, spans, fused.kept_per_layer, num_missing == 0)

    # Questions

    def answer(
        self,
        question: str,
        hits: Sequence[Hit],
        *,
        mode: Mode | str = Mode.BLEND,
        max_new_tokens: int = 64,
        cancel: threading.Event | None = None,
        **blend: Any,
    ) -> Iterator[str]:
        """Stream the answer to a question over retrieved chunks, piece by piece. blend: the fields of BlendConfig."""
        plan = self.plan(question, hits, max_new_tokens=max_new_tokens)
        run = Run(self, plan, Mode(mode), BlendConfig(**blend), max_new_tokens, cancel)
        shown = ""
        for event in run.events(None):
            if isinstance(event, TextDelta):
                yield event.text[len(shown) :]
                shown = event.text

    def compare(
        self,
        question: str,
        hits: Sequence[Hit],
        *,
        modes: Sequence[Mode] = ALL_MODES,
        blend: BlendConfig = DEFAULT_BLEND,
        max_new_tokens: int = 64,
        cancel: threading.Event | None = None,
    ) -> Iterator[Event]:
        """Run one question in several modes on the same chunks in the same order; full goes first, others are held
        against it. Raises PromptTooLongError before anything runs, Cancelled when stopped."""
        plan = self.plan(question, hits, max_new_tokens=max_new_tokens)
        reference: Reference | None = None
        traces: list[Trace] = []
        for mode in sorted(set(modes), key=ALL_MODES.index):
            run = Run(self, plan, mode, blend, max_new_tokens, cancel)
            yield from run.events(reference)
            reference = run.reference if mode is Mode.FULL else reference
            traces.append(run.trace)
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
        blend: BlendConfig = DEFAULT_BLEND,
        max_new_tokens: int = 64,
        progress: Callable[[int, int], None] | None = None,
        cancel: threading.Event | None = None,
    ) -> Inspection:
        """Look inside full, reuse and blend on the same prompt, in a pass of its own that is not timed."""
        plan = self.plan(question, hits, max_new_tokens=max_new_tokens)
        caches, _ = self._caches(plan, SpanRecorder(self.model.device), cancel)
        return inspect_plan(self.model, plan, caches, blend, progress=progress, cancel=cancel)

    def text(self, token_ids: Sequence[int]) -> str:
        """Answer ids as text."""
        decoded: str = self.tokenizer.decode(list(token_ids), skip_special_tokens=True)
        return decoded.strip()

    # Within

    def _key(self, token_ids: Sequence[int]) -> ChunkKey:
        return ChunkKey.of(self._fingerprint, token_ids)

    def _prefill_chunk(self, token_ids: tuple[int, ...], cancel: threading.Event | None) -> ChunkKV:
        layers = prefill_chunk(self.model, torch.tensor(token_ids, device=self.model.device), cancel=cancel)
        return ChunkKV(self._key(token_ids), token_ids, layers)

    def _caches(
        self, plan: PromptPlan, spans: SpanRecorder, cancel: threading.Event | None
    ) -> tuple[list[ChunkKV], int]:
        """The context's caches in order, and how many had to be computed first."""
        wanted = [plan.ids(segment) for segment in plan.context]
        with spans.span(Lane.LOOKUP, "lookup"):
            keys = [self._key(token_ids) for token_ids in wanted]
            found = [self.store.get(key, ids) for key, ids in zip(keys, wanted, strict=True)]
        num_missing = found.count(None)
        for i, (segment, token_ids) in enumerate(zip(plan.context, wanted, strict=True)):
            if found[i] is None:
                cancelling.check(cancel)
                with spans.span(Lane.PRECOMPUTE, segment.source or segment.kind):
                    entry = self._prefill_chunk(token_ids, cancel)
                self.store.put(entry, pinned=keys)
                found[i] = entry
        return [entry for entry in found if entry is not None], num_missing


def _fingerprint(hf_model: Any) -> str:
    """Name a model by what its KV depends on: configuration, dtype, and a sample of its weights."""
    sha = hashlib.sha256(hf_model.config.to_json_string(use_diff=False).encode())
    sha.update(str(hf_model.dtype).encode())
    for name, parameter in hf_model.named_parameters():
        sha.update(name.encode())
        sha.update(parameter.detach().flatten()[:16].float().cpu().numpy().tobytes())
    return sha.hexdigest()
