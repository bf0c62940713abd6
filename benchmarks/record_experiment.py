"""Record the result that the Experiments tab opens on: the policy frontier on the first sample collection.

`python -m benchmarks.record_experiment` writes assets/recorded/experiment.json on the embedded model, with the first
questions of the collection. Everything in it is measured; run it where nothing else runs, as it holds times.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from cacheblend.engine import Engine
from cacheblend.evaluation.experiments import Asked, Bench, perform
from cacheblend.evaluation.results import to_json
from cacheblend.samples import load_samples

OUT = Path(__file__).resolve().parent.parent / "assets" / "recorded" / "experiment.json"
EXPERIMENT = "frontier"
TOP_K = 6


def main() -> None:
    """Retrieve, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--questions", type=int, default=4)
    args = parser.parse_args()
    sample = load_samples()[0]
    engine = Engine.load(progress=lambda what: None)
    collection = engine.collection()
    collection.add(sample.paths)
    asked = tuple(
        Asked(
            question=known.question,
            hits=tuple(collection.search(known.question, top_k=TOP_K)),
            answers=(known.answer, *known.accepted),
        )
        for known in sample.questions[: args.questions]
    )
    engine.precompute(collection.chunks)
    engine.recipes.learn(*collection.vectors)
    bench = Bench(engine=engine, asked=asked, progress=lambda done, total, what: print(f"{done} of {total} · {what}"))
    result = perform(EXPERIMENT, bench)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(to_json(result) + "\n", encoding="utf-8")
    print(f"{args.out} · {len(result.points)} points · {args.out.stat().st_size / 1e3:.0f} KB")


if __name__ == "__main__":
    main()
