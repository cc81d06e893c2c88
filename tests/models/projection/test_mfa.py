"""Marginal Fisher analysis against dense generalised eigenproblems, and what must hold for degenerate input."""

import os
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.linalg
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.neighbors import KNeighborsClassifier

from nnfactor.graphs import knn_graph, marginal_fisher_graphs
from nnfactor.models.projection.mfa import MFA, SMFA

relaxed = settings(max_examples=40, deadline=None, derandomize=True)
MODELS = {"MFA": MFA, "SMFA": SMFA}


def graphs(X, y, k1=3, k2=20, p=5):
    """Intrinsic, penalty and neighbour adjacency, sample by sample in plain loops."""
    n = len(X)
    D = np.array([[np.sum((a - b) ** 2) for b in X] for a in X])
    own, between, near = np.zeros((3, n, n))
    for i in range(n):
        for j in sorted((j for j in range(n) if j != i), key=lambda j: (D[i, j], j))[:p]:
            near[i, j] = near[j, i] = 1
        if y[i] >= 0:
            mates = [j for j in range(n) if j != i and y[j] == y[i]]
            for j in sorted(mates, key=lambda j: (D[i, j], j))[:k1]:
                own[i, j] = own[j, i] = 1
    for c in set(y) - {-1}:
        pairs = [(D[i, j], i, j) for i in range(n) for j in range(n) if y[i] == c and y[j] not in (-1, c)]
        for _, i, j in sorted(pairs)[:k2]:
            between[i, j] = between[j, i] = 1
    return own, between, near


laplacian = lambda S: np.diag(S.sum(1)) - S


def matrices(X, own, between, dims):
    """PCA basis (m, r), and numerator and denominator in it."""
    C = X - X.mean(0)
    _, s, Vt = np.linalg.svd(C, full_matrices=False)
    r = min(dims, int((s > 1e-10 * s[0]).sum()))
    P = Vt[:r].T
    return P, P.T @ C.T @ laplacian(between) @ C @ P, P.T @ C.T @ laplacian(own) @ C @ P


def assert_solves(model, P, A, B, d):
    """Unit directions in the PCA space, with the largest ratios, in order, and stationary: A w = ratio B w."""
    d = min(d, P.shape[1])
    W = model.components_.T
    assert W.shape[1] == d
    np.testing.assert_allclose(np.linalg.norm(W, axis=0), 1, atol=1e-10)
    np.testing.assert_allclose(P @ (P.T @ W), W, atol=1e-8)
    ratios = scipy.linalg.eigh(A, B, eigvals_only=True)[::-1][:d]
    np.testing.assert_allclose(model.eigenvalues_, ratios, rtol=1e-5, atol=1e-8 * ratios[0])
    V = P.T @ W
    for v, ratio in zip(V.T, model.eigenvalues_):
        size = 1e-6 * (np.linalg.norm(A @ v) + ratio * np.linalg.norm(B @ v)) + 1e-10 * np.linalg.norm(A + B)
        np.testing.assert_allclose(A @ v, ratio * (B @ v), rtol=0, atol=size)


def data(rng, n=24, m=6, classes=3, unlabelled=0.0):
    y = np.arange(n) % classes
    X = rng.normal(size=(n, m)) * rng.uniform(0.2, 5, m) + rng.normal(size=(classes, m))[y]
    return X, np.where(rng.random(n) < unlabelled, -1, y)


@relaxed
@given(
    n=st.integers(8, 30),
    m=st.integers(1, 40),
    classes=st.integers(2, 4),
    d=st.integers(1, 8),
    seed=st.integers(0, 9999),
    kind=st.sampled_from([np.asarray, sp.csr_array, torch.from_numpy]),
)
def test_mfa_equals_a_dense_generalised_eigenproblem(n, m, classes, d, seed, kind):
    rng = np.random.default_rng(seed)
    X, y = data(rng, n, m, classes, unlabelled=0.2)
    y[: 2 * classes] = np.arange(2 * classes) % classes
    model = MFA(d).fit(kind(X), y)
    L = y >= 0
    own, between, _ = graphs(X[L], y[L])
    P, A, B = matrices(X[L], own, between, L.sum() - classes)
    assert model.n_pca_ == P.shape[1]
    if np.linalg.cond(B) < 1e8:
        model.components_, model.eigenvalues_ = np.asarray(model.components_), np.asarray(model.eigenvalues_)
        assert_solves(model, P, A, B, d)


