"""The facts of a run: what was computed, when it happened, and how far it is from full recompute.

Every figure, table and export is a pure function of what is defined here, so a recorded run is shown without a model.
Numpy and the standard library only: this module knows nothing of torch, models, disks or pages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Protocol

import numpy as np

from cacheblend.loading import LoadOrder, Place


class Mode(StrEnum):
    """How the prompt's KV is obtained."""

    FULL = "full"  # every token is prefilled together: the reference
    PREFIX = "prefix"  # prefix caching: what was stored of exactly this beginning, the rest prefilled; exact
    UNPLACED = "unplaced"  # reuse without position correction, a control: every chunk begins at position 0
    REUSE = "reuse"  # chunk caches as they are, positions corrected; only the suffix is computed
    BLEND = "blend"  # chunk caches, with a share of the tokens recomputed; by default those that deviate most
    PRIME = "prime"  # our own combination: primed chunk caches, recomputed where the question looks
    MAP_REDUCE = "map-reduce"  # every chunk is asked alone, and then what the replies say together
    MAP_RERANK = "map-rerank"  # every chunk is asked alone, and the reply that trusts itself most is taken


COMPARED = (Mode.FULL, Mode.REUSE, Mode.BLEND)  # the three columns that every comparison begins with
ON_REPLIES = (Mode.MAP_REDUCE, Mode.MAP_RERANK)  # answer other prompts than full's
ON_CHUNKS = (Mode.UNPLACED, Mode.REUSE, Mode.BLEND, Mode.PRIME)  # run on the caches of single chunks


class Recipe(StrEnum):
    """What stands in front of a chunk when its KV cache is made; only the chunk's own rows are kept."""

    BARE = "bare"  # nothing (CacheBlend)
    SINKS = "sinks"  # a few tokens that begin a text, which take the attention sink with them (EPIC's Link0)
    PREFIX = "prefix"  # the system prefix that every prompt begins with (CacheClip, APE)
    NEUTRAL = "neutral"  # that prefix and a fixed, unrelated text (ours)
    SIMILAR = "similar"  # that prefix and the most similar chunks of the same collection (FusionRAG)


class Selector(StrEnum):
    """When blend chooses the rows it recomputes."""

    SINGLE = "single"  # once, at layer index 1 (the authors' code, LMCache)
    GRADUAL = "gradual"  # narrowed layer by layer (paper, section 4.3)


class Deviation(StrEnum):
    """Which part of the KV the selection compares."""

    VALUE = "value"
    KEY = "key"
    BOTH = "both"


class SegmentKind(StrEnum):
    """The role of a stretch of the prompt."""

    PREFIX = "prefix"
    CHUNK = "chunk"
    SUFFIX = "suffix"


