"""Several prompts decoded together: one forward over all of them, padded on the left, then token by token.

The model's own `generate`, greedy. Knows token ids; nothing of what is asked.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from itertools import takewhile
from typing import Any

import torch
from transformers import StoppingCriteria, StoppingCriteriaList

from cacheblend import cancel as cancelling
from cacheblend.fusion.spans import SpanRecorder
from cacheblend.trace import Lane

# Named one by one: what is left open is filled in from the settings that come with the model.
GREEDY = {
    "do_sample": False,
    "num_beams": 1,
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 50,
    "repetition_penalty": 1.0,
    "no_repeat_ngram_size": 0,
    "min_length": 0,
    "use_cache": True,
}


@torch.inference_mode()
def decode_together(
    hf_model: Any,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    stop_ids: Collection[int],
    spans: SpanRecorder,
    cancel: threading.Event | None = None,
) -> list[tuple[int, ...]]:
    """Greedy replies to all prompts, without the token that ends them. Raises Cancelled between two steps."""
    cancelling.check(cancel)
    longest = max(len(prompt) for prompt in prompts)
    pad = min(stop_ids, default=0)  # never seen: padding is masked, and a reply is cut at its first stop
    ids = torch.tensor([[pad] * (longest - len(prompt)) + list(prompt) for prompt in prompts], device=hf_model.device)
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts], device=hf_model.device)
    steps = _Steps(spans, len(prompts), cancel)
    made = hf_model.generate(
        ids,
        attention_mask=mask,
        stopping_criteria=StoppingCriteriaList([steps]),
        max_new_tokens=max_new_tokens,
        eos_token_id=sorted(stop_ids) or None,
        pad_token_id=pad,
        **GREEDY,
    )
    steps.end()
    return [tuple(takewhile(lambda token: token not in stop_ids, row)) for row in made[:, longest:].tolist()]


class _Steps(StoppingCriteria):
    """Called behind each token: the first ends the prefill. Stops nothing by itself, except by Cancelled."""

    def __init__(self, spans: SpanRecorder, num_prompts: int, cancel: threading.Event | None) -> None:
        self._spans, self._num_prompts, self._cancel = spans, num_prompts, cancel
        self._open, self._is_prefilled = ExitStack(), False
        self._begin(Lane.COMPUTE, "prefill")

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        if not self._is_prefilled:
            self._is_prefilled = True
            self._open.close()
            self._begin(Lane.DECODE, "decode")
        cancelling.check(self._cancel)
        return torch.zeros(input_ids.shape[0], dtype=torch.bool, device=input_ids.device)

    def end(self) -> None:
        """The last token is there."""
        self._open.close()

    def _begin(self, lane: Lane, what: str) -> None:
        self._open.enter_context(self._spans.span(lane, f"{what} {self._num_prompts} chunks together"))
