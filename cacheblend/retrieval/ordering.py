"""The order in which the chunks that were found stand in the prompt."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import numpy as np

from cacheblend.retrieval.index import Hit


class Ordering(StrEnum):
    """How hits are ordered."""

    RELEVANCE = "relevance"  # nearest first
    DOCUMENT = "document"  # as they stand in their document; documents by their nearest chunk
    SHUFFLED = "shuffled"  # at random by seed, as the paper's experiments do


def order_hits(hits: Sequence[Hit], ordering: Ordering, seed: int = 0) -> list[Hit]:
    """Return the hits in another order; the result depends on the arguments alone, not on how the hits are ordered."""
    nearest_first = sorted(hits, key=lambda hit: (-hit.score, hit.chunk.document, hit.chunk.index))
    match ordering:
        case Ordering.RELEVANCE:
            return nearest_first
        case Ordering.DOCUMENT:
            documents = list(dict.fromkeys(hit.chunk.document for hit in nearest_first))
            return sorted(nearest_first, key=lambda hit: (documents.index(hit.chunk.document), hit.chunk.index))
        case Ordering.SHUFFLED:
            return [nearest_first[i] for i in np.random.default_rng(seed).permutation(len(nearest_first))]
