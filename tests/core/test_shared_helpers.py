"""Distances, Gaussian weights, codes of labels and refused arguments: each against an independent reference."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.spatial.distance import cdist

from nnfactor.core.arguments import nonnegative, one_of, positive, whole
from nnfactor.core.factors import choose
from nnfactor.core.graph.distances import gaussian, median_length, squared_distances, store_like
from nnfactor.core.graph.neighbors import inner_products
from nnfactor.core.labels import number_classes, to_host


def samples(sparse, offset=0.0):
    rng = np.random.default_rng(0)
    X, Y = (rng.normal(size=(n, 4)) * (rng.random((n, 4)) < 0.6) + offset for n in (6, 3))
    return (X, Y, *(map(sp.csr_array, (X, Y)) if sparse else map(torch.from_numpy, (X, Y))))


@pytest.mark.parametrize("sparse", [False, True])
def test_distances_and_products_equal_scipy(sparse):
    X, Y, A, B = samples(sparse)
    assert np.allclose(squared_distances(A, B), cdist(X, Y, "sqeuclidean"), atol=1e-13)
    assert np.allclose(inner_products(A, B.T), X @ Y.T, atol=1e-13)
    assert bool((squared_distances(A, A).diagonal() >= 0).all())


def test_a_centre_keeps_digits_far_from_the_origin():
    X, Y, A, B = samples(sparse=False, offset=1e9)
    assert np.allclose(squared_distances(A, B, A.mean(0)), cdist(X, Y, "sqeuclidean"), rtol=1e-6)


@pytest.mark.parametrize("of_sparse", [False, True])
@pytest.mark.parametrize("to_sparse", [False, True])
def test_samples_are_stored_like_others(of_sparse, to_sparse):
    X, _, A, _ = samples(of_sparse)
    _, _, _, B = samples(to_sparse)
    found = store_like(A, B)
    assert sp.issparse(found) == to_sparse and np.array_equal(found.toarray() if to_sparse else found, X)


@pytest.mark.parametrize("width", [0.3, 1.0, 7.5])
def test_gaussian_equals_its_formula(width):
    squared = np.random.default_rng(1).random((3, 5))
    assert np.allclose(gaussian(torch.from_numpy(squared.copy()), width), np.exp(-squared / width**2), rtol=1e-13)


@pytest.mark.parametrize("width, far", [(0.0, 0.0), (1e-300, 0.0), (1e300, 1.0), (np.inf, 1.0)])
def test_gaussian_of_extreme_widths_is_never_nan(width, far):
    assert gaussian(torch.tensor([0.0, 1.0]).double(), width).tolist() == [1.0, far]


def test_median_length_is_of_the_positive_lengths():
    assert median_length(np.array([0.0, 9.0, 1.0, 4.0])) == 2.0
    assert median_length(np.zeros(3)) == median_length(np.zeros(0)) == 1.0


@pytest.mark.parametrize("labels", [[3, 1, 3, 2], ["b", "a", "c", "a"], [2.0, 0.0, 2.0, 1.0]])
def test_codes_count_the_classes_in_order(labels):
    codes, classes = number_classes(np.array(labels))
    assert classes.tolist() == sorted(set(labels)) and codes.tolist() == [sorted(set(labels)).index(v) for v in labels]
    known = np.array([True, False, True, True])
    some, classes = number_classes(np.array(labels), known)
    left = [v for v, k in zip(labels, known) if k]
    assert classes.tolist() == sorted(set(left)) and some[1] == -1
    assert [classes[c] for c in some[known]] == left


def test_labels_come_to_the_host():
    for y in ([1, 2], np.array([1, 2]), torch.tensor([1, 2])):
        assert isinstance(to_host(y), np.ndarray) and to_host(y).tolist() == [1, 2]


@pytest.mark.parametrize(
    "check, good, bad",
    [
        (whole, [1, 7, np.int32(3)], [0, -1, 1.0, True, "1", None]),
        (positive, [1, 0.5, np.float32(2)], [0, -1, np.inf, np.nan, True, "1", None]),
        (nonnegative, [0, 1.5], [-1e-9, np.inf, np.nan, False, "0", None]),
    ],
)
def test_refused_numbers(check, good, bad):
    for value in good:
        check("x", value)
    for value in bad:
        with pytest.raises(ValueError, match=r"^x must be .*, got "):
            check("x", value)


def test_refused_words():
    one_of("x", "a", ("a", True))
    for value in ("b", 1, None):
        with pytest.raises(ValueError, match="use 'a', True or a number"):
            one_of("x", value, ("a", True), "a number")


@pytest.mark.parametrize("batch", [(), (1,), (5,), (2, 3)])
@pytest.mark.parametrize("answer", ["all", "none", "some"])
def test_each_problem_gets_the_factor_that_it_chose(batch, answer):
    draw = torch.Generator().manual_seed(0)
    new, old = (torch.rand(*batch, 3, 7, generator=draw).mT for _ in range(2))
    first = torch.full(batch, answer == "all")
    if answer == "some":
        first = torch.rand(batch, generator=draw) < 0.5
    inputs = new.clone(), old.clone()
    found = choose(first, new, old)
    assert torch.equal(found, torch.where(first[..., None, None], new, old))
    assert torch.equal(new, inputs[0]) and torch.equal(old, inputs[1])
    assert found.mT.is_contiguous()