class Lane(StrEnum):
    """What a span of time was spent on, in the order of the timeline's lanes."""

    PRECOMPUTE = "precompute"  # chunk caches that were missing: a cold run
    LOOKUP = "lookup"
    LOAD = "load"
    DECOMPRESS = "decompress"  # a codec's bytes to tensors
    SELECT = "select"  # what only choosing the rows costs: deviations, the question's attention
    PLACE = "place"  # rotating cached keys to their positions
    COMPUTE = "compute"
    FIRST_TOKEN = "first token"
    DECODE = "decode"


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Where a run was made."""

    model: str
    device: str
    dtype: str
    threads: int
    torch_version: str
    recorded_at: str  # ISO 8601, UTC


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Prompt tokens start…stop-1 and where they come from."""

    kind: SegmentKind
    start: int
    stop: int
    source: str = ""  # document name and chunk number; as untrusted as the upload it names
    score: float | None = None  # retrieval similarity, cosine

    @property
    def num_tokens(self) -> int:
        """Length in tokens."""
        return self.stop - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One stretch of time on one lane, in milliseconds from the start of its run."""

    lane: Lane
    name: str
    start_ms: float
    end_ms: float
    layer: int | None = None
    emulated: bool = False

    @property
    def duration_ms(self) -> float:
        """Length in milliseconds."""
        return self.end_ms - self.start_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Fidelity:
    """Distance of a run to full recompute of the same prompt (0, 0, 1, 1, 0, 0 for full itself)."""

    first_token_kl: float  # KL(full || mode) of the first answer token, nats
    mean_kl: float  # the same, mean along full's own answer
    top1_agreement: float  # share of full's answer tokens that the mode would also choose, given full's answer so far
    f1_to_full: float  # word F1 of the mode's answer against full's answer
    kv_deviation: float | None = None  # relative L2 distance of the context's KV, mean; None where not measured
    attention_deviation: float | None = None  # of the suffix's attention matrix, L2, mean over heads and layers


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """How cached KV reached a run. device: the one that was emulated, "" if caches were read as fast as they come.

    nbytes: read for the context, as stored; met_at: with Cake, the tokens computed from the front when the two fronts
    met.
    """

    places: tuple[Place, ...]  # where the chunks were, each place once, fastest first
    device: str
    codec: str
    order: LoadOrder
    is_pipelined: bool
    nbytes: int
    met_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a chunk that was asked alone replied. text: whole, and as untrusted as the chunk.

    score: 0 to 100, how fully the reply says it answers; None where it could not be read, which counts as 0, and where
    none was asked for (MapReduce).
    """

    source: str  # of the chunk's segment
    text: str
    score: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One mode's run, timed. What Inspect shows is recorded in a pass of its own.

    predicted: what the loading controller expected of the run, spans that were not measured; none where it knows too
    little of the machine. stored_nbytes: what the prompt's context takes in the store in the form this mode reads
    (units of this very beginning, or chunks, each once), and how much of it came in with this run; None for modes that
    store nothing.
    """

    mode: Mode
    policy: str
    ratio: float  # asked for: share of context tokens to recompute
    answer: str
    answer_ids: tuple[int, ...]
    spans: tuple[Span, ...]
    recomputed_tokens: int  # context tokens recomputed per layer, mean over the layers after the first
    recomputed_share: float
    is_warm: bool  # every chunk cache was in the store when the question came
    fidelity: Fidelity | None = None
    loading: Loading | None = None  # None for full recompute, which reads no cache
    predicted: tuple[Span, ...] = ()
    stored_nbytes: int | None = None
    stored_new_nbytes: int | None = None
    replies: tuple[Reply, ...] = ()  # of MapReduce and MapRerank: one a chunk, in the order of the prompt
    answer_f1: float | None = None  # what `f1_to_full` is where another prompt was answered, so without a Fidelity

    @property
    def f1_to_full(self) -> float | None:
        """Word F1 of the answer against full's answer; None unless full ran."""
        return self.fidelity.f1_to_full if self.fidelity else self.answer_f1

    @property
    def ttft_ms(self) -> float:
        """Time to first token: from the start of the run to the end of the first-token span."""
        return next(s.end_ms for s in self.spans if s.lane is Lane.FIRST_TOKEN)

    @property
    def predicted_ttft_ms(self) -> float | None:
        """When the controller expected the first token; None where it expected nothing."""
        return max((span.end_ms for span in self.predicted), default=None)

    @property
    def ttft_parts(self) -> dict[Lane, float]:
        """Milliseconds per lane up to the first token, lanes without time left out.

        Where lanes overlap, what the first token waits for is counted once: loading and decompressing only while
        nothing is computed beside them. Decoding is the replies of chunks that were asked alone: the answer's own comes
        later.
        """
        ttft = self.ttft_ms
        spans = [s for s in self.spans if s.start_ms < ttft]
        edges = sorted({t for s in spans for t in (s.start_ms, min(s.end_ms, ttft))})
        parts: dict[Lane, float] = {}
        for start, end in pairwise(edges):
            lanes = {s.lane for s in spans if s.start_ms <= start and s.end_ms >= end}
            if lanes:
                lane = min(lanes, key=_shown_first)
                parts[lane] = parts.get(lane, 0.0) + end - start
        return {lane: parts[lane] for lane in Lane if lane in parts}


def _shown_first(lane: Lane) -> tuple[bool, str]:
    """Loading and decompressing hide behind every other lane."""
    return lane in (Lane.LOAD, Lane.DECOMPRESS), lane


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionWindow:
    """A pooled rectangle of one attention matrix: rows attend to columns.

    values: float32 (height, width), NaN where every pooled cell lies above the diagonal; row_edges and col_edges: the
    height+1 and width+1 token positions between cells; is_pooled: whether a cell stands for more than one pair.
    """

    values: np.ndarray
    row_edges: np.ndarray
    col_edges: np.ndarray
    is_pooled: bool


