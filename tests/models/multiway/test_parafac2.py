"""PARAFAC2 against a NumPy reference that shares no code, against autograd, TensorLy and MatCoupLy."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone

import nnfactor
from nnfactor import PARAFAC2, batch_fit
from nnfactor.core import as_data, block_of, objective
from nnfactor.core.slices import Slices
from nnfactor.core.solve.history.result import find_best
from nnfactor.core.terms.parafac2 import Evolving, EvolvingFit, Parafac2Fit

LENGTHS = (9, 6, 14, 6, 11, 7, 10)
K = 3


def slices(seed=0, noise=0.05, columns=8, lengths=LENGTHS):
    """Bumps that shift from slice to slice: one Gram matrix, nonnegative."""
    rng = np.random.default_rng(seed)
    C, A = rng.random((columns, K)) ** 2, rng.random((len(lengths), K)) + 0.3
    B = np.eye(5)[:, :K] + 0.3 * rng.random((5, K))
    padded = [
        np.concatenate([np.zeros((s, K)), B, np.zeros((n - 5 - s, K))]) for n in lengths for s in [rng.integers(n - 4)]
    ]
    return [(P * a) @ C.T * rng.uniform(1 - noise, 1 + noise, (len(P), columns)) for P, a in zip(padded, A)]


def start(seed=1, columns=8):
    rng = np.random.default_rng(seed)
    return (
        rng.random((len(LENGTHS), K)) + 0.1,
        rng.random((columns, K)) + 0.1,
        np.eye(K) + 0.1 * rng.normal(size=(K, K)),
    )


def projections(X, A, C, B):
    found = []
    for x, a in zip(X, A):
        U, _, Vt = np.linalg.svd(x @ (C * a) @ B.T, full_matrices=False)
        found.append(U @ Vt)
    return found


def loss(X, A, C, B):
    return sum(((x - P @ (B * a) @ C.T) ** 2).sum() for x, P, a in zip(X, projections(X, A, C, B), A))


def descend(F, D, T, sweeps=4):
    """Minimise `||D F' - T||` over the nonnegative columns of F, one after the other."""
    F = F.copy()
    for _ in range(sweeps):
        for j in range(K):
            rest = T - D @ F.T + np.outer(D[:, j], F[:, j])
            F[:, j] = np.maximum(0, rest.T @ D[:, j] / (D[:, j] @ D[:, j]))
    return F


def reference_step(X, A, C, B, times=3):
    """Projections, then three times B by least squares, C and A by coordinate descent, on explicit designs."""
    Y = [P.T @ x for P, x in zip(projections(X, A, C, B), X)]
    for _ in range(times):
        D = np.concatenate([np.kron(np.eye(K), C * a) for a in A])  # of the rows of B
        B = np.linalg.lstsq(D, np.concatenate([y.ravel() for y in Y]), rcond=None)[0].reshape(K, K)
        C = descend(C, np.concatenate([B * a for a in A]), np.concatenate(Y))
        design = np.stack([np.outer(B[:, j], C[:, j]).ravel() for j in range(K)], 1)
        A = descend(A, design, np.stack([y.ravel() for y in Y], 1))
    return A, C, B


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("columns", [8, 20])  # slices longer and shorter than their rows: compressed, or not
def test_sweeps_equal_the_reference(columns, kind):
    X, expected = slices(columns=columns), start(columns=columns)
    given = X if kind == "dense" else [sp.csr_array(x) for x in X]
    for n in (1, 5):
        model = PARAFAC2(K, init=start(columns=columns), momentum=False, max_iter=n, tol=0).fit(given)
        expected = start(columns=columns)
        for _ in range(n):
            expected = reference_step(X, *expected)
        A, C, B = expected
        scaled = A * np.linalg.norm(C, axis=0) * np.linalg.norm(B, axis=0)
        order = np.argsort(-np.linalg.norm(scaled, axis=0))
        np.testing.assert_allclose(model.embedding_, scaled[:, order], rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(model.factors_[0], (C / np.linalg.norm(C, axis=0))[:, order], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("columns", [8, 20])
def test_what_is_published_is_the_model_that_was_fitted(columns):
    X = slices(columns=columns)
    model = PARAFAC2(K, n_init=2, random_state=0, max_iter=200, tol=0).fit(X)
    C = model.factors_[0]
    assert model.loss_ == pytest.approx(loss(X, model.embedding_, C, model.blueprint_), rel=1e-6)
    fitted = model.reconstruct()
    assert model.reconstruction_err_**2 == pytest.approx(sum(((x - y) ** 2).sum() for x, y in zip(X, fitted)))
    assert [f.shape for f in fitted] == [x.shape for x in X]
    for P, B in zip(model.projections_, model.evolving_):
        np.testing.assert_allclose(P.T @ P, np.eye(K), atol=1e-9)
        np.testing.assert_allclose(B, P @ model.blueprint_, atol=1e-9)
    np.testing.assert_allclose([np.linalg.norm(F, axis=0) for F in (C, model.blueprint_)], 1, rtol=1e-9)
    assert (model.embedding_ >= 0).all() and (C >= 0).all() and model.coupling_error_ < 1e-12


@pytest.mark.parametrize("momentum", [True, False])
@pytest.mark.parametrize("evolving", ["free", "nonnegative"])
def test_the_objective_never_rises(evolving, momentum):
    X = slices()
    model = PARAFAC2(K, evolving=evolving, momentum=momentum, random_state=0, max_iter=150, tol=0).fit(X)
    objective = model.history_["objective"]
    assert (np.diff(objective) <= 1e-10 * objective[0]).all() and objective[-1] < objective[0]
    assert objective[-1] == pytest.approx(model.loss_, rel=1e-6)


def problem(batch=()):
    rng = np.random.default_rng(0)
    X = np.concatenate(slices())
    rows = Slices(LENGTHS, torch.device("cpu"))
    draw = lambda n, low=0.1: torch.from_numpy(rng.random((*batch, K, n)) + low).mT
    factors = {"A": draw(len(LENGTHS)), "C": draw(8), "E": draw(len(X)), "B": draw(K, -0.5)}
    M = draw(len(X), -0.5)
    return as_data(X), rows, factors | {"P": rows.polar(M, M)}


def test_restarts_that_reach_the_rounding_of_their_objective_stop():
    """A sweep without momentum that does not lower the objective any more is the end, not one more sweep discarded."""
    rng = np.random.default_rng(0)
    X = np.einsum("ik,jk,lk->ijl", rng.random((20, 3)), rng.random((8, 3)), rng.random((6, 3)))
    for seed in range(4):
        assert PARAFAC2(2, init="random", random_state=seed, max_iter=400).fit(X).converged_


@pytest.mark.parametrize("batch", [(), (2,)])
def test_half_gradients_are_those_of_autograd(batch):
    data, rows, factors = problem(batch)
    for terms, names in (([Parafac2Fit(data, rows)], "ACB"), ([EvolvingFit(data, rows), Evolving(0.7)], "ACEB")):
        for name in names:
            leaf = {**factors, name: factors[name].clone().requires_grad_()}
            objective(terms, leaf).sum().backward()
            mine = block_of(terms, factors, name).half_gradient(factors[name])
            torch.testing.assert_close(mine, leaf[name].grad / 2, rtol=1e-8, atol=1e-8)
    direct = Parafac2Fit(data, rows)
    torch.testing.assert_close(direct.value(factors), direct.direct(factors), rtol=1e-9, atol=1e-9)


def test_projections_are_orthonormal_also_where_weights_are_zero():
    _, rows, factors = problem((2,))
    M = factors["E"].clone()
    M[..., :9, 1] = 0
    P = rows.polar(M, factors["P"])
    for part in P.split(LENGTHS, dim=-2):
        torch.testing.assert_close(part.mT @ part, torch.eye(K, dtype=P.dtype).expand(2, K, K))


@pytest.mark.parametrize("evolving", ["free", "nonnegative"])
def test_sparse_slices_restarts_and_batches(evolving):
    X = slices()
    make = lambda s, **kw: PARAFAC2(K, evolving=evolving, random_state=s, max_iter=20, tol=0, **kw)
    dense = make(0, init="random").fit(X)
    sparse = make(0, init="random").fit([sp.csr_array(x) for x in X])
    np.testing.assert_allclose(sparse.embedding_, dense.embedding_, rtol=1e-5, atol=1e-7)
    several = lambda: [make(s, n_init=2) for s in range(3)]
    for one, alone in zip(batch_fit(several(), X), several(), strict=True):
        alone.fit(X)
        np.testing.assert_allclose(one.restarts_["loss"], alone.restarts_["loss"], rtol=1e-7)
        assert one.restarts_["factors"][0].shape == (2, 8, K) and one.restarts_["embeddings"].shape == (2, 7, K)
        best = find_best(one.restarts_["loss"], torch.float64)
        np.testing.assert_allclose(one.restarts_["embeddings"][best], one.embedding_, rtol=1e-6)


def test_batches_of_data_sets_equal_separate_fits():
    sets = [slices(seed) for seed in range(3)]
    several = lambda: [PARAFAC2(K, random_state=0, max_iter=20, tol=0) for _ in sets]
    for one, alone, X in zip(batch_fit(several(), sets), several(), sets, strict=True):
        np.testing.assert_allclose(one.embedding_, alone.fit(X).embedding_, rtol=1e-6, atol=1e-9)


def test_a_nonnegative_evolving_factor_nears_one_gram_matrix_as_the_coupling_grows():
    X = slices(noise=0.02)
    errors = []
    for coupling in (0.1, 10.0):
        model = PARAFAC2(K, evolving="nonnegative", coupling=coupling, random_state=0, max_iter=600, tol=0).fit(X)
        assert all((B >= 0).all() for B in model.evolving_)
        errors.append(model.coupling_error_)
        weights = np.linalg.norm(model.embedding_, axis=0) ** 2 * np.linalg.norm(model.factors_[0], axis=0) ** 2
        apart = [E - P @ model.blueprint_ for E, P in zip(model.evolving_, model.projections_)]
        penalty = coupling / len(X) * sum((weights * d**2).sum() for d in apart)
        assert model.loss_ == pytest.approx(model.reconstruction_err_**2 + penalty, rel=1e-6)
    assert errors[1] < 0.02 and errors[1] < errors[0]
    grams = [B.T @ B for B in model.evolving_]
    assert max(np.abs(G - np.mean(grams, 0)).max() for G in grams) < 0.05


def test_units_do_not_matter():
    X = slices()
    for evolving in ("free", "nonnegative"):
        fit = lambda X: PARAFAC2(K, evolving=evolving, random_state=0, max_iter=30, tol=0, momentum=False).fit(X)
        plain, scaled = fit(X), fit([1e150 * x for x in X])
        np.testing.assert_allclose(scaled.embedding_, 1e150 * plain.embedding_, rtol=1e-6)
        np.testing.assert_allclose(scaled.components_, plain.components_, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("evolving", ["free", "nonnegative"])
def test_new_slices_files_kinds_and_dtypes(evolving, tmp_path):
    X = slices()
    model = PARAFAC2(K, evolving=evolving, random_state=0, max_iter=300, tol=0).fit(X)
    again = model.transform([X[2], X[0]])
    np.testing.assert_allclose(again, model.embedding_[[2, 0]], rtol=0.05, atol=0.05 * model.embedding_.max())
    assert -model.score(X) <= 1.2 * model.loss_ / sum(x.size for x in X)
    model.save(tmp_path / "model")
    for other in (pickle.loads(pickle.dumps(model)), nnfactor.load(tmp_path / "model")):
        assert np.array_equal(other.transform(X), model.transform(X))
    single = clone(model).fit([x.astype(np.float32) for x in X])
    assert {F.dtype for F in (single.embedding_, *single.factors_, *single.evolving_)} == {np.dtype(np.float32)}
    assert single.loss_ == pytest.approx(model.loss_, rel=0.05)
    tensors = clone(model).fit([torch.from_numpy(x) for x in X])
    assert all(isinstance(B, torch.Tensor) for B in tensors.evolving_)
    assert len(model.get_feature_names_out()) == K and model.n_features_in_ == 8


@pytest.mark.parametrize(
    "settings, change, message",
    [
        ({"evolving": "smooth"}, None, "evolving='smooth'"),
        ({"coupling": -1}, None, "coupling"),
        ({"init": "nndsvda"}, None, "init='nndsvda' is not known"),
        ({"init": (np.ones((5, 3)),)}, None, r"arrays \(A, C, B\)"),
        ({}, lambda X: X[0], "must be a list of slices"),
        ({}, lambda X: [X[0], X[1][:, :5]], r"X\[1\] has shape \(6, 5\); every slice must be \(n_i, 8\)"),
        ({}, lambda X: [X[0], X[1][:2]], r"X\[1\] has 2 rows; PARAFAC2 needs at least n_components=3"),
        ({}, lambda X: [X[0], -X[1]], r"X\[1\]: Negative values"),
    ],
)
def test_refusals(settings, change, message):
    X = slices()
    with pytest.raises(ValueError, match=message):
        clone(PARAFAC2(K, max_iter=5, tol=0)).set_params(**settings).fit(change(X) if change else X)


def test_no_worse_than_tensorly():
    pytest.importorskip("tensorly", reason="TensorLy is the peer: pip install tensorly")
    from tensorly.decomposition import parafac2
    from tensorly.parafac2_tensor import Parafac2Tensor, parafac2_to_slices

    X, (A, C, B) = slices(), start()
    given = Parafac2Tensor((np.ones(K), [A.copy(), B.copy(), C.copy()], [np.eye(len(x), K) for x in X]))
    found = parafac2(X, K, n_iter_max=200, init=given, nn_modes=[0, 2], tol=1e-300, linesearch=True)
    theirs = sum(((x - y) ** 2).sum() for x, y in zip(X, parafac2_to_slices(found)))
    assert PARAFAC2(K, init=(A, C, B), max_iter=600, tol=0).fit(X).loss_ <= 1.02 * theirs


def test_no_worse_than_matcouply():
    peer = pytest.importorskip("matcouply.decomposition", reason="MatCoupLy is the peer: pip install matcouply")
    X = slices()
    (_, (A, Bs, C)), _ = peer.parafac2_aoadmm(
        X, K, n_iter_max=300, non_negative=True, random_state=0, return_errors=True
    )[:2]
    theirs = sum(((x - (B * a) @ C.T) ** 2).sum() for x, a, B in zip(X, A, Bs))
    model = PARAFAC2(K, evolving="nonnegative", n_init=5, random_state=0, max_iter=1000).fit(X)
    assert model.reconstruction_err_**2 <= 1.05 * theirs and model.coupling_error_ < 0.02


@pytest.mark.parametrize("sparse", [False, True])
def test_new_slices_of_other_sizes_change_nothing(sparse):
    X = [sp.csr_array(x) for x in slices()] if sparse else slices()
    model = PARAFAC2(K, random_state=0, max_iter=300, tol=0).fit(X)
    alone = model.transform(X[:1])[0]
    for size in (1e-8, 1e8):
        first, other = model.transform([X[0], X[1] * size])
        np.testing.assert_allclose(first, alone, rtol=1e-3, atol=1e-3 * alone.max())
        np.testing.assert_allclose(other, size * model.transform(X[1:2])[0], rtol=1e-3, atol=size * 1e-3 * alone.max())
    loss = sum(-model.score([x]) * np.prod(x.shape) for x in X)
    assert -model.score(X) * sum(np.prod(x.shape) for x in X) == pytest.approx(loss, rel=1e-3)


@pytest.mark.parametrize("max_iter", [0, 1, 50])
def test_the_loss_is_that_of_the_evolving_factors_that_are_published(max_iter):
    X = [np.random.default_rng(n).random((n, 7)) for n in (5, 9, 12)]  # some have more rows than columns
    model = PARAFAC2(3, random_state=0, max_iter=max_iter, tol=0).fit(X)
    loss = sum(np.square(x - Y).sum() for x, Y in zip(X, model.reconstruct(), strict=True))
    assert model.loss_ == pytest.approx(loss, rel=1e-9)
    assert model.reconstruction_err_ == pytest.approx(loss**0.5, rel=1e-9)
