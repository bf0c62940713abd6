"""What rows say, worked out by hand."""

from __future__ import annotations

import csv
import json

import pytest

from cacheblend.evaluation.report import summarise, table, write_report
from cacheblend.evaluation.rows import Row


def row(question: str, setting: str, f1: float | None, ttft: float, **other) -> Row:
    fields = {
        "question_id": question,
        "setting": setting,
        "mode": setting.split(maxsplit=1)[0],
        "ratio": 1.0,
        "policy": "",
        "answer": "Anna",
        "f1": f1,
        "rouge_l": f1,
        "squad_f1": f1,
        "exact_match": None if f1 is None else float(f1 == 1),
        "first_token_kl": 0.0,
        "mean_kl": 0.0,
        "top1_agreement": 1.0,
        "f1_to_full": 1.0,
        "kv_deviation": 0.0,
        "attention_deviation": 0.0,
        "ttft_ms": ttft,
        "ttft_parts_ms": {"compute": ttft - 1, "first token": 1.0},
        "context_tokens": 100,
        "prompt_tokens": 110,
        "recomputed_tokens": 100,
        "recomputed_share": 1.0,
        "is_warm": True,
        "places": "",
    }
    return Row(**{**fields, **other})


ROWS = [
    row("a", "full", 1.0, 100.0),
    row("b", "full", 0.0, 200.0),
    row("c", "full", 0.5, 300.0),
    row("a", "reuse", 0.5, 10.0, mean_kl=2.0, is_warm=False, recomputed_share=0.0),
    row("b", "reuse", 0.0, 20.0, mean_kl=1.0, recomputed_share=0.0),
]


def test_means_differences_and_shares():
    summary = summarise(ROWS)
    full, reuse = summary.settings
    assert (full.setting, full.questions, full.speedup, full.against_full) == ("full", 3, 1.0, {})
    assert full.means["f1"].mean == pytest.approx(0.5) and full.means["ttft_ms"].mean == pytest.approx(200)
    assert full.parts_ms == {"compute": pytest.approx(199), "first token": pytest.approx(1)}
    assert (reuse.questions, reuse.cold) == (2, 1)
    assert reuse.means["mean_kl"].mean == pytest.approx(1.5)
    assert (reuse.against_full["f1"].mean, reuse.against_full["f1"].n) == (-0.25, 2)
    assert reuse.speedup == pytest.approx(10.0), "over the two questions that both answered"
    assert summary.full_zero_f1 == pytest.approx(1 / 3) and summary.full_not_exact == pytest.approx(2 / 3)


def test_what_was_not_measured_is_not_there():
    summary = summarise([row("a", "reuse", None, 10.0, mean_kl=None, top1_agreement=None)])
    (reuse,) = summary.settings
    assert "f1" not in reuse.means and "mean_kl" not in reuse.means and not reuse.against_full
    assert reuse.speedup is summary.full_zero_f1 is summary.full_not_exact is None
    assert table(summary).splitlines()[1].split("  ")[0] == "reuse" and "–" in table(summary)


def test_the_table_has_a_line_for_each_setting():
    head, full, reuse = table(summarise(ROWS)).splitlines()
    assert head.split()[:2] == ["setting", "n"]
    assert "0.500 [" in full and "200 [" in full and full.endswith("1.00 ×    100.0%      0.0%")
    assert reuse.startswith("reuse (1 cold)  2") and "-0.250 [-0.500, +0.000]" in reuse and "10.00 ×" in reuse


def test_files_hold_everything(tmp_path):
    rows = [*ROWS, row("d", "full", 1.0, 1.0, answer='two\nlines, "quoted"')]
    write_report(tmp_path, rows, summarise(rows), {"malformed_rows": ["line 3: it is not JSON."]})
    told = json.loads((tmp_path / "summary.json").read_text())
    assert told["malformed_rows"] == ["line 3: it is not JSON."]
    assert told["settings"][1]["against_full"]["f1"]["mean"] == -0.25
    with (tmp_path / "rows.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 6 and lines[5]["answer"] == 'two\nlines, "quoted"'
    assert json.loads(lines[0]["ttft_parts_ms"])["compute"] == 99.0 and float(lines[0]["ttft_ms"]) == 100.0
