"""What each chunk replied when it was asked alone, as HTML: MapReduce's extracts, MapRerank's answers and scores."""

from __future__ import annotations

from cacheblend.baselines.scores import best
from cacheblend.trace import Mode, Reply, Trace
from ui import words

UNREADABLE = "no readable score: counts as 0"
MAX_CHARS = 600


def render(trace: Trace | None) -> str:
    """Return the replies as a list that opens, nothing for a mode without; replies are text, whatever they contain."""
    if trace is None or not trace.replies:
        return ""
    chosen = best(trace.replies) if trace.mode is Mode.MAP_RERANK else None
    items = "".join(_item(reply, trace.mode, i == chosen) for i, reply in enumerate(trace.replies))
    return (
        f'<details class="replies"><summary>What each chunk replied{_unread(trace)}</summary><ol>{items}</ol></details>'
    )


def _unread(trace: Trace) -> str:
    missing = sum(reply.score is None for reply in trace.replies)
    if trace.mode is not Mode.MAP_RERANK or not missing:
        return ""
    taken = ", so the first is taken" if missing == len(trace.replies) else ""
    return f" · {missing} of {len(trace.replies)} without a readable score{taken}"


def _item(reply: Reply, mode: Mode, is_chosen: bool) -> str:
    score = ""
    if mode is Mode.MAP_RERANK:
        score = f"<span>{UNREADABLE if reply.score is None else f'score {reply.score}'}</span>"
    taken = "<em>taken</em>" if is_chosen else ""
    said = reply.text.strip()
    shown = said if len(said) <= MAX_CHARS else said[: MAX_CHARS - 1] + "…"
    text = words.text(shown) or '<span class="quiet">(nothing)</span>'
    return f"<li><b>{words.text(reply.source)}</b>{score}{taken}<p>{text}</p></li>"
