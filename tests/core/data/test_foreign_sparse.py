"""Sparse arrays as others write them: repeated entries of few bits, half precision, indices that lead outside."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from tables import PyData

from benchmarks.data.datasets import _sparse_views
from nnfactor import NMF, NTF, HarmonicFunction
from nnfactor.core import Graph, as_data
from nnfactor.core.data.as_data import to_csr
from nnfactor.graphs import adjacency_graph, knn_graph
from nnfactor.kernels import polynomial
from nnfactor.sparse_coding.basis_pursuit import l1_codes

AT = np.array([[0, 0, 1, 2], [1, 1, 2, 0]])  # the first place has two entries


def repeated(dtype, order=2):
    """Two entries in one place whose sum the dtype cannot hold, and the array that they mean."""
    large = 1 if dtype.kind == "b" else int(np.iinfo(dtype).max)
    values, coords = np.array([large, large, 1, 1]).astype(dtype), AT[[0, 1, 1][:order]]
    dense = np.zeros((3,) * order)
    np.add.at(dense, tuple(coords), values.astype(float))
    return values, coords, dense


def coo(at, values, shape):
    return torch.sparse_coo_tensor(torch.as_tensor(at), torch.as_tensor(values), tuple(shape), check_invariants=False)


INTEGERS = ["bool", "uint8", "int8", "uint16", "int16", "int32", "int64"]


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("order", [2, 3])
def test_repeated_entries_are_cast_before_they_are_summed(dtype, order):
    values, coords, dense = repeated(np.dtype(dtype), order)
    given = {"torch": coo(coords, values, dense.shape)}
    if order == 2:
        given["scipy coo"] = sp.coo_array((values, tuple(coords)), shape=dense.shape)
        given["scipy csr"] = sp.csr_array((values, coords[1], [0, 2, 3, 4]), shape=dense.shape)
        given["scipy csc"] = sp.csr_array((values, coords[1], [0, 2, 3, 4]), shape=dense.shape).T
    for name, X in given.items():
        right = dense.T if name == "scipy csc" else dense
        assert float(as_data(X).sqnorm()) == pytest.approx((right**2).sum(), rel=1e-12), name
        if order == 2:
            model = NMF(3, random_state=0).fit(X)
            fitted = np.asarray(model.inverse_transform(model.embedding_))
            np.testing.assert_allclose(fitted, right, atol=0.01 * right.max(), err_msg=name)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_repeated_entries_of_samples_and_adjacencies(dtype):
    values, coords, dense = repeated(np.dtype(dtype))
    S = sp.coo_array((values, tuple(coords)), shape=dense.shape)
    np.testing.assert_array_equal(polynomial(S, degree=1).numpy(), dense @ dense.T)
    np.testing.assert_array_equal(knn_graph(S, 1, weights=1e3).toarray(), knn_graph(dense, 1, weights=1e3).toarray())
    both = sp.coo_array((np.tile(values, 2), tuple(np.hstack([coords, coords[::-1]]))), shape=dense.shape)
    np.testing.assert_array_equal(adjacency_graph(both).toarray(), dense + dense.T)
    np.testing.assert_array_equal(l1_codes(S.tocsr()).codes, l1_codes(sp.csr_array(dense)).codes)


@pytest.mark.filterwarnings("ignore:Sparse CS. tensor support")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_becomes_float32(dtype):
    X = torch.arange(12.0).view(3, 4).to(dtype)
    order3 = X.view(3, 2, 2)
    for given in (X.to_sparse_coo(), X.to_sparse_csr(), X.to_sparse_csc(), order3.to_sparse_coo()):
        data = as_data(given)
        assert data.dtype == torch.float32 and float(data.sqnorm()) == 506
        assert NTF(1, random_state=0).fit(given).embedding_.dtype == torch.float32
    symmetric = (X[:, :3] + X[:, :3].T).fill_diagonal_(0)
    for given in (symmetric, symmetric.to_sparse_coo()):
        np.testing.assert_array_equal(Graph(given).toarray(), symmetric.double().numpy())


def invalid(shift=0, kind=sp.csr_array, pointer=None):
    """Ten rows and ten columns whose indices are shifted, or whose index pointer is another one."""
    S = sp.random_array((10, 10), density=0.5, format="csr", random_state=np.random.default_rng(0))
    S = kind(sp.csr_array(S + sp.eye_array(10)))
    if kind is sp.coo_array:
        S.coords = tuple(c + shift for c in S.coords)
    else:
        S.indices = S.indices + np.int32(shift)
        S.indptr = S.indptr if pointer is None else pointer(S.indptr)
    return S


READERS = {
    "as_data": as_data,
    "NMF": lambda X: NMF(2, max_iter=2, tol=0).fit(X),
    "divergence": lambda X: NMF(2, loss=1, max_iter=2, tol=0).fit(X),
    "transform": lambda X: NMF(2, random_state=0, max_iter=2, tol=0).fit(np.ones((4, 10))).transform(X),
    "sample_shape": lambda X: NTF(2, sample_shape=(5, 2)).fit(X),
    "labels": lambda X: HarmonicFunction().fit(X, [0, 1] * 5),
    "neighbours": knn_graph,
    "kernel": polynomial,
    "adjacency": adjacency_graph,
    "graph": Graph,
    "codes": l1_codes,
    "csr": to_csr,
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize("kind", [sp.csr_array, sp.csc_array, sp.coo_array, sp.csr_matrix])
@pytest.mark.parametrize("shift, index", [(1, 10), (-1, -1), (2**20, 2**20)])
def test_indices_outside_are_refused(read, kind, shift, index):
    with pytest.raises(ValueError, match=rf"an entry with index {index} in a dimension of 10; indices are 0 to 9"):
        read(invalid(shift, kind))


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize(
    "pointer",
    [
        lambda ends: ends + 1,
        lambda ends: ends[:-1],
        lambda ends: np.where(ends == ends[3], 10**6, ends),
        lambda ends: np.r_[ends[:-1], np.int32(10**6)],
        lambda ends: np.r_[ends[:-1], np.int32(0)],
    ],
    ids=["from 1", "too short", "not rising", "beyond the entries", "back to 0"],
)
def test_index_pointers_that_do_not_rise_are_refused(read, pointer):
    with pytest.raises(ValueError, match="index pointer"):
        read(invalid(pointer=pointer))


def test_files_of_data_sets_are_checked():
    S = invalid(shift=1)
    parts = {"X0_data": S.data, "X0_indices": S.indices, "X0_indptr": S.indptr, "X0_shape": np.array(S.shape)}
    with pytest.raises(ValueError, match="text has an entry with index 10 in a dimension of 10"):
        _sparse_views("a title", 1, ("text",), {**parts, "y": np.arange(10) % 2})


def test_foreign_tensors_are_refused_too():
    at, ones = torch.tensor([[0, 3], [0, 1]]), torch.ones(2)
    order3 = coo(torch.cat([at, at[:1] * 0 - 1]), ones, (4, 3, 3))
    pydata = PyData(np.eye(3))
    pydata.coords = pydata.coords + 1
    for given, index in ((coo(at, ones, (3, 3)), 3), (order3, -1), (pydata, 3)):
        with pytest.raises(ValueError, match=f"index {index} in a dimension of 3"):
            as_data(given)


def test_adjacencies_are_symmetric_up_to_their_precision():
    Z = torch.from_numpy(np.random.default_rng(0).random((100, 64))).float()
    W = torch.exp(-(torch.cdist(Z, Z) ** 2)) * 1e3  # similarities of 0.02, a unit diagonal
    W += torch.triu(W, 1) * 1e-5
    W[0, 1], W[1, 0] = -1e-5, 0
    for given in (W, W.numpy(), sp.csr_array(W.numpy()), coo(W.nonzero().T, W[W != 0], W.shape)):
        S = Graph(given).toarray()
        assert (S == S.T).all() and (S >= 0).all() and S[0, 1] == 0
        mean = (W.double() + W.double().T).fill_diagonal_(0).numpy() / 2
        np.testing.assert_allclose(S[2:, 2:], mean[2:, 2:], rtol=1e-15)
        model = HarmonicFunction(graph=given).fit(Z, [0, 1] + [-1] * 98)
        assert bool(torch.isfinite(model.predict_proba(Z)).all())
    with pytest.raises(ValueError, match=r"entry \(0, 1\) is 1, \(1, 0\) is 1, a difference of 1e-06"):
        Graph(np.array([[0, 1 + 1e-6], [1, 0]]))
    with pytest.raises(ValueError, match="1 weights of the adjacency are negative, the lowest -0"):
        Graph(np.array([[0, 1, 0], [1, 0, 1], [-0.01, 1, 0]], dtype=np.float32))
