"""Every selection policy and recipe at the same budgets, on questions of your own: distance to full, and time.

`python -m benchmarks.policies MUSIQUE.json --out build/policies`; a run that was stopped goes on where it was.
Distances do not depend on what else the machine does; times do, so run a few questions once more with nothing else
running (`--limit 3 --out build/policies-time`).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from cacheblend.config import BlendConfig
from cacheblend.engine import Engine
from cacheblend.evaluation.datasets import read_dataset
from cacheblend.evaluation.experiments.means import closed_points
from cacheblend.evaluation.report import SettingSummary, summarise, write_report
from cacheblend.evaluation.rows import Row, RowFile, Setting
from cacheblend.evaluation.runner import EvaluationConfig, evaluate
from cacheblend.fusion.policies import POLICIES
from cacheblend.trace import Deviation, Lane, Mode, Recipe, Selector

PAPER = 0.15  # the ratio that CacheBlend recommends: what is not varied at every ratio is measured there
ONCE = ("oracle",)  # a full prefill each time
ENDS = ("all", "none")


def settings(ratios: list[float]) -> tuple[Setting, ...]:
    """Full, reuse with every recipe, every policy at every ratio on bare chunks, PrimeBlend and what it is made of."""
    blends = [
        BlendConfig(ratio=ratio, policy=policy, selector=selector)
        for policy in POLICIES
        if policy not in ENDS
        for selector in (Selector if policy == "hkvd" else [Selector.SINGLE])
        for ratio in ([PAPER] if policy in ONCE else ratios)
    ]
    blends += [BlendConfig(ratio=PAPER, deviation=deviation) for deviation in (Deviation.KEY, Deviation.BOTH)]
    blends += [BlendConfig(ratio=PAPER, policy=policy, recipe=Recipe.NEUTRAL) for policy in ("hkvd", "query")]
    blends += [
        BlendConfig(ratio=PAPER, policy="late-query", recipe=recipe)
        for recipe in (Recipe.PREFIX, Recipe.NEUTRAL, Recipe.SIMILAR)
    ]
    made = [Setting(Mode.FULL), Setting(Mode.UNPLACED)]
    made += [Setting(Mode.REUSE, BlendConfig(recipe=recipe)) for recipe in Recipe]
    made += [Setting(Mode.BLEND, blend) for blend in blends]
    made += [Setting(Mode.PRIME, BlendConfig(ratio=ratio)) for ratio in ratios]
    return tuple(dict.fromkeys(made))


def line(setting: SettingSummary) -> str:
    """One line of a Markdown table."""
    means = setting.means
    kl, top1 = means["mean_kl"], means["top1_agreement"]
    selecting = setting.parts_ms.get(Lane.SELECT, 0.0) / means["ttft_ms"].mean
    return (
        f"| {setting.setting} | {kl.mean:.4f} [{kl.low:.4f}, {kl.high:.4f}] | {top1.mean:.3f} "
        f"| {setting.speedup:.2f} × | {selecting:.1%} | {means['recomputed_share'].mean:.1%} |"
    )


def against_hkvd(rows: Sequence[Row], ours: float, theirs: float) -> str:
    """PrimeBlend at one ratio held against HKVD at another, over the same questions, in a sentence."""
    kl = {(row.setting, row.question_id): row.mean_kl for row in rows if row.mean_kl is not None}
    prime = Setting(Mode.PRIME, BlendConfig(ratio=ours)).label
    hkvd = Setting(Mode.BLEND, BlendConfig(ratio=theirs)).label
    asked = [question for setting, question in kl if setting == prime and (hkvd, question) in kl]
    near, far = [kl[prime, question] for question in asked], [kl[hkvd, question] for question in asked]
    (closed,) = closed_points(near, far, panel="", series="", x=ours)
    within = "" if closed.high is None else f" [{1 - closed.high:.2f}, {1 - (closed.low or 0):.2f}]"
    nearer = sum(a < b for a, b in zip(near, far, strict=True))
    return (
        f"PrimeBlend at {ours:.0%} has {1 - closed.y:.2f} ×{within} the KL of HKVD at {theirs:.0%}, "
        f"and is nearer to full in {nearer} of {len(asked)} questions."
    )


def main() -> None:
    """Measure what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", help="questions with passages, as for `python -m cacheblend eval`")
    parser.add_argument("--out", type=Path, required=True, help="rows, so that a run can go on; summary.json, rows.csv")
    parser.add_argument("--limit", type=int, default=25, help="only the first so many questions (25)")
    parser.add_argument("--passages", type=int, default=6)
    parser.add_argument("--ratios", nargs="+", type=float, default=[0.05, 0.15, 0.30])
    parser.add_argument(
        "--answer", type=int, default=16, help="tokens of full's answer along which KL is measured (16)"
    )
    parser.add_argument("--model", default="embedded")
    args = parser.parse_args()
    engine = Engine.load(args.model)
    config = EvaluationConfig(
        settings=settings(args.ratios), chunks=args.passages, max_new_tokens=args.answer, deviations=False
    )
    dataset = read_dataset(args.dataset, limit=args.limit)
    file = RowFile(args.out, config.described(engine, dataset))
    start = time.monotonic()
    for number, done in enumerate(evaluate(engine, dataset, config, file), 1):
        minutes = (time.monotonic() - start) / 60
        print(f"{number} of {len(dataset.questions)} · {minutes:.0f} min {done.skipped}", file=sys.stderr, flush=True)
    rows = list(file.rows.values())
    summary = summarise(rows)
    write_report(args.out, rows, summary, {"config": config.described(engine, dataset)})
    print("| setting | mean KL to full [95 %] | top-1 | sooner than full | choosing | recomputed |")
    print("|---|---|---|---|---|---|")
    for setting in summary.settings:
        print(line(setting))
    print()
    pairs = [(ratio, ratio) for ratio in args.ratios] + [(min(args.ratios), PAPER)] * (PAPER in args.ratios)
    for ours, theirs in dict.fromkeys(pairs):
        print(against_hkvd(rows, ours, theirs))


if __name__ == "__main__":
    main()
