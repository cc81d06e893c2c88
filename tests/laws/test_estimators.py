"""The surface that all estimators share: what they take, what they refuse, what they promise about results."""

import copy
import pickle
import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from estimators import MATRIX, SCALE_FREE, TENSOR, Drawn, blocks, labels, product
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.pipeline import make_pipeline

from nnfactor import NGE, NMF, NTF, MarginalFisher

X, Y = blocks(), labels(12)
CUBE = blocks(12, 24, seed=1).reshape(12, 4, 6)
every_matrix = pytest.mark.parametrize("key", MATRIX)
beyond = pytest.mark.filterwarnings("ignore:.*loss_ beyond the floating-point range")  # its square is told to be inf
every_tensor = pytest.mark.parametrize("key", TENSOR)


def make(key, **settings):
    return MATRIX[key](**{"random_state": 0, "max_iter": 30, "tol": 0, **settings})


def same(a, b, tol=1e-7):
    a, b = (np.asarray(z.cpu() if isinstance(z, torch.Tensor) else z, dtype=float) for z in (a, b))
    np.testing.assert_allclose(a, b, rtol=tol, atol=tol * max(np.abs(b).max(), 1e-300))


def state(key, model, scale=1.0):
    """What the data determine of a fit."""
    return MATRIX[key].state(model, scale)


def assert_sound(key, model, X):
    """Finite, of the right shapes and signs; the loss is what the factors give."""
    row = MATRIX[key]
    X = X.toarray() if sp.issparse(X) else np.asarray(X, dtype=float)
    k = getattr(model, row.rank)
    assert model.embedding_.shape == (len(X), k)
    widths = getattr(model, "sample_shape_", (len(X) if row.kernel else X.shape[1],))
    assert [F.shape for F in model.factors_] == [(d, k) for d in widths]
    assert hasattr(model, "components_") == (len(widths) == 1 and not row.kernel and not row.core)
    for F in (model.embedding_, *model.factors_):
        assert np.isfinite(F).all() and (row.free_bases or (F >= 0).all())
    assert (model.embedding_ >= 0).all() and np.isfinite(model.reconstruction_err_)
    if row.reconstructs:
        fitted = product(model)
        tol = 1e-8 if model.embedding_.dtype == np.float64 else 1e-4
        residual = np.linalg.norm(X.reshape(fitted.shape) - fitted)
        assert abs(model.reconstruction_err_ - residual) <= tol * max(np.linalg.norm(X), residual, 1e-300)
    assert np.isfinite(model.loss_) and model.loss_ >= 0


