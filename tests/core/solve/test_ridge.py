"""Ridge coefficients and their strength, against singular values and the textbook's hat matrix."""

import numpy as np
import pytest
import torch

from nnfactor.core.solve.ridge import STRENGTHS, choose_ridge, ridge_coefficients


def case(seed, n=9, m=12, k=4, lengths=True):
    rng = np.random.default_rng(seed)
    U = rng.random((m, k)) * (10.0 ** rng.uniform(-3, 3, k) if lengths else 1)
    return U, rng.random((n, m))


def normal(U, X):
    return torch.from_numpy(U.T @ U), torch.from_numpy(X @ U)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("ridge", [0.0, 0.01, 0.1, 1.0])
def test_coefficients_shrink_singular_values(seed, ridge):
    U, X = case(seed)
    lengths = np.linalg.norm(U, axis=0)
    left, s, right = np.linalg.svd(U / lengths, full_matrices=False)
    expected = X @ (left * (s / (s**2 + (ridge * s[0]) ** 2))) @ right / lengths
    found = ridge_coefficients(*normal(U, X), ridge).numpy()
    np.testing.assert_allclose(found * lengths, expected * lengths, rtol=1e-7, atol=1e-8)


def test_a_zero_basis_gets_zero_and_dependent_bases_share():
    U, X = case(0)
    U = np.concatenate([U, np.zeros((12, 1)), U[:, :1]], axis=1)
    found = ridge_coefficients(*normal(U, X), 0.0).numpy()
    assert (found[:, 4] == 0).all()
    np.testing.assert_allclose(found[:, 0], found[:, 5], rtol=1e-6)
    np.testing.assert_allclose(found @ U.T, X @ np.linalg.pinv(U.T) @ U.T, rtol=1e-6, atol=1e-8)


def test_rows_are_independent_and_float32_becomes_float64():
    U, X = case(1)
    G, B = normal(U, X)
    torch.testing.assert_close(ridge_coefficients(G, B[2:3], 0.1), ridge_coefficients(G, B, 0.1)[2:3])
    assert ridge_coefficients(G.float(), B.float(), 0.1).dtype == torch.float64


@pytest.mark.parametrize("noise", [0.0, 0.3, 3.0])
def test_the_strength_minimises_generalised_cross_validation(noise):
    rng = np.random.default_rng(2)
    U = rng.random((15, 5)) + 2  # nearly dependent
    X = rng.random((30, 5)) @ U.T + noise * rng.normal(size=(30, 15))
    G, B = normal(U, X)
    unit = U / np.linalg.norm(U, axis=0)
    top = np.linalg.norm(unit, 2)
    errors = []
    for ridge in STRENGTHS.numpy():
        hat = unit @ np.linalg.solve(unit.T @ unit + (ridge * top) ** 2 * np.eye(5), unit.T)
        errors.append(((X - X @ hat) ** 2).sum() / np.trace(np.eye(15) - hat) ** 2)
    found = choose_ridge(G, B, torch.tensor((X**2).sum()), 15)
    assert errors[int(np.argmin(abs(STRENGTHS.numpy() - found)))] == pytest.approx(min(errors), rel=1e-6, abs=1e-12)
    assert (found <= 1.1e-3) == (noise == 0)
