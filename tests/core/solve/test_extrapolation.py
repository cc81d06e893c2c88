"""Sweeps with momentum: the published algorithms, batches, restarts, and what must not depend on them."""

from functools import partial

import numpy as np
import pytest
import reference as ref
import scipy.sparse as sp
import torch
from tables import problem

from nnfactor import NGE, NMF, NTF, GraphNMF
from nnfactor.core import (
    BetaFit,
    Fit,
    Laplacian,
    as_data,
    bmme,
    hals,
    her,
    iterate,
    m_matrix,
    multiplicative,
    objective,
    run,
    step,
    take,
)
from nnfactor.core.compiled import without_compiled_loops
from nnfactor.core.solve import init
from nnfactor.core.solve.momentum.extrapolation import LONGER_STEP
from nnfactor.models.shared.solvers import cg_steps, fastest, hals_sweeps

SHAPES = {2: (12, 9), 3: (9, 5, 6), 4: (6, 4, 3, 5)}
K = 4
three_sweeps = partial(hals, sweeps=3)
CASES = {  # method, term, rule
    "frobenius": (her, Fit, three_sweeps),
    "kullback-leibler": (bmme, partial(BetaFit, beta=1), multiplicative),
    "beta 1.5": (bmme, partial(BetaFit, beta=1.5), multiplicative),
}
every_case = pytest.mark.parametrize("case", CASES)


def data(order, seed=0):
    """Nonnegative data with a zero sample and a zero feature, and a start with a few zeros."""
    rng = np.random.default_rng(seed)
    X = rng.random(SHAPES[order]) ** 2
    X[1] = X[:, 2] = 0
    start = [rng.random((d, K)) + 0.1 for d in X.shape]
    start[0][2, 1] = start[1][0, 0] = 0
    return X, start


def hals_reference(X, factors, mode, sweeps):
    M, G, F = ref.mttkrp(X, factors, mode), ref.gram(factors, mode), factors[mode].copy()
    for _ in range(sweeps):
        for j in range(F.shape[1]):
            if G[j, j] > 0:
                F[:, j] = np.maximum(0, F[:, j] + (M[:, j] - F @ G[:, j]) / G[j, j])
    return F


def her_reference(start, iterations, improve, value_of, unit=False):
    """Algorithm 2 of Ang and Gillis (2019), hp = 3: the accepted pair, its values, and how many were refused.

    `unit`: bases are brought to unit columns before they are extrapolated, their lengths go into the next factor.
    """
    start = list(ref.normalise(start)) if unit else list(start)
    point, before, ahead = list(start), list(start), list(start)
    weight, weight_before, cap, value, refused, rests = 0.5, 0.5, 1.0, value_of(start), 0, False
    values = [value]
    for _ in range(iterations):
        moved, new = list(ahead), list(ahead)
        for mode in (*range(1, len(start)), 0):
            new[mode] = improve(moved, mode)
            if unit and mode:
                length, following = np.linalg.norm(new[mode], axis=0), (mode + 1) % len(start)
                length[length == 0] = 1
                new[mode], moved[following] = new[mode] / length, moved[following] * length
            further = np.maximum(0, new[mode] + (0 if rests else weight) * (new[mode] - before[mode]))
            if mode:
                moved[mode] = further
            if mode == len(start) - 1 and not unit:
                moved[1:] = in_range(moved[1:], moved[0])
        candidate = [new[0], *moved[1:]]
        value_before, value = value, value_of(candidate)
        if value > value_before and not rests:
            rests = value > 1.1 * values[-1]
            ahead, refused = list(before), refused + 1
            weight, weight_before, cap = weight / 1.5, weight, weight_before
            values.append(values[-1])
        else:
            point, ahead, before, rests = candidate, [further, *moved[1:]], new, False
            weight, weight_before, cap = min(cap, 1.01 * weight), weight, min(1, 1.005 * cap)
            values.append(value)
    return point, values, refused


