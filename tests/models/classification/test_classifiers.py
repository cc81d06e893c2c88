"""The surface that classifiers and projections share, over one table: what they take, refuse and promise."""

import copy
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from estimators import CLASSIFIERS, EMBEDDINGS, SUPERVISED
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, DataConversionWarning, NotFittedError
from tables import quiet_csr

from nnfactor import HarmonicFunction, LapRLSC

every = pytest.mark.parametrize("key", SUPERVISED)
every_classifier = pytest.mark.parametrize("key", CLASSIFIERS)
every_embedding = pytest.mark.parametrize("key", EMBEDDINGS)


def samples(n=18, m=6, seed=0):
    """Three groups, well apart, of any sign but for a few zeros; two in three are labelled."""
    rng = np.random.default_rng(seed)
    truth = np.arange(n) % 3
    X = 4 * np.eye(3, m)[truth] + 0.4 * rng.normal(size=(n, m))
    X[rng.random((n, m)) * (X < 2) > 0.8] = 0
    return X, np.where(np.arange(n) < 2 * n // 3, truth, -1), truth


X, Y, TRUTH = samples()


def ask(key, model, Z):
    answer = SUPERVISED[key].answer(model, Z)
    return np.asarray(answer.cpu() if isinstance(answer, torch.Tensor) else answer, dtype=float)


def same(key, model, expected, Z=X, other=None, tol=None, scale=1.0):
    """Two models say the same of the same samples."""
    a, b = ask(key, model, Z if other is None else other), ask(key, expected, Z)
    tol = SUPERVISED[key].tol if tol is None else tol
    a = a / scale ** SUPERVISED[key].degree
    np.testing.assert_allclose(a, b, rtol=tol, atol=tol * max(np.abs(b).max(), 1e-300))


class TestWhatIsTaken:
    """Kinds, dtypes, layouts, shapes."""

    @every
    def test_kinds_of_arrays_give_the_same_answers(self, key):
        expected = SUPERVISED[key]().fit(X, Y)
        big = np.full((36, 24), 7.0)
        big[::2, 1:19:3] = X
        read_only = X.copy()
        read_only.flags.writeable = False
        frame = pd.DataFrame(X, columns=[f"g{j}" for j in range(6)], index=range(100, 118))
        unsorted = sp.csr_matrix(X)
        for r in range(18):
            row = slice(unsorted.indptr[r], unsorted.indptr[r + 1])
            unsorted.indices[row], unsorted.data[row] = unsorted.indices[row][::-1], unsorted.data[row][::-1].copy()
        unsorted.has_sorted_indices = False
        i, j = np.nonzero(X)
        doubled = sp.coo_array((np.r_[X[i, j] / 4, 3 * X[i, j] / 4], (np.r_[i, i], np.r_[j, j])), shape=X.shape)
        kinds = [np.asfortranarray(X), big[::2, 1:19:3], np.ascontiguousarray(X[::-1, ::-1])[::-1, ::-1], read_only]
        kinds += [X.astype(">f8"), frame, X.tolist(), torch.from_numpy(X)]
        kinds += [
            sp.csr_array(X),
            sp.csc_matrix(X),
            doubled,
            unsorted,
            quiet_csr(X),
            torch.from_numpy(X).to_sparse_coo(),
        ]
        for Z in kinds:
            before = pickle.dumps(Z)
            same(key, SUPERVISED[key]().fit(Z, Y), expected, X, Z, tol=max(SUPERVISED[key].tol, 1e-5))
            assert pickle.dumps(Z) == before
        assert list(SUPERVISED[key]().fit(frame, Y).feature_names_in_) == list(frame.columns)
        for Z in (sp.lil_array(X), sp.dok_array(X), sp.bsr_array(X)):
            same(key, SUPERVISED[key]().fit(Z, Y), expected, X, Z, tol=max(SUPERVISED[key].tol, 1e-5))

    @every
    def test_dtypes(self, key):
        pixels = np.clip(np.abs(X) * 50 + 3, 0, 250).astype(int)
        expected = SUPERVISED[key]().fit(pixels.astype(float), Y)
        for dtype in ("uint8", "int16", "uint16", "int64"):
            same(key, SUPERVISED[key]().fit(pixels.astype(dtype), Y), expected, pixels, pixels.astype(dtype))
        for dtype in (np.float32, np.float64):
            model = SUPERVISED[key]().fit(pixels.astype(dtype), Y)
            assert SUPERVISED[key].answer(model, pixels.astype(dtype)).dtype == dtype
            assert SUPERVISED[key](dtype=np.dtype(dtype).name).fit(pixels, Y).fit_info_["dtype"] == np.dtype(dtype).name
            same(key, model, expected, pixels, tol=max(1e-4, 3 * SUPERVISED[key].tol))
        for half in (torch.float16, torch.bfloat16):
            given = torch.from_numpy(pixels).to(half)
            answer = SUPERVISED[key].answer(SUPERVISED[key]().fit(given, Y), given)
            assert isinstance(answer, torch.Tensor) and answer.dtype == torch.float32
        half = pixels.astype(np.float16)
        same(key, SUPERVISED[key]().fit(half, Y), expected, pixels, half, tol=max(1e-4, 3 * SUPERVISED[key].tol))
        bits = pixels > 100
        same(
            key, SUPERVISED[key]().fit(bits, Y), SUPERVISED[key]().fit(bits.astype(float), Y), bits.astype(float), bits
        )

    @every
    @pytest.mark.parametrize("shape", [(1, 1), (1, 5), (5, 1), (2, 2), (4, 9)])
    @pytest.mark.parametrize("fill", ["random", "zeros", "ones"])
    def test_tiny_shapes_and_constants(self, key, shape, fill):
        A = np.random.default_rng(0).normal(size=shape) if fill == "random" else np.full(shape, float(fill == "ones"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # no label reaches a zero sample
            model = SUPERVISED[key]().fit(A, [0, 1, -1, 0, 1][: shape[0]])
            assert np.isfinite(ask(key, model, A)).all() and len(ask(key, model, A)) == shape[0]
            if key in CLASSIFIERS:
                assert_distributions(model)


def assert_distributions(model):
    """Rows are distributions, or zero where the label is the marker; a marker is never a class."""
    D, labels = np.asarray(model.label_distributions_), np.asarray(model.transduction_)
    assert np.isfinite(D).all() and (D >= 0).all() and -1 not in model.classes_
    reached = np.asarray(labels != -1)
    np.testing.assert_allclose(D.sum(1), reached, atol=1e-6)
    assert set(labels[reached]) <= set(model.classes_)


class TestWhatIsRefused:
    """Messages name the argument, what was found, and what would work."""

    @every
    @pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy, sp.csr_array])
    def test_entries(self, key, kind):
        for value, message in ((np.nan, "NaN"), (np.inf, "infinity")):
            wrong = X.copy()
            wrong[2, 1] = wrong[7, 5] = value
            model = SUPERVISED[key]()
            with pytest.raises(ValueError, match=rf"{message}.*2 of \d+ entries, the first at \(2, 1\)"):
                model.fit(kind(wrong), Y)
            with pytest.raises(NotFittedError):
                ask(key, model, X)
            model.fit(X, Y)
            with pytest.raises(ValueError, match=message):
                ask(key, model, kind(wrong))
        negative_zero, zero = X.copy(), X.copy()
        negative_zero[3, 3], zero[3, 3] = -0.0, 0.0
        same(key, SUPERVISED[key]().fit(negative_zero, Y), SUPERVISED[key]().fit(zero, Y))

    @every
    def test_shapes_labels_and_kinds(self, key):
        for wrong in (np.ones(5), np.empty((0, 3)), np.empty((3, 0)), torch.ones(4), np.ones((2, 3, 4))):
            with pytest.raises(ValueError, match=r"[sS]hape|samples|dim|1D|feature"):
                SUPERVISED[key]().fit(wrong, np.zeros(len(wrong), dtype=int))
        for wrong in (X.astype(complex), np.full((18, 6), "a")):
            with pytest.raises(ValueError):
                SUPERVISED[key]().fit(wrong, Y)
        model = SUPERVISED[key]().fit(X, Y)
        for wrong in (X[:, :5], torch.from_numpy(X[:, :5])):
            with pytest.raises(ValueError, match="5 features"):
                ask(key, model, wrong)
        with pytest.raises(ValueError, match=r"y has shape \(11,\), X has 18 samples"):
            SUPERVISED[key]().fit(X, Y[:11])
        with pytest.raises(ValueError, match="mixes"):
            SUPERVISED[key]().fit(X, np.array(["a", 1] * 9, dtype=object))
        with pytest.raises(ValueError, match="device='tpu'"):
            SUPERVISED[key](device="tpu").fit(X, Y)
        with pytest.raises(ValueError, match="dtype='int8'"):
            SUPERVISED[key](dtype="int8").fit(X, Y)

    @every_classifier
    def test_no_label_at_all(self, key):
        for y in (np.full(18, -1), np.array([None] * 18)):
            with pytest.raises(ValueError, match="no label"):
                SUPERVISED[key]().fit(X, y)
        with pytest.raises(ValueError, match="target y is None"):
            SUPERVISED[key]().fit(X, None)


class TestWhatIsPromised:
    """Labels, scales, seeds, copies."""

    @every
    def test_every_encoding_of_labels_is_one_problem(self, key):
        known, names = Y >= 0, np.array(["ash", "birch", "cedar"], dtype=object)
        as_object = lambda marker: np.array([names[c] if c >= 0 else marker for c in Y], dtype=object)
        encodings = [np.where(known, 10 * Y + 4, -1), Y.astype(float), np.where(known, Y, np.nan), Y.tolist()]
        encodings += [
            torch.from_numpy(Y),
            as_object(None),
            as_object(-1),
            as_object(np.nan),
            as_object("-1").astype("U8"),
            as_object("-1").astype("S8"),
            as_object(np.float32("nan")),
            pd.Series(as_object(None), dtype="string"),
            pd.Series(as_object(None), dtype="category"),
            pd.Series(np.where(known, Y, np.nan), dtype="Int64"),
            np.where(known, np.datetime64("2009-06-20") + Y, np.datetime64("NaT")),
        ]
        expected = SUPERVISED[key]().fit(X, Y)
        for y in encodings:
            before = list(map(repr, y))
            model = SUPERVISED[key]().fit(X, y)
            assert list(map(repr, y)) == before
            same(key, model, expected)
            if key in CLASSIFIERS:
                assert len(model.classes_) == 3
                np.testing.assert_array_equal(model.predict(X), model.classes_[expected.predict(X)])
                np.testing.assert_array_equal(model.transduction_, model.classes_[expected.transduction_])
                assert_distributions(expected)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataConversionWarning)
            same(key, SUPERVISED[key]().fit(X, Y[:, None]), expected)

    @every_classifier
    def test_separate_groups_are_told_apart(self, key):
        model = SUPERVISED[key]().fit(X, Y)
        assert (model.transduction_ == TRUTH).mean() > 0.9 and model.score(X, TRUTH) > 0.9
        single = SUPERVISED[key]().fit(X, np.where(Y >= 0, 7, -1))
        assert single.classes_.tolist() == [7] and set(single.transduction_) == {7}
        np.testing.assert_allclose(single.label_distributions_, 1)
        full = SUPERVISED[key]().fit(X, TRUTH)
        assert (full.transduction_ == TRUTH).mean() > 0.9

    @every
    @pytest.mark.parametrize("scale", [1e-200, 1e-30, 1e30, 1e150])
    def test_scale_of_the_data_does_not_matter(self, key, scale):
        for Z in (X, samples(m=30)[0]):  # more features than samples is another path
            plain, scaled = SUPERVISED[key]().fit(Z, Y), SUPERVISED[key]().fit(Z * scale, Y)
            same(key, scaled, plain, Z, Z * scale, scale=scale, tol=max(1e-5, 10 * SUPERVISED[key].tol))

    @every
    def test_float32_at_extreme_scales(self, key):
        for scale in (1e-30, 1e30):
            A = (X * scale).astype(np.float32)
            answer = ask(key, SUPERVISED[key]().fit(A, Y), A)
            assert np.isfinite(answer).all() and answer.any()

    @every
    def test_rows_are_independent_and_nothing_is_changed(self, key):
        model = SUPERVISED[key]().fit(X, Y)
        before = pickle.dumps(vars(model))
        together = ask(key, model, X[[7, 3, 11]] + 0.1)
        alone = np.concatenate([ask(key, model, X[[i]] + 0.1) for i in (7, 3, 11)])
        np.testing.assert_allclose(alone, together, atol=10 * SUPERVISED[key].tol * np.abs(together).max())
        assert pickle.dumps(vars(model)) == before

    @every
    def test_copies(self, key):
        model = SUPERVISED[key]().fit(X, Y)
        for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
            assert vars(other).keys() == vars(model).keys()
            for name, value in vars(model).items():  # all that the answers are made from, bit for bit
                if isinstance(value, np.ndarray | torch.Tensor):
                    np.testing.assert_array_equal(vars(other)[name], value)
            same(key, other, model)
        same(key, clone(model).fit(X, Y), model)
        fresh = clone(model)
        assert fresh.get_params() == model.get_params() and not hasattr(fresh, "classes_") and repr(model)
        assert model.fit_info_["device"] == "cpu" and model.fit_info_["torch"] == torch.__version__
        again = model.fit(X[:, :4], Y)  # no trace of the first
        same(key, again, SUPERVISED[key]().fit(X[:, :4], Y), X[:, :4])
        assert vars(again).keys() == vars(SUPERVISED[key]().fit(X[:, :4], Y)).keys()

    @every
    @pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_the_caller_keeps_the_memory_of_the_data(self, key, kind, dtype):
        data = X.astype(dtype)
        A, y, Z = kind(data.copy()), Y.copy(), X + 0.1
        model = SUPERVISED[key]().fit(A, y)
        before = ask(key, model, Z)
        A[:] = 3 * A + 1
        y[:] = 0
        np.testing.assert_allclose(ask(key, model, Z), before, rtol=1e-9, atol=1e-12)

    @every
    def test_results_do_not_share_memory(self, key):
        """Who writes to one result changes neither another nor what the model predicts with."""
        model = SUPERVISED[key]().fit(X, Y)
        arrays = {name: np.asarray(v) for name, v in vars(model).items() if isinstance(v, np.ndarray | torch.Tensor)}
        shared = [(a, b) for a in arrays for b in arrays if a < b and np.shares_memory(arrays[a], arrays[b])]
        assert not shared

    @every
    def test_a_fitted_model_answers_from_what_was_fitted(self, key):
        model = SUPERVISED[key]().fit(X, Y)
        Z = X + 0.1
        before = ask(key, model, Z)
        others = {"n_neighbors": 1, "sigma": 9.0, "normalize": False, "out_of_sample": "neighbors", "alpha": 0.1}
        others |= {
            "n_components": 1,
            "class_mass": False,
            "CA": 5.0,
            "n_rounds": 0,
            "scaling": "orthonormal",
            "eta": 9.0,
        }
        model.set_params(**{name: value for name, value in others.items() if name in model.get_params()})
        np.testing.assert_allclose(ask(key, model, Z), before, rtol=1e-9, atol=1e-12)

    @every
    def test_seeds_and_generators(self, key):
        states = np.random.get_state()[1].copy(), torch.get_rng_state().clone()
        first = ask(key, SUPERVISED[key]().fit(X, Y), X)
        torch.use_deterministic_algorithms(True)
        try:
            np.testing.assert_array_equal(ask(key, SUPERVISED[key]().fit(X, Y), X), first)
        finally:
            torch.use_deterministic_algorithms(False)
        assert np.array_equal(states[0], np.random.get_state()[1]) and torch.equal(states[1], torch.get_rng_state())

    @every_embedding
    def test_fit_transform_and_set_output(self, key):
        model = SUPERVISED[key]()
        np.testing.assert_allclose(model.fit_transform(X, Y), model.fit(X, Y).transform(X))
        frame = SUPERVISED[key]().set_output(transform="pandas").fit_transform(pd.DataFrame(X).add_prefix("x"), Y)
        assert list(frame.columns) == [f"{key.lower()}{j}" for j in range(2)]


