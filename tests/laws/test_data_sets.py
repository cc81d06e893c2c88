"""Estimators with data of their own equal those fitted one by one; those of one shape run as one batch."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from estimators import blocks
from sklearn.datasets import load_digits
from test_batch import TABLE, Y, assert_equal, make, runs

from nnfactor import NGE, NMF, NTF, SULF, batch_fit, penalties
from nnfactor.core import BetaFit, Fit, multiplicative, run
from nnfactor.core.data.dense import Dense
from nnfactor.core.data.stacked import Stacked
from nnfactor.core.solve import memory_budget as room

SETS = [blocks(seed=s) * (1 + s) for s in range(4)]
CUBES = [blocks(12, 24, seed=s).reshape(12, 4, 6) for s in range(4)]


def compare(make_all, sets, y=None, tol=1e-9, **how):
    alone = [e.fit(X, y) for e, X in zip(make_all(), sets, strict=True)]
    for fitted, single in zip(batch_fit(make_all(), sets, y, **how), alone, strict=True):
        assert_equal(fitted, single, tol)


@pytest.mark.parametrize("key", TABLE)
def test_every_model_takes_a_list_of_data_sets(key):
    sets = [[X] for X in SETS] if key.startswith("SULF") else SETS  # a list of arrays is one data set of views
    compare(lambda: [make(key, random_state=s) for s in range(4)], sets, Y, tol=1e-7)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"loss": "kullback-leibler"},
        {"loss": "itakura-saito", "solver": "multiplicative", "max_iter": 4000},
        {"loss": 0.5},
        {"solver": "hals", "n_init": 3},
        {"solver": "projected"},
        {"solver": "mu", "n_init": 2},
        {"alpha_W": 0.01, "l1_ratio": 0.5},
        {"penalties": {"U1": [penalties.Smooth(0.1)]}},
        {"simplex": "V"},
        {"bounds": {"U1": (0, 1)}, "tol": 1e-5},
        {"fixed": {"U1": np.where(np.arange(24).reshape(8, 3) % 3, np.nan, 1.0)}},
    ],
    ids=str,
)
def test_problems_with_data_of_their_own_are_one_batch(settings, monkeypatch):
    seen = runs(monkeypatch)
    sets = [X + 0.1 for X in SETS] if settings.get("loss") == "itakura-saito" else SETS
    ks = (3, 3, 3, 3) if {"penalties", "simplex", "bounds", "fixed"} & settings.keys() else (2, 3, 3, 2)
    several = lambda: [NMF(k, init="random", random_state=k, **{"tol": 1e-4, "max_iter": 400, **settings}) for k in ks]
    alone = [e.fit(X) for e, X in zip(several(), sets, strict=True)]
    seen.clear()
    together = batch_fit(several(), sets)
    assert seen == [4 * settings.get("n_init", 1)]
    assert len({e.n_iter_ for e in together}) > 1  # problems leave with their data
    for fitted, single in zip(together, alone, strict=True):
        assert_equal(fitted, single, 1e-6)


@pytest.mark.parametrize("loss", ["frobenius", "kullback-leibler"])
def test_tensors(loss, monkeypatch):
    seen = runs(monkeypatch)
    several = lambda: [NTF(2, loss=loss, random_state=s, tol=1e-4, max_iter=300, n_init=2) for s in range(4)]
    compare(several, CUBES, tol=1e-6)
    assert seen[-1] == 8


def test_estimators_share_a_data_set_that_is_one_object(monkeypatch):
    seen = runs(monkeypatch)
    compare(lambda: [make("NMF", k, random_state=k) for k in (2, 3, 2, 3)], [SETS[0], SETS[0], SETS[1], SETS[1]])
    assert seen[-1] == 4


def test_units_differ(monkeypatch):
    seen = runs(monkeypatch)
    compare(
        lambda: [make("NMF", random_state=0) for _ in range(3)], [SETS[0], SETS[1] * 1e140, SETS[2] * 1e-140], tol=1e-8
    )
    assert seen[-1] == 3


@pytest.mark.parametrize(
    "change",
    [
        lambda X: sp.csr_array(X),
        lambda X: X.astype(np.float32),
        lambda X: torch.from_numpy(X),
    ],
    ids=["sparse", "float32", "torch"],
)
def test_kinds_of_data(change):
    compare(lambda: [make("NMF", random_state=s) for s in range(4)], [change(X) for X in SETS], tol=1e-4)


def test_data_of_several_shapes():
    compare(lambda: [make("NMF", random_state=s) for s in range(3)], [SETS[0], SETS[1][:9], SETS[2][:, :5]])


def test_labels_and_weights_may_be_lists():
    labels = [Y, np.roll(Y, 1), Y]
    models = batch_fit([make("NGE", random_state=0) for _ in range(3)], SETS[:3], labels)
    for model, X, y in zip(models, SETS, labels, strict=False):
        assert_equal(model, make("NGE", random_state=0).fit(X, y))
    weights = [np.where(X > 1, 1.0, 0.5) for X in SETS]
    models = batch_fit([make("NMF", random_state=0) for _ in SETS], SETS, weights=weights)
    for model, X, W in zip(models, SETS, weights, strict=True):
        assert_equal(model, make("NMF", random_state=0).fit(X, weights=W))


def test_views_are_one_data_set():
    views = [[X[:, :4], X[:, 4:]] for X in SETS]
    one = batch_fit([SULF(2, random_state=0, max_iter=5, tol=0) for _ in range(2)], views[0], Y)
    assert_equal(one[0], one[1])
    compare(lambda: [SULF(2, random_state=0, max_iter=5, tol=0) for _ in SETS], views, Y)


@pytest.mark.parametrize("problems_at_once", [1, 2, 3])
def test_little_memory_changes_nothing(problems_at_once, monkeypatch):
    seen = runs(monkeypatch)
    limit = problems_at_once * (room.bytes_per_problem(Dense(torch.from_numpy(SETS[0])), 3) + SETS[0].nbytes)
    several = lambda: [make("NMF", random_state=s, n_init=2) for s in range(4)]
    compare(several, SETS, max_bytes=limit)
    assert max(seen[4:]) <= problems_at_once and sum(seen[4:]) == 8


def test_lists_that_do_not_fit_are_refused():
    models = lambda n: [NMF(2) for _ in range(n)]
    with pytest.raises(ValueError, match="X is a list of 4 data sets, but there are 3 estimators"):
        batch_fit(models(3), SETS)
    with pytest.raises(ValueError, match="y is a list of 2, and X one of 4 data sets"):
        batch_fit([NGE(2) for _ in SETS], SETS, [Y, Y])
    several = models(4)
    with pytest.raises(ValueError, match=r"estimators\[2\]: Negative values in data passed to"):
        batch_fit(several, [SETS[0], SETS[1], -SETS[2], SETS[3]])
    assert not any(name.endswith("_") for e in several for name in vars(e))


@pytest.mark.parametrize("beta", [2, 1, 0, 0.5, 3])
@pytest.mark.parametrize("shape", [(5, 4), (4, 3, 5), (3, 2, 2, 4)])
def test_products_of_a_stack_are_those_of_its_data_sets(shape, beta, monkeypatch):
    draw = np.random.default_rng(0)
    sets = [Dense(torch.from_numpy(draw.random(shape) + 0.1)) for _ in range(3)]
    owner = [0, 0, 1, 2]
    stack = Stacked.of([sets[i] for i in owner])
    monkeypatch.setattr(Stacked, "chunk", 12)  # several blocks of rows
    factors = [torch.from_numpy(draw.random((4, d, 2))) for d in shape]
    some = torch.tensor([1, 3])
    for data, owners, Fs in (
        (stack, owner, factors),
        (stack.select_problems(some), [0, 2], [F[some] for F in factors]),
    ):
        for p, i in enumerate(owners):
            own, X = [F[p] for F in Fs], sets[i]
            for mode in range(len(shape)):
                torch.testing.assert_close(data.mttkrp(Fs, mode)[p], X.mttkrp(own, mode))
                for a, b in zip(data.ratio_products(Fs, mode, beta), X.ratio_products(own, mode, beta), strict=True):
                    torch.testing.assert_close(a[p], b)
            torch.testing.assert_close(data.divergence(Fs, beta)[p], X.divergence(own, beta))
            torch.testing.assert_close(data.distance_sq(Fs)[p], X.distance_sq(own))
            torch.testing.assert_close(data.sqnorm()[p], X.sqnorm())
            torch.testing.assert_close(data.mean()[p], X.mean())
    assert stack.smallest() == min(X.smallest() for X in sets)
    with pytest.raises(ValueError, match="no samples in common"):
        stack.samples()
    torch.testing.assert_close(stack.scaled(2.0).sets, 2 * stack.sets)
    rows = torch.tensor([2, 0])
    torch.testing.assert_close(stack.take(rows).sets[1], sets[1].take(rows).X)


@pytest.mark.parametrize("term", [Fit, BetaFit])
def test_core_takes_a_stack(term):
    sets = [Dense(torch.from_numpy(X)) for X in SETS]
    start = {"V": torch.rand(4, 12, 2, dtype=torch.float64) + 0.1, "U1": torch.rand(4, 8, 2, dtype=torch.float64) + 0.1}
    rules = dict.fromkeys(("U1", "V"), multiplicative)
    together = run([term(Stacked.of(sets), ("V", "U1"))], rules, start, max_iter=300, tol=1e-3, warn=False)
    for p, X in enumerate(sets):
        own = {name: F[p] for name, F in start.items()}
        alone = run([term(X, ("V", "U1"))], rules, own, max_iter=300, tol=1e-3, warn=False)
        assert together.n_iter[p] == alone.n_iter[0]
        np.testing.assert_allclose(together.objective[p], alone.objective[0], rtol=1e-9)


def test_bootstrap_samples_of_digits(monkeypatch):
    seen = runs(monkeypatch)
    digits, draw = load_digits().data[:150], np.random.default_rng(0)
    samples = [digits[draw.integers(150, size=150)] for _ in range(10)]
    fits = batch_fit([NMF(8, random_state=0, max_iter=60, tol=0) for _ in samples], samples)
    assert seen == [10] and len({e.loss_ for e in fits}) == 10


def test_labels_and_weights_may_be_absent_for_some_data_sets():
    hide = np.where(np.random.default_rng(0).random(SETS[0].shape) < 0.1, 0.0, 1.0)
    for weights in ([None, hide, hide], [hide, None, None], [None, None, None]):
        alone = [NMF(3, random_state=0).fit(X, weights=w) for X, w in zip(SETS, weights, strict=False)]
        fits = batch_fit([NMF(3, random_state=0) for _ in range(3)], SETS[:3], weights=weights)
        for fitted, single in zip(fits, alone, strict=True):
            assert_equal(fitted, single, 1e-9)
    views, labels = [[X] for X in SETS[:3]], [Y, None, Y]
    alone = [SULF(3, random_state=0).fit(X, y) for X, y in zip(views, labels, strict=True)]
    for fitted, single in zip(
        batch_fit([SULF(3, random_state=0) for _ in range(3)], views, labels), alone, strict=True
    ):
        assert_equal(fitted, single, 1e-7)
    several = [[X, X[:, :4]] for X in SETS[:2]]
    for weights in ([[None, hide[:, :4]], [hide, None]], [[hide, None], None]):
        alone = [SULF(3, random_state=0).fit(X, Y, weights=w) for X, w in zip(several, weights, strict=True)]
        fits = batch_fit([SULF(3, random_state=0) for _ in range(2)], several, Y, weights=weights)
        for fitted, single in zip(fits, alone, strict=True):
            assert_equal(fitted, single, 1e-7)
