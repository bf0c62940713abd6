"""One mode's run of one prompt: a timed pass, and behind it the untimed measurement of its distance to full.

Knows an engine that prefills; nothing of where chunks or weights come from.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from cacheblend.baselines.alone import AskedAlone
from cacheblend.baselines.batch import decode_together
from cacheblend.baselines.scores import answer_of, best, read_reply
from cacheblend.caches import Found
from cacheblend.config import BlendConfig
from cacheblend.decoding import decode, score
from cacheblend.distance import attention_distance, kv_distance
from cacheblend.events import Event, Finished, FirstToken, Started, TextDelta
from cacheblend.fusion.extend import KVCache
from cacheblend.fusion.spans import SpanRecorder
from cacheblend.kv import LayerKV
from cacheblend.loading import LoadConfig
from cacheblend.metrics import kl_divergence, top1_agreement, word_f1
from cacheblend.prefixes import ComputedRows
from cacheblend.prompt import PromptPlan
from cacheblend.trace import ON_REPLIES, Fidelity, Lane, Loading, Mode, Reply, Span, Trace

if TYPE_CHECKING:
    from cacheblend.engine import Engine


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefilled:
    """A prompt's KV, ready to decode. logits: (vocab,) of the next token."""

    cache: KVCache
    logits: torch.Tensor
    spans: SpanRecorder
    kept_per_layer: tuple[int, ...]  # context rows computed at each layer
    is_warm: bool
    ratio: float  # share of context tokens that was asked for
    loading: Loading | None = None
    predicted: tuple[Span, ...] = ()
    found: Found | None = None  # stored KV that the run is made of
    computed: ComputedRows | None = None  # of a prefix run: what may be stored for the next

    @property
    def layers(self) -> tuple[LayerKV, ...]:
        """Fused KV of every layer, keys after RoPE, each (tokens, kv_heads, head_dim); views, not copies."""
        return tuple(self.cache.layer(index) for index in range(len(self.kept_per_layer)))


@dataclass(frozen=True, slots=True)
class Reference:
    """Full's answer, and its logits (answer tokens, vocab) along it; its KV where deviations are to be measured."""

    answer: str
    answer_ids: tuple[int, ...]
    logits: torch.Tensor
    cache: KVCache | None = None


