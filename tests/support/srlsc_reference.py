"""Plain float64 references for Fan et al. 2011 and harmonic functions, straight from the papers."""

import numpy as np
from scipy.optimize import linprog


def unit(X):
    norm = np.linalg.norm(X, axis=1, keepdims=True)
    return X / np.where(norm > 0, norm, 1)


def data(n=40, m=12, seed=0, rank=4):
    rng = np.random.default_rng(seed)
    return rng.gamma(1.0, 1.0, (n, rank)) @ rng.gamma(1.0, 1.0, (rank, m)) + 0.1 * rng.gamma(1.0, 1.0, (n, m))


def blobs(n=60, classes=3, m=4, seed=0, labelled=3, offset=0.0):
    rng = np.random.default_rng(seed)
    truth = np.arange(n) % classes
    X = 6 * rng.normal(size=(classes, m))[truth] + rng.normal(size=(n, m)) + offset
    y = np.where(np.arange(n) < classes * labelled, truth, -1)
    return X, y, truth


def program(D, x):
    """Optimal value of min ||a||_1 + ||e||_1, x = D'a + e, by linear programming."""
    A = np.hstack([D.T, -D.T, np.eye(len(x)), -np.eye(len(x))])
    return linprog(np.ones(A.shape[1]), A_eq=A, b_eq=x, method="highs").fun


def squared(X, Z):
    return ((X[:, None] - Z[None]) ** 2).sum(2)


def neighbours(X, p):
    d = squared(X, X)
    np.fill_diagonal(d, np.inf)
    S = np.zeros(d.shape)
    for i, row in enumerate(np.argsort(d, axis=1, kind="stable")[:, :p]):
        S[i, row] = 1
    return np.maximum(S, S.T)


def heat(X, p, sigma=None):
    S, d = neighbours(X, p), squared(X, X)
    lengths = np.sqrt(d[np.triu(S) > 0])
    sigma = np.median(lengths[lengths > 0]) if sigma is None else sigma
    return S * np.exp(-d / sigma**2), sigma


def one_hot(y, classes):
    return (y[:, None] == np.arange(classes)).astype(float)


def harmonic(W, y, classes):
    Y, u = one_hot(y, classes), y < 0
    L = np.diag(W.sum(1)) - W
    Y[u] = np.linalg.solve(L[np.ix_(u, u)], W[np.ix_(u, ~u)] @ Y[~u])
    return Y


def consistent(W, y, classes, alpha):
    r = 1 / np.sqrt(W.sum(1))
    return np.linalg.solve(np.eye(len(W)) - alpha * r[:, None] * W * r, one_hot(y, classes))


def least_squares(K, M, y, classes, CA, CI):
    J = np.diag((y >= 0).astype(float))
    return np.linalg.solve(J @ K + CA * np.eye(len(K)) + CI * M @ K, one_hot(y, classes))