@relaxed
@given(
    n=st.integers(10, 30),
    m=st.integers(1, 40),
    d=st.integers(1, 8),
    seed=st.integers(0, 9999),
    beta=st.sampled_from([1e-3, 1.0, 100.0]),
    sparse=st.booleans(),
)
def test_smfa_equals_a_dense_generalised_eigenproblem(n, m, d, seed, beta, sparse):
    rng = np.random.default_rng(seed)
    X, y = data(rng, n, m, 3, unlabelled=0.6)
    y[:3] = [0, 1, 2]
    model = SMFA(d, beta=beta, neighbors=4).fit(sp.csr_array(X) if sparse else X, y)
    own, between, near = graphs(X, y, p=4)
    P, A, B = matrices(X, own + beta * near, between, n - 3)
    assert model.n_pca_ == P.shape[1]
    if np.linalg.cond(B) < 1e8:
        assert_solves(model, P, A, B, d)


@pytest.mark.parametrize("name", MODELS)
def test_given_graphs_equal_built_ones(name):
    X, y = data(np.random.default_rng(0), unlabelled=0.4)
    built = MODELS[name](3).fit(X, y)
    links = marginal_fisher_graphs(X, y)
    extra = {"neighbors": knn_graph(X, 5).toarray()} if name == "SMFA" else {}
    for pair in (links, tuple(g.toarray() for g in links), [sp.coo_array(g.toarray()) for g in links]):
        model = MODELS[name](3, graph=pair, **extra).fit(X, y)
        np.testing.assert_allclose(model.components_, built.components_, atol=1e-9)
    free = MODELS[name](3, graph=links, pca=None, **extra).fit(X)  # no labels at all
    assert free.components_.shape == (3, 6) and len(free.classes_) == 0


def test_unlabelled_samples_have_no_part_in_mfa_and_one_in_smfa():
    rng = np.random.default_rng(1)
    X, y = data(rng)
    more, none = np.vstack([X, 50 * rng.normal(size=(10, 6))]), np.append(y, np.full(10, -1))
    np.testing.assert_allclose(MFA(2).fit(more, none).components_, MFA(2).fit(X, y).components_, atol=1e-10)
    np.testing.assert_allclose(MFA(2).fit(more, none).mean_, X.mean(0))
    assert SMFA(2).fit(more, none).n_pca_ == 6
    assert abs(SMFA(2).fit(more, none).components_ - SMFA(2).fit(X, y).components_).max() > 1e-3


def test_options_work_in_their_direction():
    rng = np.random.default_rng(2)
    X, y = data(rng, 60, 8, unlabelled=0.5)
    near = laplacian(knn_graph(X, 5).toarray())
    rough = lambda model: np.trace(model.transform(X).T @ near @ model.transform(X)) / model.transform(X).var()
    assert rough(SMFA(1, beta=1e3).fit(X, y)) < rough(SMFA(1, beta=1e-6).fit(X, y))
    few, many = MFA(1, n_pairs=1).fit(X, y), MFA(1, n_pairs=50).fit(X, y)
    assert few.graph_[1].n_edges < many.graph_[1].n_edges
    assert MFA(1, n_neighbors=1).fit(X, y).graph_[0].n_edges < MFA(1, n_neighbors=9).fit(X, y).graph_[0].n_edges
    assert MFA(1, pca=2).fit(X, y).n_pca_ == 2 and MFA(1, pca=None).fit(X, y).n_pca_ == 8


