"""`python -m cacheblend eval DATASET --out DIR`: answer a set of questions in several settings, and compare them.

Stopped by Ctrl-C or killed, the same command goes on where it was.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cacheblend.cancel import Cancelled
from cacheblend.collection import Collection
from cacheblend.commands import options, tiers
from cacheblend.commands.options import say
from cacheblend.commands.stopping import STOPPED, duration, stoppable
from cacheblend.config import BlendConfig
from cacheblend.engine import Engine
from cacheblend.evaluation import hub
from cacheblend.evaluation.datasets import Dataset, read_dataset
from cacheblend.evaluation.question import Task
from cacheblend.evaluation.report import Summary, summarise, table, write_report
from cacheblend.evaluation.rows import RowFile, settings
from cacheblend.evaluation.runner import CHUNK_TOKENS, CHUNKS, Done, EvaluationConfig, evaluate
from cacheblend.fusion.policies import POLICIES
from cacheblend.trace import COMPARED, Deviation, Mode, Recipe, Selector

SHOWN_PROBLEMS = 20


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Say what `eval` takes."""
    blend = BlendConfig()
    command.add_argument(
        "dataset",
        metavar="DATASET",
        help=f"a .json, .jsonl, .csv or .tsv file, a folder, or on the hub: {', '.join(hub.SETS)}, hub:OWNER/NAME",
    )
    command.add_argument("--out", type=Path, required=True, metavar="DIR", help="rows, configuration and summary")
    options.add_several(command, "--modes", Mode, COMPARED, "which ways to answer")
    command.add_argument("--ratios", nargs="+", type=float, default=[blend.share], help="of blend (0.15)")
    command.add_argument(
        "--policies",
        nargs="+",
        choices=list(POLICIES),
        default=[blend.policy],
        metavar="POLICY",
        help=f"which tokens blend recomputes: {', '.join(POLICIES)} (hkvd)",
    )
    options.add_several(
        command, "--recipes", Recipe, [blend.recipe], "what stood in front of a chunk when its cache was made"
    )
    options.add_several(command, "--selectors", Selector, [blend.selector], "when blend chooses")
    options.add_several(
        command, "--deviations", Deviation, [blend.deviation], "which part of the KV a deviation compares"
    )
    command.add_argument("--limit", type=int, metavar="N", help="only the first N questions")
    command.add_argument("--passages", type=int, default=CHUNKS, help="chunks per question (6)")
    command.add_argument("--chunk-tokens", type=int, default=CHUNK_TOKENS, help="cut longer passages (1024)")
    command.add_argument("--max-new-tokens", type=int, help="of an answer (32, of a summary 128)")
    command.add_argument(
        "--task", type=options.one_of(Task), choices=list(Task), help="what the set asks for (as the set says)"
    )
    options.add_model(command)
    tiers.add_store(command)


def run(args: argparse.Namespace) -> int:
    """Read, ask, sum up."""
    config = EvaluationConfig(
        settings=settings(args.modes, args.ratios, args.selectors, args.deviations, args.policies, args.recipes),
        chunks=args.passages,
        chunk_tokens=args.chunk_tokens,
        max_new_tokens=args.max_new_tokens,
    )
    dataset = read_dataset(args.dataset, limit=args.limit, task=args.task)
    _say_problems(dataset)
    with options.engine(args) as engine:
        file = RowFile(args.out, config.described(engine, dataset))
        if file.was_torn:
            say(f"The last row of {file.path} was cut short and is measured again.")
        collection = _collection(engine, dataset, args)
        try:
            with stoppable() as cancel:
                asked = evaluate(engine, dataset, config, file, collection=collection, cancel=cancel)
                done = list(_told(asked, dataset))
        except Cancelled:
            say(f"Stopped; the same command goes on behind the {len(file.rows)} rows in {file.path}.")
            return STOPPED
    skipped = [one.skipped for one in done if one.skipped]
    facts: dict[str, Any] = {
        "config": config.described(engine, dataset),
        "malformed_rows": dataset.problems,
        "skipped_questions": skipped,
        "chunks_prefilled": sum(one.prefilled for one in done),
    }
    rows = list(file.rows.values())
    if not rows:
        raise ValueError("no question could be asked, so there is nothing to sum up.")
    summary = summarise(rows)
    write_report(args.out, rows, summary, facts)
    _print(summary, len(dataset.problems), len(skipped))
    return 0


def _say_problems(dataset: Dataset) -> None:
    """Name the rows that were skipped, the first of them one by one."""
    for problem in dataset.problems[:SHOWN_PROBLEMS]:
        say(f"skipped {problem}")
    if len(dataset.problems) > SHOWN_PROBLEMS:
        say(f"skipped {len(dataset.problems) - SHOWN_PROBLEMS} more malformed rows; summary.json names them")


def _collection(engine: Engine, dataset: Dataset, args: argparse.Namespace) -> Collection | None:
    """Index the documents of a folder, if it is one with documents."""
    if not dataset.documents:
        return None
    args.files = list(dataset.documents)
    return options.collection(engine, args)


def _told(done: Iterator[Done], dataset: Dataset) -> Iterator[Done]:
    """Say how far it is, and how long the rest takes at the pace of the questions measured so far."""
    start, measured, total = time.monotonic(), 0, len(dataset.questions)
    for number, one in enumerate(done, 1):
        measured += bool(one.rows)
        if one.skipped:
            say(one.skipped)
        if one.rows:
            left = (time.monotonic() - start) / measured * (total - number)
            say(f"{number} of {total} questions · about {duration(left)} left")
        yield one


def _print(summary: Summary, malformed: int, skipped: int) -> None:
    """The table, and what a reader must know beside it."""
    print(table(summary))
    print("Means with 95 % bootstrap intervals over questions; Δ is the mode minus full, question by question.")
    if summary.full_zero_f1 is not None and summary.full_not_exact is not None:
        print(
            f"Full itself scores 0 (F1) on {summary.full_zero_f1:.0%} of the questions with a gold answer, "
            f"and is not exactly right on {summary.full_not_exact:.0%}."
        )
    if malformed or skipped:
        print(f"Left out: {malformed} malformed rows, {skipped} questions that do not fit into the model's context.")
