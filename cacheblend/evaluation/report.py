"""Rows → what they say: means with intervals, differences to full in pairs, a table, CSV. Pure functions of rows."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from cacheblend.evaluation.rows import Row
from cacheblend.evaluation.statistics import Estimate, estimate, paired
from cacheblend.trace import Lane, Mode

SCORES = ("f1", "rouge_l", "squad_f1", "exact_match")
DISTANCES = ("first_token_kl", "mean_kl", "top1_agreement", "f1_to_full", "kv_deviation", "attention_deviation")
COSTS = ("ttft_ms", "recomputed_tokens", "recomputed_share")
METRICS = (*SCORES, *DISTANCES, *COSTS)
COLUMNS = {  # of the table: heading → metric
    "F1": "f1",
    "Rouge-L": "rouge_l",
    "exact": "exact_match",
    "mean KL": "mean_kl",
    "top-1": "top1_agreement",
    "TTFT ms": "ttft_ms",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingSummary:
    """One setting over all questions. Only metrics that some row has are there.

    against_full: the mode minus full, question by question; speedup: full's mean TTFT divided by the mode's, over the
    questions that both answered; parts_ms: mean of each part of TTFT; cold: rows of which some cache
    was not in the store.
    """

    setting: str
    questions: int
    cold: int
    means: dict[str, Estimate]
    against_full: dict[str, Estimate]
    speedup: float | None
    parts_ms: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """All settings, in the order in which they were asked for.

    full_zero_f1, full_not_exact: shares of the questions with gold answers on which full itself scores nothing, and is
    not exactly right; None where full did not run or no gold answer is known.
    """

    settings: tuple[SettingSummary, ...]
    full_zero_f1: float | None
    full_not_exact: float | None


def summarise(rows: Sequence[Row]) -> Summary:
    """Everything that a table or a figure needs of rows."""
    by_setting: dict[str, dict[str, Row]] = {}
    for row in rows:
        by_setting.setdefault(row.setting, {})[row.question_id] = row
    full = by_setting.get(str(Mode.FULL), {})
    judged = [row for row in full.values() if row.f1 is not None]
    return Summary(
        settings=tuple(_setting(label, of, full) for label, of in by_setting.items()),
        full_zero_f1=sum(row.f1 == 0 for row in judged) / len(judged) if judged else None,
        full_not_exact=sum(row.exact_match != 1 for row in judged) / len(judged) if judged else None,
    )


def _setting(label: str, rows: Mapping[str, Row], full: Mapping[str, Row]) -> SettingSummary:
    means = {metric: estimate([v for v in _values(rows, metric).values() if v is not None]) for metric in METRICS}
    differences = {metric: paired(_values(rows, metric), _values(full, metric)) for metric in METRICS}
    is_full = label == Mode.FULL
    both = rows.keys() & full.keys()
    parts = list(dict.fromkeys(part for row in rows.values() for part in row.ttft_parts_ms))
    return SettingSummary(
        setting=label,
        questions=len(rows),
        cold=sum(not row.is_warm for row in rows.values()),
        means={metric: found for metric, found in means.items() if found},
        against_full={metric: found for metric, found in differences.items() if found and not is_full},
        speedup=sum(full[q].ttft_ms for q in both) / sum(rows[q].ttft_ms for q in both) if both else None,
        parts_ms={p: sum(row.ttft_parts_ms.get(p, 0.0) for row in rows.values()) / len(rows) for p in parts},
    )


def _values(rows: Mapping[str, Row], metric: str) -> dict[str, float | None]:
    return {question: getattr(row, metric) for question, row in rows.items()}


def table(summary: Summary) -> str:
    """A table for a terminal: means, 95 % intervals in brackets, differences to full behind a Δ.

    choosing: what selecting the rows takes of TTFT.
    """
    lines = [["setting", "n", *COLUMNS, "Δ F1", "speed-up", "recomputed", "choosing"]]
    for setting in summary.settings:
        lines.append(
            [
                setting.setting + (f" ({setting.cold} cold)" if setting.cold else ""),
                str(setting.questions),
                *(_cell(setting.means.get(metric), metric) for metric in COLUMNS.values()),
                _cell(setting.against_full.get("f1"), "f1", signed=True),
                f"{setting.speedup:.2f} ×" if setting.speedup else "–",
                f"{setting.means['recomputed_share'].mean:.1%}",
                f"{setting.parts_ms.get(Lane.SELECT, 0.0) / setting.means['ttft_ms'].mean:.1%}",
            ]
        )
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines)


def _cell(found: Estimate | None, metric: str, *, signed: bool = False) -> str:
    if found is None:
        return "–"
    form = ".0f" if metric == "ttft_ms" else "+.3f" if signed else ".3f"
    return f"{found.mean:{form}} [{found.low:{form}}, {found.high:{form}}]"


def write_report(folder: Path, rows: Sequence[Row], summary: Summary, facts: Mapping[str, object]) -> None:
    """Write summary.json and rows.csv into a folder. facts: what else is to be said, skipped questions for one."""
    told = {**facts, **asdict(summary)}
    text = json.dumps(told, ensure_ascii=False, indent=1) + "\n"
    (folder / "summary.json").write_text(text, encoding="utf-8")
    with (folder / "rows.csv").open("w", encoding="utf-8", newline="") as file:
        names = [field.name for field in fields(Row)]
        lines = csv.DictWriter(file, names)
        lines.writeheader()
        for row in rows:
            lines.writerow({**asdict(row), "ttft_parts_ms": json.dumps(row.ttft_parts_ms)})
