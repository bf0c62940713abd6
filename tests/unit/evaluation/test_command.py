"""`python -m cacheblend eval` with a tiny model in place of one that takes long to load."""

from __future__ import annotations

import csv
import json
import os
import signal

import pytest

from cacheblend.cli import main
from cacheblend.commands import options
from cacheblend.engine import Engine
from cacheblend.evaluation.rows import RowFile
from tests.tiny import tiny, tiny_tokenizer


@pytest.fixture
def evaluate(monkeypatch, tmp_path):
    """Runs the command over three questions and a malformed row; more arguments may follow."""

    def load(name, *, device, dtype, embedder, store, progress):
        return Engine(tiny("llama"), tiny_tokenizer(), name="tiny", store=store)

    monkeypatch.setattr(options.Engine, "load", load)
    passages = [" ".join(f"w{20 + (i * j) % 70}" for i in range(15)) for j in range(1, 5)]
    records = [{"question": f"who lit w{i} ?", "answer": "w40", "passages": passages} for i in range(3)]
    lines = [*map(json.dumps, records), "oops"]
    (tmp_path / "set.jsonl").write_text("\n".join(lines))

    def run(*more: str) -> int:
        fixed = ["--out", str(tmp_path / "out"), "--kv-cache", str(tmp_path / "kv"), "--max-new-tokens", "4"]
        return main(["eval", str(tmp_path / "set.jsonl"), *fixed, "--passages", "3", *more])

    return run


def test_it_prints_a_table_and_writes_files(evaluate, tmp_path, capsys):
    assert evaluate("--ratios", "0.1", "0.3") == 0
    said = capsys.readouterr()
    assert "skipped line 4: it is not JSON" in said.err and "1 of 3 questions · about " in said.err
    lines = said.out.splitlines()
    assert [line.split("  ")[0] for line in lines[1:5]] == [
        "full",
        "reuse",
        "blend 0.1 single value",
        "blend 0.3 single value",
    ]
    assert "Full itself scores 0 (F1) on " in said.out and "Left out: 1 malformed rows, 0 questions" in said.out
    told = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert told["chunks_prefilled"] == 4 and told["config"]["chunks"] == 3
    assert told["config"]["environment"]["model"] == "tiny"
    with (tmp_path / "out" / "rows.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 12
    assert evaluate("--ratios", "0.1", "0.3") == 0
    again = capsys.readouterr()
    assert again.out == said.out and "questions · about" not in again.err, "nothing was left to measure"
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["chunks_prefilled"] == 0


def test_ctrl_c_leaves_a_folder_that_the_same_command_goes_on_from(evaluate, tmp_path, capsys, monkeypatch):
    append, handler = RowFile.append, signal.getsignal(signal.SIGINT)

    def interrupt_at_four(file, row):
        append(file, row)
        if len(file.rows) == 4:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(RowFile, "append", interrupt_at_four)
    assert evaluate() == 130
    assert "goes on behind the 4 rows" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is handler and not (tmp_path / "out" / "summary.json").exists()
    monkeypatch.setattr(RowFile, "append", append)
    assert evaluate() == 0
    assert len((tmp_path / "out" / "rows.jsonl").read_text().splitlines()) == 9
    assert (tmp_path / "out" / "summary.json").exists()


def test_a_torn_row_is_said_and_measured_again(evaluate, tmp_path, capsys):
    assert evaluate() == 0
    path = tmp_path / "out" / "rows.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    assert evaluate() == 0
    assert "The last row of" in capsys.readouterr().err
    assert len(path.read_text().splitlines()) == 9


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--passages", "2"), "another chunks: choose another folder"),
        (("--ratios", "2"), "ratio"),
        (("--limit", "0"), "limit must be at least 1"),
        (("--chunk-tokens", "4"), "chunk_tokens must be at least 16"),
    ],
)
def test_wrong_settings_are_one_sentence(evaluate, capsys, more, said):
    assert evaluate("--limit", "1", "--modes", "full") == 0
    assert evaluate("--limit", "1", "--modes", "full", *more) == 2
    assert said in capsys.readouterr().err.splitlines()[-1]


def test_nothing_to_ask_is_one_sentence(evaluate, tmp_path, capsys):
    (tmp_path / "set.jsonl").write_text("oops\n")
    assert evaluate() == 2
    assert "has no question that can be used: line 1: it is not JSON" in capsys.readouterr().err
