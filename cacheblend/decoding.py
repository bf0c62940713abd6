"""Greedy decoding behind a prefilled prompt, one token at a time. Knows token ids and a cache; nothing of modes."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from cacheblend import cancel as cancelling
from cacheblend.fusion.extend import KVCache, extend
from cacheblend.fusion.spans import SpanRecorder
from cacheblend.models.layerwise import LayerwiseModel
from cacheblend.trace import Lane


def decode(
    model: LayerwiseModel,
    cache: KVCache,
    logits: torch.Tensor,
    *,
    max_new_tokens: int,
    stop_ids: frozenset[int],
    spans: SpanRecorder,
    cancel: threading.Event | None = None,
) -> Iterator[int]:
    """Yield the most likely token again and again, the one that ends the answer included.

    logits: (vocab,) of the first token; each later one is a span of the decode lane.
    """
    token = int(logits.argmax())
    for step in range(1, max_new_tokens + 1):
        yield token
        if token in stop_ids or step == max_new_tokens:
            return
        cancelling.check(cancel)
        with spans.span(Lane.DECODE, f"token {step + 1}"):
            next_logits = extend(model, cache, torch.tensor([token], device=model.device))
            token = int(next_logits.argmax())


def score(model: LayerwiseModel, cache: KVCache, logits: torch.Tensor, answer_ids: Sequence[int]) -> torch.Tensor:
    """Logits (len(answer_ids), vocab) for each token of a given answer, given the answer up to it.

    Leaves the cache as it was.
    """
    start = cache.num_tokens
    later = extend(model, cache, torch.tensor(answer_ids[:-1], device=model.device)) if len(answer_ids) > 1 else None
    cache.crop(start)
    return logits[None] if later is None else torch.cat((logits[None], later))


def stop_ids(hf_model: Any, tokenizer: Any) -> frozenset[int]:
    """Every token id that ends an answer."""
    configured = hf_model.generation_config.eos_token_id
    ids = configured if isinstance(configured, list) else [configured]
    return frozenset(i for i in (*ids, tokenizer.eos_token_id) if i is not None)


def token_texts(tokenizer: Any, token_ids: Sequence[int]) -> tuple[str, ...]:
    """The text each token adds behind the one before it; a character cut into several tokens stands at its last."""
    texts: list[str] = []
    pending: list[int] = []
    previous: list[int] = []
    for token_id in token_ids:
        pending.append(token_id)
        before, after = tokenizer.decode(previous), tokenizer.decode(previous + pending)
        piece = after[len(before) :] if after.startswith(before) else tokenizer.decode(pending)
        if piece.endswith("\ufffd") and len(pending) < 4:
            texts.append("")
            continue
        texts.append(piece)
        previous, pending = pending, []
    return tuple(texts)
