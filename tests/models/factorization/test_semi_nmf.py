"""SemiNMF against an independent reference written from Ding et al. 2010, and its own laws."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.optimize import nnls
from sklearn.exceptions import ConvergenceWarning

from nnfactor.models.factorization.semi_nmf import SemiNMF

K = 4


def parts(Z):
    return (np.abs(Z) + Z) / 2, (np.abs(Z) - Z) / 2


def step(X, V, exponent=0.5):
    """U = X'V (V'V)^+; V *= sqrt[ ((XU)+ + V(U'U)-) / ((XU)- + V(U'U)+) ]"""
    U = X.T @ V @ np.linalg.pinv(V.T @ V)
    (linear_minus, linear_plus), (gram, anti) = parts(X @ U), parts(U.T @ U)
    down, up = linear_minus + V @ anti, linear_plus + V @ gram
    return V * np.where(up > 0, down / np.where(up > 0, up, 1), 1.0) ** exponent, U


def sweep(X, V, sweeps):
    """The same U; V by coordinate descent, column after column; rows without data are 0."""
    U = X.T @ V @ np.linalg.pinv(V.T @ V)
    B, G = X @ U, U.T @ U
    V = V * (np.abs(B) > 0).any(1, keepdims=True)
    for _ in range(sweeps):
        for j in range(V.shape[1]):
            V[:, j] = np.maximum(0, V[:, j] + (B[:, j] - V @ G[:, j]) / G[j, j])
    return V, U


def data(seed=0, shape=(12, 9)):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=shape)
    X[1], X[:, 2] = 0, 0
    V, U = rng.random((shape[0], K)) + 0.1, rng.normal(size=(shape[1], K))
    V[2, 1] = 0
    return X, (V, U)


def same(mine, theirs, tol=1e-9):
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=tol, atol=tol * max(np.abs(b).max(), 1e-300))


@pytest.mark.parametrize("solver, exponent", [("mu", 0.5), ("mu", 1.0), ("hals", 0.5), ("auto", 0.5)])
@pytest.mark.parametrize("n", [5, 300])
def test_states_equal_the_reference(n, solver, exponent):
    X, (V, U) = data()
    model = SemiNMF(K, solver=solver, exponent=exponent, init=(V, U), max_iter=n, tol=0).fit(X)
    for _ in range(n):
        V, U = step(X, V, exponent) if solver == "mu" else sweep(X, V, 1 if solver == "hals" else 6)
    same([model.embedding_, *model.factors_], [V, U])
    np.testing.assert_allclose(model.loss_, np.sum((X - V @ U.T) ** 2))
    np.testing.assert_allclose([model.reconstruction_err_**2, model.history_["objective"][-1]], model.loss_)
    assert model.n_iter_ == n and len(model.history_["objective"]) == n + 1


def test_zero_samples_get_zero_rows_and_the_printed_rule_creeps():
    X = data()[0]
    rows = {
        s: SemiNMF(K, solver=s, random_state=0, max_iter=200, tol=0).fit(X).embedding_[1]
        for s in ("auto", "hals", "mu")
    }
    assert not rows["auto"].any() and not rows["hals"].any() and rows["mu"].max() > 1e-3
    printed = SemiNMF(K, solver="multiplicative", max_iter=60, tol=0, random_state=0).fit(X)
    better = SemiNMF(K, max_iter=60, tol=0, random_state=0).fit(X)
    assert printed.exponent == 0.5 and better.loss_ < printed.loss_


@pytest.mark.parametrize("solver, exponent", [("mu", 0.5), ("mu", 1.0), ("auto", 0.5), ("projected", 0.5)])
@pytest.mark.parametrize("seed", range(15))
def test_the_objective_never_rises(seed, solver, exponent):
    rng = np.random.default_rng(seed)
    n, m, k = (int(v) for v in rng.integers(1, 15, 3))
    X = rng.normal(size=(n, m)) * 10.0 ** rng.integers(-3, 4)
    X[rng.random(n) < 0.2] = 0
    X[:, rng.random(m) < 0.2] = 0
    X = X if seed % 3 else np.repeat(X[:1], n, 0)  # rank one: V'V is singular soon
    for start in ("auto", "random"):
        model = SemiNMF(k, solver=solver, exponent=exponent, init=start, max_iter=80, tol=0, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            history = model.fit(X).history_["objective"]
        assert np.isfinite(history).all() and (np.diff(history) <= 1e-10 * max(np.sum(X**2), history[0])).all()
        assert (model.embedding_ >= 0).all() and np.isfinite(model.factors_[0]).all()


def test_sparse_float32_and_tensors():
    X, start = data()
    X = X * (np.abs(X) > 0.7)
    settings = {"init": start, "max_iter": 50, "tol": 0}
    dense = SemiNMF(K, **settings).fit(X)
    sparse = SemiNMF(K, **settings).fit(sp.csr_array(X))
    same([sparse.embedding_, *sparse.factors_], [dense.embedding_, *dense.factors_], 1e-8)
    same([sparse.transform(sp.csc_array(X))], [dense.transform(X)], 1e-7)
    single = SemiNMF(K, **settings).fit(X.astype(np.float32))
    assert {F.dtype for F in (single.embedding_, *single.factors_, single.transform(X.astype("f4")))} == {
        np.dtype("f4")
    }
    np.testing.assert_allclose(single.loss_, dense.loss_, rtol=1e-4)
    tensor = SemiNMF(K, **settings).fit(torch.from_numpy(X))
    assert isinstance(tensor.embedding_, torch.Tensor)
    same([tensor.embedding_.numpy()], [dense.embedding_], 1e-12)


def test_transform_is_exact_and_inverse_transform_matches():
    X, start = data()
    model = SemiNMF(K, init=start, max_iter=50, tol=0).fit(X)
    new = data(seed=5)[0]
    V, U = model.transform(new), model.factors_[0]
    same([V], [np.stack([nnls(U, x)[0] for x in new])], 1e-8)
    same([model.inverse_transform(V)], [V @ U.T], 1e-12)
    pinv = SemiNMF(K, init=start, max_iter=50, tol=0, transform_method="pinv").fit(X).transform(new)
    same([pinv], [new @ np.linalg.pinv(U).T], 1e-8)
    same([SemiNMF(K, init=start, max_iter=50, tol=0).fit_transform(X)], [model.transform(X)], 1e-12)


@pytest.mark.parametrize("scale", [-1.0, 1e-30, 1e30])
def test_units_and_sign(scale):
    X, (V, U) = data()
    a = SemiNMF(K, init=(V, U), max_iter=60, tol=0).fit(X)
    b = SemiNMF(K, init=(V, U), max_iter=60, tol=0).fit(X * scale)
    same([b.embedding_ @ b.components_], [scale * (a.embedding_ @ a.components_)], 1e-8)


def test_what_is_refused():
    X, (V, U) = data()
    with pytest.raises(ValueError, match=r"exponent must be a number in \(0, 1\]"):
        SemiNMF(K, exponent=0).fit(X)
    with pytest.raises(ValueError, match="solver='cg' is not known; use 'auto', 'multiplicative'"):
        SemiNMF(K, solver="cg").fit(X)
    with pytest.raises(ValueError, match="init: V has 1 negative, NaN or infinite entries"):
        SemiNMF(K, init=(V - 2 * V.max() * (np.arange(V.size).reshape(V.shape) == 0), U)).fit(X)
    with pytest.raises(ValueError, match="init: U1 has 1 NaN or infinite entries; all must be finite"):
        SemiNMF(K, init=(V, np.where(U[0, 0] == U, np.nan, U))).fit(X)
    with pytest.raises(ValueError, match="NaN"):
        SemiNMF(K).fit(np.where(X[0, 0] == X, np.nan, X))


def test_groups_are_found():
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1, 2], 20)
    X = rng.normal(size=(3, 8))[truth] * 3 + 0.2 * rng.normal(size=(60, 8))
    model = SemiNMF(3, random_state=0, max_iter=1000).fit(X)
    assert model.reconstruction_err_ < 0.15 * np.linalg.norm(X)
