"""Mini-batches: sums that stand for samples, fits batch by batch, streams."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.decomposition import MiniBatchNMF
from tables import problem

from nnfactor import N2S2L, NGE, NMF, NTF, MarginalFisher
from nnfactor.core import BetaFit, Fit, Graph, Laplacian, hals, multiplicative, objective, projected_gradient, run
from nnfactor.core.data.sparse import Sparse
from nnfactor.core.solve.minibatch import MiniBatchSweep, cut_batches, update_sums
from nnfactor.core.terms.base import block_of
from nnfactor.core.terms.batch_laplacian import BatchLaplacian, BatchNeighbourhood
from nnfactor.core.terms.statistics import KLStatistics, SufficientStatistics, energies, zero_sums
from nnfactor.graphs import marginal_fisher_graphs

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
DIGITS = load_digits(return_X_y=True)


def data(n=40, m=9, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    return (rng.random((n, 3)) ** 2 @ rng.random((3, m)) + 0.02 * rng.random((n, m))).astype(dtype)


def counts(seed=0, n=300, m=900, k=4):
    """Counts of words in documents with about 2 % nonzeros; most batches lack most words."""
    rng = np.random.default_rng(seed)
    topics, shares = rng.dirichlet(np.full(m, 0.1), k), rng.dirichlet(np.full(k, 0.2), n)
    return sp.csr_array(rng.poisson(shares * rng.gamma(3.0, 8.0, (n, 1)) @ topics).astype(float))


def divergence(X, V, H):
    """Kullback-Leibler divergence without any clamp: infinite where a count is predicted as zero."""
    X, Y = X.toarray() if sp.issparse(X) else X, V @ H
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.where(X > 0, X * np.log(X / Y), 0).sum() - X.sum() + Y.sum())


def dead(model, X):
    """Count the features that X has and the bases lack."""
    return int((~model.factors_[0].any(1) & (np.asarray(X.sum(0)).ravel() > 0)).sum())


def labels(n, seed=0):
    return np.random.default_rng(seed).integers(-1, 3, size=n)


# --- the sums as a term


@pytest.mark.parametrize("order", [2, 3, 4])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_moments_are_what_the_bases_see_of_all_samples(order, batch):
    p = problem(order, batch)
    graphs = [Laplacian(p.own, "V", norms_of=p.modes[1:], weight=2.0, columns=p.first)]
    bare = [Laplacian(p.own, "V", weight=2.0, columns=p.first)]
    fit = Fit(p.X, p.modes)
    term = SufficientStatistics(p.modes[1:], fit.data.sqnorm())
    state = {**p.factors, **zero_sums(term, p.factors)}
    for rows in cut_batches(len(p.X), 2, 0):
        rows = torch.from_numpy(rows)
        share = term.sum_samples(fit.data.take(rows), {"V": p.factors["V"][..., rows, :]})
        state |= update_sums({key: state[key] for key in share}, share)
    state["energy"] = energies(bare, p.factors["V"])
    torch.testing.assert_close(term.value(state), objective([fit, *graphs], p.factors))
    for name in p.modes[1:]:
        mine, full = block_of([term], state, name), block_of([fit, *graphs], p.factors, name)
        torch.testing.assert_close(mine.gradient_plus(state[name]), full.gradient_plus(state[name]))
        torch.testing.assert_close(mine.gradient_minus(state[name]), full.gradient_minus(state[name]))


def test_half_gradients_of_the_sums():
    p = problem(2, (2,))
    for term, fit in (
        (SufficientStatistics(("U1",)), Fit(p.X, p.modes)),
        (KLStatistics(("U1",)), BetaFit(p.X, p.modes, 1.0)),
    ):
        state = {**p.factors, **zero_sums(term, p.factors)}
        state |= update_sums(state, term.sum_samples(fit.data, state))
        U = state["U1"].clone().requires_grad_()
        (gradient,) = torch.autograd.grad(term.value({**state, "U1": U}).sum(), U)
        block = term.block(state, "U1")
        torch.testing.assert_close(block.half_gradient(state["U1"]), gradient / 2)
        full = fit.block(state, "U1")
        torch.testing.assert_close(block.half_gradient(state["U1"]), full.half_gradient(state["U1"]))


def test_bases_are_stationary_for_the_sums_of_their_own_model():
    p = problem(3, (2,))
    energy = torch.rand(2, 1, 4, dtype=torch.float64)
    cases = [(SufficientStatistics(p.modes[1:]), p.factors | {"energy": energy})]
    p = problem(2, (2,))
    cases.append((KLStatistics(("U1",)), p.factors))
    for term, factors in cases:
        state = factors | term.sum_model(factors)
        for name in term.modes:
            half = term.block(state, name).half_gradient(state[name])
            torch.testing.assert_close(half, torch.zeros_like(half), atol=1e-9, rtol=0)


def test_frequencies_are_forgotten_more_slowly_than_their_split():
    p = problem(2)
    term = KLStatistics(("U1",))
    sums = term.sum_model(p.factors)
    sums["counts"] = sums["counts"] * torch.linspace(1, 2, len(sums["counts"]), dtype=torch.float64)[:, None]
    left = term.forget(sums, 1 / 4)
    rows, before = left["linear_minus"].sum(-1), sums["linear_minus"].sum()
    torch.testing.assert_close(rows.sum(), before / 16)
    torch.testing.assert_close(rows / rows.sum(), sums["counts"][:, 0] / sums["counts"].sum())
    split = lambda B: B / B.sum(-1, keepdim=True)
    torch.testing.assert_close(split(left["linear_minus"]), split(sums["linear_minus"]))
    torch.testing.assert_close(left["counts"], sums["counts"] / 2)
    nothing = {key: 0 * total for key, total in sums.items()}
    assert all(not total.any() for total in term.forget(nothing, 0.5).values())


def test_a_share_that_is_taken_out_leaves_nothing():
    p = problem(2, dtype=torch.float32)
    term, fit = SufficientStatistics(("U1",)), Fit(p.X, p.modes)
    zero = zero_sums(term, p.factors)
    share = term.sum_samples(fit.data, p.factors)
    for key, left in update_sums(update_sums(zero, share), {k: 0 * v for k, v in share.items()}, share).items():
        assert left.dtype == torch.float64 and not left.any(), key


# --- graphs cut at a batch


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_cut_sees_the_whole_graph(batch, weighted):
    """Gradient, energy changes and curvature of a batch's V are those of the term over all samples."""
    rng = np.random.default_rng(0)
    n, rows = 12, np.array([7, 0, 3, 4, 11])
    A = np.triu(rng.random((n, n)) < 0.4, 1) * (rng.random((n, n)) if weighted else 1.0)
    links = Graph(A + A.T, cliques=rng.integers(-1, 3, size=n), clique_weight=0.7)
    V, U = (torch.as_tensor(rng.random((*batch, 4, d))).mT for d in (n, 5))
    for columns in (None, np.arange(4) > 1, np.zeros(4)):
        graph = Laplacian(links, "V", norms_of=("U1",), weight=3.0, columns=columns)
        cut = BatchNeighbourhood(graph, rows)
        mine = BatchLaplacian(cut, cut.outside(V))
        here, new = V[..., rows, :], V.clone()
        new[..., rows, :] = torch.as_tensor(rng.random(here.shape))
        full = graph.block({"V": V, "U1": U}, "V")
        part = mine.block({"V": here, "U1": U}, "V")
        expected = full.half_gradient(V)[..., rows, :]
        torch.testing.assert_close(part.half_gradient(here).expand_as(expected), expected)
        whole = [Laplacian(links, "V", weight=3.0, columns=columns)]
        change = mine.energy(new[..., rows, :]) - mine.energy(here)
        torch.testing.assert_close(change, energies(whole, new) - energies(whole, V))


