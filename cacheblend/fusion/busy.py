"""A processor that others use as well, emulated: what is computed takes longer, and says so.

The computation itself is real; only the waiting behind it is made up, where its time is recorded.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from cacheblend.fusion.spans import SpanRecorder
from cacheblend.trace import Lane, Span


class BusySpans(SpanRecorder):
    """Records into another recorder, and holds up whatever uses the processor until its share would have sufficed.

    share: of the processor that is free, above 0 and at most 1. Spans that were held up are marked as emulated.
    """

    def __init__(self, spans: SpanRecorder, share: float, device: torch.device) -> None:
        if not 0 < share <= 1:
            raise ValueError(f"compute_share must be above 0 and at most 1, got {share}")
        self._spans, self._share, self._device = spans, share, device

    @contextmanager
    def span(self, lane: Lane, name: str, layer: int | None = None, *, emulated: bool = False) -> Iterator[None]:
        """Record the body; if it computes, it takes 1 / share as long."""
        is_slowed = self._share < 1 and lane is not Lane.LOAD
        with self._spans.span(lane, name, layer, emulated=emulated or is_slowed):
            start = time.perf_counter()
            yield
            if is_slowed:
                if self._device.type == "cuda":
                    torch.cuda.synchronize(self._device)
                time.sleep((time.perf_counter() - start) * (1 / self._share - 1))

    def spans(self) -> tuple[Span, ...]:
        """What was recorded so far."""
        return self._spans.spans()
