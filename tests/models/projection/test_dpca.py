"""Discriminant PCA against explicit sums over pairs, and what must hold for degenerate input."""

import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.decomposition import PCA

from nnfactor.models.projection.dpca import DPCA

relaxed = settings(max_examples=40, deadline=None, derandomize=True)


def reference(X, y=None, must=(), cannot=(), eta=1.0, lam=1.0):
    """S_B - eta S_W + lam S_T from double loops over pairs."""
    n, m = X.shape
    y = [-1] * n if y is None else list(y)
    same = {tuple(sorted(p)) for p in must}
    different = {tuple(sorted(p)) for p in cannot}
    for i in range(n):
        for j in range(i + 1, n):
            if y[i] >= 0 and y[j] >= 0:
                (same if y[i] == y[j] else different).add((i, j))
    average = lambda pairs: (
        sum((np.outer(X[i] - X[j], X[i] - X[j]) for i, j in pairs), np.zeros((m, m))) / max(1, len(pairs))
    )
    C = X - X.mean(0)
    return average(different) - eta * average(same) + lam * C.T @ C / n


def assert_top(model, M, d, tol=1e-9):
    """Orthonormal eigenvectors of M with its d largest eigenvalues."""
    values = np.linalg.eigvalsh(M)[::-1][:d]
    scale = np.abs(np.linalg.eigvalsh(M)).max() + 1e-300
    W = model.components_.T
    assert W.shape == (len(M), min(d, len(M))) and model.n_components_ == W.shape[1]
    np.testing.assert_allclose(W.T @ W, np.eye(W.shape[1]), atol=1e-9)
    np.testing.assert_allclose(model.eigenvalues_, values, atol=tol * scale)
    np.testing.assert_allclose(M @ W, W * model.eigenvalues_, atol=10 * tol * scale)


def supervision(rng, n, classes=3, pairs=4):
    """Labels with gaps, and constraints that agree with a hidden truth."""
    truth = rng.integers(0, classes, n)
    y = np.where(rng.random(n) < 0.5, truth, -1)
    must, cannot = [], []
    for _ in range(pairs if n > 1 else 0):
        i, j = rng.choice(n, 2, replace=False)
        (must if truth[i] == truth[j] else cannot).append((i, j))
    return y, must, cannot


@relaxed
@given(
    n=st.integers(1, 12),
    m=st.integers(1, 12),
    d=st.integers(1, 14),
    seed=st.integers(0, 9999),
    eta=st.sampled_from([0.0, 0.1, 1.0, 100.0]),
    lam=st.sampled_from([0.0, 1.0, 10.0]),
    sparse=st.booleans(),
)
def test_equals_explicit_pair_sums(n, m, d, seed, eta, lam, sparse):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, m)) * (rng.random((n, m)) < 0.7) * 10.0 ** rng.integers(-1, 2, size=m)
    X[rng.integers(n)] = X[0]
    y, must, cannot = supervision(rng, n)
    model = DPCA(d, eta=eta, lam=lam).fit(
        sp.csr_array(X) if sparse else X, y, must_link=must + must[:1], cannot_link=cannot + [p[::-1] for p in cannot]
    )
    assert_top(model, reference(X, y, must, cannot, eta, lam), d, tol=1e-7 if sparse else 1e-10)


@pytest.mark.parametrize("shape", [(30, 5), (8, 40)])
def test_without_supervision_it_is_pca(shape):
    X = np.random.default_rng(0).normal(size=shape) + 5
    a, b = DPCA(3).fit(X), PCA(3).fit(X)
    np.testing.assert_allclose(abs((a.components_ * b.components_).sum(1)), 1, atol=1e-10)
    np.testing.assert_allclose(a.mean_, b.mean_)
    np.testing.assert_allclose(abs(a.transform(X)), abs(b.transform(X)), atol=1e-10)
    for y in (np.full(shape[0], -1), [None] * shape[0], np.full(shape[0], np.nan)):
        np.testing.assert_array_equal(DPCA(3).fit(X, y).components_, a.components_)


