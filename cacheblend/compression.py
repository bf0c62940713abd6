"""Which form each chunk's KV is streamed in, so that all of it is there in time (CacheGen, SIGCOMM 2024, section 5.3).

The finest level at which all chunks meet the target at the bandwidth that was measured; a chunk is recomputed where
that is faster than loading it. The paper looks again before every chunk; here the layers of all chunks come in
together. Arithmetic only, no torch: how large a chunk is at a level, how fast levels decode and what recomputing costs
is measured elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

RECOMPUTE = "recompute"


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One chunk at one level: its bytes, and the milliseconds that decoding them takes."""

    level: str
    nbytes: float
    decode_ms: float = 0.0

    def __post_init__(self) -> None:
        if not (0 <= self.nbytes < math.inf and 0 <= self.decode_ms < math.inf):
            raise ValueError(f"size and decode time of {self.level} must be finite and not negative")
        if self.level == RECOMPUTE:
            raise ValueError(f"“{RECOMPUTE}” is no level")

    def ms(self, bandwidth: float) -> float:
        """Milliseconds to load (bandwidth in bytes per second) and decode."""
        return 1000 * self.nbytes / bandwidth + self.decode_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamedChunk:
    """One chunk as it can be had: its levels, finest first, or recomputed (infinite where that is no way)."""

    forms: tuple[Form, ...]
    recompute_ms: float = math.inf

    def __post_init__(self) -> None:
        if not self.forms or not self.recompute_ms >= 0:
            raise ValueError("a chunk needs at least one level, and recomputing must not take a negative time")

    @classmethod
    def of(
        cls,
        num_tokens: int,
        nbytes: Mapping[str, float],
        decode_ms_per_token: Mapping[str, float],
        recompute_ms: float = math.inf,
    ) -> StreamedChunk:
        """From sizes by level, finest first, and measured decoding times; a level without one decodes in no time."""
        forms = (
            Form(level=level, nbytes=size, decode_ms=num_tokens * decode_ms_per_token.get(level, 0.0))
            for level, size in nbytes.items()
        )
        return cls(forms=tuple(forms), recompute_ms=recompute_ms)

    def best(self, limit: int, bandwidth: float) -> Choice:
        """The fastest way that is no coarser than level number `limit`; the finer of two that are as fast."""
        ways = [Choice(RECOMPUTE, 0.0, self.recompute_ms)]
        ways += (Choice(form.level, form.nbytes, form.ms(bandwidth)) for form in self.forms[: limit + 1])
        return min(ways, key=lambda way: way.ms)


@dataclass(frozen=True, slots=True)
class Choice:
    """What to do with one chunk: load it at a level, or recompute it; what that takes if the bandwidth stays."""

    level: str
    nbytes: float
    ms: float


def plan(chunks: Sequence[StreamedChunk], target_ms: float, bandwidth: float) -> tuple[Choice, ...]:
    """The choice for every chunk, together within target_ms, or as fast as can be where no choice is.

    No chunk is coarser than the finest level at which all of them make it, so that quality is spread evenly. bandwidth:
    bytes per second.
    """
    if not bandwidth > 0:
        raise ValueError(f"the bandwidth must be positive, got {bandwidth}")
    if len({tuple(form.level for form in chunk.forms) for chunk in chunks}) > 1:
        raise ValueError("every chunk must come in the same levels")
    choices: tuple[Choice, ...] = ()
    for limit in range(len(chunks[0].forms) if chunks else 0):
        choices = tuple(chunk.best(limit, bandwidth) for chunk in chunks)
        if math.fsum(choice.ms for choice in choices) <= target_ms:
            break
    return choices
