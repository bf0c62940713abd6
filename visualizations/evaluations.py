"""The folder of an evaluation (`python -m cacheblend eval`) → a section of the report. Reads its files alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from visualizations import tables
from visualizations.report import section

SUMMARY, ROWS = "summary.json", "rows.csv"


def evaluation(folder: Path) -> str:
    """The section, "" if the folder has no evaluation; ValueError if its summary cannot be read."""
    path, rows = folder / SUMMARY, folder / ROWS
    if not path.is_file():
        return ""
    text = path.read_text(encoding="utf-8")
    try:
        shown = _table(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path.name} is not the summary of an evaluation and is left out ({error}).") from error
    links = tables.link(SUMMARY, "application/json", text)
    links += tables.link(ROWS, "text/csv", rows.read_text(encoding="utf-8")) if rows.is_file() else ""
    said = '<p class="measures">Means over questions, with 95 % bootstrap intervals in brackets.</p>'
    return section("Questions with known answers", f'{said}{shown}<p class="downloads">{links}</p>')


def _table(summary: Mapping[str, Any]) -> str:
    """A row a setting, a column for each metric that some setting has."""
    settings: Sequence[Mapping[str, Any]] = summary["settings"]
    metrics = list(dict.fromkeys(metric for setting in settings for metric in setting["means"]))
    rows = [
        [
            str(setting["setting"]),
            float(setting["questions"]),
            *(_mean(setting["means"].get(metric)) for metric in metrics),
            None if setting["speedup"] is None else f"{float(setting['speedup']):.2f} ×",
        ]
        for setting in settings
    ]
    return tables.table(["setting", "questions", *(m.replace("_", " ") for m in metrics), "speed-up"], rows)


def _mean(estimate: Mapping[str, Any] | None) -> str | None:
    if estimate is None:
        return None
    mean, low, high = (tables.number(float(estimate[name])) for name in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}]"
