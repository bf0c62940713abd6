"""`python -m cacheblend ask` on the embedded model: real weights, real files, the JSON that others read."""

from __future__ import annotations

import json
import time

import pytest

from cacheblend.cli import main
from cacheblend.engine import Engine
from cacheblend.models.weights import EMBEDDED_NAME
from cacheblend.samples import load_samples
from tests import reference

QUESTION = "Who wrote the letters?"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The JSON of one question about a sample collection and one file that cannot be read."""
    folder = tmp_path_factory.mktemp("ask")
    broken, out = folder / "empty.txt", folder / "out.json"
    broken.write_text("")
    files = [str(p) for p in load_samples()[0].paths]
    arguments = [
        "ask",
        *files,
        str(broken),
        "--question",
        QUESTION,
        "--max-new-tokens",
        "8",
        "--json",
        str(out),
        "--no-disk",
    ]
    assert main([*arguments, "--modes", "full", "reuse", "blend", "--ratio", "0.15"]) == 0
    return json.loads(out.read_text())


def test_the_json_has_what_was_promised(written):
    assert written["question"] == QUESTION and written["model"] == EMBEDDED_NAME
    assert [run["mode"] for run in written["runs"]] == ["full", "reuse", "blend"]
    assert len(written["chunks"]) == 6
    assert all(set(chunk) == {"source", "tokens", "score"} for chunk in written["chunks"])
    prefix = written["context_tokens"] - sum(chunk["tokens"] for chunk in written["chunks"])
    assert prefix > 0 and written["suffix_tokens"] > 0


def test_full_is_its_own_reference_and_the_others_are_held_against_it(written):
    full, reuse, blend = written["runs"]
    assert (full["first_token_kl"], full["top1_agreement"], full["f1_to_full"]) == (0, 1, 1)
    assert full["recomputed_share"] == 1 and reuse["recomputed_share"] == 0
    assert blend["recomputed_tokens"] == round(0.15 * written["context_tokens"])
    assert reuse["first_token_kl"] > 0 and blend["first_token_kl"] > 0
    assert all(run["ttft_ms"] > 0 and run["is_warm"] and run["answer"] for run in written["runs"])


def test_nothing_readable_is_one_sentence_and_status_2(tmp_path, capsys):
    path = tmp_path / "picture.pdf"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"0" * 100)
    assert main(["ask", str(path), "--question", "?", "--no-disk"]) == 2
    said = capsys.readouterr().err
    assert "picture.pdf" in said and "none of the files could be read" in said


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine.load("embedded", dtype="float32")


def test_the_embedded_model_is_exact_in_float32(engine):
    """Full, blend at ratio 1, and reuse, against transformers on real weights."""
    ids = [engine.tokenizer(text)["input_ids"] for text in ("Read.", "Mara built it.", "She lived in Oslo.", "Who?")]
    prefix, *chunks, suffix = ids
    logits, _ = reference.full_forward(engine.hf_model, [t for part in ids for t in part])
    reused, _ = reference.reuse_forward(engine.hf_model, prefix, chunks, suffix)
    for options, expected in (
        ({"mode": "full"}, logits[-1]),
        ({"mode": "blend", "ratio": 1.0}, logits[-1]),
        ({"mode": "reuse"}, reused[-1]),
    ):
        made = engine.prefill(prefix=prefix, chunks=chunks, suffix=suffix, **options)
        assert float((made.logits - expected).abs().max()) < 2e-3  # of logits around 20


def test_a_second_load_needs_no_conversion(engine):
    said = []
    start = time.perf_counter()
    Engine.load("embedded", progress=said.append)
    assert not any("converting" in what for what in said), f"took {time.perf_counter() - start:.1f} s"
