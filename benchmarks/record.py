"""Record the run that the page opens on: the first question of the first sample collection, inspected.

`python -m benchmarks.record` writes assets/recorded/first.json on the embedded model. Everything in it is measured; the
attention maps are pooled, and of every fourth layer, so that the file stays small.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from cacheblend.engine import Engine
from cacheblend.events import Compared
from cacheblend.inspection import store_attention
from cacheblend.recording import to_json
from cacheblend.samples import load_samples

OUT = Path(__file__).resolve().parent.parent / "assets" / "recorded" / "first.json"
ATTENTION_SIZE = 72
EVERY_LAYERS = 4
TOP_K = 6


def main() -> None:
    """Run, inspect, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    sample = load_samples()[0]
    question = sample.questions[0].question
    engine = Engine.load(progress=lambda what: None)
    engine.calibrate(recalibrate=True)  # so that the run says what was expected of it
    collection = engine.collection()
    collection.add(sample.paths)
    engine.precompute(collection.chunks)
    hits = collection.search(question, top_k=TOP_K)
    comparison = [list(engine.compare(question, hits))[-1] for _ in range(2)][-1]  # the first warms the machine
    if not isinstance(comparison, Compared):
        raise TypeError("a comparison ends with Compared")
    inspected = store_attention(
        engine.inspect(question, hits), len(comparison.comparison.tokens), size=ATTENTION_SIZE, every=EVERY_LAYERS
    )
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(to_json(replace(comparison.comparison, inspection=inspected)))
    for trace in comparison.comparison.traces:
        print(f"{trace.mode}: {trace.ttft_ms:.0f} ms · {trace.answer}")
    print(f"{args.out} · {args.out.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
