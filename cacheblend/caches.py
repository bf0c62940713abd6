"""Chunk KV by token ids: found in the store, or prefilled and put there.

Knows a model and a store; nothing of text, questions or selection.
"""

from __future__ import annotations

import copy
import hashlib
import logging
import threading
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple, Self

import torch

from cacheblend import cancel as cancelling
from cacheblend.fusion.extend import prefill_chunk
from cacheblend.fusion.source import Repair
from cacheblend.fusion.spans import SpanRecorder
from cacheblend.kv import ChunkKey, ChunkKV, ChunkLostError, StoredChunk
from cacheblend.kv.encoded import materialise
from cacheblend.models.layerwise import LayerwiseModel
from cacheblend.prefixes import ComputedRows, cut, prefill_units, stored_prefix, unit_keys, units_of
from cacheblend.prompt import PromptPlan
from cacheblend.store import Store, StoreFullError
from cacheblend.trace import Lane

logger = logging.getLogger(__name__)


class Piece(NamedTuple):
    """Token ids whose KV is wanted, and what stands in front of them when it is made (recipes.py)."""

    token_ids: tuple[int, ...]
    front: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """A context's chunks in order, and what stood in front of each when it was prefilled.

    fresh: those that had to be prefilled first, and need not be read any more.
    """

    chunks: tuple[StoredChunk, ...]
    fronts: tuple[tuple[int, ...], ...]
    fresh: frozenset[ChunkKey] = frozenset()


class Stored(NamedTuple):
    """What a prompt takes in the store, as plain tensors, and how much of that came in with it."""

    nbytes: int
    new_nbytes: int


@dataclass(frozen=True, slots=True)
class Precomputed:
    """What a precomputation did. skipped: chunks that fit into the store no more, computed when they are asked for."""

    prefilled: int
    skipped: int


