"""Sparse tensors: what is read, what is refused, what estimators do with them, and that nothing becomes dense."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from tables import PyData, problem, quiet_csr

from nnfactor import N2S2L, NGE, NMF, NTF
from nnfactor.core import BetaFit, Sparse, SparseTensor, as_data
from nnfactor.core.data import sparse_tensor as module

coo = lambda X: torch.as_tensor(X).to_sparse_coo()
close = lambda a, b, tol=1e-9: torch.testing.assert_close(a, b, rtol=tol, atol=tol * float(b.abs().max()))


def some(shape=(12, 5, 6), zeros=0.6, seed=0):
    rng = np.random.default_rng(seed)
    return rng.random(shape) * (rng.random(shape) >= zeros)


class TestReading:
    """Kinds, dtypes, and what is wrong with them."""

    def test_order_decides_the_storage(self):
        assert isinstance(as_data(coo(some((4, 5)))), Sparse)
        assert isinstance(as_data(PyData(some((4, 5)))), Sparse)
        assert isinstance(as_data(coo(some())), SparseTensor)
        data = as_data(coo(some()))
        assert as_data(data) is data

    @pytest.mark.parametrize("given, read", [("float32", "float32"), ("float16", "float32"), ("int64", "float64")])
    def test_dtypes_as_for_dense(self, given, read):
        X = coo((some() * 9).astype(given))
        assert as_data(X).dtype == getattr(torch, read) and as_data(X, dtype=torch.float32).dtype == torch.float32

    def test_indices_are_narrow(self):
        data = as_data(coo(some((4, 3, 5, 2))))
        for group in data.groups:
            assert all(table.dtype == torch.int32 for table in group.table)
        assert data.rows.col.dtype == torch.int32

    @pytest.mark.parametrize("value, what", [(np.nan, "NaN"), (np.inf, "infinity"), (-1.0, "Negative values")])
    def test_bad_entries_are_counted_and_located(self, value, what):
        X = some()
        X[2, 1, 3] = X[7, 0, 0] = value
        with pytest.raises(ValueError, match=rf"{what}.*: 2 of \d+ entries, the first at \(2, 1, 3\)"):
            NTF(2).fit(coo(X))
        if value == -1:
            assert as_data(coo(X), signed=True).smallest() == -1

    def test_other_layouts_are_refused(self):
        flat = sp.csr_array(some((4, 5)))
        batched = quiet_csr(np.ones((2, 3, 3)))
        with pytest.raises(TypeError, match="sparse_coo"):
            as_data(batched)
        with pytest.raises(ValueError, match="dense dimensions"):
            as_data(torch.from_numpy(some()).to_sparse(2))
        with pytest.raises(ValueError, match="no empty dimension"):
            as_data(torch.zeros(3, 0, 2).to_sparse_coo())
        filled = PyData(some())
        filled.fill_value = 1.0
        with pytest.raises(ValueError, match="fill_value"):
            as_data(filled)
        with pytest.raises(ValueError, match="real numbers"):
            as_data(torch.ones(2, 2, 2, dtype=torch.complex64).to_sparse_coo())
        with pytest.raises(ValueError, match="2 dimensions"):
            NMF(2).fit(coo(some()))
        with pytest.raises(ValueError, match="sample_shape"):
            NTF(2, sample_shape=(3, 3)).fit(flat)


class TestVerbs:
    """Beyond the laws of all storage kinds: extremes, and pieces."""

    @pytest.mark.parametrize("order", [3, 4, 5])
    @pytest.mark.parametrize("kind", ["zero", "one entry", "empty slices", "full"])
    def test_extremes_equal_dense(self, kind, order):
        p = problem(order, (2,), seed=order)
        X = p.X.clone()
        if kind in ("zero", "one entry"):
            X[...] = 0
        if kind == "one entry":
            X[(1,) * order] = 3
        if kind == "empty slices":
            X[1], X[:, 0] = 0, 0
        self.assert_equal(X, p)

    def assert_equal(self, X, p):
        data, dense, Fs = as_data(coo(X)), as_data(X), [p.factors[m] for m in p.modes]
        assert (data.largest(), data.smallest()) == (dense.largest(), dense.smallest())
        for mine, its in ((data.residual_sq(Fs), dense.residual_sq(Fs)), (data.sqnorm(), dense.sqnorm())):
            close(mine, its)
        close(data.divergence(Fs, 1), dense.divergence(Fs, 1))
        for mode in range(X.dim()):
            close(data.mttkrp(Fs, mode), dense.mttkrp(Fs, mode))
            close(data.ratio_products(Fs, mode, 1)[0], dense.ratio_products(Fs, mode, 1)[0])

    @pytest.mark.parametrize("order", [3, 4, 5])
    def test_pieces_change_nothing(self, order, monkeypatch):
        p = problem(order, (3,), seed=1, zeros=0.9, k=5)
        monkeypatch.setattr(module, "CHUNK", 7)
        monkeypatch.setattr(module, "FEWEST", 2)
        data = as_data(coo(p.X))
        assert data._width() < 3 * 5
        self.assert_equal(p.X, p)

    def test_a_sweep_costs_two_sparse_products_and_sums(self, monkeypatch):
        p = problem(4, seed=0, zeros=0.5)
        data, calls, product = as_data(coo(p.X)), [], module.CSR.product
        monkeypatch.setattr(module.CSR, "product", lambda X, rows: calls.append(X) or product(X, rows))
        factors = dict(p.factors)
        for name in 2 * p.order_of_updates:
            if name == "U1":
                calls.clear()  # the first sweep finds nothing kept
            data.mttkrp([factors[m] for m in p.modes], p.modes.index(name))
            factors[name] = factors[name].clone()
        large = [X for X in calls if X is data.rows or X is data.columns]
        assert len(large) == 2 and len(calls) == 2 + 4

    @pytest.mark.parametrize("order", [3, 4])
    def test_a_nearly_exact_fit_has_its_own_residual(self, order):
        p = problem(order, (2,), seed=2, zeros=0.5)
        Fs = [p.factors[m] for m in p.modes]
        exact = torch.einsum(
            ",".join("abcd"[i] + "r" for i in range(order)) + "->" + "abcd"[:order], *(F[0] for F in Fs)
        )
        data, nearly = as_data(coo(exact)), [F.clone() for F in Fs]
        nearly[0][0] *= 1 + 1e-9
        close(data.residual_sq(nearly), as_data(exact).residual_sq(nearly), 1e-5)

    def test_shapes_whose_product_leaves_64_bits(self):
        d = 1 << 21
        at = np.array([[0, 3, d - 1], [1, 1, 5], [d - 1, 2, 0], [4, 4, d - 2], [7, 0, d - 1]])
        data = as_data(SimpleNamespace(shape=(d,) * 5, coords=at, data=np.float32([1, 2, 3]), fill_value=0))
        Fs = [torch.zeros(d, 1) for _ in at]
        for F, i in zip(Fs, at):
            F[i] = 1.0
        for mode, i in enumerate(at):
            linear_minus = data.mttkrp(Fs, mode)
            assert int((linear_minus != 0).sum()) == len(set(i)) and float(linear_minus.sum()) == 6
        assert float(data.residual_sq(Fs)) > 0

    @pytest.mark.parametrize("beta", [0.5, 1.5, 3])
    def test_other_divergences_are_refused(self, beta):
        with pytest.raises(ValueError, match="every zero"):
            NTF(2, loss=beta).fit(coo(some()))
        with pytest.raises(ValueError, match="every zero"):
            as_data(coo(some())).ratio_products([torch.ones(d, 2) for d in (12, 5, 6)], 0, beta)
        with pytest.raises(ValueError, match="zeros"):
            BetaFit(coo(some()), ("V", "U1", "U2"), 0)


class TestEstimators:
    """Whatever a dense tensor gives, a sparse one gives."""

    @pytest.mark.parametrize("loss", ["frobenius", "kullback-leibler"])
    @pytest.mark.parametrize("kind", [coo, PyData], ids=["torch", "pydata"])
    def test_ntf_equals_dense(self, kind, loss):
        X = some((12, 5, 6, 3))
        make = lambda: NTF(3, loss=loss, n_init=2, random_state=0, max_iter=30, tol=0)
        dense, sparse = make().fit(X), make().fit(kind(X))
        for a, b in zip([sparse.embedding_, *sparse.factors_], [dense.embedding_, *dense.factors_]):
            np.testing.assert_allclose(np.asarray(a), b, rtol=1e-6, atol=1e-8)
        assert isinstance(sparse.embedding_, torch.Tensor if kind is coo else np.ndarray)
        np.testing.assert_allclose([sparse.loss_, sparse.reconstruction_err_], [dense.loss_, dense.reconstruction_err_])
        np.testing.assert_allclose(
            np.asarray(sparse.transform(kind(X[:4]))), dense.transform(X[:4]), rtol=1e-5, atol=1e-7
        )
        assert sparse.n_features_in_ == 90 and sparse.sample_shape_ == (5, 6, 3)

    @pytest.mark.parametrize("make", [NGE, N2S2L])
    def test_graphs_are_those_of_the_dense_samples(self, make):
        X, y = some((16, 4, 5)), np.repeat([0, 1, 2, -1], 4)
        dense, sparse = (make(4, random_state=0, max_iter=15, tol=0).fit(Z, y) for Z in (X, coo(X)))
        for a, b in zip(sparse.graph_, dense.graph_):
            np.testing.assert_array_equal(a.toarray(), b.toarray())
        np.testing.assert_allclose(sparse.embedding_.numpy(), dense.embedding_, rtol=1e-6, atol=1e-8)

    def test_flattened_sparse_rows_are_folded(self):
        X = some((12, 5, 6))
        make = lambda: NTF(3, sample_shape=(5, 6), random_state=0, max_iter=20, tol=0)
        dense = make().fit(X)
        for flat in (sp.csr_array(X.reshape(12, -1)), coo(X.reshape(12, -1))):
            sparse = make().fit(flat)
            np.testing.assert_allclose(np.asarray(sparse.embedding_), dense.embedding_, rtol=1e-6, atol=1e-8)
            assert sparse.inverse_transform(sparse.embedding_).shape == (12, 30)
            np.testing.assert_allclose(np.asarray(sparse.transform(flat)), dense.transform(X), rtol=1e-5, atol=1e-7)

    @pytest.mark.filterwarnings("ignore:.*loss_ beyond the floating-point range")
    def test_extreme_scales_and_zero_data(self):
        X = some()
        plain = NTF(2, random_state=0, max_iter=10, tol=0).fit(coo(X))
        large = NTF(2, random_state=0, max_iter=10, tol=0).fit(coo(X * 2.0**700))
        np.testing.assert_allclose(large.reconstruction_err_, plain.reconstruction_err_ * 2.0**700)
        assert NTF(2).fit(coo(np.zeros((3, 4, 2)))).loss_ == 0

    def test_fit_never_densifies(self, monkeypatch):
        def refused(*args, **kwargs):
            raise AssertionError("a sparse tensor was made dense")

        X = coo(some((12, 5, 6)))
        for name in ("to_dense", "todense"):
            monkeypatch.setattr(torch.Tensor, name, refused, raising=False)
        for name in ("toarray", "todense"):
            for kind in (sp.csr_array, sp.csc_array, sp.coo_array):
                monkeypatch.setattr(kind, name, refused)
        for loss in ("frobenius", "kullback-leibler"):
            NTF(2, loss=loss, max_iter=3, tol=0).fit(X).transform(X)
