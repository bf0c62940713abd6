"""Results made by hand, for everybody who reads, draws or shows them."""

from __future__ import annotations

from cacheblend.evaluation.points import Point, Result
from cacheblend.trace import Environment
from tests.synthetic import HOSTILE

ENVIRONMENT = Environment(
    model="tiny", device="cpu", dtype="float32", threads=1, torch_version="0", recorded_at="2026-01-01T00:00:00Z"
)


def result(experiment: str = "fig16", *, label: str = "", series: str = "blend") -> Result:
    """Two panels of a few points, one with an interval."""
    points = [
        Point(panel="against budget", series=series, x=x, y=1 / (1 + x), low=0.0, high=1.0, n=3, label=label)
        for x in (0.0, 5.0, 15.0)
    ]
    points += [Point(panel="against TTFT", series="full", x=1.0, y=0.0, label=label)]
    return Result(
        experiment=experiment,
        points=tuple(points),
        environment=ENVIRONMENT,
        questions=3,
        context_tokens=(100, 240),
        left_out=("A question does not fit.",),
    )


def hostile(experiment: str = "fig16") -> Result:
    """The same with markup in every text."""
    made = result(experiment, label=HOSTILE, series=HOSTILE)
    return Result(
        experiment=made.experiment,
        points=made.points,
        environment=ENVIRONMENT,
        questions=3,
        context_tokens=(1, 2),
        left_out=(HOSTILE,),
    )
