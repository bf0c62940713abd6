"""How a run is to be made: validated settings, and the policy that each mode means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cacheblend.fusion.fusor import WriteBack
from cacheblend.fusion.policies import HKVD, NoRows, SelectionPolicy
from cacheblend.trace import Deviation, Mode, Selector

AUTO = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class BlendConfig:
    """Settings of mode “blend”. Plain strings are accepted where an enum stands.

    ratio: share of context tokens recomputed, 0.15 is the paper's; “auto” lets the loading controller choose as much as
    loading hides, never less than the paper's; selector, deviation and write_back default to what
    the authors' released code does.
    """

    ratio: float | Literal["auto"] = 0.15
    selector: Selector = Selector.SINGLE
    deviation: Deviation = Deviation.VALUE
    write_back: WriteBack = WriteBack.PROJECTED

    def __post_init__(self) -> None:
        object.__setattr__(self, "selector", Selector(self.selector))
        object.__setattr__(self, "deviation", Deviation(self.deviation))
        object.__setattr__(self, "write_back", WriteBack(self.write_back))
        if isinstance(self.ratio, str) and self.ratio != AUTO:
            raise ValueError(f"ratio must be a number or “{AUTO}”, got “{self.ratio}”")
        if self.ratio != AUTO:
            HKVD(ratio=self.share)  # raises ValueError if out of range

    @property
    def share(self) -> float:
        """The ratio as a number; ValueError while it is still to be chosen."""
        if isinstance(self.ratio, str):
            raise ValueError("the ratio is “auto”: the engine chooses it when it sees the prompt")
        return self.ratio

    def policy(self, mode: Mode) -> SelectionPolicy:
        """Which rows a mode computes on cached KV; full has no cache and no policy."""
        if mode is Mode.FULL:
            raise ValueError("full recompute uses no cached KV and so no policy")
        return NoRows() if mode is Mode.REUSE else HKVD(ratio=self.share, selector=self.selector)

    def describe(self, mode: Mode) -> str:
        """Name the policy of a mode for people."""
        if mode is Mode.BLEND:
            return f"HKVD {self.selector}, by {self.deviation}"
        return {Mode.FULL: "all rows", Mode.REUSE: "no rows"}[mode]

    def asked_ratio(self, mode: Mode) -> float:
        """The share of context tokens a mode is asked to recompute."""
        return self.share if mode is Mode.BLEND else float(mode is Mode.FULL)
