"""Sets by their name on the hub, through the optional package `datasets`; nothing is asked of the network before that.

Rows are streamed, so a small limit fetches little. Names and splits as they were known to us; none was fetched while
this was written, so the tests read them from a stand-in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

PREFIX = "hub:"  # in front of any other set: hub:OWNER/NAME or hub:OWNER/NAME:SPLIT
EXAMPLES = 10  # of a few-shot prompt, the most that are offered as passages; ours
DIALOGUE = "Dialogue:\n{dialogue}\nSummary:"


@dataclass(frozen=True, slots=True)
class HubSet:
    """Where a set is. revision: of a repository whose own loading script is no longer supported."""

    path: str
    split: str
    revision: str | None = None


SETS = {
    "musique": HubSet("dgslibisey/MuSiQue", "validation"),
    "2wikimqa": HubSet("framolfese/2WikiMultihopQA", "validation"),
    "samsum": HubSet("knkarthick/samsum", "test"),
    "multi_news": HubSet("alexfabbri/multi_news", "test", "refs/convert/parquet"),
}


def is_name(source: str) -> bool:
    """Whether this names a set of the hub."""
    return source in SETS or source.startswith(PREFIX)


def records(source: str) -> Iterator[tuple[str, str, object]]:
    """Stream (where it stands, its number, the record). ValueError if `datasets` is not installed."""
    chosen = SETS.get(source) or _named(source.removeprefix(PREFIX))
    try:
        library = import_module("datasets")
    except ImportError as error:
        raise ValueError("sets of the hub need one more package: pip install -r requirements-hub.txt") from error
    stream = library.load_dataset(chosen.path, split=chosen.split, revision=chosen.revision, streaming=True)
    numbered = ((f"row {number}", str(number), record) for number, record in enumerate(stream, 1))
    return _few_shot(numbered)


def _named(name: str) -> HubSet:
    path, _, split = name.partition(":")
    return HubSet(path, split or "validation")


def _few_shot(rows: Iterator[tuple[str, str, object]]) -> Iterator[tuple[str, str, object]]:
    """SAMSum as the paper uses it: each dialogue behind solved ones, which are the passages; other rows as they are.

    The examples are the rows just before, so the first `EXAMPLES` dialogues are examples only.
    """
    solved: deque[Mapping[str, Any]] = deque(maxlen=EXAMPLES)
    for where, number, record in rows:
        if not isinstance(record, Mapping) or not {"dialogue", "summary"} <= record.keys():
            yield where, number, record
            continue
        asked = DIALOGUE.format(dialogue=record["dialogue"])
        if len(solved) == EXAMPLES:
            fields = {"question": asked, "answers": [record["summary"]], "ctxs": list(solved), "task": "summary"}
            yield where, number, fields
        solved.append({"title": "", "text": f"{asked} {record['summary']}"})
