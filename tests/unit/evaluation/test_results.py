"""Results as files: what is written is read back, by us and by the readers of CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace

import pytest

from cacheblend.evaluation import results
from cacheblend.evaluation.points import Point
from tests.unit.evaluation.results import hostile, result


def test_a_result_comes_back_equal():
    made = result(label="policy|bare|0.15")
    assert results.from_json(results.to_json(made)) == made
    assert results.from_json(results.to_json(hostile())) == hostile()


def test_what_is_no_finite_number_survives_strict_json():
    odd = replace(
        result(), points=(Point(series="a", x=math.inf, y=-math.inf, z=math.nan), Point(series="b", x=1, y=2))
    )
    text = results.to_json(odd)
    assert json.loads(text, parse_constant=pytest.fail)
    first, second = results.from_json(text).points
    assert (first.x, first.y, second.z) == (math.inf, -math.inf, None) and math.isnan(first.z)


def test_csv_and_json_lines_hold_every_point():
    made = result(label="a, “b”\nc")
    rows = list(csv.DictReader(io.StringIO(results.to_csv(made))))
    assert [(float(row["x"]), float(row["y"]), row["label"]) for row in rows] == [
        (p.x, p.y, p.label) for p in made.points
    ]
    assert rows[0]["low"] == "0.0" and rows[-1]["low"] == ""
    lines = [json.loads(line) for line in results.to_jsonl(made).splitlines()]
    assert [line["y"] for line in lines] == [point.y for point in made.points]
    assert {line["experiment"] for line in lines} == {"fig16"}


def test_a_spreadsheet_runs_nothing():
    for text in ("=1+1", "+A1", "-A1", "@SUM(A1)", "\t=1"):
        row = next(csv.DictReader(io.StringIO(results.to_csv(result(series=text)))))
        assert row["series"] == f"'{text}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"format": "cacheblend-comparison/1"}',
        results.to_json(result())[:-20],
        results.to_json(result()).replace('"n": 3', '"n": null'),
        results.to_json(result()).replace('"x": 5.0', '"x": true'),
        results.to_json(result()).replace('"x": 5.0', '"X": 5.0'),
        results.to_json(result()).replace('"series": "blend"', '"series": 3'),
        results.to_json(result()).replace('"left_out": [', '"left_out": [{},'),
        "[" * 100_000,
    ],
)
def test_anything_else_is_refused_in_a_sentence(text):
    with pytest.raises(ValueError):
        results.from_json(text)


def test_three_files_are_saved_and_a_damaged_one_is_named(tmp_path):
    results.save(tmp_path, hostile())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fig16.csv", "fig16.json", "fig16.jsonl"]
    path = tmp_path / "fig16.json"
    assert results.load(path) == hostile() and results.is_result(path)
    path.write_text(path.read_text()[:200])
    with pytest.raises(ValueError, match=r"fig16\.json cannot be read .* measured again"):
        results.load(path)
    assert results.is_result(path)
