"""Classifiers behind features of partly labelled data."""

import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline
from sklearn.svm import LinearSVC

from nnfactor import NGE, SRC, LabelledOnly

RNG = np.random.default_rng(0)
TRUTH = np.arange(60) % 3
X = RNG.random((60, 9)) + 2.0 * np.repeat(np.eye(3), 3, axis=1)[TRUTH]
Y = np.where(np.arange(60) < 30, TRUTH, -1)
NAMES = np.array(["ash", "elm", "oak"])


def pipeline(**knn):
    nge = NGE(6, max_iter=100, tol=0, random_state=0)
    return Pipeline([("nge", nge), ("knn", LabelledOnly(KNeighborsClassifier(1, **knn)))])


def test_a_pipeline_behind_a_model_that_uses_unlabelled_samples():
    """The classifier alone learns a class -1; in here it is right, and the features are those of all samples."""
    model = pipeline().fit(X, Y)
    assert model.classes_.tolist() == [0, 1, 2] and set(model.predict(X)) == {0, 1, 2}
    features = NGE(6, max_iter=100, tol=0, random_state=0).fit(X, Y)
    known = Y >= 0
    expected = KNeighborsClassifier(1).fit(features.transform(X)[known], Y[known])
    np.testing.assert_array_equal(model.predict(X), expected.predict(features.transform(X)))
    assert model.score(X, TRUTH) > 0.95 and model.score(X, Y) == 1
    plain = Pipeline([("nge", NGE(6, max_iter=100, tol=0, random_state=0)), ("knn", KNeighborsClassifier(1))])
    assert -1 in plain.fit(X, Y).predict(X)


@pytest.mark.parametrize("marker", [-1, np.nan, None])
@pytest.mark.parametrize("names", [False, True])
def test_every_marker_and_type_of_label(marker, names):
    y = [marker if c < 0 else (NAMES[c].item() if names else int(c)) for c in Y]
    expected = KNeighborsClassifier(3).fit(X[Y >= 0], (NAMES if names else np.arange(3))[Y[Y >= 0]])
    for container in (list, tuple, lambda v: np.array(v, dtype=object), lambda v: pd.Series(v, dtype=object)):
        model = LabelledOnly(KNeighborsClassifier(3)).fit(X, container(y))
        assert model.classes_.tolist() == expected.classes_.tolist()
        assert model.predict(X).tolist() == expected.predict(X).tolist()
        assert model.score(X, container(y)) == 1
    with pytest.raises(ValueError, match="y has no label"):
        model.score(X, [marker] * 60)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array, pd.DataFrame, torch.from_numpy, np.ndarray.tolist])
def test_kinds_of_data(kind):
    model = LabelledOnly(KNeighborsClassifier(3)).fit(kind(X), Y)
    expected = KNeighborsClassifier(3).fit(X[Y >= 0], Y[Y >= 0])
    np.testing.assert_array_equal(model.predict(kind(X)), expected.predict(X))
    assert model.n_features_in_ == 9


def test_classifiers_that_take_tensors():
    data = torch.from_numpy(X)
    labels = LabelledOnly(SRC()).fit(data, torch.from_numpy(Y)).predict(data)
    assert isinstance(labels, torch.Tensor) and (labels.numpy() == TRUTH).all()


def test_weights_are_cut_like_the_samples():
    weights = RNG.random(60)
    model = LabelledOnly(LogisticRegression()).fit(X, Y, sample_weight=weights)
    known = Y >= 0
    expected = LogisticRegression().fit(X[known], Y[known], sample_weight=weights[known])
    np.testing.assert_allclose(model.predict_proba(X), expected.predict_proba(X), rtol=1e-6)
    np.testing.assert_allclose(model.decision_function(X), expected.decision_function(X), rtol=1e-6, atol=1e-6)
    right = model.predict(X) == Y
    assert model.score(X, Y, weights) == pytest.approx(np.average(right[known], weights=weights[known]))


def test_surface():
    model = LabelledOnly(LinearSVC())
    assert not hasattr(model, "predict_proba") and hasattr(model, "decision_function")
    with pytest.raises(NotFittedError):
        model.predict(X)
    with pytest.raises(NotFittedError):
        model.decision_function(X)
    assert clone(model).get_params()["estimator__C"] == 1.0 and repr(model) == "LabelledOnly(estimator=LinearSVC())"
    model.fit(X, Y)
    assert not hasattr(model.estimator, "classes_")  # a clone is fitted
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))
    with pytest.raises(ValueError, match="y has no label: all 60 samples are unlabelled; LabelledOnly needs"):
        LabelledOnly(LinearSVC()).fit(X, [-1] * 60)
    with pytest.raises(ValueError, match="target y is None"):
        LabelledOnly(LinearSVC()).fit(X, None)
    with pytest.raises(ValueError, match=r"y has shape \(2,\), X has 60 samples"):
        LabelledOnly(LinearSVC()).fit(X, [0, 1])


def test_searches_count_labelled_samples():
    cv = StratifiedKFold(3)
    assert cross_val_score(pipeline(), X, Y, cv=cv).min() > 0.9
    search = GridSearchCV(pipeline(), {"knn__estimator__n_neighbors": [1, 3], "nge__alpha": [1.0]}, cv=cv).fit(X, Y)
    assert search.best_score_ > 0.9
