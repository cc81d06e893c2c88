"""Sparse matrices that a GPU stores dense: when, and that nothing else changes."""

import numpy as np
import pytest
import scipy.sparse as sp

from nnfactor import NMF, GraphNMF
from nnfactor.core import Dense, Sparse, gpu
from nnfactor.core.data.as_data import as_scaled_data


@pytest.fixture
def on_a_card(monkeypatch):
    decide = gpu.stores_dense
    monkeypatch.setattr(gpu, "stores_dense", lambda device, *rest: decide("cuda", *rest))


def matrix(density=0.3):
    return sp.random_array((40, 25), density=density, format="csr", rng=np.random.default_rng(0))


def test_it_is_decided_by_density_and_free_memory(monkeypatch):
    entries = 1000 * 1000
    at = lambda share, free=1e12, device="cuda": gpu.stores_dense(device, (1000, 1000), int(share * entries), 4, free)
    assert at(gpu.FILLED) and not at(gpu.FILLED / 2)
    assert not at(0.5, device="cpu")
    assert not at(0.5, free=4e6)  # as much as the data
    monkeypatch.setenv("NNFACTOR_DENSE", "1")
    assert at(0.001) and not at(0.5, free=4e6) and not at(0.5, device="cpu")
    monkeypatch.setenv("NNFACTOR_DENSE", "0")
    assert not at(0.5)


def test_what_is_full_enough_becomes_dense(on_a_card):
    data, unscaled, scale = as_scaled_data(matrix(), fastest=True)
    assert isinstance(data, Dense) and isinstance(unscaled, Sparse) and scale == 1
    np.testing.assert_array_equal(data.X, matrix().toarray())
    assert isinstance(as_scaled_data(matrix(0.01), fastest=True)[0], Sparse)
    assert isinstance(as_scaled_data(matrix())[0], Sparse)
    data, _, scale = as_scaled_data(matrix() * 2.0**600, fastest=True)
    assert isinstance(data, Dense) and scale > 1


@pytest.mark.parametrize("make", [NMF, GraphNMF, lambda k, **o: NMF(k, loss="kullback-leibler", **o)])
def test_fits_are_the_same(make, monkeypatch):
    X = matrix()
    sparse = make(3, init="random", random_state=0, max_iter=30, tol=0).fit(X)
    decide = gpu.stores_dense
    monkeypatch.setattr(gpu, "stores_dense", lambda device, *rest: decide("cuda", *rest))
    dense = make(3, init="random", random_state=0, max_iter=30, tol=0).fit(X)
    np.testing.assert_allclose(dense.embedding_, sparse.embedding_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(dense.transform(X), sparse.transform(X), rtol=1e-5, atol=1e-8)
    assert isinstance(dense.embedding_, np.ndarray)


def test_entries_that_are_missing_stay_so(on_a_card):
    X = matrix()
    model = NMF(3, missing="unstored", init="random", random_state=0, max_iter=30).set_params(tol=0).fit(X)
    assert np.isfinite(model.loss_)


@pytest.mark.gpu
@pytest.mark.parametrize("density", [0.02, 0.3])
def test_both_ways_of_storage_agree_on_a_device(density, monkeypatch):
    X, losses = matrix(density), []
    for value in ("0", "1"):
        monkeypatch.setenv("NNFACTOR_DENSE", value)
        losses.append(NMF(3, init="random", random_state=0, max_iter=30, tol=0, device="cuda").fit(X).loss_)
    assert losses[1] == pytest.approx(losses[0], rel=1e-8)
