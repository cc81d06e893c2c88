"""States of the package equal independent references, written from the equations: five iterations and a long run."""

import numpy as np
import pytest
import reference as ref
import scipy.sparse as sp

from nnfactor import N2S2L, NGE, NMF, NTF, MarginalFisher
from nnfactor.graphs import marginal_fisher_graphs

SHAPES = {2: (12, 9), 3: (9, 5, 6), 4: (6, 4, 3, 5)}
K = 4


def data(order, seed=0):
    """Nonnegative data with a zero sample, and a start with a few zeros."""
    rng = np.random.default_rng(seed)
    X = rng.random(SHAPES[order]) ** 2
    X[1] = 0
    start = [rng.random((d, K)) + 0.1 for d in X.shape]
    start[0][2, 1] = start[1][0, 0] = 0
    return X, start


def iterated(update, factors, n):
    for _ in range(n):
        factors = update(factors)
    return factors


def fitted(model, X, y=None):
    model.fit(X, y)
    return [model.embedding_, *model.factors_]


def assert_same(mine, theirs, tol=1e-9):
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=tol, atol=tol * np.abs(b).max())


@pytest.mark.parametrize("n", [5, 200])
@pytest.mark.parametrize("order", SHAPES)
@pytest.mark.parametrize("solver", ["multiplicative", "hals"])
def test_frobenius(order, solver, n):
    X, start = data(order)
    update = {
        "multiplicative": lambda Fs: ref.ntf_step(X, Fs),
        "hals": lambda Fs: ref.hals_step(X, Fs, 1),
    }[solver]
    model = NTF(K, solver=solver, init=start, max_iter=n, tol=0, normalize=None)
    tol = 1e-9 if solver == "multiplicative" or n == 5 else 1e-6  # HALS amplifies rounding while columns swap roles
    assert_same(fitted(model, X), iterated(update, start, n), tol)
    np.testing.assert_allclose(model.loss_, ref.frobenius(X, [model.embedding_, *model.factors_]))
    np.testing.assert_allclose(model.reconstruction_err_**2, model.loss_)


@pytest.mark.parametrize("n", [5, 200])
@pytest.mark.parametrize("beta", [-1, 0, 0.5, 1, 1.5, 3])
@pytest.mark.parametrize("order", [2, 3])
def test_beta_divergences(order, beta, n):
    X, start = data(order)
    X = X + 0.05 if beta <= 0 else X
    model = NTF(K, loss=beta, solver="mu", init=start, max_iter=n, tol=0, normalize=None)
    assert_same(fitted(model, X), iterated(lambda Fs: ref.ntf_beta_step(X, Fs, beta), start, n), 1e-8)
    Y = ref.reconstruct([model.embedding_, *model.factors_])
    np.testing.assert_allclose(model.loss_, ref.beta_divergence(X, Y, beta))


def test_sparse_data_follow_the_same_states():
    X, start = data(2)
    for loss in ("frobenius", "kullback-leibler", 1.5, 0.5, 3, 0, -0.5):
        X = np.where(X < 0.3, 0.3 if loss in (0, -0.5) else 0, X)  # those know no zeros: every entry is stored
        dense, sparse = (NMF(K, loss=loss, init=start, max_iter=20, tol=0, solver="mu") for _ in range(2))
        assert_same(fitted(sparse, sp.csr_array(X)), fitted(dense, X))
        np.testing.assert_allclose(sparse.loss_, dense.loss_)


def graphs(n, seed=3):
    rng = np.random.default_rng(seed)
    pair = [np.triu((rng.random((n, n)) < 0.4) * rng.random((n, n)), 1) for _ in range(2)]
    return [A + A.T for A in pair]


NGE_RULES = {
    "multiplicative": ({"solver": "multiplicative"}, "multiplicative"),
    "m_matrix": ({"solver": "m_matrix", "inner_tol": 1e-13}, "m_matrix"),
    "sweeps": ({"solver": "m_matrix", "inner": "sweeps", "inner_iter": 7}, ("sweeps", 7)),
}


@pytest.mark.parametrize("n", [5, 100])
@pytest.mark.parametrize("basis", ["exact", "paper"])
@pytest.mark.parametrize("rule", NGE_RULES)
@pytest.mark.parametrize("order", [2, 3])
def test_nge(order, rule, basis, n):
    X, start = data(order)
    pair, (settings, v_rule) = graphs(len(X)), NGE_RULES[rule]
    for alpha in (0.1, 100.0):
        model = NGE(K, n_discriminative=2, alpha=alpha, graph=pair, basis_rule=basis, init=start, max_iter=n, tol=0)
        mine = fitted(model.set_params(**settings), X)
        update = lambda Fs: ref.nge_step(X, Fs, pair, alpha, 2, basis=basis, v_rule=v_rule)
        theirs = iterated(update, start, n)
        # the solve of V includes a last Jacobi sweep, which its solution does not feel
        assert_same(mine, ref.normalise(theirs), 1e-7 if rule == "m_matrix" else 1e-8)
        np.testing.assert_allclose(model.loss_, ref.nge_objective(X, mine, pair, alpha, 2), rtol=1e-9)
        np.testing.assert_allclose(model.history_["objective"][-1], model.loss_, rtol=1e-9)


