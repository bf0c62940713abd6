"""What really happened on every sample question, failures of every mode included, as a table in HTML."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cacheblend.trace import COMPARED, Mode
from ui import words
from ui.cards import TITLES

MEASURED = Path(__file__).parent.parent / "assets" / "samples" / "measured.json"


def load(path: Path = MEASURED) -> dict[str, Any] | None:
    """Read what `benchmarks.samples` wrote; None if it was not shipped."""
    if not path.is_file():
        return None
    measured: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return measured


def render(measured: dict[str, Any] | None) -> str:
    """Return the counts, the table and where it was measured; nothing without measurements."""
    if measured is None:
        return ""
    rows = "".join(_row(row) for row in measured["rows"])
    modes = "".join(f"<th>{TITLES[mode]}</th>" for mode in COMPARED)
    return (
        f"<h2>What happened on the samples</h2><p>{_counts(measured['summary'])}</p>"
        f'<div class="measured"><table><thead><tr><th>question</th><th>expected</th>{modes}'
        f"<th>sooner, reuse · blend</th></tr></thead><tbody>{rows}</tbody></table></div>"
        f'<p class="quiet">{_origin(measured)}</p>'
    )


def _counts(summary: dict[str, Any]) -> str:
    right = summary["right"]
    counts = ", ".join(f"{TITLES[mode]} <b>{right[mode]}</b>" for mode in COMPARED)
    lost, better = (words.count(summary[n], "time") for n in ("full_right_reuse_wrong", "full_wrong_blend_right"))
    better = better if summary["full_wrong_blend_right"] else "never"
    return (
        f"Right answers of {summary['questions']}: {counts}. Full was right and reuse wrong {lost}; in "
        f"{summary['full_right_reuse_wrong_blend_right']} of these CacheBlend was right. "
        f"Where full was wrong, it was right {better}."
    )


def _row(row: dict[str, Any]) -> str:
    answers = "".join(_answer(row["modes"][mode]) for mode in COMPARED)
    pace = " · ".join(words.times(row["modes"][mode]["speedup"]) for mode in (Mode.REUSE, Mode.BLEND))
    missed = "" if row["found"] else '<small class="warning">a document it needs was not retrieved</small>'
    return (
        f"<tr><td>{words.text(row['question'])}{missed}</td><td>{words.text(row['expected'])}</td>"
        f"{answers}<td>{pace}</td></tr>"
    )


def _answer(mode: dict[str, Any]) -> str:
    kind = "right" if mode["is_right"] else "wrong"
    return f'<td class="{kind}"><span class="unseen">{kind}: </span>{words.text(mode["answer"])}</td>'


def _origin(measured: dict[str, Any]) -> str:
    env, settings = measured["environment"], measured["settings"]
    where = f"{env['model']} · {env['device']} · {env['dtype']} · {env['recorded_at'][:10]}"
    how = f"ratio {words.share(settings['ratio'])}, {settings['top_k']} chunks by {settings['ordering']}"
    return words.text(f"{measured['note']} Measured on {where}; {how}. Command: {measured['command']}")