def test_scalings():
    X, y = data(np.random.default_rng(3), 40, 6)
    fit = lambda scaling: MFA(3, scaling=scaling).fit(X, y)
    unit, b, q = fit("unit"), fit("b-orthonormal"), fit("orthonormal")
    _, _, B = matrices(X, *graphs(X, y)[:2], 6)
    C = X - X.mean(0)
    B = C.T @ laplacian(graphs(X, y)[0]) @ C
    np.testing.assert_allclose(b.components_ @ B @ b.components_.T, np.eye(3), atol=1e-9)
    np.testing.assert_allclose(q.components_ @ q.components_.T, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(unit.components_, axis=1), 1)
    cosines = (unit.components_ * b.components_).sum(1) / np.linalg.norm(b.components_, axis=1)
    np.testing.assert_allclose(cosines, 1, atol=1e-10)
    np.testing.assert_allclose(np.linalg.matrix_rank(np.vstack([unit.components_, q.components_]), tol=1e-8), 3)
    tiny = MFA(3, scaling="b-orthonormal").fit(X * 1e-30, y)
    np.testing.assert_allclose(tiny.components_ * 1e-30, b.components_, rtol=1e-7)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("scale", [1e-200, 1e-30, 1e30, 1e150])
@pytest.mark.parametrize("m", [5, 60])
def test_scale_of_the_data_has_no_influence(name, scale, m):
    X, y = data(np.random.default_rng(4), 24, m, unlabelled=0.3)
    a, b = MODELS[name](3).fit(X, y), MODELS[name](3).fit(X * scale, y)
    np.testing.assert_allclose(a.components_, b.components_, atol=1e-7)
    np.testing.assert_allclose(a.eigenvalues_, b.eigenvalues_, rtol=1e-7)
    np.testing.assert_allclose(a.transform(X), b.transform(X * scale) / scale, rtol=1e-6, atol=1e-6)


def test_features_in_very_different_units():
    """Ratios are blind to linear maps of the features; so is what is computed, over ten decades."""
    X, y = data(np.random.default_rng(5), 40, 4)
    own, between = marginal_fisher_graphs(X, y)
    units = np.array([1e-4, 1.0, 1e3, 1e6])
    a = MFA(4, pca=None, graph=(own, between)).fit(X, y)
    b = MFA(4, pca=None, graph=(own, between)).fit(X * units, y)
    np.testing.assert_allclose(a.eigenvalues_, b.eigenvalues_, rtol=1e-6)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array, torch.from_numpy])
@pytest.mark.parametrize(
    "case",
    ["one sample", "1x1", "one class", "one each", "zeros", "constant", "duplicates", "collapsed", "one feature"],
)
def test_degenerate_data(name, kind, case):
    rng = np.random.default_rng(6)
    X, y = {
        "one sample": (rng.normal(size=(1, 4)), [3]),
        "1x1": (np.ones((1, 1)), ["a"]),
        "one class": (rng.normal(size=(7, 4)), [2] * 7),
        "one each": (rng.normal(size=(5, 4)), [0, 1, 2, 3, 4]),
        "zeros": (np.zeros((6, 4)), [0, 1] * 3),
        "constant": (np.full((6, 4), 0.1), [0, 1] * 3),
        "duplicates": (np.repeat(rng.normal(size=(4, 5)), 3, axis=0), np.repeat([0, 1, 0, 1], 3)),
        "collapsed": (np.eye(3)[[0, 1, 2, 0, 1, 2]] * 5, [0, 1, 2, 0, 1, 2]),
        "one feature": (rng.normal(size=(9, 1)), [0, 1, 2] * 3),
    }[case]
    for scaling in ("unit", "orthonormal", "b-orthonormal"):
        for pca in ("auto", None, 99):
            model = MODELS[name](3, scaling=scaling, pca=pca).fit(kind(X), y)
            W, ratios = np.asarray(model.components_), np.asarray(model.eigenvalues_)
            assert 1 <= len(W) <= min(3, X.shape[1]) and np.isfinite(W).all() and not np.isnan(ratios).any()
            assert (np.linalg.norm(W, axis=1) > 1e-8).all() and (np.diff(ratios[np.isfinite(ratios)]) <= 1e-9).all()
            assert np.isfinite(np.asarray(model.transform(kind(X)))).all()


