"""What stands in front of a chunk when its KV cache is made.

A chunk prefilled alone takes its first tokens for the beginning of the text: they become an attention sink that is
false as soon as the chunk stands behind others. A chunk that has seen some context has none.
Knows token ids; nothing of KV.
"""

from __future__ import annotations

import copy
from collections.abc import Container, Sequence, Set
from typing import Any, Self

import numpy as np

from cacheblend.trace import Recipe

NUM_SINKS = 4  # dummy tokens in front of a chunk, as in EPIC's Link0 (2410.15332)
NUM_SIMILAR = 2  # chunks in view; FusionRAG (2601.12904) takes the top n
NEUTRAL_TEXT = """\
This collection was put together over several years by people who work in libraries and archives. Its texts \
differ in length, in style and in age: some are a few lines from a newspaper, some are pages from a handbook, \
and some were written down after a conversation. They were typed as they were found, with their spelling left \
alone, and each was checked against its source by a second reader. Where a word could not be made out, the gap \
was marked. Dates follow the calendar of the place they come from, and measures were not converted. Nothing was \
shortened, and nothing was added except the titles, which are meant to help in finding a passage again and say \
no more than what it is about.

The passages stand in no particular order. One may explain what another takes for granted, two may tell the same \
story in different words, and many have nothing to do with each other at all. A reader who looks for one thing \
will not need most of them. It is best to go through them calmly, to keep apart what is said and what is only \
hinted at, and to note where each thing was read. Whoever wants to know more about a text will find its number \
in the catalogue, together with the name of the person who gave it to the collection, unless that person wished \
not to be named. Corrections are welcome at any time; they are written into the margin, with the day on which \
they were made, and go into the next printing. The next passages follow here.

"""


class RecipeBook:
    """The token ids of every recipe, for one model's prompts.

    SIMILAR needs to be told which chunks are alike (`learn`); the other recipes depend on nothing but the prefix.
    """

    def __init__(self, tokenizer: Any, prefix: Sequence[int]) -> None:
        neutral = tokenizer(NEUTRAL_TEXT, add_special_tokens=False)["input_ids"]
        begin = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else neutral[0]
        self._fronts: dict[Recipe, tuple[int, ...]] = {
            Recipe.BARE: (),
            Recipe.SINKS: (begin,) * NUM_SINKS,
            Recipe.PREFIX: tuple(prefix),
            Recipe.NEUTRAL: (*prefix, *neutral),
        }
        self._similar: dict[tuple[int, ...], tuple[tuple[int, ...], ...]] = {}

    def blank(self) -> Self:
        """The same recipes for somebody whose chunks have not been compared yet: nobody's text stands in front of
        another's."""
        other = copy.copy(self)
        other._similar = {}
        return other

    def front(self, recipe: Recipe, token_ids: Sequence[int]) -> tuple[int, ...]:
        """The tokens in front of a chunk; ValueError for SIMILAR and a chunk nobody has compared to others."""
        if recipe is not Recipe.SIMILAR:
            return self._fronts[recipe]
        if not self.knows(token_ids):
            raise ValueError(
                "recipe “similar” needs the chunks it is to compare: precompute the collection with it first."
            )
        return (*self._fronts[Recipe.PREFIX], *(token for ids in self.similar(token_ids) for token in ids))

    @property
    def compared(self) -> Set[tuple[int, ...]]:
        """The chunks that have been compared to others."""
        return self._similar.keys()

    def knows(self, token_ids: Sequence[int]) -> bool:
        """Whether a chunk has been compared to others."""
        return tuple(token_ids) in self._similar

    def similar(self, token_ids: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """The chunks that stand in front of a chunk with SIMILAR, the most similar last; none if nobody compared it."""
        return self._similar.get(tuple(token_ids), ())

    def learn(
        self,
        chunks: Sequence[tuple[int, ...]],
        vectors: np.ndarray,
        *,
        wanted: Container[tuple[int, ...]] | None = None,
    ) -> None:
        """Note for each chunk the most similar others of the same set, the most similar nearest to the chunk.

        vectors: float32 (chunks, dim), normalised; wanted: those to note, all by default. What was noted before stays:
        a chunk's key must not change.
        """
        unique = {ids: i for i, ids in reversed(list(enumerate(chunks)))}
        rows = sorted(unique.values())
        for number, row in enumerate(rows):
            if chunks[row] in self._similar or (wanted is not None and chunks[row] not in wanted):
                continue
            alike = vectors[rows] @ vectors[row]
            alike[number] = -np.inf
            nearest = np.argsort(-alike, kind="stable")[: min(NUM_SIMILAR, len(rows) - 1)]
            self._similar[chunks[row]] = tuple(chunks[rows[other]] for other in reversed(nearest))

    def forget(self) -> None:
        """Compare anew from now on: a chunk was removed that may stand in front of others."""
        self._similar.clear()
