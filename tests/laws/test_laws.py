"""The laws of the core, over the tables: every term, rule, order, batch and storage kind."""

import weakref
from functools import partial

import numpy as np
import pytest
import torch
from tables import CHUNKED_TENSORS, MIXED, MODELS, RULES, STORAGES, TENSORS, TERMS, problem

from nnfactor.core import (
    L1,
    L2,
    L21,
    BetaFit,
    Block,
    Data,
    Fit,
    Graph,
    Laplacian,
    block_of,
    factors,
    hals,
    m_matrix,
    multiplicative,
    objective,
    run,
    step,
    take,
)
from nnfactor.core.data.base import filled_share
from nnfactor.core.factors import (
    as_factor,
    cached_flat,
    column_norms,
    fold,
    gram,
    is_row_major,
    mttkrp,
    normalize_columns,
    reconstruct,
    unfold,
)

BATCHES = [(), (3,), (2, 2)]
EVERYTHING = {**TERMS, **MIXED}
close = lambda a, b, tol=1e-9: torch.testing.assert_close(a, b, rtol=tol, atol=tol * float(b.abs().max()))


@pytest.mark.parametrize("order", [2, 3, 4, 5])
@pytest.mark.parametrize("key", EVERYTHING)
def test_half_gradient_is_that_of_autograd(key, order):
    for batch in BATCHES:
        p = problem(order, batch, seed=order, zeros=0.0)
        for term in EVERYTHING[key](p):
            for name in term.factor_names:
                leaf = {**p.factors, name: p.factors[name].clone().requires_grad_()}
                term.value(leaf).sum().backward()
                close(term.block(p.factors, name).half_gradient(p.factors[name]), leaf[name].grad / 2, 1e-8)


@pytest.mark.parametrize("key", EVERYTHING)
def test_every_coefficient_is_nonnegative(key):
    for order in (2, 3, 4):
        for zeros in (0.0, 0.5):
            p = problem(order, (2,), seed=order, zeros=zeros)
            terms = EVERYTHING[key](p)
            for name in {n for t in terms for n in t.factor_names}:
                block = block_of(terms, p.factors, name)
                parts = [
                    block.linear_minus,
                    block.linear_plus,
                    *(c for q in block.quads for c in (q.column_matrix, q.linear)),
                ]
                rows = [q.row_matrix for q in block.quads if isinstance(q.row_matrix, torch.Tensor)]
                assert all(bool((c >= 0).all()) for c in [*parts, *rows] if c is not None)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("key", MODELS)
def test_quadratic_objectives_never_rise(key, rule):
    for seed in range(12):
        p = problem(2 + seed % 3, (3,), seed=seed, zeros=(0.0, 0.3, 0.6)[seed % 3])
        assert_monotone(MODELS[key](p), p, RULES[rule])


@pytest.mark.parametrize("key", [*MIXED, *(k for k in TERMS if k.startswith("beta"))])
def test_divergences_never_rise(key):
    for seed in range(12):
        p = problem(2 + seed % 3, (3,), seed=seed, zeros=(0.0, 0.3)[seed % 2])
        assert_monotone(EVERYTHING[key](p), p, multiplicative)


def assert_monotone(terms, p, rule, sweeps=4):
    factors, scale = p.factors, objective(terms, p.factors).abs()
    before = objective(terms, factors)
    for _ in range(sweeps):
        for name in p.order_of_updates:
            factors = {**factors, name: rule(factors[name], block_of(terms, factors, name))}
            after = objective(terms, factors)
            assert bool((after <= before + 1e-9 * scale).all()), (name, before, after)
            assert bool(torch.isfinite(factors[name]).all()) and bool((factors[name] >= 0).all())
            before = after


@pytest.mark.parametrize(
    "key, rule", [*((k, r) for k in MODELS for r in RULES), *((k, "multiplicative") for k in MIXED)]
)
def test_a_batch_equals_the_separate_runs(key, rule):
    for order in (2, 3):
        p = problem(order, (4,), seed=7, zeros=0.2, k=3)
        sweep = step(EVERYTHING[key](p), dict.fromkeys(p.order_of_updates, RULES[rule]))
        together = sweep(sweep({"factors": p.factors}))
        for i in range(4):
            alone = sweep(sweep(take({"factors": p.factors}, i)))
            for name in p.modes:
                near = 1e-8 * float(p.factors[name].max())  # penalties may drive a factor to rounding noise
                mine, its = together["factors"][name][i], alone["factors"][name]
                torch.testing.assert_close(mine, its, rtol=1e-8, atol=near)