class AttentionMaps(Protocol):
    """Attention matrices on demand: computed by a live model, or read from a recorded run."""

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers that have maps."""
        ...

    @property
    def num_heads(self) -> int:
        """How many heads can be asked for; 0 where only their mean is there."""
        ...

    def window(
        self, mode: Mode, layer: int, head: int | None, *, rows: tuple[int, int], cols: tuple[int, int], size: int
    ) -> AttentionWindow:
        """Return the rectangle rows × cols pooled (mean) to at most size × size; head None is the mean over heads."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAttention:
    """Attention maps of a recorded run, pooled to one fixed resolution when they were recorded.

    edges: (size+1,) token positions; maps: mode → uint8 (len(layers), 1 + num_heads, size, size), index 0 of the second
    axis the mean over heads; a cell is (value / 255)² (square-root scale keeps small weights visible).
    """

    layers: tuple[int, ...]
    num_heads: int
    edges: np.ndarray
    maps: Mapping[Mode, np.ndarray]

    def window(
        self, mode: Mode, layer: int, head: int | None, *, rows: tuple[int, int], cols: tuple[int, int], size: int
    ) -> AttentionWindow:
        """Cut the stored map, whose resolution was fixed when it was recorded: `size` is not used."""
        codes = self.maps[mode][self.layers.index(layer), 0 if head is None else head + 1]
        r0, r1 = self._cells(rows)
        c0, c1 = self._cells(cols)
        values = (codes[r0:r1, c0:c1].astype(np.float32) / 255) ** 2
        row_edges, col_edges = self.edges[r0 : r1 + 1], self.edges[c0 : c1 + 1]
        values[col_edges[None, :-1] >= row_edges[1:, None]] = np.nan
        return AttentionWindow(values=values, row_edges=row_edges, col_edges=col_edges, is_pooled=True)

    def _cells(self, span: tuple[int, int]) -> tuple[int, int]:
        """The smallest range of stored cells that covers token positions span[0]…span[1]-1."""
        first = int(np.searchsorted(self.edges, span[0], side="right")) - 1
        last = int(np.searchsorted(self.edges, span[1], side="left"))
        return max(first, 0), max(last, first + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What a recording pass saw inside the model. Each array is float32 (layers, tokens), rows are layers.

    kv_deviation: relative L2 distance of a token's K and V from full's, in the KV the mode ends with;
    attention_deviation: L2 distance of the suffix rows' attention to a token from full's (forward attention, paper
    section 4.1), mean over heads; both hold REUSE and the mode that was looked into (BLEND or PRIME), suffix columns
    included; reuse is on that mode's chunk caches.
    selected: bool (layers, tokens), the rows that mode computed.
    """

    kv_deviation: Mapping[Mode, np.ndarray]
    attention_deviation: Mapping[Mode, np.ndarray]
    selected: np.ndarray
    attention: AttentionMaps

    @property
    def fused(self) -> Mode:
        """The mode that was looked into."""
        return next((mode for mode in self.kv_deviation if mode is not Mode.REUSE), Mode.BLEND)

    @property
    def modes(self) -> tuple[Mode, ...]:
        """The modes that there are attention maps of."""
        return Mode.FULL, Mode.REUSE, self.fused


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One question put to one prompt in several modes."""

    question: str
    tokens: tuple[str, ...]  # the prompt, token by token, as text
    segments: tuple[Segment, ...]
    environment: Environment
    traces: tuple[Trace, ...]
    inspection: Inspection | None = None

    def trace(self, mode: Mode) -> Trace | None:
        """Return the run of one mode, None if it was not asked for."""
        return next((t for t in self.traces if t.mode is mode), None)

    @property
    def suffix_tokens(self) -> int:
        """Tokens of the question and what follows it; never reused."""
        return sum(s.num_tokens for s in self.segments if s.kind is SegmentKind.SUFFIX)

    @property
    def context_tokens(self) -> int:
        """Tokens in front of the suffix: prefix and chunks."""
        return len(self.tokens) - self.suffix_tokens

    def speedup(self, mode: Mode) -> float | None:
        """TTFT of full divided by TTFT of `mode`; None unless both ran."""
        full, other = self.trace(Mode.FULL), self.trace(mode)
        return full.ttft_ms / other.ttft_ms if full and other else None
