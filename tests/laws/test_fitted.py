"""What fitted estimators go by: their factors, also those that were set or known, and no parameter that changed since."""

import copy
import pickle
import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from estimators import MATRIX, SUPERVISED, TENSOR, blocks, labels
from scipy.optimize import nnls
from sklearn.exceptions import NotFittedError

from nnfactor import NMF, NTF, SULF, HarmonicFunction, KernelNMF, PolynomialNMF, SemiNMF

X, Y = blocks(24), labels(24)
NEW = blocks(10, seed=5)
KNOWN = np.random.default_rng(7).random((3, 8)) + 0.1
every_matrix = pytest.mark.parametrize("key", MATRIX)
LINEAR = [key for key, row in MATRIX.items() if row.reconstructs and key != "LNMF"]
BY_FACTORS = [key for key, row in MATRIX.items() if not row.kernel and not row.core]


def fit(key, data=X, **settings):
    return MATRIX[key](**{"random_state": 0, "max_iter": 20, "tol": 0, **settings}).fit(data, Y)


def answers(model, data=NEW):
    """Everything that a fitted model says of new samples."""
    said = {m: getattr(model, m)(data) for m in ("transform", "predict", "predict_proba") if hasattr(model, m)}
    return {name: np.asarray(value) for name, value in said.items()}


class TestParametersThatChange:
    @pytest.mark.parametrize("key", {**MATRIX, **SUPERVISED})
    def test_a_fitted_model_answers_from_what_was_fitted(self, key):
        row = {**MATRIX, **SUPERVISED}[key]
        model = row().set_params(**({"max_iter": 20, "tol": 0, "random_state": 0} if key in MATRIX else {})).fit(X, Y)
        expected = answers(model)
        other = {
            "n_components": 5,
            "ranks": 5,
            "loss": 1,
            "degree": 3,
            "sigma": 0.3,
            "kernel": "linear",
            "n_neighbors": 2,
        }
        other |= {"out_of_sample": "labelled", "graph": "full", "alpha": 0.5, "signed": "semi", "view_weights": "equal"}
        other |= {"class_mass": True, "codes": "l2", "CA": 1.0, "normalize": False, "scaling": "none", "beta": 3.0}
        model.set_params(**{name: value for name, value in other.items() if name in model.get_params()})
        for name, value in answers(model).items():
            assert np.array_equal(value, expected[name]), name
        if "transform" in expected:
            assert len(model.get_feature_names_out()) == expected["transform"].shape[1]
        if key in LINEAR:
            assert model.inverse_transform(expected["transform"]).shape == NEW.shape

    @every_matrix
    def test_names_before_fit(self, key):
        with pytest.raises(NotFittedError):
            MATRIX[key]().get_feature_names_out()


class TestInverseTransform:
    """It reads coefficients as `fit` reads data, and works in their precision."""

    @pytest.mark.parametrize("key", LINEAR)
    def test_kinds_of_coefficients(self, key):
        model = fit(key)
        V = model.transform(NEW)
        expected = model.inverse_transform(V)
        frozen = V.copy()
        frozen.flags.writeable = False
        kinds = {
            "frozen": frozen,
            "reversed": V[::-1][::-1],
            "big": V.astype(">f8"),
            "long": V.astype(np.longdouble),
            "sparse": sp.csr_array(V),
            "objects": V.astype(object),
            "list": V.tolist(),
            "frame": pd.DataFrame(V),
            "torch": torch.from_numpy(V),
            "torch sparse": torch.from_numpy(V).to_sparse_coo(),
            "gradients": torch.from_numpy(V).requires_grad_(),
        }
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for kind, given in kinds.items():
                found = model.inverse_transform(given)
                assert isinstance(found, torch.Tensor) == isinstance(given, torch.Tensor), kind
                np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-12, err_msg=kind)
        bad = V.copy()
        bad[1, 1] = np.nan
        for given, told in ((bad, "V contains NaN"), (V[:, :1], r"must be \(n_samples, 3\)"), (V.astype(str), "real")):
            with pytest.raises(ValueError, match=told):
                model.inverse_transform(given)
        with pytest.raises(ValueError, match="masked"):
            model.inverse_transform(np.ma.masked_array(V, V.max() <= V))

    @pytest.mark.parametrize("key", LINEAR)
    def test_autocast_does_not_get_in(self, key):
        data = torch.from_numpy(X).float()
        model = fit(key, data)
        V = model.transform(data)
        expected = model.inverse_transform(V)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = model.inverse_transform(V)
            model.inverse_transform(V.numpy())
        assert found.dtype == torch.float32 and torch.equal(found, expected)

    @pytest.mark.parametrize("key", TENSOR)
    def test_tensors_keep_their_shape(self, key):
        cube = blocks(12, 24).reshape(12, 4, 6)
        model = MATRIX[key](random_state=0, max_iter=5, tol=0).fit(cube, labels(12))
        assert model.inverse_transform(sp.csr_array(model.transform(cube))).shape == cube.shape


