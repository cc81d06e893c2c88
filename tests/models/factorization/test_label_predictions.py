"""`predict` and `score` of the label models: nearest labelled sample or class mean, among coefficients of `transform`."""

import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone, is_classifier
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold, check_cv, cross_val_score
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid

from nnfactor import N2S2L, NGE, NMF, MarginalFisher, batch_fit

DIGITS, CLASSES = load_digits(return_X_y=True)
X, TRUTH, NEW, NEW_TRUTH = DIGITS[:200], CLASSES[:200], DIGITS[200:300], CLASSES[200:300]
Y = np.where(np.arange(200) % 4 == 0, -1, TRUTH)  # a quarter is unlabelled
KNOWN = Y >= 0
METHODS = [{"transform_method": m} for m in ("nnls", "pinv")] + [
    {"transform_method": "ridge", "ridge": r} for r in (0.1, "cv")
]
every_model = pytest.mark.parametrize("cls", [NGE, N2S2L])


def make(cls=NGE, **settings):
    return cls(15, **{"random_state": 0, "max_iter": 20, "tol": 0, **settings})


def by_hand(model, Z, classifier, metric):
    """scikit-learn's classifiers on the discriminative coefficients of the labelled samples."""
    F, G = (np.asarray(model.transform(A))[:, : model.n_discriminative_] for A in (X[KNOWN], Z))
    if metric == "cosine":
        F, G = (A / np.maximum(np.linalg.norm(A, axis=1, keepdims=True), 1e-300) for A in (F, G))
    if classifier == "nearest_neighbor":
        return KNeighborsClassifier(1).fit(F, Y[KNOWN]).predict(G)
    means = np.stack([F[Y[KNOWN] == c].mean(0) for c in range(10)])
    if metric == "cosine":
        means /= np.linalg.norm(means, axis=1, keepdims=True)
    return ((G[:, None] - means) ** 2).sum(2).argmin(1)


class TestPredict:
    @every_model
    @pytest.mark.parametrize("method", METHODS)
    @pytest.mark.parametrize("metric", ["euclidean", "cosine"])
    @pytest.mark.parametrize("classifier", ["nearest_neighbor", "nearest_centroid"])
    def test_is_that_of_scikit_learn_on_transform(self, cls, method, metric, classifier):
        model = make(cls, **method, metric=metric, classifier=classifier).fit(X, Y)
        guess = model.predict(NEW)
        np.testing.assert_array_equal(guess, by_hand(model, NEW, classifier, metric))
        assert model.score(NEW, NEW_TRUTH) == accuracy_score(NEW_TRUTH, guess)

    def test_class_means_are_those_of_scikit_learn(self):
        model = make(classifier="nearest_centroid").fit(X, Y)
        F, G = (model.transform(A)[:, :10] for A in (X[KNOWN], NEW))
        np.testing.assert_array_equal(model.predict(NEW), NearestCentroid().fit(F, Y[KNOWN]).predict(G))

    @every_model
    def test_a_labelled_sample_is_its_own_neighbour(self, cls):
        model = make(cls).fit(X, Y)
        assert model.score(X[KNOWN], TRUTH[KNOWN]) == 1 and (model.predict(X) >= 0).all()

    def test_one_fit_answers_in_every_way(self):
        model = make().fit(X, Y)
        for method in METHODS[:2]:
            for metric in ("cosine", "euclidean"):
                model.set_params(**method, metric=metric)
                expected = make(**method, metric=metric).fit(X, Y).predict(NEW)
                np.testing.assert_array_equal(model.predict(NEW), expected)

    @pytest.mark.parametrize("settings", [{"n_discriminative": 0}, {"coefficients": "all"}])
    def test_all_coefficients(self, settings):
        model = make(**settings).fit(X, Y)
        F, G = model.transform(X[KNOWN]), model.transform(NEW)
        np.testing.assert_array_equal(model.predict(NEW), KNeighborsClassifier(1).fit(F, Y[KNOWN]).predict(G))

    def test_tensors_and_flattened_rows(self):
        images = X.reshape(-1, 8, 8)
        model = make(transform_method="ridge").fit(images, Y)
        rows = make(transform_method="ridge", sample_shape=(8, 8)).fit(X, Y)
        guess = model.predict(NEW.reshape(-1, 8, 8))
        np.testing.assert_array_equal(rows.predict(NEW), guess)
        F, G = (model.transform(A)[:, :10] for A in (images[KNOWN], NEW.reshape(-1, 8, 8)))
        np.testing.assert_array_equal(guess, KNeighborsClassifier(1).fit(F, Y[KNOWN]).predict(G))

    def test_kinds_of_data(self):
        model = make(transform_method="ridge").fit(X, Y)
        expected = model.predict(NEW)
        np.testing.assert_array_equal(model.predict(sp.csr_array(NEW)), expected)
        sparse = make(transform_method="ridge").fit(sp.csr_array(X), Y)
        assert np.mean(sparse.predict(NEW) == expected) > 0.97  # other roundings in the fit
        tensor = make(transform_method="ridge").fit(torch.from_numpy(X), torch.from_numpy(Y))
        found = tensor.predict(torch.from_numpy(NEW))
        assert isinstance(found, torch.Tensor) and np.mean(found.numpy() == expected) > 0.97
        assert make(dtype="float32").fit(X, Y).score(NEW, NEW_TRUTH) > 0.6

    def test_copies(self):
        model = make().fit(X, Y)
        expected = model.predict(NEW)
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(NEW), expected)
        np.testing.assert_array_equal(clone(model).fit(X, Y).predict(NEW), expected)
        for one in batch_fit([make(alpha=a) for a in (10.0, 1.0)], X, Y)[:1]:
            assert np.mean(one.predict(NEW) == expected) > 0.97

    @pytest.mark.parametrize("scale", [2.0**-900, 2.0**900])
    def test_units_of_the_data_do_not_matter(self, scale):
        expected = make(metric="cosine").fit(X, Y).predict(NEW)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a loss beyond the range
            np.testing.assert_array_equal(make(metric="cosine").fit(X * scale, Y).predict(NEW * scale), expected)


