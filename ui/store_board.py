"""The store as HTML: tiers as filled bars, the visitor's entries, and what happened last. Functions of a snapshot."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ui import words
from ui.storing import Board, Holding

if TYPE_CHECKING:
    from cacheblend.store import TierStats

CLOSED = (
    '<p class="quiet empty">No model is loaded yet, so the store is not open: it opens with the first document.</p>'
)
MAX_ROWS, MAX_EVENTS = 200, 12
COUNTS = ("entries", "hits", "misses", "evictions", "demotions", "promotions", "refusals", "losses")
MEANINGS = {
    "misses": "lookups that came to this tier and found nothing",
    "evictions": "entries that had to leave this tier for others",
    "demotions": "of the evictions, those still in a slower tier",
    "promotions": "entries copied here after a hit in a slower tier",
    "refusals": "entries that the medium did not take",
    "losses": "entries that were damaged, gone or out of reach when they were asked for",
}


def render(board: Board | None) -> str:
    """Return everything, or that there is nothing yet; names are shown as text, whatever they contain."""
    if board is None:
        return CLOSED
    tiers = "".join(_tier(tier, board.own_nbytes[tier.place]) for tier in board.tiers)
    key = '<p class="key"><i class="own"></i>yours <i class="others"></i>everybody else’s</p>'
    return (
        f'<div class="store"><section><h2>Tiers, fastest first</h2>{key}<div class="tiers">{tiers}</div></section>'
        f"{_holdings(board)}{_events(board)}</div>"
    )


def _tier(tier: TierStats, own_nbytes: int) -> str:
    used = words.filled(tier.nbytes, tier.capacity)
    own, others = (100 * n / tier.capacity for n in (own_nbytes, max(0, tier.nbytes - own_nbytes)))
    label = f"{tier.place}: {used}, of which yours {words.nbytes(own_nbytes)}"
    counts = "".join(
        f'<div><dt title="{MEANINGS.get(name, "")}">{name}</dt><dd>{words.count(getattr(tier, name))}</dd></div>'
        for name in COUNTS
    )
    return (
        f'<article class="tier"><header><h3>{tier.place}</h3><span>{used}</span></header>'
        f'<div class="fill" role="img" aria-label="{label}" title="{label}">'
        f'<i class="own" style="width:{own:.2f}%"></i><i class="others" style="width:{others:.2f}%"></i></div>'
        f"<dl>{counts}</dl></article>"
    )


def _holdings(board: Board) -> str:
    others = sum(tier.entries for tier in board.tiers) - sum(len(h.places) for h in board.holdings)
    other_nbytes = sum(tier.nbytes for tier in board.tiers) - sum(board.own_nbytes.values())
    aside = f"Others: {words.count(others)} {'entry' if others == 1 else 'entries'}, {words.nbytes(other_nbytes)}."
    if not board.holdings:
        return f'<section><h2>Your chunks</h2><p class="quiet empty">None in the store. {aside}</p></section>'
    shown = sorted(board.holdings, key=lambda h: h.used_at, reverse=True)[:MAX_ROWS]
    shown.sort(key=lambda h: (h.owned.document, h.owned.number or 0, h.owned.form))
    cut = "" if len(shown) == len(board.holdings) else f", the {MAX_ROWS} used last are shown"
    total = words.nbytes(sum(board.own_nbytes.values()))
    caption = f"{words.count(len(board.holdings))} of yours, {total} in all tiers{cut}. {aside}"
    titles = ("document", "chunk", "made", "tokens", "size", "where", "last use")
    head = "".join(f'<th scope="col">{title}</th>' for title in titles)
    rows = "".join(_row(holding) for holding in shown)
    table = f"<table><caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    region = 'class="documents holdings" tabindex="0" role="region" aria-label="Your chunks"'
    return f"<section><h2>Your chunks</h2><div {region}>{table}</div></section>"


def _row(holding: Holding) -> str:
    owned, places = holding.owned, "".join(f"<span>{place}</span>" for place in holding.places)
    number = "–" if owned.number is None else words.count(owned.number)
    return (
        f'<tr><th scope="row"><span class="file">{words.text(owned.document)}</span></th><td>{number}</td>'
        f"<td>{words.text(owned.form)}</td><td>{words.count(owned.num_tokens)}</td><td>{words.nbytes(holding.nbytes)}</td>"
        f'<td class="places">{places}</td><td>{_when(holding.used_at)}</td></tr>'
    )


def _events(board: Board) -> str:
    items = "".join(
        f'<li><span>{_when(event.at)}</span><b class="what-{event.what}">{event.what}</b>'
        f"<span>{event.place or '–'}</span><span>{words.text(owned.label)}</span></li>"
        for event, owned in board.events[:MAX_EVENTS]
    )
    listed = f"<ol>{items}</ol>" if items else '<p class="quiet empty">Nothing of yours yet.</p>'
    counted = _counted(sorted(board.others.items()))
    return f'<section class="events"><h2>What happened last</h2>{listed}<p class="quiet">{counted}</p></section>'


def _counted(others: Sequence[tuple[str, int]]) -> str:
    said = ", ".join(f"{count} {what}" for what, count in others)
    return f"Others, counted only: {said}." if said else ""


def _when(seconds: float) -> str:
    """The server's time of day; the date as well if it was not today."""
    at = datetime.datetime.fromtimestamp(seconds).astimezone()
    is_today = at.date() == datetime.datetime.now(at.tzinfo).date()
    shown = at.strftime("%H:%M:%S" if is_today else "%Y-%m-%d %H:%M")
    return f'<time datetime="{at.isoformat(timespec="seconds")}">{shown}</time>'
