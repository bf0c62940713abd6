"""Turns at the processor: nobody's look at an attention map shares it with somebody else's clock."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from cacheblend.trace import AttentionMaps, AttentionWindow, Comparison, Mode

Item = TypeVar("Item")


def undisturbed(items: Iterator[Item], turn: threading.Lock) -> Iterator[Item]:
    """Hold the turn while the next item is being made, not while it is shown."""
    try:
        while True:
            with turn:
                item = next(items)
            yield item
    except StopIteration:
        return


def polite(comparison: Comparison, turn: threading.Lock) -> Comparison:
    """Return the comparison with attention maps that wait for their turn."""
    inspection = comparison.inspection
    if inspection is None:
        return comparison
    return replace(comparison, inspection=replace(inspection, attention=PoliteAttention(inspection.attention, turn)))


@dataclass(frozen=True, slots=True)
class PoliteAttention:
    """Attention maps of a live model that wait for their turn."""

    maps: AttentionMaps
    turn: threading.Lock

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers that have maps."""
        return self.maps.layers

    @property
    def num_heads(self) -> int:
        """How many heads can be asked for."""
        return self.maps.num_heads

    def window(
        self, mode: Mode, layer: int, head: int | None, *, rows: tuple[int, int], cols: tuple[int, int], size: int
    ) -> AttentionWindow:
        """Return the pooled rectangle once the processor is free."""
        with self.turn:
            return self.maps.window(mode, layer, head, rows=rows, cols=cols, size=size)