class TestWhatIsTaken:
    """Kinds, dtypes, layouts, shapes."""

    @every_matrix
    def test_kinds_of_arrays_give_the_same_numbers(self, key):
        expected = make(key).fit(X, Y)
        assert_sound(key, expected, X)
        big = np.full((24, 24), 7.0)
        big[::2, 1:24:3] = X
        read_only = X.copy()
        read_only.flags.writeable = False
        frame = pd.DataFrame(X, columns=[f"g{j}" for j in range(8)], index=range(100, 112))
        kinds = {
            "fortran": np.asfortranarray(X),
            "strided": big[::2, 1:24:3],
            "reversed": np.ascontiguousarray(X[::-1, ::-1])[::-1, ::-1],
            "read-only": read_only,
            "big-endian": X.astype(">f8"),
            "frame": frame,
            "list": X.tolist(),
            "torch": torch.from_numpy(X),
        }
        for kind, given_X in kinds.items():
            before = copy.deepcopy(given_X)
            model = make(key).fit(given_X, Y)
            same(model.embedding_, expected.embedding_)
            same(model.transform(given_X), expected.transform(X))
            assert isinstance(model.embedding_, torch.Tensor) == (kind == "torch")
            assert np.array_equal(np.asarray(before), np.asarray(given_X)), kind
        assert list(make(key).fit(frame, Y).feature_names_in_) == list(frame.columns)

    @every_matrix
    def test_dtypes(self, key):
        pixels = np.random.default_rng(3).integers(0, 256, size=(12, 8))
        expected = make(key).fit(pixels.astype(float), Y)
        for dtype in ("uint8", "int16", "uint16", "int64", "float16", "bool"):
            given_X = pixels > 100 if dtype == "bool" else pixels.astype(dtype)
            against = make(key).fit(given_X.astype(float), Y) if dtype == "bool" else expected
            model = make(key).fit(given_X, Y)
            assert model.embedding_.dtype == (np.float32 if dtype == "float16" else np.float64)
            if dtype != "float16":
                same(state(key, model), state(key, against), 1e-6)
        for dtype in ("float32", "float64"):
            model = make(key).fit(pixels.astype(dtype), Y)
            given_back = (model.embedding_, *model.factors_, model.transform(pixels.astype(dtype)))
            assert {a.dtype for a in given_back} == {np.dtype(dtype)}
            forced = make(key, dtype=dtype).fit(pixels, Y)
            assert forced.embedding_.dtype == dtype and forced.fit_info_["dtype"] == dtype
        for half in (torch.float16, torch.bfloat16):
            assert make(key).fit(torch.from_numpy(pixels).to(half), Y).embedding_.dtype == torch.float32

    @every_matrix
    def test_sparse_equals_dense(self, key):
        D = X * (np.median(X) < X)
        D[3] = D[:, 2] = 0
        expected = make(key, init="random").fit(D, Y)
        i, j = np.nonzero(D)
        unsorted = sp.csr_array(D)
        for r in range(12):
            row = slice(unsorted.indptr[r], unsorted.indptr[r + 1])
            unsorted.indices[row], unsorted.data[row] = unsorted.indices[row][::-1], unsorted.data[row][::-1].copy()
        unsorted.has_sorted_indices = False
        doubled = sp.coo_matrix((np.r_[D[i, j] / 4, 3 * D[i, j] / 4], (np.r_[i, i], np.r_[j, j])), shape=D.shape)
        stored = sp.csr_array((np.r_[D[i, j], 0.0], (np.r_[i, 3], np.r_[j, 2])), shape=D.shape)
        wide = sp.csr_matrix(D)
        wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
        for S in (sp.csr_matrix(D), sp.csc_array(D), sp.coo_array(D), unsorted, doubled, stored, wide):
            before = [
                a.copy() for a in ((S.row, S.col, S.data) if S.format == "coo" else (S.indptr, S.indices, S.data))
            ]
            model = make(key, init="random").fit(S, Y)
            same(state(key, model), state(key, expected), 1e-6)
            same(model.transform(S), expected.transform(D), 1e-6)
            after = (S.row, S.col, S.data) if S.format == "coo" else (S.indptr, S.indices, S.data)
            assert all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in zip(before, after))
        for S in (sp.lil_array(D), sp.dok_array(D), sp.bsr_array(D)):
            same(state(key, make(key, init="random").fit(S, Y)), state(key, expected), 1e-6)

    @every_matrix
    @pytest.mark.parametrize("shape", [(1, 1), (1, 5), (5, 1), (2, 2), (3, 9)])
    def test_tiny_shapes_with_default_settings(self, key, shape):
        A = np.random.default_rng(0).random(shape) + 0.1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = MATRIX[key](random_state=0).fit(A, labels(shape[0]))
        assert_sound(key, model, A)
        assert model.transform(A).shape == (shape[0], 3)
        if MATRIX[key].reconstructs:
            assert model.inverse_transform(model.transform(A)).shape == shape

    @every_matrix
    def test_zeros(self, key):
        A, row = X.copy(), MATRIX[key]
        A[4] = A[:, 0] = A[:, 5] = 0
        model = make(key, max_iter=300).fit(A, labels(12))
        assert_sound(key, model, A)
        if row.reconstructs:
            assert np.abs(product(model)[:, [0, 5]]).max() <= 1e-6 * A.max()
        if not row.lifts_zero_samples:
            assert np.abs(state(key, model)[4]).max() <= 1e-6 * np.abs(state(key, model)).max()
        zero = model.transform(np.zeros((2, 8)))
        same(zero, np.zeros((2, 3)) if row.zero_features else zero[[1, 0]])
        for constant in (np.zeros((6, 5)), np.ones((6, 5))):
            model = make(key).fit(constant, labels(6))
            assert_sound(key, model, constant)
            if row.zero_features and not constant.any():
                assert not state(key, model).any()

    @every_tensor
    @pytest.mark.parametrize("shape", [(5, 2, 3), (4, 1, 3, 2), (3, 2, 2, 1, 3), (2, 2, 3, 2, 1, 2)])
    def test_orders_and_modes_of_size_one(self, key, shape):
        A = np.random.default_rng(0).random(shape) + 0.1
        model = make(key).set_params(**{MATRIX[key].rank: 4})
        model.fit(A, labels(shape[0]))
        assert_sound(key, model, A)
        flat = clone(model).set_params(sample_shape=shape[1:]).fit(A.reshape(shape[0], -1), labels(shape[0]))
        same(product(flat), product(model))
        assert flat.n_features_in_ == model.n_features_in_ == np.prod(shape[1:])
        assert flat.inverse_transform(flat.embedding_).shape == (shape[0], np.prod(shape[1:]))
        assert model.inverse_transform(model.embedding_).shape == shape
        same(flat.transform(A.reshape(shape[0], -1)), model.transform(A))
        same((model.to_tucker() if MATRIX[key].core else model.to_cp()).to_tensor(), product(model))

    def test_tensorly_tensors_and_more_components_than_dimensions(self):
        import tensorly as tl

        model = NTF(9, random_state=0, max_iter=2000, tol=0).fit(tl.tensor(CUBE[:3, :2, :2]))
        assert model.reconstruction_err_ < 0.02 * np.linalg.norm(CUBE[:3, :2, :2])
        wide = NMF(7, max_iter=2000, tol=0, random_state=0).fit(X[:5, :4])
        assert wide.reconstruction_err_ < 0.02 * np.linalg.norm(X[:5, :4]) and wide.components_.shape == (7, 4)