def test_the_papers_normalisation_in_every_iteration_changes_nothing():
    X, start = data(3)
    pair = graphs(len(X))
    start = [np.maximum(F, 0.01) for F in start]
    model = NGE(K, n_discriminative=2, alpha=3.0, graph=pair, solver="mu", init=start, max_iter=30, tol=0)
    printed = iterated(lambda Fs: ref.nge_step_normalised(X, Fs, pair, 3.0, 2), start, 30)
    assert_same(fitted(model, X), ref.normalise(printed))


@pytest.mark.parametrize("n", [5, 100])
@pytest.mark.parametrize("basis", ["exact", "paper"])
@pytest.mark.parametrize("rule", NGE_RULES)
@pytest.mark.parametrize("order", [2, 3])
def test_n2s2l(order, rule, basis, n):
    X, start = data(order)
    (S, Sp), (Ss, _), (settings, v_rule) = graphs(len(X)), graphs(len(X), 8), NGE_RULES[rule]
    shared = {"alpha": 10.0, "basis_rule": basis, "init": start, "max_iter": n, "tol": 0}
    model = N2S2L(K, n_discriminative=2, beta=5.0, graph=(S, Sp), neighbors=Ss, **shared, **settings)
    mine = fitted(model, X)
    update = lambda Fs: ref.nge_step(X, Fs, (S, Sp), 10.0, 2, basis=basis, v_rule=v_rule, beta=5.0, Ss=Ss)
    assert_same(mine, ref.normalise(iterated(update, start, n)), 1e-7 if rule == "m_matrix" else 1e-8)
    np.testing.assert_allclose(model.loss_, ref.nge_objective(X, mine, (S, Sp), 10.0, 2, 5.0, Ss), rtol=1e-9)


def test_n2s2l_builds_cliques_and_neighbours():
    rng = np.random.default_rng(0)
    X, y = rng.random((14, 6)), np.array([0] * 5 + [1] * 4 + [2] * 3 + [-1] * 2)
    model = N2S2L(3, neighbors=4, max_iter=2, tol=0, random_state=0).fit(X, y)
    for mine, theirs in zip(model.graph_, ref.marginal_fisher(X, y, 100, 20), strict=True):
        np.testing.assert_array_equal(mine.toarray(), theirs)
    assert model.graph_[0].adjacency.nnz == 0  # class sums, no links
    np.testing.assert_array_equal(model.neighbors_.toarray(), ref.knn_graph(X, 4))


@pytest.mark.parametrize("n_neighbors", [None, 1, 100])
def test_nge_builds_the_graphs_of_marginal_fisher_analysis(n_neighbors):
    rng = np.random.default_rng(0)
    X, y = rng.random((14, 6)), np.array([0] * 5 + [1] * 4 + [2] * 3 + [-1] * 2)
    model = NGE(3, graph=MarginalFisher(n_neighbors, 4), max_iter=2, tol=0, random_state=0).fit(X, y)
    for mine, theirs in zip(model.graph_, ref.marginal_fisher(X, y, n_neighbors, 4), strict=True):
        np.testing.assert_array_equal(mine.toarray(), theirs)
    for a, b in zip(model.graph_, marginal_fisher_graphs(X, y, n_neighbors, 4), strict=True):
        np.testing.assert_array_equal(a.toarray(), b.toarray())


@pytest.mark.parametrize("order", [2, 3])
def test_transform_solves_nonnegative_least_squares(order):
    X, start = data(order)
    model = NTF(K, init=start, max_iter=20, tol=0).fit(X)
    new = data(order, seed=9)[0]
    V = model.transform(new)
    np.testing.assert_allclose(V, ref.nnls_coefficients(new, [V, *model.factors_]), atol=1e-9)
    pinv = NTF(K, init=start, max_iter=20, tol=0, transform_method="pinv").fit(X).transform(new)
    B = ref.khatri_rao(model.factors_)
    np.testing.assert_allclose(pinv, new.reshape(len(new), -1) @ np.linalg.pinv(B).T, atol=1e-8)


def test_transform_with_nearly_dependent_bases():
    rng = np.random.default_rng(1)
    U = rng.random((30, 6))
    U[:, 1], U[:, 2], U[:, 3] = U[:, 0], U[:, 0] * (1 + 1e-9), 0
    X = rng.random((40, 30))
    model = NMF(6, init=(rng.random((40, 6)), U), max_iter=1, tol=0).fit(X)
    model.factors_ = [U]
    V = model.transform(X)
    best = ref.frobenius(X, [ref.nnls_coefficients(X, [V, U]), U])
    assert (V >= 0).all() and ref.frobenius(X, [V, U]) <= best * (1 + 1e-9)


def test_kullback_leibler_transform_minimises_the_divergence():
    X, start = data(2)
    model = NMF(K, loss="kullback-leibler", init=start, max_iter=50, tol=0).fit(X)
    V = model.transform(X)
    ours = ref.beta_divergence(X, V @ model.components_, 1)
    fitted_V = ref.beta_divergence(X, model.embedding_ @ model.components_, 1)
    assert ours <= fitted_V * (1 + 1e-6)
    gradient = model.components_.sum(1) - (X / np.maximum(V @ model.components_, 1e-300)) @ model.components_.T
    assert np.abs(np.minimum(V, gradient)[[0, 2, 3]]).max() < 1e-3 * V.max()
