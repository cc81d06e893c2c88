"""l1 codes against linear programming, their certificates, and inputs of every awkward kind."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from srlsc_reference import data, program, unit

from nnfactor.sparse_coding import basis_pursuit as l1
from nnfactor.sparse_coding.basis_pursuit import l1_code, l1_codes
from nnfactor.sparse_coding.dictionary import SparseAtoms, unit_rows


def certify(D, x, found, skip=False):
    """The published value and bound, recomputed: the value belongs to the codes."""
    a = found.codes.double().numpy()
    value = np.abs(a).sum(1) + np.abs(x - a @ D).sum(1)
    np.testing.assert_allclose(found.values.numpy(), value, rtol=1e-9, atol=1e-12)
    assert (found.bounds.numpy() <= value * (1 + 1e-12) + 1e-300).all()
    if skip:
        assert (np.diagonal(a) == 0).all()


@pytest.mark.parametrize(("n", "m", "rank"), [(30, 12, 4), (12, 30, 3), (50, 3, 3), (40, 40, 40), (2, 5, 2)])
def test_codes_are_those_of_the_linear_program(n, m, rank):
    X = data(n, m, rank=rank)
    D = unit(X)
    found = l1_codes(torch.from_numpy(X), tol=1e-7)
    best = np.array([program(np.delete(D, i, 0), D[i]) for i in range(n)])
    attained = 5e-6  # corners of few features are degenerate: there float64, and so the CPU, ends steps near 1e-6
    np.testing.assert_allclose(found.values.numpy(), best, rtol=attained)
    assert (found.bounds.numpy() <= best * (1 + 1e-9)).all()
    assert float(found.gap.max()) <= attained and float(found.gap.median()) <= 1e-7
    certify(D, D, found, skip=True)


def test_signed_data_and_a_dictionary():
    rng = np.random.default_rng(1)
    D, X = rng.normal(size=(25, 10)), rng.normal(size=(8, 10))
    found = l1_code(torch.from_numpy(D), torch.from_numpy(X), tol=1e-7)
    best = np.array([program(unit(D), x) for x in unit(X)])
    np.testing.assert_allclose(found.values.numpy(), best, rtol=1e-6)
    certify(unit(D), unit(X), found)


def test_many_atoms_take_the_working_set(monkeypatch):
    X = data(60, 24, rank=6)
    full = l1_codes(torch.from_numpy(X), tol=1e-6)
    monkeypatch.setattr(l1, "SMALL", 8)
    found = l1_codes(torch.from_numpy(X), tol=1e-6)
    assert float(found.gap.max()) <= 2e-6
    np.testing.assert_allclose(found.values.numpy(), full.values.numpy(), rtol=2e-6)
    certify(unit(X), unit(X), found, skip=True)


@pytest.mark.parametrize("tol", [1e-2, 1e-3, 1e-4, 1e-5])
def test_the_asked_gap_is_reached_and_codes_are_sparse(tol):
    X = data(350, 40, rank=8)
    D, X = X[:300], X[300:]
    found = l1_code(torch.from_numpy(D), torch.from_numpy(X), tol=tol)
    assert float(found.gap.max()) <= tol
    assert float((found.codes == 0).double().mean()) > 0.5
    certify(unit(D), unit(X), found)


@pytest.mark.parametrize("m", [40, 400])
def test_admm_alone_gets_near_with_either_gram_matrix(m):
    X = torch.from_numpy(data(300, m, rank=8))
    D, X = X[:280], X[280:]
    rough = l1_code(D, X, max_rounds=0).gap.median()
    finer = l1_code(D, X, max_rounds=0, sweeps=800).gap.median()
    assert float(finer) < float(rough) < 0.1


@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1e30, -1e30])
def test_scale_does_not_matter(scale):
    X = torch.from_numpy(data(30, 8))
    here, there = l1_codes(X), l1_codes(X * scale)
    np.testing.assert_allclose(there.values.numpy(), here.values.numpy(), rtol=1e-4)
    assert float(there.gap.max()) <= 1e-4


def test_duplicates_are_one_hot_and_zero_samples_have_the_zero_code():
    X = data(20, 6)
    X[7], X[11], X[15] = 3 * X[2], 0, -X[4]
    found = l1_codes(torch.from_numpy(X))
    a = found.codes.numpy()
    for i, j, sign in ((7, 2, 1), (2, 7, 1), (15, 4, -1), (4, 15, -1)):
        expected = np.zeros(20)
        expected[j] = sign
        np.testing.assert_allclose(a[i], expected, atol=1e-12)
    assert (a[11] == 0).all() and (a[:, 11] == 0).all()
    assert float(found.values[11]) == 0 and float(found.gap[11]) == 0
    assert float(found.gap.max()) <= 1e-4


@pytest.mark.parametrize(
    "X",
    [
        np.zeros((4, 3)),
        np.ones((5, 3)),
        np.eye(4),
        np.ones((1, 3)),
        np.array([[2.0], [-3.0], [0.0]]),
        np.repeat(data(5, 4), 8, 0),
        np.hstack([data(12, 3), np.zeros((12, 4))]),
        1e9 + data(15, 5),
    ],
    ids=["zeros", "equal", "orthogonal", "single", "one feature", "repeated", "zero features", "offset"],
)
def test_degenerate_samples(X):
    found = l1_codes(torch.from_numpy(X), tol=1e-6)
    assert torch.isfinite(found.codes).all() and float(found.gap.max()) <= 1e-6
    certify(unit(X), unit(X), found, skip=True)


def test_a_batch_equals_one_by_one():
    D, X = torch.from_numpy(data(30, 8)), torch.from_numpy(data(9, 8, seed=5))
    together = l1_code(D, X, tol=1e-7)
    alone = torch.cat([l1_code(D, x[None], tol=1e-7).values for x in X])
    np.testing.assert_allclose(together.values.numpy(), alone.numpy(), rtol=1e-6)


def test_small_batches_equal_large_ones(monkeypatch):
    X = torch.from_numpy(data(40, 10))
    whole = l1_codes(X, tol=1e-6).values
    monkeypatch.setattr(l1, "BUDGET", 2000)
    np.testing.assert_allclose(l1_codes(X, tol=1e-6).values.numpy(), whole.numpy(), rtol=2e-6)


def test_float32_stays_float32_and_agrees():
    X = torch.from_numpy(data(30, 8))
    single, double = l1_codes(X.float()), l1_codes(X)
    assert single.codes.dtype == torch.float32 and single.values.dtype == torch.float64
    np.testing.assert_allclose(single.values.numpy(), double.values.numpy(), rtol=2e-4)
    assert l1_codes(torch.tensor([[1, 0], [1, 1]])).codes.dtype == torch.float64


def test_bad_arguments_are_named():
    X = torch.ones(3, 2)
    with pytest.raises(ValueError, match=r"X has shape \(3,\)"):
        l1_codes(X[:, 0])
    with pytest.raises(ValueError, match="1 NaN"):
        l1_codes(torch.tensor([[1.0, float("nan")]]))
    with pytest.raises(ValueError, match="tol must be >= 0"):
        l1_codes(X, tol=-1)
    with pytest.raises(ValueError, match="D has 2 features and X has 3"):
        l1_code(X, torch.ones(1, 3))


@settings(max_examples=25, deadline=None)
@given(
    n=st.integers(1, 9),
    m=st.integers(1, 9),
    power=st.integers(-30, 30),
    seed=st.integers(0, 99),
    zeros=st.floats(0, 0.9),
)
def test_codes_of_any_shape_are_certified(n, m, power, seed, zeros):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, m)) * (rng.random((n, m)) >= zeros)
    found = l1_codes(torch.from_numpy(X * 10.0**power), tol=1e-5)
    assert float(found.gap.max()) <= 1e-5
    certify(unit(X), unit(X), found, skip=True)


@pytest.mark.parametrize("chunk", [1 << 23, 20_000])
def test_sparse_samples_have_the_codes_of_dense_ones(monkeypatch, chunk):
    monkeypatch.setattr(l1, "CHUNK", chunk)  # one chunk of samples, or several
    X = sp.random(270, 400, density=0.02, format="lil", random_state=0)
    X[3], X[7] = X[5], 0
    X = sp.csr_array(X)
    largest = []
    some = SparseAtoms.some
    keep = lambda *given: largest.append(some(*given)) or largest[-1]
    monkeypatch.setattr(SparseAtoms, "some", keep)
    sparse, dense = l1_codes(X, tol=1e-5), l1_codes(torch.from_numpy(X.toarray()), tol=1e-5)
    assert (sparse.gap <= 1e-5).all() and not sparse.codes.diagonal().any() and not sparse.codes[7].any()
    np.testing.assert_allclose(sparse.values, dense.values, rtol=2e-5)
    assert largest and max(D.shape[-1] for D, _ in largest) < 400  # atoms are dense on the features in use only
    D = unit_rows(X).toarray()
    values = sparse.codes.abs().sum(1).numpy() + np.abs(D - sparse.codes.numpy() @ D).sum(1)
    np.testing.assert_allclose(values, sparse.values, rtol=1e-9)
    new, dictionary = X[:20] + X[20:40], X[40:]
    dense = lambda S: torch.from_numpy(S.toarray())
    plain = l1_code(dense(dictionary), dense(new), tol=1e-6).values
    for pair in ((dictionary, new), (dense(dictionary), new), (dictionary, dense(new))):
        np.testing.assert_allclose(l1_code(*pair, tol=1e-6).values, plain, rtol=2e-6)
    with pytest.raises(ValueError, match="X has 1 NaN or infinite"):
        l1_codes(sp.csr_array([[np.nan, 0.0]]))
