"""Time, recorded as spans; nothing else in the project measures.

On a CPU the wall clock; on CUDA events on the stream, resolved once when the spans are read, so that recording never
makes the device wait.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from cacheblend.trace import Lane, Span

Mark = float | torch.cuda.Event


class SpanRecorder:
    """Collects the spans of one run; times are milliseconds from its construction."""

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self._is_cuda = torch.device(device).type == "cuda"
        self._marks: list[tuple[Lane, str, int | None, bool, Mark, Mark]] = []
        self._start = self._mark()

    @contextmanager
    def span(self, lane: Lane, name: str, layer: int | None = None, *, emulated: bool = False) -> Iterator[None]:
        """Record the body as one span; one that raises is not recorded. Any thread may record."""
        start = self._mark()
        yield
        self._marks.append((lane, name, layer, emulated, start, self._mark()))

    def spans(self) -> tuple[Span, ...]:
        """What was recorded so far, in order of its end."""
        if self._is_cuda:
            torch.cuda.synchronize()
        return tuple(
            Span(lane=lane, name=name, layer=layer, emulated=emulated, start_ms=self._ms(start), end_ms=self._ms(end))
            for lane, name, layer, emulated, start, end in self._marks
        )

    def _mark(self) -> Mark:
        if not self._is_cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _ms(self, mark: Mark) -> float:
        if isinstance(mark, float) and isinstance(self._start, float):
            return (mark - self._start) * 1000
        if isinstance(mark, torch.cuda.Event) and isinstance(self._start, torch.cuda.Event):
            return float(self._start.elapsed_time(mark))
        raise TypeError("one recorder keeps one clock")