BAD_DATA = {
    "NaN": (np.nan, "NaN"),
    "inf": (np.inf, "infinity"),
    "negative": (-1e-3, "Negative values in data"),
}


class TestWhatIsRefused:
    """Messages name the argument, what was found, and what would work; nothing is half-fitted."""

    @every_matrix
    @pytest.mark.parametrize("bad", BAD_DATA)
    @pytest.mark.parametrize("kind", ["numpy", "torch", "csr"])
    def test_entries(self, key, bad, kind):
        value, message = BAD_DATA[bad]
        wrong = X.copy()
        wrong[2, 1] = wrong[7, 5] = value
        convert = {"numpy": np.asarray, "torch": torch.from_numpy, "csr": sp.csr_array}[kind]
        if bad == "negative" and MATRIX[key].signed:
            assert np.isfinite(np.asarray(make(key).fit(convert(wrong), Y).transform(X))).all()
            return
        model = make(key)
        with pytest.raises(ValueError, match=rf"{message}.*2 of \d+ entries, the first at \(2, 1\)"):
            model.fit(convert(wrong), Y)
        with pytest.raises(NotFittedError):
            model.transform(X)
        model.fit(X, Y)
        with pytest.raises(ValueError, match=message):
            model.transform(convert(wrong))
        zero, negative_zero = X.copy(), X.copy()
        zero[3, 3], negative_zero[3, 3] = 0.0, -0.0
        same(make(key).fit(negative_zero, Y).embedding_, make(key).fit(zero, Y).embedding_)

    @every_matrix
    def test_shapes_and_kinds(self, key):
        for wrong in (np.ones(5), np.empty((0, 3)), np.empty((3, 0)), torch.ones(4), torch.empty(0, 3)):
            with pytest.raises(ValueError, match=r"[sS]hape|samples|dimension|1D"):
                make(key).fit(wrong, labels(len(wrong)))
        for wrong in (X.astype(complex), torch.ones(3, 3, dtype=torch.complex64), np.full((3, 3), "a")):
            with pytest.raises(ValueError):
                make(key).fit(wrong, labels(len(wrong)))
        model = make(key).fit(X, Y)
        for wrong in (X[:, :5], torch.from_numpy(X[:, :5])):
            with pytest.raises(ValueError, match="5 features, but"):
                model.transform(wrong)
        if MATRIX[key].reconstructs:
            with pytest.raises(ValueError, match=r"\(n_samples, 3\)"):
                model.inverse_transform(np.ones((2, 5)))
        else:
            assert not hasattr(model, "inverse_transform") and not hasattr(model, "to_cp")

    @pytest.mark.parametrize(
        "settings, message",
        [
            ({"n_components": 0}, "n_components must be a whole number >= 1, got 0"),
            ({"n_components": 2.5}, "n_components"),
            ({"max_iter": -1}, "max_iter"),
            ({"n_init": 0}, "n_init"),
            ({"tol": -1}, "tol"),
            ({"solver": "newton"}, "solver='newton' is not known; use 'auto'"),
            ({"init": "svd"}, "init='svd' is not known"),
            ({"init": (np.ones((12, 3)),)}, r"V \(12, 3\), U1 \(8, 3\).*got 1 arrays"),
            ({"init": (np.ones((12, 3)), np.ones((3, 8)))}, r"U1 has shape \(3, 8\), but must be \(8, 3\)"),
            ({"init": (np.ones((12, 3)), -np.ones((8, 3)))}, "U1 has 24 negative"),
            ({"init": (np.full((12, 3), np.nan), np.ones((8, 3)))}, "V has 36 negative, NaN"),
            ({"device": "tpu"}, "device='tpu'"),
            ({"dtype": "int8"}, "dtype='int8'"),
            ({"transform_method": "ols"}, "transform_method"),
            ({"callback": 3}, "callback"),
        ],
    )
    @pytest.mark.parametrize("key", ["NMF", "NTF", "NGE"])
    def test_parameters(self, key, settings, message):
        with pytest.raises(ValueError, match=message):
            make(key).set_params(**settings).fit(X, Y)

    @pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is present")
    def test_a_missing_gpu_is_explained(self):
        with pytest.raises(ValueError, match="torch sees 0 CUDA devices"):
            NMF(2, device="cuda").fit(X)

    def test_combinations(self):
        for solver in ("hals", "projected"):
            with pytest.raises(ValueError, match="use 'multiplicative' or 'auto'"):
                NMF(2, loss=1, solver=solver).fit(X)
        with pytest.raises(ValueError, match="beta = 0 needs data without zeros"):
            NMF(2, loss=0).fit(np.eye(3))
        with pytest.raises(ValueError, match=r"init='nndsvda'.*n_components <= .*4"):
            NMF(7, init="nndsvda").fit(X[:5, :4])
        with pytest.raises(ValueError, match="2 dimensions"):
            NMF(2).fit(CUBE)
        with pytest.raises(ValueError, match=r"sample_shape=\(5, 5\) has 25 entries"):
            NTF(2, sample_shape=(5, 5)).fit(X)

    @pytest.mark.parametrize(
        "settings, message",
        [
            (
                {"solver": "auto", "basis_rule": "paper"},
                "basis_rule='paper'.*Use solver='multiplicative' or 'm_matrix'",
            ),
            ({"n_discriminative": 4}, r"n_discriminative must be None or a whole number in 0\.\.3, got 4"),
            ({"alpha": -1.0}, "alpha"),
            ({"alpha": np.nan}, "alpha"),
            ({"graph": "knn"}, "graph='knn' is not known"),
            ({"graph": (np.eye(3), np.eye(3))}, r"graph\[0\] has 3 nodes, X has 12 samples"),
            ({"graph": (np.triu(np.ones((12, 12))), np.eye(12))}, r"graph\[0\].*not symmetric"),
            ({"graph": (-np.ones((12, 12)), np.eye(12))}, r"graph\[0\].*negative"),
            ({"graph": (np.ones((12, 11)), np.eye(12))}, r"graph\[0\].*square"),
            ({"inner": "gmres"}, "inner='gmres'"),
            ({"inner_iter": 0}, "inner_iter"),
            ({"inner_tol": -1.0}, "inner_tol"),
            ({"graph": MarginalFisher(n_neighbors=-1)}, "n_neighbors"),
        ],
    )
    def test_nge_parameters(self, settings, message):
        with pytest.raises(ValueError, match=message):
            make("NGE").set_params(**settings).fit(X, Y)

    def test_labels(self):
        with pytest.raises(ValueError, match=r"y has shape \(11,\), X has 12 samples"):
            make("NGE").fit(X, Y[:11])
        with pytest.raises(ValueError, match="requires y"):
            make("NGE").fit(X)
        with pytest.raises(ValueError, match="n_discriminative is required"):
            make("NGE", graph=(np.zeros((12, 12)),) * 2).fit(X)

    def test_a_failed_fit_leaves_the_estimator_as_it_was(self):
        model = make("NGE").fit(X, Y)
        before = dict(vars(model))
        with pytest.raises(ValueError):
            model.fit(-X, Y)
        assert vars(model) == before
        fresh = make("NMF", init=(np.full((12, 3), 1e300), np.full((8, 3), 1e300)))
        with pytest.raises(FloatingPointError, match="NMF: the objective became"), np.errstate(over="ignore"):
            fresh.fit(X)
        assert not any(name.endswith("_") for name in vars(fresh))