class TestFittedArraysThatAreReadOnly:
    @pytest.mark.parametrize("key", {**MATRIX, **SUPERVISED})
    def test_a_memory_map_does_not_warn(self, key, tmp_path):
        row = {**MATRIX, **SUPERVISED}[key]
        model = row().set_params(**({"max_iter": 20, "tol": 0, "random_state": 0} if key in MATRIX else {})).fit(X, Y)
        expected = answers(model)
        joblib.dump(model, tmp_path / "model")
        loaded = joblib.load(tmp_path / "model", mmap_mode="r")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for name, value in answers(loaded).items():
                np.testing.assert_allclose(value, expected[name], rtol=1e-12)
            if key in LINEAR:
                loaded.inverse_transform(loaded.transform(NEW))


class TestComponents:
    @pytest.mark.parametrize("key", BY_FACTORS)
    @pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
    def test_they_share_the_memory_of_the_factor(self, key, kind):
        for k in (1, 3):
            model = MATRIX[key](random_state=0, max_iter=5, tol=0).set_params(n_components=k).fit(kind(X), Y)
            before = answers(model)
            assert model.components_.shape == (k, 8)
            model.components_[:] = model.components_ * 2
            np.testing.assert_array_equal(np.asarray(model.components_), np.asarray(model.factors_[0]).T)
            after = answers(model)["transform"]
            assert np.abs(after - before["transform"]).max() > 1e-3 * np.abs(after).max()

    @pytest.mark.parametrize("key", ["NMF", "NTF", "NGE", "N2S2L", "SemiNMF", "GraphNMF", "ConstrainedNMF", "SULF"])
    @pytest.mark.parametrize("by", ["components_", "factors_"])
    def test_those_that_are_set_are_honoured(self, key, by):
        model = fit(key)
        given = KNOWN.copy()
        setattr(model, by, given if by == "components_" else [given.T])
        V = model.transform(NEW)
        np.testing.assert_allclose(V, [nnls(KNOWN.T, x)[0] for x in NEW], atol=1e-9)
        np.testing.assert_allclose(model.inverse_transform(V), V @ KNOWN, atol=1e-12)
        if by == "components_":
            given[:] = 0
            assert np.array_equal(model.transform(NEW), V)

    def test_what_does_not_fit_is_refused(self):
        model = fit("NMF")
        for H, told in ((KNOWN[:2], "must be"), (KNOWN.T, "transposed"), (-KNOWN, "negative"), (KNOWN * np.nan, "NaN")):
            with pytest.raises(ValueError, match=told):
                model.components_ = H
        fit("SemiNMF").components_ = -KNOWN
        model.factors_ = [KNOWN]
        with pytest.raises(ValueError, match=r"factors_ have shapes \[\(3, 8\)\]"):
            model.transform(NEW)
        kernel = fit("KernelNMF")
        for name in ("factors_", "components_"):
            with pytest.raises(AttributeError, match=f"{name} of KernelNMF cannot be set"):
                setattr(kernel, name, [KNOWN.T])
        assert not hasattr(kernel, "components_") and not hasattr(NTF(2), "components_")
        with pytest.raises(NotFittedError, match="can be set after fit"):
            SemiNMF(3).components_ = KNOWN

    @pytest.mark.parametrize("model", [NMF(2), NTF(2), SemiNMF(2)], ids=repr)
    def test_before_a_fit_there_are_none(self, model):
        with pytest.raises(NotFittedError, match=rf"{type(model).__name__} is not fitted yet.*; call fit first"):
            _ = model.components_

    def test_copies_and_pickles_keep_them(self):
        model = fit("NMF")
        model.components_ = KNOWN
        for again in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
            assert np.array_equal(again.components_, KNOWN) and not np.shares_memory(again.components_, KNOWN)