def test_pairs_alone_equal_the_labels_that_they_spell_out():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(9, 4)), np.array([0, 1, 2] * 3)
    pairs = [(i, j) for i in range(9) for j in range(i)]
    must = [p for p in pairs if y[p[0]] == y[p[1]]]
    cannot = [p for p in pairs if y[p[0]] != y[p[1]]]
    a = DPCA(4, eta=0.3).fit(X, y)
    b = DPCA(4, eta=0.3).fit(X, must_link=np.array(must), cannot_link=torch.tensor(cannot))
    np.testing.assert_allclose(a.eigenvalues_, b.eigenvalues_)
    c = DPCA(4, eta=0.3).fit(X, y, must_link=must, cannot_link=cannot)  # told twice
    np.testing.assert_array_equal(a.components_, c.components_)


def test_each_option_works_in_its_direction():
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(40, 6)), np.repeat([0, 1], 20)
    spread = lambda model: np.var(
        np.concatenate([model.transform(X[y == c]) - model.transform(X[y == c]).mean(0) for c in (0, 1)])
    )
    assert spread(DPCA(1, eta=100).fit(X, y)) < spread(DPCA(1, eta=0).fit(X, y))
    total = lambda model: model.transform(X).var()
    assert total(DPCA(1, lam=100).fit(X, y)) > total(DPCA(1, lam=0, eta=10).fit(X, y))
    far = lambda model: np.abs(np.diff(model.transform(X[:2]), axis=0)).item()
    assert far(DPCA(1).fit(X, must_link=[(0, 1)])) < far(DPCA(1).fit(X, cannot_link=[(0, 1)]))


def test_far_from_the_origin_and_far_apart():
    """Sums of squares of differences: a within-class spread of 1e-5 beside classes 1e3 apart, at an offset of 1e3."""
    rng = np.random.default_rng(3)
    y = np.repeat([0, 1], 20)
    X = 1e3 + 1e3 * y[:, None] * np.array([1.0, 0, 0]) + 1e-5 * rng.normal(size=(40, 3)) * [1, 10, 1]
    model = DPCA(3, eta=1e9, lam=0).fit(X, y)
    M = reference(X, y, eta=1e9, lam=0)
    np.testing.assert_allclose(model.eigenvalues_, np.linalg.eigvalsh(M)[::-1], rtol=1e-6)


@pytest.mark.parametrize(
    "X",
    [np.zeros((4, 3)), np.ones((4, 3)), np.ones((1, 3)), np.ones((1, 1)), np.ones((5, 1)), np.full((3, 7), 0.1)],
    ids=str,
)
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array, torch.from_numpy])
def test_degenerate_data_give_finite_orthonormal_directions(X, kind):
    model = DPCA().fit(kind(X), np.arange(len(X)) % 2)
    W = np.asarray(model.components_)
    assert W.shape == (min(2, X.shape[1]), X.shape[1])
    np.testing.assert_allclose(W @ W.T, np.eye(len(W)), atol=1e-10)
    np.testing.assert_allclose(np.asarray(model.transform(kind(X))), 0, atol=1e-12)
    np.testing.assert_allclose(np.asarray(model.eigenvalues_), 0, atol=1e-25)


def test_zero_eigenvalues_outside_the_data_come_before_negative_ones():
    X, y = np.random.default_rng(5).normal(size=(4, 9)), [0, 0, 0, 0]
    for kind in (np.asarray, sp.csr_array):
        model = DPCA(9, eta=10.0, lam=1.0).fit(kind(X), y)
        assert_top(model, reference(X, y, eta=10.0), 9, tol=1e-8)
        assert (model.eigenvalues_ <= 1e-9).all() and (abs(model.eigenvalues_) < 1e-9).sum() == 6