@settings(max_examples=60, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 9), st.integers(1, 6)),
    scale=st.integers(-30, 30),
    zeros=st.sampled_from([0.0, 0.3, 0.9, 1.0]),
    key=st.sampled_from(sorted(SUPERVISED)),
    seed=st.integers(0, 10**6),
    dtype=st.sampled_from(["float32", "float64"]),
    storage=st.sampled_from([np.asarray, np.asfortranarray, sp.csr_array, sp.csc_matrix]),
)
def test_whatever_is_accepted_comes_out_sound(shape, scale, zeros, key, seed, dtype, storage):
    rng = np.random.default_rng(seed)
    A = (rng.normal(size=shape) * (rng.random(shape) >= zeros) * 10.0**scale).astype(dtype)
    y = np.r_[0, rng.integers(-1, 3, size=shape[0] - 1)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = SUPERVISED[key]().fit(storage(A), y)
        answer = ask(key, model, storage(A))
    assert np.isfinite(answer).all() and len(answer) == shape[0]
    if key in CLASSIFIERS:
        assert_distributions(model)


@pytest.mark.parametrize("far", [1e7, 1e9])
def test_one_far_sample_leaves_the_others_alone(far):
    rng = np.random.default_rng(0)
    near, y = rng.normal(size=(30, 5)), np.arange(30) % 3
    X, Z = np.vstack([near, np.full((1, 5), far)]), near[:6] + 0.01
    y = np.append(np.where(np.arange(30) < 12, y, -1), 2)
    squared = ((Z[:, None] - X) ** 2).sum(-1)
    lap = LapRLSC(n_neighbors=5, normalize=False, sigma=2.0).fit(X, y)
    np.testing.assert_allclose(lap.decision_function(Z), np.exp(-squared / 4) @ lap.dual_coef_, atol=1e-9)
    harmonic = HarmonicFunction(n_neighbors=5, sigma=2.0).fit(X, y)
    weights = np.exp(-squared / 4) @ harmonic.scores_
    np.testing.assert_allclose(harmonic.predict_proba(Z), weights / weights.sum(1, keepdims=True), atol=1e-9)