@pytest.mark.parametrize(
    "key, rule", [*((k, r) for k in MODELS for r in RULES), *((k, "multiplicative") for k in MIXED)]
)
def test_the_memory_order_of_factors_changes_nothing(key, rule):
    for order in (2, 3):
        p = problem(order, seed=11, zeros=0.2, k=3)
        sweep = step(EVERYTHING[key](p), dict.fromkeys(p.order_of_updates, RULES[rule]))
        by_component = {n: as_factor(F) if F.dim() else F for n, F in p.factors.items()}
        by_row = {n: F.contiguous() for n, F in p.factors.items()}
        one, other = (sweep(sweep({"factors": factors}))["factors"] for factors in (by_component, by_row))
        for name in p.modes:
            near = 1e-8 * float(one[name].max())
            torch.testing.assert_close(one[name], other[name], rtol=1e-8, atol=near)


def test_factors_of_sparse_data_stay_in_rows():
    p = problem(2, seed=4, k=3)
    terms = [Fit(p.X.to_sparse_coo(), p.modes), Laplacian(p.own, "V")]
    sweep = step(terms, {"U1": multiplicative, "V": m_matrix})
    factors = sweep({"factors": {n: as_factor(p.factors[n]) for n in p.modes}})["factors"]
    assert all(is_row_major(factors[name]) for name in p.modes)


@pytest.mark.parametrize("k", [130, 192])
def test_panels_of_a_wide_gram_change_nothing(k):
    F = torch.rand(k, 1000, dtype=torch.float64, generator=torch.Generator().manual_seed(k)).mT
    for stored in (F, F.contiguous()):
        close(gram(stored), torch.from_numpy(F.numpy().T @ F.numpy()), 1e-13)


def test_slabs_of_a_wide_factor_change_nothing():
    p = problem(2, (2,), seed=1, k=70, shape=(30, 40))
    block = block_of([Fit(p.X, p.modes), Laplacian(p.own, "V")], p.factors, "V")
    V, G = p.factors["V"].clone(), block.quads[0].column_matrix
    plain = V.clone()
    curvature = G.diagonal(dim1=-2, dim2=-1)[:, None] + 2 * p.own.degree(V)
    linear = block.linear_minus - p.own.degree(V) * V + p.own @ V
    for j in range(70):
        gradient = linear[..., j] - (plain @ G[..., j, None])[..., 0]
        plain[..., j] = (plain[..., j] + gradient / curvature[..., j]).clamp(min=0)
    close(hals(V, block), plain)


@pytest.mark.parametrize(
    "storage, order, betas",
    [
        *((s, 2, (0.5, 1, 1.5, 2, 3)) for s in STORAGES.values()),
        *((s, n, (1, 2)) for s in TENSORS.values() for n in (3, 4, 5)),
        *((s, n, (0.5, 1, 2, 3)) for s in CHUNKED_TENSORS.values() for n in (3, 4, 5)),
    ],
)
def test_storage_kinds_agree(storage, order, betas):
    for batch in ((), (3,), (2, 2)):
        p = problem(order, batch, seed=3, zeros=0.4)
        data, dense = storage(p.X.numpy()), Fit(p.X, p.modes).data
        Fs = [p.factors[m] for m in p.modes]
        close(data.sqnorm(), dense.sqnorm())
        close(data.mean(), dense.mean())
        close(data.residual_sq(Fs), dense.residual_sq(Fs))
        np.testing.assert_allclose((data.largest(), data.smallest()), (dense.largest(), dense.smallest()), rtol=1e-12)
        assert filled_share(data) == filled_share(dense) == float((p.X != 0).double().mean())
        close(data.scaled(0.25).residual_sq(Fs), dense.scaled(0.25).residual_sq(Fs))
        for mode in range(order):
            close(data.mttkrp(Fs, mode), dense.mttkrp(Fs, mode))
            for beta in betas:
                close(data.divergence(Fs, beta), dense.divergence(Fs, beta))
                for mine, theirs in zip(data.ratio_products(Fs, mode, beta), dense.ratio_products(Fs, mode, beta)):
                    close(mine.expand_as(Fs[mode]), theirs.expand_as(Fs[mode]))