def test_batches_are_a_partition():
    links = Graph(np.eye(23, k=1) + np.eye(23, k=-1))
    for given in ({}, {"graphs": [links]}, {"graphs": [links], "codes": labels(23)}):
        for size in (1, 5, 23, 100):
            batches = cut_batches(23, size, 0, **given)
            assert sorted(np.concatenate(batches)) == list(range(23))
            assert max(map(len, batches)) <= size and len(batches) == -(-23 // size)


# --- fit


def _mu_epoch(X, V, U, rows_of_batches, order):
    """Incremental multiplicative epoch in plain numpy: exact sums, one V update and one U update per visit."""
    for b in order:
        rows = rows_of_batches[b]
        V[rows] *= (X[rows] @ U) / (V[rows] @ (U.T @ U))
        U *= (X.T @ V) / (U @ (V.T @ V))
    return V, U


def test_epochs_against_plain_numpy():
    X, rng = data(), np.random.default_rng(1)
    V, U = rng.random((40, 3)) + 0.1, rng.random((9, 3)) + 0.1
    fit = Fit(torch.from_numpy(X), ("V", "U1"))
    batches = cut_batches(40, 7, 3)
    rules = {"U1": multiplicative, "V": multiplicative}
    epochs = MiniBatchSweep([fit], rules, batches, seed=5, n_repeats=1)
    state = epochs.begin({"V": torch.from_numpy(V.copy()), "U1": torch.from_numpy(U.copy())})
    order = np.random.default_rng(5)
    V *= (X @ U) / (V @ (U.T @ U))
    for _ in range(4):
        V, U = _mu_epoch(X, V, U, batches, order.permutation(len(batches)))
        state = epochs(state)
    np.testing.assert_allclose(state["factors"]["V"], V, rtol=1e-9)
    np.testing.assert_allclose(state["factors"]["U1"], U, rtol=1e-9)
    np.testing.assert_allclose(epochs.term.value(state["factors"]), ((X - V @ U.T) ** 2).sum(), rtol=1e-9)


FITS = {
    "NMF": lambda **kw: NMF(3, **kw),
    "NMF, multiplicative": lambda **kw: NMF(3, solver="mu", **kw),
    "NMF, projected": lambda **kw: NMF(3, solver="projected", **kw),
    "NMF, KL": lambda **kw: NMF(3, loss="kullback-leibler", **kw),
    "NTF": lambda **kw: NTF(3, sample_shape=(3, 3), **kw),
    "NGE": lambda **kw: NGE(3, alpha=1.0, **kw),
    "NGE, m_matrix": lambda **kw: NGE(3, alpha=30.0, **{"solver": "m_matrix"} | kw),
    "NGE, cliques": lambda **kw: NGE(3, graph=MarginalFisher(n_neighbors=99), **kw),
    "NGE, tensor": lambda **kw: NGE(3, sample_shape=(3, 3), **kw),
}


@pytest.mark.parametrize("name", FITS)
def test_the_objective_never_rises_and_is_the_published_one(name):
    X, y = data(), labels(40)
    model = FITS[name](batch_size=11, max_iter=12, tol=0, random_state=0, verbose=2).fit(X, y)
    objective = model.history_["objective"]
    assert (np.diff(objective) <= 1e-9 * objective[0]).all()
    assert model.loss_ <= objective[-1] * (1 + 1e-9)
    assert model.n_iter_ == 12 and model.n_steps_ == 48 and model.n_samples_seen_ == 40
    if "KL" not in name and "NGE" not in name:
        error = np.linalg.norm(X - model.inverse_transform(model.embedding_).reshape(40, -1))
        np.testing.assert_allclose([error, error**2], [model.reconstruction_err_, model.loss_], rtol=1e-9)


@pytest.mark.parametrize("rule", [multiplicative, hals, projected_gradient])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_one_batch_of_all_samples_is_the_full_iteration_from_its_second_half(rule, batch):
    p = problem(2, batch)
    fit, rules = Fit(p.X, p.modes), {"U1": rule, "V": rule}
    epochs = MiniBatchSweep([fit], rules, [np.arange(len(p.X))], seed=0, n_repeats=1)
    state = epochs.begin({m: p.factors[m] for m in p.modes})
    half = {m: state["factors"][m] for m in p.modes}
    half["V"] = rule(half["V"], block_of([fit], half, "V"))
    full = run([fit], rules, half, max_iter=5, tol=0).factors
    for _ in range(6):
        state = epochs(state)
    torch.testing.assert_close(state["factors"]["V"], full["V"], rtol=1e-9, atol=0)


@pytest.mark.parametrize("name", ["NMF", "NTF", "NGE", "NGE, cliques"])
def test_the_full_fit_finds_little_to_improve_after_mini_batches(name):
    X, y = data(), labels(40)
    model = FITS[name](batch_size=15, max_iter=150, tol=0, random_state=0).fit(X, y)
    on = FITS[name](init=(model.embedding_, *model.factors_), max_iter=3, tol=0).fit(X, y)
    assert 0.99 * model.loss_ <= on.loss_ <= model.loss_ * (1 + 1e-9)


@pytest.mark.parametrize("kw", [{"loss": "frobenius"}, {"loss": "kullback-leibler"}])
def test_sparse_and_float32_and_zeros_and_restarts(kw):
    X = data() * (np.random.default_rng(0).random((40, 9)) < 0.5)
    X[3], X[:, 2] = 0, 0
    make = lambda **more: NMF(3, batch_size=8, max_iter=15, tol=0, random_state=0, **kw, **more)
    dense, sparse = make(init="random").fit(X), make(init="random").fit(sp.csr_array(X))
    np.testing.assert_allclose(sparse.loss_, dense.loss_, rtol=1e-8)
    single = make(init="random").fit(X.astype(np.float32))
    assert single.embedding_.dtype == single.components_.dtype == np.float32
    np.testing.assert_allclose(single.loss_, dense.loss_, rtol=1e-3)
    assert not dense.embedding_[3].any() and np.isfinite(dense.components_).all()
    several = make(n_init=3).fit(X)
    np.testing.assert_allclose(several.loss_, several.restarts_["loss"].min(), rtol=1e-9)
    alone = make().fit(X)
    np.testing.assert_allclose(several.restarts_["loss"][0], alone.loss_, rtol=1e-9)


def test_no_epoch_publishes_the_start():
    X = data()
    V, U = np.random.default_rng(0).random((40, 3)), np.random.default_rng(1).random((9, 3))
    model = NMF(3, init=(V, U), batch_size=10, max_iter=0).fit(X)
    np.testing.assert_array_equal(model.embedding_, V)
    np.testing.assert_array_equal(model.factors_[0], U)
    assert model.n_steps_ == 0


def test_zero_data():
    model = NMF(2, batch_size=2, random_state=0).fit(np.zeros((5, 4)))
    assert model.loss_ == 0 and not model.embedding_.any()
    stream = NMF(2, random_state=0).partial_fit(np.zeros((5, 4)))
    for _ in range(20):
        stream.partial_fit(1e-20 * data(30, 4))
    left = 1e-20 * data(30, 4) - stream.transform(1e-20 * data(30, 4)) @ stream.components_
    assert np.linalg.norm(left) < 0.2 * np.linalg.norm(1e-20 * data(30, 4))


def test_given_graphs_are_cut_to_batches():
    X, y = data(), labels(40)
    built = NGE(3, alpha=5.0, batch_size=9, max_iter=8, tol=0, random_state=0).fit(X, y)
    given = NGE(3, alpha=5.0, batch_size=9, max_iter=8, tol=0, random_state=0, graph=built.graph_, n_discriminative=3)
    np.testing.assert_allclose(given.fit(X, y).loss_, built.loss_, rtol=1e-9)


@pytest.mark.parametrize(("make", "size"), [(lambda **kw: NMF(10, **kw), 300), (lambda **kw: NGE(10, **kw), 300)])
def test_digits_within_two_percent_of_the_batch_objective(make, size):
    X, y = DIGITS[0][:900].astype(np.float32), DIGITS[1][:900]
    full = make(random_state=0).fit(X, y)
    mini = make(random_state=0, batch_size=size).fit(X, y)
    assert mini.loss_ <= 1.02 * full.loss_


# --- fit: what one batch lacks


@pytest.mark.parametrize("size", [15, 50, 150])
@pytest.mark.parametrize("seed", [0, 1])
def test_batches_of_sparse_counts_come_near_the_full_fit(size, seed):
    X = counts(seed)
    assert 0.015 < X.nnz / np.prod(X.shape) < 0.025
    make = lambda **kw: NMF(4, loss="kullback-leibler", random_state=0, **kw).fit(X)
    full, mini = make(), make(batch_size=size)
    other = MiniBatchNMF(4, beta_loss="kullback-leibler", batch_size=size, random_state=0).fit(X)
    assert dead(mini, X) == 0
    found = divergence(X, mini.embedding_, mini.components_)
    np.testing.assert_allclose(found, mini.loss_, rtol=1e-6)
    assert found <= 1.03 * full.loss_
    assert found <= 1.01 * divergence(X, other.transform(X), other.components_)


@pytest.mark.parametrize("kw", [{}, {"solver": "hals"}, {"solver": "mu"}, {"init": "random"}])
def test_frobenius_batches_of_sparse_counts_come_near_the_full_fit(kw):
    X = counts()
    full = NMF(4, random_state=0, **kw).fit(X)
    for size in (15, 50, 150):
        mini = NMF(4, random_state=0, batch_size=size, **kw).fit(X)
        assert dead(mini, X) == 0 and mini.loss_ <= 1.01 * full.loss_


@pytest.mark.parametrize("name", ["NTF", "NGE", "NGE, m_matrix", "NGE, tensor"])
def test_what_most_batches_lack_is_learned_with_graphs_and_of_tensors(name):
    X, y = data(60), labels(60)
    X[5:, 7:] = 0
    kw = {"solver": "m_matrix" if "m_matrix" in name else "mu", "random_state": 0, "max_iter": 80, "tol": 0}
    full, mini = (FITS[name](batch_size=size, **kw).fit(X, y) for size in (None, 10))
    assert all(F.any(1).all() for F in mini.factors_) and mini.loss_ <= 1.1 * full.loss_


@pytest.mark.parametrize("name", [name for name in FITS if "NGE" not in name])
def test_a_given_start_is_never_made_worse(name):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.random((46, 3)) @ rng.random((3, 9)) + 0.3 * rng.random((46, 9))
        start = FITS[name](random_state=0, tol=1e-9, max_iter=400).fit(X)
        for size in (3, 15):
            init = (start.embedding_, *start.factors_)
            model = FITS[name](init=init, batch_size=size, random_state=0, max_iter=5).fit(X)
            assert model.loss_ <= start.loss_ * (1 + 1e-9)
            assert model.history_["objective"][0] <= start.loss_ * (1 + 1e-9)


def test_no_fit_whose_last_epoch_rose_has_converged():
    for seed in range(4):
        X = counts(seed, 80, 150)
        for loss in ("frobenius", "kullback-leibler"):
            model = NMF(3, loss=loss, batch_size=10, random_state=0, tol=1e-3).fit(X)
            *_, before, last = model.history_["objective"]
            assert model.converged_ and last <= before


# --- partial_fit


def _hals(F, G, P):
    for j in range(F.shape[1]):
        if G[j, j] > 0:
            F[:, j] = np.maximum(F[:, j] + (P[:, j] - F @ G[:, j]) / G[j, j], 0)


def test_partial_fit_against_plain_numpy():
    """Mairal et al. 2010 with HALS, forgetting and rounds on a batch, written out."""
    X, U = data(60), np.random.default_rng(2).random((9, 3))
    model = NMF(3, normalize=None, solver="hals", init=(None, U), forgetting=1.5)
    A, B, seen, U = np.zeros((3, 3)), np.zeros((9, 3)), 0, U.copy()
    for rows in (slice(0, 25), slice(25, 35), slice(35, 60)):
        x = X[rows]
        keep = (seen / (seen + len(x))) ** 1.5
        V = np.repeat((x @ U).sum(1, keepdims=True) / (U.T @ U).sum(), 3, axis=1)
        A, B = keep * A, keep * B
        if not seen:  # a small share of what the start makes of these samples
            A, B = 1e-6 * V.T @ V, 1e-6 * U @ V.T @ V
        for i in range(30 if seen < 30 else 3):
            for _ in range(1 if i else 7):
                _hals(V, U.T @ U, x @ U)
            _hals(U, A + V.T @ V, B + x.T @ V)
        A, B, seen = A + V.T @ V, B + x.T @ V, seen + len(x)
        model.partial_fit(x)
        np.testing.assert_allclose(model.components_, U.T, rtol=1e-8, atol=1e-12)
        np.testing.assert_allclose(model.moments_["linear_minus"], B, rtol=1e-8, atol=1e-12)
        np.testing.assert_allclose(model.moments_["gram"], A, rtol=1e-8, atol=1e-12)
    assert (model.n_steps_, model.n_samples_seen_) == (3, 60)


def test_partial_fit_kullback_leibler_against_plain_numpy():
    """Lefevre, Bach and Fevotte 2011 at beta = 1, with frequencies that are forgotten more slowly, written out."""
    X, U = data(60), np.random.default_rng(2).random((9, 3)) + 0.1
    model = NMF(3, normalize=None, loss="kullback-leibler", init=(None, U), forgetting=1.0)
    seen, U = 0, U.copy()
    for x, rounds in ((X[:25], 30), (X[25:35], 30), (X[35:], 20)):
        V = np.repeat((x @ U).sum(1, keepdims=True) / (U.T @ U).sum(), 3, axis=1)
        if not seen:
            A, B = 0.01 * U * V.sum(0), 0.01 * V.sum(0)
            counts = A.sum(1) + x.sum(0)
        else:
            keep = (seen / (seen + len(x))) ** 2
            A = keep * A.sum() * (counts / counts.sum())[:, None] * A / A.sum(1, keepdims=True)
            B, counts = keep * B, keep**0.25 * counts + x.sum(0)
        seen += len(x)
        for i in range(rounds):
            for _ in range(1 if i else 10):
                V *= (x / (V @ U.T)) @ U / U.sum(0)
            a, b = U * ((x / (V @ U.T)).T @ V), V.sum(0)
            U = (A + a) / (B + b)
        A, B = A + a, B + b
        model.partial_fit(x)
        np.testing.assert_allclose(model.components_, U.T, rtol=1e-8)
        np.testing.assert_allclose(model.moments_["counts"], counts[:, None], rtol=1e-8)


LATE = {
    "KL": lambda **kw: NMF(3, loss="kullback-leibler", **kw),
    "auto": lambda **kw: NMF(3, **kw),
    "mu": lambda **kw: NMF(3, solver="mu", **kw),
    "NTF": lambda **kw: NTF(3, sample_shape=(4, 5), solver="mu", **kw),
    "NGE": lambda **kw: NGE(3, alpha=1.0, solver="mu", **kw),
    "NGE, m_matrix": lambda **kw: NGE(3, alpha=1.0, solver="m_matrix", **kw),
}


@pytest.mark.parametrize("begin", ["partial_fit", "fit", "long"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", LATE)
def test_a_feature_that_comes_late_is_learned(name, dtype, begin):
    """Feature 7 has mean 3 in later batches and is absent from the first, a fit, or many that forget their start."""
    X, y = np.random.default_rng(0).poisson(3.0, (400, 20)).astype(dtype), labels(400)
    X[:200, 5:10] = 0
    model = LATE[name](random_state=0, forgetting=10.0 if begin == "long" else 2.0)
    if begin == "fit":
        model.fit(X[:200], y[:200])
    for rows in [slice(0, 200)] * {"partial_fit": 1, "fit": 0, "long": 20}[begin]:
        model.partial_fit(X[rows], y[rows])
    for rows in (slice(200, 300), slice(300, 400), slice(200, 400)):
        model.partial_fit(X[rows], y[rows])
    predicted = model.inverse_transform(model.transform(X[200:])).reshape(200, 20)
    assert 1.5 < predicted[:, 7].mean() < 4.5


def test_zeros_of_given_bases_stay():
    """They say which features a component may hold."""
    X, U = counts(0, 60, 20).toarray() + 1, np.random.default_rng(0).random((20, 3))
    U[4:9, 1] = 0
    for kw in ({"loss": "kullback-leibler"}, {"solver": "mu"}):
        stream = NMF(3, normalize=None, init=(None, U), **kw).partial_fit(X[:30]).partial_fit(X[30:])
        fitted = NMF(3, normalize=None, init=(np.ones((30, 3)), U), **kw).fit(X[:30]).partial_fit(X[30:])
        for model in (stream, fitted):
            np.testing.assert_array_equal(model.factors_[0] == 0, U == 0)


@pytest.mark.parametrize("loss", ["frobenius", "kullback-leibler"])
@pytest.mark.parametrize("size", [15, 50, 150])
def test_one_pass_over_sparse_counts_is_no_worse_than_scikit_learn(size, loss):
    ratios = []
    for seed in range(4):
        X = counts(seed)
        stream, other = NMF(4, loss=loss, random_state=0), MiniBatchNMF(4, beta_loss=loss, random_state=0)
        for a in range(0, X.shape[0], size):
            stream.partial_fit(X[a : a + size])
            other.partial_fit(X[a : a + size])
        assert dead(stream, X) == 0
        of = divergence if loss == "kullback-leibler" else lambda X, V, H: float(np.square(X.toarray() - V @ H).sum())
        found = [of(X, model.transform(X), model.components_) for model in (stream, other)]
        ratios.append(found[0] / found[1])
    assert max(ratios) <= 1.01 and np.mean(ratios) <= 1.003


def test_a_stream_keeps_its_parameters():
    X, y = data(60), labels(60)
    begun = lambda model: [model.partial_fit(X, y), clone(model).fit(X, y)]
    changes = [
        (NMF(3), {"n_components": 5}),
        (NMF(3), {"loss": "kullback-leibler"}),
        (NMF(3, loss=1), {"loss": "frobenius"}),
        (NGE(4), {"n_components": 6}),
        (NGE(4), {"n_discriminative": 1}),
        (NTF(3, sample_shape=(3, 3)), {"sample_shape": (9, 1)}),
    ]
    for model, change in changes:
        for fitted in begun(model):
            before = pickle.dumps(fitted.set_params(**change))
            with pytest.raises(ValueError, match=f"^{next(iter(change))}="):
                fitted.partial_fit(X, y)
            assert pickle.dumps(fitted) == before
    NMF(3, loss="kullback-leibler").partial_fit(X).set_params(loss=1, forgetting=1.0).partial_fit(X)
    with pytest.raises(ValueError, match="one type"):
        NGE(4).partial_fit(X, np.where(y > 0, "a", "b")).partial_fit(X, y)


STREAMS = {key: FITS[key] for key in ("NMF", "NMF, multiplicative", "NMF, KL", "NTF", "NGE", "NGE, tensor")}


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_can_be_pickled_and_repeated(name):
    X, y = data(60), labels(60)
    chunks = [slice(0, 20), slice(20, 21), slice(21, 60)]
    one, other = (STREAMS[name](random_state=0) for _ in range(2))
    for rows in chunks:
        one.partial_fit(X[rows], y[rows])
        other = pickle.loads(pickle.dumps(other)).partial_fit(X[rows], y[rows])
    for F, G in zip(one.factors_, other.factors_, strict=True):
        np.testing.assert_array_equal(F, G)
    assert not hasattr(clone(one), "factors_")
    assert one.transform(X).shape == (60, 3)
    fitted = STREAMS[name](random_state=0).fit(X, y)
    again = one.fit(X, y)
    np.testing.assert_array_equal(again.embedding_, fitted.embedding_)
    assert not hasattr(again, "moments_") and not hasattr(again, "n_steps_")


@pytest.mark.parametrize(
    ("name", "passes", "iterations"),
    [("NMF", 1, 50), ("NTF", 1, 50), ("NMF, projected", 1, 50), ("NMF, multiplicative", 8, 180)],
)
def test_a_stream_learns_what_a_fit_learns(name, passes, iterations):
    X = data(600)
    stream, full = FITS[name](random_state=0), FITS[name](random_state=0, tol=0, max_iter=iterations).fit(X)
    for rows in np.split(np.arange(600), 12) * passes:
        stream.partial_fit(X[rows])
    error = lambda model: np.linalg.norm(X - model.inverse_transform(model.transform(X)).reshape(600, -1))
    assert error(stream) <= 1.15 * error(full)


def test_a_stream_of_counts_comes_near_the_fit():
    rng = np.random.default_rng(0)
    X = rng.poisson(20 * rng.gamma(0.5, size=(3000, 4)) @ rng.gamma(0.3, size=(4, 30))).astype(float)
    make = lambda: NMF(4, loss="kullback-leibler", random_state=0)
    stream = make()
    for rows in np.array_split(np.arange(3000), 30) * 2:
        stream.partial_fit(X[rows])
    V, U = (torch.from_numpy(F) for F in (stream.transform(X), stream.factors_[0]))
    divergence = BetaFit(torch.from_numpy(X), ("V", "U1"), 1.0).value({"V": V, "U1": U})
    assert float(divergence) <= 1.05 * make().fit(X).loss_


def test_partial_fit_with_graphs_against_plain_numpy():
    """Multiplicative NGE of a batch with its own graphs; energies, like the sums, fade and follow unit columns."""
    X, y, alpha = data(60), labels(60), 3.0
    U = np.random.default_rng(2).random((9, 4)) + 0.1
    model = NGE(4, alpha=alpha, n_discriminative=2, solver="multiplicative", init=(None, U), forgetting=0.5)
    A, B, e, seen, U = np.zeros((4, 4)), np.zeros((9, 4)), np.zeros(4), 0, U.copy()
    for rows in (slice(0, 25), slice(25, 41), slice(41, 60)):
        x = X[rows]
        pair = [links.toarray() for links in marginal_fisher_graphs(x, y[rows])]
        S = np.stack([pair[0], pair[0], pair[1], pair[1]])
        keep = (seen / (seen + len(x))) ** 0.5
        V = np.repeat((x @ U).sum(1, keepdims=True) / (U.T @ U).sum(), 4, axis=1)
        A, B, e = keep * A, keep * B, keep * e
        if not seen:
            A, B = 1e-6 * V.T @ V, 1e-6 * U @ V.T @ V
        for i in range(30 if seen < 40 else 20):
            c = alpha * (U**2).sum(0)
            for _ in range(1 if i else 30):
                near, degree = np.einsum("jab,bj->aj", S, V), S.sum(2).T
                V = V * (x @ U + c * near) / (V @ (U.T @ U) + c * degree * V)
            energy = alpha * np.einsum("jab,abj->j", S, (V[:, None] - V) ** 2) / 2
            U = U * (B + x.T @ V) / (U @ (A + V.T @ V) + U * (e + energy))
        length = np.linalg.norm(U, axis=0)
        A, B, e = (A + V.T @ V) * np.outer(length, length), (B + x.T @ V) * length, (e + energy) * length**2
        U, seen = U / length, seen + len(x)
        model.partial_fit(x, y[rows])
        np.testing.assert_allclose(model.components_, U.T, rtol=1e-7)
        np.testing.assert_allclose(model.embedding_, V * length, rtol=1e-7, atol=1e-12)
        np.testing.assert_allclose(model.moments_["energy"], e[None], rtol=1e-7)


@pytest.mark.parametrize("name", [*STREAMS, "NGE, cliques"])
def test_partial_fit_after_fit_goes_on(name):
    """The fitted factors stand for their data: a step on a few of the same samples hardly moves a converged model."""
    X, y = data(200), labels(200)
    for size in (None, 50):
        model = FITS[name](random_state=0, batch_size=size, max_iter=80, tol=0).fit(X, y)
        before = [F.copy() for F in model.factors_]
        model.partial_fit(X[:10], y[:10])
        assert model.n_samples_seen_ == 210 and model.embedding_.shape == (10, 3) and not hasattr(model, "loss_")
        for F, G in zip(model.factors_, before, strict=True):
            assert np.linalg.norm(F - G) < 0.1 * np.linalg.norm(G)


def test_unlabelled_batches_and_classes_that_come_later():
    X = data(60)
    model = NGE(4, random_state=0).partial_fit(X[:10], np.full(10, -1))
    assert len(model.classes_) == 0
    model.partial_fit(X[10:30], np.arange(20) % 2).partial_fit(X[30:], 5 + np.arange(30) % 3)
    assert model.n_discriminative_ == 2 and model.classes_.tolist() == [0, 1, 5, 6, 7]


def test_scale_is_fixed_by_the_first_batch():
    X = data(60)
    one, other = NMF(3, random_state=0), NMF(3, random_state=0)
    for rows in (slice(0, 30), slice(30, 60)):
        one.partial_fit(X[rows])
        other.partial_fit(X[rows] * 2.0**400)
    assert one.moments_["scale"] == 1 and other.moments_["scale"] > 1e100
    np.testing.assert_allclose(one.transform(X), other.transform(X * 2.0**400) / (2.0**400) * _ratio(one, other))


def _ratio(one, other):
    """Between components: an arbitrary unit that the random start takes from the data."""
    return (other.components_.sum(1) / one.components_.sum(1))[None]


def test_sparse_batches_and_memory_of_a_stream():
    X = data(60) * (np.random.default_rng(0).random((60, 9)) < 0.5)
    dense, sparse = NMF(3, random_state=0), NMF(3, random_state=0)
    for rows in (slice(0, 30), slice(30, 60)):
        dense.partial_fit(X[rows])
        sparse.partial_fit(sp.csr_array(X[rows]))
    np.testing.assert_allclose(dense.components_, sparse.components_, rtol=1e-8)
    assert sum(v.size for v in dense.moments_.values() if hasattr(v, "size")) == 9 * 3 + 3 * 3 + 3


def test_torch_in_torch_out():
    X = torch.from_numpy(data().astype(np.float32))
    model = NMF(3, random_state=0).partial_fit(X[:20]).partial_fit(X[20:])
    assert isinstance(model.components_, torch.Tensor) and model.components_.dtype == torch.float32
    assert model.moments_["gram"].dtype == torch.float64


def test_planted_stream_within_two_percent():
    rng = np.random.default_rng(0)
    parts = rng.gamma(0.3, size=(5, 40)).astype(np.float32)
    chunks = [
        (rng.gamma(0.5, size=(300, 5)) @ parts + 0.1 * rng.random((300, 40))).astype(np.float32) for _ in range(15)
    ]
    stream = NMF(5, random_state=0)
    for X in chunks:
        stream.partial_fit(X)
    X = np.concatenate(chunks)
    residual = X - stream.transform(X) @ stream.components_
    assert (residual.astype(float) ** 2).sum() <= 1.02 * NMF(5, random_state=0, max_iter=1000).fit(X).loss_


# --- what is refused


def test_what_is_refused():
    X, y = data(), labels(40)
    for size in (0, -1, 2.5, True, "4"):
        with pytest.raises(ValueError, match="batch_size must be None"):
            NMF(3, batch_size=size).fit(X)
    with pytest.raises(ValueError, match="forgetting"):
        NMF(3, forgetting=-1.0).partial_fit(X)
    with pytest.raises(ValueError, match="'kullback-leibler' with matrices"):
        NMF(3, loss=1.5, batch_size=5).fit(X)
    with pytest.raises(ValueError, match="'kullback-leibler' with matrices"):
        NTF(3, loss="kullback-leibler").partial_fit(X.reshape(-1, 3, 3))
    assert not hasattr(NMF(3, loss=1.5), "partial_fit") and not hasattr(N2S2L(3), "partial_fit")
    with pytest.raises(ValueError, match="basis_rule='paper'"):
        NGE(3, solver="mu", basis_rule="paper", batch_size=5).fit(X, y)
    with pytest.raises(ValueError, match="one start"):
        NMF(3, n_init=2).partial_fit(X)
    with pytest.raises(ValueError, match="over all samples cannot be cut"):
        NGE(3, graph=(np.zeros((40, 40)), np.zeros((40, 40))), n_discriminative=1).partial_fit(X)
    with pytest.raises(ValueError, match=r"init must be .* arrays \(V, U1 \(9, 3\)\)"):
        NMF(3, init=(None,)).partial_fit(X)


def test_a_step_that_fails_changes_nothing():
    X = data()
    model = NMF(3, random_state=0).partial_fit(X)
    before = pickle.dumps(model)
    bad = X.copy()
    bad[0, 0] = np.nan
    for wrong in (X[:, :5], bad, -X):
        with pytest.raises(ValueError, match=r"features|NaN|Negative"):
            model.partial_fit(wrong)
        assert pickle.dumps(model) == before


def test_sparse_batches_are_cut_once(monkeypatch):
    cut, take = [], Sparse.take
    monkeypatch.setattr(Sparse, "take", lambda self, rows: cut.append(len(rows)) or take(self, rows))
    X = sp.random(60, 20, density=0.3, format="csr", random_state=0)
    NMF(3, batch_size=15, init="random", random_state=0, max_iter=6, tol=0).fit(X)
    assert cut == [15] * 4