class TestLabels:
    @pytest.mark.parametrize("none", [None, np.nan, -1, "-1"])
    def test_markers_are_used_never_returned_and_never_scored(self, none):
        names = np.array([f"digit {c}" for c in TRUTH], dtype=object)
        hidden = np.where(KNOWN, names, none)
        model = make().fit(X, hidden)
        guess = model.predict(NEW)
        assert set(guess) <= set(model.classes_) == {f"digit {c}" for c in range(10)}
        np.testing.assert_array_equal([int(name[-1]) for name in guess], make().fit(X, Y).predict(NEW))
        named = np.array([f"digit {c}" for c in NEW_TRUTH], dtype=object)
        shown = np.where(np.arange(100) < 50, named, none)
        assert model.score(NEW, shown) == np.mean(named[:50] == guess[:50])

    def test_unlabelled_samples_matter_to_the_fit(self):
        with_them, without = make().fit(X, Y), make().fit(X[KNOWN], Y[KNOWN])
        assert not np.array_equal(with_them.predict(NEW), without.predict(NEW))

    def test_own_graphs(self):
        graphs = MarginalFisher().build(X, Y)
        assert make(graph=graphs).fit(X, Y).score(NEW, NEW_TRUTH) > 0.6
        silent = make(graph=graphs, n_discriminative=10).fit(X)
        with pytest.raises(NotFittedError, match=r"NGE knows no labelled samples .* Call fit\(X, y\)"):
            silent.predict(NEW)
        with pytest.raises(NotFittedError):
            make().fit(X, np.full(200, -1)).score(NEW, NEW_TRUTH)

    def test_before_a_fit(self):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            make().predict(NEW)

    def test_a_later_fit_forgets(self):
        model = make().fit(X, Y)
        assert len(model.fit(X[:50], Y[:50] * 0 + 3).classes_) == 1 and (model.predict(NEW) == 3).all()

    @pytest.mark.parametrize(
        "name, value", [("classifier", "svm"), ("metric", "l1"), ("coefficients", "first"), ("metric", None)]
    )
    def test_refused(self, name, value):
        with pytest.raises(ValueError, match=f"{name}={value!r} is not known"):
            make(**{name: value}).fit(X, Y)


class TestBasesThatMoved:
    def test_streams(self):
        model = make().fit(X, Y).partial_fit(NEW, NEW_TRUTH)
        with pytest.raises(NotFittedError, match="partial_fit or components_ changed the bases"):
            model.predict(NEW)
        assert model.fit(X, Y).score(NEW, NEW_TRUTH) > 0.6

    def test_classes_of_all_batches(self):
        model = NGE(15, random_state=0, graph=MarginalFisher(n_pairs=3))
        some = TRUTH[:60] < 4
        model.partial_fit(X[:60][some], TRUTH[:60][some], classes=np.arange(10))
        assert model.n_discriminative_ == 10 and model.classes_.tolist() == list(range(10))
        model.partial_fit(X[60:], TRUTH[60:], classes=np.arange(10))
        assert model.n_discriminative_ == 10 and model.n_steps_ == 2
        with pytest.raises(ValueError):
            clone(model).partial_fit(X[:60], TRUTH[:50], classes=np.arange(10))

    def test_bases_that_were_set(self):
        model = make().fit(X, Y)
        model.components_ = model.components_ * 2
        with pytest.raises(NotFittedError, match="components_"):
            model.predict(NEW)


class TestSelection:
    @every_model
    def test_it_is_a_classifier(self, cls):
        assert is_classifier(make(cls)) and not is_classifier(NMF(3))
        assert isinstance(check_cv(3, TRUTH, classifier=is_classifier(make(cls))), StratifiedKFold)

    def test_cross_validation_is_accuracy_of_held_out_samples(self):
        scores = cross_val_score(make(transform_method="ridge"), X, TRUTH, cv=3)
        expected = [
            accuracy_score(TRUTH[test], make(transform_method="ridge").fit(X[train], TRUTH[train]).predict(X[test]))
            for train, test in StratifiedKFold(3).split(X, TRUTH)
        ]
        assert scores.tolist() == expected and scores.mean() > 0.8

    def test_grids(self):
        grid = {"alpha": [1.0, 10.0], "metric": ["euclidean", "cosine"], "ridge": [0.03, 0.3]}
        search = GridSearchCV(make(transform_method="ridge", max_iter=5), grid, cv=3).fit(X, Y)
        assert search.best_score_ > 0.8 and set(search.best_params_) == set(grid)
        assert search.score(NEW, NEW_TRUTH) > 0.8
