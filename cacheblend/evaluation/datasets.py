"""A file, a folder or a hub name → questions. Nothing in a file is executed; what is malformed is named and skipped.

Files: .json (a list of records, or one), .jsonl, .csv and .tsv (UTF-8, with a header); records as in `formats.py`.
Folders: documents beside a file `questions.jsonl`, `.json`, `.csv` or `.tsv`, whose rows need no passages; or, without
such a file, dataset files that are read one after the other.
"""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from cacheblend.documents import SUFFIXES
from cacheblend.evaluation import hub
from cacheblend.evaluation.formats import question_of
from cacheblend.evaluation.question import MAX_CHARACTERS, Question, Task

MAX_FILE_BYTES = 512 * 2**20  # of a .json file, which is read whole; ours
MAX_ROW_BYTES = 64 * 2**20  # of one line of JSONL; ours
MAX_PROBLEMS = 1000  # malformed rows after which the file is taken for something else; ours
QUESTIONS = "questions"  # the name of the questions' file among documents

Row = tuple[str, str, Callable[[], Any]]  # where it stands, an id if it has none, how to get the record


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """What was read. problems: one sentence for each row that was skipped; documents: where passages are retrieved."""

    name: str
    questions: tuple[Question, ...]
    problems: tuple[str, ...] = ()
    documents: tuple[Path, ...] = ()

    @property
    def fingerprint(self) -> str:
        """A digest of every question and of the documents' names: two datasets of one fingerprint ask the same."""
        names = [path.name for path in self.documents]
        return hashlib.sha256(repr((self.questions, names)).encode()).hexdigest()[:16]


def read_dataset(source: str, *, limit: int | None = None, task: Task | None = None) -> Dataset:
    """Read the first `limit` questions of a file, a folder or a hub set (all of them by default).

    Raises ValueError or OSError, one sentence, where nothing can be read. task: overrules what the format says.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"the limit must be at least 1 question, got {limit}")
    path = Path(source)
    if path.exists():
        documents, rows = _folder(path) if path.is_dir() else ((), _file(path))
    elif hub.is_name(source):
        documents, rows = (), ((where, number, partial(_same, record)) for where, number, record in hub.records(source))
    else:
        names = ", ".join(hub.SETS)
        raise ValueError(f"{source} is no file or folder, and no hub set: name one of {names}, or hub:OWNER/NAME.")
    read = _read(rows, limit, bool(documents), task)
    if not read.questions:
        why = f": {read.problems[0]}" if read.problems else "."
        raise ValueError(f"{source} has no question that can be used{why}")
    return replace(read, name=path.name if path.exists() else source, documents=documents)


def _read(rows: Iterator[Row], limit: int | None, has_documents: bool, task: Task | None) -> Dataset:
    """Turn rows into questions until the limit is reached."""
    questions: dict[str, Question] = {}
    problems: list[str] = []
    for where, fallback_id, load in rows:
        try:
            question = question_of(load(), fallback_id, has_documents=has_documents, task=task)
            if question.id in questions:
                raise ValueError(f"its id “{question.id}” was used before")
            questions[question.id] = question
        except (ValueError, RecursionError) as error:
            problems.append(f"{where}: {_words(error)}.")
        if len(problems) > MAX_PROBLEMS:
            raise ValueError(f"more than {MAX_PROBLEMS} rows are malformed, the first is {problems[0]}")
        if len(questions) == limit:
            break
    return Dataset(name="", questions=tuple(questions.values()), problems=tuple(problems))


def _words(error: Exception) -> str:
    """Say what is wrong with a row; what a parser says of bytes and columns helps, so it is kept."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, json.JSONDecodeError):
        return f"it is not JSON ({error.msg} at character {error.pos + 1})"
    return "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error).rstrip(".")


# Files → rows


def _file(path: Path) -> Iterator[Row]:
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise ValueError(f"{path.name} is none of {', '.join(READERS)}: convert it to one of them.")
    return reader(path)


def _folder(folder: Path) -> tuple[tuple[Path, ...], Iterator[Row]]:
    """Documents and the questions about them, or dataset files one after the other."""
    files = sorted((path for path in folder.iterdir() if path.is_file()), key=_natural)
    asked = [path for path in files if path.stem == QUESTIONS and path.suffix in READERS]
    if asked:
        documents = tuple(path for path in files if path not in asked and path.suffix.lower() in SUFFIXES)
        if len(asked) > 1 or not documents:
            raise ValueError(f"{folder.name} needs one file of questions and at least one document beside it.")
        return documents, _file(asked[0])
    return (), (
        (f"{path.name}, {where}", path.stem if number == path.stem else f"{path.stem}-{number}", load)
        for path in files
        if path.suffix in READERS
        for where, number, load in _file(path)
    )


def _natural(path: Path) -> list[tuple[int, str]]:
    """Order 2.json before 10.json."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", path.name)]


def _json(path: Path) -> Iterator[Row]:
    with path.open("rb") as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise ValueError(f"{path.name} is larger than {MAX_FILE_BYTES // 2**20} MB: write it as JSONL.")
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path.name} cannot be read: {_words(error)}.") from error
    if not isinstance(content, list):
        yield path.name, path.stem, lambda: content
        return
    for number, record in enumerate(content, 1):
        yield f"row {number}", str(number), partial(_same, record)


def _same(record: Any) -> Any:
    return record


def _jsonl(path: Path) -> Iterator[Row]:
    with path.open("rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(MAX_ROW_BYTES + 1), b""), 1):
            if len(line) > MAX_ROW_BYTES:
                raise ValueError(f"{path.name}, line {number} is larger than {MAX_ROW_BYTES // 2**20} MB: cut it.")
            if line.strip():
                yield f"line {number}", str(number), partial(json.loads, line)


def _table(path: Path, delimiter: str) -> Iterator[Row]:
    csv.field_size_limit(MAX_CHARACTERS)  # the process's own setting; nothing else here reads CSV
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = csv.reader(file, delimiter=delimiter)
        header: list[str] = []
        while True:
            line = lines.line_num + 1  # where the row begins: it can have several lines
            try:
                cells = next(lines)
            except StopIteration:
                return
            except UnicodeDecodeError as error:
                raise ValueError(f"{path.name} is not UTF-8: save it as UTF-8.") from error
            except csv.Error as error:
                yield f"line {line}", str(line), partial(_refuse, f"it is no row of a table ({error})")
                continue
            if not header:
                header = [name.strip() for name in cells]
            elif cells:
                yield f"line {line}", str(line), partial(_record, header, cells)


def _refuse(why: str) -> None:
    raise ValueError(why)


def _record(header: list[str], cells: list[str]) -> dict[str, str]:
    """A row by its header's names, without the empty cells."""
    if len(cells) > len(header):
        raise ValueError("it has more cells than the header")
    return {name: cell for name, cell in zip(header, cells, strict=False) if cell}


READERS: dict[str, Callable[[Path], Iterator[Row]]] = {
    ".json": _json,
    ".jsonl": _jsonl,
    ".csv": partial(_table, delimiter=","),
    ".tsv": partial(_table, delimiter="\t"),
}
