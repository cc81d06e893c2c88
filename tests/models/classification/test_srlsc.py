"""S-RLSC, LapRLSC, SRC, harmonic functions, local and global consistency: formulas, and samples no label reaches."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from srlsc_reference import blobs, consistent, data, harmonic, heat, least_squares, neighbours, program, squared, unit

from nnfactor.graphs import linear_neighborhood_graph
from nnfactor.models.classification.label_propagation import HarmonicFunction, LocalGlobalConsistency
from nnfactor.models.classification.lap_rlsc import LapRLSC
from nnfactor.models.classification.src import SRC
from nnfactor.models.classification.srlsc import SRLSC
from nnfactor.sparse_coding.basis_pursuit import l1_code

SPREAD = [HarmonicFunction, LocalGlobalConsistency]


@pytest.mark.parametrize("seed", range(3))
def test_srlsc_is_its_formula(seed):
    X, y, _ = blobs(seed=seed)
    model = SRLSC(tol=1e-6).fit(X, y)
    U, A = unit(X), model.codes_
    value = np.abs(A).sum(1) + np.abs(U - A @ U).sum(1)
    best = [program(np.delete(U, i, 0), U[i]) for i in range(0, 60, 7)]
    np.testing.assert_allclose(value[::7], best, rtol=2e-6)
    K, M = np.exp(-squared(U, U) / 0.25), (np.eye(60) - A).T @ (np.eye(60) - A)
    B = least_squares(K, M, y, 3, 0.005, 0.01)
    np.testing.assert_allclose(model.dual_coef_, B, atol=1e-7 * np.abs(B).max())
    new = X[:9] + 0.3
    np.testing.assert_allclose(model.decision_function(new), np.exp(-squared(unit(new), U) / 0.25) @ B, atol=1e-7)
    assert (model.predict(X) == model.transduction_).all()


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy, sp.csr_array, np.ndarray.tolist])
def test_codes_that_were_computed_before_are_taken_as_they_are(kind):
    X, y, _ = blobs()
    own = SRLSC().fit(X, y)
    other = np.roll(y, 7)
    given = SRLSC(codes=kind(own.codes_), CI=0.3).fit(X, other)
    A, K = own.codes_, np.exp(-squared(unit(X), unit(X)) / 0.25)
    B = least_squares(K, (np.eye(60) - A).T @ (np.eye(60) - A), other, 3, 0.005, 0.3)
    np.testing.assert_allclose(given.dual_coef_, B, atol=1e-7 * np.abs(B).max())
    np.testing.assert_array_equal(given.codes_, own.codes_)
    assert np.isnan(given.code_gaps_).all()
    assert (given.predict(X) == given.transduction_).all()


@pytest.mark.parametrize("normalize", [True, False])
def test_laprlsc_is_its_formula(normalize):
    X, y, _ = blobs(seed=3)
    sigma = 0.5 if normalize else 3.0
    U = unit(X) if normalize else X
    S = neighbours(U, 7)
    K = np.exp(-squared(U, U) / sigma**2)
    B = least_squares(K, np.diag(S.sum(1)) - S, y, 3, 0.02, 0.3)
    model = LapRLSC(CA=0.02, CI=0.3, sigma=sigma, normalize=normalize).fit(X, y)
    np.testing.assert_allclose(model.scores_, K @ B, atol=1e-8)
    np.testing.assert_allclose(model.dual_coef_, B, atol=1e-8 * np.abs(B).max())
    same = LapRLSC(CA=0.02, CI=0.3, sigma=sigma, normalize=normalize, graph=S).fit(X, y)
    np.testing.assert_allclose(same.scores_, model.scores_, atol=1e-10)
    sparse = LapRLSC(CA=0.02, CI=0.3, sigma=sigma, normalize=normalize).fit(sp.csr_array(X), y)
    np.testing.assert_allclose(sparse.scores_, model.scores_, atol=1e-8)


def test_gamma_is_the_inverse_square_of_sigma():
    X, y, _ = blobs(seed=3)
    K = np.exp(-2.0 * squared(unit(X), unit(X)))
    S = neighbours(unit(X), 7)
    B = least_squares(K, np.diag(S.sum(1)) - S, y, 3, 0.005, 0.01)
    for model in (LapRLSC(gamma=2.0), LapRLSC(sigma=None, gamma=2.0)):
        np.testing.assert_allclose(model.fit(X, y).scores_, K @ B, atol=1e-8)
        np.testing.assert_allclose(model.decision_function(X[:5]), (K @ B)[:5], atol=1e-8)
    zero = np.zeros((60, 60))
    plain = SRLSC(codes=zero, gamma=2.0).fit(X, y).scores_
    np.testing.assert_allclose(plain, SRLSC(codes=zero, sigma=2**-0.5).fit(X, y).scores_, atol=1e-10)
    for Model in SPREAD:
        a, b = (Model(n_neighbors=30, **width).fit(X, y) for width in ({"gamma": 0.16}, {"sigma": 2.5}))
        assert a.sigma_ == pytest.approx(2.5)
        np.testing.assert_allclose(a.scores_, b.scores_, atol=1e-10)
        np.testing.assert_allclose(a.predict_proba(X[:5] + 0.1), b.predict_proba(X[:5] + 0.1), atol=1e-10)


def test_laprlsc_with_the_normalized_laplacian_is_its_formula():
    X, y, _ = blobs(seed=3)
    K = np.exp(-squared(unit(X), unit(X)) / 0.25)
    S = neighbours(unit(X), 7)
    S[5], S[:, 5] = 0, 0  # alone: its row of the Laplacian is zero
    r = np.where(S.sum(1) > 0, 1 / np.sqrt(np.maximum(S.sum(1), 1e-300)), 0)
    B = least_squares(K, np.diag(S.sum(1) > 0) - r[:, None] * S * r, y, 3, 0.02, 0.3)
    model = LapRLSC(CA=0.02, CI=0.3, graph=S, laplacian="normalized").fit(X, y)
    np.testing.assert_allclose(model.scores_, K @ B, atol=1e-8)


@pytest.mark.parametrize("Model", [LapRLSC, *SPREAD])
def test_graphs_of_linear_neighbourhoods(Model):
    X, y, truth = blobs(m=8, seed=2)
    points = unit(X) if Model is LapRLSC else X
    graph = linear_neighborhood_graph(points, 5)
    model = Model(graph="linear_neighborhood", n_neighbors=5).fit(X, y)
    np.testing.assert_allclose(model.graph_.toarray(), graph.toarray(), atol=1e-12)
    np.testing.assert_allclose(model.scores_, Model(graph=graph).fit(X, y).scores_, atol=1e-10)
    assert (model.transduction_ == truth).mean() > 0.8


def test_src_is_its_formula():
    X, y, truth = blobs(labelled=6)
    model = SRC(tol=1e-7).fit(X, y)
    D, label = unit(X[y >= 0]), y[y >= 0]
    np.testing.assert_allclose(model.dictionary_, D)
    found = l1_code(torch.from_numpy(D), torch.from_numpy(X), tol=1e-7).codes.numpy()
    for i in np.flatnonzero(y < 0)[::5]:
        left = [np.linalg.norm(found[i] @ D - found[i][label == c] @ D[label == c]) for c in range(3)]
        assert model.transduction_[i] == np.argmin(left)
        np.testing.assert_allclose(model.scores_[i], 1 - left / np.linalg.norm(found[i] @ D), atol=1e-3)
    assert (model.transduction_[y >= 0] == y[y >= 0]).all()
    assert (model.transduction_ == truth).mean() > 0.9


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("sigma", [None, 2.5])
def test_harmonic_functions_are_their_formula(seed, sigma):
    X, y, _ = blobs(n=90, seed=seed, m=2)
    W, width = heat(X, 30, sigma)
    F = harmonic(W, y, 3)
    model = HarmonicFunction(n_neighbors=30, sigma=sigma).fit(X, y)
    assert model.sigma_ == pytest.approx(width)
    np.testing.assert_allclose(model.graph_.toarray(), W, atol=1e-12)
    np.testing.assert_allclose(model.label_distributions_, F, atol=1e-6)
    assert (model.transduction_ == F.argmax(1)).all()
    new = X[:7] + 0.5
    w = np.exp(-squared(new, X) / width**2)
    np.testing.assert_allclose(model.predict_proba(new), w @ F / w.sum(1, keepdims=True), atol=1e-6)
    # class mass normalisation
    u = y < 0
    q = (np.bincount(y[~u]) + 1) / ((~u).sum() + 3) / F[u].sum(0)
    scaled = HarmonicFunction(n_neighbors=30, sigma=sigma, class_mass=True).fit(X, y)
    np.testing.assert_allclose(scaled.scores_[u], F[u] * q, atol=1e-6)
    np.testing.assert_allclose(scaled.label_distributions_[u], F[u] * q / (F[u] * q).sum(1, keepdims=True), atol=1e-6)
    np.testing.assert_allclose(scaled.label_distributions_[~u], F[~u])


def test_sigma_per_feature():
    X, y, _ = blobs(m=3)
    sigma = np.array([1.0, 2.0, 5.0])
    W, _ = heat(X / sigma, 20, 1.0)
    model = HarmonicFunction(n_neighbors=20, sigma=sigma).fit(X, y)
    np.testing.assert_allclose(model.graph_.toarray(), W, atol=1e-12)
    np.testing.assert_allclose(model.label_distributions_, harmonic(W, y, 3), atol=1e-6)
    F, new = model.scores_, X[:5] + 0.2
    w = np.exp(-squared(new / sigma, X / sigma))
    np.testing.assert_allclose(model.predict_proba(new), w @ F / w.sum(1, keepdims=True), atol=1e-9)
    with pytest.raises(ValueError, match=r"sigma has shape \(2,\)"):
        HarmonicFunction(sigma=[1.0, 2.0]).fit(X, y)


@pytest.mark.parametrize("Model", SPREAD)
def test_neighbours_alone_out_of_sample(Model):
    X, y, _ = blobs(n=90, m=2, labelled=6)
    model = Model(n_neighbors=20, out_of_sample="neighbors").fit(X, y)
    new = X[:7] + 0.5
    d = squared(new, X)
    w = np.exp(-d / model.sigma_**2) * (d <= np.sort(d, 1)[:, 19:20])
    mean = w @ model.scores_ / w.sum(1, keepdims=True)
    np.testing.assert_allclose(model.predict_proba(new), mean / mean.sum(1, keepdims=True), atol=1e-8)
    with pytest.raises(ValueError, match="out_of_sample='some' is not known"):
        Model(out_of_sample="some").fit(X, y)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.99])
def test_local_global_consistency_is_its_formula(alpha):
    X, y, _ = blobs(n=90, m=2)
    W, width = heat(X, 30)
    F = consistent(W, y, 3, alpha)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # alpha = 0 reaches nobody
        model = LocalGlobalConsistency(alpha=alpha, n_neighbors=30).fit(X, y)
        np.testing.assert_allclose(model.scores_, F, atol=1e-8)
        new = X[:7] + 0.5
        w = np.exp(-squared(new, X) / width**2)
        mean = w @ F / w.sum(1, keepdims=True)
        np.testing.assert_allclose(model.predict_proba(new), mean / mean.sum(1, keepdims=True), atol=1e-8)
    if alpha:
        assert (model.transduction_ == F.argmax(1)).all()


@pytest.mark.parametrize("Model", SPREAD)
def test_a_chain_is_solved_to_its_far_end(Model):
    n = 400
    A = sp.diags_array([np.ones(n - 1)] * 2, offsets=[-1, 1], shape=(n, n))
    y = np.full(n, -1)
    y[0], y[-1] = 0, 1
    model = Model(graph=A).fit(np.arange(n)[:, None], y)
    expected = (np.arange(n) >= n // 2).astype(int)
    assert (model.transduction_ == expected).all()
    if Model is HarmonicFunction:
        np.testing.assert_allclose(model.label_distributions_[:, 1], np.arange(n) / (n - 1), atol=1e-7)


# ----------------------------------------------------------------------------------------------------- labels reached


@pytest.mark.parametrize("Model", SPREAD)
@pytest.mark.parametrize("labels", [(7, 4), ("x", "b"), (2.0, 5.0)], ids=["integers", "strings", "floats"])
def test_parts_without_a_label_are_reported(Model, labels):
    A = np.zeros((10, 10))
    A[:5, :5], A[5:9, 5:9] = 1, 0.5
    np.fill_diagonal(A, 0)
    kind = type(labels[0])
    y = np.array([None if kind is str else -1] * 10, dtype=object if kind is str else kind)
    y[0], y[3] = labels
    with pytest.warns(UserWarning, match="no label reaches 5 of 10 samples"):
        model = Model(graph=A).fit(data(10, 3), y)
    P = model.label_distributions_
    np.testing.assert_allclose(P.sum(1), [1] * 5 + [0] * 5)
    assert list(model.classes_) == sorted(labels)
    assert all(v in (None, -1) for v in model.transduction_[5:]) and set(model.transduction_[:5]) <= set(labels)
    assert model.transduction_[0] == labels[0] and model.transduction_[3] == labels[1]


def test_isolated_labelled_samples_keep_their_label():
    with pytest.warns(UserWarning, match="2 of 4"):
        model = LocalGlobalConsistency(graph=np.zeros((4, 4))).fit(data(4, 2), [3, -1, -1, 8])
    assert model.transduction_.tolist() == [3, -1, -1, 8]


def test_src_reports_what_no_class_explains():
    X = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]])
    with pytest.warns(UserWarning, match="2 of 4"):
        model = SRC().fit(X, ["a", "b", "-1", "-1"])
    assert model.transduction_.tolist() == ["a", "b", "-1", "-1"]
    assert (model.label_distributions_[2:] == 0).all()


def test_far_samples_without_a_kernel_value_are_reported():
    model = LapRLSC(normalize=False, sigma=1.0).fit(*blobs()[:2])
    with pytest.warns(UserWarning, match="1 of 2"):
        assert model.predict(np.vstack([blobs()[0][:1], np.full((1, 4), 1e6)]))[1] == -1


@pytest.mark.parametrize("Model", SPREAD)
def test_far_samples_do_not_underflow_where_the_mean_is_defined(Model):
    X, y, _ = blobs(labelled=4)
    model = Model(n_neighbors=59).fit(X, y)
    for far in (1e3, 1e150):
        P = model.predict_proba(X[:2] * far)
        assert np.isfinite(P).all()
        np.testing.assert_allclose(P.sum(1), 1)
