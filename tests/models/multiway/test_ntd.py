"""Nonnegative Tucker decomposition against NumPy references that share no code, and against TensorLy."""

import numpy as np
import pytest
import torch
from sklearn.base import clone

from nnfactor import NTD, NTF, batch_fit

L, R = "abcde", "vwxyz"
SHAPES = {2: ((9, 7), (3, 4)), 3: ((8, 6, 5), (3, 2, 4)), 4: ((6, 4, 5, 3), (2, 3, 2, 2))}


def model_of(factors, core):
    n = core.ndim
    pairs = ",".join(L[b] + R[b] for b in range(n))
    return np.einsum(f"{R[:n]},{pairs}->{L[:n]}", core, *factors)


def unfold(X, mode):
    return np.moveaxis(X, mode, 0).reshape(X.shape[mode], -1)


def problem(order, seed=0):
    rng = np.random.default_rng(seed)
    shape, ranks = SHAPES[order]
    planted = [rng.random((d, r)) ** 2 for d, r in zip(shape, ranks)]
    X = model_of(planted, rng.random(ranks) ** 2) * rng.uniform(0.9, 1.1, shape)
    X[rng.random(shape) < 0.1] = 0
    start = [rng.random((d, r)) + 0.1 for d, r in zip(shape, ranks)], rng.random(ranks) + 0.1
    return X, ranks, start


def design(factors, core, mode):
    """What the factor of a mode is multiplied with: the unfolded model of everything else."""
    eye = np.eye(core.shape[mode])
    return unfold(model_of([eye if b == mode else F for b, F in enumerate(factors)], core), mode)


def core_design(factors):
    K = np.ones((1, 1))
    for F in factors:
        K = np.kron(K, F)
    return K


def multiplicative_step(X, factors, core):
    factors = list(factors)
    for mode in (*range(1, X.ndim), 0):
        D = design(factors, core, mode)
        factors[mode] = factors[mode] * (unfold(X, mode) @ D.T) / (factors[mode] @ D @ D.T)
    K, g = core_design(factors), core.ravel()
    return factors, (g * (K.T @ X.ravel()) / (K.T @ (K @ g))).reshape(core.shape)


