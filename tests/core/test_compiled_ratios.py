"""Compiled passes over a model against torch: shapes, precisions, memory orders, batches, weights and threads."""

from functools import partial

import numpy as np
import pytest
import torch
from sklearn.base import clone

from nnfactor import NMF
from nnfactor.core import BetaFit, bmme, multiplicative, run
from nnfactor.core.compiled import compiled_loops, without_compiled_loops
from nnfactor.core.data import dense as storage
from nnfactor.core.data.dense import Dense
from nnfactor.core.data.stacked import Stacked
from nnfactor.core.data.weighted import WeightedDense
from nnfactor.core.factors import as_factor

numba = pytest.importorskip("numba")
SHAPES = [(1, 1), (3, 2), (4, 64), (70, 33), (66, 257), (300, 64), (5, 1000), (1100, 70), (129, 272)]
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}  # of the largest entry


@pytest.fixture(autouse=True)
def every_shape(monkeypatch):
    """Shapes for which torch would be faster, too."""
    monkeypatch.setattr(storage, "FEWEST", 0)
    monkeypatch.setattr(storage, "NARROWEST", dict.fromkeys(storage.NARROWEST, 0))


def made(shape, k, dtype=torch.float64, batch=(), seed=0):
    """Counts, and factors with zeros, in the order in which factors are stored."""
    rng = np.random.default_rng(seed)
    tensor = lambda A: torch.from_numpy(A).to(dtype)
    factors = [rng.random((*batch, d, k)) * (rng.random((*batch, d, k)) > 0.1) for d in shape]
    return tensor(rng.poisson(2.0, shape).astype(float)), [as_factor(tensor(F)) for F in factors]


def results(data, factors):
    products = [data.ratio_products(factors, mode, 1.0) for mode in range(len(factors))]
    return [part for pair in products for part in pair] + [data.divergence(factors, 1.0)]


def assert_same(data, factors):
    assert compiled_loops("ratios", *factors) is not None
    compiled = results(data, factors)
    with without_compiled_loops():
        plain = results(data, factors)
    for a, b in zip(compiled, plain, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        assert a.dim() < 2 or a.mT.is_contiguous() == b.mT.is_contiguous()
        assert (a - b).abs().max() <= TOLERANCE[factors[0].dtype] * b.abs().max()


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("k", [1, 4, 10, 35])
@pytest.mark.parametrize("shape", SHAPES)
def test_one_problem(shape, k, dtype):
    X, factors = made(shape, k, dtype)
    assert_same(Dense(X), factors)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_memory_of_any_order(dtype):
    X, factors = made((90, 70), 6, dtype)
    wide = torch.zeros(90, 100, dtype=dtype)
    wide[:, 20:90] = X
    for same in (X.T.contiguous().T, wide[:, 20:90], torch.stack([X, X], 2)[..., 0]):
        assert_same(Dense(same), factors)
        torch.testing.assert_close(results(Dense(same), factors), results(Dense(X), factors))
    assert_same(Dense(X), [F.contiguous() for F in factors])
    assert_same(Dense(X), [F.double() for F in factors])


def test_tensors_of_order_three():
    for dtype in TOLERANCE:
        X, factors = made((12, 9, 14), 5, dtype)
        assert_same(Dense(X), factors)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_a_batch_is_the_single_problems(dtype):
    X, factors = made((140, 75), 7, dtype, (3,))
    assert_same(Dense(X), factors)
    for i in range(3):
        alone = results(Dense(X), [F[i] for F in factors])
        for one, all_ in zip(alone, results(Dense(X), factors), strict=True):
            assert torch.equal(one, all_[i])


def test_data_sets_of_their_own():
    several = [Dense(made((80, 66), 4, seed=seed)[0] * 10.0**seed) for seed in range(3)]
    factors = made((80, 66), 4, batch=(4,))[1]
    stacked = Stacked.of([several[0], several[0], several[1], several[2]])
    assert_same(stacked, factors)
    assert_same(stacked.select_problems(torch.tensor([0, 3])), [F[[0, 3]] for F in factors])


def test_weights_and_hidden_entries():
    X, factors = made((100, 64), 5)
    W = torch.from_numpy(np.random.default_rng(1).choice([0.0, 0.5, 1.0], (100, 64)))
    assert_same(WeightedDense(X * W, W), factors)
    for share in (0.02, 0.4):
        hidden = np.where(np.random.default_rng(2).random(X.shape) < share, np.nan, X.numpy())
        model = NMF(4, loss="kl", missing="nan", random_state=0, max_iter=30, tol=0)
        compiled = clone(model).fit(hidden)
        with without_compiled_loops():
            model.fit(hidden)
        np.testing.assert_allclose(compiled.embedding_, model.embedding_, atol=1e-9)
        np.testing.assert_allclose(compiled.loss_, model.loss_, rtol=1e-12)


@pytest.mark.parametrize("threads", [1, 3])
def test_the_answer_does_not_depend_on_threads(threads):
    X, factors = made((1500, 700), 20, torch.float32)
    before = results(Dense(X), factors)
    used = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        after = results(Dense(X), factors)
    finally:
        torch.set_num_threads(used)
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_nothing_bad_is_hidden():
    X, factors = made((70, 66), 3)
    for bad in (float("nan"), float("inf")):
        spoilt = [factors[0].clone(), factors[1]]
        spoilt[0][5, 1] = bad
        minus, divergence = Dense(X).ratio_products(spoilt, 1, 1.0)[0], Dense(X).divergence(spoilt, 1.0)
        with without_compiled_loops():
            plain = Dense(X).ratio_products(spoilt, 1, 1.0)[0], Dense(X).divergence(spoilt, 1.0)
        assert torch.equal(minus.isfinite(), plain[0].isfinite()) and not divergence.isfinite()
        assert not plain[1].isfinite()


def test_logarithms_of_the_whole_range():
    for dtype in TOLERANCE:
        info = torch.finfo(dtype)
        x = torch.logspace(np.log10(info.tiny) + 1, np.log10(info.max) - 6, 4000, dtype=torch.float64).to(dtype)
        for some in x.split(40):
            ones = [torch.ones(d, 1, dtype=dtype) for d in (1, len(some))]
            found = compiled_loops("ratios").divergence(some[None, None], [0], ones, torch.tensor(info.tiny))
            wide = some.double()
            torch.testing.assert_close(found, (wide * wide.log() - wide + 1).sum(), rtol=4 * info.eps, atol=0)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_fits_end_where_those_of_torch_do(dtype):
    X, factors = made((150, 90), 4, dtype)
    start = dict(zip(("V", "U1"), factors, strict=True))
    fit = lambda: run(
        [BetaFit(X, ("V", "U1"))],
        {"U1": multiplicative, "V": multiplicative},
        start,
        method=partial(bmme, step=1.3),
        max_iter=200,
        tol=0,
    )
    compiled = fit()
    with without_compiled_loops():
        plain = fit()
    np.testing.assert_allclose(compiled.objective, plain.objective, rtol=1e-5 if dtype == torch.float32 else 1e-10)
