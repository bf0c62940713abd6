"""The statistics against scipy and against hand-made cases."""

from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from cacheblend import analysis


def test_spearman_equals_scipy_with_ties() -> None:
    matrix = np.random.default_rng(0).integers(0, 9, (5, 60)).astype(float)
    expected = stats.spearmanr(matrix, axis=1).statistic
    np.testing.assert_allclose(analysis.spearman(matrix), expected, atol=1e-12)


def test_ranks_equal_scipy() -> None:
    values = np.array([3.0, 1.0, 3.0, 2.0, 3.0])
    np.testing.assert_array_equal(analysis.ranks(values), stats.rankdata(values))


def test_a_constant_row_has_no_rank_correlation_and_no_top() -> None:
    matrix = np.stack([np.zeros(8), np.arange(8.0), -np.arange(8.0)])
    for table in (analysis.spearman(matrix), analysis.topk_overlap(matrix, 0.25)):
        assert np.isnan(table[0]).all() and np.isnan(table[:, 0]).all()
        assert np.isfinite(table[1:, 1:]).all()
    assert analysis.spearman(matrix)[1, 2] == pytest.approx(-1)


def test_topk_overlap_by_hand() -> None:
    matrix = np.array([[9.0, 8, 1, 0], [9, 0, 8, 1], [0, 1, 8, 9]])
    np.testing.assert_allclose(analysis.topk_overlap(matrix, 0.5), [[1, 0.5, 0], [0.5, 1, 0.5], [0, 0.5, 1]])


@pytest.mark.parametrize("share", [0.0, -0.1, 1.1])
def test_topk_overlap_refuses_a_share_outside_its_range(share: float) -> None:
    with pytest.raises(ValueError, match="share must be in"):
        analysis.topk_overlap(np.ones((2, 4)), share)


def test_cdf_rises_to_one_and_agrees_with_counting() -> None:
    values = np.random.default_rng(1).random(1000)
    x, share = analysis.empirical_cdf(values, 50)
    assert len(x) == 50
    assert share[-1] == 1
    np.testing.assert_allclose(share, [(values <= at).mean() for at in x])


def test_cdf_of_nothing_is_empty() -> None:
    assert all(len(part) == 0 for part in analysis.empirical_cdf(np.array([np.nan])))


@pytest.mark.parametrize(("tokens", "size"), [(10, 4), (10, 10), (10, 100), (7, 1), (4000, 2048)])
def test_edges_cover_everything_once_and_fit(tokens: int, size: int) -> None:
    edges = analysis.pool_edges(3, 3 + tokens, size)
    assert edges[0] == 3 and edges[-1] == 3 + tokens
    assert 1 <= len(edges) - 1 <= size
    assert (np.diff(edges) > 0).all()
    assert len(set(np.diff(edges)[:-1])) <= 1


def test_column_pooling_equals_the_naive_loop() -> None:
    matrix = np.random.default_rng(2).random((3, 11)).astype(np.float32)
    for how, naive in (("max", np.max), ("mean", np.mean)):
        pooled, edges = analysis.pool_columns(matrix, 4, how)
        expected = [naive(matrix[:, a:b], axis=1) for a, b in pairwise(edges)]
        np.testing.assert_allclose(pooled, np.stack(expected, axis=1), rtol=1e-6)


def test_matrix_pooling_ignores_nan_and_keeps_empty_cells_nan() -> None:
    matrix = np.array([[1.0, np.nan, np.nan, np.nan], [3, 5, np.nan, np.nan]])
    pooled, rows, cols = analysis.pool_matrix(matrix, 2)
    np.testing.assert_array_equal(rows, [0, 1, 2])
    np.testing.assert_array_equal(cols, [0, 2, 4])
    np.testing.assert_allclose(pooled, [[1, np.nan], [4, np.nan]])
