"""`python -m cacheblend experiment` with a tiny model and an experiment made for the test."""

from __future__ import annotations

import json
import os
import signal

import pytest

from cacheblend.cli import main
from cacheblend.commands import experiment, options
from cacheblend.engine import Engine
from cacheblend.evaluation.catalogue import ABOUT
from cacheblend.evaluation.experiments import EXPERIMENTS
from cacheblend.evaluation.measure import Measure
from cacheblend.evaluation.points import About, Point
from cacheblend.evaluation.results import load
from cacheblend.trace import Mode
from tests.tiny import tiny, tiny_tokenizer


def distances(bench):
    """A point a question: how far blend is from full."""
    points = []
    for i, one in enumerate(bench.asked):
        bench.step(i, len(bench.asked), f"question {i + 1}")
        measure = Measure(bench.engine, one.question, one.hits, max_new_tokens=bench.max_new_tokens)
        trace = measure.run(Mode.BLEND)
        points.append(Point(panel="p", series="blend", x=bench.ratio, y=trace.fidelity.mean_kl, label=one.question))
        assert trace.is_warm
    bench.left_out.append("Nothing of importance.")
    return points


def refuses(bench):
    raise ValueError("no question fits.")


@pytest.fixture(autouse=True)
def catalogue(monkeypatch):
    """Three experiments of our own in place of the paper's."""
    monkeypatch.setattr(experiment, "EVERY_S", 0.0)
    for of, entries in (
        (ABOUT, {n: About(name=n, title=n.title(), asks="How far?", measures="KL.") for n in ("one", "two", "odd")}),
        (EXPERIMENTS, {"one": distances, "two": distances, "odd": refuses}),
    ):
        for name in list(of):
            monkeypatch.delitem(of, name)
        for name, entry in entries.items():
            monkeypatch.setitem(of, name, entry)


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Runs the command over two questions with passages; more arguments may follow."""

    def made(name, *, device, dtype, embedder, store, progress):
        return Engine(tiny("llama"), tiny_tokenizer(), name="tiny", store=store)

    monkeypatch.setattr(options.Engine, "load", made)
    passages = [" ".join(f"w{20 + (i * j) % 70}" for i in range(15)) for j in range(1, 4)]
    records = [{"question": f"who lit w{i} ?", "answer": "w40", "passages": passages} for i in range(2)]
    (tmp_path / "set.jsonl").write_text("\n".join([*map(json.dumps, records), "oops"]))

    def command(*what: str) -> int:
        fixed = ["--out", str(tmp_path / "out"), "--no-disk", "--max-new-tokens", "2"]
        return main(["experiment", *what, "--dataset", str(tmp_path / "set.jsonl"), *fixed])

    return command


def test_a_result_is_printed_and_written_and_not_measured_again(run, tmp_path, capsys):
    assert run("one") == 0
    said = capsys.readouterr()
    assert "skipped line 3" in said.err and "making the chunk caches of 2 questions" in said.err
    assert "one · 0 of 2 · question 1\n" in said.err and "one · 1 of 2 · question 2 · about " in said.err
    assert f"python -m visualizations {tmp_path / 'out'}" in said.err
    assert said.out.splitlines()[:2] == ["One: How far?", said.out.splitlines()[1]]
    assert said.out.splitlines()[1].split() == ["panel", "series", "x", "y", "95", "%", "n", "label"]
    assert "Left out: Nothing of importance." in said.out
    result = load(tmp_path / "out" / "one.json")
    assert result.questions == 2 and [point.label for point in result.points] == ["who lit w0 ?", "who lit w1 ?"]
    assert {path.suffix for path in (tmp_path / "out").glob("one.*")} == {".json", ".csv", ".jsonl"}
    assert run("one", "two") == 0
    again = capsys.readouterr()
    assert "one is there already" in again.err and "one · 0 of 2" not in again.err and "two · 0 of 2" in again.err
    assert again.out.startswith(said.out)


def test_another_configuration_is_refused(run, capsys):
    assert run("one") == 0
    assert run("one", "--ratio", "0.3") == 2
    assert "holds experiments with another ratio: choose another folder" in capsys.readouterr().err
    assert run("one", "--limit", "1") == 2
    assert "another chunks, questions" in capsys.readouterr().err


def test_one_that_fails_leaves_the_others(run, tmp_path, capsys):
    assert run("all") == 2
    assert "odd could not be measured: no question fits." in capsys.readouterr().err
    assert sorted(path.name for path in (tmp_path / "out").glob("*.json")) == [
        "experiments.json",
        "one.json",
        "two.json",
    ]


def test_ctrl_c_keeps_what_was_finished(run, tmp_path, capsys, monkeypatch):
    def interrupted(bench):
        os.kill(os.getpid(), signal.SIGINT)
        return distances(bench)

    monkeypatch.setitem(EXPERIMENTS, "two", interrupted)
    handler = signal.getsignal(signal.SIGINT)
    assert run("one", "two") == 130
    assert "goes on with the rest" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is handler
    assert (tmp_path / "out" / "one.json").exists() and not (tmp_path / "out" / "two.json").exists()
    monkeypatch.setitem(EXPERIMENTS, "two", distances)
    assert run("one", "two") == 0
    assert (tmp_path / "out" / "two.json").exists()


def test_a_damaged_result_is_named(run, tmp_path, capsys):
    assert run("one") == 0
    (tmp_path / "out" / "one.json").write_text("{")
    assert run("one") == 2
    assert "one.json cannot be read" in capsys.readouterr().err


def test_files_are_asked_about(monkeypatch, tmp_path, capsys):
    engine = Engine(tiny("llama"), tiny_tokenizer(), name="tiny")
    monkeypatch.setattr(options.Engine, "load", lambda *a, **k: engine)
    from tests.app.fakes import FakeEmbedder

    monkeypatch.setattr(Engine, "embedder", FakeEmbedder())
    path = tmp_path / "one.txt"  # a file is told from an experiment by its whole name
    path.write_text(" ".join(f"w{20 + i % 70}" for i in range(100)))
    out = str(tmp_path / "out")
    ask = ["--question", "who lit w30 ?", "--question", "who lit w31 ?", "--chunk-tokens", "32", "--passages", "2"]
    assert main(["experiment", "one", str(path), *ask, "--out", out, "--no-disk"]) == 0
    result = load(tmp_path / "out" / "one.json")
    assert result.questions == 2 and result.context_tokens[1] <= 64


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["fig99", "--out", "x"], "fig99 is neither an experiment nor a file"),
        (["--out", "x"], "name an experiment: one, two, odd, all"),
        (["one"], "name a folder for the result"),
        (["one", "--out", "x"], "give either --dataset, or files"),
        (["one", "--out", "x", "--dataset", "d", "--question", "?"], "a dataset has questions of its own"),
        (["one", "--out", "x", "--dataset", "d", "--ratio", "2"], "ratio"),
        (["one", "--out", "x", "--dataset", "d", "--passages", "0"], "at least 1"),
    ],
)
def test_wrong_arguments_are_one_sentence(arguments, said, capsys):
    assert main(["experiment", *arguments]) == 2
    assert said in capsys.readouterr().err.splitlines()[-1]


def test_the_catalogue_is_listed_without_a_model(capsys):
    assert main(["experiment", "--list"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == ["one  One", "    How far?"]
