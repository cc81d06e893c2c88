"""Restarts that are computed apart and joined equal those of one fit."""

import numpy as np
import pytest
import torch
from estimators import blocks
from sklearn.base import clone
from test_batch import TABLE, Y, assert_equal, make

from nnfactor import PARAFAC2, Coupled
from nnfactor.core.solve.history.result import find_best
from nnfactor.models.restarts.shares import join_restarts, take_restarts

SHARES = [[0, 3], [1], [2, 4]]
X = blocks()


def computed_apart(estimator, seed, data, shares=SHARES):
    fits = {tuple(share): take_restarts(estimator, seed, share).fit(data, Y) for share in shares}
    return join_restarts(estimator, seed, fits)


def assert_same(joined, single):
    assert_equal(joined, single, 1e-7)
    assert joined.get_params(deep=False).keys() == single.get_params(deep=False).keys()
    assert (joined.n_init, joined.random_state) == (single.n_init, single.random_state)
    assert joined.fit_info_["seeds"] == single.fit_info_["seeds"]
    assert joined.restarts_.keys() == single.restarts_.keys()
    np.testing.assert_allclose(joined.restarts_["loss"], single.restarts_["loss"], rtol=1e-7, atol=1e-12)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("key", TABLE)
def test_restarts_computed_apart_are_those_of_one_fit(key):
    estimator = make(key, n_init=5, random_state=3)
    data = [X] if key.startswith("SULF") else X
    assert_same(computed_apart(estimator, 3, data), clone(estimator).fit(data, Y))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "estimator, data",
    [
        (Coupled(2, modes=[("sample", "a"), ("sample", "b")], n_init=5, random_state=3, max_iter=50), [X, X[:, :5]]),
        (PARAFAC2(2, n_init=5, random_state=3, max_iter=50), [X[:5], X[4:], X[2:9]]),
    ],
    ids=["Coupled", "PARAFAC2"],
)
def test_restarts_of_several_arrays(estimator, data):
    fits = {tuple(share): take_restarts(estimator, 3, share).fit(data) for share in SHARES}
    joined, single = join_restarts(estimator, 3, fits), clone(estimator).fit(data)
    np.testing.assert_allclose(joined.restarts_["loss"], single.restarts_["loss"], rtol=1e-7)
    assert joined.restarts_.keys() == single.restarts_.keys() and joined.loss_ == pytest.approx(single.loss_, rel=1e-7)


def test_a_share_that_is_missing_is_named():
    estimator = make("NMF", n_init=3, random_state=0)
    fits = {(0, 2): take_restarts(estimator, 0, [0, 2]).fit(X)}
    with pytest.raises(ValueError, match=r"restarts \[1\] of 3 are missing"):
        join_restarts(estimator, 0, fits)


def test_one_restart_is_a_fit():
    estimator = make("NMF", n_init=1, random_state=0)
    joined = computed_apart(estimator, 0, X, [[0]])
    assert_equal(joined, clone(estimator).fit(X), 1e-9)
    assert not hasattr(joined, "restarts_")


@pytest.mark.parametrize("dtype, apart", [("float64", 1e-12), ("float32", 1e-7)])
def test_equal_restarts_are_told_apart_by_their_order(dtype, apart):
    kind = getattr(torch, dtype)
    assert find_best(np.array([3.0, 2.0 + apart, 2.0, 2.0 - apart]), kind) == 1
    assert find_best(np.array([3.0, 2.0 + 1e-4, 2.0]), kind) == 2
    assert find_best(np.array([-1.0, -2.0, np.inf]), kind) == 1
