"""The embedded model's caches outlive the process that made them."""

from __future__ import annotations

import json

from cacheblend.cli import main
from cacheblend.samples import load_samples

QUESTION = "Who wrote the letters?"


def ask(files, folder, out, *more: str) -> dict:
    arguments = ["ask", *files, "--question", QUESTION, "--modes", "blend", "--max-new-tokens", "4", "--cold", *more]
    assert main([*arguments, "--kv-cache", str(folder), "--json", str(out)]) == 0
    return json.loads(out.read_text())["runs"][0]


def test_what_was_warmed_is_there_for_the_next_start(tmp_path, capsys):
    files, folder, out = [str(p) for p in load_samples()[0].paths], tmp_path / "kv", tmp_path / "out.json"
    assert main(["store", "warm", *files, "--kv-cache", str(folder)]) == 0
    assert "prefilled" in capsys.readouterr().out
    assert main(["store", "stats", "--kv-cache", str(folder)]) == 0
    assert main(["store", "verify", "--kv-cache", str(folder)]) == 0
    assert "0 damaged" in capsys.readouterr().out
    first = ask(files, folder, out)
    assert first["is_warm"] and first["loading"]["places"] == ["disk"], "no chunk was prefilled again"
    slow = ask(files, folder, out, "--emulate", "100MB/s", "--load-order", "cake")
    assert slow["loading"]["device"] == "100MB/s" and slow["loading"]["met_at"] is not None
    assert main(["store", "clear", "--kv-cache", str(folder)]) == 0
    assert not ask(files, folder, out)["is_warm"]
