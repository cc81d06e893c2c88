"""Labels as users hand them in: what marks a sample as unlabelled, what is refused, and what a score counts."""

import numpy as np
import pandas as pd
import pytest
import torch
from estimators import CLASSIFIERS, EMBEDDINGS
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score

from nnfactor import NGE, SULF, ConstrainedNMF, GraphNMF, HarmonicFunction
from nnfactor.core.labels import encode_labels
from nnfactor.graphs import marginal_fisher_graphs
from nnfactor.metrics import clustering_accuracy

NAMES = ["ash", "elm", "oak"]


def samples(n=60, m=8, classes=2, seed=0):
    rng = np.random.default_rng(seed)
    truth = np.arange(n) % classes
    return rng.random((n, m)) + 2.0 * np.eye(classes, m)[truth], truth


X, TRUTH = samples()
Y = np.where(np.arange(60) % 3 == 0, -1, TRUTH)

FACTORIZATIONS = {
    "NGE": lambda: NGE(4, max_iter=5, tol=0, random_state=0),
    "GraphNMF": lambda: GraphNMF(3, max_iter=5, tol=0, random_state=0),
    "ConstrainedNMF": lambda: ConstrainedNMF(3, max_iter=5, tol=0, random_state=0),
    "SULF": lambda: SULF(3, max_iter=30, tol=0, random_state=0),
}
SCORED = {**{key: row for key, row in CLASSIFIERS.items()}, "SULF": FACTORIZATIONS["SULF"]}
WITH_LABELS = {**SCORED, **FACTORIZATIONS, **{key: row for key, row in EMBEDDINGS.items()}}


def marked(marker, container):
    """Labels by name, those of Y that are unlabelled by a marker."""
    return container([marker if c < 0 else NAMES[c] for c in Y])


MARKERS = [None, np.nan, float("nan"), np.float32("nan"), -1, -1.0, "-1", "", " ", b"", pd.NA, pd.NaT]
CONTAINERS = {
    "list": list,
    "tuple": tuple,
    "object array": lambda y: np.array(y, dtype=object),
    "series": lambda y: pd.Series(y, dtype=object),
    "index": lambda y: pd.Index(y, dtype=object),
    "nested": lambda y: [[v] for v in y],
}


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("marker", MARKERS, ids=lambda m: f"{type(m).__name__} {m}")
def test_a_marker_is_no_class_in_any_container(marker, container):
    y = marked(marker, CONTAINERS[container])
    codes, classes = encode_labels(y, 60)
    np.testing.assert_array_equal(codes, Y)
    assert list(classes) == ["ash", "elm"]


@pytest.mark.parametrize("key", WITH_LABELS)
@pytest.mark.parametrize("marker", [np.nan, None, -1, ""])
def test_every_model_reads_markers_among_strings_in_a_list(key, marker):
    model = WITH_LABELS[key]().fit(X, marked(marker, list))
    assert not hasattr(model, "classes_") or list(model.classes_) == ["ash", "elm"]
    if hasattr(model, "transduction_"):
        assert set(model.transduction_) <= {"ash", "elm"}


def test_large_integers_stay_apart_beside_missing_ones():
    big = [2**53, 2**53 + 1, None]
    for y in (big, [2**53, 2**53 + 1, np.nan], pd.Series(big, dtype="Int64"), pd.Series(big, dtype="object")):
        codes, classes = encode_labels(y, 3)
        assert codes.tolist() == [0, 1, -1] and classes.tolist() == [2**53, 2**53 + 1]


def test_masked_labels_are_missing():
    assert encode_labels(np.ma.masked_array([3, 5, 7], [False, True, False]), 3)[0].tolist() == [0, -1, 1]


def test_labels_of_half_precision_and_foreign_byte_order():
    model = HarmonicFunction().fit(torch.from_numpy(X), torch.from_numpy(Y).bfloat16())
    assert (model.predict(torch.from_numpy(X)).numpy() == TRUTH).all()
    swapped = HarmonicFunction().fit(torch.from_numpy(X), Y.astype(">i8"))
    assert (swapped.transduction_.numpy() == TRUTH).all()


@pytest.mark.parametrize("key", WITH_LABELS)
def test_continuous_targets_are_refused(key):
    for y in (TRUTH + 0.5, [0.5, None] * 30, np.where(Y < 0, np.nan, TRUTH / 3)):
        with pytest.raises(ValueError, match="continuous"):
            WITH_LABELS[key]().fit(X, y)
    with pytest.raises(ValueError, match=r"y mixes \['int', 'str'\]"):
        WITH_LABELS[key]().fit(X, ["a", 1] * 30)


def test_graphs_read_labels_as_models_do():
    expected = [g.toarray() for g in marginal_fisher_graphs(X, Y)]
    for y in ([None if c < 0 else int(c) for c in Y], [np.nan if c < 0 else int(c) for c in Y]):
        for graph, right in zip(marginal_fisher_graphs(X, y), expected, strict=True):
            np.testing.assert_array_equal(graph.toarray(), right)
    with pytest.raises(ValueError, match="encode the labels"):
        marginal_fisher_graphs(X, marked(np.nan, list))


