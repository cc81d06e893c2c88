"""The semi-supervised classifiers as users meet them: labels of every kind, tensors, graphs, scales, errors."""

import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from srlsc_reference import blobs, heat

from nnfactor.models.propagation import HarmonicFunction, LocalGlobalConsistency
from nnfactor.models.srlsc import SRC, SRLSC, LapRLSC

ALL = [SRLSC, LapRLSC, SRC, HarmonicFunction, LocalGlobalConsistency]
GRAPHS = [LapRLSC, HarmonicFunction, LocalGlobalConsistency]
SPREAD = [HarmonicFunction, LocalGlobalConsistency]


@pytest.mark.parametrize("Model", ALL)
def test_every_encoding_of_labels_is_one_problem(Model):
    rng = np.random.default_rng(0)
    centres = np.array([[4.0, 0.5, 0.5], [0.5, 4.0, 0.5], [0.5, 0.5, 4.0]])
    truth = np.repeat([0, 1, 2], 5)
    X = centres[truth] + rng.uniform(0, 0.4, (15, 3))
    y = np.full(15, -1)
    for k in range(3):
        y[5 * k : 5 * k + 2] = k
    names = np.array(["ash", "birch", "cedar"], dtype=object)
    known = y >= 0
    encodings = {
        "object None": np.array([names[v] if v >= 0 else None for v in y], dtype=object),
        "object -1": np.array([names[v] if v >= 0 else -1 for v in y], dtype=object),
        "object NaN": np.array([names[v] if v >= 0 else np.nan for v in y], dtype=object),
        "string": np.array([names[v] if v >= 0 else "-1" for v in y], dtype="U8"),
        "float": y.astype(float),
        "float NaN": np.where(known, y, np.nan),
        "list": y.tolist(),
        "tensor": torch.from_numpy(y),
        "gaps": np.where(known, 10 * y + 4, -1),
    }
    make = lambda: Model(n_neighbors=4) if hasattr(Model(), "n_neighbors") else Model()
    plain = make().fit(X, y)
    assert (plain.transduction_ == truth).all()
    for name, encoded in encodings.items():
        before = pickle.dumps(encoded)
        model = make().fit(X, encoded)
        assert len(model.classes_) == 3, name
        assert (model.transduction_ == model.classes_[truth]).all(), name
        assert (model.predict(X) == model.classes_[plain.predict(X)]).all(), name
        assert pickle.dumps(encoded) == before
        np.testing.assert_allclose(model.label_distributions_, plain.label_distributions_)


@pytest.mark.parametrize("Model", ALL)
def test_no_label_and_one_class_are_defined(Model):
    X, y, _ = blobs(n=20)
    with pytest.raises(ValueError, match="no label"):
        Model().fit(X, np.full(20, -1))
    with pytest.raises(ValueError, match="no label"):
        Model().fit(X, np.array([None] * 20))
    with pytest.raises(ValueError, match="target y is None"):
        Model().fit(X, None)
    with pytest.raises(ValueError, match=r"y has shape \(3,\)"):
        Model().fit(X, [1, 2, -1])
    with pytest.raises(ValueError, match="continuous"):
        Model().fit(X, np.linspace(0, 1, 20))
    single = Model(**({"n_neighbors": 19} if hasattr(Model(), "n_neighbors") else {})).fit(X, np.where(y >= 0, 7, -1))
    assert single.classes_.tolist() == [7] and set(single.transduction_) == {7}
    np.testing.assert_allclose(single.label_distributions_, 1)


def test_booleans_have_their_marker():
    with pytest.warns(UserWarning, match="marked None"):
        model = SRC().fit(np.vstack([np.eye(2), np.zeros((1, 2))]), np.array([True, False, None], dtype=object))
    assert model.transduction_.tolist() == [True, False, None]


# ------------------------------------------------------------------------------------------------------- the surface


