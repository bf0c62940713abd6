"""How a run is to be made: validated settings, and the policy that each mode means."""

from __future__ import annotations

from dataclasses import dataclass

from cacheblend.fusion.fusor import WriteBack
from cacheblend.fusion.policies import HKVD, NoRows, SelectionPolicy
from cacheblend.trace import Deviation, Mode, Selector


@dataclass(frozen=True, slots=True, kw_only=True)
class BlendConfig:
    """Settings of mode “blend”. Plain strings are accepted where an enum stands.

    ratio: share of context tokens recomputed, 0.15 is the paper's; selector, deviation and write_back default to what
    the authors' released code does.
    """

    ratio: float = 0.15
    selector: Selector = Selector.SINGLE
    deviation: Deviation = Deviation.VALUE
    write_back: WriteBack = WriteBack.PROJECTED

    def __post_init__(self) -> None:
        object.__setattr__(self, "selector", Selector(self.selector))
        object.__setattr__(self, "deviation", Deviation(self.deviation))
        object.__setattr__(self, "write_back", WriteBack(self.write_back))
        HKVD(ratio=self.ratio)  # raises ValueError if out of range

    def policy(self, mode: Mode) -> SelectionPolicy:
        """Which rows a mode computes on cached KV; full has no cache and no policy."""
        if mode is Mode.FULL:
            raise ValueError("full recompute uses no cached KV and so no policy")
        return NoRows() if mode is Mode.REUSE else HKVD(ratio=self.ratio, selector=self.selector)

    def describe(self, mode: Mode) -> str:
        """Name the policy of a mode for people."""
        if mode is Mode.BLEND:
            return f"HKVD {self.selector}, by {self.deviation}"
        return {Mode.FULL: "all rows", Mode.REUSE: "no rows"}[mode]

    def asked_ratio(self, mode: Mode) -> float:
        """The share of context tokens a mode is asked to recompute."""
        return {Mode.FULL: 1.0, Mode.REUSE: 0.0}.get(mode, self.ratio)
