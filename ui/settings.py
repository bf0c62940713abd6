"""What a visitor may choose for a question: parsed from the form, every value checked, refused in a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cacheblend.retrieval import Ordering
from cacheblend.trace import COMPARED, Deviation, Mode, Selector
from ui.loading import blend_config

if TYPE_CHECKING:
    from cacheblend.config import BlendConfig

SELECTORS = {"once, at layer 1 (authors' code)": Selector.SINGLE, "narrowed layer by layer (paper)": Selector.GRADUAL}
DEVIATIONS = {"value": Deviation.VALUE, "key": Deviation.KEY, "both": Deviation.BOTH}
ORDERINGS = {"by relevance": Ordering.RELEVANCE, "as in the document": Ordering.DOCUMENT, "shuffled": Ordering.SHUFFLED}
MAX_TOP_K, MAX_NEW_TOKENS, MAX_SEED, MAX_QUESTION = 24, 512, 2**31 - 1, 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How one question is asked."""

    modes: tuple[Mode, ...] = COMPARED
    ratio: float = 0.15  # the paper's default
    selector: Selector = Selector.SINGLE
    deviation: Deviation = Deviation.VALUE
    top_k: int = 6  # the paper's default
    ordering: Ordering = Ordering.RELEVANCE
    seed: int = 0
    max_new_tokens: int = 64

    def __post_init__(self) -> None:
        if not self.modes:
            raise ValueError("Choose at least one mode to run.")
        _within("the recompute ratio", self.ratio, 0, 1)
        _within("the number of chunks", self.top_k, 1, MAX_TOP_K)
        _within("the answer's length", self.max_new_tokens, 1, MAX_NEW_TOKENS)
        _within("the seed", self.seed, 0, MAX_SEED)

    @property
    def blend(self) -> BlendConfig:
        """The part that blend needs."""
        return blend_config(ratio=self.ratio, selector=self.selector, deviation=self.deviation)


def parse(
    modes: Sequence[str],
    percent: float,
    selector: str,
    deviation: str,
    top_k: float,
    order: str,
    seed: float,
    length: float,
) -> Settings:
    """Read the form's raw values; whatever they are, the result is Settings or a ValueError for the visitor."""
    try:
        return Settings(
            modes=tuple(mode for mode in COMPARED if mode in {Mode(name) for name in modes}),
            ratio=float(percent) / 100,
            selector=Selector(selector),
            deviation=Deviation(deviation),
            top_k=int(top_k),
            ordering=Ordering(order),
            seed=int(seed),
            max_new_tokens=int(length),
        )
    except TypeError as error:
        raise ValueError("A setting is empty: give every setting a value.") from error


def _within(what: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise ValueError(f"{what.capitalize()} must lie between {low:,} and {high:,}, but is {value:,}.")