@pytest.mark.parametrize("Model", ALL)
def test_clone_pickle_and_dtype(Model):
    X, y, _ = blobs(labelled=4)
    model = Model(**({"n_neighbors": 40} if hasattr(Model(), "n_neighbors") else {})).fit(X, y)
    again = clone(model).fit(X, y)
    np.testing.assert_array_equal(again.label_distributions_, model.label_distributions_)
    copy = pickle.loads(pickle.dumps(model))
    assert (copy.predict(X) == model.predict(X)).all()
    single = clone(model).fit(X.astype(np.float32), y)
    assert single.label_distributions_.dtype == np.float32 and single.scores_.dtype == np.float32
    np.testing.assert_allclose(
        single.label_distributions_, model.label_distributions_, atol=2e-2 if Model is SRC else 2e-3
    )
    assert clone(model).set_params(dtype="float32").fit(X, y).scores_.dtype == np.float32


@pytest.mark.parametrize("Model", ALL)
def test_tensors_in_tensors_out(Model):
    X, y, truth = blobs(labelled=4)
    model = Model(**({"n_neighbors": 40} if hasattr(Model(), "n_neighbors") else {})).fit(
        torch.from_numpy(X), torch.from_numpy(y)
    )
    assert isinstance(model.label_distributions_, torch.Tensor) and isinstance(model.transduction_, torch.Tensor)
    found = model.predict(torch.from_numpy(X))
    assert isinstance(found, torch.Tensor)
    assert model.score(torch.from_numpy(X), torch.from_numpy(truth)) == (found.numpy() == truth).mean()
    assert (model.predict(X) == found.numpy()).all()


@pytest.mark.parametrize("Model", ALL)
def test_rows_are_predicted_by_themselves(Model):
    X, y, _ = blobs(labelled=4)
    model = Model(**({"n_neighbors": 40} if hasattr(Model(), "n_neighbors") else {})).fit(X, y)
    before = pickle.dumps(model)
    method = model.predict_proba if hasattr(model, "predict_proba") else model.decision_function
    together = method(X[:6] + 0.1)
    np.testing.assert_allclose(
        np.vstack([method(x[None] + 0.1) for x in X[:6]]), together, atol=1e-2 if Model is SRC else 1e-9
    )
    assert pickle.dumps(model) == before


@pytest.mark.parametrize("Model", GRAPHS)
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array, sp.coo_array, torch.from_numpy, sp.csc_matrix])
def test_adjacencies_of_every_kind(Model, kind):
    X, y, _ = blobs()
    A = heat(X, 40)[0]
    given, plain = Model(graph=kind(A)).fit(X, y), Model(graph=A).fit(X, y)
    np.testing.assert_allclose(given.scores_, plain.scores_, atol=1e-10)
    assert (given.predict(X) == plain.predict(X)).all()


@pytest.mark.parametrize("Model", GRAPHS)
def test_bad_graphs_are_named(Model):
    X, y, _ = blobs()
    for bad, message in (
        (np.ones((3, 3)), "graph is over 3 samples, X has 60"),
        (-np.ones((60, 60)), "graph: .*negative"),
        (np.triu(np.ones((60, 60))), "graph: .*not symmetric"),
        ("nn", "graph='nn' is not known"),
    ):
        with pytest.raises(ValueError, match=message):
            Model(graph=bad).fit(X, y)
    with pytest.raises(ValueError, match="n_neighbors must be"):
        Model(n_neighbors=0).fit(X, y)


@pytest.mark.filterwarnings("ignore:SRC. no label reaches")
@pytest.mark.parametrize("Model", ALL)
def test_sparse_equals_dense(Model):
    X, y, _ = blobs(m=6)
    X[:, 1:] *= np.abs(X[:, 1:]) > 2
    settings = {"n_neighbors": 40} if Model in GRAPHS else {"tol": 1e-7}
    dense, sparse = Model(**settings).fit(X, y), Model(**settings).fit(sp.csr_array(X), y)
    answers = lambda model, Z: getattr(model, "decision_function", getattr(model, "predict_proba", None))(Z)
    if Model in GRAPHS:
        np.testing.assert_allclose(sparse.scores_, dense.scores_, atol=1e-9)
        for model, Z in ((sparse, sp.csr_array(X[:9])), (sparse, X[:9]), (dense, sp.csc_matrix(X[:9]))):
            np.testing.assert_allclose(answers(model, Z), answers(dense, X[:9]), atol=1e-9)
    else:  # codes are not unique
        assert (sparse.transduction_ == dense.transduction_).mean() > 0.95
        np.testing.assert_array_equal(sparse.predict(sp.csr_array(X[:9])), sparse.predict(X[:9]))
        np.testing.assert_array_equal(dense.predict(sp.csc_array(X[:9])), dense.predict(X[:9]))


