"""SULF, one iteration at a time, written from Jiang et al. 2014, the rule of V corrected; and small problems for it. Only NumPy."""

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

PAPER = {"beta": 1e8, "gamma": 100.0, "lam": 1000.0}
MILD = {"beta": 1.0, "gamma": 0.01, "lam": 1.0}
K = 4


def ratio(down, up):
    return np.where(up > 0, down / np.where(up > 0, up, 1), 1.0)


def parts(Z):
    return (np.abs(Z) + Z) / 2, (np.abs(Z) - Z) / 2


def solve_W(V, Y, E, beta, gamma):
    """[sqrt(beta) V_l; sqrt(gamma E)] W = [sqrt(beta) Y; 0]"""
    known = Y.any(1)
    A = np.vstack([np.sqrt(beta) * V[known], np.diag(np.sqrt(gamma * E))])
    return np.linalg.lstsq(A, np.vstack([np.sqrt(beta) * Y[known], np.zeros((len(E), Y.shape[1]))]), rcond=None)[0]


def project(c, lam):
    """Minimiser of c'pi + lam pi'pi on the simplex, by bisection on its multiplier."""
    if lam == 0:
        return np.eye(len(c))[np.argmin(c)]
    low, high = c.min(), c.min() + 2 * lam
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(middle - c, 0).sum() < 2 * lam else (low, middle)
    pi = np.maximum(high - c, 0)
    return pi / pi.sum()


def step(views, state, Y, beta, gamma, lam, eta=1.0, eps=1e-10, printed=False, learned=True, free=()):
    """One iteration: W; all U; V_l and V_ul from the V before; pi."""
    V, Us, W, pi = state
    if W is not None:
        W = solve_W(V, Y, 1 / (2 * np.sqrt((W**2).sum(1) + eps)), beta, gamma)
    new = []
    for p, (X, U) in enumerate(zip(views, Us)):
        new.append(X.T @ V @ np.linalg.pinv(V.T @ V) if p in free else U * ratio(X.T @ V, U @ (V.T @ V)))
    down, up = np.zeros_like(V), np.zeros_like(V)
    for X, U, w in zip(views, new, pi):
        plus, minus = parts(X @ U)
        gram, anti = parts(U.T @ U)
        down += w * (plus + V @ anti)
        up += w * (minus + V @ gram)
    if W is not None:
        known = Y.any(1)[:, None]
        plus, minus = parts(Y @ W.T)
        down, up = down + beta * plus, up + beta * minus
        if not printed:
            gram, anti = parts(W @ W.T)
            down, up = down + known * beta * (V @ anti), up + known * beta * (V @ gram)
    V = V * ratio(down, up) ** eta
    if learned:
        pi = project(np.array([np.sum((X - V @ U.T) ** 2) for X, U in zip(views, new)]), lam)
    return V, new, W, pi


def loss(views, state, Y, beta, gamma, lam, eps=1e-10):
    V, Us, W, pi = state
    total = sum(w * np.sum((X - V @ U.T) ** 2) for X, U, w in zip(views, Us, pi)) + lam * np.sum(pi**2)
    if W is not None:
        known = Y.any(1)
        total += beta * np.sum((V[known] @ W - Y[known]) ** 2) + gamma * np.sqrt((W**2).sum(1) + eps).sum()
    return total


def problem(seed=0, n=14, widths=(6, 9, 5), k=K, signed=()):
    """Views with zero rows and columns, labels of three classes, a start with a few zeros."""
    rng = np.random.default_rng(seed)
    views = [rng.random((n, m)) ** 2 for m in widths]
    views = [X - 0.4 if p in signed else X for p, X in enumerate(views)]
    views[0][3] = views[-1][3] = 0
    views[0][:, 1] = 0
    y = np.where(np.arange(n) % 3 == 0, rng.integers(0, 3, n), -1)
    y[[0, 3, 6]] = 0, 1, 2
    V, Us = rng.random((n, k)) + 0.1, [rng.random((m, k)) + 0.1 for m in widths]
    V[2, 1] = Us[0][0, 0] = 0
    return views, y, (V, *Us)


def one_hot(y):
    return np.where(y[:, None] >= 0, np.eye(3)[y], 0.0)


def reference(views, y, start, n_iter, **kw):
    V, *Us = start
    Y, weights = one_hot(y), {key: kw[key] for key in ("beta", "gamma", "lam")}
    W = solve_W(V, Y, np.ones(V.shape[1]), kw["beta"], kw["gamma"]) if kw["beta"] else None
    state = (V, Us, W, kw.pop("pi", np.full(len(views), 1 / len(views))))
    for _ in range(n_iter):
        state = step(views, state, Y, **kw)
    return state, loss(views, state, Y, **weights)


def same(mine, theirs, tol=1e-9):
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=tol, atol=tol * max(np.abs(b).max(), 1e-300))


def fitted(model):
    return [model.embedding_, *model.factors_, model.view_weights_]


def quiet_fit(model, X, y=None):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, y)
