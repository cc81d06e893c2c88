"""Sparse input of every library read in one place, indices made narrow, units chosen."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from tables import PyData, quiet_csr

from nnfactor.core import Graph
from nnfactor.core.data import csr
from nnfactor.core.data.as_data import as_scipy, is_sparse, is_sparse_tensor, read_csr
from nnfactor.core.data.base import power_of_two
from nnfactor.core.data.csr import CSR, narrow, narrow_csr
from nnfactor.graphs import knn_graph
from nnfactor.kernels import polynomial
from nnfactor.models.factorization.sulf import SULF

X = np.random.default_rng(0).random((5, 4)) * (np.random.default_rng(1).random((5, 4)) > 0.5)

GIVEN = {
    "csr": sp.csr_array(X),
    "csc": sp.csc_matrix(X),
    "coo, doubled": sp.coo_array((np.tile(X[X != 0] / 2, 2), np.tile(np.nonzero(X), 2)), shape=X.shape),
    "torch coo": torch.from_numpy(X).to_sparse_coo(),
    "torch csr": quiet_csr(X),
    "pydata": PyData(X),
}


@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
def test_every_library_is_read_as_canonical_csr(given):
    S = read_csr(given)
    assert isinstance(S, sp.csr_array) and S.has_canonical_format and S.dtype == np.float64
    np.testing.assert_array_equal(S.toarray(), X)
    assert is_sparse(given) and not is_sparse_tensor(given) and as_scipy(given).shape == X.shape
    np.testing.assert_allclose(polynomial(given, degree=2).numpy(), (X @ X.T) ** 2)
    np.testing.assert_array_equal(knn_graph(given, 2).toarray(), knn_graph(X, 2).toarray())
    symmetric = read_csr(given) @ read_csr(given).T
    np.testing.assert_array_equal(Graph(symmetric).toarray(), Graph(symmetric.toarray()).toarray())


@pytest.mark.parametrize("dtype, read", [("float16", "float32"), ("float32", "float32"), ("int64", "float64")])
def test_dtypes(dtype, read):
    assert read_csr(sp.csr_array((X * 9).astype(np.dtype(dtype) if dtype != "float16" else np.float32))).dtype == read
    assert read_csr(sp.csr_array(X.astype(np.float32)), dtype=np.float64).dtype == np.float64


def test_memory_is_shared_and_never_written_to():
    S = sp.csr_array(X)
    assert np.shares_memory(read_csr(S).data, S.data)
    doubled = sp.csr_array((np.ones(2), np.zeros(2, int), [0, 2]), shape=(1, 3))
    assert read_csr(doubled).toarray().tolist() == [[2, 0, 0]] and doubled.nnz == 2


@pytest.mark.parametrize(
    "given, error, what",
    [
        (sp.csr_array(X.astype(complex)), ValueError, "A has dtype complex128; it must hold real numbers"),
        (sp.csr_array((0, 3)), ValueError, "not empty"),
        (torch.ones(2, 2, 2).to_sparse(2), ValueError, "dense dimensions"),
    ],
)
def test_what_is_refused(given, error, what):
    with pytest.raises(error, match=what):
        read_csr(given, "A")


def test_indices_are_32_bits_wide_where_they_fit():
    index = np.array([0, 5], dtype=np.int64)
    assert narrow(index, 5).dtype == np.int32 and narrow(index, 2**31).dtype == np.int64
    assert narrow(index.astype(np.int32), 5).dtype == np.int32
    S = sp.csr_array((np.ones(2), index, np.array([0, 1, 2], dtype=np.int64)), shape=(2, 6))
    S.indices, S.indptr = S.indices.astype(np.int64), S.indptr.astype(np.int64)
    narrowed = narrow_csr(S)
    assert narrowed.indices.dtype == narrowed.indptr.dtype == np.int32 and np.shares_memory(narrowed.data, S.data)
    np.testing.assert_array_equal(narrowed.toarray(), S.toarray())


@pytest.mark.parametrize("size", [1.0, 2.0, 3.0, 0.3, 1e-200, 1e300, 2.0**40])
def test_units_are_powers_of_two_below(size):
    unit = power_of_two(size)
    assert unit <= size < 2 * unit and np.log2(unit) == np.floor(np.log2(size))


def test_units_within_reach_are_one():
    assert power_of_two(0.0) == power_of_two(8.0, reach=3) == power_of_two(0.125, reach=3) == 1
    assert power_of_two(8.1, reach=3) == 8 and power_of_two(5e-324) == 2.0**-1000
    assert power_of_two(1e-300, reach=30, lowest=-120) == 2.0**-120


def test_negative_entries_of_sparse_views_are_seen():
    rng = np.random.default_rng(0)
    signed, y = (rng.random((12, 5)) - 0.5) * (rng.random((12, 5)) > 0.4), np.repeat([0, 1, -1], 4)
    make = lambda: SULF(2, signed="semi", lam=12.0, random_state=0, max_iter=5, tol=0)
    dense, sparse = (
        make().fit([signed, abs(signed)], y),
        make().fit([sp.csr_array(signed), sp.csr_array(abs(signed))], y),
    )
    np.testing.assert_allclose(sparse.embedding_, dense.embedding_, rtol=1e-6, atol=1e-9)


def test_products_stay_below_the_numbers_that_kernels_can_count(monkeypatch):
    S = sp.random_array((7, 30), density=0.3, format="csr", random_state=np.random.default_rng(0))
    A, rows = CSR.from_scipy(S, torch.device("cpu"), torch.float64), torch.rand(30, 11, dtype=torch.float64)
    whole, seen, addmm = A.product(rows), [], torch.addmm
    wide = torch.full((7, 20), 3.0, dtype=torch.float64)
    assert torch.iinfo(torch.int32).max == csr.LIMIT  # at 2.2e9 numbers the kernel ended the process
    monkeypatch.setattr(csr, "LIMIT", 100)
    monkeypatch.setattr(torch, "addmm", lambda *a, **k: (seen.append(a[2]), addmm(*a, **k))[1])
    torch.testing.assert_close(A.product(rows), whole)
    torch.testing.assert_close(A.product(rows, wide[:, 4:15]), whole)
    assert (wide[:, :4] == 3).all() and (wide[:, 15:] == 3).all()
    assert len(seen) == 8 and all(Z.numel() <= 100 and Z.is_contiguous() for Z in seen)