def test_chunks_change_nothing(monkeypatch):
    for order in (2, 3, 4):
        p = problem(order, (2,), seed=order)
        Fs = [p.factors[m] for m in p.modes]
        whole = Fit(p.X, p.modes).data
        expected = [whole.residual_sq(Fs), whole.divergence(Fs, 1), whole.sqnorm()]
        products = [whole.ratio_products(Fs, mode, 1.5) for mode in range(order)]
        monkeypatch.setattr(Data, "chunk", 7)
        small = Fit(p.X, p.modes).data
        for a, b in zip([small.residual_sq(Fs), small.divergence(Fs, 1), small.sqnorm()], expected):
            close(a, b)
        for mode in range(order):
            for a, b in zip(small.ratio_products(Fs, mode, 1.5), products[mode]):
                close(a, b)
        monkeypatch.undo()


def test_blocks_of_sparse_rows_change_nothing(monkeypatch):
    for zeros in (0.3, 0.9, 1.0):
        p = problem(2, (2,), seed=4, zeros=zeros)
        p.X[0] = 0
        factors, dense = [F + 0.1 for F in (p.factors["V"], p.factors["U1"])], Fit(p.X, p.modes).data
        for chunk in (1, 5, 1 << 18):
            monkeypatch.setattr(Data, "chunk", chunk)
            data = Fit(p.X.to_sparse_coo(), p.modes).data
            assert chunk > 5 or zeros > 0.5 or len(data._blocks()) > 3
            close(data.residual_sq(factors), dense.residual_sq(factors))
            close(data.divergence(factors, 1), dense.divergence(factors, 1))


def test_no_cg_step_is_the_multiplicative_rule():
    for seed in range(20):
        p = problem(2 + seed % 3, (2,), seed=seed, zeros=0.3)
        block = block_of(MODELS["nge"](p), p.factors, "V")
        close(m_matrix(p.factors["V"], block, cg=0, sweeps=1), multiplicative(p.factors["V"], block), 1e-12)


@pytest.mark.parametrize("solver", [{"tol": 1e-13}, {"cg": 60}, {"cg": 0, "sweeps": 20000}])
def test_m_matrix_agrees_with_a_dense_solve(solver):
    for seed in range(5):
        p = problem(2, seed=seed, zeros=0.2)
        V = p.factors["V"]
        block = block_of([Fit(p.X, p.modes), Laplacian(p.own, "V", weight=3.0)], p.factors, "V")
        up, S = block.gradient_plus(V), torch.from_numpy(p.own.toarray())
        solved = torch.zeros_like(V)
        for j in range(V.shape[1]):
            alive = V[:, j] > 0
            A = torch.diag(up[alive, j] / V[alive, j]) - 3.0 * S[alive][:, alive]
            solved[alive, j] = torch.linalg.solve(A, block.linear_minus[alive, j])
        close(m_matrix(V, block, **solver), solved, 1e-7)


def test_a_frozen_factor_stays():
    p = problem(3, seed=2)
    state = step([Fit(p.X, p.modes)], {"V": hals})({"factors": p.factors})
    assert state["factors"]["U1"] is p.factors["U1"] and state["factors"]["V"] is not p.factors["V"]


def test_rules_never_write_into_what_they_are_given():
    for key in ("nge", "ridge, sparse"):
        p = problem(2, seed=5, zeros=0.1)
        for rule in RULES.values():
            copies = {n: F.clone() for n, F in p.factors.items()}
            block = block_of(MODELS[key](p), p.factors, "V")
            linear_minus = block.linear_minus.clone()
            rule(p.factors["V"], block)
            assert torch.equal(linear_minus, block.linear_minus)
            assert all(torch.equal(p.factors[n], copies[n]) for n in copies)


