"""Which rows a fuse computes. One policy is one file; a new one is entered in POLICIES."""

from collections.abc import Callable
from dataclasses import dataclass

from cacheblend.fusion.policies.base import Evidence, SelectionPolicy, SelectionView
from cacheblend.fusion.policies.every import AllRows, NoRows
from cacheblend.fusion.policies.first import FirstRows
from cacheblend.fusion.policies.hkvd import HKVD
from cacheblend.fusion.policies.layers import LayerRange
from cacheblend.fusion.policies.oracle import Oracle
from cacheblend.fusion.policies.query import QueryAttention, QueryDeviation
from cacheblend.fusion.policies.random_rows import RandomRows
from cacheblend.trace import Selector


@dataclass(frozen=True, slots=True)
class Entry:
    """A policy that can be asked for by name. title: for people; source: the paper, "" for controls.

    make: from a share of context tokens and a selector, which only HKVD has a use for.
    """

    title: str
    source: str
    make: Callable[[float, Selector], SelectionPolicy]


POLICIES = {
    "hkvd": Entry("HKVD", "CacheBlend, EuroSys'25", HKVD),
    "random": Entry("random tokens", "", lambda ratio, _: RandomRows(ratio)),
    "first": Entry("first tokens of each chunk", "EPIC, ICML'25", lambda ratio, _: FirstRows(ratio)),
    "query": Entry("query attention", "ProphetKV, ICML'26", lambda ratio, _: QueryAttention(ratio)),
    "query-deviation": Entry("query attention × deviation", "QCFuse, 2026", lambda ratio, _: QueryDeviation(ratio)),
    "layers": Entry("first layers", "after DroidSpeak, NSDI'26", lambda ratio, _: LayerRange(ratio)),
    "oracle": Entry("true deviation (oracle)", "", lambda ratio, _: Oracle(ratio)),
    "all": Entry("all rows", "", lambda *_: AllRows()),
    "none": Entry("no rows", "", lambda *_: NoRows()),
}

__all__ = [
    "HKVD",
    "POLICIES",
    "AllRows",
    "Entry",
    "Evidence",
    "NoRows",
    "SelectionPolicy",
    "SelectionView",
]
