"""SULF against an independent reference written from Jiang et al. 2014: states, monotone objectives, labels."""

import copy

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sulf_reference import MILD, PAPER, K, fitted, loss, one_hot, problem, quiet_fit, reference, same

from nnfactor.core import Fit, block_of
from nnfactor.core.terms.multiview import Labels, Views
from nnfactor.models.factorization.sulf import SULF
from nnfactor.models.shared.labels import decide, decode_labels

pytestmark = pytest.mark.filterwarnings("ignore:SULF learned to use view")  # the default lam does on most of these


class TestReference:
    """States equal the reference after five iterations and after a long run."""

    @pytest.mark.parametrize("eta", [1.0, 0.5])
    @pytest.mark.parametrize("weights, n", [(MILD, 5), (MILD, 150), (PAPER, 5), ({**MILD, "lam": 0.0}, 40)])
    def test_corrected_rule(self, weights, n, eta):
        views, y, start = problem()
        model = SULF(K, **weights, exponent=eta, scale_views=False, init=start, max_iter=n, tol=0).fit(views, y)
        (V, Us, W, pi), value = reference(views, y, start, n, **weights, eta=eta)
        tol = 1e-9 if n == 5 and weights is MILD else 1e-7
        same([*fitted(model), model.coef_], [V, *Us, pi, W], tol)
        np.testing.assert_allclose([model.loss_, model.history_["objective"][-1]], value, rtol=1e-9)
        assert model.n_iter_ == n and len(model.history_["objective"]) == n + 1

    def test_printed_rule(self):
        views, y, start = problem()
        model = SULF(
            K, beta=10.0, lam=1.0, v_rule="printed", exponent=0.5, scale_views=False, init=start, max_iter=5, tol=0
        )
        (V, Us, W, pi), _ = reference(views, y, start, 5, **{**MILD, "beta": 10.0}, eta=0.5, printed=True)
        same([*fitted(quiet_fit(model, views, y)), model.coef_], [V, *Us, pi, W])

    @pytest.mark.parametrize("n", [5, 100])
    def test_without_labels(self, n):
        views, y, start = problem()
        state, value = reference(views, y, start, n, **{**MILD, "beta": 0.0})
        for model, labels in ((SULF(K, beta=0), y), (SULF(K), None), (SULF(K), np.full(14, -1))):
            model.set_params(lam=1.0, scale_views=False, init=start, max_iter=n, tol=0).fit(views, labels)
            same(fitted(model), [state[0], *state[1], state[3]])
            np.testing.assert_allclose(model.loss_, value)

    def test_scaled_views_are_the_same_fit_in_other_units(self):
        views, y, start = problem()
        sizes = [np.linalg.norm(X) / np.sqrt(14) for X in views]
        inside = (start[0], *(U / s for U, s in zip(start[1:], sizes)))
        (V, Us, W, pi), value = reference([X / s for X, s in zip(views, sizes)], y, inside, 30, **MILD)
        model = SULF(K, lam=1.0, init=start, max_iter=30, tol=0).fit(views, y)
        same([*fitted(model), model.coef_], [V, *(U * s for U, s in zip(Us, sizes)), pi, W])
        np.testing.assert_allclose(model.loss_, value)
        np.testing.assert_allclose(model.view_scales_, sizes)

    def test_signed_views(self):
        views, y, start = problem(signed=(1,))
        with pytest.raises(ValueError, match=r"view 1: Negative values"):
            SULF(K).fit(views, y)
        model = SULF(K, lam=1.0, signed="semi", scale_views=False, init=start, max_iter=40, tol=0).fit(views, y)
        (V, Us, W, pi), value = reference(views, y, start, 40, **MILD, free=(1,))
        same([*fitted(model), model.coef_], [V, *Us, pi, W], 1e-8)
        np.testing.assert_allclose(model.loss_, value)
        assert (model.factors_[1] < 0).any() and all((model.factors_[p] >= 0).all() for p in (0, 2))
        assert (np.diff(model.history_["objective"]) <= 1e-12 * model.history_["objective"][0]).all()

    @pytest.mark.parametrize("given_weights", ["equal", [0.2, 0.0, 0.8], [1, 0, 3]])
    def test_fixed_weights(self, given_weights):
        views, y, start = problem()
        pi = np.full(3, 1 / 3) if given_weights == "equal" else np.array(given_weights) / np.sum(given_weights)
        model = SULF(K, lam=1.0, view_weights=given_weights, scale_views=False, init=start, max_iter=20, tol=0).fit(
            views, y
        )
        state, value = reference(views, y, start, 20, **MILD, learned=False, pi=pi)
        same(fitted(model), [state[0], *state[1], pi])
        np.testing.assert_allclose(model.loss_, value)  # with lam ||pi||^2

    def test_given_coefficients_and_warm_start(self):
        views, y, start = problem()
        whole = SULF(K, scale_views=True, init=start, max_iter=25, tol=0).fit(views, y)
        half = SULF(K, init=start, max_iter=10, tol=0).fit(views, y)
        again = (half.embedding_, *half.factors_, half.view_weights_)
        rest = SULF(K, init=again, coef_init=half.coef_, max_iter=15, tol=0).fit(views, y)
        same([*fitted(rest), rest.coef_], [*fitted(whole), whole.coef_])


