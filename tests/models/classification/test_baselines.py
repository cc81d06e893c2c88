"""LNMF, graph-regularised and constrained NMF against plain NumPy written from the papers."""

from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from nnfactor import NMF
from nnfactor.core import Graph, as_data, objective
from nnfactor.graphs import knn_graph
from nnfactor.models.factorization.constrained_nmf import ConstrainedNMF
from nnfactor.models.factorization.graph_nmf import GraphNMF, overwrite_labelled
from nnfactor.models.factorization.local_nmf import LNMF

K, N, M = 4, 15, 8
quiet = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def close(a, b, tol=1e-9):
    np.testing.assert_allclose(a, b, rtol=tol, atol=tol * np.abs(b).max())


def ratio(a, b):
    return np.divide(a, b, out=np.ones_like(a), where=b > 0)


def data(seed=0, n=N, m=M):
    X = np.random.default_rng(seed).random((n, m)) ** 2
    X[1] = 0
    return X


def start(seed=1, n=N, m=M, k=K):
    rng = np.random.default_rng(seed)
    V, U = rng.random((n, k)) + 0.1, rng.random((m, k)) + 0.1
    V[2, 1] = U[0, 0] = 0
    return V, U


def adjacency(seed=3, n=N):
    rng = np.random.default_rng(seed)
    A = np.triu((rng.random((n, n)) < 0.4) * rng.random((n, n)), 1)
    return A + A.T


Y = np.array([0, -1, 2, 2, 0, 5, -1, 5, 5, 2, -1, 0, 2, -1, 2])


# LNMF


def lnmf(X, V, U, n):
    for _ in range(n):
        V = np.sqrt(V * (quotient(X, V @ U.T) @ U))
        U = U * (quotient(X, V @ U.T).T @ V) / V.sum(0)
        U = U / U.sum(0)
    return V, U


def quotient(X, R):
    return np.divide(X, R, out=np.zeros_like(X), where=R > 0)


def divergence(X, R):
    return np.sum(np.where(X > 0, X * np.log(np.where(X > 0, X, 1) / R), 0) - X + R)


@pytest.mark.parametrize("n", [5, 300])
def test_lnmf_follows_the_equations(n):
    X, first = data() + 0.01, start()
    first[1][:] += 0.01
    model = LNMF(K, init=first, max_iter=n, tol=0).fit(X)
    V, U = lnmf(X, *first, n)
    close(model.embedding_, V)
    close(model.factors_[0], U)
    close(model.factors_[0].sum(0), np.ones(K))
    np.testing.assert_allclose(model.loss_, divergence(X, V @ U.T))
    np.testing.assert_allclose(model.history_["objective"][-1], model.loss_)
    np.testing.assert_allclose(model.reconstruction_err_, np.linalg.norm(X - V @ U.T))


def test_lnmf_is_a_minimisation_after_all():
    """With unit sums the rules are majorise-minimise steps for the divergence plus ||V - 1||^2 / 2."""
    for seed in range(20):
        X = data(seed) * 10.0 ** (seed % 4 - 1)
        V, U = start(seed)
        values = []
        for _ in range(30):
            model = LNMF(K, init=(V, U), max_iter=1).fit(X)
            V, U = model.embedding_, model.factors_[0]
            values.append(model.loss_ + np.sum((V - 1) ** 2) / 2)
        assert (np.diff(values) <= 1e-9 * values[0]).all()


def test_lnmf_divergence_may_rise_and_tol_zero_is_the_default():
    model = LNMF(K, random_state=0, max_iter=40).fit(data() * 100)
    assert model.n_iter_ == 40 and (np.diff(model.history_["objective"]) > 0).any()


def test_lnmf_scales_with_the_root_of_the_data():
    X, (V, U) = data(), start()
    base = LNMF(K, init=(V, U), max_iter=30).fit(X)
    for c in (1e-130, 1e-60, 1e-15, 1e-3, 1e5, 1e15, 1e60, 1e120):
        far = LNMF(K, init=(V * c, U), max_iter=30).fit(X * c**2)
        np.testing.assert_allclose(far.loss_, divergence(X * c**2, far.embedding_ @ far.components_ + 1e-300))
        if 1e-60 < c < 1e60:
            norm = np.linalg.norm(X * c**2 - far.embedding_ @ far.components_)
            np.testing.assert_allclose(far.reconstruction_err_, norm)
        close(far.embedding_ / c, base.embedding_, 1e-8)
        close(far.factors_[0], base.factors_[0], 1e-8)
    small = LNMF(K, init=(V * 1e15, U), max_iter=30).fit((X * 1e30).astype(np.float32))
    close(small.embedding_ / 1e15, base.embedding_, 1e-4)


