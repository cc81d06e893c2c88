"""Shared linear algebra against independent float64 references of numpy and scipy."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from nnfactor.core.linalg import (
    conjugate_gradients,
    invert_spectrum,
    project_simplex,
    pseudo_inverse,
    solve_spd,
)

DTYPES = [torch.float32, torch.float64]
CLOSE = {torch.float32: 1e-4, torch.float64: 1e-10}


def semidefinite(rng, batch, k, rank, dtype=torch.float64):
    A = rng.normal(size=(*batch, k, rank))
    return torch.from_numpy(A @ np.swapaxes(A, -1, -2)).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1,), (5, 1), (7, 4), (2, 3, 6)])
def test_projection_on_the_simplex_solves_its_quadratic_program(shape, dtype):
    points = torch.from_numpy(3 * np.random.default_rng(0).normal(size=shape)).to(dtype)
    found = project_simplex(points)
    assert found.dtype == dtype and found.shape == points.shape and bool((found >= 0).all())
    for point, answer in zip(points.double().view(-1, shape[-1]), found.double().view(-1, shape[-1]), strict=True):
        assert float(answer.sum()) == pytest.approx(1, abs=1e-6)
        point = point.numpy()
        expected = minimize(
            lambda f, point=point: np.square(f - point).sum(),
            np.full(shape[-1], 1 / shape[-1]),
            jac=lambda f, point=point: 2 * (f - point),
            bounds=[(0, None)] * shape[-1],
            constraints={"type": "eq", "fun": lambda f: f.sum() - 1},
            method="SLSQP",
            options={"ftol": 1e-15},
        ).x
        assert np.allclose(answer, expected, atol=1e-5)


def test_projection_on_the_simplex_takes_ties_and_infinity():
    assert project_simplex(torch.tensor([2.0, 2.0, -torch.inf])).tolist() == [0.5, 0.5, 0]
    assert project_simplex(torch.tensor([[0.0, -torch.inf], [0.25, 0.75]])).tolist() == [[1, 0], [0.25, 0.75]]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", [(), (3,), (2, 2)])
@pytest.mark.parametrize("rank", [0, 2, 10])
def test_pseudo_inverse_equals_numpy(batch, rank, dtype):
    G = semidefinite(np.random.default_rng(1), batch, 5, rank, dtype)
    found, expected = pseudo_inverse(G), np.linalg.pinv(G.double().numpy(), rcond=1e-5, hermitian=True)
    assert found.dtype == dtype
    assert np.allclose(found, expected, atol=CLOSE[dtype] * max(1, np.abs(expected).max()))


def test_pseudo_inverse_ignores_negative_values_and_marks_broken_problems():
    G = torch.stack([torch.diag(torch.tensor([4.0, -1.0])), torch.full((2, 2), torch.nan), torch.eye(2)]).double()
    found = pseudo_inverse(G)
    assert found[0].tolist() == [[0.25, 0], [0, 0]] and bool(found[1].isnan().all())
    assert torch.equal(found[2], torch.eye(2).double())


def test_inverted_spectra_keep_negative_values_and_cut_small_ones():
    values = torch.tensor([-2.0, 1e-9, 4.0]).double()
    found = invert_spectrum(values, torch.eye(3).double(), 1e-6)
    assert found.diagonal().tolist() == [-0.5, 0, 0.25]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", [(), (4,), (2, 3)])
@pytest.mark.parametrize("columns", [1, 3])
def test_definite_systems_equal_numpy(batch, columns, dtype):
    rng = np.random.default_rng(2)
    A = semidefinite(rng, batch, 6, 12, dtype) + 0.1 * torch.eye(6, dtype=dtype)
    B = torch.from_numpy(rng.normal(size=(*batch, 6, columns))).to(dtype)
    expected = np.linalg.solve(A.double().numpy(), B.double().numpy())
    found = solve_spd(A, B)
    assert found.dtype == dtype and np.allclose(found, expected, rtol=CLOSE[dtype], atol=10 * CLOSE[dtype])


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_singular_systems_tend_to_the_minimum_norm_and_leave_the_others_alone(scale):
    rng = np.random.default_rng(3)
    regular, singular = semidefinite(rng, (1,), 6, 12), semidefinite(rng, (3,), 6, 2)
    A = scale * torch.cat([singular, regular])
    B = A @ torch.from_numpy(rng.normal(size=(4, 6, 2)))
    A[:3] -= scale * 1e-14 * torch.eye(6).double()  # rounding that makes Cholesky fail for certain
    found, expected = solve_spd(A, B), np.linalg.pinv(A.numpy(), rcond=1e-10, hermitian=True) @ B.numpy()
    assert (torch.linalg.cholesky_ex(A)[1] > 0).tolist() == [True, True, True, False]
    assert np.allclose(found, expected, atol=1e-3)  # rounding of B over the raise of the diagonal, 1e-16 / 1e-11
    assert torch.allclose(found[3], solve_spd(A[3], B[3]), rtol=1e-12) and float((A @ found - B).norm()) < 1e-9 * scale


@pytest.mark.parametrize("dtype", DTYPES)
def test_conjugate_gradients_equal_numpy(dtype):
    rng = np.random.default_rng(4)
    A = semidefinite(rng, (), 8, 20, dtype)
    B, start = (torch.from_numpy(rng.normal(size=(8, 3))).to(dtype) for _ in range(2))
    B[:, 1] = A @ start[:, 1]  # solved by its start: steps of length 0
    tol = 1e-5 if dtype == torch.float32 else 1e-12
    enough = tol**2 * B.square().sum(0)
    found, settled = conjugate_gradients(lambda p: A @ p, start.clone(), B - A @ start, 200, enough)
    expected = np.linalg.solve(A.double().numpy(), B.double().numpy())
    assert settled and found.dtype == dtype and np.allclose(found, expected, atol=CLOSE[dtype] * 10)


def test_conjugate_gradients_of_a_singular_system_and_with_few_steps():
    A = torch.diag(torch.tensor([2.0, 1.0, 0.0])).double()
    b = torch.tensor([[2.0], [3.0], [0.0]]).double()
    found, settled = conjugate_gradients(lambda p: A @ p, torch.zeros_like(b), b, 50, torch.zeros(1).double() + 1e-28)
    assert settled and torch.allclose(found, torch.tensor([[1.0], [3.0], [0.0]]).double())
    one, settled = conjugate_gradients(lambda p: A @ p, torch.zeros_like(b), b, 1)
    exact = (b.mT @ b) / (b.mT @ A @ b) * b  # steepest descent
    assert not settled and torch.allclose(one, exact)