@pytest.mark.parametrize("Model", SPREAD)
@pytest.mark.parametrize(
    "change", [lambda X: 1e8 + X, lambda X: 1e200 * X, lambda X: 1e-200 * X], ids=["offset", "huge", "tiny"]
)
def test_offsets_and_scales_change_nothing(Model, change):
    X, y, _ = blobs(labelled=4)
    here, there = Model(n_neighbors=40).fit(X, y), Model(n_neighbors=40).fit(change(X), y)
    np.testing.assert_allclose(there.label_distributions_, here.label_distributions_, atol=1e-5)
    np.testing.assert_allclose(there.predict_proba(change(X[:5] + 0.1)), here.predict_proba(X[:5] + 0.1), atol=1e-5)


@pytest.mark.parametrize("Model", [SRLSC, LapRLSC, SRC])
@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_unit_length_methods_know_no_scale(Model, scale):
    X, y, _ = blobs(labelled=4)
    np.testing.assert_allclose(Model().fit(X * scale, y).scores_, Model().fit(X, y).scores_, atol=1e-3)


@pytest.mark.parametrize("Model", ALL)
@pytest.mark.parametrize(
    "X", [np.zeros((6, 3)), np.ones((6, 3)), np.eye(6)[:, :3]], ids=["zeros", "equal", "orthogonal"]
)
def test_degenerate_samples_give_finite_answers(Model, X):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = Model(**({"n_neighbors": 5} if hasattr(Model(), "n_neighbors") else {})).fit(X, [0, 1, -1, -1, 1, -1])
        assert np.isfinite(model.label_distributions_).all()
        sums = model.label_distributions_.sum(1)
        assert (np.isclose(sums, 1) | (sums == 0)).all()
        assert ((model.transduction_ == -1) == (sums == 0)).all()
        assert set(model.predict(X)) <= {0, 1, -1}


def test_parameters_are_checked():
    X, y, _ = blobs()
    for model, message in (
        (SRLSC(CA=0), "CA must be a finite number > 0, got 0"),
        (SRLSC(CI=-1), "CI must be"),
        (LapRLSC(sigma=0), "sigma must be"),
        (HarmonicFunction(sigma=-1.0), "sigma must be"),
        (LocalGlobalConsistency(alpha=1.0), r"alpha must be in \[0, 1\), got 1.0"),
        (SRC(tol=-1), "tol must be"),
        (SRLSC(max_rounds=-1), "max_rounds must be"),
        (SRLSC(normalize="yes"), "normalize='yes'"),
        (HarmonicFunction(class_mass=2), "class_mass=2"),
        (SRC(device="tpu"), "device='tpu'"),
    ):
        with pytest.raises(ValueError, match=message):
            model.fit(X, y)


def test_missed_codes_are_reported():
    with pytest.warns(ConvergenceWarning, match="max_rounds=0 above tol=1e-08"):
        SRLSC(tol=1e-8, max_rounds=0).fit(*blobs()[:2])


@settings(max_examples=15, deadline=None)
@given(n=st.integers(2, 12), m=st.integers(1, 5), classes=st.integers(1, 3), seed=st.integers(0, 50))
def test_any_shape_gives_distributions(n, m, classes, seed):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(n, m)), np.where(rng.random(n) < 0.5, rng.integers(0, classes, n), -1)
    y[0] = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for Model in ALL:
            model = Model().fit(X, y)
            sums = model.label_distributions_.sum(1)
            assert (np.isclose(sums, 1) | (sums == 0)).all() and (model.label_distributions_ >= 0).all()
            assert set(np.unique(model.transduction_)) <= {*model.classes_, -1}
