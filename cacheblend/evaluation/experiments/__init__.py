"""The paper's figures, and ours, as functions that return rows. An experiment is one file and one entry here."""

from cacheblend.evaluation.experiments.base import Asked, Bench, Experiment, Point, Result

EXPERIMENTS: dict[str, Experiment] = {}

__all__ = ["EXPERIMENTS", "Asked", "Bench", "Experiment", "Point", "Result"]
