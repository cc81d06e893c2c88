"""Weights of linear neighbourhoods (Wang and Zhang 2008) against every active set, one by one."""

from itertools import combinations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from nnfactor.core.graph.linear_neighborhood import reconstruction_weights
from nnfactor.core.graph.neighbors import find_nearest, read_points
from nnfactor.graphs import linear_neighborhood_graph


def weights(X, p):
    points = read_points(X)
    return reconstruction_weights(points, find_nearest(points, min(p, points.n - 1)))


def nearest(X, p):
    squared = ((X[:, None] - X) ** 2).sum(2)
    np.fill_diagonal(squared, np.inf)
    return np.argsort(squared, axis=1, kind="stable")[:, :p]


def best_combination(x, near):
    """Weights >= 0 with the sum 1 of least error, and the error: the best of all sets of neighbours that are used."""
    G, found = (near - x) @ (near - x).T, (np.inf, None)
    for size in range(1, len(near) + 1):
        for used in map(list, combinations(range(len(near)), size)):
            system = np.block([[2 * G[np.ix_(used, used)], np.ones((size, 1))], [np.ones((1, size)), np.zeros((1, 1))]])
            part = np.linalg.lstsq(system, np.r_[np.zeros(size), 1], rcond=None)[0][:-1]
            w = np.zeros(len(near))
            w[used] = part
            if part.min() >= -1e-12 and abs(w.sum() - 1) < 1e-9 and w @ G @ w < found[0]:
                found = w @ G @ w, w
    return found


def samples(kind, m, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(-2, 3, (24, m)).astype(float) if kind == "integers" else rng.normal(size=(24, m))


@pytest.mark.parametrize("m", [1, 2, 4, 20])
@pytest.mark.parametrize("kind", ["normal", "integers"])
@pytest.mark.parametrize("p", [1, 3, 6])
def test_errors_are_least_and_weights_are_means(kind, m, p):
    X = samples(kind, m)
    W, near = weights(X, p).toarray(), nearest(X, p)
    assert W.min() >= 0 and np.allclose(W.sum(1), 1, atol=1e-12) and (W.diagonal() == 0).all()
    for i, js in enumerate(near):
        assert np.isclose(W[i, js].sum(), 1)
        error, w = best_combination(X[i], X[js])
        assert abs(((W[i] @ X - X[i]) ** 2).sum() - error) <= 1e-8 * ((X[js] - X[i]) ** 2).sum(1).mean() + 1e-15
        if m >= p and kind == "normal":  # unique
            np.testing.assert_allclose(W[i, js], w, atol=1e-6)


@pytest.mark.parametrize("change", [lambda X: X + 1e6, lambda X: 1e150 * X, lambda X: 1e-150 * X])
def test_shifts_and_scales_change_nothing(change):
    X = samples("normal", 8)
    W, moved = (weights(Z, 5).toarray() for Z in (X, change(X)))
    np.testing.assert_allclose(moved, W, atol=1e-6)


def test_sparse_float32_and_tensors():
    X = samples("normal", 12) * (np.abs(samples("normal", 12, seed=1)) > 0.6)
    W = weights(X, 5).toarray()
    np.testing.assert_allclose(weights(sp.csr_array(X), 5).toarray(), W, atol=1e-9)
    np.testing.assert_allclose(linear_neighborhood_graph(torch.from_numpy(X), 5).toarray(), (W + W.T) / 2, atol=1e-12)
    small = weights(X.astype(np.float32), 5).toarray()
    np.testing.assert_allclose(small, W, atol=1e-4)


def test_duplicates_and_few_samples():
    X = np.array([[0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [3.0, 1.0]])
    W = weights(X, 2).toarray()
    np.testing.assert_allclose(W[:3, :3], (1 - np.eye(3)) / 2, atol=1e-12)
    assert np.isclose(W[3].sum(), 1)
    assert linear_neighborhood_graph([[1.0, 2.0]], 3).toarray().tolist() == [[0.0]]
    assert linear_neighborhood_graph([[1.0], [2.0]], 3).toarray().tolist() == [[0.0, 1.0], [1.0, 0.0]]
    with pytest.raises(ValueError, match="n_neighbors must be a whole number >= 1, got 0"):
        linear_neighborhood_graph(X, 0)
