"""What SULF takes and refuses: lists of views, kinds and dtypes, parameters, pickles."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.optimize import nnls
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sulf_reference import K, fitted, problem, quiet_fit, same

from nnfactor import N2S2L, NGE, NMF, GraphNMF, batch_fit
from nnfactor.models.factorization.sulf import SULF

pytestmark = pytest.mark.filterwarnings("ignore:SULF learned to use view")  # the default lam does on most of these


class TestViews:
    """What counts as views, and that they are treated alike."""

    def test_one_view_is_plain_nmf(self):
        (X, *_), y, (V, U, *_) = problem()
        for scaled in (True, False):
            plain = NMF(K, solver="multiplicative", init=(V, U), max_iter=50, tol=0, normalize=None).fit(X)
            for given_X in (X, [X], X.tolist()):
                model = SULF(K, beta=0, scale_views=scaled, init=(V, U), max_iter=50, tol=0).fit(given_X, y)
                same(
                    [model.embedding_, *model.factors_, model.components_],
                    [plain.embedding_, *plain.factors_, plain.components_],
                )
                same([model.transform(given_X)], [plain.transform(X)], 1e-7)
            np.testing.assert_allclose(model.reconstruction_err_, plain.reconstruction_err_)

    @pytest.mark.parametrize("start", ["auto", "random"])
    def test_order_of_views_is_irrelevant(self, start):
        views, y, _ = problem()
        order = [2, 0, 1]
        a = quiet_fit(SULF(K, init=start, random_state=0, max_iter=60, tol=0), views, y)
        b = quiet_fit(SULF(K, init=start, random_state=0, max_iter=60, tol=0), [views[p] for p in order], y)
        same([b.embedding_, b.coef_, b.view_weights_], [a.embedding_, a.coef_, a.view_weights_[order]], 1e-6)
        same(b.factors_, [a.factors_[p] for p in order], 1e-6)

    def test_scales_differ_by_a_million(self):
        rng = np.random.default_rng(11)
        Z = rng.gamma(1.5, 1.0, size=(10, 2))
        views = [Z @ rng.gamma(1.0, 1.0, size=(2, d)) * s for d, s in ((4, 1e-3), (6, 1.0), (3, 1e3))]
        model = quiet_fit(SULF(2, max_iter=2000, random_state=0), views)
        errors = [np.linalg.norm(X - model.embedding_ @ U.T) / np.linalg.norm(X) for X, U in zip(views, model.factors_)]
        assert max(errors) <= 0.05
        np.testing.assert_allclose(model.view_errors_, errors, rtol=1e-6)
        back = model.inverse_transform(model.transform(views))
        assert max(np.linalg.norm(X - B) / np.linalg.norm(X) for X, B in zip(views, back)) <= 0.05

    @pytest.mark.parametrize("scale", [1e-150, 1e-30, 1e30, 1e150])
    def test_units_do_not_matter(self, scale):
        views, y, _ = problem()
        a = SULF(K, random_state=0, max_iter=40, tol=0).fit(views, y)
        b = SULF(K, random_state=0, max_iter=40, tol=0).fit([views[0] * scale, *views[1:]], y)
        same(
            [b.embedding_, b.coef_, b.view_weights_, b.view_errors_],
            [a.embedding_, a.coef_, a.view_weights_, a.view_errors_],
            1e-8,
        )
        same([b.transform([views[0] * scale, *views[1:]])], [a.transform(views)], 1e-6)
        quiet_fit(SULF(K, random_state=0, max_iter=20, tol=0, scale_views=False), [X * scale for X in views], y)

    @pytest.mark.parametrize("scale", [1e-300, 1e-200, 1e200, 1e300])
    def test_the_square_of_the_unit_may_leave_the_range(self, scale):
        views, y, _ = problem()
        model = quiet_fit(SULF(K, random_state=0, max_iter=20, scale_views=False), [X * scale for X in views], y)
        assert all(np.isfinite(F).all() for F in (model.embedding_, *model.factors_, model.coef_))
        assert model.loss_ == (0 if scale < 1 else np.inf) and np.isfinite(model.view_errors_).all()

    def test_counts(self):
        views, y, _ = problem()
        bad = [views[0], views[1][:9], views[2]]
        with pytest.raises(ValueError, match=r"view 1 has 9 samples.*view 0 has 14"):
            SULF(K, device="cuda:99").fit(bad, y)  # seen before anything looks for a device
        with pytest.raises(ValueError, match=r"view 1 has 9 samples.*transposed"):
            SULF(K).fit([views[0], views[1].T, views[2]], y)
        with pytest.raises(ValueError, match=r"view 0 has 3 samples.*view 1 has 14"):
            SULF(K).fit([views[0][:3], *views[1:]], y)
        with pytest.raises(ValueError, match=r"view 1 has shape \(14,\)"):
            SULF(K).fit([views[0], y], y)
        with pytest.raises(ValueError, match="empty list"):
            SULF(K).fit([], y)
        with pytest.raises(ValueError, match=r"view 2: .*NaN"):
            SULF(K).fit([*views[:2], np.full((14, 2), np.nan)], y)
        model = SULF(K, max_iter=5, tol=0).fit(views, y)
        assert model.n_features_in_ == [6, 9, 5]
        with pytest.raises(ValueError, match="X has 2 views, SULF was fitted with 3"):
            model.transform(views[:2])
        with pytest.raises(ValueError, match=r"view 1: X has 6 features"):
            model.transform([views[0], views[0], views[2]])
        with pytest.raises(ValueError, match="3 views are not one tensor"):
            model.to_cp()
        with pytest.raises(NotFittedError):
            SULF(K).transform(views)

    def test_sparse_equals_dense(self):
        views, y, start = problem()
        views = [X * (X > 0.3) for X in views]
        dense = SULF(K, init=start, max_iter=40, tol=0).fit(views, y)
        mixed = SULF(K, init=start, max_iter=40, tol=0).fit(
            [sp.csr_array(views[0]), sp.csc_matrix(views[1]), views[2]], y
        )
        same([*fitted(mixed), mixed.coef_], [*fitted(dense), dense.coef_])
        np.testing.assert_allclose([mixed.loss_, mixed.reconstruction_err_], [dense.loss_, dense.reconstruction_err_])
        same([mixed.transform([sp.csr_array(X) for X in views])], [dense.transform(views)], 1e-7)

    def test_dtypes_and_kinds(self):
        views, y, start = problem()
        small = [X.astype(np.float32) for X in views]
        model = SULF(K, init=start, max_iter=30, tol=0).fit(small, y)
        same(fitted(model), fitted(SULF(K, init=start, max_iter=30, tol=0).fit(views, y)), 1e-4)
        assert {F.dtype for F in (*fitted(model), model.coef_, model.transform(small))} == {np.dtype("float32")}
        mixed = SULF(K, init=start, max_iter=3, tol=0).fit([small[0], views[1], (views[2] * 100).astype(int)], y)
        assert mixed.embedding_.dtype == np.float64
        tensors = [torch.from_numpy(X) for X in views]
        as_torch = SULF(K, init=start, max_iter=30, tol=0).fit(tensors, y)
        assert all(isinstance(F, torch.Tensor) for F in (as_torch.embedding_, *as_torch.factors_, as_torch.coef_))
        assert isinstance(as_torch.transform(tensors), torch.Tensor)
        np.testing.assert_array_equal(
            as_torch.predict(tensors), SULF(K, init=start, max_iter=30, tol=0).fit(views, y).predict(views)
        )

    def test_zero_views(self):
        views, y, _ = problem()
        with pytest.warns(ConvergenceWarning, match="gives view 0 weight 0, since all samples are equal there"):
            model = SULF(K, random_state=0, max_iter=20, tol=0).fit([np.zeros((14, 3)), *views], y)
        assert model.factors_[0].max() < 1e-300 and np.isfinite(model.loss_)
        nothing = SULF(K, random_state=0, max_iter=20, tol=0).fit([np.zeros((14, 3))] * 2, y)
        assert nothing.reconstruction_err_ == 0 and (nothing.transduction_[y < 0] == -1).all()

    @pytest.mark.parametrize("init", ["auto", "random"])
    @pytest.mark.parametrize("value", [0.0, 0.1, 3e5])
    @pytest.mark.parametrize("kind", [np.asarray, sp.csr_array, torch.from_numpy])
    def test_a_view_of_equal_samples_changes_nothing(self, init, value, kind):
        rng, truth = np.random.default_rng(1), np.arange(60) % 2
        X = np.abs(rng.normal(size=(60, 8))) + 2 * truth[:, None] * (np.arange(8) < 4)
        views, y = [X[:, :5], X[:, 3:]], np.where(np.arange(60) % 3, truth, -1)
        alone = SULF(3, lam=60.0, random_state=0, init=init, max_iter=50, tol=0).fit(views, y)
        for at in range(3):
            more = [*views[:at], kind(np.full((60, 3), value)), *views[at:]]
            with pytest.warns(ConvergenceWarning, match=f"gives view {at} weight 0"):
                model = clone(alone).fit(more, y)
            assert model.view_weights_[at] == 0
            same([np.delete(model.view_weights_, at)], [alone.view_weights_])
            same([model.embedding_, model.transform(more)], [alone.embedding_, alone.transform(views)])

    def test_warnings_of_weights(self):
        views, y, _ = problem()
        with pytest.warns(ConvergenceWarning, match=r"view [012] alone.*views \d, \d had no part.*Raise lam=1 "):
            SULF(K, lam=1.0, random_state=0, max_iter=20, tol=0).fit(views, y)
        with pytest.warns(ConvergenceWarning, match="has view_weights of 0 for every view in which samples differ"):
            SULF(K, random_state=0, max_iter=20, tol=0, view_weights=[0, 1]).fit([views[0], np.ones((14, 2))], y)
        SULF(K, random_state=0, max_iter=20, tol=0, view_weights=[1, 0, 0]).fit(views, y)  # as it was asked for

    def test_transform_solves_weighted_nnls(self):
        views, y, start = problem()
        model = SULF(K, init=start, max_iter=30, tol=0).fit(views, y)
        weights = np.sqrt(model.view_weights_) / model.view_scales_
        A = np.vstack([w * U for w, U in zip(weights, model.factors_)])
        new = [X[::-1] + 0.1 for X in views]
        stacked = np.hstack([w * X for w, X in zip(weights, new)])
        same([model.transform(new)], [np.stack([nnls(A, x)[0] for x in stacked])], 1e-7)
        free = clone(model).set_params(transform_method="pinv").fit(views, y).transform(new)
        same([free], [stacked @ np.linalg.pinv(A).T], 1e-6)
        same([SULF(K, init=start, max_iter=30, tol=0).fit_transform(views, y)], [model.transform(views)], 1e-12)


class TestSurface:
    """Parameters, pickles, clones, determinism."""

    @pytest.mark.parametrize(
        "bad, match",
        [
            ({"beta": -1}, "beta must be a finite number >= 0"),
            ({"gamma": np.inf}, "gamma must be a finite number >= 0"),
            ({"lam": "1"}, "lam must be a finite number >= 0"),
            ({"eps": 0}, "eps must be a finite number > 0"),
            ({"exponent": 1.5}, r"exponent must be a number in \(0, 1\]"),
            ({"v_rule": "paper"}, "'corrected', 'printed'"),
            ({"signed": True}, "'refuse', 'semi'"),
            ({"view_weights": "best"}, "'learned', 'equal' or an array"),
            ({"view_weights": [1, 2]}, "3 numbers >= 0"),
            ({"view_weights": [0, 0, 0]}, "not all 0"),
            ({"init": "svd"}, "'auto', 'random', 'nndsvda'"),
            ({"init": (np.ones((14, K)),)}, r"init for 3 views: got 1 arrays; init is \(V \(14, 4\), U1 \(6, 4\)"),
            (
                {"init": (np.ones((14, K)), *[np.ones((6, K))] * 3)},
                r"init: U2 has shape \(6, 4\), but must be \(9, 4\)",
            ),
            ({"coef_init": np.ones((2, 2))}, r"coef_init has shape \(2, 2\), but must be \(4, 3\)"),
        ],
    )
    def test_bad_parameters(self, bad, match):
        views, y, _ = problem()
        model = SULF(K, max_iter=3, tol=0).set_params(**bad)
        with pytest.raises(ValueError, match=match):
            model.fit(views, y)
        assert not hasattr(model, "embedding_")

    @pytest.mark.parametrize(
        "model, weight",
        [
            (SULF(K), "beta"),
            (SULF(K), "gamma"),
            (SULF(K), "lam"),
            (NGE(K), "alpha"),
            (N2S2L(K), "beta"),
            (GraphNMF(K), "lam"),
        ],
    )
    def test_weights_beyond_float32(self, model, weight):
        X, y = problem()[0][1], np.arange(14) % 3
        y = y if isinstance(model, SULF | NGE | N2S2L) else None
        model = clone(model).set_params(**{weight: 1e39}, random_state=0, max_iter=3, tol=0)
        with pytest.raises(ValueError, match=rf"{weight}=1e\+39 is beyond the range of float32; lower it"):
            model.fit(X.astype(np.float32), y)
        quiet_fit(model, X, y)
        if isinstance(model, NGE | SULF):
            with pytest.raises(ValueError, match=rf"estimators\[0\]: {weight}=1e\+39 is beyond"):
                batch_fit([model, clone(model)], X.astype(np.float32), y)

    def test_weights_beyond_float32_in_the_unit_of_tiny_views(self):
        views, y, _ = problem()
        tiny = [(X * 1e-30).astype(np.float32) for X in views]
        with pytest.raises(ValueError, match=r"lam=1 is .*e\+\d\d times the squared size of the views, .* float32"):
            SULF(K, lam=1.0, scale_views=False, random_state=0).fit(tiny, y)
        quiet_fit(SULF(K, random_state=0), tiny, y)
        quiet_fit(SULF(K, random_state=0, scale_views=False, dtype="float64"), tiny, y)

    def test_pickle_clone_and_determinism(self):
        views, y, _ = problem()
        state, mersenne = torch.random.get_rng_state(), lambda: np.random.get_state()[1].copy()
        before = mersenne()
        model = SULF(K, random_state=3, n_init=2, max_iter=20, tol=0).fit(views, y)
        assert torch.equal(state, torch.random.get_rng_state()) and (before == mersenne()).all()
        again = clone(model).fit(views, y)
        same(fitted(again), fitted(model), 0)
        back = pickle.loads(pickle.dumps(model))
        np.testing.assert_array_equal(back.predict(views), model.predict(views))
        assert list(model.get_feature_names_out()) == [f"sulf{j}" for j in range(K)]
        bare = model.fit(views[0], y)  # a second fit shows no trace of the first
        assert bare.n_features_in_ == 6 and len(bare.factors_) == 1 and bare.components_.shape == (K, 6)

    def test_extreme_shapes(self):
        for n, widths, k in ((1, (1, 1), 1), (2, (3,), 5), (5, (1, 2), 7)):
            views = [np.random.default_rng(0).random((n, m)) + 0.1 for m in widths]
            y = np.arange(n)
            model = quiet_fit(SULF(k, random_state=0), views, y)
            assert np.isfinite(model.loss_) and model.transform(views).shape == (n, k)