class TestWhatIsPromised:
    """Results, histories, restarts, transforms."""

    @every_matrix
    def test_transform(self, key):
        model = make(key, max_iter=200)
        if hasattr(model, "transform_tol"):  # `fit_transform` comes from another start
            model.set_params(transform_tol=1e-13, transform_max_iter=100_000)
        again = clone(model)
        before = pickle.dumps(vars(model.fit(X, Y)))
        V = model.transform(X)
        assert pickle.dumps(vars(model)) == before
        same(again.fit_transform(X, Y), V)
        if MATRIX[key].reconstructs and not MATRIX[key].supervised:
            err = np.linalg.norm(X - model.inverse_transform(V)) - model.reconstruction_err_
            assert err <= 1e-3 * np.linalg.norm(X)
        rows = np.concatenate([model.transform(X[i : i + 1]) for i in (7, 3)])
        among = model.transform(np.concatenate([X[[7, 3]], 1e6 * X]))[:2]
        unique = not MATRIX[key].reconstructs or np.linalg.cond(model.factors_[0]) < 1e7
        told = (lambda V: V) if unique else model.inverse_transform  # equal bases share their coefficients in any way
        same(told(model.transform(X[[7, 3]])), told(rows), 1e-7)
        same(told(among), told(rows), 1e-7)  # whatever the others are
        assert MATRIX[key].negative_features or (V >= 0).all()

    @every_matrix
    def test_history_and_stops(self, key):
        model = make(key, verbose=2).fit(X, Y)
        history = model.history_
        assert history["iteration"].tolist() == list(range(31)) and model.n_iter_ == 30
        rare = "KL" in key or "beta" in key or key == "LNMF"  # an objective of these costs a pass over the data
        assert make(key).fit(X, Y).history_["iteration"].tolist() == list(range(0, 31, 10 if rare else 1))
        assert len(history["objective"]) == len(history["seconds"]) == 31
        assert not MATRIX[key].monotone or (np.diff(history["objective"]) <= 1e-9 * history["objective"][0]).all()
        assert (np.diff(history["seconds"]) >= 0).all()
        np.testing.assert_allclose(
            history["objective"][-1], model.loss_, rtol=1e-6, atol=1e-9 * history["objective"][0]
        )
        if MATRIX[key].monotone:  # what may rise stops when it does
            with pytest.warns(ConvergenceWarning, match="max_iter=20.*tol=1e-12"):
                model = make(key, max_iter=20, tol=1e-12).fit(X, Y)
            assert not model.converged_ and model.history_["iteration"].tolist() == [0, 10, 20]
        model = make(key, max_iter=5000, tol=1e-3).fit(X, Y)
        assert model.converged_ and model.n_iter_ % 10 == 0 and model.history_["iteration"][-1] == model.n_iter_

    @every_matrix
    def test_restarts_equal_separate_fits(self, key):
        model = make(key, n_init=4, tol=3e-3, max_iter=2000, random_state=5).fit(X, Y)
        seeds = model.fit_info_["seeds"]
        assert model.restarts_["loss"].shape == model.restarts_["n_iter"].shape == (4,) and len(seeds) == 4
        assert model.restarts_["factors"][0].shape == (4, *model.factors_[0].shape)
        np.testing.assert_allclose(model.restarts_["loss"].min(), model.loss_, rtol=1e-6)
        for r in (1, 3):
            alone = make(key, tol=3e-3, max_iter=2000, init="random", random_state=Drawn(seeds[r])).fit(X, Y)
            assert alone.n_iter_ == model.restarts_["n_iter"][r]
            np.testing.assert_allclose(alone.loss_, model.restarts_["loss"][r], rtol=1e-7)
        more = make(key, n_init=2, tol=3e-3, max_iter=2000, random_state=5).fit(X, Y)
        np.testing.assert_allclose(more.restarts_["loss"], model.restarts_["loss"][:2], rtol=1e-7)
        assert not hasattr(more.set_params(n_init=1).fit(X, Y), "restarts_")

    @every_matrix
    def test_seeds_and_generators(self, key):
        np.random.seed(0)
        torch.manual_seed(0)
        states = np.random.get_state()[1].copy(), torch.get_rng_state().clone()
        first, second, third = (make(key, init="random", random_state=s).fit(X, Y) for s in (3, 3, 4))
        assert np.array_equal(first.embedding_, second.embedding_)
        assert not np.array_equal(first.embedding_, third.embedding_)
        assert np.array_equal(states[0], np.random.get_state()[1]) and torch.equal(states[1], torch.get_rng_state())
        torch.use_deterministic_algorithms(True)
        try:
            assert np.array_equal(make(key, init="random", random_state=3).fit(X, Y).embedding_, first.embedding_)
        finally:
            torch.use_deterministic_algorithms(False)

    @every_matrix
    def test_warm_start_goes_on(self, key):
        whole = make(key, max_iter=40).fit(X, Y)
        half = make(key, max_iter=20).fit(X, Y)
        settings = MATRIX[key].resume(half)
        arrays = settings["init"]
        before = [a.copy() for a in arrays]
        rest = make(key, max_iter=20, **settings).fit(X, Y)
        if MATRIX[key].momentum:
            assert rest.history_["objective"][0] == pytest.approx(half.loss_, rel=1e-9)
            assert rest.loss_ < half.loss_
        else:
            same(state(key, rest), state(key, whole))
        assert all(np.array_equal(a, b) for a, b in zip(arrays, before))

    @beyond
    @pytest.mark.parametrize("key", SCALE_FREE)
    @pytest.mark.parametrize("scale", [1e-300, 1e-30, 1e30, 1e140])
    def test_scale_of_the_data_does_not_matter(self, key, scale):
        stop = {"max_iter": 2000, "tol": 3e-3} if MATRIX[key].monotone else {"max_iter": 100}
        plain, model = make(key, **stop).fit(X, Y), make(key, **stop)
        if not 1e-300 <= scale ** MATRIX[key].power <= 1e300:
            with pytest.raises(ValueError, match=r"too large or small.*rescale X"):
                model.fit(X * scale, Y)
            return
        model.fit(X * scale, Y)
        same(state(key, model, scale), state(key, plain), 1e-5)
        assert abs(model.n_iter_ - plain.n_iter_) <= 10
        if MATRIX[key].reconstructs:
            again = model.inverse_transform(model.transform(X * scale)) / scale
            same(again, plain.inverse_transform(plain.transform(X)), 1e-4)

    @beyond
    @every_matrix
    @pytest.mark.parametrize("entry", [1e-300, 1e-160, 1e160, 1e300])
    def test_an_exact_fit_beyond_the_range_of_squares(self, key, entry):
        model = make(key, max_iter=100)
        try:
            model.fit(np.full((3, 2), entry), [0, 1, -1])
        except ValueError as error:
            assert "rescale X" in str(error) and MATRIX[key].kernel
            return
        assert not np.isnan(model.loss_) and not np.isnan(model.history_["objective"]).any()
        assert all(np.isfinite(F).all() for F in (model.embedding_, *model.factors_))

    @every_matrix
    def test_float32_at_extreme_scales(self, key):
        for scale in (1e-30, 1e30):
            A = (X * scale).astype(np.float32)
            model = make(key, max_iter=100)
            if MATRIX[key].power > 1:
                with pytest.raises(ValueError, match="rescale X or use float64"):
                    model.fit(A, Y)
                model.set_params(dtype="float64")
            model.fit(A, Y)
            assert_sound(key, model, A)
            if MATRIX[key].reconstructs and MATRIX[key].near:
                assert model.reconstruction_err_ < 0.5 * np.linalg.norm(A.astype(float))

    @every_matrix
    def test_float32_follows_float64(self, key):
        start = [np.random.default_rng(i).random(shape) for i, shape in enumerate(MATRIX[key].shapes(12, 8, 3))]
        one, two = (make(key, init=start, max_iter=50).fit(X.astype(t), Y) for t in (np.float32, np.float64))
        assert abs(one.reconstruction_err_ - two.reconstruction_err_) <= 1e-4 * np.linalg.norm(X)
        assert abs(one.loss_ - two.loss_) <= 1e-4 * (two.history_["objective"][0] + np.linalg.norm(X) ** 2)

    @every_matrix
    def test_copies_and_pipelines(self, key):
        model = make(key).fit(X, Y)
        for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
            same(other.transform(X), model.transform(X))
            assert other.loss_ == model.loss_
        fresh = clone(model)
        assert fresh.get_params() == model.get_params() and not hasattr(fresh, "embedding_") and repr(model)
        frame = make_pipeline(make(key)).set_output(transform="pandas").fit(X, Y).transform(X)
        name = type(model).__name__.lower()
        assert list(frame.columns) == [f"{name}{j}" for j in range(3)]

    def test_joblib(self):
        results = joblib.Parallel(n_jobs=2)(joblib.delayed(make("NGE").fit)(X, Y) for _ in range(2))
        same(results[0].embedding_, results[1].embedding_)

    def test_a_second_fit_shows_no_trace_of_the_first(self):
        model = make("NGE", n_init=2).fit(pd.DataFrame(X, columns=list("abcdefgh")), Y)
        model.set_params(n_init=1, graph=(np.zeros((12, 12)),) * 2, n_discriminative=1).fit(X)
        fresh = clone(model).fit(X)
        assert vars(model).keys() == vars(fresh).keys()
        same(model.embedding_, fresh.embedding_)

    def test_results_do_not_depend_on_the_number_of_threads(self):
        A = np.random.default_rng(0).random((300, 200))
        y, ends, threads = labels(300), [], torch.get_num_threads()
        for n in (1, 2):
            torch.set_num_threads(n)
            ends.append([m.fit(A, y).embedding_ for m in (make("NMF"), make("NGE", alpha=10.0), make("NMF, KL"))])
        torch.set_num_threads(threads)
        for one, two in zip(*ends, strict=True):
            same(one, two, 1e-9)

    def test_callback(self):
        seen = []
        model = make("NMF", max_iter=100, callback=lambda p: seen.append(p.objective) or p.iteration == 20).fit(X)
        assert model.n_iter_ == 20 and len(seen) == 3 and seen[-1] < seen[0]

    def test_verbose(self, capsys):
        make("NMF", verbose=1).fit(X)
        assert capsys.readouterr().out.count("[NMF] iteration") == 3

    def test_what_it_ran_with_is_recorded(self):
        info = make("NMF").fit(X).fit_info_
        assert info["device"] == "cpu" and info["torch"] == torch.__version__ and len(info["seeds"]) == 1


