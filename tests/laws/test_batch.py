"""Estimators fitted together equal those fitted one by one, whatever the batch is made of."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from estimators import MATRIX, TENSOR, blocks, labels
from sklearn.exceptions import ConvergenceWarning

from nnfactor import (
    LNMF,
    N2S2L,
    NGE,
    NMF,
    NTD,
    NTF,
    SULF,
    ConstrainedNMF,
    GraphNMF,
    KernelNMF,
    PolynomialNMF,
    batch_fit,
)
from nnfactor.core.rules.hals import hals
from nnfactor.core.rules.m_matrix import m_matrix
from nnfactor.core.rules.multiplicative import multiplicative
from nnfactor.core.rules.projected_gradient import projected_gradient
from nnfactor.core.solve import memory_budget as room
from nnfactor.core.solve.history.result import find_best
from nnfactor.models import SemiNMF
from nnfactor.models.shared import base
from nnfactor.models.shared import fitting as together

X, Y = blocks(), labels(12)
TALL = blocks(40, 32)
CUBE = blocks(12, 24, seed=1).reshape(12, 4, 6)
OTHERS = {
    "GraphNMF": lambda **kw: GraphNMF(3, lam=5.0, **kw),
    "GraphNMF, auto": lambda **kw: GraphNMF(3, solver="auto", scale_free=True, **kw),
    "LNMF": lambda **kw: LNMF(3, **kw),
    "ConstrainedNMF": lambda **kw: ConstrainedNMF(3, **kw),
    "KernelNMF": lambda **kw: KernelNMF(3, **kw),
    "PolynomialNMF": lambda **kw: PolynomialNMF(3, **kw),
    "SemiNMF": lambda **kw: SemiNMF(3, **kw),
}
TABLE = MATRIX | OTHERS
every = pytest.mark.parametrize("key", TABLE)


def make(key, k=3, **settings):
    model = TABLE[key](**{"max_iter": 15, "tol": 0, **settings})
    return model.set_params(**{getattr(TABLE[key], "rank", "n_components"): k})


def assert_equal(together_, alone, tol=1e-9):
    """Everything that a fit sets."""
    known = lambda e: {name for name in vars(e) if name.endswith("_")}
    assert known(together_) == known(alone)
    assert together_.n_iter_ == alone.n_iter_ and together_.converged_ == alone.converged_
    assert together_.fit_info_ == alone.fit_info_
    pairs = [(together_.embedding_, alone.embedding_), (together_.loss_, alone.loss_)]
    pairs += [(together_.reconstruction_err_, alone.reconstruction_err_)]
    pairs += list(zip(together_.factors_, alone.factors_, strict=True))
    for name in ("iteration", "objective"):
        pairs.append((together_.history_[name], alone.history_[name]))
    if hasattr(alone, "restarts_"):
        assert together_.restarts_.keys() == alone.restarts_.keys()
        pairs += [(together_.restarts_[name], alone.restarts_[name]) for name in ("loss", "n_iter")]
        pairs += list(zip(together_.restarts_["factors"], alone.restarts_["factors"], strict=True))
    for a, b in ((np.asarray(a), np.asarray(b)) for a, b in pairs):
        assert a.shape == b.shape and np.isfinite(b).all()
        np.testing.assert_allclose(a, b, rtol=tol, atol=tol * max(np.abs(b).max(), 1e-300))


def runs(monkeypatch):
    """The number of problems of every run from now on."""
    seen = []
    inner = base.run

    def counted(terms, rules, factors, **how):
        first = next(iter(factors.values()))
        seen.append(len(first) if first.dim() == 3 else 1)
        return inner(terms, rules, factors, **how)

    monkeypatch.setattr(base, "run", counted)
    return seen


def padded(key):
    """Whether ranks may share a run: some rules do not keep columns of zeros."""
    return not isinstance(make(key), SemiNMF | SULF | NTD)


def check(estimators, copies, data, y=None, tol=1e-9, **how):
    fits = batch_fit(estimators, data, y, **how)
    assert all(a is b for a, b in zip(fits, estimators, strict=True))
    tols = tol if isinstance(tol, list) else len(fits) * [tol]
    for fit, alone, tol in zip(fits, copies, tols, strict=True):
        assert_equal(fit, alone.fit(data, y), tol)


class TestBatchesEqualSeparateFits:
    @every
    @pytest.mark.parametrize("size", [1, 2, 7])
    def test_seeds(self, key, size, monkeypatch):
        seen = runs(monkeypatch)
        several = lambda: [make(key, init="random", random_state=s) for s in range(size)]
        check(several(), several(), X, Y)
        assert seen == [size, *size * [1]]

    def test_sixty_four(self, monkeypatch):
        seen = runs(monkeypatch)
        several = lambda: [NMF(4, random_state=s, init="random", max_iter=100) for s in range(64)]
        check(several(), several(), X)
        assert seen[0] == 64 and len({e.n_iter_ for e in batch_fit(several(), X)}) > 1  # different stopping times

    @every
    def test_different_stopping_times(self, key):
        several = lambda: [
            make(key, init="random", random_state=s, tol=1e-2, max_iter=1000, n_init=n) for s, n in ((0, 1), (1, 3))
        ]
        check(several(), several(), X, Y, tol=1e-7)

    @every
    def test_ranks(self, key, monkeypatch):
        seen = runs(monkeypatch)
        several = lambda: [make(key, k, init="random", random_state=k) for k in (3, 5, 3, 4)]
        check(several(), several(), TALL, labels(40))
        assert seen[: -len(several())] == ([4] if padded(key) else [2, 1, 1])

    @pytest.mark.parametrize("key", TENSOR)
    def test_tensors_of_different_ranks(self, key):
        several = lambda: [make(key, k, random_state=k, n_init=2) for k in (5, 3)]
        check(several(), several(), CUBE, Y)

    def test_small_ranks_have_their_own_discriminative_columns(self, monkeypatch):
        seen = runs(monkeypatch)
        several = lambda: [make("NGE", k, random_state=0) for k in (2, 5, 3)]
        check(several(), several(), TALL, labels(40))
        assert sorted(seen[:2]) == [1, 2]  # with two columns two are discriminative, with more three

    def test_ranks_with_other_efforts_are_batches_of_their_own(self, monkeypatch):
        seen = runs(monkeypatch)
        several = lambda: [make("NGE", k, random_state=0) for k in (3, 5, 4)]
        check(several(), several(), X, Y)
        assert seen[:2] == [2, 1]  # three sweeps over U with three or four columns, two with five

    @pytest.mark.parametrize(
        "kind, values",
        [
            (NGE, {"alpha": [0.0, 1.0, 10.0]}),
            (N2S2L, {"alpha": [1.0, 10.0], "beta": [0.0, 5.0]}),
            (GraphNMF, {"lam": [0, 1.5]}),
        ],
    )
    def test_hyper_parameters(self, kind, values, monkeypatch):
        seen = runs(monkeypatch)
        grid = [
            dict(zip(values, v, strict=True))
            for v in np.stack(np.meshgrid(*values.values()), -1).reshape(-1, len(values))
        ]
        several = lambda: [kind(k, max_iter=15, tol=0, random_state=1, **g) for g in grid for k in (3, 4)]
        check(several(), several(), X, Y)
        assert seen[0] == 2 * len(grid)
        assert len({e.loss_ for e in batch_fit(several(), X, Y)}) == 2 * len(grid)

    def test_inner_effort_follows_the_penalty(self, monkeypatch):
        seen = runs(monkeypatch)
        alphas = (1.0, 10.0, 100.0, 1e6, 1e8)
        several = lambda: [NGE(3, alpha=a, max_iter=8, tol=0, random_state=1) for a in alphas]
        tols = [max(1e-9, 1e4 * np.finfo(float).eps * a) for a in alphas]  # a penalty amplifies rounding by its weight
        check(several(), several(), X, Y, tol=tols)
        assert seen[:3] == [2, 1, 2]  # 4 steps, more, and the most that are taken
        steps = [
            fitted._graph_solve(fitted._graph_terms(("V", "U1"), vars(fitted))).keywords["cg"]
            for fitted in batch_fit(several(), X, Y)
        ]
        assert steps == sorted(steps) and steps[0] == 4 < steps[2] < steps[3] == 24

    def test_what_cannot_share_a_batch_does_not(self, monkeypatch):
        seen = runs(monkeypatch)
        settings = [{}, {"loss": 1}, {"max_iter": 14}, {"solver": "hals"}, {"tol": 1e9}]
        several = lambda: [make("NMF", random_state=0, **s) for s in settings]
        check(several(), several(), X)
        assert seen[:5] == 5 * [1]

    def test_arrays_scales_storage_and_precision(self):
        starts = [
            (np.random.default_rng(s).random((12, 3)), np.random.default_rng(9 + s).random((8, 3))) for s in (0, 1)
        ]
        for data in (X, sp.csr_array(X * (X > 0.5)), X * 1e100, torch.from_numpy(X)):
            several = lambda: [make("NMF", init=s, random_state=0, n_init=2) for s in starts]
            check(several(), several(), data)
        several = lambda: [make(key, random_state=s, init="random") for s in (0, 1)]
        for key in ("NMF", "NGE", "NMF, KL"):
            fits = batch_fit(several(), X.astype(np.float32), Y)
            for fit, alone in zip(fits, several(), strict=True):
                assert fit.embedding_.dtype == np.float32
                np.testing.assert_allclose(fit.loss_, alone.fit(X.astype(np.float32), Y).loss_, rtol=1e-4)

    def test_one_generator_is_drawn_from_in_order(self):
        def several():
            shared = np.random.RandomState(3)
            return [NMF(k, max_iter=10, tol=0, random_state=shared, loss=loss) for k, loss in ((3, 2), (2, 1), (4, 2))]

        check(several(), several(), X)

    def test_multi_view_models(self):
        several = lambda: [SULF(2, max_iter=20, tol=0, random_state=s) for s in (0, 1)]
        check(several(), several(), [X, X[:, ::2]], Y)

    @every
    def test_no_array_is_shared(self, key):
        """Whoever writes to what one estimator learned does not change another."""
        one, other = batch_fit([make(key, init="random", random_state=s) for s in (0, 1)], X, Y)
        arrays = lambda e: [v for v in vars(e).values() if isinstance(v, np.ndarray)]
        assert not any(np.shares_memory(a, b) for a in arrays(one) for b in arrays(other) if a.size and b.size)

    def test_views_are_not_shared(self):
        views = [X, X[:, ::2]]
        one, other = batch_fit([SULF(2, max_iter=20, tol=0, random_state=0, lam=lam) for lam in (20, 40)], views, Y)
        V = other.transform(views)
        one.view_scales_[0] = 7.0
        one.n_features_in_.append(9)
        one.set_params(dtype="float32").transform(views)
        np.testing.assert_array_equal(other.transform(views), V)
        assert other.n_features_in_ == [8, 4] and other._views[0].dtype == "auto"

    def test_a_printed_rule_that_diverges_says_what_helps(self):
        several = [
            SULF(3, beta=beta, v_rule="printed", random_state=0, n_init=2, max_iter=500, tol=0)
            for beta in (0.1, 1e8, 1e300)
        ]
        with pytest.raises(FloatingPointError, match=r"estimators\[\d\].*v_rule='printed'.*use v_rule='corrected'"):
            batch_fit(several, [X, X[:, :4] * 100], Y)


class TestPadding:
    @pytest.mark.parametrize("rule", [hals, m_matrix, multiplicative, projected_gradient])
    def test_zero_columns_stay_exactly_zero(self, rule):
        from nnfactor.core import Fit, Laplacian, step

        A = np.ones((12, 12))
        terms = [Fit(X, ("V", "U1")), Laplacian(A, "V", norms_of=("U1",), weight=100.0)]
        V, U = (torch.from_numpy(np.random.default_rng(d).random((d, 5))) for d in (12, 8))
        V[:, 3:] = U[:, 3:] = 0
        state = {"factors": {"V": V, "U1": U}}
        for _ in range(20):
            state = step(terms, {"U1": multiplicative if rule is m_matrix else rule, "V": rule})(state)
        for F in state["factors"].values():
            assert not F[:, 3:].any() and F[:, :3].any(0).all()

    def test_ranks_are_padded_only_where_it_is_cheap(self, monkeypatch):
        seen = runs(monkeypatch)
        several = lambda n: [NMF(k, init="random", n_init=n, max_iter=1, tol=0, random_state=0) for k in (6, 2, 5)]
        monkeypatch.setitem(together.PADDING, "cpu", 96 * 2)
        batch_fit(several(1), X)
        assert seen == [2, 1]  # 5 to 6 wastes one column, 2 to 6 four
        seen.clear()
        batch_fit(several(3), X)
        assert seen == [3, 3, 3]


class TestMemory:
    @pytest.mark.parametrize("problems_at_once", [1, 2, 5])
    def test_splitting_changes_nothing(self, problems_at_once, monkeypatch):
        from nnfactor.core import as_data

        seen = runs(monkeypatch)
        several = lambda: [make("NGE", k, random_state=s, n_init=3) for s, k in enumerate((3, 4, 3))]
        limit = problems_at_once * room.bytes_per_problem(as_data(X), 4)
        check(several(), several(), X, Y, max_bytes=limit)
        split = seen[:-3]
        assert sum(split) == 9 and max(split) <= problems_at_once and max(split) - min(split) <= 1

    def test_free_memory_splits(self, monkeypatch):
        seen = runs(monkeypatch)
        monkeypatch.setattr(room, "free_bytes", lambda device: 10.0)
        batch_fit([make("NMF", random_state=s) for s in range(3)], X)
        assert seen == [1, 1, 1]  # never refused: the estimate may be too high

    def test_what_is_free(self):
        assert 1e6 < room.free_bytes(torch.device("cpu")) < 1e15

    def test_messages(self, monkeypatch):
        with pytest.raises(ValueError, match=r"max_bytes=10 is too little for one problem; it needs about \d+ bytes"):
            batch_fit([make("NMF")], X, max_bytes=10)

        def full(*args, **how):
            raise torch.OutOfMemoryError("no room")

        monkeypatch.setattr(base, "run", full)
        with pytest.raises(torch.OutOfMemoryError, match=r"no room\n4 problems.*max_bytes=\d+\) makes smaller batches"):
            batch_fit([make("NMF", random_state=s) for s in range(4)], X)


class TestErrors:
    def test_lists(self):
        with pytest.raises(ValueError, match="estimators is empty"):
            batch_fit([], X)
        with pytest.raises(ValueError, match=r"estimators\[1\] is of class NTF, estimators\[0\] of NMF"):
            batch_fit([NMF(2), NTF(2)], X)
        with pytest.raises(ValueError, match=r"estimators\[0\] is 3"):
            batch_fit([3], X)
        same = NMF(2)
        with pytest.raises(ValueError, match="same object twice"):
            batch_fit([same, same], X)
        for wrong in (0, -1, 2.5, True):
            with pytest.raises(ValueError, match="max_bytes"):
                batch_fit([NMF(2)], X, max_bytes=wrong)

    @pytest.mark.parametrize(
        "bad, message",
        [
            (lambda: NGE(0), r"estimators\[2\]: n_components"),
            (lambda: NGE(3, alpha=-1.0), r"estimators\[2\]: alpha"),
            (lambda: NGE(3, n_discriminative=7), r"estimators\[2\]: n_discriminative"),
            (lambda: NGE(3, init=(np.ones((12, 2)), np.ones((8, 3)))), r"estimators\[2\]: init: V has shape"),
            (lambda: NGE(9, init="nndsvda"), r"estimators\[2\]: init='nndsvda'"),
        ],
    )
    def test_one_bad_estimator_leaves_all_as_they_were(self, bad, message):
        several = [make("NGE", random_state=0).fit(X, Y), make("NGE", 4), bad()]
        before = [dict(vars(e)) for e in several]
        with pytest.raises(ValueError, match=message):
            batch_fit(several, X, Y)
        assert [vars(e) for e in several] == before

    def test_bad_data_leave_all_as_they_were(self):
        several = [make("NMF", random_state=0).fit(X), make("NMF", 4)]
        before = [dict(vars(e)) for e in several]
        with pytest.raises(ValueError, match="X"):
            batch_fit(several, -X)
        assert [vars(e) for e in several] == before

    def test_one_diverging_estimator(self):
        huge = (np.full((12, 3), 1e300), np.full((8, 3), 1e300))
        several = [make("NMF", random_state=0), make("NMF", init=huge)]
        with pytest.raises(FloatingPointError, match=r"estimators\[1\]: NMF"), np.errstate(over="ignore"):
            batch_fit(several, X)
        assert not any(name.endswith("_") for e in several for name in vars(e))

    def test_one_warning_with_positions(self):
        iterations = [20, 5000, 20]
        several = [make("NMF", random_state=0, init="random", max_iter=m, tol=1e-4) for m in iterations]
        several[0].tol = several[2].tol = 1e-12
        with pytest.warns(ConvergenceWarning) as caught:
            batch_fit(several, X)
        assert len(caught) == 1 and caught[0].filename == __file__
        assert "2 of 3 estimators (positions 0, 2)" in str(caught[0].message)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            batch_fit([make("NMF", random_state=0)], X)


class TestRestarts:
    @pytest.mark.parametrize("key", ["NMF", "NTF", "NGE", "N2S2L"])
    def test_the_sample_factor_on_request(self, key):
        plain = make(key, n_init=3, random_state=0).fit(X, Y)
        assert set(plain.restarts_) == {"loss", "n_iter", "factors"}
        model = make(key, n_init=3, random_state=0, keep_embeddings=True).fit(X, Y)
        embeddings, best = model.restarts_["embeddings"], find_best(model.restarts_["loss"], torch.float64)
        assert embeddings.shape == (3, 12, 3)
        np.testing.assert_allclose(embeddings[best], model.embedding_, rtol=1e-12)
        np.testing.assert_allclose(model.restarts_["factors"][0][best], model.factors_[0], rtol=1e-12)
        assert not np.allclose(embeddings[0], embeddings[1])

    @every
    def test_every_factorization_has_them(self, key):
        model = make(key, n_init=2, random_state=0, max_iter=10).fit(X, Y)
        best = find_best(model.restarts_["loss"], torch.float64)
        assert model.restarts_["loss"].shape == model.restarts_["n_iter"].shape == (2,)
        for stack, F in zip(model.restarts_["factors"], model.factors_, strict=True):
            np.testing.assert_allclose(stack[best], F, rtol=1e-12)

    def test_callbacks_hear_of_their_own_estimator(self):
        told = {0: [], 1: []}
        several = lambda: [
            make("NMF", random_state=s, max_iter=20, callback=lambda p, s=s: told[s].append(p.objective))
            for s in (0, 1)
        ]
        batch_fit(several(), X)
        heard = {s: list(v) for s, v in told.items()}
        told[0].clear(), told[1].clear()
        for e in several():
            e.fit(X)
        assert heard == told and len(heard[0]) == 3
