"""Statistics that the figures show, over arrays of shape (layers, tokens) or (rows, cols).

Numpy only: knows nothing of models, traces or pictures. A value that does not exist (a rank correlation with a constant
layer, the mean of nothing) is NaN, never a stand-in number.
"""

from __future__ import annotations

from typing import Literal

import numpy as np


def ranks(values: np.ndarray) -> np.ndarray:
    """Rank a vector from 1, ties sharing the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[inverse]


def spearman(matrix: np.ndarray) -> np.ndarray:
    """Return the rank correlation of every pair of rows, (layers, layers); NaN where a row is constant or too short."""
    layers, tokens = matrix.shape
    if tokens < 2:
        return np.full((layers, layers), np.nan)
    centred = np.stack([ranks(row) for row in matrix]) - (tokens + 1) / 2
    norms = np.linalg.norm(centred, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation: np.ndarray = centred @ centred.T / np.outer(norms, norms)
    return correlation.clip(-1, 1)


def topk_overlap(matrix: np.ndarray, share: float) -> np.ndarray:
    """Return the share of the top tokens that every pair of rows has in common, (layers, layers).

    The top are the ⌈share · tokens⌉ largest of a row, the earlier first among equals; a constant row has none: NaN.
    """
    layers, tokens = matrix.shape
    if not 0 < share <= 1:
        raise ValueError(f"share must be in (0, 1], got {share}")
    count = int(np.ceil(share * tokens))
    is_top = np.zeros((layers, tokens), dtype=np.float64)
    order = np.argsort(-matrix, axis=1, kind="stable")[:, :count]
    np.put_along_axis(is_top, order, 1.0, axis=1)
    is_top[is_constant(matrix)] = np.nan
    return is_top @ is_top.T / count if count else np.full((layers, layers), np.nan)


def is_constant(matrix: np.ndarray) -> np.ndarray:
    """Tell for each row whether all its values are equal; a row without values is."""
    return np.ptp(matrix, axis=1) == 0 if matrix.shape[1] else np.ones(len(matrix), dtype=bool)


def empirical_cdf(values: np.ndarray, points: int = 128) -> tuple[np.ndarray, np.ndarray]:
    """Return at most `points` quantiles and the share of values at or below each, both ascending; empty for nothing."""
    ordered = np.sort(values[np.isfinite(values)])
    if not len(ordered):
        return ordered, ordered
    picked = np.unique(np.linspace(0, len(ordered) - 1, points).round().astype(int))
    return ordered[picked], np.searchsorted(ordered, ordered[picked], side="right") / len(ordered)


def pool_edges(start: int, stop: int, size: int) -> np.ndarray:
    """Cut start…stop-1 into at most `size` cells of one width, the last maybe narrower; returns cells+1 positions."""
    if stop <= start or size < 1:
        raise ValueError(f"cannot cut {start}…{stop} into {size} cells")
    step = -(-(stop - start) // size)
    return np.append(np.arange(start, stop, step), stop)


def pool_columns(matrix: np.ndarray, size: int, how: Literal["mean", "max"]) -> tuple[np.ndarray, np.ndarray]:
    """Pool (rows, tokens) along tokens to at most `size` columns; returns (rows, cells) and the cells+1 edges."""
    edges = pool_edges(0, matrix.shape[1], size)
    if how == "max":
        return np.maximum.reduceat(matrix, edges[:-1], axis=1), edges
    sums = np.add.reduceat(matrix.astype(np.float64), edges[:-1], axis=1)
    return (sums / np.diff(edges)).astype(np.float32), edges


def pool_matrix(matrix: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pool a matrix to at most size × size by the mean of what is not NaN; returns it with its row and column edges."""
    rows, cols = pool_edges(0, matrix.shape[0], size), pool_edges(0, matrix.shape[1], size)
    is_there = np.isfinite(matrix)
    sums = _block_sums(np.where(is_there, matrix, 0.0), rows, cols)
    with np.errstate(invalid="ignore", divide="ignore"):
        return (sums / _block_sums(is_there, rows, cols)).astype(np.float32), rows, cols


def _block_sums(matrix: np.ndarray, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
    partial = np.add.reduceat(matrix.astype(np.float64), rows[:-1], axis=0)
    return np.add.reduceat(partial, cols[:-1], axis=1)
