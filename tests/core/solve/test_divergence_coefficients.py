"""Coefficients under Kullback-Leibler: Newton's method against many multiplicative steps."""

import numpy as np
import pytest
import torch

from nnfactor import NMF, NTF
from nnfactor.core import as_data
from nnfactor.core.solve import nnls as solver
from nnfactor.core.solve.nnls import divergence_coefficients


def planted(n, m, k, seed, mean, zeros):
    """Counts with empty rows, and bases of which some entries are zero, and one is nearly another."""
    rng = np.random.default_rng(seed)
    U = rng.gamma(0.5, size=(m, k)) * (rng.random((m, k)) > zeros)
    if k > 2:
        U[:, 1] = U[:, 0] + 1e-3 * rng.random(m)
    X = rng.poisson(mean * rng.gamma(0.5, size=(n, k)) @ U.T).astype(float)
    X[0] = 0
    return torch.from_numpy(X), torch.from_numpy(U)


def losses(X, V, U):
    Y = (V.double() @ U.double().T).clamp(min=1e-300)
    return (torch.special.xlogy(X, X / Y) - X + Y).sum(1)


CASES = [
    (12, 40, 4, 3.0, 0.0),
    (12, 40, 4, 0.1, 0.5),
    (9, 25, 20, 1.0, 0.3),
    (8, 300, 10, 50.0, 0.2),
    (6, 30, 1, 1.0, 0),
]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("n", "m", "k", "mean", "zeros"), CASES)
def test_no_divergence_is_above_that_of_many_steps(n, m, k, mean, zeros, dtype, monkeypatch):
    for seed in range(3):
        X, U = planted(n, m, k, seed, mean, zeros)
        data, bases = as_data(X.to(dtype)), [U.to(dtype)]
        V = divergence_coefficients(data, bases, 1.0, tol=1e-10)
        assert V.dtype == dtype and (V >= 0).all() and (V[0] == 0).all()
        with monkeypatch.context() as patch:
            patch.setattr(solver, "_newton_coefficients", lambda data, bases, V, *limits: torch.arange(len(V)))
            long = divergence_coefficients(as_data(X), [U], 1.0, tol=1e-13, max_iter=50_000)
        mine, best = losses(X, V, U), losses(X, long, U)
        assert (mine <= best * (1 + (1e-8 if dtype == torch.float64 else 1e-5)) + 1e-9 * X.sum(1)).all()


def test_few_steps_are_needed(monkeypatch):
    counts = []
    plain = solver._newton_direction
    monkeypatch.setattr(solver, "_newton_direction", lambda *a: counts.append(1) or plain(*a))
    X, U = planted(1, 500, 10, 0, 20.0, 0.0)
    X[0] = torch.from_numpy(np.random.default_rng(0).poisson(20.0, 500).astype(float))
    divergence_coefficients(as_data(X), [U], 1.0)
    assert len(counts) <= 15


def test_rows_do_not_depend_on_the_others():
    X, U = planted(30, 60, 6, 1, 4.0, 0.2)
    V = divergence_coefficients(as_data(X), [U], 1.0)
    for i in (1, 7, 29):
        torch.testing.assert_close(
            divergence_coefficients(as_data(X[i : i + 1]), [U], 1.0)[0], V[i], rtol=1e-7, atol=1e-9
        )


@pytest.mark.parametrize("limits", [{"transform_max_iter": 1}, {"transform_tol": 0.0, "transform_max_iter": 60}])
def test_limits_end_it(limits):
    X, U = planted(10, 40, 4, 2, 5.0, 0.0)
    model = NMF.from_components(U.T.numpy(), loss="kl", **limits)
    V = torch.from_numpy(model.transform(X.numpy()))
    start = X.sum(1, keepdim=True) / U.sum()
    assert (losses(X, V, U) <= losses(X, start.expand(-1, 4), U) + 1e-9).all()


@pytest.mark.parametrize("unit", [1e-20, 1e-8, 1e8, 1e20, 1e40])
def test_the_unit_decides_nothing(unit):
    """Two equal bases, so that the Hessian is singular, and entries at zero."""
    rng = np.random.default_rng(9)
    U = rng.gamma(0.4, size=(6, 200)) * (rng.random((6, 200)) > 0.3)
    U[1] = U[0]
    X = rng.poisson(3 * rng.gamma(0.5, size=(8, 6)) @ U + (rng.random((8, 200)) < 0.02)).astype(float)
    model, tensors = NMF.from_components(U, loss="kl"), (torch.from_numpy(X), torch.from_numpy(U.T))
    usual, other = (losses(tensors[0], torch.from_numpy(model.transform(X * s) / s), tensors[1]) for s in (1, unit))
    torch.testing.assert_close(usual, other, rtol=1e-6, atol=1e-6)


def test_bases_of_zeros_have_coefficients_of_zero():
    for model in (NMF(3, loss="kl", random_state=0), NTF(3, loss="kl", random_state=0)):
        nothing = np.zeros((30, 8) if isinstance(model, NMF) else (30, 4, 2))
        V = model.fit(nothing).transform(nothing)
        assert not V.any() and V.shape == (30, 3)
        assert np.isfinite(model.transform(nothing + 1)).all()


def test_tensors():
    rng = np.random.default_rng(0)
    X = rng.poisson(4.0, (20, 6, 7)).astype(float)
    model = NTF(3, loss="kl", random_state=0, max_iter=60, tol=0).fit(X)
    flat = NMF.from_components(np.einsum("ik,jk->ijk", *model.factors_).reshape(42, 3).T, loss="kl")
    np.testing.assert_allclose(model.transform(X), flat.transform(X.reshape(20, 42)), rtol=1e-5, atol=1e-7)