def test_kinds_and_layouts_in_and_out():
    rng = np.random.default_rng(7)
    X = rng.normal(size=(9, 4)) * (rng.random((9, 4)) < 0.6)
    y, must = [0, 0, 1, 1, -1, -1, -1, -1, -1], [(5, 6)]
    fit = lambda X, **kw: DPCA(2, **kw).fit(X, y, must_link=must)
    expected = fit(X)
    Z = expected.transform(X)
    read_only = X.copy()
    read_only.flags.writeable = False
    for other in (np.asfortranarray(X), read_only, X[::-1][::-1], X.astype(">f8"), sp.coo_matrix(X), sp.csc_array(X)):
        model = fit(other)
        np.testing.assert_allclose(model.components_, expected.components_, atol=1e-10)
        np.testing.assert_allclose(model.transform(other), Z, atol=1e-10)
        assert isinstance(model.components_, np.ndarray)
    for kind in (lambda x: x, lambda x: x.to_sparse()):
        T = kind(torch.from_numpy(X).float())
        model = fit(T)
        assert model.components_.dtype == model.transform(T).dtype == torch.float32
        np.testing.assert_allclose(model.transform(T).numpy(), Z, atol=1e-5)
    assert fit(X.astype(np.float32)).transform(X.astype(np.float32)).dtype == np.float32
    assert fit(X, dtype="float32").components_.dtype == np.float32
    assert fit((X * 10).astype(np.int16)).components_.dtype == np.float64
    np.testing.assert_allclose(fit(sp.lil_matrix(X)).components_, fit(sp.csr_matrix(X)).components_)


def test_surface():
    rng = np.random.default_rng(8)
    frame = pd.DataFrame(rng.normal(size=(12, 3)), columns=["a", "b", "c"])
    y = np.arange(12) % 2
    model = DPCA(2).set_output(transform="pandas")
    out = model.fit_transform(frame, y, must_link=[(0, 2)])
    assert list(out.columns) == ["dpca0", "dpca1"] and list(model.feature_names_in_) == ["a", "b", "c"]
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.components_, model.components_)
    np.testing.assert_allclose(again.transform(frame), out, atol=1e-13)
    assert clone(model).get_params() == model.get_params() and model.n_features_in_ == 3
    full = DPCA(3).fit(frame.to_numpy(), y)
    X = frame.to_numpy()
    np.testing.assert_allclose(full.inverse_transform(full.transform(X)), X, atol=1e-12)
    np.testing.assert_allclose(full.transform(X[3:4]), full.transform(X)[3:4], atol=1e-13)
    T = torch.tensor(X).float()
    assert full.inverse_transform(full.transform(T)).dtype == torch.float32
    with pytest.raises(ValueError, match=r"Z has shape \(3, 1\); it must be \(n_samples, 3\)"):
        full.inverse_transform(np.ones((3, 1)))
    largest = np.take_along_axis(full.components_, abs(full.components_).argmax(1)[:, None], 1)
    assert (largest > 0).all()
    assert full.fit_info_["dtype"] == "float64" and full.fit_info_["device"] == "cpu"


@pytest.mark.parametrize(
    ("kwargs", "y", "pairs", "message"),
    [
        ({"n_components": 0}, None, {}, "n_components must be a whole number >= 1, got 0"),
        ({"eta": -1.0}, None, {}, "eta must be a finite number >= 0, got -1.0"),
        ({"lam": np.inf}, None, {}, "lam must be"),
        ({}, [0, 1], {}, r"y has shape \(2,\), X has 5 samples"),
        ({}, None, {"must_link": [(0, 5)]}, r"must_link has 1 pairs outside 0..4, the first is \(0, 5\)"),
        ({}, None, {"cannot_link": [(-1, 2)]}, r"cannot_link .* outside 0..4, the first is \(-1, 2\)"),
        ({}, None, {"must_link": [(1, 1)]}, "pairs sample 1 with itself"),
        ({}, None, {"must_link": [(1, 2)], "cannot_link": [(2, 1)]}, r"in must_link and cannot_link, .* \(1, 2\)"),
        ({}, [0, 1, -1, -1, -1], {"must_link": [(1, 0)]}, r"must_link contradicts y in 1 pairs.*differ"),
        ({}, [0, 0, -1, -1, -1], {"cannot_link": [(0, 1)]}, "cannot_link contradicts y.*are equal"),
        ({}, None, {"must_link": [0, 1]}, r"must_link must be integers \(n_pairs, 2\), got int64 of shape \(2,\)"),
        ({}, None, {"must_link": [(0.5, 1.0)]}, "got float64"),
    ],
)
def test_errors_name_the_argument(kwargs, y, pairs, message):
    with pytest.raises(ValueError, match=message):
        DPCA(**kwargs).fit(np.eye(5), y, **pairs)


