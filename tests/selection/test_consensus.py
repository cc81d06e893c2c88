"""Consensus of restarts: components that are found again, outliers, spread, usages."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.base import clone

from nnfactor import NMF, NTF, Coupled, SemiNMF, consensus

RNG = np.random.default_rng(0)
U = RNG.random((20, 3)) ** 4
X = RNG.gamma(1, 1, (40, 3)) @ U.T * RNG.gamma(100, 0.01, (40, 20))
MODEL = NMF(3, init="random", n_init=8, random_state=0).fit(X)


def unit(F):
    return F / np.linalg.norm(F, axis=0)


def test_planted_components_are_stable_and_found():
    found = consensus(MODEL, X)
    assert found.stable.all() and (found.stability > 0.95).all() and found.share.tolist() == [1, 1, 1]
    assert (unit(found.components.T).T @ unit(U)).max(0).min() > 0.99
    assert repr(found) == "Consensus(3 of 3 components are stable, 8 restarts)"
    assert found.spread[0].shape == (20, 3) and found.spread[0].max() < 0.05


def test_usages_are_coefficients_on_the_medians():
    found = consensus(MODEL, X)
    np.testing.assert_allclose(found.embedding, NMF.from_components(found.components).transform(X))
    assert consensus(MODEL).embedding is None
    weights = np.ones_like(X)
    weights[:, 0] = 0
    wanted = NMF.from_components(found.components).transform(X, weights=weights)
    np.testing.assert_allclose(consensus(MODEL, X, weights=weights).embedding, wanted)


def test_a_list_of_fits_in_any_order_is_the_same_consensus():
    models = [clone(MODEL).set_params(n_init=1, random_state=s).fit(X) for s in range(6)]
    found = consensus(models)
    for m in models[1:]:
        order = np.random.default_rng(m.random_state).permutation(3)
        m.factors_ = [m.factors_[0][:, order]]
    again = consensus(models)
    same = (again.components @ found.components.T).argmax(1)  # the best restart says the order
    np.testing.assert_allclose(again.components, found.components[same])
    np.testing.assert_allclose(again.stability, found.stability[same])


def test_components_far_from_the_others_are_dropped():
    models = [clone(MODEL).set_params(n_init=1, random_state=s).fit(X) for s in range(8)]
    wanted = consensus(models[1:])
    models[0].factors_ = [np.eye(20)[:, [1, 7, 13]]]
    found = consensus(models, density_threshold=0.2)
    assert found.share.tolist() == [7 / 8] * 3 and (found.density[0] > 0.2).all()
    match = (found.components @ wanted.components.T).max(1)
    np.testing.assert_allclose(match, 1, atol=1e-9)
    assert found.stable.all()


def test_no_survivor_is_told_with_the_threshold():
    with pytest.raises(ValueError, match="density_threshold=1e-12"):
        consensus(NMF(6, init="random", n_init=4, max_iter=3, tol=0, random_state=0).fit(X), density_threshold=1e-12)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_more_components_than_there_are_are_not_stable():
    found = consensus(NMF(8, init="random", n_init=12, max_iter=100, random_state=0).fit(X), density_threshold=2)
    assert not found.stable.all() and (found.share == 1).all()


def test_medians_sum_to_one_where_components_do():
    found = consensus(clone(MODEL).set_params(normalize="l1").fit(X))
    np.testing.assert_allclose(found.components.sum(1), 1)
    np.testing.assert_allclose(np.linalg.norm(consensus(MODEL).components, axis=1), 1)


def test_tensors_have_a_median_for_each_mode():
    factors = [RNG.random((d, 2)) ** 3 for d in (12, 10, 8)]
    T = np.einsum("ir,jr,kr->ijk", *factors)
    model = NTF(2, n_init=6, random_state=0).fit(torch.from_numpy(T))
    found = consensus(model, torch.from_numpy(T))
    assert [F.shape for F in found.factors] == [(10, 2), (8, 2)] and isinstance(found.embedding, torch.Tensor)
    assert found.stable.all()
    model = np.einsum("ir,jr,kr->ijk", found.embedding.numpy(), *found.factors)
    assert np.linalg.norm(model - T) < 0.05 * np.linalg.norm(T)
    with pytest.raises(AttributeError, match="2 factors"):
        found.components


def test_one_component_has_no_silhouette():
    found = consensus(NMF(1, init="random", n_init=4, random_state=0).fit(X))
    assert np.isnan(found.stability).all() and found.stable.tolist() == [True]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_stable_signatures_of_breast_cancers_are_found_again_by_other_restarts():
    file = Path(os.environ.get("NNFACTOR_DATA", "")) / "sbs96_21breast.npz"
    if "NNFACTOR_DATA" not in os.environ or not file.exists():
        pytest.skip("NNFACTOR_DATA names no folder with sbs96_21breast.npz")
    counts = np.load(file)["X"].T.astype(float)
    make = lambda k, seed: NMF(
        k, loss="kullback-leibler", init="random", n_init=50, random_state=seed, max_iter=500, normalize="l1"
    )
    for k in (3, 4):
        a, b = (consensus(make(k, seed).fit(counts)) for seed in (0, 1))  # seeds draw disjoint sets of starts
        cosines = unit(a.components.T).T @ unit(b.components.T)
        assert a.stable.sum() >= 3 and b.stable.sum() >= 3
        assert (cosines.max(1)[a.stable] > 0.95).all() and (cosines.max(0)[b.stable] > 0.95).all()


def test_failed_restarts_are_counted_and_left_out():
    models = [clone(MODEL).set_params(n_init=1, random_state=s).fit(X) for s in range(5)]
    wanted = consensus(models[:4])
    models[4].loss_ = float("nan")
    models[4].factors_ = [np.full((20, 3), np.nan)]
    found = consensus(models)
    assert (found.n_restarts, found.n_failed) == (4, 1) and found.density.shape == (4, 3)
    np.testing.assert_array_equal(found.components, wanted.components)
    failed = clone(MODEL).fit(X)
    failed.restarts_["loss"] = np.where(np.arange(8) == 2, np.inf, failed.restarts_["loss"])
    assert (consensus(failed).n_restarts, consensus(failed).n_failed) == (7, 1)
    with pytest.raises(ValueError, match="there are 1 restarts with a finite loss"):
        consensus(models[3:])


@pytest.mark.parametrize("shape", ["constant", "zero"])
def test_constant_components_have_no_nan(shape):
    models = [clone(MODEL).set_params(n_init=1, random_state=s).fit(X) for s in range(4)]
    for m in models:
        m.factors_[0][:, 1] = 1.0 if shape == "constant" else 0.0
    found = consensus(models, density_threshold=2)
    for values in (found.components, found.stability, found.share, found.spread[0], found.density):
        assert np.isfinite(values).all()


def test_every_restart_reports_the_same_quantities():
    found = consensus(MODEL, density_threshold=0.05)
    assert found.density.shape == (8, 3) and found.stability.shape == found.share.shape == found.stable.shape == (3,)
    np.testing.assert_array_equal(found.share, (found.density <= 0.05).mean(0))


def test_the_same_restarts_give_the_same_consensus():
    first, second = (consensus(clone(MODEL).fit(X), X) for _ in range(2))
    np.testing.assert_array_equal(first.components, second.components)
    np.testing.assert_array_equal(first.embedding, second.embedding)


@pytest.mark.parametrize(
    "call, told",
    [
        (lambda: consensus(NMF(2, random_state=0).fit(X)), "one run"),
        (lambda: consensus([MODEL]), "two or more"),
        (lambda: consensus([MODEL, NMF(2).fit(X)]), "different shapes"),
        (lambda: consensus([NMF(2), NMF(2)]), "fitted"),
        (lambda: consensus(NMF(2)), "fitted"),
        (lambda: consensus(MODEL, density_threshold=0), "density_threshold"),
        (lambda: consensus(SemiNMF(2, n_init=3, random_state=0, max_iter=500).fit(X), X), "SemiNMF"),
    ],
)
def test_what_cannot_be_is_refused_by_name(call, told):
    with pytest.raises(ValueError, match=told):
        call()


def test_coupled_models_have_a_consensus_of_every_mode_but_the_samples():
    make = lambda **more: Coupled(3, modes=[("sample", "a"), ("sample", "b")], init="random", **more)
    data = [X, X[:, :12] ** 2]
    found = consensus(make(n_init=4, random_state=0).fit(data))
    assert [F.shape for F in found.factors] == [(20, 3), (12, 3)]
    several = consensus([make(random_state=seed).fit(data) for seed in range(3)])
    assert [F.shape for F in several.factors] == [(20, 3), (12, 3)]