class TestKnownBases:
    def test_they_make_a_fitted_estimator(self):
        named = pd.DataFrame(KNOWN, columns=list("abcdefgh"))
        expected = np.array([nnls(KNOWN.T, x)[0] for x in NEW])
        for H in (KNOWN, named, sp.csr_array(KNOWN), KNOWN.tolist(), KNOWN.astype(object)):
            model = NMF.from_components(H)
            data = pd.DataFrame(NEW, columns=named.columns) if H is named else NEW
            np.testing.assert_allclose(model.transform(data), expected, atol=1e-9)
            assert model.n_components == 3 and list(model.get_feature_names_out()) == ["nmf0", "nmf1", "nmf2"]
            assert not hasattr(model, "embedding_") and model.components_.shape == (3, 8)
        assert list(NMF.from_components(named).feature_names_in_) == list("abcdefgh")
        again = pickle.loads(pickle.dumps(model))
        assert np.array_equal(again.transform(NEW), model.transform(NEW))
        assert model.fit(X).embedding_.shape == (24, 3)

    def test_kinds_and_dtypes(self):
        model = NMF.from_components(torch.from_numpy(KNOWN).float())
        assert isinstance(model.components_, torch.Tensor) and model.components_.dtype == torch.float32
        assert NMF.from_components(KNOWN, dtype="float32").components_.dtype == np.float32
        H = KNOWN.copy()
        model = NMF.from_components(H)
        H[:] = 0
        assert (model.components_ > 0).all()

    def test_the_divergence_is_that_of_the_estimator(self):
        model = NMF.from_components(KNOWN, loss="kullback-leibler", transform_tol=1e-12, transform_max_iter=20_000)
        V = model.transform(NEW)
        gradient = ((1 - NEW / (V @ KNOWN)) @ KNOWN.T) / KNOWN.sum(1)
        assert np.abs(np.minimum(V, gradient)).max() < 1e-6

    def test_tensors(self):
        rng = np.random.default_rng(0)
        U = [rng.random((4, 2)), rng.random((5, 2))]
        V = rng.random((6, 2))
        cube = np.einsum("ir,jr,kr->ijk", V, *U)
        model = NTF.from_components(U)
        np.testing.assert_allclose(model.transform(cube), V, atol=1e-8)
        np.testing.assert_allclose(model.transform(cube.reshape(6, 20)), V, atol=1e-8)
        np.testing.assert_allclose(model.inverse_transform(V), cube, atol=1e-12)
        for bad, told in (
            ([U[0], U[1][:, :1]], "one k"),
            (U[0], "list of factors"),
            ([-U[0], U[1]], r"components\[0\]"),
        ):
            with pytest.raises(ValueError, match=told):
                NTF.from_components(bad)

    def test_an_estimator_that_is_not_fitted_takes_as_many_as_it_has(self):
        model = NMF(3)
        model.components_ = KNOWN
        assert np.array_equal(model.transform(NEW), NMF.from_components(KNOWN).transform(NEW))
        other = NMF(2)
        with pytest.raises(ValueError, match="3 were given, but n_components is 2"):
            other.components_ = KNOWN
        assert vars(other) == vars(NMF(2))
        for H in (-KNOWN, KNOWN * np.nan, KNOWN[0], KNOWN.astype(str)):
            with pytest.raises(ValueError, match="components"):
                NMF.from_components(H)
        with pytest.raises(ValueError, match="solver"):
            NMF.from_components(KNOWN, solver="cd").fit(X)

    def test_a_stream_goes_on_from_them(self):
        truth = np.random.default_rng(0).random((400, 3)) @ KNOWN
        model = NMF.from_components(KNOWN).partial_fit(truth[:200]).partial_fit(truth[200:])
        np.testing.assert_allclose(model.components_, KNOWN, rtol=0.05)  # not drawn: those would differ wholly
        assert model.n_samples_seen_ == 400