def test_the_memo_sees_writes():
    p = problem(2, seed=1)
    term = Fit(p.X, p.modes)
    before = term.value(p.factors)
    p.factors["U1"].mul_(2)
    close(term.value(p.factors), term.direct(p.factors))
    assert not torch.equal(before, term.value(p.factors))


@pytest.mark.parametrize("rule", ["hals", "projected", "m_matrix"])
def test_rules_refuse_what_they_cannot_take(rule):
    p = problem(2)
    block = block_of([BetaFit(p.X, p.modes, 1), L1("V", 1.0)], p.factors, "V")
    with pytest.raises(ValueError, match="multiplicative"):
        RULES[rule](p.factors["V"], block)


def test_float32_follows_float64():
    for key in MODELS:
        p = problem(2, seed=4)
        q = problem(2, seed=4, dtype=torch.float32)
        ends = []
        for r in (p, q):
            sweep, state = (
                step(MODELS[key](r), dict.fromkeys(r.order_of_updates, multiplicative)),
                {"factors": r.factors},
            )
            for _ in range(30):
                state = sweep(state)
            assert state["factors"]["V"].dtype == r.X.dtype
            ends.append(objective(MODELS[key](r), state["factors"]))
        torch.testing.assert_close(ends[1], ends[0], rtol=1e-4, atol=1e-4 * float(p.X.square().sum()))


class TestRun:
    """Stops, histories, batches that shrink."""

    def test_tol_zero_runs_exactly_max_iter(self):
        p = problem(2)
        result = run([Fit(p.X, p.modes)], dict.fromkeys(("U1", "V"), hals), p.factors, max_iter=23, tol=0)
        assert result.n_iter.tolist() == [23] and result.history()["iteration"].tolist() == list(range(24))
        assert (np.diff(result.history()["objective"]) <= 1e-9).all()

    def test_every_problem_stops_by_itself(self):
        p = problem(2, (5,), seed=3, shape=(20, 15))
        terms, rules = [Fit(p.X, p.modes)], dict.fromkeys(("U1", "V"), multiplicative)
        together = run(terms, rules, p.factors, max_iter=400, tol=1e-2)
        assert len(set(together.n_iter.tolist())) > 1
        for i in range(5):
            alone = run(terms, rules, take(p.factors, i), max_iter=400, tol=1e-2)
            assert alone.n_iter[0] == together.n_iter[i] and alone.converged[0] == together.converged[i]
            np.testing.assert_allclose(alone.objective[0], together.objective[i], rtol=1e-9)
            np.testing.assert_allclose(alone.history()["objective"], together.history(i)["objective"], rtol=1e-9)
            close(together.factors["V"][i], alone.factors["V"])

    def test_one_bad_problem_leaves_the_others_alone(self):
        p = problem(2, (3,), seed=3)
        p.factors["V"][1] = float("inf")
        with np.errstate(invalid="ignore"):
            result = run([Fit(p.X, p.modes)], dict.fromkeys(("U1", "V"), hals), p.factors, max_iter=20, warn=False)
        assert np.isinf(result.objective[1]) and np.isfinite(result.objective[[0, 2]]).all() and result.best != 1

    def test_nothing_finite_raises(self):
        p = problem(2)
        p.factors["V"][0, 0] = float("nan")
        with pytest.raises(FloatingPointError, match="NMF: the objective became nan at iteration 0"):
            run([Fit(p.X, p.modes)], {"V": hals}, p.factors, name="NMF")

    def test_callback_stops_and_sees_one_problem(self):
        p, seen = problem(2, (3,)), []
        result = run(
            [Fit(p.X, p.modes)],
            dict.fromkeys(("U1", "V"), multiplicative),
            p.factors,
            tol=1e-30,
            callback=lambda progress: seen.append(progress) or progress.iteration >= 20,
        )
        assert result.n_iter.tolist() == [20] * 3 and seen[-1].factors["V"].dim() == 2
        assert [s.iteration for s in seen] == [0, 10, 20]