class ChunkCaches:
    """The chunk KV of one model in one store, kept apart by tenant."""

    def __init__(self, model: LayerwiseModel, store: Store) -> None:
        self.store = store
        self._model = model
        self._fingerprint = fingerprint(model.hf_model)
        self._tenant = ""

    def of(self, tenant: str) -> Self:
        """The same store as somebody else sees it: with another salt no chunk is found that others put there."""
        other = copy.copy(self)
        other._tenant = tenant
        return other

    def key(self, token_ids: Sequence[int], recipe: Sequence[int] = ()) -> ChunkKey:
        """What a chunk of these tokens is found by. recipe: the tokens that stood in front of it, none by default."""
        return ChunkKey.of(self._fingerprint, token_ids, recipe, self._tenant)

    def precompute(
        self,
        wanted: Sequence[Piece],
        *,
        progress: Callable[[int, int], None] | None = None,
        cancel: threading.Event | None = None,
    ) -> Precomputed:
        """Prefill every chunk that is not in the store; stop where one more would push out what was put just before."""
        report = progress or (lambda done, total: None)
        missing = [piece for piece in dict.fromkeys(wanted) if piece.token_ids and self.key(*piece) not in self.store]
        with self.store.pinned(self.key(*piece) for piece in wanted):
            for done, piece in enumerate(missing):
                report(done, len(missing))
                try:
                    self.store.put(self._prefill(piece, cancel))
                except StoreFullError as error:
                    logger.warning("%s", error)
                    return Precomputed(done, len(missing) - done)
                self.store.settle()
        report(len(missing), len(missing))
        return Precomputed(len(missing), 0)

    def find(
        self,
        plan: PromptPlan,
        spans: SpanRecorder,
        cancel: threading.Event | None,
        fronts: Sequence[tuple[int, ...]] | None = None,
    ) -> Found:
        """The context's chunks; what is missing is prefilled, each as a span of its own, and put into the store.

        fronts: what stands in front of each segment of the context when it is prefilled; nothing by default.
        """
        fronts = tuple(fronts or [()] * len(plan.context))
        wanted = [Piece(plan.ids(segment), front) for segment, front in zip(plan.context, fronts, strict=True)]
        with spans.span(Lane.LOOKUP, "lookup"):
            keys = [self.key(*piece) for piece in wanted]
            found = [self.store.get(key, piece.token_ids) for key, piece in zip(keys, wanted, strict=True)]
        fresh = frozenset(key for key, chunk in zip(keys, found, strict=True) if chunk is None)
        with self.store.pinned(keys):
            for i, (segment, piece) in enumerate(zip(plan.context, wanted, strict=True)):
                if found[i] is None:
                    cancelling.check(cancel)
                    with spans.span(Lane.PRECOMPUTE, segment.source or segment.kind):
                        found[i] = entry = self._prefill(piece, cancel)
                    self._offer(entry)
        return Found(tuple(chunk for chunk in found if chunk is not None), fronts, fresh)

    def fill(
        self,
        found: Found,
        forms: Sequence[StoredChunk | None],
        spans: SpanRecorder,
        cancel: threading.Event | None,
    ) -> Found:
        """Put other forms of the chunks in their place, and prefill those of which there is none, as spans."""
        fresh: dict[ChunkKey, ChunkKV] = {}
        for chunk, front, form in zip(found.chunks, found.fronts, forms, strict=True):
            if form is None:
                with spans.span(Lane.PRECOMPUTE, "computed sooner than loaded"):
                    fresh[chunk.key] = self._prefill(Piece(chunk.token_ids, front), cancel)
        filled = tuple(form or fresh[chunk.key] for chunk, form in zip(found.chunks, forms, strict=True))
        return Found(filled, found.fronts, frozenset(fresh))

    def tensors(self, found: Found, spans: SpanRecorder, cancel: threading.Event | None) -> list[ChunkKV]:
        """Every chunk whole and as tensors; one that is lost while it is read is prefilled again."""
        mend = self.repair(found, spans, cancel)
        whole = []
        for chunk in found.chunks:
            try:
                whole.append(materialise(chunk))
            except ChunkLostError as error:
                whole.append(mend(error))
        return whole

    def precompute_prefix(
        self, token_ids: Sequence[int], *, borders: Sequence[int] = (), cancel: threading.Event | None = None
    ) -> int:
        """Store a prefix in units behind everything in front of them, which is exact; how many were not there.

        borders: where the segments end of the prompts that are to begin with it.
        """
        keys = unit_keys(self._fingerprint, token_ids, tenant=self._tenant, borders=borders)
        missing = {key for key in keys if key not in self.store}
        if missing:
            for unit in prefill_units(
                self._model, self._fingerprint, token_ids, tenant=self._tenant, borders=borders, cancel=cancel
            ):
                if unit.key in missing:
                    self._offer(unit)
            self.store.settle()
        return len(missing)

    def find_prefix(self, plan: PromptPlan, spans: SpanRecorder) -> Found:
        """The longest stored prefix of a plan's context, in units."""
        with spans.span(Lane.LOOKUP, "lookup"):
            units = tuple(stored_prefix(*self.units(plan), self.store.get))
        starts = accumulate((unit.num_tokens for unit in units), initial=0)
        return Found(units, tuple(plan.token_ids[:start] for start, _ in zip(starts, units, strict=False)))

    def keep_prefix(self, plan: PromptPlan, found: Found, computed: ComputedRows) -> Stored:
        """Store what a run computed of a plan's context behind the stored prefix it found, and say what that takes.

        Where the store has no room for all of it, the end is left out; and the end is what is evicted first, since
        nothing behind a gap can be found.
        """
        keys, ids = self.units(plan)
        first = len(found.chunks)
        new = set()
        if first < len(keys):
            with self.store.pinned(keys):
                for unit in units_of(keys[first:], ids[first:], computed.project(self._model)):
                    if unit.key not in self.store:
                        if not self._offer(unit):
                            break
                        new.add(unit.key)
        self.store.refresh(reversed(keys))
        return self._stored(zip(keys, ids, strict=True), new)

    def held(self, found: Found) -> Stored:
        """What a context's chunks take in the store."""
        return self._stored(((chunk.key, chunk.token_ids) for chunk in found.chunks), found.fresh)

    def repair(self, found: Found, spans: SpanRecorder, cancel: threading.Event | None) -> Repair:
        """How a fuse gets a chunk again whose stored KV was lost while it was being read."""

        def prefill_again(error: ChunkLostError) -> ChunkKV:
            logger.warning("computing a lost chunk again: %s", error)
            self.store.lose(error.key)
            index = next(i for i, chunk in enumerate(found.chunks) if chunk.key == error.key)
            with spans.span(Lane.PRECOMPUTE, "a chunk that was lost"):
                entry = self._prefill(Piece(found.chunks[index].token_ids, found.fronts[index]), cancel)
            self._offer(entry)
            return entry

        return prefill_again

    def units(self, plan: PromptPlan) -> tuple[list[ChunkKey], list[tuple[int, ...]]]:
        """A plan's context in units, which also end where its segments do: keys, and token ids."""
        token_ids, borders = plan.token_ids[: plan.context_tokens], [segment.stop for segment in plan.context]
        keys = unit_keys(self._fingerprint, token_ids, tenant=self._tenant, borders=borders)
        return keys, cut(token_ids, borders=borders)

    def _stored(self, entries: Iterable[tuple[ChunkKey, tuple[int, ...]]], new: Container[ChunkKey]) -> Stored:
        """Bytes of the entries that are in the store, each once."""
        num_tokens = {key: len(ids) for key, ids in entries if key in self.store}
        per_token = self._model.kv_bytes_per_token
        return Stored(
            per_token * sum(num_tokens.values()), per_token * sum(n for key, n in num_tokens.items() if key in new)
        )

    def _offer(self, entry: ChunkKV) -> bool:
        """Keep an entry if there is room; it is in hand in any case."""
        try:
            self.store.put(entry)
        except StoreFullError as error:
            logger.warning("%s", error)
            return False
        return True

    def _prefill(self, piece: Piece, cancel: threading.Event | None) -> ChunkKV:
        ids, front = (torch.tensor(part, device=self._model.device, dtype=torch.long) for part in piece)
        layers = prefill_chunk(self._model, ids, recipe=front, cancel=cancel)
        return ChunkKV(self.key(*piece), piece.token_ids, layers)


def fingerprint(hf_model: Any) -> str:
    """Name a model by what its KV depends on: configuration, dtype, and a sample of its weights."""
    sha = hashlib.sha256(hf_model.config.to_json_string(use_diff=False).encode())
    sha.update(str(hf_model.dtype).encode())
    for name, parameter in hf_model.named_parameters():
        sha.update(name.encode())
        sha.update(parameter.detach().flatten()[:16].float().cpu().numpy().tobytes())
    return sha.hexdigest()