# Graph-regularised NMF


def gnmf(X, V, U, S, lam, n):
    D = S.sum(1)[:, None]
    for _ in range(n):
        U = U * ratio(X.T @ V, U @ (V.T @ V))
        V = V * ratio(X @ U + lam * S @ V, V @ (U.T @ U) + lam * D * V)
    return V, U


def graph_loss(X, V, U, S, lam):
    return np.sum((X - V @ U.T) ** 2) + lam * np.trace(V.T @ (np.diag(S.sum(1)) - S) @ V)


def neighbours(X, p):
    d = ((X[:, None] - X[None]) ** 2).sum(-1)
    np.fill_diagonal(d, np.inf)
    S = np.zeros(d.shape)
    for i, nearest in enumerate(np.argsort(d, axis=1, kind="stable")[:, :p]):
        S[i, nearest] = S[nearest, i] = 1
    return S


def overwritten(S, y):
    S = S.copy()
    for i in range(len(y)):
        for j in range(len(y)):
            if i != j and y[i] != -1 and y[j] != -1:
                S[i, j] = float(y[i] == y[j])
    return S


GRAPHS = {
    "knn": ({}, None, lambda X: neighbours(X, 5)),
    "knn 2": ({"n_neighbors": 2}, None, lambda X: neighbours(X, 2)),
    "own": ({"graph": adjacency()}, None, lambda X: adjacency()),
    "sparse": ({"graph": sp.coo_array(adjacency())}, None, lambda X: adjacency()),
    "labels": ({"n_neighbors": 3}, Y, lambda X: overwritten(neighbours(X, 3), Y)),
    "own, labels": ({"graph": Graph(adjacency())}, Y, lambda X: overwritten(adjacency(), Y)),
}


@pytest.mark.parametrize("n", [5, 300])
@pytest.mark.parametrize("lam", [0.3, 100.0])
@pytest.mark.parametrize("key", GRAPHS)
def test_graph_nmf_follows_the_equations(key, lam, n):
    settings, y, build = GRAPHS[key]
    X, first = data(), start()
    S = build(X)
    model = GraphNMF(K, lam=lam, **settings, init=first, max_iter=n, tol=0).fit(X, y)
    V, U = gnmf(X, *first, S, lam, n)
    close(model.graph_.toarray(), S)
    close(model.embedding_, V)
    close(model.factors_[0], U)
    np.testing.assert_allclose(model.loss_, graph_loss(X, V, U, S, lam))
    np.testing.assert_allclose(model.history_["objective"][-1], model.loss_)


@pytest.mark.parametrize("n", [5, 100])
def test_scale_free_graph_nmf(n):
    X, S, (V, U) = data(), adjacency(), start()
    L, lam = np.diag(S.sum(1)) - S, 3.0
    first = (V, U)
    for _ in range(n):
        U = U * ratio(X.T @ V, U @ (V.T @ V) + U * lam * np.einsum("ij,ik,kj->j", V, L, V))
        w = lam * (U**2).sum(0)
        V = V * ratio(X @ U + S @ V * w, V @ (U.T @ U) + S.sum(1)[:, None] * V * w)
    norms = np.linalg.norm(U, axis=0)
    model = GraphNMF(K, lam=lam, graph=S, scale_free=True, init=first, max_iter=n, tol=0).fit(X)
    close(model.embedding_, V * norms)
    close(model.factors_[0], U / norms)
    np.testing.assert_allclose(model.loss_, graph_loss(X, V * norms, U / norms, S, lam))
    for c in (1e-30, 1e30):  # the data's scale and that between the factors are of no consequence
        far = GraphNMF(K, lam=lam, graph=S, scale_free=True, init=(first[0] * 7, first[1] * c / 7), max_iter=n, tol=0)
        close(far.fit(X * c).embedding_ / c, model.embedding_, 1e-8)


def test_the_printed_penalty_has_no_minimum():
    X, S, first = data(), adjacency(), start()
    losses = [GraphNMF(K, graph=S, init=first, max_iter=n, tol=0).fit(X).loss_ for n in (300, 3000)]
    V, U = gnmf(X, *first, S, 1.0, 300)
    assert graph_loss(X, V / 100, U * 100, S, 1.0) < losses[0] and losses[1] < losses[0]


