"""How a run is to be made: validated settings, and the policy that each mode means."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Self

from cacheblend.fusion.fusor import WriteBack
from cacheblend.fusion.policies import POLICIES, NoRows, SelectionPolicy
from cacheblend.fusion.policies.base import check_ratio
from cacheblend.policies import PAPERS, PRIME_POLICY, PRIME_RECIPE, behind, described
from cacheblend.trace import Deviation, Mode, Recipe, Selector

AUTO = "auto"
HKVD_NAME = PAPERS


@dataclass(frozen=True, slots=True, kw_only=True)
class BlendConfig:
    """Settings of mode “blend”. Plain strings are accepted where an enum stands.

    ratio: share of context tokens recomputed, 0.15 is the paper's; “auto” lets the loading controller choose as much as
    loading hides, never less than the paper's; policy: by name, of POLICIES; recipe: what stood in front of the chunks
    when their caches were made, for full reuse too. The defaults are what the authors' released code does.
    """

    ratio: float | Literal["auto"] = 0.15
    policy: str = HKVD_NAME
    selector: Selector = Selector.SINGLE
    deviation: Deviation = Deviation.VALUE
    write_back: WriteBack = WriteBack.PROJECTED
    recipe: Recipe = Recipe.BARE

    def __post_init__(self) -> None:
        object.__setattr__(self, "selector", Selector(self.selector))
        object.__setattr__(self, "deviation", Deviation(self.deviation))
        object.__setattr__(self, "write_back", WriteBack(self.write_back))
        object.__setattr__(self, "recipe", Recipe(self.recipe))
        if self.policy not in POLICIES:
            raise ValueError(f"there is no policy “{self.policy}”: choose one of {', '.join(POLICIES)}")
        if isinstance(self.ratio, str) and self.ratio != AUTO:
            raise ValueError(f"ratio must be a number or “{AUTO}”, got “{self.ratio}”")
        if self.ratio != AUTO:
            check_ratio(self.share)
        elif self.policy != HKVD_NAME:
            raise ValueError(f"ratio “{AUTO}” is the controller's, which knows HKVD alone: give a number")

    @property
    def share(self) -> float:
        """The ratio as a number; ValueError while it is still to be chosen."""
        if isinstance(self.ratio, str):
            raise ValueError("the ratio is “auto”: the engine chooses it when it sees the prompt")
        return self.ratio

    def of(self, mode: Mode) -> Self:
        """The settings that a mode goes by: PRIME has its own but for the ratio, UNPLACED takes bare chunks."""
        if mode is Mode.PRIME:
            return replace(
                self,
                policy=PRIME.policy,
                recipe=PRIME.recipe,
                deviation=PRIME.deviation,
                write_back=PRIME.write_back,
            )
        return replace(self, recipe=Recipe.BARE) if mode is Mode.UNPLACED else self

    def selection(self, mode: Mode) -> SelectionPolicy:
        """Which rows a mode computes on the caches of chunks; the other modes have no policy."""
        if mode in (Mode.REUSE, Mode.UNPLACED):
            return NoRows()
        if mode not in (Mode.BLEND, Mode.PRIME):
            raise ValueError(f"{mode} runs on no chunk caches and so has no policy")
        of = self.of(mode)
        return POLICIES[of.policy].make(of.share, of.selector)

    def describe(self, mode: Mode) -> str:
        """Name the policy of a mode for people."""
        of = self.of(mode)
        if mode in (Mode.BLEND, Mode.PRIME):
            return described(
                of.policy, of.recipe, of.selector, of.deviation, carries=of.write_back is WriteBack.CARRIED
            )
        return behind("no rows", of.recipe) if mode in (Mode.REUSE, Mode.UNPLACED) else "all rows"

    def asked_ratio(self, mode: Mode) -> float:
        """The share of context tokens a mode is asked to recompute."""
        if mode in (Mode.BLEND, Mode.PRIME):
            return self.share
        return 0.0 if mode in (Mode.REUSE, Mode.UNPLACED) else 1.0


# Our own best combination (README, “Policies”).
PRIME = BlendConfig(policy=PRIME_POLICY, recipe=PRIME_RECIPE, write_back=WriteBack.CARRIED)
