"""Devices a visitor can choose from: those of the paper, one that suits this machine, and a bandwidth of their own."""

from __future__ import annotations

import math

from cacheblend.loading import GBPS, PRESETS, Device

AS_FOUND, OWN = "as found", "own"
# Ours: a link on which loading some thousand tokens of a small model takes about as long as a CPU takes to blend them.
SLOW_LINK = Device(name="slow link 50 MB/s", bandwidth=50e6, latency_ms=0.5, price=0.02)
NAMED = {device.name: device for device in (SLOW_LINK, *PRESETS)}
UNITS = {"MB/s": 1e6, "Gbps": GBPS}
MAX_BYTES_PER_S, MAX_LATENCY_MS = 1e12, 10_000.0


def choices() -> list[tuple[str, str]]:
    """What a form offers, as (label, value)."""
    named = [(name, name) for name in NAMED if name != SLOW_LINK.name]
    return [
        ("as they are found (nothing emulated)", AS_FOUND),
        (f"{SLOW_LINK.name} (suits a small model)", SLOW_LINK.name),
        *named,
        ("a bandwidth of my own", OWN),
    ]


def chosen(name: str, bandwidth: float, unit: str, latency_ms: float) -> Device | None:
    """Read a form's values: None for caches as they are found; ValueError says what cannot be a device."""
    if name == AS_FOUND:
        return None
    if name == OWN:
        return own(bandwidth, unit, latency_ms)
    if name not in NAMED:
        raise ValueError("There is no such device: choose one of the list.")
    return NAMED[name]


def own(bandwidth: float, unit: str, latency_ms: float) -> Device:
    """A device from numbers; ValueError unless they can be one's."""
    if unit not in UNITS or not _is_within(bandwidth, MAX_BYTES_PER_S / UNITS[unit]) or not bandwidth > 0:
        raise ValueError("The bandwidth must be a number above 0, in MB/s or Gbps.")
    if not _is_within(latency_ms, MAX_LATENCY_MS):
        raise ValueError(f"The latency must lie between 0 and {MAX_LATENCY_MS:,.0f} ms.")
    return Device(name=f"{bandwidth:g} {unit}", bandwidth=bandwidth * UNITS[unit], latency_ms=latency_ms)


def _is_within(number: float, most: float) -> bool:
    return isinstance(number, int | float) and math.isfinite(number) and 0 <= number <= most
