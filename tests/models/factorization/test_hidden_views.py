"""Missing and weighted entries of views, and views that some samples lack."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import nnls
from sklearn.datasets import load_digits

from nnfactor import SULF, CoTraining, batch_fit

RNG = np.random.default_rng(0)
V = RNG.gamma(0.5, 1, (40, 3))
A, B = (V @ RNG.gamma(0.5, 1, (3, m)) + 0.05 for m in (15, 9))
Y = np.where(RNG.random(40) < 0.5, V.argmax(1), -1)
HOLES = [RNG.random(A.shape) < 0.2, np.repeat(RNG.random((40, 1)) < 0.3, 9, axis=1)]  # entries, and a view of samples
KW = {"random_state": 0, "max_iter": 40, "tol": 0}
CASES = {
    "labels": {},
    "two stages": {"start": "two_stage"},
    "equal weights": {"view_weights": "equal"},
    "raw": {"scale_views": False, "lam": 1e4},
    "random": {"init": "random", "n_init": 2},
}
every = pytest.mark.parametrize("settings", CASES.values(), ids=CASES)


def gaps(junk=np.nan):
    return [np.where(H, junk, X) for X, H in zip((A, B), HOLES, strict=True)]


def same(one, other):
    assert one.loss_ == other.loss_
    for F, G in zip((one.embedding_, *one.factors_), (other.embedding_, *other.factors_), strict=True):
        np.testing.assert_array_equal(F, G)
    np.testing.assert_array_equal(one.transduction_, other.transduction_)


@every
def test_what_is_hidden_has_no_influence(settings):
    make = lambda **kw: SULF(3, **KW, **settings, **kw)
    fitted = make(missing="nan").fit(gaps(), Y)
    seen = [~H for H in HOLES]
    for junk in (np.inf, -1.0, 1e300):
        again = make().fit(gaps(junk), Y, weights=seen)
        same(again, fitted)
        same(make().fit([np.ma.masked_array(X, H) for X, H in zip(gaps(junk), HOLES, strict=True)], Y), fitted)
        np.testing.assert_array_equal(again.transform(gaps(junk), weights=seen), fitted.transform(gaps()))
        np.testing.assert_array_equal(again.predict(gaps(0.0)), fitted.predict(gaps(0.0)))


@every
def test_the_loss_counts_what_is_seen_and_never_rises(settings):
    model = SULF(3, missing="nan", **KW, **settings).fit(gaps(), Y)
    objective = model.history_["objective"]
    assert (np.diff(objective) <= 1e-9 * objective[0]).all()
    scales = model.view_scales_
    E, Vs = [], model.embedding_
    for X, H, U, s in zip((A, B), HOLES, model.factors_, scales, strict=True):
        E.append(np.sum(np.where(H, 0, X - Vs @ U.T) ** 2) / s**2)
        norm = np.sqrt(np.sum(np.where(H, 0, X) ** 2))
        np.testing.assert_allclose(model.view_errors_[len(E) - 1], np.sqrt(E[-1]) * s / norm, rtol=1e-9)
    W, known = model.coef_, Y >= 0
    targets = np.eye(len(model.classes_))[np.searchsorted(model.classes_, Y[known])]
    labels = np.sum((Vs[known] @ W - targets) ** 2) + 0.01 * np.sqrt((W**2).sum(1) + 1e-10).sum()
    pi = model.view_weights_
    expected = pi @ np.array(E) + model.lam_ * (pi @ pi) + labels
    np.testing.assert_allclose(model.loss_, expected, rtol=1e-9)


def test_weights_are_repetitions():
    """A sample of weight 2 is two samples: one objective at the start, and one minimum, which steps of two sizes reach."""
    random = np.random.default_rng(1)  # of its own: tests come in any order
    W = random.integers(1, 3, (40, 1))
    rows = np.repeat(np.arange(40), W[:, 0])
    start, *bases = V + 0.1, *(random.random((m, 3)) for m in (15, 9))
    how = {**KW, "max_iter": 3000, "view_weights": "equal", "scale_views": False, "lam": 1.0}
    weighted = SULF(3, init=(start, *bases), **how).fit([A, B], weights=[np.repeat(W, m, 1) for m in (15, 9)])
    repeated = SULF(3, init=(start[rows], *bases), **how).fit([A[rows], B[rows]])
    begun = [model.history_["objective"][0] for model in (weighted, repeated)]
    np.testing.assert_allclose(*begun, rtol=1e-9)
    assert abs(weighted.loss_ - repeated.loss_) < 1e-4 * begun[0]
    model, other = (m.embedding_ @ m.factors_[0].T for m in (weighted, repeated))
    np.testing.assert_allclose(model[rows], other, atol=0.02 * A.max())


@pytest.mark.parametrize("method", ["nnls", "pinv"])
def test_transform_solves_what_is_seen(method):
    model = SULF(3, missing="nan", transform_method=method, **KW).fit(gaps(), Y)
    found = model.transform(gaps())
    roots = np.sqrt(model.view_weights_) / model.view_scales_
    for i in range(len(A)):
        rows = [(X[i], H[i], U, r) for X, H, U, r in zip((A, B), HOLES, model.factors_, roots, strict=True)]
        design = np.vstack([r * U[~h] for _, h, U, r in rows])
        target = np.concatenate([r * x[~h] for x, h, _, r in rows])
        expected = nnls(design, target)[0] if method == "nnls" else np.linalg.lstsq(design, target, rcond=None)[0]
        np.testing.assert_allclose(found[i], expected, rtol=1e-6, atol=1e-8)


def test_sparse_views():
    seen = [~H for H in HOLES]
    dense = SULF(3, missing="nan", **KW).fit(gaps(), Y)
    stored = SULF(3, missing="unstored", **KW).fit([sp.csr_array(np.where(s, X, 0)) for s, X in zip(seen, (A, B))], Y)
    np.testing.assert_allclose(stored.loss_, dense.loss_, rtol=1e-6)


def test_batches_and_restarts_are_separate_fits():
    several = lambda: [SULF(3, beta=b, missing="nan", init="random", **KW) for b in (0.1, 1.0)]
    for one, alone in zip(batch_fit(several(), gaps(), Y), several(), strict=True):
        np.testing.assert_allclose(one.loss_, alone.fit(gaps(), Y).loss_, rtol=1e-9)
    seen = [~H for H in HOLES]
    sets, labels = [gaps(0.0), [2 * A, B]], [Y, np.roll(Y, 1)]
    make = lambda: [SULF(3, **KW) for _ in sets]
    for one, X, y, alone in zip(batch_fit(make(), sets, labels, weights=seen), sets, labels, make(), strict=True):
        np.testing.assert_allclose(one.loss_, alone.fit(X, y, weights=seen).loss_, rtol=1e-9)


def test_samples_without_any_view_and_features_without_any_sample_are_told():
    X = gaps()
    X[0][3], X[1][3], X[1][:, 2] = np.nan, np.nan, np.nan
    with pytest.warns(UserWarning, match="SULF: 1 samples and 1 features of view 1 without any observed entry"):
        model = SULF(3, missing="nan", beta=0, **KW).fit(X)
    assert not model.embedding_[3].any() and not model.factors_[1][2].any()
    assert np.isfinite(model.loss_) and not model.transform(X)[3].any()


def test_one_view():
    model = SULF(3, missing="nan", **KW).fit(gaps()[0], Y)
    same(model, SULF(3, **KW).fit(gaps(7.0)[0], Y, weights=~HOLES[0]))


def test_a_constant_view_counts_its_observed_entries():
    constant = np.where(HOLES[1], np.nan, 2.0)
    with pytest.warns(UserWarning, match="gives view 1 weight 0"):
        model = SULF(3, missing="nan", **KW).fit([A, constant], Y)
    assert model.view_weights_[1] == 0


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: SULF(3, **KW).fit(gaps(), Y), "view 0: Input X contains NaN"),
        (lambda: SULF(3, **KW).fit([A, B], Y, weights=~HOLES[0]), "weights must be a list of 2, an array or None"),
        (lambda: SULF(3, **KW).fit([A, B], Y, weights=[None, np.ones((3, 3))]), "view 1: weights has shape"),
        (lambda: SULF(3, signed="semi", missing="nan", **KW).fit(gaps(), Y), "signed='semi' takes complete views"),
        (lambda: CoTraining().fit([np.ma.masked_array(X, H) for X, H in zip((A, B), HOLES)], Y), "mask"),
    ],
)
def test_what_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_digits_whose_half_is_missing_for_some():
    """Observed entries alone say more than zeros in place of what is missing."""
    X, y = load_digits(return_X_y=True)
    random = np.random.default_rng(2)
    X, y = X[:250], y[:250]
    labels = np.where(random.random(250) < 0.3, y, -1)
    lacks = random.random(250) < 0.4
    views = [X[:, :32], np.where(lacks[:, None], np.nan, X[:, 32:])]
    right = lambda model: np.mean((model.transduction_ == y)[labels < 0])
    known = right(SULF(10, random_state=0, missing="nan", max_iter=200, tol=0).fit(views, labels))
    zeros = right(SULF(10, random_state=0, max_iter=200, tol=0).fit([np.nan_to_num(view) for view in views], labels))
    assert known > zeros
