"""Where Cake's two fronts meet: in closed form, and in the names of the spans that a run leaves.

The standard library only: the page's slider and the figures use this without torch.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

_STRETCH = re.compile(r"tokens (\d+)–(\d+)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """What to expect of computing, of loading, and of both at once, in milliseconds to the first token.

    met_at: units computed from the front when the fronts meet, a real number.
    """

    met_at: float
    cake_ms: float
    compute_only_ms: float
    load_only_ms: float


def predict_meeting(
    num_units: float, *, compute_ms: float, growth_ms: float, load_ms: float, suffix_ms: float = 0.0
) -> Meeting:
    """Solve Cake's race for units that all take `load_ms` to load, and `compute_ms + growth_ms * i` to compute.

    Units are what loading counts in; growth is attention, for which a later unit has more to look at. After m units
    from the front and n - m from the back both sides have taken equally long: m a + m (m - 1) b / 2 = (n - m) L.
    suffix_ms: what follows either way. ValueError unless the first unit costs something and nothing is negative.
    """
    if not compute_ms > 0 or min(num_units, growth_ms, load_ms, suffix_ms) < 0:
        raise ValueError("computing a unit must take time, and no number of units or duration can be negative")
    linear = compute_ms - growth_ms / 2 + load_ms
    root = math.sqrt(linear**2 + 2 * growth_ms * num_units * load_ms)
    met_at = 2 * num_units * load_ms / (linear + root) if load_ms else 0.0
    return Meeting(
        met_at=met_at,
        cake_ms=(num_units - met_at) * load_ms + suffix_ms,
        compute_only_ms=num_units * compute_ms + growth_ms * num_units * (num_units - 1) / 2 + suffix_ms,
        load_only_ms=num_units * load_ms + suffix_ms,
    )


def stretch(start: int, stop: int) -> str:
    """How a span's name ends that worked on tokens start…stop-1."""
    return f"tokens {start}–{stop}"


def stretch_of(name: str) -> tuple[int, int] | None:
    """The tokens that a span's name tells of; None if it does not."""
    found = _STRETCH.search(name)
    return (int(found[1]), int(found[2])) if found else None
