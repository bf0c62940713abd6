"""An experiment's result as files: JSON that is read back, and its points as CSV and JSON lines for other programs.

The standard library only. What is not a finite number is written as a string (“NaN”), so that every reader of JSON can
read it.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from cacheblend.evaluation.points import Point, Result
from cacheblend.trace import Environment

FORMAT = "cacheblend-result/1"
COLUMNS = tuple(field.name for field in fields(Point))
NUMBERS = ("x", "y", "low", "high", "z")
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet would run a text that begins like this


def to_json(result: Result) -> str:
    """Serialise; `from_json` gives an equal result back."""
    raw = {"format": FORMAT, **asdict(result), "points": [_row(point) for point in result.points]}
    return json.dumps(raw, ensure_ascii=False, allow_nan=False)


def from_json(text: str) -> Result:
    """Read what `to_json` wrote; ValueError says what is wrong with anything else."""
    try:
        raw = json.loads(text)
        if raw["format"] != FORMAT:
            raise ValueError(f"not a {FORMAT} file")
        least, most = raw["context_tokens"]
        return Result(
            experiment=_text(raw["experiment"]),
            points=tuple(_point(row) for row in raw["points"]),
            environment=Environment(**raw["environment"]),
            questions=int(raw["questions"]),
            context_tokens=(int(least), int(most)),
            left_out=tuple(_text(sentence) for sentence in raw["left_out"]),
        )
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not the result of an experiment: {error}") from error


def to_csv(result: Result) -> str:
    """The points as a table with a header; what is missing is an empty cell."""
    out = io.StringIO(newline="")
    lines = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    lines.writeheader()
    for point in result.points:
        lines.writerow({name: _cell(value) for name, value in asdict(point).items()})
    return out.getvalue()


def to_jsonl(result: Result) -> str:
    """One object a line: the point, and which experiment it is of."""
    rows = ({"experiment": result.experiment, **_row(point)} for point in result.points)
    return "".join(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows)


def save(folder: Path, result: Result) -> None:
    """Write the three files of a result into a folder; the JSON comes last and whole, so what is there is complete."""
    for suffix, text in (("csv", to_csv(result)), ("jsonl", to_jsonl(result)), ("json", to_json(result) + "\n")):
        path = folder / f"{result.experiment}.{suffix}"
        draft = path.with_suffix(".draft")
        draft.write_text(text, encoding="utf-8", newline="")
        os.replace(draft, path)


def load(path: Path) -> Result:
    """Read one file of `save`; ValueError, one sentence, if it is damaged or of something else."""
    try:
        return from_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} cannot be read ({error}): delete it, and it is measured again.") from error


def is_result(path: Path) -> bool:
    """Whether a file says of itself that it is a result, readable or not."""
    with path.open("rb") as file:
        return FORMAT.encode() in file.read(64)


def _row(point: Point) -> dict[str, Any]:
    return {name: _plain(value) for name, value in asdict(point).items()}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | int):
        return value
    value = float(value)  # numpy's numbers too
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _cell(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def _point(row: Mapping[str, Any]) -> Point:
    given: dict[str, Any] = {name: _number(row[name]) for name in NUMBERS if row.get(name) is not None}
    given |= {name: _text(row[name]) for name in ("series", "panel", "label")}
    if unknown := row.keys() - set(COLUMNS):
        raise TypeError(f"a point has no {', '.join(sorted(unknown))}")
    return Point(**given, n=int(row["n"]))


def _number(value: Any) -> float:
    if isinstance(value, bool):
        raise TypeError("true and false are no numbers")
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a text is needed where {value!r} stands")
    return value