class TestOps:
    """Public tensor algebra equals TensorLy's."""

    @pytest.mark.parametrize("order", [2, 3, 4, 5])
    def test_against_tensorly(self, order):
        import tensorly as tl
        from tensorly.cp_tensor import cp_to_tensor
        from tensorly.tenalg import khatri_rao, unfolding_dot_khatri_rao

        p = problem(order, seed=order)
        X, Fs = p.X.numpy(), [p.factors[m].numpy() for m in p.modes]
        w = np.arange(1.0, 5.0)
        np.testing.assert_allclose(
            reconstruct([p.factors[m] for m in p.modes], torch.from_numpy(w)), cp_to_tensor((w, Fs))
        )
        np.testing.assert_allclose(factors.khatri_rao([p.factors[m] for m in p.modes]), khatri_rao(Fs))
        for mode in range(order):
            np.testing.assert_array_equal(unfold(p.X, mode), tl.unfold(X, mode))
            np.testing.assert_array_equal(fold(unfold(p.X, mode), mode, X.shape), X)
            expected = unfolding_dot_khatri_rao(X, (None, Fs), mode)
            np.testing.assert_allclose(mttkrp(p.X, [p.factors[m] for m in p.modes], mode), expected)
            data = Fit(p.X, p.modes).data
            np.testing.assert_allclose(data.mttkrp([p.factors[m] for m in p.modes], mode), expected)

    def test_batches(self):
        p = problem(3, (2,))
        X, Fs = torch.stack([p.X, 2 * p.X]), [p.factors[m] for m in p.modes]
        one = mttkrp(X[1], [F[1] for F in Fs], 1)
        close(mttkrp(X, Fs, 1)[1], one)
        close(fold(unfold(X, 1, order=3), 1, p.X.shape), X)
        close(reconstruct(Fs)[1], reconstruct([F[1] for F in Fs]))

    @pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
    def test_column_norms_are_safe(self, scale):
        F = torch.tensor([[3.0, 0.0], [4.0, 0.0]], dtype=torch.float64)
        np.testing.assert_allclose(column_norms(F * scale), [[5.0 * scale, 0.0]])

    def test_rows_with_grams_of_their_own_in_a_batch_of_one(self):
        A = torch.rand(6, 4, 5, 3, dtype=torch.float64)  # of every row a matrix
        G, F = torch.einsum("nabi,nabj->ijn", A, A), torch.rand(6, 3, dtype=torch.float64)
        alone = hals(F, Block((), F * 2, row_grams=G), sweeps=3)
        one = hals(F[None], Block((), F[None] * 2, row_grams=G[None]), sweeps=3)
        close(one[0], alone)

    def test_unit_columns_keep_the_product(self):
        p = problem(3, seed=9)
        Fs = [p.factors[m].clone() for m in p.modes]
        Fs[2][:, 1] = 0
        V, *bases = normalize_columns(Fs)
        close(reconstruct([V, *bases]), reconstruct(Fs))
        close(V[:, 1], Fs[0][:, 1])
        norms = torch.stack([column_norms(F)[0] for F in bases])
        close(norms, torch.where(norms > 0, 1.0, 0.0).to(norms.dtype))


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("component_major", [False, True])
def test_what_is_remembered_does_not_keep_the_factor(k, component_major):
    F = torch.rand(k, 20).mT if component_major else torch.rand(20, k)
    gone = weakref.ref(F)
    cached_flat(F), gram(F)
    del F
    assert gone() is None


@pytest.mark.parametrize(
    "term", [partial(Laplacian, np.ones((3, 3)) - np.eye(3), "V"), *(partial(T, "V") for T in (L1, L2, L21))]
)
@pytest.mark.parametrize("weight", [-1.0, np.nan, np.inf])
def test_weights_that_no_rule_is_monotone_for_are_refused(term, weight):
    with pytest.raises(ValueError, match=r"weight of \w+ must be a finite number >= 0, got"):
        term(weight=weight)


def test_a_weight_by_name_is_told_how_to_say_it():
    with pytest.raises(ValueError, match=r"weight of L1 .* got 'lam'; an entry of the state is Weight\('lam'\)"):
        L1("V", "lam")


