"""The paper's figures, and ours, as functions that return rows.

An experiment is one file here, its entry below, its entry in catalogue.py, and a figure in visualizations/experiments.
"""

from cacheblend.evaluation.experiments import (
    fig02,
    fig04,
    fig06,
    fig07,
    fig08,
    fig12,
    fig13,
    fig14,
    fig15,
    fig16,
    fig17,
    frontier,
)
from cacheblend.evaluation.experiments.base import Asked, Bench, Experiment
from cacheblend.evaluation.points import Result

EXPERIMENTS: dict[str, Experiment] = {
    "fig02": fig02.run,
    "fig04": fig04.run,
    "fig06": fig06.run,
    "fig07": fig07.run,
    "fig08": fig08.run,
    "fig12": fig12.run,
    "fig13": fig13.run,
    "fig14": fig14.run,
    "fig15": fig15.run,
    "fig16": fig16.run,
    "fig17": fig17.run,
    "frontier": frontier.run,
}


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
