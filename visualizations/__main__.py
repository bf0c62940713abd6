"""`python -m visualizations DIR`: everything that was measured into a folder, as one page, DIR/report.html."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from cacheblend.evaluation.points import Result
from cacheblend.evaluation.results import is_result, load
from visualizations.evaluations import evaluation
from visualizations.report import page

REPORT = "report.html"


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page; status 2 and a sentence if there is nothing to show."""
    parser = argparse.ArgumentParser(prog="visualizations", description="Draw a folder of results on one page.")
    parser.add_argument("folder", type=Path, metavar="DIR", help="of `python -m cacheblend experiment` or `eval`")
    folder: Path = parser.parse_args(argv).folder
    try:
        out = write(folder)
    except (ValueError, OSError) as error:
        sys.stderr.write(f"visualizations: {error}\n")
        return 2
    sys.stdout.write(f"{out} · {out.stat().st_size / 1e6:.1f} MB, readable without a network\n")
    return 0


def write(folder: Path) -> Path:
    """Write the report of a folder and return its path; what cannot be read is named on the page."""
    if not folder.is_dir():
        raise ValueError(f"{folder} is no folder: name the one that results were written into.")
    problems: list[str] = []
    results: list[Result] = []
    for path in sorted(folder.glob("*.json")):
        if is_result(path):
            try:
                results.append(load(path))
            except ValueError as error:
                problems.append(str(error).replace(f"{folder}/", ""))
    extra = []
    try:
        extra = [section] if (section := evaluation(folder)) else []
    except ValueError as error:
        problems.append(str(error))
    if not results and not extra and not problems:
        raise ValueError(f"{folder} has no results: run `python -m cacheblend experiment … --out {folder}` first.")
    out = folder / REPORT
    out.write_text(page(results, extra, problems), encoding="utf-8")
    return out


if __name__ == "__main__":
    sys.exit(main())
