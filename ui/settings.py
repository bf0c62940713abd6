"""What a visitor may choose for a question: parsed from the form, every value checked, refused in a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from cacheblend.policies import PAPERS, POLICIES_TOLD
from cacheblend.retrieval import Ordering
from cacheblend.trace import COMPARED, Deviation, Mode, Recipe, Selector
from ui.loading import blend_config

if TYPE_CHECKING:
    from cacheblend.config import BlendConfig

CHOICES = tuple(about for about in POLICIES_TOLD if about.is_choice)
SELECTORS = {"once, at layer 1 (authors' code)": Selector.SINGLE, "narrowed layer by layer (paper)": Selector.GRADUAL}
DEVIATIONS = {"value": Deviation.VALUE, "key": Deviation.KEY, "both": Deviation.BOTH}
ORDERINGS = {"by relevance": Ordering.RELEVANCE, "as in the document": Ordering.DOCUMENT, "shuffled": Ordering.SHUFFLED}
MAX_TOP_K, MAX_NEW_TOKENS, MAX_SEED, MAX_QUESTION = 24, 512, 2**31 - 1, 2000


class Preset(StrEnum):
    """What stands in the column of “blend”."""

    PAPER = "paper"
    OWN = "own"


PRESETS = {"CacheBlend (paper)": Preset.PAPER, "own choice": Preset.OWN}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How one question is asked. policy, selector, deviation and recipe are blend's; the defaults are the paper's."""

    modes: tuple[Mode, ...] = COMPARED
    ratio: float = 0.15  # the paper's default
    policy: str = PAPERS
    selector: Selector = Selector.SINGLE
    deviation: Deviation = Deviation.VALUE
    recipe: Recipe = Recipe.BARE
    top_k: int = 6  # the paper's default
    ordering: Ordering = Ordering.RELEVANCE
    seed: int = 0
    max_new_tokens: int = 64

    def __post_init__(self) -> None:
        if not self.modes:
            raise ValueError("Choose at least one mode to run.")
        if self.policy not in {about.name for about in CHOICES}:
            raise ValueError("There is no such selection policy: choose one of those shown.")
        _within("the recompute ratio", self.ratio, 0, 1)
        _within("the number of chunks", self.top_k, 1, MAX_TOP_K)
        _within("the answer's length", self.max_new_tokens, 1, MAX_NEW_TOKENS)
        _within("the seed", self.seed, 0, MAX_SEED)

    @property
    def blend(self) -> BlendConfig:
        """The part that blend needs."""
        return blend_config(
            ratio=self.ratio,
            policy=self.policy,
            selector=self.selector,
            deviation=self.deviation,
            recipe=self.recipe,
        )


def parse(
    modes: Sequence[str],
    percent: float,
    preset: str,
    policy: str,
    selector: str,
    deviation: str,
    recipe: str,
    top_k: float,
    order: str,
    seed: float,
    length: float,
) -> Settings:
    """Read the form's raw values; whatever they are, the result is Settings or a ValueError for the visitor.

    preset: “paper” leaves policy, selector, deviation and recipe as the paper has them, whatever the form says.
    """
    try:
        is_own = Preset(preset) is Preset.OWN
        own = {
            "policy": policy,
            "selector": Selector(selector),
            "deviation": Deviation(deviation),
            "recipe": Recipe(recipe),
        }
        return Settings(
            modes=tuple(mode for mode in Mode if mode in {Mode(name) for name in modes}),
            ratio=float(percent) / 100,
            top_k=int(top_k),
            ordering=Ordering(order),
            seed=int(seed),
            max_new_tokens=int(length),
            **(own if is_own else {}),
        )
    except TypeError as error:
        raise ValueError("A setting is empty: give every setting a value.") from error


def _within(what: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise ValueError(f"{what.capitalize()} must lie between {low:,} and {high:,}, but is {value:,}.")