SOLVERS = ["multiplicative", "mu", "m_matrix", "auto", "hals"]


@pytest.mark.parametrize("scale_free", [False, True])
@pytest.mark.parametrize("solver", SOLVERS)
def test_graph_nmf_is_monotone(solver, scale_free):
    for seed in range(15):
        X = data(seed) * 10.0 ** (seed % 5 - 2)
        degenerate = [np.zeros((N, N)), 1 - np.eye(N), np.eye(N)[::-1] * (np.arange(N) != N // 2), adjacency(seed)]
        lam = 10.0 ** (seed % 7 - 2)
        model = GraphNMF(1 + seed % 5, lam=lam, graph=degenerate[seed % 4], solver=solver, scale_free=scale_free)
        history = model.set_params(max_iter=25, tol=0, random_state=seed, init="random").fit(X).history_["objective"]
        assert (np.diff(history) <= 1e-10 * history[0]).all()
        assert (model.embedding_ >= 0).all() and np.isfinite(model.embedding_).all()


@pytest.mark.parametrize(("solver", "plain"), [("multiplicative", "multiplicative"), ("hals", "hals")])
def test_no_weight_is_nmf(solver, plain):
    X, first = data(), start()
    for scale_free in (False, True):
        model = GraphNMF(K, lam=0, solver=solver, scale_free=scale_free, init=first, max_iter=20, tol=0).fit(X)
        nmf = NMF(K, solver=plain, init=first, max_iter=20, tol=0).fit(X)
        close(model.embedding_ @ model.components_, nmf.embedding_ @ nmf.components_, 1e-8)
        np.testing.assert_allclose(model.loss_, nmf.loss_)


def test_labels_cost_no_pairs():
    y = np.repeat([0, 1], 3000)
    links = overwrite_labelled(Graph(sp.csr_array((6000, 6000))), y)
    assert links.adjacency.nnz == 0 and links.n_edges == 2 * 3000 * 2999 // 2
    with_cliques = overwrite_labelled(Graph(None, cliques=np.array([0, 0, 0, 1, 1])), np.array([0, 1, -1, 1, -1]))
    close(
        with_cliques.toarray(), overwritten(np.kron(np.eye(2), np.ones((3, 3)))[:5, :5] - np.eye(5), [0, 1, -1, 1, -1])
    )


NAMES = np.array(["ash", None, "elm", "elm", "ash", "oak", None, "oak", "oak", "elm", None, "ash", "elm", None, "elm"])
ENCODINGS = {
    "gaps": Y * 10 + 9 * (Y == -1),
    "nan": np.where(Y == -1, np.nan, Y),
    "strings": NAMES,
    "marker": np.where(NAMES == None, "-1", NAMES).astype(str),  # noqa: E711
    "list": Y.tolist(),
    "tensor": torch.from_numpy(Y),
}


@pytest.mark.parametrize("make", [GraphNMF, ConstrainedNMF])
@pytest.mark.parametrize("key", ENCODINGS)
def test_label_encodings(make, key):
    X, y = data(), ENCODINGS[key]
    kept = y.copy() if isinstance(y, np.ndarray) else y
    model, base = (make(K, max_iter=5, tol=0, random_state=0).fit(X, z) for z in (y, Y))
    close(model.embedding_, base.embedding_)
    assert len(model.classes_) == 3 and not any(c in (-1, "-1", None) for c in model.classes_.tolist())
    np.testing.assert_array_equal(y if isinstance(y, np.ndarray) else Y, kept if isinstance(y, np.ndarray) else Y)


@pytest.mark.parametrize("make", [GraphNMF, ConstrainedNMF])
def test_no_label_known_is_no_labels(make):
    X = data()
    model, base = (make(K, max_iter=5, tol=0, random_state=0).fit(X, z) for z in (np.full(N, -1), None))
    close(model.embedding_, base.embedding_)
    assert len(model.classes_) == len(base.classes_) == 0
    make(K, max_iter=5, tol=0).fit(X, np.zeros(N))  # one class
    with pytest.raises(ValueError, match=r"y has shape \(3,\), X has 15 samples"):
        make(K).fit(X, [0, 1, 2])


# Constrained NMF


def cnmf(X, Z, U, A, n):
    for _ in range(n):
        V = A @ Z
        U = U * ratio(X.T @ V, U @ (V.T @ V))
        Z = Z * ratio(A.T @ X @ U, A.T @ A @ Z @ (U.T @ U))
    return Z, U


def ties(y):
    classes = sorted({c for c in y if c != -1})
    A = np.zeros((len(y), len(classes) + int((y == -1).sum())))
    unlabelled = len(classes)
    for i, c in enumerate(y):
        A[i, unlabelled if c == -1 else classes.index(c)] = 1
        unlabelled += c == -1
    return A


@pytest.mark.parametrize("n", [5, 300])
@pytest.mark.parametrize(
    "y", [Y, np.full(N, -1), np.zeros(N, dtype=int), np.arange(N)], ids=["some", "no", "one", "all"]
)
def test_constrained_nmf_follows_the_equations(y, n):
    X, A = data(), ties(y)
    Z, U = start(n=max(3, A.shape[1]))
    Z = Z[: A.shape[1]]
    model = ConstrainedNMF(K, init=(Z, U), max_iter=n, tol=0).fit(X, y)
    Z, U = cnmf(X, Z, U, A, n)
    close(model.Z_, Z)
    close(model.embedding_, A @ Z)
    close(model.factors_[0], U)
    np.testing.assert_allclose(model.loss_, np.sum((X - A @ Z @ U.T) ** 2))
    np.testing.assert_allclose(model.history_["objective"][-1], model.loss_)
    np.testing.assert_allclose(model.reconstruction_err_**2, model.loss_)


def test_without_ties_it_is_nmf():
    X, first = data(), start()
    for solver in ("multiplicative", "hals", "projected"):
        model, nmf = (
            make(K, solver=solver, init=first, max_iter=20, tol=0).fit(X)
            for make in (ConstrainedNMF, partial(NMF, normalize=None))
        )
        close(model.embedding_, nmf.embedding_, 1e-8)


@pytest.mark.parametrize("solver", ["multiplicative", "auto", "hals", "projected"])
def test_constrained_nmf_is_monotone(solver):
    for seed in range(15):
        rng = np.random.default_rng(seed)
        X, y = data(seed) * 10.0 ** rng.integers(-3, 4), rng.integers(-1, 3, size=N)
        model = ConstrainedNMF(1 + seed % 5, solver=solver, max_iter=25, tol=0, random_state=seed).fit(X, y)
        history = model.history_["objective"]
        assert (np.diff(history) <= 1e-10 * history[0]).all()
        close(model.embedding_, ties(y) @ model.Z_)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GraphNMF(2, lam=-1), "lam must be a finite number >= 0, got -1"),
        (lambda: GraphNMF(2, graph="delaunay"), "graph='delaunay' is not known; use 'knn' or an adjacency"),
        (lambda: GraphNMF(2, graph=adjacency(n=4)), "graph has 4 nodes, X has 15 samples"),
        (lambda: GraphNMF(2, graph=-adjacency()), "graph: .* negative"),
        (lambda: GraphNMF(2, n_neighbors=0), "n_neighbors must be a whole number >= 1, got 0"),
        (lambda: GraphNMF(2, solver="cg"), "solver='cg' is not known; use 'multiplicative'"),
        (lambda: GraphNMF(2, scale_free="yes"), "scale_free='yes' is not known; use True, False"),
        (lambda: ConstrainedNMF(2, solver="m_matrix"), "solver='m_matrix' is not known"),
        (
            lambda: ConstrainedNMF(2, init=(np.ones((15, 2)), np.ones((8, 2)))),
            r"Z has shape \(15, 2\), but must be \(7, 2\)",
        ),
        (lambda: LNMF(2, init=(np.ones((15, 2)), -np.ones((8, 2)))), "init: U1 has 16 negative"),
    ],
)
def test_bad_settings_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make().fit(data(), Y)


def test_the_graph_is_that_of_the_data_as_given():
    X = data() + 1e5
    close(GraphNMF(2, max_iter=1, tol=0).fit(X).graph_.toarray(), knn_graph(X, 5).toarray())


def test_the_objective_is_that_of_the_terms():
    from nnfactor.core.terms.must_link import GroupedFit, SampleGroups

    X, groups = data(), np.array([0, 1, 2, 2, 0, 3, 4, 3, 3, 2, 5, 0, 2, 6, 2])
    F, U = (torch.from_numpy(Z) for Z in start(n=7))
    term = GroupedFit(as_data(X), ("F", "U"), SampleGroups(groups))
    spread = F[groups] / torch.from_numpy(np.sqrt(np.bincount(groups)))[groups, None]
    expected = np.sum((X - spread.numpy() @ U.numpy().T) ** 2)
    np.testing.assert_allclose(objective([term], {"F": F, "U": U}), expected)
