"""`python -m cacheblend experiment NAME… --out DIR`: the paper's figures, and ours, measured on one's own questions.

Each result is written when it is there; stopped by Ctrl-C or killed, the same command goes on with those that are
missing. Knows no pictures: `python -m visualizations DIR` draws what is in the folder.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cacheblend.caches import fingerprint
from cacheblend.cancel import Cancelled
from cacheblend.collection import Collection
from cacheblend.commands import options, tiers
from cacheblend.commands.options import say
from cacheblend.commands.stopping import STOPPED, duration, stoppable
from cacheblend.documents import DocumentError
from cacheblend.documents.split import DEFAULT_CHUNK_TOKENS
from cacheblend.engine import Engine
from cacheblend.evaluation import hub
from cacheblend.evaluation.catalogue import ABOUT
from cacheblend.evaluation.datasets import Dataset, read_dataset
from cacheblend.evaluation.experiments import Asked, Bench, perform
from cacheblend.evaluation.points import Result
from cacheblend.evaluation.results import load, save
from cacheblend.evaluation.rows import claim
from cacheblend.evaluation.runner import CHUNK_TOKENS, CHUNKS, cut
from cacheblend.fusion.policies.base import check_ratio
from cacheblend.retrieval import Hit

ALL, CONFIG = "all", "experiments.json"
EVERY_S = 1.0  # between two lines of progress


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Say what `experiment` takes."""
    command.add_argument(
        "what",
        nargs="*",
        metavar="NAME|FILE",
        help=f"experiments ({ALL}: every one), and, without --dataset, files to ask about",
    )
    command.add_argument("--list", action="store_true", help="name every experiment, and end")
    command.add_argument("--out", type=Path, metavar="DIR", help="a JSON, CSV and JSONL file of each result")
    command.add_argument(
        "--dataset", help=f"questions with passages: a file, a folder, or on the hub: {', '.join(hub.SETS)}"
    )
    command.add_argument("--limit", type=int, metavar="N", help="only the first N questions of the dataset")
    command.add_argument("--question", action="append", default=[], help="about the files; may be given several times")
    command.add_argument("--passages", type=int, default=CHUNKS, help="chunks per question (6)")
    command.add_argument(
        "--chunk-tokens",
        type=int,
        help=f"cut longer passages ({CHUNK_TOKENS}), of files every text ({DEFAULT_CHUNK_TOKENS})",
    )
    command.add_argument("--ratio", type=float, default=0.15, help="of blend, where a figure does not vary it (0.15)")
    command.add_argument("--max-new-tokens", type=int, default=16, help="of an answer (16)")
    options.add_model(command)
    tiers.add_store(command)


def run(args: argparse.Namespace) -> int:
    """Read, measure what is missing, print what is there."""
    if args.list:
        _list()
        return 0
    names, files = chosen(args.what)
    _check(args, names, files)
    dataset = read_dataset(args.dataset, limit=args.limit) if args.dataset else None
    with options.engine(args) as engine:
        asked = tuple(_from_dataset(engine, dataset, args) if dataset else _from_files(engine, files, args))
        if not asked:
            raise ValueError("no question could be used, so there is nothing to measure.")
        args.out.mkdir(parents=True, exist_ok=True)
        claim(args.out / CONFIG, _config(engine, asked, args), "experiments")
        try:
            with stoppable() as cancel:
                bench = Bench(
                    engine=engine, asked=asked, ratio=args.ratio, max_new_tokens=args.max_new_tokens, cancel=cancel
                )
                failed = measure(bench, names, args.out)
        except Cancelled:
            say(f"Stopped; what was finished is in {args.out}, and the same command goes on with the rest.")
            return STOPPED
    say(f"`python -m visualizations {args.out}` draws what is in that folder, on one page.")
    return 2 if failed else 0


def chosen(what: Sequence[str]) -> tuple[list[str], list[Path]]:
    """Tell experiments, in the catalogue's order, from files; ValueError for what is neither."""
    named = {word for word in what if word in ABOUT or word == ALL}
    files = [Path(word) for word in what if word not in named]
    missing = [str(path) for path in files if not path.is_file()]
    if missing:
        raise ValueError(f"{missing[0]} is neither an experiment nor a file: choose of {', '.join((*ABOUT, ALL))}.")
    if not named:
        raise ValueError(f"name an experiment: {', '.join((*ABOUT, ALL))}.")
    return [name for name in ABOUT if name in named or ALL in named], files


def measure(bench: Bench, names: Sequence[str], out: Path) -> list[str]:
    """Run what is not in the folder yet and print each result; returns the names of those that could not be run."""
    _precompute(bench)
    failed = []
    for name in names:
        path = out / f"{name}.json"
        if path.exists():
            say(f"{name} is there already, in {path}.")
            _print(load(path))
            continue
        try:
            result = perform(name, _watched(bench, name))
        except ValueError as error:
            say(f"{name} could not be measured: {error}")
            failed.append(name)
            continue
        save(out, result)
        _print(result)
    return failed


