"""Every selection policy and every recipe, for people: names, papers, a sentence each.

A policy is entered here and nowhere else. Knows no tensor: a page or a shell lists them before any model is loaded.
What runs is in fusion/policies and recipes.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from cacheblend.trace import Deviation, Recipe, Selector


@dataclass(frozen=True, slots=True, kw_only=True)
class AboutPolicy:
    """A policy that can be asked for by name.

    title: for people; source: the paper, "" for controls; made_by: file and class in fusion/policies; explained: which
    tokens it recomputes, one sentence; costs: what only choosing them costs; uses_selector, uses_deviation: whether
    those settings change anything; waits: whether it needs the caches whole before it begins; is_choice: False for the
    two ends, which choose nothing.
    """

    name: str
    title: str
    source: str
    made_by: str
    explained: str
    costs: str
    uses_selector: bool = False
    uses_deviation: bool = False
    waits: bool = False
    is_choice: bool = True

    @property
    def label(self) -> str:
        """Title and source in one line."""
        return f"{self.title} ({self.source})" if self.source else self.title


POLICIES_TOLD = (
    AboutPolicy(
        name="hkvd",
        title="HKVD",
        source="CacheBlend, EuroSys'25",
        made_by="hkvd.HKVD",
        explained="The tokens whose fresh KV at an early layer lies farthest from the cached one.",
        costs="all tokens through layer 0 and the projections of layer 1",
        uses_selector=True,
        uses_deviation=True,
    ),
    AboutPolicy(
        name="query",
        title="query attention",
        source="ProphetKV, ICML'26",
        made_by="query.QueryAttention",
        explained="The tokens that the question attends to most on the reused caches, summed over all layers.",
        costs="one pass of the question over the whole caches, before blending begins",
        waits=True,
    ),
    AboutPolicy(
        name="late-query",
        title="late query attention",
        source="ours, after ProphetKV",
        made_by="query.LateQueryAttention",
        explained="The tokens that the question attends to most on the reused caches in the later half of the layers.",
        costs="one pass of the question over the whole caches, before blending begins",
        waits=True,
    ),
    AboutPolicy(
        name="query-deviation",
        title="query attention × deviation",
        source="QCFuse, 2026",
        made_by="query.QueryDeviation",
        explained="The tokens of the highest product of the question's attention and KV deviation.",
        costs="the question's pass over the caches and what HKVD costs",
        uses_deviation=True,
        waits=True,
    ),
    AboutPolicy(
        name="first",
        title="first tokens of each chunk",
        source="EPIC, ICML'25",
        made_by="first.FirstRows",
        explained="The first tokens of every chunk but the first, which else draw attention as if a text began there.",
        costs="nothing",
    ),
    AboutPolicy(
        name="layers",
        title="first layers",
        source="after DroidSpeak, NSDI'26",
        made_by="layers.LayerRange",
        explained="Every token in the first layers, none in the others.",
        costs="nothing",
    ),
    AboutPolicy(
        name="random",
        title="random tokens",
        source="",
        made_by="random_rows.RandomRows",
        explained="Tokens drawn by lot: the control that any choice has to beat.",
        costs="nothing",
    ),
    AboutPolicy(
        name="oracle",
        title="true deviation (oracle)",
        source="",
        made_by="oracle.Oracle",
        explained="The tokens whose cached KV is truly farthest from full recompute: an upper bound, not to be had.",
        costs="a full prefill, which is more than it saves",
        uses_deviation=True,
        waits=True,
    ),
    AboutPolicy(
        name="all",
        title="all rows",
        source="",
        made_by="every.AllRows",
        explained="Everything: equal to full recompute.",
        costs="nothing",
        is_choice=False,
    ),
    AboutPolicy(
        name="none",
        title="no rows",
        source="",
        made_by="every.NoRows",
        explained="Nothing: full reuse.",
        costs="nothing",
        is_choice=False,
    ),
)
POLICY = {about.name: about for about in POLICIES_TOLD}
PAPERS, PRIME_POLICY, PRIME_RECIPE = "hkvd", "late-query", Recipe.NEUTRAL


@dataclass(frozen=True, slots=True, kw_only=True)
class AboutRecipe:
    """A recipe for people. behind: in half a sentence, after “made”; source: the paper, "" where it is ours."""

    title: str
    behind: str
    source: str
    explained: str


RECIPE = {
    Recipe.BARE: AboutRecipe(
        title="bare",
        behind="bare",
        source="CacheBlend, EuroSys'25",
        explained="Nothing: each chunk is read alone, and takes its first tokens for the beginning of a text.",
    ),
    Recipe.SINKS: AboutRecipe(
        title="tokens that begin a text",
        behind="behind four tokens that begin a text",
        source="Link0 in EPIC, ICML'25",
        explained="Four tokens that begin a text: they draw the attention that a chunk's own first tokens would.",
    ),
    Recipe.PREFIX: AboutRecipe(
        title="system prefix",
        behind="behind the system prefix",
        source="CacheClip, APE",
        explained="The system prefix that every prompt begins with.",
    ),
    Recipe.NEUTRAL: AboutRecipe(
        title="neutral text",
        behind="behind a neutral text",
        source="",
        explained="The system prefix and a fixed, unrelated text (ours), so that the chunk has seen some context.",
    ),
    Recipe.SIMILAR: AboutRecipe(
        title="similar chunks",
        behind="behind similar chunks",
        source="FusionRAG, 2026",
        explained="The system prefix and the two most similar chunks of the same collection.",
    ),
}
_CARRIED, _MADE = ", changes carried on", "; chunks made "


def described(policy: str, recipe: Recipe, selector: Selector, deviation: Deviation, *, carries: bool = False) -> str:
    """A policy with its settings and the recipe, as traces carry it; “bare” goes without saying.

    carries: whether what recomputed tokens change by is carried on to those behind them.
    """
    about = POLICY[policy]
    settings = ([f"{selector}"] if about.uses_selector else []) + ([f"by {deviation}"] if about.uses_deviation else [])
    how = " ".join([about.title, ", ".join(settings)]).rstrip()
    return behind(how + _CARRIED if carries else how, recipe)


def behind(how: str, recipe: Recipe) -> str:
    """`how` with the recipe; “bare” goes without saying."""
    return how if recipe is Recipe.BARE else f"{how}{_MADE}{RECIPE[recipe].behind}"


def is_hkvd(told: str) -> bool:
    """Whether a description is of HKVD, on whatever chunk caches."""
    return told.startswith(POLICY[PAPERS].title)


def is_papers(told: str) -> bool:
    """Whether a description is CacheBlend's own: HKVD on bare chunks."""
    return is_hkvd(told) and _MADE not in told


def apart(told: str) -> tuple[str, str]:
    """A description taken apart: how tokens were chosen, and how the chunks were made."""
    how, _, recipe = told.partition(_MADE)
    return how, recipe or RECIPE[Recipe.BARE].behind


def picks_none(told: str) -> bool:
    """Whether a description is of full reuse: there is nothing to say of how tokens were chosen."""
    return told.startswith(POLICY["none"].title)


def in_short(told: str) -> str:
    """A description without settings: “query attention, behind a neutral text”."""
    how, _, recipe = told.partition(_MADE)
    title = next((about.title for about in reversed(_BY_LENGTH) if how.startswith(about.title)), how)
    return f"{title}, {recipe}" if recipe else title


_BY_LENGTH = sorted(POLICIES_TOLD, key=lambda about: len(about.title))