def hals_factors(X, factors, core):
    factors = [F.copy() for F in factors]
    for mode in (*range(1, X.ndim), 0):
        D = design(factors, core, mode)
        for j in range(core.shape[mode]):
            rest = unfold(X, mode) - factors[mode] @ D + np.outer(factors[mode][:, j], D[j])
            factors[mode][:, j] = np.maximum(0, rest @ D[j] / (D[j] @ D[j]))
    return factors


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("order", SHAPES)
def test_multiplicative_equals_the_reference(order, kind):
    X, ranks, (factors, core) = problem(order)
    given = torch.from_numpy(X).to_sparse_coo() if kind == "sparse" else X
    for n in (1, 30):
        model = NTD(ranks, solver="mu", init=(*factors, core), max_iter=n, tol=0, normalize=None).fit(given)
        expected = factors, core
        for _ in range(n):
            expected = multiplicative_step(X, *expected)
        found = model_of([np.asarray(F) for F in (model.embedding_, *model.factors_)], np.asarray(model.core_))
        np.testing.assert_allclose(found, model_of(*expected), rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(model.loss_, ((X - found) ** 2).sum(), rtol=1e-9)


@pytest.mark.parametrize("order", SHAPES)
def test_hals_sweeps_equal_the_reference_and_the_core_nears_its_minimiser(order):
    from scipy.optimize import nnls

    X, ranks, (factors, core) = problem(order)
    unit = [F / np.linalg.norm(F, axis=0) for F in factors]
    for b, F in enumerate(factors):
        core = np.moveaxis(np.moveaxis(core, b, -1) * np.linalg.norm(F, axis=0), -1, b)
    model = NTD(ranks, solver="hals", init=(*unit, core), max_iter=1, tol=0, normalize=None).fit(X)
    for mine, theirs in zip((model.embedding_, *model.factors_), hals_factors(X, unit, core), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-10)
    K = core_design([model.embedding_, *model.factors_])
    least = nnls(K, X.ravel())[1] ** 2
    before = ((X - model_of([model.embedding_, *model.factors_], core)) ** 2).sum()
    assert least - 1e-9 * before <= model.loss_ <= least + 0.7 * (before - least) + 1e-9 * before


@pytest.mark.parametrize("order", SHAPES)
def test_long_runs_end_where_no_coordinate_can_improve(order):
    X, ranks, _ = problem(order)
    model = NTD(ranks, n_init=3, max_iter=3000, tol=1e-12, random_state=0).fit(X)
    factors, core = [model.embedding_, *model.factors_], model.core_
    residual = model_of(factors, core) - X
    for mode, F in enumerate(factors):
        gradient = unfold(residual, mode) @ design(factors, core, mode).T
        assert np.abs(np.minimum(F, gradient)).max() < 1e-4 * np.abs(X).max()
        np.testing.assert_allclose(np.linalg.norm(F, axis=0), 1, rtol=1e-9)
    gradient = core_design(factors).T @ residual.ravel()
    assert np.abs(np.minimum(core.ravel(), gradient)).max() < 1e-3 * np.abs(X).max()


def test_transform_is_least_squares_on_core_and_bases():
    from scipy.optimize import nnls

    X, ranks, _ = problem(3)
    model = NTD(ranks, random_state=0, max_iter=50, tol=0).fit(X)
    new = np.random.default_rng(5).random((4, *X.shape[1:]))
    D = design([np.eye(ranks[0]), *model.factors_], model.core_, 0)
    expected = [nnls(D.T, x.ravel())[0] for x in new]
    np.testing.assert_allclose(model.transform(new), expected, rtol=1e-6, atol=1e-8)
    fitted = (np.array(expected) @ D).reshape(new.shape)
    np.testing.assert_allclose(model.inverse_transform(model.transform(new)), fitted, rtol=1e-6, atol=1e-8)
    assert model.score(new) == pytest.approx(-((new - fitted) ** 2).mean())


def test_a_superdiagonal_core_is_the_cp_model():
    X, _, _ = problem(3)
    cp = NTF(3, random_state=0, max_iter=30, tol=0, normalize=None).fit(X)
    core = np.zeros((3, 3, 3))
    core[range(3), range(3), range(3)] = 1
    model = NTD(3, init=(cp.embedding_, *cp.factors_, core), max_iter=0).fit(X)
    assert model.loss_ == pytest.approx(cp.loss_)


def test_batches_of_ranks_and_restarts_equal_separate_fits():
    X, ranks, _ = problem(3)
    several = lambda: [NTD(r, n_init=2, random_state=0, max_iter=40, tol=0) for r in (ranks, 2, ranks)]
    for one, alone in zip(batch_fit(several(), X), several(), strict=True):
        alone.fit(X)
        np.testing.assert_allclose(one.core_, alone.core_, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(one.restarts_["loss"], alone.restarts_["loss"], rtol=1e-8)
        assert one.restarts_["core"].shape == (2, *one.core_.shape)


def test_batches_of_data_sets_equal_separate_fits():
    sets, ranks = [problem(3, seed)[0] for seed in range(3)], problem(3)[1]
    several = lambda: [NTD(ranks, random_state=0, max_iter=40, tol=0) for _ in sets]
    for one, alone, X in zip(batch_fit(several(), sets), several(), sets, strict=True):
        np.testing.assert_allclose(one.core_, alone.fit(X).core_, rtol=1e-6, atol=1e-9)


def test_float32_with_momentum_stays_in_range():
    X, ranks, _ = problem(4)
    model = NTD(ranks, random_state=0, max_iter=2000, tol=0).fit(X.astype(np.float32))
    assert model.core_.dtype == model.embedding_.dtype == np.float32 and np.isfinite(model.core_).all()
    long = NTD(ranks, random_state=0, max_iter=2000, tol=0).fit(X)
    assert model.loss_ <= 1.05 * long.loss_


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"ranks": (2, 3)}, r"ranks=\(2, 3\) has 2 numbers; X has 3 modes"),
        ({"ranks": 0}, "ranks must be a whole number >= 1, got 0"),
        ({"ranks": (2, 1.5, 2)}, "ranks must be a whole number"),
        ({"init": "nndsvda"}, "init='nndsvda' is not known"),
        ({"init": (np.ones((8, 2)),)}, r"core \(2, 2, 2\)\); got 1 arrays"),
        ({"solver": "svd"}, "solver='svd'"),
    ],
)
def test_refusals(settings, message):
    X, _, _ = problem(3)
    with pytest.raises(ValueError, match=message):
        clone(NTD(2)).set_params(**settings).fit(X)
    with pytest.raises(ValueError, match="missing='nan' in NMF, NTF"):
        NTD(2).fit(np.where(X > 0, X, np.nan))


def test_no_slower_to_an_objective_than_tensorly_in_iterations():
    tl = pytest.importorskip("tensorly", reason="TensorLy is the peer: pip install tensorly")
    from tensorly.decomposition import non_negative_tucker_hals

    X, ranks, (factors, core) = problem(3)
    start = core.copy(), [F.copy() for F in factors]
    found = non_negative_tucker_hals(tl.tensor(X), ranks, n_iter_max=50, tol=0, init=start, algorithm="fista")
    theirs = ((X - tl.tucker_to_tensor(found)) ** 2).sum()
    model = NTD(ranks, init=(*factors, core), max_iter=50, tol=0).fit(X)
    assert model.loss_ <= 1.02 * theirs
    np.testing.assert_allclose(
        model.to_tucker().to_tensor(), model_of([model.embedding_, *model.factors_], model.core_)
    )
