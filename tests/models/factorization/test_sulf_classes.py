"""SULF as it is called: the stage without labels, the weight of the views, and classes of coefficients without labels."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sulf_reference import K, fitted, one_hot, problem, quiet_fit, same

from nnfactor import batch_fit
from nnfactor.models.classification.ridge import STRENGTHS, fit_coefficients
from nnfactor.models.factorization.sulf import SULF

FIXED = {"max_iter": 40, "tol": 0, "random_state": 0}
STAGED = {**FIXED, "start": "two_stage"}


def balanced(model, scales):
    """Factors of a fit: bases of one length over scaled views, V of the mean squared length 1."""
    length = np.sqrt(sum(np.square(U / s).sum(0) for U, s in zip(model.factors_, scales)))
    V = model.embedding_ * length
    size = np.sqrt(np.square(V).sum() / len(V))
    return (V / size, *(U * (size / length) for U in model.factors_))


class TestStages:
    """The stage without labels, and what follows it."""

    @pytest.mark.parametrize("init", ["auto", "random"])
    @pytest.mark.parametrize("scaled", [True, False])
    def test_two_stages_are_a_fit_without_labels_and_one_from_there(self, init, scaled):
        views, y, _ = problem()
        options = {**FIXED, "init": init, "scale_views": scaled}
        whole = SULF(K, **options, start="two_stage").fit(views, y)
        first = SULF(K, beta=0, view_weights="equal", **{**options, "max_iter": 200}).fit(views)
        rest = SULF(K, **{**options, "init": balanced(first, first.view_scales_)}).fit(views, y)
        same([*fitted(whole), whole.coef_], [*fitted(rest), rest.coef_], 1e-7)
        assert whole.n_iter_ == 40 and len(whole.history_["objective"]) == 41

    def test_nothing_changes_without_labels_and_with_arrays_to_start_from(self):
        views, y, start = problem()
        for given, options in ((None, {}), (y, {"beta": 0}), (y, {"init": start})):
            one, two = (SULF(K, **{**FIXED, **options}, start=s).fit(views, given) for s in ("one_stage", "two_stage"))
            same(fitted(two), fitted(one), 0)
        zero = SULF(K, max_iter=0, random_state=0).fit(views, y)
        same(fitted(zero), fitted(clone(zero).set_params(start="two_stage").fit(views, y)), 0)

    @pytest.mark.parametrize("seed", range(4))
    def test_no_stage_raises_its_objective(self, seed):
        views, y, _ = problem(seed=seed)
        seen = []
        model = SULF(K, **{**STAGED, "random_state": seed}, init="random")
        model.set_params(callback=lambda told: seen.append((told.iteration, told.objective))).fit(views, y)
        begins = [i for i, (iteration, _) in enumerate(seen) if iteration == 0]
        assert len(begins) == 2
        for stage in (seen[: begins[1]], seen[begins[1] :]):
            values = np.array([value for _, value in stage])
            assert (np.diff(values) <= 1e-9 * values[0]).all()
        history = model.history_["objective"]
        assert (np.diff(history) <= 1e-9 * history[0]).all()

    def test_a_callback_stops_either_stage(self):
        views, y, _ = problem()
        told = []
        model = SULF(K, **STAGED, callback=lambda p: told.append(p.iteration) or p.iteration >= 10).fit(views, y)
        assert model.n_iter_ == 0 and told[:2] == [0, 10] and 20 not in told and hasattr(model, "coef_")
        begun = []
        second = lambda p: begun.append(p.iteration) or (begun.count(0) == 2 and p.iteration >= 10)
        assert SULF(K, **STAGED, callback=second).fit(views, y).n_iter_ == 10

    def test_restarts_and_batches_are_fits_of_their_own(self):
        views, y, _ = problem()
        together = SULF(K, **STAGED, n_init=3, init="random").fit(views, y)
        found = together.restarts_["loss"]
        assert len(set(found)) == 3 and together.loss_ == pytest.approx(min(found))
        make = lambda **kw: SULF(K, **STAGED, **kw)
        for alone, joined in zip(
            [make().fit(views, y), make(lam=3.0).fit(views, y), make(beta=0.1).fit(views, y)],
            batch_fit([make(), make(lam=3.0), make(beta=0.1)], views, y),
        ):
            same([*fitted(joined), joined.coef_], [*fitted(alone), alone.coef_], 1e-7)
            assert joined.lam_ == alone.lam_

    def test_a_warm_start_goes_on(self):
        views, y, _ = problem()
        whole, half = (SULF(K, **{**STAGED, "max_iter": n}).fit(views, y) for n in (40, 20))
        again = {"init": (half.embedding_, *half.factors_, half.view_weights_), "coef_init": half.coef_}
        rest = SULF(K, **{**STAGED, "max_iter": 20}, **again).fit(views, y)
        same([*fitted(rest), rest.coef_], [*fitted(whole), whole.coef_])

    def test_given_coefficients_stay(self):
        views, y, _ = problem()
        W = np.random.default_rng(0).normal(size=(K, 3))
        a, b = (SULF(K, **{**STAGED, "max_iter": 1}, coef_init=c).fit(views, y) for c in (W, None))
        assert np.abs(a.coef_ - b.coef_).max() > 1e-6


class TestWeightOfViews:
    """lam="auto"."""

    def test_it_is_half_the_number_of_samples_for_scaled_views(self):
        views, y, _ = problem()
        auto = SULF(K, **FIXED).fit(views, y)
        assert auto.lam == "auto" and auto.lam_ == pytest.approx(7.0)
        same(fitted(auto), fitted(SULF(K, **FIXED, lam=7.0).fit(views, y)), 1e-9)
        assert SULF(K, **FIXED, lam=2.5).fit(views, y).lam_ == 2.5
        assert (auto.view_weights_ > 0.1).all()

    def test_it_follows_the_units_of_views_that_are_not_scaled(self):
        views, _, _ = problem()
        a, b = (SULF(K, **FIXED, scale_views=False).fit([X * c for X in views]) for c in (1.0, 2.0**20))
        assert a.lam_ == pytest.approx(np.mean([np.square(X).sum() for X in views]) / 2)
        assert b.lam_ == pytest.approx(a.lam_ * 2.0**40)
        same([b.view_weights_], [a.view_weights_], 1e-6)

    def test_constant_views_have_no_part_in_it(self):
        views, _, _ = problem()
        alone = SULF(K, **FIXED, scale_views=False).fit(views)
        more = quiet_fit(SULF(K, **FIXED, scale_views=False), [np.full((14, 2), 50.0), *views])
        assert more.lam_ == pytest.approx(alone.lam_)
        assert quiet_fit(SULF(K, **FIXED), [np.zeros((14, 3))] * 2).lam_ > 0


class TestClasses:
    """Ridge regression on coefficients without labels."""

    def test_strength_is_what_leaving_labels_out_one_by_one_finds(self):
        rng = np.random.default_rng(0)
        Y = np.eye(3)[np.arange(20) % 3]
        Z = Y @ rng.normal(size=(3, 6)) + rng.normal(size=(20, 6))

        def regress(Z, Y, strength):
            C = Z - Z.mean(0)
            W = np.linalg.solve(C.T @ C + strength * np.eye(6), C.T @ (Y - Y.mean(0)))
            return W, Y.mean(0) - Z.mean(0) @ W

        errors = []
        for strength in STRENGTHS:
            rest = [np.arange(20) != i for i in range(20)]
            fits = [regress(Z[keep], Y[keep], strength) for keep in rest]
            errors.append(sum(np.square(Z[i] @ W + b - Y[i]).sum() for i, (W, b) in enumerate(fits)))
        found = fit_coefficients(torch.from_numpy(Z), torch.from_numpy(Y), None)
        best = STRENGTHS[int(np.argmin(errors))]
        assert STRENGTHS[0] < best < STRENGTHS[-1] and found[2] == best
        for mine, expected in zip(found, regress(Z, Y, best)):
            np.testing.assert_allclose(mine, expected, atol=1e-9)

    def test_unlabelled_samples_are_classified_as_new_ones_are(self):
        views, y, _ = problem(n=40)
        for options in ({}, {"transform_method": "pinv"}, {"alpha": 0.3}, {"dtype": "float32"}):
            model = SULF(K, **FIXED, **options).fit(views, y)
            free = y < 0
            np.testing.assert_array_equal(model.predict(views)[free], model.transduction_[free])
            V = model.transform(views)
            scores = V @ model.ridge_coef_ + model.ridge_intercept_
            scores[~V.any(1)] = 0
            assert (decoded(scores)[free] == model.transduction_[free]).all()
            np.testing.assert_array_equal(model.predict([X[:5] for X in views]), model.predict(views)[:5])
            assert model.alpha_ == options.get("alpha", model.alpha_)
            assert model.ridge_coef_.shape == (K, 3) and model.ridge_intercept_.shape == (3,)
        lengths = np.sqrt(
            sum(
                pi * np.square(U / s).sum(0)
                for pi, U, s in zip(model.view_weights_, model.factors_, model.view_scales_)
            )
        )
        Z = V * lengths
        Z = Z / np.sqrt(np.square(Z).sum() / len(Z))
        known = torch.from_numpy(y >= 0)
        Zl, Y = torch.from_numpy(Z.astype(np.float64))[known], torch.from_numpy(one_hot(y))[known]
        W, b, _ = fit_coefficients(Zl, Y, model.alpha_)
        np.testing.assert_allclose(Z @ W.numpy() + b.numpy(), V @ model.ridge_coef_ + model.ridge_intercept_, atol=1e-3)

    def test_the_papers_classes(self):
        views, y, _ = problem()
        model = SULF(K, **FIXED, classifier="coef").fit(views, y)
        free = (y < 0) & (model.embedding_.max(1) > 0)
        assert (decoded(model.embedding_ @ model.coef_)[free] == model.transduction_[free]).all()
        np.testing.assert_array_equal(model.predict(views), decoded(model.transform(views) @ model.coef_))
        assert not hasattr(model, "ridge_coef_") and not hasattr(model, "alpha_")
        model.set_params(classifier="ridge")  # what was fitted decides
        model.predict(views)

    def test_a_single_label(self):
        views = problem()[0]
        model = SULF(K, **FIXED).fit(views, np.where(np.arange(14) == 5, 2, -1))
        assert set(model.transduction_[model.transform(views).any(1)]) == {2}

    def test_few_labels_of_digits(self):
        """As it is called: 82 % right; with lam = 1 and the classes of V W from labels at once: 50 %."""
        images, truth = load_digits(return_X_y=True)
        pixels = images[:600].reshape(-1, 8, 8)
        views = [
            pixels.reshape(600, 64),
            np.abs(np.fft.fft2(pixels)).reshape(600, 64),
            np.hstack([pixels.sum(1), pixels.sum(2)]),
        ]
        truth = truth[:600]
        y = np.where(np.arange(600) < 60, truth, -1)
        right = lambda model: (quiet_fit(model, views, y).transduction_ == truth)[60:].mean()
        as_called = right(SULF(30, random_state=0, max_iter=100))
        before = right(SULF(30, random_state=0, max_iter=100, lam=1.0, start="one_stage", classifier="coef"))
        assert as_called > max(0.75, before + 0.2)

    @pytest.mark.parametrize(
        "bad, match",
        [
            ({"start": "warm"}, "start='warm' is not known; use 'one_stage', 'two_stage'"),
            ({"classifier": "svm"}, "classifier='svm' is not known; use 'ridge', 'coef'"),
            ({"alpha": 0}, 'alpha must be "cv" or a finite number > 0, got 0'),
            ({"alpha": "loo"}, "alpha must be \"cv\" or a finite number > 0, got 'loo'"),
            ({"lam": "n"}, "lam must be a finite number >= 0, or \"auto\", got 'n'"),
        ],
    )
    def test_bad_parameters(self, bad, match):
        views, y, _ = problem()
        with pytest.raises(ValueError, match=match):
            SULF(K, **bad).fit(views, y)


def decoded(scores):
    return np.where((scores != 0).any(1), scores.argmax(1), -1)