class TestMonotone:
    """No step raises the objective beyond rounding, whatever the data and the weights."""

    @pytest.mark.parametrize("eta", [1.0, 0.5])
    @pytest.mark.parametrize("scaled", [True, False])
    @pytest.mark.parametrize("seed", range(12))
    def test_at_the_papers_weights(self, seed, scaled, eta):
        rng = np.random.default_rng(seed)
        n, k = int(rng.integers(3, 20)), int(rng.integers(1, 9))
        views = [rng.random((n, int(m))) * 10.0 ** rng.integers(-3, 4) for m in rng.integers(1, 9, rng.integers(1, 4))]
        for X in views:
            X[rng.random(n) < 0.2] = 0
            X[:, rng.random(X.shape[1]) < 0.2] = 0
        if seed % 4 == 0:
            views.append(np.zeros((n, 3)))
        y = np.where(rng.random(n) < 0.5, rng.integers(0, 3, n), -1)
        y[0] = 0
        settings = {**PAPER, "exponent": eta, "scale_views": scaled, "random_state": seed, "init": "random"}
        model = quiet_fit(SULF(k, **settings, max_iter=60, tol=0), views, y)
        history = model.history_["objective"]
        assert np.isfinite(history).all() and (np.diff(history) <= 1e-9 * history[0]).all()
        for F in (model.embedding_, *model.factors_, model.coef_):
            assert np.isfinite(F).all()
        assert (model.embedding_ >= 0).all() and all((U >= 0).all() for U in model.factors_)
        np.testing.assert_allclose(model.view_weights_.sum(), 1)
        for X, U in zip(views, model.factors_):  # what is zero in the data is zero in the model
            assert np.abs((model.embedding_ @ U.T)[:, ~X.any(0)]).max(initial=0) <= 1e-9 * max(X.max(), 1e-300)

    @pytest.mark.parametrize("extra", [{"gamma": 0.0}, {"beta": 1e12}, {"gamma": 1e8}, {"lam": 0.0}, {"lam": 1e12}])
    def test_at_extremes(self, extra):
        views, y, start = problem(k=20, seed=3)  # more components than labelled samples: V_l is rank deficient
        model = quiet_fit(SULF(20, **{**MILD, **extra}, init=start, max_iter=50, tol=0), views, y)
        history = model.history_["objective"]
        assert np.isfinite(model.coef_).all() and (np.diff(history) <= 1e-9 * history[0]).all()

    def test_the_printed_rule_rises_and_is_stopped(self):
        views, y, start = problem()
        printed = SULF(K, **PAPER, exponent=0.5, v_rule="printed", init=start, tol=0)
        slow = clone(printed).set_params(beta=10.0, lam=1.0, max_iter=20, tol=1e-4)
        rising = quiet_fit(clone(printed).set_params(max_iter=3), views, y).history_["objective"]
        assert (np.diff(rising) > 0).any()
        with pytest.raises(FloatingPointError, match=r"v_rule='printed'.*use v_rule='corrected'"):
            clone(printed).set_params(max_iter=2000).fit(views, y)
        assert not hasattr(printed, "embedding_")
        with pytest.warns(ConvergenceWarning, match="objective rises"):
            model = slow.fit(views, y)
        assert not model.converged_

    def test_gradient_of_v_by_finite_differences(self):
        views, y, (V, *Us) = problem()
        Y, rng = one_hot(y), np.random.default_rng(1)
        W, pi = rng.normal(size=(K, 3)), np.array([0.2, 0.5, 0.3])
        value = lambda V: loss(views, (V, Us, W, pi), Y, 3.0, 0.0, 0.0)
        numeric = np.zeros_like(V)
        for at in np.ndindex(V.shape):
            d = np.zeros_like(V)
            d[at] = 1e-6
            numeric[at] = (value(V + d) - value(V - d)) / 2e-6
        factors, terms = on_torch(views, V, Us, W, pi, Y, 3.0)
        np.testing.assert_allclose(
            2 * block_of(terms, factors, "V").half_gradient(factors["V"]).numpy(), numeric, atol=1e-6
        )
        _, terms = on_torch(views, V, Us, W, pi, Y, 3.0, printed=True)
        printed = 2 * block_of(terms, factors, "V").half_gradient(factors["V"]).numpy()
        assert np.abs(printed - numeric).max() > 1  # the term 2 beta V W W' is missing