class TestGraphsAndLabels:
    """What is special about NGE."""

    def test_every_encoding_of_labels(self):
        truth = np.arange(12) % 3
        known = np.arange(12) % 4 != 3
        names = np.array(["ash", "birch", "cedar"], dtype=object)
        as_object = lambda marker: np.array([names[c] if k else marker for c, k in zip(truth, known)], dtype=object)
        encodings = {
            "int": np.where(known, truth, -1),
            "gaps": np.where(known, truth * 10 + 5, -1),
            "float": np.where(known, truth, -1.0),
            "nan": np.where(known, truth, np.nan),
            "none": as_object(None),
            "minus one": as_object(-1),
            "strings": np.array([names[c] if k else "-1" for c, k in zip(truth, known)]),
            "list": np.where(known, truth, -1).tolist(),
            "torch": torch.from_numpy(np.where(known, truth, -1)),
        }
        expected = make("NGE").fit(X, encodings["int"]).embedding_
        for name, y in encodings.items():
            before = copy.deepcopy(y)
            model = make("NGE").fit(X, y)
            same(model.embedding_, expected)
            assert len(model.classes_) == 3 and model.n_discriminative_ == 3, name
            assert all(a is b or a == b or a != a for a, b in zip(y, before))
        with pytest.raises(ValueError, match="mixes"):
            make("NGE").fit(X, np.array(["a", 1] * 6, dtype=object))

    @pytest.mark.parametrize("y", [np.full(12, -1), np.zeros(12, dtype=int), np.r_[0, 0, [-1] * 10], np.arange(12)])
    def test_degenerate_labels(self, y):
        for alpha in (1.0, 1e5):
            assert_sound("NGE", make("NGE", alpha=alpha).fit(X, y), X)

    def test_without_labels_it_is_a_plain_factorization(self):
        start = (np.random.default_rng(0).random((12, 3)), np.random.default_rng(1).random((8, 3)))
        nge = make("NGE, multiplicative", init=start).fit(X, np.full(12, -1))
        same(product(nge), product(make("NMF, multiplicative", init=start).fit(X)))

    def test_alpha_smooths_the_embedding(self):
        A = np.zeros((12, 12))
        A[:5, :5] = 1.0
        rough = {}
        for alpha in (0.0, 1.0, 100.0):
            model = NGE(3, n_discriminative=3, alpha=alpha, graph=(A, A), random_state=0, max_iter=300, tol=0).fit(X)
            V = model.embedding_ / np.linalg.norm(model.embedding_)
            rough[alpha] = float(sum(model.graph_[0].energy(torch.from_numpy(V))[0]))
            assert np.isfinite(V).all()
        assert rough[100.0] < rough[1.0] < rough[0.0]

    @pytest.mark.parametrize("q", [0, 3])
    def test_all_or_no_discriminative_columns(self, q):
        assert_sound("NGE", make("NGE", n_discriminative=q).fit(X, Y), X)

    def test_published_bases_have_unit_columns(self):
        model = make("NGE").fit(CUBE, Y)
        for F in model.factors_:
            norms = np.linalg.norm(F, axis=0)
            assert np.all((np.abs(norms - 1) < 1e-12) | (norms == 0))

    def test_adjacencies_of_every_kind(self):
        A = (np.random.default_rng(0).random((12, 12)) < 0.3).astype(float)
        A = np.maximum(A, A.T)
        kinds = [A, sp.csr_matrix(A), sp.coo_array(A), torch.from_numpy(A), A.astype(np.float32), A.astype(bool)]
        ends = [make("NGE", graph=(kind, kind), n_discriminative=2).fit(X).embedding_ for kind in kinds]
        for end in ends[1:]:
            same(end, ends[0])