def test_vanishing_denominators_come_first_by_what_they_separate():
    """Classes of equal samples: the denominator is zero. The widest gaps lead, and one class gives plain PCA."""
    y = np.repeat([0, 1, 2], 4)
    X = np.zeros((12, 3))
    X[:, 0], X[:, 1] = np.array([0, 100, 100.0])[y], np.array([0, 0, 1.0])[y]
    model = MFA(3).fit(X, y)
    assert model.n_components_ == 2 and np.isinf(model.eigenvalues_).all()
    assert abs(model.components_[0, 0]) > 0.99
    Z = np.random.default_rng(7).normal(size=(20, 4)) * [1, 5, 2, 1]
    one = MFA(2).fit(Z, np.zeros(20))
    np.testing.assert_allclose(abs((one.components_ * PCA(2).fit(Z).components_).sum(1)), 1, atol=1e-10)
    np.testing.assert_array_equal(one.eigenvalues_, 0)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array, torch.from_numpy])
@pytest.mark.parametrize("m", [8, 100])
def test_a_spike_is_no_direction(name, kind, m):
    """The ratio is blind to scale, so that a feature of one value of 1e-7 would be its optimum."""
    rng, y = np.random.default_rng(0), np.arange(60) % 2
    X = np.abs(rng.normal(size=(60, m)))
    X[y == 1, :4] += 2
    X[:, 3] = 0
    expected = MODELS[name](2).fit(kind(X), y)
    X[1, 3] = 1e-7
    model = MODELS[name](2).fit(kind(X), y)
    np.testing.assert_allclose(np.asarray(model.components_), np.asarray(expected.components_), atol=1e-6)
    assert abs(np.asarray(model.components_)[:, 3]).max() < 1e-4 and model.n_pca_ == expected.n_pca_
    assert abs(np.asarray(model.transform(kind(X)))).max() > 0.1


@pytest.mark.parametrize("name", MODELS)
def test_constant_features_and_zero_rows_change_nothing(name):
    X, y = data(np.random.default_rng(8))
    wide = np.hstack([X, np.full((24, 1), 7.0), np.zeros((24, 2))])
    a, b = MODELS[name](2).fit(X, y), MODELS[name](2).fit(wide, y)
    np.testing.assert_allclose(b.components_[:, :6], a.components_, atol=1e-9)
    np.testing.assert_allclose(b.components_[:, 6:], 0, atol=1e-9)
    X[::5] = 0
    assert np.isfinite(MODELS[name](2).fit(X, y).components_).all()


@pytest.mark.parametrize("name", MODELS)
def test_kinds_and_layouts_in_and_out(name):
    rng = np.random.default_rng(10)
    X, y = data(rng, 20, 5)
    X = np.where(rng.random(X.shape) < 0.7, X, 0)
    expected = MODELS[name](2).fit(X, y)
    for other in (np.asfortranarray(X), X[::-1][::-1], X.astype(">f8"), sp.coo_matrix(X), sp.csc_array(X)):
        model = MODELS[name](2).fit(other, y)
        np.testing.assert_allclose(model.components_, expected.components_, atol=1e-9)
        np.testing.assert_allclose(model.transform(other), expected.transform(X), atol=1e-9)
    T = torch.from_numpy(X).float()
    model = MODELS[name](2).fit(T, torch.from_numpy(y))
    assert model.transform(T).dtype == model.components_.dtype == torch.float32
    np.testing.assert_allclose(model.transform(T).numpy(), expected.transform(X), atol=1e-4)
    assert MODELS[name](2).fit(X.astype(np.float32), y).transform(X.astype(np.float32)).dtype == np.float32
    frame = pd.DataFrame(X, columns=list("abcde"))
    out = MODELS[name](2).set_output(transform="pandas").fit_transform(frame, y)
    assert list(out.columns) == [f"{name.lower()}0", f"{name.lower()}1"]
    again = pickle.loads(pickle.dumps(model))
    assert torch.equal(again.components_, model.components_) and clone(model).n_components == 2
    np.testing.assert_allclose(again.transform(T), model.transform(T), atol=1e-5)


