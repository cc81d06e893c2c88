"""Iterations on a sketch of the data first: where they count, where they change nothing, and what they end with."""

import numpy as np
import pytest
import torch

from nnfactor import NMF
from nnfactor.core.data import sketch as module
from nnfactor.core.data.as_data import as_data
from nnfactor.core.data.sketch import Sketch, sketch_of


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(module, "WORTH", 0.1)  # otherwise only data of millions of entries are sketched


def planted(n=150, m=90, k=4, noise=0.3, seed=0):
    rng = np.random.default_rng(seed)
    Y = rng.random((n, k)) ** 3 @ rng.random((k, m)) ** 3
    return np.maximum(Y + noise * Y.std() * rng.standard_normal(Y.shape), 0)


def test_products_are_those_of_a_projection():
    X = torch.from_numpy(planted())
    sketch = Sketch(as_data(X), 24, seed=0)
    Q = sketch.left
    torch.testing.assert_close(Q.T @ Q, torch.eye(24, dtype=X.dtype), atol=1e-12, rtol=0)
    for batch in ((), (3,)):
        F, G = torch.rand(*batch, 90, 4, dtype=X.dtype), torch.rand(*batch, 150, 4, dtype=X.dtype)
        torch.testing.assert_close(sketch.times(F), Q @ (Q.T @ X @ F), atol=1e-10, rtol=1e-10)
        torch.testing.assert_close(sketch.times_transposed(G), X.T @ Q @ (Q.T @ G), atol=1e-10, rtol=1e-10)
    assert sketch.captured() == pytest.approx(float((Q @ (Q.T @ X)).square().sum() / X.square().sum()))


def test_a_matrix_of_the_rank_is_held_exactly():
    X = torch.from_numpy(planted(noise=0))
    sketch, F = Sketch(as_data(X), 24, seed=0), torch.rand(90, 4, dtype=torch.float64)
    torch.testing.assert_close(sketch.times(F), X @ F, atol=1e-9, rtol=1e-9)
    assert sketch.captured() == pytest.approx(1, abs=1e-12)


def test_only_what_saves_time_is_sketched(small):
    dense, tensor = as_data(planted()), as_data(np.ones((30, 20, 10)))
    assert isinstance(sketch_of(dense, 4, 0), Sketch)
    assert sketch_of(tensor, 4, 0) is None
    assert sketch_of(sketch_of(dense, 4, 0), 4, 0) is None
    noise = as_data(np.random.default_rng(0).standard_normal((150, 90)), signed=True)
    assert sketch_of(noise, 1, 0) is None  # the sketch holds less than half of it


def test_small_data_are_not_sketched():
    assert sketch_of(as_data(planted()), 4, 0) is None


def test_the_objective_is_that_of_the_data(small):
    X = planted()
    plain = NMF(4, n_init=5, random_state=0, max_iter=3000, tol=1e-7).fit(X)
    sketched = NMF(4, n_init=5, random_state=0, max_iter=3000, tol=1e-7, sketch=True).fit(X)
    assert sketched.loss_ == pytest.approx(((X - sketched.embedding_ @ sketched.components_) ** 2).sum())
    assert sketched.loss_ <= 1.001 * plain.loss_
    assert sketched.n_iter_ < plain.n_iter_ and sketched.converged_
    again = NMF(4, n_init=5, random_state=0, max_iter=3000, tol=1e-7, sketch=True).fit(X)
    assert np.array_equal(again.embedding_, sketched.embedding_)


@pytest.mark.parametrize(
    "parameters",
    [{"loss": "kl"}, {"batch_size": 50}, {"missing": "nan"}],
    ids=["another loss", "mini-batches", "hidden entries"],
)
def test_elsewhere_nothing_changes(small, parameters):
    X = planted()
    if "missing" in parameters:
        X[::7, ::5] = np.nan
    fits = [NMF(3, random_state=0, max_iter=20, tol=0, sketch=s, **parameters).fit(X) for s in (False, True)]
    assert np.array_equal(fits[0].embedding_, fits[1].embedding_)


def test_small_data_are_fitted_as_ever():
    fits = [NMF(3, random_state=0, max_iter=20, tol=0, sketch=s).fit(planted()) for s in (False, True)]
    assert np.array_equal(fits[0].embedding_, fits[1].embedding_)


def test_fixed_entries_come_back(small):
    X, known = planted(), np.full((90, 4), np.nan)
    known[:, 0] = np.linspace(0, 1, 90)
    fit = NMF(4, random_state=0, fixed={"U1": known}, sketch=True).fit(X)
    assert np.array_equal(fit.factors_[0][:, 0], known[:, 0])