class TestNoIterations:
    @every_matrix
    def test_the_start_is_published(self, key):
        for data in (X, torch.from_numpy(X)):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                model = fit(key, data, max_iter=0, tol=1e-4)
            assert model.n_iter_ == 0 and not model.converged_ and len(model.history_["objective"]) == 1
            np.testing.assert_allclose(model.loss_, model.history_["objective"][0], rtol=1e-6)
            assert answers(model, data)["transform"].shape == (24, 3)

    def test_arrays_come_out_as_they_went_in(self):
        V = np.random.default_rng(0).random((24, 3))
        model = NMF(3, init=(V, KNOWN.T), max_iter=0).fit(X)
        assert np.array_equal(model.embedding_, V) and np.array_equal(model.components_, KNOWN)
        np.testing.assert_allclose(model.loss_, ((X - V @ KNOWN) ** 2).sum())
        cube = blocks(12, 24).reshape(12, 4, 6)
        U = [np.random.default_rng(1).random((d, 2)) for d in cube.shape]
        model = NTF(2, init=tuple(U), max_iter=0).fit(cube)
        assert all(np.array_equal(a, b) for a, b in zip((model.embedding_, *model.factors_), U, strict=True))

    def test_restarts_and_batches_too(self):
        model = NMF(3, n_init=4, max_iter=0, random_state=0).fit(X)
        assert len(model.restarts_["loss"]) == 4 and model.loss_ == pytest.approx(model.restarts_["loss"].min())
        with pytest.raises(ValueError, match="max_iter must be a whole number >= 0"):
            NMF(3, max_iter=-1).fit(X)


class TestLimitsOfTransform:
    """Divergences are minimised by iterations, with limits of their own."""

    def test_fewer_steps_are_taken_and_the_answer_is_near(self):
        rng = np.random.default_rng(0)
        counts = (
            rng.poisson(rng.dirichlet(np.full(60, 0.1), 4).T @ np.diag(np.full(4, 30)) @ rng.random((4, 30))).T + 0.0
        )
        model = NMF(4, loss="kullback-leibler", random_state=0).fit(counts)
        fine = model.set_params(transform_tol=1e-10, transform_max_iter=100_000).transform(counts)
        for tol in (1e-3, 1e-6):
            near = model.set_params(transform_tol=tol).transform(counts)
            assert np.abs(near - fine).max() < 1000 * tol * fine.max()
        one = model.set_params(transform_max_iter=1).transform(counts)
        assert np.abs(one - fine).max() > np.abs(near - fine).max()
        for settings in ({"transform_tol": -1.0}, {"transform_max_iter": 0}):
            with pytest.raises(ValueError, match=next(iter(settings))):
                NMF(2, **settings).fit(counts)

    @pytest.mark.parametrize("solver", ["auto", "multiplicative"])
    def test_fit_transform_starts_from_the_embedding(self, solver, monkeypatch):
        model = NMF(3, loss="kullback-leibler", solver=solver, random_state=0, tol=1e-7, max_iter=2000)
        V = model.fit_transform(X)
        np.testing.assert_allclose(V, model.transform(X), atol=1e-3 * V.max())
        model.set_params(transform_max_iter=10)
        warm = model.fit_transform(X)
        cold = model.transform(X)
        best = model.set_params(transform_max_iter=5000, transform_tol=1e-12).transform(X)
        assert np.abs(warm - best).max() < np.abs(cold - best).max()
        out = NMF(2, loss=1, random_state=0).set_output(transform="pandas").fit_transform(pd.DataFrame(X))
        assert list(out.columns) == ["nmf0", "nmf1"]

    def test_zeros_of_the_embedding_can_come_alive(self):
        fine = {"loss": 1, "transform_tol": 1e-10, "transform_max_iter": 20_000}
        V = NMF(2, init=(np.eye(2)[np.arange(24) % 2], KNOWN[:2].T), max_iter=0, **fine).fit_transform(X)
        np.testing.assert_allclose(V, NMF.from_components(KNOWN[:2], **fine).transform(X), atol=1e-5)


def test_models_in_other_spaces_go_by_their_own_parameters():
    for model, change in (
        (PolynomialNMF(3, degree=2), {"degree": 3}),
        (KernelNMF(3, kernel="poly", degree=2), {"degree": 3, "kernel": "rbf"}),
        (SULF(3), {"n_components": 2}),
        (HarmonicFunction(sigma=1.0), {"sigma": 9.0, "out_of_sample": "labelled"}),
    ):
        settings = {"random_state": 0, "max_iter": 20, "tol": 0}
        model.set_params(**{name: value for name, value in settings.items() if name in model.get_params()}).fit(X, Y)
        expected = answers(model)
        model.set_params(**change)
        assert all(np.array_equal(value, expected[name]) for name, value in answers(model).items())
