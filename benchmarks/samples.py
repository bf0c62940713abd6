"""Every question of every sample collection in the three modes: what really happened.

`python -m benchmarks.samples --json assets/samples/measured.json` asks each question over its own collection (top 6
chunks, nearest first, greedy decoding, chunk caches warm) and prints a Markdown table: whether each answer is right,
how much sooner the first token came than with full recompute, and how far the mode is from full. An answer is judged
by `cacheblend.samples.is_right`. No question is left out of the table.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cacheblend.collection import Collection
from cacheblend.config import BlendConfig
from cacheblend.engine import Engine
from cacheblend.events import Compared
from cacheblend.prompt import PromptPlan
from cacheblend.samples import Sample, SampleQuestion, is_right, load_samples
from cacheblend.trace import Comparison, Fidelity, Lane, Mode

CACHED = (Mode.REUSE, Mode.BLEND)
MODES = (Mode.FULL, *CACHED)
NOTE = (
    "The questions were written to show what happens between chunks, and many wordings were tried on this model before "
    "these were kept: they illustrate, they are no random sample. In another order of the chunks some verdicts change. "
    "Every question of the collections is in the table."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What one mode made of one question. ttft_ms: median of the rounds; speedup: full's ttft_ms divided by it."""

    answer: str
    is_right: bool
    ttft_ms: float
    speedup: float
    recomputed_share: float
    fidelity: Fidelity


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One question in every mode. found: whether both documents that it needs were among the chunks retrieved."""

    sample: str
    question: str
    expected: str
    found: bool
    prompt_tokens: int
    modes: dict[Mode, Answered]

    def shows(self, full: bool, reuse: bool, blend: bool) -> bool:
        """Tell whether exactly these modes were right."""
        return [self.modes[mode].is_right for mode in MODES] == [full, reuse, blend]


def main() -> None:
    """Measure, print, and write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--dtype")
    parser.add_argument("--device")
    parser.add_argument("--ratio", type=float, default=BlendConfig().ratio)
    parser.add_argument("--top-k", type=int, default=6)
    parser.add_argument("--max-new-tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3, help="prefills per mode and question that are timed")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    engine = Engine.load(args.model, device=args.device, dtype=args.dtype, progress=lambda what: None)
    rows = [row for sample in load_samples() for row in measure(engine, sample, args)]
    print_summary(summary(rows))
    if args.json:
        args.json.write_text(json.dumps(report(engine, args, rows), indent=1, ensure_ascii=False) + "\n")


def measure(engine: Engine, sample: Sample, args: argparse.Namespace) -> Iterable[Row]:
    """Ask every question of one collection, printing each row as it comes."""
    print_head(sample)
    collection = engine.collection()
    collection.add(sample.paths)
    engine.precompute(collection.chunks)
    for question in sample.questions:
        row = ask(engine, collection, sample, question, args)
        print_row(row)
        yield row


def ask(
    engine: Engine, collection: Collection, sample: Sample, question: SampleQuestion, args: argparse.Namespace
) -> Row:
    """Run one question in every mode."""
    hits = collection.search(question.question, args.top_k)
    blend = BlendConfig(ratio=args.ratio)
    events = engine.compare(question.question, hits, blend=blend, max_new_tokens=args.max_new_tokens)
    comparison = next(event.comparison for event in events if isinstance(event, Compared))
    plan = engine.plan(question.question, hits, max_new_tokens=args.max_new_tokens)
    ttft = time_to_first_token(engine, plan, blend, args.rounds)
    return Row(
        sample=sample.slug,
        question=question.question,
        expected=question.answer,
        found=set(question.documents) <= {hit.chunk.document for hit in hits},
        prompt_tokens=len(comparison.tokens),
        modes={mode: answered(comparison, mode, question, ttft) for mode in MODES},
    )


def time_to_first_token(engine: Engine, plan: PromptPlan, blend: BlendConfig, rounds: int) -> dict[Mode, float]:
    """Milliseconds of each mode, median of rounds that interleave the modes, because machines drift."""
    times: dict[Mode, list[float]] = {mode: [] for mode in MODES}
    for _ in range(rounds):
        for mode in MODES:
            spans = engine.prefill_plan(plan, mode, blend).spans.spans()
            times[mode].append(next(span.end_ms for span in spans if span.lane is Lane.FIRST_TOKEN))
    return {mode: statistics.median(values) for mode, values in times.items()}


def answered(comparison: Comparison, mode: Mode, question: SampleQuestion, ttft: dict[Mode, float]) -> Answered:
    """Judge one mode of a comparison that ran all three."""
    trace = comparison.trace(mode)
    if trace is None or trace.fidelity is None:
        raise ValueError(f"the comparison did not run {mode} beside full")
    return Answered(
        answer=trace.answer,
        is_right=is_right(trace.answer, question),
        ttft_ms=round(ttft[mode], 1),
        speedup=round(ttft[Mode.FULL] / ttft[mode], 2),
        recomputed_share=round(trace.recomputed_share, 4),
        fidelity=trace.fidelity,
    )


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Counts over all questions, and medians of the measures."""
    return {
        "questions": len(rows),
        "both_documents_found": sum(row.found for row in rows),
        "right": {mode: sum(row.modes[mode].is_right for row in rows) for mode in MODES},
        "full_right_reuse_wrong": sum(row.shows(True, False, b) for row in rows for b in (False, True)),
        "full_right_reuse_wrong_blend_right": sum(row.shows(True, False, True) for row in rows),
        "full_wrong_blend_right": sum(row.shows(False, r, True) for row in rows for r in (False, True)),
        "median": {mode: medians([row.modes[mode] for row in rows]) for mode in CACHED},
    }


def medians(answers: Sequence[Answered]) -> dict[str, float]:
    """Medians over questions of one mode's measures."""
    return {
        "speedup": round(statistics.median(a.speedup for a in answers), 2),
        "first_token_kl": round(statistics.median(a.fidelity.first_token_kl for a in answers), 3),
        "mean_kl": round(statistics.median(a.fidelity.mean_kl for a in answers), 3),
        "top1_agreement": round(statistics.median(a.fidelity.top1_agreement for a in answers), 3),
    }


def report(engine: Engine, args: argparse.Namespace, rows: Sequence[Row]) -> dict[str, Any]:
    """Everything that was measured, with where and how."""
    settings = {name: getattr(args, name) for name in ("ratio", "top_k", "max_new_tokens", "rounds")}
    return {
        "command": shlex.join(["python", "-m", "benchmarks.samples", *sys.argv[1:]]),
        "note": NOTE,
        "environment": asdict(engine.environment),
        "settings": {**settings, "ordering": "relevance", "policy": BlendConfig().describe(Mode.BLEND)},
        "summary": summary(rows),
        "rows": [asdict(row) for row in rows],
    }


def print_head(sample: Sample) -> None:
    """A table of its own for each collection."""
    print(f"\n### {sample.title}\n")
    print("| question | expected | full | reuse | blend | TTFT full ÷ reuse / blend | KL | top-1 |")
    print("|---|---|---|---|---|---|---|---|")


def print_row(row: Row) -> None:
    """One question; reuse / blend where a cell has two numbers."""
    verdicts = " | ".join("right" if row.modes[mode].is_right else "wrong" for mode in MODES)
    reuse, blend = (row.modes[mode] for mode in CACHED)
    print(
        f"| {row.question}{'' if row.found else ' ¹'} | {row.expected} | {verdicts} "
        f"| {reuse.speedup:.1f} / {blend.speedup:.1f} "
        f"| {reuse.fidelity.first_token_kl:.2f} / {blend.fidelity.first_token_kl:.2f} "
        f"| {reuse.fidelity.top1_agreement:.2f} / {blend.fidelity.top1_agreement:.2f} |",
        flush=True,
    )


def print_summary(counts: dict[str, Any]) -> None:
    """The counts, in words."""
    right, total = counts["right"], counts["questions"]
    lost, kept = counts["full_right_reuse_wrong"], counts["full_right_reuse_wrong_blend_right"]
    print("\n¹ one of the two documents it needs was not retrieved")
    print(f"\nRight of {total}: full {right['full']}, reuse {right['reuse']}, blend {right['blend']}.")
    print(f"Full right and reuse wrong: {lost}; of these blend is right in {kept}.")
    print(f"Blend right where full is wrong: {counts['full_wrong_blend_right']}.")
    for mode, values in counts["median"].items():
        print(
            f"Median of {mode}: first token {values['speedup']} × sooner than full, "
            f"first-token KL {values['first_token_kl']}, top-1 agreement {values['top1_agreement']}."
        )
    print(f"\n{NOTE}")


if __name__ == "__main__":
    main()