def _check(args: argparse.Namespace, names: Sequence[str], files: Sequence[Path]) -> None:
    if args.out is None:
        raise ValueError(f"name a folder for the result: experiment {' '.join(names)} --out DIR …")
    if bool(args.dataset) == bool(files):
        raise ValueError("give either --dataset, or files and at least one --question.")
    if bool(files) != bool(args.question):
        raise ValueError("files need at least one --question, and a dataset has questions of its own.")
    check_ratio(args.ratio)
    if args.passages < 1 or args.max_new_tokens < 1:
        raise ValueError("--passages and --max-new-tokens must be at least 1.")


def _from_dataset(engine: Engine, dataset: Dataset, args: argparse.Namespace) -> Iterator[Asked]:
    """The questions of a set behind their own passages, or behind what is found in its documents."""
    for problem in dataset.problems:
        say(f"skipped {problem}")
    found = _collection(engine, dataset.documents, args) if dataset.documents else None
    for question in dataset.questions:
        try:
            if found is not None:
                hits = found.search(question.question, args.passages)
            else:
                chunks = cut(question, engine.tokenizer, args.chunk_tokens or CHUNK_TOKENS, args.passages)
                hits = [Hit(chunk, 0.0) for chunk in chunks]  # given, so nothing was measured
            yield Asked(question=question.question, hits=tuple(hits), answers=question.answers)
        except DocumentError as error:
            say(f"Question {question.id} is skipped: {error}")


def _from_files(engine: Engine, files: Sequence[Path], args: argparse.Namespace) -> Iterator[Asked]:
    """The questions of the command line behind what is found in the files."""
    found = _collection(engine, files, args)
    for question in args.question:
        yield Asked(question=question, hits=tuple(found.search(question, args.passages)))


def _collection(engine: Engine, files: Sequence[Path], args: argparse.Namespace) -> Collection:
    args.files, args.chunk_tokens = list(files), args.chunk_tokens or DEFAULT_CHUNK_TOKENS
    made = options.collection(engine, args)
    engine.recipes.learn(*made.vectors)  # a chunk's similar ones are looked for in all files
    return made


def _config(engine: Engine, asked: Sequence[Asked], args: argparse.Namespace) -> dict[str, Any]:
    """What has to be the same for results to stand beside each other, as JSON."""
    environment = asdict(engine.environment)
    del environment["recorded_at"]
    return {
        "questions": [len(asked), _digest((one.question, one.answers) for one in asked)],
        "chunks": _digest(tuple(hit.chunk.token_ids for hit in one.hits) for one in asked),
        "ratio": args.ratio,
        "max_new_tokens": args.max_new_tokens,
        "environment": environment,
        "weights": fingerprint(engine.hf_model)[:16],
    }


def _digest(parts: Iterator[Any]) -> str:
    return hashlib.sha256(repr(list(parts)).encode()).hexdigest()[:16]


def _precompute(bench: Bench) -> None:
    """Make every question's chunk caches before anything is timed."""
    say(f"making the chunk caches of {len(bench.asked)} questions")
    chunks = [hit.chunk for one in bench.asked for hit in one.hits]
    done = bench.engine.precompute(chunks, cancel=bench.cancel)
    if done.skipped:
        say(f"{done.skipped} chunk caches do not fit into the store: each is made again before it is needed.")


def _watched(bench: Bench, name: str) -> Bench:
    """The same bench, telling how far this experiment is and how long the rest takes at its pace so far."""
    start, last = time.monotonic(), float("-inf")

    def tell(done: int, total: int, what: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < EVERY_S:
            return
        last = now
        left = f" · about {duration((now - start) / done * (total - done))} left" if done else ""
        say(f"{name} · {done} of {total} · {what}{left}")

    return Bench(
        engine=bench.engine,
        asked=bench.asked,
        ratio=bench.ratio,
        max_new_tokens=bench.max_new_tokens,
        progress=tell,
        cancel=bench.cancel,
    )


def _list() -> None:
    for about in ABOUT.values():
        print(f"{about.name}  {about.title}\n    {about.asks}" + (f"\n    slow: {about.slow}" if about.slow else ""))


def _print(result: Result) -> None:
    """The points as a table, and what is to be said of them; a matrix has too many for a table."""
    about = ABOUT[result.experiment]
    print(f"{about.title}: {about.asks}")
    if any(point.z is not None for point in result.points):
        print(f"{len(result.points):,} cells of matrices, in the CSV file.")
    else:
        print(table(result))
    for sentence in result.left_out:
        print(f"Left out: {sentence}")
    print()


def table(result: Result) -> str:
    """A line a point, for a terminal."""
    lines = [["panel", "series", "x", "y", "95 %", "n", "label"]]
    for point in result.points:
        interval = f"[{point.low:.4g}, {point.high:.4g}]" if point.low is not None and point.high is not None else ""
        cells = (point.panel, point.series, f"{point.x:.4g}", f"{point.y:.4g}", interval, str(point.n), point.label)
        lines.append([" ".join(cell.split()) for cell in cells])
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines)