def test_metrics_do_not_turn_labels_into_text():
    assert clustering_accuracy(["a", 1, "a", 1], [0, 1, 0, 1]) == 1
    assert clustering_accuracy(["1", 1, "1", 1], [0, 1, 0, 1]) == 1


def test_labels_of_another_type_in_a_later_batch_are_refused():
    model = NGE(4, random_state=0).partial_fit(X, marked(None, list))
    with pytest.raises(ValueError, match=r"labels such as 0, but earlier batches had labels such as 'ash'"):
        model.partial_fit(X, TRUTH)
    assert list(model.partial_fit(X, ["oak"] * 60).classes_) == NAMES
    numbers = NGE(4, random_state=0).partial_fit(X, [None, 1, 2] * 20).partial_fit(X, np.arange(60) % 2)
    assert list(numbers.classes_) == [0, 1, 2]


# Scores


@pytest.mark.parametrize("key", SCORED)
def test_a_score_counts_labelled_samples_only(key):
    model = SCORED[key]().fit(X, Y)
    right = (model.predict(X) == TRUTH)[Y >= 0]
    assert model.score(X, Y) == pytest.approx(right.mean())
    assert model.score(X, np.where(Y < 0, np.nan, Y)) == model.score(X, Y)
    assert model.score(X, [None if c < 0 else c for c in Y.tolist()]) == model.score(X, Y)
    weights = np.arange(60.0)
    assert model.score(X, Y, sample_weight=weights) == pytest.approx(np.average(right, weights=weights[Y >= 0]))
    assert model.score(X, Y, torch.from_numpy(weights)) == model.score(X, Y, weights)
    for nothing in (np.full(60, -1), [None] * 60, np.full(60, np.nan)):
        with pytest.raises(ValueError, match="y has no label among 60 samples"):
            model.score(X, nothing)
    with pytest.raises(ValueError, match=r"sample_weight has shape \(3,\); it must be \(60,\)"):
        model.score(X, Y, [1, 2, 3])
    with pytest.raises(ValueError, match="y has no labelled sample of weight > 0"):
        model.score(X, Y, np.where(Y < 0, 1, 0))


@pytest.mark.parametrize("key", SCORED)
@pytest.mark.parametrize("marker", [None, np.nan, -1, "-1", ""])
def test_names_are_scored_with_any_marker(key, marker):
    model = SCORED[key]().fit(X, marked(marker, list))
    expected = SCORED[key]().fit(X, Y)
    for container in ("list", "object array", "series"):
        assert model.score(X, marked(marker, CONTAINERS[container])) == expected.score(X, Y)
    assert model.score(X, np.array(NAMES)[TRUTH]) == expected.score(X, TRUTH)


def test_a_sample_that_no_label_reaches_is_wrong_where_it_has_one():
    parts = np.array([[0.0], [0.1], [0.2], [50.0], [50.1], [50.2]])
    for y, truth in (([0, -1, -1, -1, -1, -1], [0] * 6), (["a", None, None, None, None, None], ["a"] * 6)):
        with pytest.warns(UserWarning, match="no label reaches 3"):
            model = HarmonicFunction(n_neighbors=2).fit(parts, y)
        with pytest.warns(UserWarning, match="no label reaches"):
            score = HarmonicFunction(n_neighbors=2, sigma=0.05, out_of_sample="neighbors").fit(parts, y).score
            assert score(parts, truth) == pytest.approx(0.5)
        assert model.score(parts[:3], truth[:3]) == 1


def test_cross_validation_on_partly_labelled_data():
    rng = np.random.default_rng(0)
    truth = np.arange(60) % 2
    X = rng.random((60, 8)) + 2.0 * truth[:, None]
    y = np.where(np.arange(60) % 3 == 0, -1, truth)
    assert cross_val_score(HarmonicFunction(), X, y, cv=StratifiedKFold(3)).tolist() == [1, 1, 1]
    search = GridSearchCV(HarmonicFunction(), {"n_neighbors": [3, 7]}, cv=StratifiedKFold(3)).fit(X, y)
    assert search.best_score_ == 1


# Kinds of results


@pytest.mark.parametrize("key", SCORED)
def test_tensors_give_labels_as_tensors(key):
    data = torch.from_numpy(X)
    for y in (Y, torch.from_numpy(Y), Y.tolist(), (Y + 1).astype(np.uint8)):
        model = SCORED[key]().fit(data, y)
        for labels in (model.predict(data), model.transduction_):
            assert isinstance(labels, torch.Tensor) and labels.device == data.device
            assert labels.dtype == torch.from_numpy(model.classes_).dtype
    names = SCORED[key]().fit(data, np.array(NAMES)[TRUTH])
    assert isinstance(names.predict(data), np.ndarray) and isinstance(names.transduction_, np.ndarray)
    assert isinstance(SCORED[key]().fit(X, torch.from_numpy(Y)).transduction_, np.ndarray)
