"""The paper's figures, and ours, as functions that return rows.

An experiment is one file here, its entry below, its entry in catalogue.py, and a figure in visualizations/experiments.
"""

from cacheblend.evaluation.experiments.base import Asked, Bench, Experiment
from cacheblend.evaluation.points import Result

EXPERIMENTS: dict[str, Experiment] = {}


def perform(name: str, bench: Bench) -> Result:
    """Run one experiment; raises Cancelled when stopped. ValueError if there is none of that name."""
    if name not in EXPERIMENTS:
        raise ValueError(f"there is no experiment “{name}”: choose one of {', '.join(EXPERIMENTS)}")
    points = tuple(EXPERIMENTS[name](bench))
    lengths = [sum(len(hit.chunk.token_ids) for hit in one.hits) for one in bench.asked]
    return Result(
        experiment=name,
        points=points,
        environment=bench.engine.environment,
        questions=len(bench.asked),
        context_tokens=(min(lengths), max(lengths)),
        left_out=tuple(bench.left_out),
    )


__all__ = ["EXPERIMENTS", "Asked", "Bench", "Experiment", "perform"]