def in_range(bases, V):
    """Columns between 1/128 and 128 times their component's geometric mean length, the longest one's where that is 0."""
    lengths = [np.linalg.norm(F, axis=0) for F in (V, *bases)]
    mean = np.prod(lengths, axis=0) ** (1 / len(lengths))
    mean = np.where(mean > 0, mean, mean.max())
    clipped = [np.clip(u, mean / 128, mean * 128) for u in lengths[1:]]
    alive = [(u > 0) & (mean > 0) for u in lengths[1:]]
    return [U * np.where(a, c / np.where(a, u, 1), 1) for U, c, u, a in zip(bases, clipped, lengths[1:], alive)]


def her_frobenius(X, start, iterations, sweeps):
    """Without graphs."""
    return her_reference(
        start, iterations, lambda Fs, mode: hals_reference(X, Fs, mode, sweeps), lambda Fs: ref.frobenius(X, Fs)
    )


def her_with_graphs(X, start, iterations, pair, alpha, q, efforts):
    """HALS bases; V by exact solves of its systems, then HALS with D - S <= 2 D; `efforts` are HALS sweeps by mode."""
    Y = ref._penalties(pair, alpha, q, 0.0, None, K)

    def improve(factors, mode):
        M, G = ref.mttkrp(X, factors, mode), ref.gram(factors, mode)
        if mode:
            energies = np.array([ref._energy(Y[j], v) for j, v in enumerate(factors[0].T)])
            G, F = G + np.diag(energies * ref.norms_of(factors, mode)), factors[mode].copy()
        else:
            w = ref.norms_of(factors)
            F = ref._v_step(X, factors, Y, w, "m_matrix").copy()
        for _ in range(efforts[mode]):
            linear, degree = M, np.zeros_like(F)
            if not mode:
                linear = M - np.stack([w[j] * Y[j] @ F[:, j] for j in range(K)], axis=1)
                degree = np.stack([w[j] * np.diag(Y[j]) for j in range(K)], axis=1)
            for j in range(K):
                curvature = G[j, j] + 2 * degree[:, j]
                step = np.where(curvature > 0, 1 / np.where(curvature > 0, curvature, 1), 0)
                F[:, j] = np.maximum(0, F[:, j] + (linear[:, j] - F @ G[:, j]) * step)
        return F

    return her_reference(start, iterations, improve, lambda Fs: ref.nge_objective(X, Fs, pair, alpha, q), unit=True)


def bmme_reference(X, start, iterations, beta, step=1.0):
    """Algorithm 1 of Hien, Leplat and Gillis (2024) with Nesterov's weights, for a CP model; steps may be longer."""
    now, before, t = list(start), list(start), 1.0
    for _ in range(iterations):
        following = (1 + np.sqrt(1 + 4 * t * t)) / 2
        new = list(now)
        for mode in (*range(1, X.ndim), 0):
            F = now[mode] + (t - 1) / following * np.maximum(0, now[mode] - before[mode])
            new[mode] = F
            Y = ref.reconstruct(new)
            down = ref.mttkrp(np.where(X > 0, X * np.where(Y > 0, Y, 1) ** (beta - 2), 0), new, mode)
            up = ref.mttkrp(np.where(Y > 0, np.where(Y > 0, Y, 1) ** (beta - 1), 0 if beta > 1 else 1), new, mode)
            ratio = np.where(up > 0, down / np.where(up > 0, up, 1), np.where(down > 0, np.inf, 1))
            new[mode] = F * (ratio if step == 1 else np.maximum(1 + step * (ratio - 1), (step - 1) * ratio))
        before, now, t = now, new, following
    return now