def on_torch(views, V, Us, W, pi, Y, beta, printed=False):
    major = lambda F: torch.from_numpy(np.ascontiguousarray(F.T)).mT
    names = [f"U{p + 1}" for p in range(len(Us))]
    factors = {"V": major(V), "W": major(W), "pi": torch.tensor(pi)[None], **dict(zip(names, map(major, Us)))}
    fits = [Fit(X, ("V", U)) for X, U in zip(views, names)]
    return factors, [Views(fits), Labels(torch.tensor(Y), torch.tensor(Y.any(1)), weight=beta, printed=printed)]


class TestLabels:
    """Encodings, missing classes, samples that no label reaches."""

    def test_encodings_agree(self):
        views, y, start = problem()
        fit = lambda labels: SULF(K, init=start, max_iter=30, tol=0).fit(views, labels)
        expected, words = fit(y), np.array(["ash", "elm", "oak"])
        as_words = np.where(y >= 0, words[y], "-1")
        objects = np.array([words[c] if c >= 0 else None for c in y], dtype=object)
        for labels, classes in (
            (np.where(y >= 0, 10.0 * y, np.nan), [0, 10, 20]),
            (as_words, words),
            (objects, words),
            (y.tolist(), [0, 1, 2]),
            (torch.from_numpy(y), [0, 1, 2]),
        ):
            before = copy.deepcopy(labels)
            model = fit(labels)
            same([model.coef_, model.embedding_], [expected.coef_, expected.embedding_], 1e-12)
            assert list(model.classes_) == list(classes)
            np.testing.assert_array_equal(model.transduction_, np.asarray(classes)[expected.transduction_])
            assert set(model.predict(views)) <= {*classes, decode_labels(np.array([-1]), model.classes_)[0]}
            np.testing.assert_array_equal(np.asarray(before), np.asarray(labels))
        assert (expected.transduction_[y >= 0] == y[y >= 0]).all()
        shares = expected.label_distributions_
        np.testing.assert_allclose(shares.sum(1), 1)
        np.testing.assert_array_equal(shares.argmax(1), expected.transduction_)

    def test_none_one_and_all(self):
        views, y, start = problem()
        for labels in (None, np.full(14, -1)):
            model = SULF(K, init=start, max_iter=5, tol=0).fit(views, labels)
            with pytest.raises(ValueError, match="SULF cannot predict: it was fitted without any label"):
                model.predict(views)
            assert not hasattr(model, "coef_") and len(model.classes_) == 0
        with pytest.raises(ValueError, match="beta=0 leaves the labels out"):
            SULF(K, beta=0, max_iter=5, tol=0).fit(views, y).predict(views)
        one = SULF(K, init=start, max_iter=20, tol=0).fit(views, np.where(y == 2, 7, -1))
        assert one.coef_.shape == (K, 1) and set(one.predict([X + 0.1 for X in views])) == {7}
        every = SULF(K, init=start, max_iter=20, tol=0).fit(views, np.abs(y))
        assert (every.transduction_ == np.abs(y)).all() and every.score(views, np.abs(y)) > 0.5
        with pytest.raises(ValueError, match="one label per sample"):
            SULF(K).fit(views, y[:5])
        with pytest.raises(ValueError, match="Unknown label type: continuous"):
            SULF(K).fit(views, y + 0.5)

    def test_samples_that_no_label_reaches(self):
        views, y, _ = problem()
        for X in views:
            X[4] = 0  # unlabelled
        model = SULF(K, random_state=0, max_iter=100, tol=0).fit(views, y)
        assert model.transduction_[4] == -1 and not model.label_distributions_[4].any()
        assert model.predict(views)[4] == -1 and not model.transform(views)[4].any()
        assert decide(np.array([[0.0, 0], [-1, -2], [0, 3]])).tolist() == [-1, 0, 1]
        codes = np.array([0, -1, 1])
        assert decode_labels(codes, np.array(["ash", "elm"])).tolist() == ["ash", "-1", "elm"]
        assert decode_labels(codes, np.array([3, 200], dtype=np.uint8)).tolist() == [3, -1, 200]
        assert decode_labels(codes, np.array(["a", "b"], dtype=object)).tolist() == ["a", None, "b"]
        assert decode_labels(codes, np.array([False, True])).tolist() == [False, None, True]

    def test_labels_help(self):
        rng = np.random.default_rng(0)
        truth = np.arange(120) % 3
        V = np.eye(3)[truth] + 0.5 * rng.random((120, 3))
        views = [V @ rng.random((3, 12)) + 0.1 * rng.random((120, 12)) for _ in range(2)]
        y = np.where(np.arange(120) < 12, truth, -1)
        model = quiet_fit(SULF(3, max_iter=500, random_state=0), views, y)
        assert (model.transduction_ == truth)[12:].mean() > 0.9 and (model.predict(views) == truth).mean() > 0.9
