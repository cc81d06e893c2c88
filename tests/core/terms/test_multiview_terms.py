"""The laws of the core for views, labels and their rules."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sulf_reference import K, problem, quiet_fit, solve_W

from nnfactor.core import L2, L21, Block, Fit, Quad, Weight, as_data, block_of, multiplicative, objective, run
from nnfactor.core.rules.closed_form import least_squares, simplex, unconstrained
from nnfactor.core.terms.multiview import Labels, SemiFit, Views
from nnfactor.models.factorization.sulf import SULF


def batched(batch=(), seed=0, k=3, n=9, signed=False, dtype=torch.float64):
    """Factors of three views and labels, with any leading dimensions."""
    rng = np.random.default_rng(seed)
    widths, tensor = (4, 6, 1), lambda a: torch.as_tensor(a).to(dtype)
    draw = lambda rows, cols: tensor(rng.random((*batch, cols, rows)) * 10.0 ** rng.integers(-1, 2)).mT
    views = [tensor(rng.random((n, m)) - (0.5 if signed else 0)) for m in widths]
    factors = {"V": draw(n, k), **{f"U{p + 1}": draw(m, k) for p, m in enumerate(widths)}, "W": draw(k, 3) - 0.5}
    if signed:
        factors.update({f"U{p + 1}": factors[f"U{p + 1}"] - 0.3 for p in range(3)})
    pi = rng.random((*batch, 1, 3))
    factors |= {"pi": tensor(pi / pi.sum(-1, keepdims=True)), "weight": tensor(rng.random(batch) + 0.1)}
    known = torch.as_tensor(np.arange(n) % 2 == 0)
    Y = tensor(np.eye(3)[rng.integers(0, 3, n)])
    kind = SemiFit if signed else Fit
    terms = [Views([kind(as_read(X), ("V", f"U{p + 1}")) for p, X in enumerate(views)], scales=(2.0, 0.5, 1.0))]
    terms += [Labels(Y, known, weight=Weight("weight")), L21("W", 0.3), L2("pi", Weight("weight"))]
    return factors, terms


def as_read(X):
    return as_data(X, signed=True)


RULES = {"W": least_squares, "U1": multiplicative, "U2": multiplicative, "U3": multiplicative, "V": multiplicative}
RULES |= {"pi": simplex}


def rules(signed):
    return {name: unconstrained if signed and name[0] == "U" else rule for name, rule in RULES.items()}


def test_writes_to_any_view_are_seen():
    views = [torch.rand(6, m, dtype=torch.float64) for m in (4, 9)]
    factors = {n: torch.rand(d, 2, dtype=torch.float64) for n, d in (("V", 6), ("U1", 4), ("U2", 9))}
    factors["pi"] = torch.full((1, 2), 0.5, dtype=torch.float64)
    make = lambda views: Views([Fit(as_data(X), ("V", f"U{p + 1}")) for p, X in enumerate(views)])
    term = make(views)
    answers = lambda term: [term.value(factors), *(term.block(factors, n).linear_minus for n in ("V", "U1", "U2"))]
    for view in reversed(views):
        answers(term), view.mul_(10)
        for kept, fresh in zip(answers(term), answers(make([X.clone() for X in views])), strict=True):
            torch.testing.assert_close(kept, fresh)
        torch.testing.assert_close(term.distances(factors), make([X.clone() for X in views]).distances(factors))


class TestLaws:
    @pytest.mark.parametrize("batch", [(), (3,), (2, 2)])
    @pytest.mark.parametrize("k", [1, 3])
    def test_half_gradient_and_signs_with_free_bases(self, batch, k):
        factors, terms = batched(batch, signed=True, k=k)
        for term in terms:
            for name in term.factor_names:
                leaf = {**factors, name: factors[name].clone().requires_grad_()}
                term.value(leaf).sum().backward()
                block = term.block(factors, name)
                torch.testing.assert_close(
                    block.half_gradient(factors[name]), leaf[name].grad / 2, rtol=1e-9, atol=1e-9
                )
                coefficients = [
                    block.linear_minus,
                    block.linear_plus,
                    *(c for q in block.quads for c in (q.column_matrix, q.linear)),
                ]
                coefficients += [q.row_matrix for q in block.quads if isinstance(q.row_matrix, torch.Tensor)]
                assert all(bool((c >= 0).all()) for c in coefficients if c is not None)

    @pytest.mark.parametrize("signed", [False, True])
    def test_never_rises_and_batch_equals_separate(self, signed):
        for seed in range(15):
            factors, terms = batched((3,), seed, signed=signed, k=1 + seed % 5)
            alone = [{name: F[i] for name, F in factors.items()} for i in range(3)]
            before = start = objective(terms, factors)
            for name, rule in (*rules(signed).items(), *rules(signed).items()):
                factors = {**factors, name: rule(factors[name], block_of(terms, factors, name))}
                alone = [{**f, name: rule(f[name], block_of(terms, f, name))} for f in alone]
                after = objective(terms, factors)
                assert bool((after <= before + 1e-10 * start).all()), (seed, name)
                for i in range(3):
                    near = 1e-9 * float(factors[name].abs().max())
                    torch.testing.assert_close(factors[name][i], alone[i][name], rtol=1e-8, atol=near)
                before = after

    def test_float32_stays_float32(self):
        factors, terms = batched((2,), dtype=torch.float32, signed=True)
        for name, rule in rules(True).items():
            assert rule(factors[name], block_of(terms, factors, name)).dtype == torch.float32

    def test_one_bad_problem_leaves_the_others_alone(self):
        for signed in (False, True):
            factors, terms = batched((2,), signed=signed)
            terms = [terms[0], terms[1]]  # no penalty on W: minimum norm
            for name in ("W", "U1"):
                bad = {**factors, "V": factors["V"].clone()}
                bad["V"][0, 0, 0] = torch.nan
                rule = rules(signed)[name]
                mine = rule(factors[name], block_of(terms, bad, name))
                torch.testing.assert_close(mine[1], rule(factors[name], block_of(terms, factors, name))[1])
                assert not bool(torch.isfinite(objective(terms, {**bad, name: mine})[0]))  # so that it is dropped

    def test_least_squares_is_that_of_the_stacked_system(self):
        for seed in range(20):
            rng = np.random.default_rng(seed)
            n, k, C = int(rng.integers(1, 9)), int(rng.integers(1, 9)), int(rng.integers(1, 4))
            V, Y, W = rng.random((n, k)), np.eye(C)[rng.integers(0, C, n)], rng.normal(size=(k, C))
            V[:, rng.random(k) < 0.2] = 0
            labels = Labels(torch.tensor(Y), torch.ones(n, dtype=torch.bool), weight=1e8)
            factors = {"V": torch.tensor(V), "W": torch.tensor(W)}
            mine = least_squares(factors["W"], block_of([labels, L21("W", 100.0)], factors, "W"))
            E = 1 / (2 * np.sqrt((W**2).sum(1) + 1e-10))
            np.testing.assert_allclose(mine, solve_W(V, Y, E, 1e8, 100.0), rtol=1e-6, atol=1e-7)
            free = least_squares(factors["W"], block_of([labels], factors, "W"))
            np.testing.assert_allclose(free, np.linalg.pinv(V) @ Y, rtol=1e-7, atol=1e-9)

    def test_exact_with_dependent_and_tiny_columns(self):
        rng = np.random.default_rng(0)
        X, V = rng.normal(size=(12, 5)), rng.random((12, 4))
        V[:, 1], V[:, 2], V[:, 3] = V[:, 0], 0, V[:, 3] * 1e-12
        fit = SemiFit(as_read(X), ("V", "U"))
        factors = {"V": torch.tensor(V), "U": torch.tensor(rng.normal(size=(5, 4)))}
        U = unconstrained(factors["U"], block_of([fit], factors, "U"))
        before, after = (float(fit.value({**factors, "U": F})) for F in (factors["U"], U))
        best = np.sum((X - V[:, :1] @ np.linalg.lstsq(V[:, :1], X, rcond=None)[0]) ** 2)
        assert bool(torch.isfinite(U).all()) and after <= min(before, best * (1 + 1e-12))

    def test_rules_refuse_what_they_cannot_take(self):
        factors, terms = batched()
        with pytest.raises(ValueError, match="least_squares solves for"):
            least_squares(factors["V"], block_of(terms, factors, "V"))
        with pytest.raises(ValueError, match="unconstrained solves for"):
            unconstrained(factors["V"], block_of(terms, factors, "V"))
        with pytest.raises(ValueError, match="simplex takes"):
            simplex(factors["V"], block_of(terms, factors, "V"))
        with pytest.raises(ValueError, match="2 numbers, but there are 3 views"):
            Views(terms[0].fits, scales=(1.0, 2.0))
        with pytest.raises(ValueError, match=r"labelled \(n,\)"):
            Labels(torch.zeros(3, 2), torch.ones(4, dtype=torch.bool))

    def test_restarts_as_one_batch(self):
        views, y, _ = problem()
        together = quiet_fit(SULF(K, n_init=3, random_state=5, max_iter=300, init="random"), views, y)
        assert together.restarts_["loss"].shape == (3,) and together.restarts_["view_weights"].shape == (3, 3)
        assert np.isclose(together.loss_, together.restarts_["loss"].min())
        factors, terms = batched((4,))
        whole = run(terms, RULES, factors, max_iter=200, tol=1e-6, warn=False)
        for i in range(4):
            alone = run(terms, RULES, {n: F[i] for n, F in factors.items()}, max_iter=200, tol=1e-6, warn=False)
            assert alone.n_iter[0] == whole.n_iter[i]
            np.testing.assert_allclose(alone.objective[0], whole.objective[i], rtol=1e-9)


costs = st.lists(
    st.one_of(st.floats(0, 1e6, allow_subnormal=False), st.sampled_from([0.0, 1.0, 1e-300])), min_size=1, max_size=8
)


@settings(deadline=None, max_examples=300)
@given(costs, st.floats(1e-6, 1e6))
def test_simplex_satisfies_kkt(c, lam):
    c = np.array(c)
    block = Block(
        quads=(Quad(torch.full((1, len(c)), lam, dtype=torch.float64)),), linear_plus=torch.tensor(c)[None] / 2
    )
    pi = simplex(torch.zeros(1, len(c), dtype=torch.float64), block)[0].numpy()
    gradient, scale = c + 2 * lam * pi, max(c.max(), lam)
    mu = gradient[pi.argmax()]
    assert (pi >= 0).all() and abs(pi.sum() - 1) <= 1e-12
    assert np.abs(gradient - mu)[pi > 0].max() <= 1e-12 * scale and (gradient >= mu - 1e-12 * scale).all()
    block = Block(quads=(Quad(torch.zeros(1, len(c), dtype=torch.float64)),), linear_plus=torch.tensor(c)[None] / 2)
    corner = simplex(torch.zeros(1, len(c), dtype=torch.float64), block)[0].numpy()
    assert corner[c.argmin()] == 1 and corner.sum() == 1


@pytest.mark.parametrize("lam", [0.0, 1.0, 1e30])
def test_simplex_gives_no_weight_to_what_costs_infinitely_much(lam):
    block = Block(
        quads=(Quad(torch.full((1, 3), lam, dtype=torch.float64)),), linear_plus=torch.tensor([[1.0, torch.inf, 1.5]])
    )
    pi = simplex(torch.full((1, 3), 1 / 3, dtype=torch.float64), block)[0]
    assert pi[1] == 0 and float(pi.sum()) == pytest.approx(1) and bool((pi >= 0).all())
