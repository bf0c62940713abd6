"""`python -m cacheblend ask` with a tiny model: policies, recipes and every mode from the shell."""

from __future__ import annotations

import json
import re

import pytest

from cacheblend.baselines.alone import EXTRACT_TOKENS
from cacheblend.cli import main
from cacheblend.commands import options
from cacheblend.engine import Engine
from cacheblend.loading import StoreConfig
from cacheblend.trace import ON_CHUNKS, ON_REPLIES, Mode, Recipe
from tests.app.fakes import FakeEmbedder
from tests.tiny import tiny, tiny_tokenizer

QUESTION = "who lit w30 ?"


@pytest.fixture
def engine(monkeypatch) -> Engine:
    made = Engine(tiny("llama"), tiny_tokenizer(), name="tiny", store=StoreConfig(memory_bytes=10**8))
    made._embedder = FakeEmbedder()
    monkeypatch.setattr(options.Engine, "load", lambda *a, **k: made)
    return made


@pytest.fixture
def ask(engine, tmp_path):
    """Asks about three files of 20 words; returns the exit status and the JSON."""
    paths = [tmp_path / f"{name}.txt" for name in ("one", "two", "three")]
    for step, path in enumerate(paths, start=1):
        path.write_text(" ".join(f"w{20 + (i * step) % 70}" for i in range(20)))

    def run(*more: str) -> tuple[int, dict]:
        out = tmp_path / "out.json"
        fixed = ["--question", QUESTION, "--no-disk", "--max-new-tokens", "4", "--top-k", "3", "--json", str(out)]
        status = main(["ask", *map(str, paths), *fixed, *more])
        return status, json.loads(out.read_text()) if out.exists() else {}

    return run


def test_a_policy_and_a_recipe_are_taken_and_named(ask, capsys):
    status, written = ask("--policy", "query", "--recipe", "neutral", "--ratio", "0.3")
    said = capsys.readouterr()
    assert status == 0
    assert "blend: " in said.out and "query attention; chunks made behind a neutral text" in said.out
    assert said.err.count("precomputing 3 chunk caches, made behind a neutral text") == 1
    full, reuse, blend = written["runs"]
    assert (full["policy"], reuse["policy"]) == ("all rows", "no rows; chunks made behind a neutral text")
    assert blend["policy"] == "query attention; chunks made behind a neutral text"
    assert blend["recomputed_tokens"] == round(0.3 * written["context_tokens"])
    assert reuse["is_warm"] and blend["is_warm"], "made before the clock started"


@pytest.mark.parametrize("recipe", list(Recipe))
def test_every_recipe_is_ready_before_the_question(ask, engine, recipe):
    status, written = ask("--recipe", recipe, "--modes", "reuse", "blend", "prime")
    assert status == 0
    assert all(run["is_warm"] for run in written["runs"])
    assert {run["mode"] for run in written["runs"]} == {"reuse", "blend", "prime"}
    assert bool(engine.recipes.compared) == (recipe is Recipe.SIMILAR)


def test_a_cold_question_makes_nothing_beforehand(ask, capsys):
    status, written = ask("--cold", "--modes", "blend", "--recipe", "sinks")
    assert status == 0
    assert "precomputing" not in capsys.readouterr().err
    assert not written["runs"][0]["is_warm"]


def test_modes_that_ask_every_chunk_print_what_each_replied(ask, capsys):
    status, written = ask("--modes", "map-reduce", "map-rerank", "prefix")
    said = capsys.readouterr()
    assert status == 0 and "precomputing" not in said.err, "none of them reads chunk caches"
    runs = {run["mode"]: run for run in written["runs"]}
    assert list(runs) == ["prefix", "map-reduce", "map-rerank"]
    sources = [chunk["source"] for chunk in written["chunks"]]
    assert len(sources) == 3
    lines = said.out.splitlines()
    for mode in ON_REPLIES:
        above = lines.index(f"{mode}: what each chunk replied")
        assert all(line.startswith(f"  {source}") for line, source in zip(lines[above + 1 :], sources, strict=False))
    for mode in ("map-reduce", "map-rerank"):
        assert [reply["source"] for reply in runs[mode]["replies"]] == sources
        assert runs[mode]["first_token_kl"] is None and runs[mode]["f1_to_full"] is None, "full did not run"
        assert runs[mode]["stored_nbytes"] is None
    for source in sources:
        told = [line for line in said.out.splitlines() if line.startswith(f"  {source}")]
        assert len(told) == 2, "once for each of the two modes"
        assert all(len(line) < 150 for line in told), "however long the reply is"
        assert [bool(re.search(r"\((score \d+|no readable score, counts as 0)\): ", line)) for line in told] == [0, 1]
    replies = [reply for mode in ON_REPLIES for reply in runs[mode]["replies"]]
    assert any(reply["text"] for reply in replies)
    assert all(len(reply["text"].split()) <= EXTRACT_TOKENS for reply in replies)


def test_a_prefix_says_how_many_bytes_are_kept_for_this_beginning_and_how_many_are_new(ask, engine, capsys):
    _, first = ask("--modes", "prefix")
    whole = first["context_tokens"] * engine.kv_bytes_per_token
    assert (first["runs"][0]["stored_nbytes"], first["runs"][0]["stored_new_nbytes"]) == (whole, whole)
    megabytes = f"{whole / 1e6:.1f} MB"
    said = (
        f"prefix: nothing was stored · layer-wise · {megabytes} kept for this beginning alone, {megabytes} of that new"
    )
    assert said in capsys.readouterr().out
    _, again = ask("--modes", "prefix")
    assert again["runs"][0]["stored_new_nbytes"] == 0 and again["runs"][0]["is_warm"]
    assert f"{megabytes} kept for this beginning alone, 0.0 MB of that new" in capsys.readouterr().out


def test_every_mode_at_once(ask, capsys):
    status, written = ask("--modes", *(mode.value for mode in Mode), "--ratio", "0.2")
    assert status == 0
    assert [run["mode"] for run in written["runs"]] == [mode.value for mode in Mode]
    table = capsys.readouterr().out.splitlines()
    assert table[2].split()[0] == "mode"
    assert [line.split()[0] for line in table[3 : 3 + len(Mode)]] == [mode.value for mode in Mode]
    stored = {run["mode"]: run["stored_nbytes"] for run in written["runs"]}
    assert all(stored[mode] for mode in ON_CHUNKS)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--policy", "query", "--ratio", "auto"], "knows HKVD alone"),
        (["--policy", "query", "--load-order", "cake"], "Cake computes from the front"),
        (["--ratio", "1.5"], "ratio must be in"),
    ],
)
def test_what_does_not_go_together_is_one_sentence(ask, capsys, arguments, said):
    status, written = ask("--modes", "blend", *arguments)
    assert (status, written) == (2, {})
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("cacheblend: ") and said in error


@pytest.mark.parametrize(
    ("wrong", "one_of_them"),
    [
        (("--policy", "best"), "late-query"),
        (("--recipe", "spicy"), "neutral"),
        (("--modes", "magic"), "map-rerank"),
        (("--load-order", "sideways"), "cake"),
    ],
)
def test_an_unknown_name_is_answered_with_those_there_are(ask, capsys, wrong, one_of_them):
    with pytest.raises(SystemExit):
        ask(*wrong)
    error = capsys.readouterr().err.splitlines()[-1]
    assert all(word in error for word in (*wrong, one_of_them))