@pytest.mark.parametrize(
    ("make", "y", "message"),
    [
        (lambda: MFA(0), [0, 1, 0, 1], "n_components must be a whole number >= 1, got 0"),
        (lambda: MFA(2, scaling="none"), [0, 1, 0, 1], "scaling='none' is not known; use 'unit'"),
        (lambda: MFA(2, pca="all"), [0, 1, 0, 1], "pca must be 'auto', None or a whole number"),
        (lambda: MFA(2, graph="knn"), [0, 1, 0, 1], "graph='knn' is not known"),
        (lambda: MFA(2, graph=(np.eye(4),)), [0, 1, 0, 1], "use 'marginal_fisher' or a pair"),
        (lambda: MFA(2, graph=(np.ones((3, 3)),) * 2), [0, 1, 0, 1], r"graph\[0\] has 3 nodes, X has 4 samples"),
        (lambda: MFA(2, graph=(np.ones((4, 4)), np.triu(np.ones((4, 4))))), None, r"graph\[1\].*not symmetric"),
        (lambda: MFA(2, graph=(np.zeros((4, 4)),) * 2), [-1] * 4, "no sample of 4 has a label or a link"),
        (lambda: MFA(2), None, "MFA requires y to be passed"),
        (lambda: MFA(2), [-1] * 4, "y has no labelled sample among 4; MFA needs at least one"),
        (lambda: MFA(2), [0, 1], r"y has shape \(2,\), X has 4 samples"),
        (lambda: MFA(2, n_pairs=-1), [0, 1, 0, 1], "n_pairs must be a whole number >= 0"),
        (lambda: SMFA(2, beta=-1), [0, 1, 0, 1], "beta must be a finite number >= 0"),
        (lambda: SMFA(2, neighbors="all"), [0, 1, 0, 1], "neighbors must be an adjacency or a whole number"),
        (lambda: SMFA(2, neighbors=np.ones((3, 3))), [0, 1, 0, 1], "neighbors has 3 nodes, X has 4 samples"),
    ],
)
def test_errors_name_the_argument(make, y, message):
    with pytest.raises(ValueError, match=message):
        make().fit(np.eye(4), y)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", MODELS)
def test_cuda_equals_cpu(name):
    X, y = data(np.random.default_rng(11), 30, 50, unlabelled=0.3)
    here, there = MODELS[name](3, device="cpu").fit(X, y), MODELS[name](3, device="cuda").fit(X, y)
    np.testing.assert_allclose(here.components_, there.components_, atol=1e-7)


def test_orl_is_where_it_should_be():
    """Half of ORL for training, 1-NN: 94.3 % with unit columns, far less with B-orthonormal ones."""
    file = Path(os.environ.get("NNFACTOR_DATA", "")) / "orl_32x32.npz"
    if "NNFACTOR_DATA" not in os.environ or not file.exists():
        pytest.skip("NNFACTOR_DATA names no folder with orl_32x32.npz")
    with np.load(file) as archive:
        X, y = archive["X"].reshape(400, -1) / 255.0, archive["y"].astype(int)
    found = {"unit": [], "orthonormal": [], "b-orthonormal": [], "LDA": []}
    score = lambda Z, T, train, test: 100 * KNeighborsClassifier(1).fit(Z, y[train]).score(T, y[test])
    for seed in range(5):
        rng = np.random.default_rng(seed)
        train = np.concatenate([rng.permutation(np.flatnonzero(y == c))[:5] for c in range(40)])
        test = np.setdiff1d(np.arange(400), train)
        for scaling in ("unit", "orthonormal", "b-orthonormal"):
            model = MFA(39, scaling=scaling).fit(X[train], y[train])
            found[scaling].append(score(model.transform(X[train]), model.transform(X[test]), train, test))
        pca = PCA(160).fit(X[train])
        lda = LinearDiscriminantAnalysis(solver="eigen").fit(pca.transform(X[train]), y[train])
        W = pca.components_.T @ (lda.scalings_[:, :39] / np.linalg.norm(lda.scalings_[:, :39], axis=0))
        found["LDA"].append(score(X[train] @ W, X[test] @ W, train, test))
    means = {key: float(np.mean(values)) for key, values in found.items()}
    print(means)
    assert abs(means["unit"] - 94.3) <= 2 and means["orthonormal"] > 94 and means["b-orthonormal"] < 70, means
    assert abs(means["LDA"] - 93.6) <= 2, means