def assert_same(mine, theirs, tol=1e-9):
    for a, b in zip(mine, theirs, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        np.testing.assert_allclose(a, b, rtol=tol, atol=tol * np.abs(b).max())


@pytest.mark.parametrize("n", [1, 5, 60])
@pytest.mark.parametrize("sweeps", [1, 3])
@pytest.mark.parametrize("order", SHAPES)
def test_frobenius_is_the_published_algorithm(order, sweeps, n):
    X, start = data(order)
    names = ("V", *(f"U{b}" for b in range(1, order)))
    rules = dict.fromkeys([*names[1:], "V"], partial(hals, sweeps=sweeps))
    factors = {name: torch.from_numpy(F) for name, F in zip(names, start)}
    result = run([Fit(X, names)], rules, factors, method=her, max_iter=n, tol=0)
    theirs, values, refused = her_frobenius(X, start, n, sweeps)
    assert_same([result.factors[name] for name in names], theirs, 1e-9 if n <= 5 else 1e-6)
    np.testing.assert_allclose(result.history()["objective"], values, rtol=1e-7)
    assert refused > 0 or n < 60


@pytest.mark.parametrize("order, sweeps", [(2, 6), (3, 5)])
def test_estimators_use_it(order, sweeps):
    X, start = data(order)
    model = NTF(K, init=start, max_iter=8, tol=0, normalize=None).fit(X)
    assert_same([model.embedding_, *model.factors_], her_frobenius(X, start, 8, sweeps)[0])
    assert_same([model.loss_], [ref.frobenius(X, [model.embedding_, *model.factors_])])
    model = NTF(K, loss=1, init=start, max_iter=8, tol=0, normalize=None).fit(X)
    assert_same([model.embedding_, *model.factors_], bmme_reference(X, start, 8, 1, LONGER_STEP), 1e-8)


@pytest.mark.parametrize("store", [np.asarray, sp.csr_array])
def test_four_sweeps_for_data_that_are_nearly_all_zeros(store):
    rng = np.random.default_rng(0)
    X, start = rng.random((30, 20)) * (rng.random((30, 20)) < 0.08), [rng.random((30, 3)), rng.random((20, 3))]
    model = NMF(3, init=start, max_iter=8, tol=0, normalize=None).fit(store(X))
    assert_same([model.embedding_, *model.factors_], her_frobenius(X, start, 8, 4)[0])


@pytest.mark.parametrize("n", [1, 5, 40])
@pytest.mark.parametrize("order", [2, 3])
def test_models_with_graphs_use_it(order, n):
    X, start = data(order, seed=2)
    rng, refusals = np.random.default_rng(4), 0
    pair = [np.triu((rng.random((len(X),) * 2) < 0.4) * rng.random((len(X),) * 2), 1) for _ in range(2)]
    pair = [A + A.T for A in pair]
    for alpha in (0.1, 30.0):
        settings = {"n_discriminative": 2, "graph": pair, "inner_tol": 1e-13, "init": start, "tol": 0}
        model = NGE(K, alpha=alpha, max_iter=n, **settings).fit(X)
        efforts = [min(4, 1 + int((1 + X.size / d / K) / 2)) for d in X.shape]
        theirs, values, refused = her_with_graphs(X, start, n, pair, alpha, 2, efforts)
        assert_same([model.embedding_, *model.factors_], ref.normalise(theirs), 1e-8 if n <= 5 else 1e-5)
        np.testing.assert_allclose(model.history_["objective"], values, rtol=1e-7)
        refusals += refused
    assert refusals > 0 or n < 40


def test_unit_columns_keep_momentum_from_running_away():
    """Bases stay at length one or die."""
    X, start = data(2)
    factors = {name: torch.from_numpy(F) for name, F in zip(("V", "U1"), start)}
    links = np.ones((len(X), len(X))) - np.eye(len(X))
    terms = [Fit(X, ("V", "U1")), Laplacian(links, "V", norms_of=("U1",), weight=0.5)]
    sweep = her(terms, {"U1": hals, "V": hals}, unit=("U1",))
    for _, state in zip(range(300), iterate(sweep, {"factors": factors})):
        lengths = state["memory"]["before"]["U1"].norm(dim=0)
        assert (((lengths - 1).abs() < 1e-12) | (lengths == 0)).all()
        assert state["factors"]["U1"].norm(dim=0).max() < 2
    assert (lengths > 0).any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k", [1, 4])
@pytest.mark.parametrize("shape", [(12, 1), (12, 2), (30, 20), (9, 8, 7)])
def test_factors_do_not_run_apart(shape, k, dtype):
    """The scale that a component's factors share is free: with momentum alone it left the range of the dtype."""
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X = (rng.random(shape) * (rng.random(shape) > 0.3)).astype(dtype)
        fit = Fit(torch.from_numpy(X), ("V", "U1", "U2")[: len(shape)])
        start = dict(zip(fit.modes, init.random(fit.data, k, seed)))
        rules = dict.fromkeys((*fit.modes[1:], "V"), three_sweeps)
        result = run([fit], rules, start, method=her, max_iter=400, tol=0)
        lengths = torch.stack([F.norm(dim=0) for F in result.factors.values()])
        alive = (lengths > 0).all(0)
        assert alive.any() and lengths[:, alive].max() < 1e9
        history = result.history()["objective"]
        assert history[-1] <= history.min() + 2e-5 * (X.astype(float) ** 2).sum()


@pytest.mark.parametrize("exponents", [(8, -8), (1, 1), (2, 2), (8, -4, -4), (6, -3, -3, 0), (6, -6, 0, 0)])
def test_starts_off_balance_and_off_scale_lose_nothing(exponents):
    """Bounded by the last factor's lengths, three factors or more ran away; off scale, no sweep counted as a rise."""
    shape = {2: (30, 20), 3: (8, 7, 6), 4: (5, 4, 3, 4)}[len(exponents)]
    for k, dtype in ((1, np.float64), (4, np.float64), (4, np.float32)):
        rng = np.random.default_rng(k)
        X = rng.random(shape).astype(dtype)
        fit = Fit(torch.from_numpy(X), ("V", "U1", "U2", "U3")[: len(shape)])
        draws = [rng.random((d, k)) * 10.0**e for d, e in zip(shape, exponents)]
        start = {name: torch.from_numpy(F.astype(dtype)) for name, F in zip(fit.modes, draws)}
        rules = dict.fromkeys((*fit.modes[1:], "V"), three_sweeps)
        told = {"max_iter": 150, "tol": 0}
        plain, fast = (run([fit], rules, start, method=method, **told) for method in (step, her))
        assert fast.objective[0] <= 1.05 * plain.objective[0]
        assert fast.objective[0] <= fast.history()["objective"].min() + 2e-5 * (X.astype(float) ** 2).sum()
        assert max(float(F.max()) for F in fast.factors.values()) < 1e9


def test_an_overfitted_problem_keeps_its_fit():
    """More components than features: the factors ran apart to 1e18, then the fit was lost."""
    for seed, dtype in ((1096, np.float64), (16, np.float32)):
        rng = np.random.RandomState(seed)
        X = (rng.rand(12, 1) * (rng.rand(12, 1) > 0.3)).astype(dtype)
        for store in (np.asarray, sp.csr_array):
            model = NMF(4, max_iter=30, tol=0, init="random", random_state=0).fit(store(X))
            assert model.loss_ <= 1e-5 * (X.astype(float) ** 2).sum() and model.embedding_.max() < 1e6


def test_after_a_disaster_a_sweep_has_no_momentum_and_is_kept():
    p, terms, rules, method = spread("frobenius", (3,))
    sweep, state = method(terms, rules), {"factors": p.factors}
    for _ in range(2):
        state = sweep(state)
    ahead = {**state["memory"]["ahead"], "V": state["memory"]["ahead"]["V"].clone()}
    ahead["V"][1] = 0  # bases of zero columns stay as they are, and V is far from where it was
    ahead["U1"] = ahead["U1"].clone()
    ahead["U1"][1, 1:] = 0
    refused = sweep({**state, "memory": {**state["memory"], "ahead": ahead}})
    assert refused["memory"]["reach"].gt(1).tolist() == [True, False, True]
    after = sweep(refused)
    plain = step(terms, rules)({"factors": refused["memory"]["before"]})["factors"]
    for name in p.modes:
        torch.testing.assert_close(after["factors"][name][1], plain[name][1])
    torch.testing.assert_close(after["objective"][1], objective(terms, plain)[1])
    assert after["memory"]["reach"][1] > 1


@pytest.mark.parametrize("n", [1, 5, 60])
@pytest.mark.parametrize("beta", [1, 1.5])
@pytest.mark.parametrize("order", [2, 3])
def test_divergences_are_the_published_algorithm(order, beta, n):
    X, start = data(order)
    names = ("V", *(f"U{b}" for b in range(1, order)))
    rules = dict.fromkeys([*names[1:], "V"], multiplicative)
    factors = {name: torch.from_numpy(F) for name, F in zip(names, start)}
    result = run([BetaFit(X, names, beta)], rules, factors, method=bmme, max_iter=n, tol=0)
    assert_same([result.factors[name] for name in names], bmme_reference(X, start, n, beta), 1e-8)


def spread(case, batch, seed=3, order=2, dtype=torch.float64):
    """A problem of noisy data without an exact fit, the sweep over it, and its first state."""
    method, term, rule = CASES[case]
    p = problem(order, batch, seed=seed, shape=(14, 11) if order == 2 else None, dtype=dtype)
    terms, rules = [term(p.X, p.modes)], dict.fromkeys(p.order_of_updates, rule)
    return p, terms, rules, method


@every_case
@pytest.mark.parametrize("size", [1, 2, 7])
@pytest.mark.parametrize("order", [2, 3])
def test_a_batch_equals_the_separate_runs(case, size, order):
    p, terms, rules, method = spread(case, (size,), order=order)
    told = {"method": method, "max_iter": 25, "tol": 0}
    together = run(terms, rules, p.factors, **told)
    for i in range(size):
        alone = run(terms, rules, take(p.factors, i), **told)
        np.testing.assert_allclose(together.history(i)["objective"], alone.history()["objective"], rtol=1e-9)
        assert_same([together.factors[m][i] for m in p.modes], [alone.factors[m] for m in p.modes])


@every_case
def test_every_problem_stops_by_itself_and_leaves(case):
    p, terms, rules, method = spread(case, (5,), seed=1)
    told = {"method": method, "max_iter": 400, "tol": 1e-3}
    together = run(terms, rules, p.factors, **told)
    assert len(set(together.n_iter)) > 1 and together.converged.all()
    for i in range(5):
        alone = run(terms, rules, take(p.factors, i), **told)
        assert alone.n_iter[0] == together.n_iter[i]
        np.testing.assert_allclose(alone.objective[0], together.objective[i], rtol=1e-7)


def test_every_problem_restarts_by_itself():
    p, terms, rules, method = spread("frobenius", (6,))
    before, mixed = {"factors": p.factors}, 0
    for _, state in zip(range(60), iterate(method(terms, rules), before)):
        refused = state["memory"]["limit"] > state["objective"] + 2 * state["memory"]["rounding"]
        mixed += bool(refused.any() and not refused.all())
        for i in range(6):
            same = [torch.equal(state["factors"][m][i], before["factors"][m][i]) for m in p.modes]
            assert all(same) if refused[i] else not all(same)
            if refused[i]:  # no momentum is left, and less is allowed
                assert all(
                    torch.equal(state["memory"]["ahead"][m][i], state["memory"]["before"][m][i]) for m in p.modes
                )
                assert state["memory"]["weight"][i] < before["memory"]["weight"][i]
        before = state
    assert mixed > 3


def test_nan_is_refused_and_recovered_from():
    p, terms, rules, method = spread("frobenius", (3,))
    sweep, state = method(terms, rules), {"factors": p.factors}
    for _ in range(5):
        state = sweep(state)
    for poison in (torch.nan, torch.inf):
        poisoned = {name: F.clone() for name, F in state["memory"]["ahead"].items()}
        poisoned["V"][1] = poison
        after = sweep({**state, "memory": {**state["memory"], "ahead": poisoned}})
        assert all(torch.equal(after["factors"][m][1], state["factors"][m][1]) for m in p.modes)
        assert after["objective"][1] == state["objective"][1] and (after["objective"] <= state["objective"]).all()
        for _ in range(40):
            after = sweep(after)
        assert torch.isfinite(torch.cat([F.flatten() for F in after["factors"].values()])).all()
        assert after["objective"][1] < state["objective"][1]


@every_case
def test_states_are_feasible_and_know_their_objective(case):
    for seed in range(2):
        p, terms, rules, method = spread(case, (2,), seed=seed, order=2 + seed % 2)
        for _, state in zip(range(30), iterate(method(terms, rules), {"factors": p.factors})):
            assert all(bool((F >= 0).all()) and F.mT.is_contiguous() for n, F in state["factors"].items() if n in rules)
            if "objective" in state:
                torch.testing.assert_close(state["objective"], objective(terms, state["factors"]), rtol=1e-9, atol=0)


@every_case
def test_better_than_plain_sweeps_after_as_many(case):
    method, term, rule = CASES[case]
    behind = []
    for seed in range(8):
        p = problem(
            2 + seed % 2, seed=seed, k=8, zeros=(0.0, 0.2)[seed // 2 % 2], shape=((40, 30), (12, 11, 10))[seed % 2]
        )
        p.X[0] = p.X[:, 3] = 0
        terms, rules = [term(p.X, p.modes)], dict.fromkeys(p.order_of_updates, rule)
        plain, fast = (run(terms, rules, p.factors, max_iter=30, tol=0, **m) for m in ({}, {"method": method}))
        behind.append(float(fast.objective[0] / plain.objective[0]) - 1)
        assert fast.history()["objective"].max() <= fast.history()["objective"][0]
    assert np.median(behind) < -1e-3 and max(behind) < 0.2


def test_divergences_hardly_ever_rise():
    rises = []
    for beta in (1, 1.5):
        for seed in range(4):
            p = problem(2, seed=seed, zeros=0.3 * (seed % 2), shape=(20, 15))
            rules = dict.fromkeys(p.order_of_updates, multiplicative)
            for length in (1.0, LONGER_STEP):
                how = {"method": partial(bmme, step=length), "max_iter": 100, "tol": 0, "record_all": True}
                values = run([BetaFit(p.X, p.modes, beta)], rules, p.factors, **how).history()["objective"]
                rises.append(np.max(np.diff(values)) / values[0])
    assert max(rises) < 1e-3


def test_products_with_the_data_are_two_an_iteration():
    p = problem(2, seed=1, shape=(30, 20))
    fit = Fit(p.X, p.modes)
    counts = {"times": 0, "times_transposed": 0}
    for name in counts:
        product = getattr(fit.data, name)
        setattr(
            fit.data, name, lambda F, name=name, product=product: counts.update({name: counts[name] + 1}) or product(F)
        )
    with without_compiled_loops():  # a loop that is compiled as a whole makes them itself
        run([fit], dict.fromkeys(("U1", "V"), hals), p.factors, method=her, max_iter=50, tol=0)
    assert counts == {"times": 51, "times_transposed": 50}  # one more for the objective at the start


@pytest.mark.parametrize("order", [2, 3, 4])
def test_graph_models_take_two_products_with_the_data_a_sweep(order, monkeypatch):
    """At any order: to bring bases to unit length does not void what is remembered of the others."""
    p = problem(order, (), seed=0, shape=(12, 7, 6, 5)[:order])
    data, counts = as_data(p.X), {"times": 0, "times_transposed": 0}
    for name in counts:
        product = getattr(data, name)
        monkeypatch.setattr(
            data, name, lambda F, name=name, product=product: counts.update({name: counts[name] + 1}) or product(F)
        )
    terms = [Fit(data, p.modes), Laplacian(p.own, "V", norms_of=p.modes[1:], weight=3.0)]
    rules, method = fastest(p.modes, data.shape, 3, m_matrix)
    run(terms, rules, p.factors, method=method, max_iter=30, tol=0)
    assert min(counts.values()) == 30 and max(counts.values()) <= 33  # more where the start is brought to length one


def test_efforts_follow_the_arithmetic():
    X = np.random.default_rng(0).random((200, 30))
    dense, sparse = as_data(X), as_data(sp.csr_array(X * (X > 0.95)))
    assert hals_sweeps(dense.shape, 10) == (3, 4) and hals_sweeps(dense.shape, 100) == (
        1,
        2,
    )  # ratios 3 and 20, 0.3 and 2
    assert hals_sweeps(sparse.shape, 10) == (3, 4)  # the same factors as those of dense data
    assert [cg_steps(s) for s in (0, 100, 800, 2700, 1e9, np.inf)] == [4, 4, 8, 12, 24, 24]
    assert cg_steps(800, momentum=False) == 4


def test_a_penalty_without_a_minimum_has_no_momentum():
    """(c U, V / c) lowers the printed penalty of GraphNMF: with momentum U left the range of float32."""
    rng = np.random.default_rng(1)
    X = np.kron(np.eye(3), np.ones((5, 3))) * rng.random((15, 9)) + 0.1 * rng.random((15, 9))
    told = {"lam": 1e7, "n_neighbors": 3, "init": "random", "max_iter": 300, "tol": 0, "random_state": 0}
    model = GraphNMF(3, solver="auto", **told).fit(X.astype(np.float32))
    history = model.history_["objective"]
    assert (np.diff(history) <= 1e-5 * history[0]).all() and model.embedding_.max() > 0
    assert model.loss_ <= 1.01 * GraphNMF(3, solver="hals", **told).fit(X.astype(np.float32)).loss_


def test_multiplicative_never_extrapolates():
    X, start = data(2)
    model = NMF(K, solver="multiplicative", init=start, max_iter=5, tol=0, normalize=None).fit(X)
    assert_same([model.embedding_, *model.factors_], _iterated(lambda Fs: ref.nmf_step(X, *Fs), start, 5))
    model = NMF(K, loss=1, solver="mu", init=start, max_iter=5, tol=0, normalize=None).fit(X)
    assert_same([model.embedding_, *model.factors_], _iterated(lambda Fs: ref.beta_step(X, *Fs, 1), start, 5))


def _iterated(update, factors, n):
    for _ in range(n):
        factors = update(factors)
    return factors


@pytest.mark.parametrize("loss", ["frobenius", "kullback-leibler", 1.5])
def test_edges(loss):
    """1 x 1, more components than entries, constants, zeros, sparse, both precisions."""
    rng = np.random.default_rng(0)
    fit = lambda A, k, **kw: NMF(k, loss=loss, random_state=0, max_iter=60, tol=0, **kw).fit(A)
    exact = {
        "one": np.full((1, 1), 3.0),
        "wide": rng.random((3, 4)),
        "ones": np.ones((6, 5)),
        "zeros": np.zeros((4, 3)),
    }
    for A in exact.values():
        for dtype in (np.float32, np.float64):
            model = fit(A.astype(dtype), 5, init="random")
            assert (model.embedding_ >= 0).all() and np.isfinite(model.embedding_).all()
            assert model.reconstruction_err_ <= 0.05 * np.linalg.norm(A)
    A = rng.random((20, 12)) * (rng.random((20, 12)) > 0.7)
    dense, sparse, single = fit(A, 3), fit(sp.csr_array(A), 3, init="random"), fit(A.astype(np.float32), 3)
    assert_same([sparse.loss_], [fit(A, 3, init="random").loss_], 1e-6)
    np.testing.assert_allclose(single.loss_, dense.loss_, rtol=1e-4)


def test_float32_reaches_the_objective_of_float64():
    X = np.random.default_rng(5).random((60, 40))
    start = [np.random.default_rng(s).random((d, 5)) for s, d in ((1, 60), (2, 40))]
    for loss in ("frobenius", 1):
        one, two = (
            NMF(5, loss=loss, init=start, max_iter=40, tol=0).fit(X.astype(t)) for t in (np.float32, np.float64)
        )
        np.testing.assert_allclose(one.loss_, two.loss_, rtol=1e-4)


def test_kullback_leibler_factors_hold_no_denormal_numbers():
    """Products with numbers below the normal ones take a hundred times as long."""
    X = np.random.default_rng(0).poisson(0.7, (40, 30)).astype(np.float32)
    X[:, :5] = 0
    fit = BetaFit(X, ("V", "U1"))
    start = dict(zip(fit.modes, init.random(fit.data, 6, 0)))
    rules = dict.fromkeys(("U1", "V"), multiplicative)
    for F in run([fit], rules, start, method=bmme, max_iter=400, tol=0).factors.values():
        assert not ((F > 0) & (F < 1e-30)).any() and (F == 0).any()


@pytest.mark.parametrize("shape", [(9, 1, 5), (1, 6, 5), (7, 1)])
def test_a_mode_of_length_one_does_not_change_the_start(shape):
    X = torch.rand(shape, dtype=torch.float64)
    with_it = init.random(as_data(X), 3, seed=5)
    if len(shape) > 2:
        without = init.random(as_data(X.squeeze()), 3, seed=5)
        for mine, other in zip([F for F in with_it if len(F) > 1], without):
            assert torch.equal(mine, other)
    assert all(bool((F == 1).all()) for F in with_it if len(F) == 1)
    assert sum(len(F) > 1 for F in with_it) == sum(d > 1 for d in shape)