class Run:
    """One mode's timed pass, and behind it the untimed measurement of its distance to full."""

    def __init__(
        self,
        engine: Engine,
        plan: PromptPlan,
        mode: Mode,
        blend: BlendConfig,
        loading: LoadConfig,
        max_new_tokens: int,
        cancel: threading.Event | None,
        *,
        deviations: bool = False,
    ) -> None:
        """deviations: also measure how far KV and attention are from full's, for which full's KV stays in memory."""
        if max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be at least 1, got {max_new_tokens}")
        self.engine, self.plan, self.mode, self.blend, self.loading = engine, plan, mode, blend, loading
        self.max_new_tokens, self.cancel, self.deviations = max_new_tokens, cancel, deviations
        self._alone: AskedAlone | None = None
        if mode in ON_REPLIES:
            self._alone = AskedAlone.of(engine.prompts, plan, mode, max_new_tokens, engine.context_limit)
        self._replies: tuple[Reply, ...] = ()
        self.trace: Trace
        self.reference: Reference

    def events(self, reference: Reference | None) -> Iterator[Event]:
        """Run the mode; reference: full's answer, if full ran before. Afterwards `trace` is set."""
        yield Started(self.mode)
        if self.mode is Mode.MAP_RERANK and self._alone is not None:
            yield from self._reranked(self._alone, reference)
        else:
            yield from self._decoded(reference)
        yield Finished(self.mode, self.trace)

    def _decoded(self, reference: Reference | None) -> Iterator[Event]:
        """Prefill one prompt and decode behind it."""
        engine = self.engine
        prefilled = self._prefill() if self._alone is None else self._reduce(self._alone)
        trace = self._trace(prefilled)
        yield FirstToken(self.mode, trace.ttft_ms, trace.is_warm)
        answer_ids: list[int] = []
        for token in decode(
            engine.model,
            prefilled.cache,
            prefilled.logits,
            max_new_tokens=self.max_new_tokens,
            stop_ids=engine.stop_ids,
            spans=prefilled.spans,
            cancel=self.cancel,
        ):
            answer_ids.append(token)
            yield TextDelta(self.mode, engine.text(answer_ids))
        self._finish(trace, prefilled, tuple(answer_ids), reference)

    def _prefill(self) -> Prefilled:
        return self.engine.prefill_plan(
            self.plan,
            self.mode,
            self.blend,
            loading=self.loading,
            reserve=self.max_new_tokens,
            cancel=self.cancel,
        )

    def _ask(self, alone: AskedAlone, spans: SpanRecorder) -> list[tuple[int, ...]]:
        """What every chunk replies, all of them at once."""
        return decode_together(
            self.engine.hf_model,
            [plan.token_ids for plan in alone.plans],
            max_new_tokens=alone.max_new_tokens,
            stop_ids=self.engine.stop_ids,
            spans=spans,
            cancel=self.cancel,
        )

    def _reduce(self, alone: AskedAlone) -> Prefilled:
        """MapReduce: ask every chunk, then prefill what they replied as one prompt. TTFT holds all of it."""
        engine, spans = self.engine, SpanRecorder(self.engine.model.device)
        replied = self._ask(alone, spans)
        with spans.span(Lane.COMPUTE, "put the replies together"):
            texts = [engine.text(ids) for ids in replied]
            self._replies = tuple(
                Reply(source=source, text=text) for source, text in zip(alone.sources, texts, strict=True)
            )
            plan = alone.together(engine.prompts, self._replies, engine.context_limit - self.max_new_tokens)
        made = engine.prefill_full(plan, plan.num_tokens + self.max_new_tokens, spans, self.cancel)
        every = (self.plan.context_tokens,) * len(made.kept_per_layer)
        return replace(made, kept_per_layer=every, predicted=())

    def _reranked(self, alone: AskedAlone, reference: Reference | None) -> Iterator[Event]:
        """MapRerank: ask every chunk, and show the reply that rates itself highest.

        Nothing can be shown before all replies are there with their scores, which their text ends with: TTFT holds
        their decoding. (The paper's 0.185 s for Yi-34B, Fig. 13, can hold no more than the prefill.)
        """
        spans = SpanRecorder(self.engine.model.device)
        replied = self._ask(alone, spans)
        with spans.span(Lane.FIRST_TOKEN, "choose the best reply"):
            texts = [self.engine.text(ids) for ids in replied]
            self._replies = tuple(read_reply(*told) for told in zip(alone.sources, texts, strict=True))
            chosen = best(self._replies)
            answer = answer_of(self._replies[chosen])
        self.trace = replace(
            self._told(spans, self.plan.context_tokens, 1.0),
            answer=answer,
            answer_ids=replied[chosen],
            answer_f1=word_f1(answer, reference.answer) if reference else None,
        )
        yield FirstToken(self.mode, self.trace.ttft_ms, self.trace.is_warm)
        yield TextDelta(self.mode, answer)

    def _trace(self, prefilled: Prefilled) -> Trace:
        """What is known once the first token is there."""
        later = prefilled.kept_per_layer[1:] or prefilled.kept_per_layer
        return replace(
            self._told(prefilled.spans, sum(later) / len(later), prefilled.ratio),
            is_warm=prefilled.is_warm,
            loading=prefilled.loading,
            predicted=prefilled.predicted,
        )

    def _told(self, spans: SpanRecorder, recomputed: float, ratio: float) -> Trace:
        """A trace without an answer. recomputed: context tokens computed per layer."""
        return Trace(
            mode=self.mode,
            policy=self.blend.describe(self.mode),
            ratio=ratio,
            answer="",
            answer_ids=(),
            spans=spans.spans(),
            recomputed_tokens=round(recomputed),
            recomputed_share=recomputed / max(self.plan.context_tokens, 1),
            is_warm=True,
            replies=self._replies,
        )

    def _finish(
        self, trace: Trace, prefilled: Prefilled, answer_ids: tuple[int, ...], reference: Reference | None
    ) -> None:
        """Measure the distance to full along full's own answer, on the KV that the timed pass left; store what is new.

        There is no such distance for another prompt than full's, only the words of its answer.
        """
        answer, fidelity, answer_f1 = self.engine.text(answer_ids), None, None
        prefilled.cache.crop(self.plan.num_tokens)
        if self._alone is not None:
            answer_f1 = word_f1(answer, reference.answer) if reference else None
        elif self.mode is Mode.FULL:
            logits = self._score(prefilled, answer_ids)
            self.reference = Reference(answer, answer_ids, logits, prefilled.cache if self.deviations else None)
            fidelity = self._fidelity(prefilled, logits, answer, self.reference)
        elif reference is not None:
            fidelity = self._fidelity(prefilled, self._score(prefilled, reference.answer_ids), answer, reference)
        stored = self.engine.keep(self.plan, prefilled)
        self.trace = replace(
            trace,
            answer=answer,
            answer_ids=answer_ids,
            spans=prefilled.spans.spans(),
            fidelity=fidelity,
            answer_f1=answer_f1,
            stored_nbytes=stored.nbytes if stored else None,
            stored_new_nbytes=stored.new_nbytes if stored else None,
        )

    def _score(self, prefilled: Prefilled, answer_ids: tuple[int, ...]) -> torch.Tensor:
        return score(self.engine.model, prefilled.cache, prefilled.logits, answer_ids)

    def _fidelity(self, prefilled: Prefilled, logits: torch.Tensor, answer: str, reference: Reference) -> Fidelity:
        """How far logits (answer tokens, vocab) along full's answer, the mode's answer and its KV are from full's."""
        kl = kl_divergence(reference.logits, logits)
        full, plan, model = reference.cache, self.plan, self.engine.model
        return Fidelity(
            first_token_kl=float(kl[0]),
            mean_kl=float(kl.mean()),
            top1_agreement=top1_agreement(reference.logits, logits),
            f1_to_full=word_f1(answer, reference.answer),
            kv_deviation=kv_distance(full, prefilled.cache, plan, model.num_layers) if full else None,
            attention_deviation=attention_distance(model, full, prefilled.cache, plan) if full else None,
        )
