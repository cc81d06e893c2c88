"""What `core.run` and `objective` refuse, warn of, show and report: the surface of the core."""

import gc
import warnings
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from nnfactor import NMF, SemiNMF, metrics
from nnfactor.core import (
    L1,
    L2,
    BetaFit,
    Fit,
    Laplacian,
    Term,
    Weight,
    block_of,
    bmme,
    compose,
    hals,
    her,
    m_matrix,
    multiplicative,
    objective,
    projected_gradient,
    run,
    step,
)
from nnfactor.core.rules.closed_form import unconstrained
from nnfactor.core.terms.multiview import Views

G = torch.Generator().manual_seed(0)
draw = lambda *shape: torch.rand(*shape, generator=G, dtype=torch.float64)
X = draw(20, 12)
TERMS, RULES = [Fit(X, ("V", "U1"))], {"U1": hals, "V": hals}
START = {"V": draw(20, 3), "U1": draw(12, 3)}
RING = np.roll(np.eye(20), 1, axis=1) + np.roll(np.eye(20), -1, axis=1)
change = lambda **other: {**START, **other}

REFUSED = {  # terms, rules, factors, arguments; the kind of error and what it says
    "a term on no factor": ([*TERMS, L1("W")], RULES, START, {}, ValueError, "L1 depends on 'W', which is not in fac"),
    "a factor forgotten": (TERMS, RULES, {"V": START["V"]}, {}, ValueError, "Fit depends on 'U1', which .* 'V'"),
    "a weight forgotten": ([*TERMS, L2("V", Weight("a"))], RULES, START, {}, ValueError, "L2 depends on 'a'"),
    "numpy": (TERMS, RULES, change(V=START["V"].numpy()), {}, TypeError, r"factors\['V'\] is a ndarray.*as_tensor"),
    "a number": (TERMS, RULES, change(a=3.0), {}, TypeError, r"factors\['a'\] is a float; it must be a tensor"),
    "no dict": (TERMS, RULES, list(START.values()), {}, TypeError, "factors must be a dict of tensors by name"),
    "other precision": (
        TERMS, RULES, {n: F.float() for n, F in START.items()}, {}, ValueError, "'V'. is float32 .* data of Fit are float64"
    ),
    "mixed precision": (TERMS, RULES, change(V=START["V"].float()), {}, ValueError, "precision: V float32, U1 float64"),
    "half precision": (TERMS, RULES, change(V=START["V"].half()), {}, ValueError, "is float16 .*float32 or float64"),
    "integers": (TERMS, RULES, change(V=START["V"].long()), {}, ValueError, "is int64 .*float32 or float64"),
    "a sparse factor": (TERMS, RULES, change(V=START["V"].to_sparse()), {}, ValueError, ", sparse; a factor is a dense"),
    "a row too few": (TERMS, RULES, change(V=START["V"][1:]), {}, ValueError, r"shape \(19, 3\).* needs 20 rows in mode 0"),
    "a column too few": (TERMS, RULES, change(U1=START["U1"][:, 1:]), {}, ValueError, "and 3 columns as in 'V'"),
    "a vector": (TERMS, RULES, change(V=START["V"][:, 0]), {}, ValueError, r"\(rows, k\), or \(B, rows, k\)"),
    "two batches": (TERMS, RULES, change(V=START["V"][None]), {}, ValueError, r"with the same B; got V \(1, 20, 3\)"),
    "weights of a batch": ([*TERMS, L2("V", torch.ones(4))], RULES, START, {}, ValueError, r"weights are numbers, \(\) or"),
    "the nodes of a graph": ([*TERMS, Laplacian(np.ones((5, 5)), "V")], RULES, START, {}, ValueError, "graph has 5 nodes"),
    "columns of a graph": (
        [*TERMS, Laplacian(RING, "V", columns=[1, 0])], RULES, START, {}, ValueError, r"has 3 columns.*weights for 2"
    ),
    "a rule by name": (TERMS, {"U1": "hals"}, START, {}, TypeError, r"rules\['U1'\] is 'hals'.*use nnfactor.core.hals"),
    "an unknown rule": (TERMS, {"U1": "cd"}, START, {}, TypeError, "one of hals, m_matrix, multiplicative, projected"),
    "a rule for nothing": (TERMS, {**RULES, "W": hals}, START, {}, ValueError, "rules has 'W', which is not in factors"),
    "a rule without term": (TERMS, {**RULES, "W": hals}, change(W=X), {}, ValueError, "'W', on which no term depends"),
    "no rules": (TERMS, {}, START, {}, ValueError, "rules is empty: no factor would be improved"),
    "one rule": (TERMS, hals, START, {}, TypeError, "rules must be a dict of rules by name"),
    "a method by name": (TERMS, RULES, START, {"method": "her"}, TypeError, "method='her' must be a function"),
    "no terms": ([], RULES, START, {}, ValueError, "terms is empty"),
    "one term": (TERMS[0], RULES, START, {}, TypeError, r"must be a list of terms, got Fit; use \[term\]"),
    "data as a term": ([X], RULES, START, {}, TypeError, r"terms\[0\] is a Tensor; .* subclass of nnfactor.core.Term"),
    "negative": (TERMS, RULES, change(V=-START["V"]), {}, ValueError, r"factors\['V'\] has entries down to -0.9.*use .abs"),
    "every": (TERMS, RULES, START, {"every": 0}, ValueError, "every must be a whole number >= 1, got 0"),
    "every < 0": (TERMS, RULES, START, {"every": -1}, ValueError, "every must be a whole number >= 1, got -1"),
    "tol": (TERMS, RULES, START, {"tol": -1.0}, ValueError, "tol must be a finite number >= 0"),
    "tol is NaN": (TERMS, RULES, START, {"tol": float("nan")}, ValueError, "tol must be a finite number >= 0"),
    "max_iter": (TERMS, RULES, START, {"max_iter": 2.5}, ValueError, "max_iter must be a whole number >= 0, got 2.5"),
    "max_seconds": (TERMS, RULES, START, {"max_seconds": -1}, ValueError, "max_seconds must be a finite number >= 0"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_together_is_refused_by_name(case):
    terms, rules, factors, arguments, kind, says = REFUSED[case]
    with pytest.raises(kind, match=says):
        run(terms, rules, factors, **arguments)


@pytest.mark.parametrize("case", ["a term on no factor", "numpy", "other precision", "a row too few", "data as a term"])
def test_so_do_objective_and_block(case):
    terms, _, factors, _, kind, says = REFUSED[case]
    with pytest.raises(kind, match=says):
        objective(terms, factors)
    with pytest.raises(kind, match=says):
        block_of(terms, factors, "V")


def test_a_block_that_no_term_has():
    with pytest.raises(ValueError, match="name='W': no term depends on it"):
        block_of(TERMS, START, "W")


def test_data_have_no_batch_dimension():
    with pytest.raises(ValueError, match=r"data of shape .5, 20, 12., got .*problems of a batch share their data"):
        Fit(X.expand(5, 20, 12), ("V", "U1"))


@pytest.mark.parametrize("rule", [multiplicative, hals, m_matrix, projected_gradient, partial(hals, sweeps=2)])
def test_rules_of_nonnegative_factors_need_a_nonnegative_start(rule):
    for wrapped in (rule, compose(rule, hals)):
        with pytest.raises(ValueError, match="its rule needs a start >= 0"):
            run(TERMS, {"V": wrapped}, change(V=-START["V"]))
    run(TERMS, {"V": rule}, change(U1=START["U1"]), max_iter=2, tol=0)


def test_rules_of_any_sign_take_any_start():
    result = run(TERMS, {"V": unconstrained}, change(V=-START["V"]), max_iter=2, tol=0)
    assert result.objective[0] < objective(TERMS, START)


class TestOneFreeFactor:
    """Coefficients on known bases by `run`: what `nnls` solves."""

    @pytest.mark.parametrize("batch", [(), (2,)])
    @pytest.mark.parametrize("order", [2, 3])
    @pytest.mark.parametrize(
        ("method", "rule"),
        [(step, hals), (her, hals), (partial(her, unit=("V",)), hals), (step, multiplicative), (bmme, multiplicative)],
    )
    def test_with_every_method(self, method, rule, order, batch):
        shape, k = (20, 12, 5)[:order], 3
        names = ("V", "U1", "U2")[:order]
        start = {n: draw(*batch, d, k) for n, d in zip(names, shape)}
        terms = [Fit(draw(*shape), names)]
        result = run(terms, {"V": rule}, start, method=method, max_iter=5000, tol=0, every=500)
        best = run(terms, {"V": partial(hals, sweeps=200)}, start, max_iter=50, tol=0)
        np.testing.assert_allclose(result.objective, best.objective, rtol=1e-5)
        assert all(torch.equal(result.factors[n], start[n]) for n in names[1:])

    def test_momentum_on_a_divergence(self):
        terms = [BetaFit(X, ("V", "U1"), 1)]
        plain = run(terms, {"V": multiplicative}, START, max_iter=3000, tol=0, every=500)
        fast = run(terms, {"V": multiplicative}, START, method=bmme, max_iter=1000, tol=0, every=500)
        np.testing.assert_allclose(fast.objective, plain.objective, rtol=1e-6)


class TestTheEnd:
    def test_the_limit_warns(self):
        with pytest.warns(
            ConvergenceWarning, match="run stopped at max_iter=3 before its objective .* tol=1e-09; raise"
        ):
            run(TERMS, RULES, START, max_iter=3, tol=1e-9)
        with pytest.warns(ConvergenceWarning, match="before 2 of 2 objectives settled"):
            run(TERMS, RULES, {n: torch.stack([F, F]) for n, F in START.items()}, max_iter=3, tol=1e-9)

    @pytest.mark.parametrize(
        "how",
        [
            {"tol": 0},
            {"warn": False},
            {"max_iter": 0},
            {"max_iter": 500, "tol": 1e-3},
            {"callback": lambda progress: progress.iteration == 10},
            {"max_seconds": 0, "max_iter": 500},
        ],
    )
    def test_nothing_else_does(self, how):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            run(TERMS, RULES, START, **{"max_iter": 20, "tol": 1e-12, **how})

    def test_estimators_warn_once(self):
        for estimator in (NMF(3, max_iter=2, tol=1e-9), NMF(3, max_iter=2, tol=1e-9, batch_size=5)):
            with pytest.warns(ConvergenceWarning) as caught:
                estimator.fit(X)
            assert len(caught) == 1 and "NMF stopped at max_iter=2" in str(caught[0].message)

    def test_results_are_shown_in_a_line(self):
        shown = []
        result = run(TERMS, RULES, START, max_iter=20, tol=0, callback=lambda p: shown.append(repr(p)))
        assert repr(result).startswith("Run(objective 10.") and "V float64 (20, 3), U1 float64 (12, 3)" in repr(result)
        assert shown[0].startswith("Progress(iteration=0, objective=") and "V float64 (20, 3)" in shown[0]
        batch = run(TERMS, RULES, {n: torch.stack([F, F]) for n, F in START.items()}, max_iter=2, tol=0)
        for thing in (result, batch, *TERMS, Laplacian(RING, "V", columns=np.ones(500)), L1("V", torch.ones(500))):
            assert len(repr(thing)) < 200 and "tensor(" not in repr(thing) and "\n" not in repr(thing)

    def test_terms_of_a_user_too(self):
        @dataclass(frozen=True, eq=False)
        class Near(Term):
            target: torch.Tensor
            on: str

            def block(self, factors, name): ...
            def value(self, factors): ...

        assert repr(Near(X, "V")) == f"{Near.__name__}(target=float64 (20, 12), on='V')"


class TestCallbacks:
    def test_they_hold_tensors_of_their_own(self):
        seen = []
        before = {n: F.clone() for n, F in START.items()}
        for batch in ((), (2,)):
            start = {n: F.expand(*batch, *F.shape).clone() for n, F in START.items()}
            quiet = run(TERMS, RULES, start, max_iter=30, tol=0)

            def spoil(progress):
                seen.append(progress.iteration)
                for F in progress.factors.values():
                    F.fill_(7.0)

            loud = run(TERMS, RULES, start, max_iter=30, tol=0, callback=spoil)
            assert all(torch.equal(loud.factors[n], F) for n, F in quiet.factors.items())
            np.testing.assert_array_equal(loud.objective, quiet.objective)
            assert all(torch.equal(start[n], before[n].expand(start[n].shape)) for n in start)
        assert seen == 2 * [0, 10, 20, 30]

    def test_nothing_of_a_result_is_the_start(self):
        result = run(TERMS, {"V": hals}, START, max_iter=0)
        for name, F in result.factors.items():
            assert torch.equal(F, START[name]) and F.data_ptr() != START[name].data_ptr()

    @pytest.mark.parametrize("verbose", [0, 1])
    def test_the_last_problem_may_break_down(self, verbose, capsys):
        one = run(TERMS, RULES, START, max_iter=2000, tol=1e-9, warn=False).factors
        start = {n: torch.stack([F, draw(*F.shape)]) for n, F in one.items()}
        breaks = lambda F, block: hals(F, block) * (float("nan") if len(F) == 1 else 1)  # the last one that runs
        seen = []
        result = run(
            TERMS, {"U1": breaks, "V": breaks}, start, max_iter=300, tol=1e-6, callback=seen.append, verbose=verbose
        )
        assert np.isfinite(result.objective[0]) and np.isinf(result.objective[1]) and result.best == 0
        assert np.isnan(seen[-1].objective) and np.isfinite([p.objective for p in seen[:-1]]).all()


class TestObjectives:
    """Differences of large sums are neither shown below zero nor decide between problems."""

    @pytest.mark.parametrize("seed", range(8))
    def test_the_best_restart_is_chosen(self, seed):
        r = np.random.default_rng(seed)
        n, m, k = int(r.integers(30, 100)), int(r.integers(20, 60)), int(r.integers(2, 6))
        X = (r.random((n, k)) @ r.random((k, m))).astype(np.float32)
        e = NMF(k, n_init=8, init="random", random_state=seed, tol=1e-7, max_iter=500, keep_embeddings=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            e.fit(X)
        pairs = zip(e.restarts_["embeddings"], e.restarts_["factors"][0])
        true = [((X.astype(float) - V.astype(float) @ U.astype(float).T) ** 2).sum() for V, U in pairs]
        rounding = 10 * np.finfo(np.float32).eps ** 2 * (X.astype(float) ** 2).sum()  # of published factors
        np.testing.assert_allclose(e.restarts_["loss"], true, rtol=1e-3, atol=rounding)
        assert e.loss_ <= 1.001 * min(true) + rounding

    def test_every_reading_is_nonnegative_and_the_last_one_right(self):
        r = np.random.default_rng(1)
        X = (r.random((40, 5)) @ r.random((5, 30)) + 1e3).astype(np.float32)
        seen = []
        e = NMF(5, random_state=0, callback=lambda p: seen.append(p.objective)).fit(X)
        assert min(seen) >= 0 and e.history_["objective"].min() >= 0
        np.testing.assert_allclose(e.history_["objective"][-1], e.loss_, rtol=1e-3)

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("solver", ["auto", "hals", "mu", "projected"])
    def test_a_start_that_is_exact(self, solver, dtype):
        r = np.random.default_rng(0)
        V, U = r.integers(0, 9, (30, 3)).astype(dtype), r.integers(0, 9, (20, 3)).astype(dtype) / 8
        X = V @ U.T  # without rounding
        e = NMF(3, init=(V, U), solver=solver, max_iter=30, tol=0).fit(X)
        rounding = np.finfo(dtype).eps * (X.astype(float) ** 2).sum()
        assert e.history_["objective"][0] == 0 and (e.history_["objective"] >= 0).all()
        assert e.history_["objective"][-1] <= rounding

    def test_semi_nmf_with_more_components_than_features(self):
        for seed in range(6):
            r = np.random.default_rng(seed)
            X = r.normal(size=(40, 5)).astype(np.float32)
            e = SemiNMF(15, random_state=seed, tol=0, max_iter=60, n_init=2).fit(X)
            assert (e.history_["objective"] >= 0).all() and (e.restarts_["loss"] >= 0).all()
            assert abs(e.history_["objective"][-1] - e.loss_) <= 1e-6 * (X.astype(float) ** 2).sum()

    def test_views_that_are_fitted_exactly(self):
        for seed in range(10):
            r = torch.Generator().manual_seed(seed)
            V, *Us = (100 * torch.rand(d, 3, generator=r) for d in (30, 8, 9))
            names = ("U1", "U2")
            term = Views([Fit(V @ U.T, ("V", name)) for name, U in zip(names, Us)])
            factors = {"V": V, **dict(zip(names, Us)), "pi": torch.full((1, 2), 0.5)}
            assert term.value(factors) >= 0 and (term.block(factors, "pi").linear_plus >= 0).all()
            assert term.direct(factors) <= 1e-12 * term.fits[0].data.sqnorm()

    def test_what_ended_does_not_hold_the_batch(self):
        """A view of one problem would keep the tensor of all that ran with it: memory grew with their square."""
        B, peak = 60, []
        start = {n: torch.stack([draw(*F.shape) for _ in range(B)]) for n, F in START.items()}
        size = sum(F.nbytes for F in start.values())
        alive = lambda: {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors()}
        tensors = lambda: [t for t in gc.get_objects() if type(t) is torch.Tensor and t.layout == torch.strided]
        before = sum(alive().values())
        told = lambda progress: peak.append(sum(alive().values()) - before) if progress.iteration % 50 == 0 else None
        result = run(TERMS, RULES, start, max_iter=1000, tol=1e-5, every=1, callback=told, warn=False)
        assert len(set(result.n_iter)) > 20  # problems end one after the other
        assert max(peak) < 6 * size


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_autocast_changes_nothing(dtype):
    """Half precision neither gets into what is returned nor into what is kept."""
    terms = [Fit(X.to(dtype), ("V", "U1")), Laplacian(RING, "V", norms_of=("U1",)), L2("U1", 0.1)]
    factors = {n: F.to(dtype) for n, F in START.items()}
    fresh = lambda: {n: F.clone() for n, F in factors.items()}
    value, residual = objective(terms, fresh()), metrics.kkt_residual(terms, fresh())
    half = block_of(terms, fresh(), "V").half_gradient(factors["V"])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(objective(terms, factors), value)
        block = block_of(terms, factors, "V")
        assert metrics.kkt_residual(terms, factors) == residual
        inside = run(terms, {"U1": hals, "V": m_matrix}, factors, max_iter=3, tol=0)
    assert all(q.column_matrix.dtype == dtype for q in block.quads) and block.linear_minus.dtype == dtype
    assert torch.equal(block.half_gradient(factors["V"]), half)
    assert torch.equal(objective(terms, factors), value) and metrics.kkt_residual(terms, factors) == residual
    outside = run(terms, {"U1": hals, "V": m_matrix}, fresh(), max_iter=3, tol=0)
    assert all(torch.equal(inside.factors[n], F) for n, F in outside.factors.items())


def test_objectives_keep_their_gradients():
    factors = {n: F.clone().requires_grad_() for n, F in START.items()}
    objective(TERMS, factors).backward()
    wanted = 2 * block_of(TERMS, START, "V").half_gradient(START["V"])
    torch.testing.assert_close(factors["V"].grad, wanted)