@settings(max_examples=60, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 7), st.integers(1, 6)),
    scale=st.integers(-30, 30),
    zeros=st.sampled_from([0.0, 0.3, 0.9, 1.0]),
    key=st.sampled_from(sorted(MATRIX)),
    k=st.integers(1, 5),
    seed=st.integers(0, 10**6),
    dtype=st.sampled_from(["float32", "float64"]),
    storage=st.sampled_from([np.asarray, np.asfortranarray, sp.csr_array, sp.csc_matrix]),
)
@example((2, 2), 3, 0.9, "NMF", 3, 14099, "float32", np.asarray)  # a vanishing column: its Gram underflows
def test_whatever_is_accepted_comes_out_sound(shape, scale, zeros, key, k, seed, dtype, storage):
    rng = np.random.default_rng(seed)
    A = (rng.random(shape) * (rng.random(shape) >= zeros) * 10.0**scale).astype(dtype)
    y = rng.integers(-1, 3, size=shape[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = MATRIX[key](random_state=0, max_iter=15).set_params(**{MATRIX[key].rank: k})
        try:
            model.fit(storage(A), y)
        except ValueError as refused:  # powers of the data are beyond the range of their dtype
            assert MATRIX[key].power > 1 and abs(scale) > 15 and "rescale X" in str(refused)
            return
    assert_sound(key, model, A)
    V = model.transform(storage(A))
    assert np.isfinite(V).all() and (MATRIX[key].negative_features or (V >= 0).all())