def test_every_term_has_a_direct_value():
    F = {"V": torch.rand(4, 2, dtype=torch.float64)}
    assert L2("V", 3.0).direct(F) == L2("V", 3.0).value(F)


def test_nothing_is_kept_of_memory_that_others_write_to():
    """torch sees no write to a numpy array of the same memory."""
    rng = np.random.default_rng(0)
    X, v, u = rng.random((9, 7)), rng.random((9, 2)), rng.random((7, 2))
    term, F = Fit(X.copy(), ("V", "U1")), {"V": torch.from_numpy(v), "U1": torch.from_numpy(u)}
    graph = Graph(np.ones((9, 9)))
    energy = lambda: float(graph.energy(F["V"]).sum())
    for scale in (1.0, 100.0):
        v *= scale
        np.testing.assert_allclose(float(objective([term], F)), ((X - v @ u.T) ** 2).sum())
        np.testing.assert_allclose(energy(), 9 * (v**2).sum() - (v.sum(0) ** 2).sum())
    frozen = run([term], {"V": hals}, F, max_iter=1, tol=0)
    u *= 3
    again = run([term], {"V": hals}, F, max_iter=1, tol=0)
    assert (frozen.factors["U1"] * 3 == again.factors["U1"]).all()
    for result in (frozen, again):
        V, U = result.factors["V"].numpy(), result.factors["U1"].numpy()
        np.testing.assert_allclose(result.objective[0], ((X - V @ U.T) ** 2).sum(), rtol=1e-9)


@pytest.mark.parametrize("make", [lambda X: Fit(X, ("V", "U1")), lambda X: BetaFit(X, ("V", "U1"), 1.5)])
def test_autocast_leaves_no_half_precision_behind(make):
    """What is made inside is float32, as are the products that are kept and answer outside again."""
    g = torch.Generator().manual_seed(0)
    V, U, X = (torch.rand(*shape, generator=g) for shape in ((40, 4), (20, 4), (40, 20)))
    expected = objective([make(X.clone())], {"V": V.clone(), "U1": U.clone()})
    term = make(X)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = objective([term], {"V": V, "U1": U})
        block = block_of([term], {"V": V, "U1": U}, "V")
        assert gram(V.clone()).dtype == block.linear_minus.dtype == torch.float32
    torch.testing.assert_close(inside, expected, rtol=1e-5, atol=0)
    torch.testing.assert_close(objective([term], {"V": V, "U1": U}), expected, rtol=1e-5, atol=0)
    torch.testing.assert_close(gram(U), U.T @ U)


def test_nothing_from_inference_mode_is_remembered():
    """Autograd refuses such tensors."""
    F, W = torch.rand(5, 3, dtype=torch.float64), torch.rand(3, 3, dtype=torch.float64, requires_grad=True)
    fit = Fit(torch.rand(6, 5, dtype=torch.float64), ("V", "U1"))
    factors = {"V": torch.rand(6, 3, dtype=torch.float64), "U1": F}
    with torch.inference_mode():
        gram(F)
        fit.block(factors, "V")
    ((gram(F) @ W).sum() + (fit.block(factors, "V").linear_minus @ W).sum()).backward()
    assert W.grad is not None


@pytest.mark.parametrize(
    "make", [lambda X: X, lambda X: X.movedim(0, -1).contiguous().movedim(-1, 0), lambda X: X[:, ::2]]
)
@pytest.mark.parametrize("order", [2, 3, 4])
def test_data_written_to_in_place_are_seen(order, make):
    """What is kept of the data is made anew, whether their matrix is a view or a copy."""
    p = problem(order)
    X = make(p.X.clone())
    Fs = {name: F[: X.shape[mode]].clone() for mode, (name, F) in enumerate((m, p.factors[m]) for m in p.modes)}
    fit = Fit(X, p.modes)
    answers = lambda fit: [
        fit.value(Fs),
        fit.direct(Fs),
        *(fit.data.mttkrp(list(Fs.values()), b) for b in range(order)),
    ]
    answers(fit)
    X.mul_(10)
    for kept, fresh in zip(answers(fit), answers(Fit(X.clone(), p.modes)), strict=True):
        close(kept, fresh)