def test_many_labelled_samples_cost_no_pairs():
    """20 000 labelled samples are 2e8 pairs."""
    rng = np.random.default_rng(9)
    X, y = rng.normal(size=(20000, 4)), rng.integers(0, 3, 20000)
    X[:, 1] += y
    M = np.zeros((4, 4))
    sizes = np.bincount(y)
    centred = X - X.mean(0)
    within = sum((n * np.cov(X[y == c].T, bias=True) * n for c, n in enumerate(sizes)), np.zeros((4, 4)))
    every = len(y) * centred.T @ centred
    pairs = (sizes * (sizes - 1) // 2).sum()
    M = (every - within) / (len(y) * (len(y) - 1) // 2 - pairs) - within / pairs + centred.T @ centred / len(y)
    assert_top(DPCA(4).fit(X, y), M, 4)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_equals_cpu():
    X, y = np.random.default_rng(10).normal(size=(20, 40)), np.arange(20) % 3 - 1
    here, there = (
        DPCA(3, device="cpu").fit(X, y, must_link=[(0, 3)]),
        DPCA(3, device="cuda").fit(X, y, must_link=[(0, 3)]),
    )
    np.testing.assert_allclose(here.components_, there.components_, atol=1e-8)
    T = torch.from_numpy(X).cuda()
    model = DPCA(3).fit(T, y)
    assert model.transform(T).is_cuda and not pickle.loads(pickle.dumps(model)).components_.is_cuda


@pytest.mark.parametrize("scale", [1e-300, 1e200, 1e300])
def test_squares_of_the_unit_may_leave_the_range(scale):
    X = np.random.default_rng(0).normal(size=(12, 4))
    base, far = (DPCA(2).fit(Z, np.arange(12) % 3) for Z in (X, X * scale))
    np.testing.assert_allclose(far.components_, base.components_, atol=1e-9)
    np.testing.assert_allclose(far.transform(X * scale) / scale, base.transform(X), atol=1e-9)
    assert (np.abs(far.eigenvalues_) == (0 if scale < 1 else np.inf)).all()


@pytest.mark.parametrize(
    ("y", "must", "cannot", "message"),
    [
        (None, [(0, 1), (1, 2)], [(0, 2)], r"cannot_link has 1 pairs that must_link and y join .* \(0, 2\)"),
        (None, [(4, 3), (3, 2), (1, 2)], [(0, 5), (4, 1)], r"the first is \(1, 4\)"),
        ([0, -1, -1, 0, -1, -1], [(0, 1), (2, 3)], [(1, 2)], "join through other samples"),
        ([0, -1, 1, -1, -1, -1], [(0, 1), (1, 2)], None, "different labels through other samples"),
    ],
)
def test_contradictions_through_other_samples_are_refused(y, must, cannot, message):
    X = np.random.default_rng(0).normal(size=(6, 3))
    with pytest.raises(ValueError, match=message):
        DPCA(2).fit(X, y, must_link=must, cannot_link=cannot)
    DPCA(2).fit(X, y, must_link=must[:1], cannot_link=[(4, 5)])
