"""The semi-supervised classifiers as users meet them: labels of every kind, tensors, graphs, scales, errors."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from sklearn.exceptions import ConvergenceWarning
from srlsc_reference import blobs, heat

from nnfactor.models.classification.label_propagation import HarmonicFunction, LocalGlobalConsistency
from nnfactor.models.classification.lap_rlsc import LapRLSC
from nnfactor.models.classification.src import SRC
from nnfactor.models.classification.srlsc import SRLSC

ALL = [SRLSC, LapRLSC, SRC, HarmonicFunction, LocalGlobalConsistency]
GRAPHS = [LapRLSC, HarmonicFunction, LocalGlobalConsistency]
SPREAD = [HarmonicFunction, LocalGlobalConsistency]


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


@pytest.mark.parametrize("kind", [object, "boolean", "datetime64[s]"])
def test_neither_numbers_nor_strings_have_their_marker(kind):
    y = pd.Series([1, 0, None], dtype="Int64").astype(kind)
    with pytest.warns(UserWarning, match="marked None"):
        model = SRC().fit(np.vstack([np.eye(2), np.zeros((1, 2))]), y)
    assert model.transduction_.tolist() == [*model.classes_[::-1].tolist(), None]


# ------------------------------------------------------------------------------------------------------- the surface


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
        (np.ones((3, 3)), "graph has 3 nodes, X has 60 samples"),
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


def test_parameters_are_checked():
    X, y, _ = blobs()
    for model, message in (
        (SRLSC(CA=0), "CA must be a finite number > 0, got 0"),
        (SRLSC(CI=-1), "CI must be"),
        (LapRLSC(sigma=0), "sigma must be"),
        (LapRLSC(sigma=None), "sigma must be"),
        (SRLSC(sigma=[1.0, 2.0]), "sigma must be"),
        (HarmonicFunction(sigma=-1.0), "sigma must be"),
        (LocalGlobalConsistency(alpha=1.0), r"alpha must be in \[0, 1\), got 1.0"),
        (SRC(tol=-1), "tol must be"),
        (SRLSC(max_rounds=-1), "max_rounds must be"),
        (SRLSC(normalize="yes"), "normalize='yes'"),
        (SRLSC(codes="lasso"), r"codes='lasso' is not known; use 'l1' or codes \(60, 60\)"),
        (SRLSC(codes=np.zeros((3, 60))), r"codes has shape \(3, 60\); X has 60 samples"),
        (SRLSC(codes=np.full((60, 60), np.nan)), "codes has NaN"),
        (SRLSC(codes=np.eye(60)), "codes has entries on its diagonal"),
        (HarmonicFunction(class_mass=2), "class_mass=2"),
        (SRC(device="tpu"), "device='tpu'"),
        (SRLSC(sigma=0.3, gamma=2.0), r"sigma=0.3 and gamma=2.0 are both given.*gamma = 1 / sigma\^2"),
        (LapRLSC(sigma=0.3, gamma=2.0), "sigma=0.3 and gamma=2.0 are both given"),
        (HarmonicFunction(sigma=1.0, gamma=1.0), "sigma=1.0 and gamma=1.0 are both given.*Leave sigma=None"),
        (HarmonicFunction(sigma=[1.0] * 4, gamma=1.0), "are both given"),
        (LocalGlobalConsistency(gamma=0), "gamma must be None or a finite number > 0, got 0"),
        (SRLSC(gamma="scale"), "gamma must be None or a finite number > 0, got 'scale'"),
        (LapRLSC(laplacian="random_walk"), "laplacian='random_walk' is not known; use 'unnormalized', 'normalized'"),
    ):
        with pytest.raises(ValueError, match=message):
            model.fit(X, y)


def test_missed_codes_are_reported():
    with pytest.warns(ConvergenceWarning, match="max_rounds=0 above tol=1e-08"):
        SRLSC(tol=1e-8, max_rounds=0).fit(*blobs()[:2])
