"""Kernels, kernel NMF and polynomial NMF against plain NumPy written from Zhang and Liu 2009."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.optimize import nnls
from scipy.spatial.distance import cdist, pdist
from sklearn.exceptions import ConvergenceWarning

from nnfactor import NMF, kernels
from nnfactor.models.factorization.kernel_nmf import KernelNMF
from nnfactor.models.factorization.polynomial_nmf import PolynomialNMF

K = 4
quiet = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def close(a, b, tol=1e-9):
    np.testing.assert_allclose(a, b, rtol=tol, atol=tol * np.abs(b).max())


def ratio(a, b):
    return np.divide(a, b, out=np.ones_like(a), where=b > 0)


def signed(n=14, m=6, seed=0):
    return np.random.default_rng(seed).normal(size=(n, m))


def positive(n=14, m=6, seed=0):
    X = np.random.default_rng(seed).random((n, m)) ** 2
    X[1] = 0
    return X


def start(shape, seed=1):
    rng = np.random.default_rng(seed)
    first, second = (rng.random((d, K)) + 0.1 for d in shape)
    first[2, 1] = second[0, 0] = 0
    return first, second


def laplace(X, Y):
    X, Y = np.asarray(X), np.asarray(Y)
    return np.exp(-np.abs(X[:, None] - Y[None]).sum(-1) / 3)


def gauss(X, Y, sigma):
    return np.exp(-(cdist(X, Y) ** 2) / (2 * sigma**2))


KERNELS = {  # settings, data, the kernel in NumPy
    "rbf": ({}, signed, lambda X, Y: gauss(X, Y, np.median(pdist(Y)))),
    "rbf, sigma": ({"sigma": 0.7}, signed, lambda X, Y: gauss(X, Y, 0.7)),
    "poly": ({"kernel": "poly"}, positive, lambda X, Y: (X @ Y.T) ** 2),
    "poly 3": ({"kernel": "poly", "degree": 3}, positive, lambda X, Y: (X @ Y.T) ** 3),
    "linear": ({"kernel": "linear"}, positive, lambda X, Y: X @ Y.T),
    "callable": ({"kernel": laplace}, signed, laplace),
}


def root(gram):
    values, E = np.linalg.eigh(gram)
    return (E * np.sqrt(np.maximum(values, 0))) @ E.T


def kernel_nmf(R, V, B, n):
    for _ in range(n):
        B = B * ratio(R @ V, B @ (V.T @ V))
        V = V * ratio(R @ B, V @ (B.T @ B))
    return V, B


@pytest.mark.parametrize("n", [5, 300])
@pytest.mark.parametrize("key", KERNELS)
def test_kernel_nmf_follows_the_equations(key, n):
    settings, data, k = KERNELS[key]
    X = data()
    R = np.maximum(root(k(X, X)), 0)
    first = start((len(X), len(X)))
    V, B = kernel_nmf(R, *first, n)
    tol = 1e-9 if key not in ("poly", "linear") else 1e-6  # the root of a singular matrix: rounding of K, squared
    for model, given in (
        (KernelNMF(K, **settings), X),
        (KernelNMF(K, kernel="precomputed"), k(X, X)),
    ):
        model.set_params(init=first, max_iter=n, tol=0).fit(given)
        close(model.embedding_, V, tol)
        close(model.factors_[0], B, tol)
        close(model.loss_, np.sum((R - model.factors_[0] @ model.embedding_.T) ** 2), tol)
        close(model.history_["objective"][-1], model.loss_, 1e-7)
        close(model.reconstruction_err_**2, model.loss_)
        assert len(model.history_["objective"]) == n + 1 and (np.diff(model.history_["objective"]) <= 1e-12).all()
        assert not hasattr(model, "components_") and not hasattr(model, "inverse_transform")


@pytest.mark.parametrize("key", ["rbf", "rbf, sigma", "poly 3", "callable"])
def test_features_are_the_dense_formulas(key):
    settings, data, k = KERNELS[key]
    X, new = data(m=12), data(m=12, seed=5)[:5]
    X[1] = data(m=12, seed=9)[3]
    gram, rows = k(X, X), k(new, X)
    S = root(gram)
    R = np.maximum(S, 0)
    model = KernelNMF(K, **settings, init=start((14, 14)), max_iter=50, tol=0).fit(X)
    A = np.linalg.pinv(R) @ model.factors_[0]
    close(model.dual_coef_, A, 1e-7)
    clipped = np.linalg.norm(R - S) / np.linalg.norm(S)  # small negative entries of a root, each known to eps of it
    np.testing.assert_allclose(model.root_clipped_, clipped, rtol=1e-7, atol=1e-13)
    close(model.transform(new), rows @ A @ np.linalg.pinv(A.T @ gram @ A), 1e-7)
    close(model.set_params(features="paper").transform(new), rows @ np.linalg.inv(gram) @ np.linalg.pinv(A).T, 1e-7)


def test_exact_features_are_least_squares_in_feature_space_and_paper_ones_are_not():
    X, new = np.random.default_rng(0).random((30, 12)), np.random.default_rng(1).random((5, 12))
    model = KernelNMF(K, "linear", max_iter=60, tol=0).fit(X)
    bases = X.T @ model.dual_coef_
    exact = np.linalg.lstsq(bases, new.T, rcond=None)[0].T
    close(model.transform(new), exact, 1e-7)
    paper = model.set_params(features="paper").transform(new)
    assert np.isfinite(paper).all() and np.abs(paper - exact).max() > 1e-3 * np.abs(exact).max()


def test_clipping_is_reported():
    assert KernelNMF(2, max_iter=2, tol=0, sigma=0.01).fit(signed()).root_clipped_ < 1e-12  # K is the identity
    wild = signed()
    with pytest.warns(ConvergenceWarning, match=r"KernelNMF models another kernel: 43% of the root"):
        model = KernelNMF(2, kernel="precomputed", max_iter=2, tol=0).fit(wild @ wild.T)
    S = root(wild @ wild.T)
    close(model.root_clipped_, np.linalg.norm(np.minimum(S, 0)) / np.linalg.norm(S), 1e-6)
    assert model.root_clipped_ > 0.3 and np.isfinite(model.transform(wild @ wild.T)).all()


@pytest.mark.parametrize("solver", ["multiplicative", "auto", "hals", "projected"])
def test_kernel_nmf_is_monotone(solver):
    for seed in range(15):
        X = signed(n=3 + seed, seed=seed) * 10.0 ** (seed % 5 - 2)
        X[seed // 3] = X[0]
        history = KernelNMF(1 + seed % 5, solver=solver, max_iter=30, tol=0, random_state=seed).fit(X).history_
        assert (np.diff(history["objective"]) <= 1e-12 * history["objective"][0]).all()


def test_negative_data_where_they_make_sense():
    X = signed()
    for settings in ({}, {"kernel": laplace}):
        assert (KernelNMF(2, **settings, max_iter=5, tol=0).fit(X).embedding_ >= 0).all()
    for kernel in ("poly", "linear"):
        with pytest.raises(ValueError, match="Negative values in data passed to X"):
            KernelNMF(2, kernel).fit(X)
    with pytest.raises(ValueError, match="Negative values"):
        PolynomialNMF(2).fit(X)


BAD = {
    "square": (np.ones((3, 4)), "3 samples has shape"),
    "symmetric": (np.eye(4) + np.eye(4, k=1), r"not symmetric, entry \(0, 1\) is 1 and \(1, 0\) is 0"),
    "definite": (1 - np.eye(4), "not positive semidefinite: its smallest eigenvalue is -1, its largest 3"),
    "finite": (np.full((3, 3), np.nan), "NaN"),
}


@pytest.mark.parametrize("key", BAD)
def test_bad_kernel_matrices_are_refused(key):
    matrix, message = BAD[key]
    with pytest.raises(ValueError, match=message):
        KernelNMF(2, "precomputed").fit(matrix)
    with pytest.raises(ValueError, match=message):
        KernelNMF(2, lambda X, Y: matrix).fit(np.ones((len(matrix), 2)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kernel": "sigmoid"}, "kernel='sigmoid' is not known; use 'rbf', 'poly', 'linear', 'precomputed' or"),
        ({"sigma": 0}, "sigma must be 'median' or a finite number > 0, got 0"),
        ({"sigma": "mean"}, "sigma must be"),
        ({"degree": 1.5}, "degree must be a whole number >= 1, got 1.5"),
        ({"features": "both"}, "features='both' is not known; use 'exact', 'paper'"),
        ({"solver": "cg"}, "solver='cg' is not known"),
        ({"init": (np.ones((3, 2)), np.ones((14, 2)))}, r"init: V has shape \(3, 2\).*U1 \(14, 2\)"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        KernelNMF(2, **settings).fit(signed())


def test_kernel_rows_must_be_against_the_fitted_samples():
    X = signed()
    model = KernelNMF(2, "precomputed", max_iter=2, tol=0).fit(laplace(X, X))
    assert model.transform(laplace(X[:3], X)).shape == (3, 2)
    with pytest.raises(ValueError, match="3 features, but KernelNMF is expecting 14"):
        model.transform(np.ones((5, 3)))
    with pytest.raises(TypeError, match="sparse input is not supported with kernel='precomputed'"):
        KernelNMF(2, "precomputed").fit(sp.eye_array(4).tocsr())
    fickle = KernelNMF(2, lambda A, B: laplace(A, B)[:, :14], max_iter=2, tol=0).fit(X)
    fickle.kernel_ = kernels.Kernel(lambda A, B: np.ones((len(A), 3)), X, 14)
    with pytest.raises(ValueError, match=r"must be \(n_samples, 14\)"):
        fickle.transform(X)


@pytest.mark.parametrize("kernel", ["rbf", "poly", "linear"])
def test_sparse_samples_equal_dense_ones(kernel):
    X, new = positive(20, 9), positive(7, 9, seed=3)
    X[X < 0.3], new[new < 0.3] = 0, 0
    first = start((20, 20))
    fits = [KernelNMF(K, kernel, init=first, max_iter=20, tol=0).fit(Z) for Z in (X, sp.csr_array(X), sp.coo_matrix(X))]
    for model in fits[1:]:
        close(model.embedding_, fits[0].embedding_, 1e-6)
        for Z in (new, sp.csc_array(new)):
            close(model.transform(Z), fits[0].transform(Z), 1e-4)  # K is singular: its root amplifies rounding


def test_the_kernel_is_exact_far_from_the_origin_and_in_float32():
    X = signed()
    close(kernels.rbf(X + 1e6).numpy(), kernels.rbf(X).numpy(), 1e-8)
    model, base = (KernelNMF(2, init=start_of_two(), max_iter=20, tol=0).fit(Z) for Z in (X.astype(np.float32), X))
    assert model.embedding_.dtype == model.transform(X.astype(np.float32)).dtype == np.float32
    close(model.embedding_, base.embedding_, 1e-4)
    close(model.transform(X.astype(np.float32)), base.transform(X), 1e-3)


def start_of_two():
    rng = np.random.default_rng(2)
    return rng.random((14, 2)), rng.random((14, 2))


@pytest.mark.parametrize("scale", [1e-200, 1e-30, 1e30, 1e200])
def test_scales(scale):
    X = np.abs(signed())
    base, far = (KernelNMF(3, max_iter=20, tol=0, random_state=0).fit(Z) for Z in (X, X * scale))
    close(far.embedding_, base.embedding_)
    close(far.kernel_.sigma / scale, base.kernel_.sigma)
    close(far.transform(X * scale), base.transform(X), 1e-7)
    if 1e-100 < scale < 1e100:
        base, far = (KernelNMF(3, "poly", init=start_of(Z), max_iter=20, tol=0).fit(Z) for Z in (X, X * scale))
        close(far.loss_ / scale**2 / scale**2, base.loss_, 1e-6)
        close(far.transform(X * scale) / scale**2, base.transform(X), 1e-5)


def start_of(X):
    rng, size = np.random.default_rng(3), X.max() ** 2
    return rng.random((14, 3)) * size, rng.random((14, 3))


@quiet
@pytest.mark.parametrize(
    "X", [np.zeros((5, 3)), np.ones((5, 3)), np.ones((1, 1)), np.eye(4)], ids=["zero", "equal", "one", "eye"]
)
@pytest.mark.parametrize("features", ["exact", "paper"])
@pytest.mark.parametrize("kernel", ["rbf", "poly", "linear", laplace])
def test_degenerate_data(kernel, features, X):
    for k in (1, 6):
        model = KernelNMF(k, kernel, features=features, random_state=0).fit(X)
        assert np.isfinite(model.loss_) and np.isfinite(model.transform(X)).all() and (model.embedding_ >= 0).all()
    model = PolynomialNMF(6, random_state=0).fit(X)
    assert np.isfinite(model.loss_) and np.isfinite(model.transform(X)).all()
    assert X.any() or model.loss_ == 0


def test_equal_bases_give_bounded_features():
    first = start((14, 14))
    for F in first:
        F[:, 1] = F[:, 0]
    with pytest.warns(ConvergenceWarning, match="equal components 0 and 1"):
        model = KernelNMF(K, init=first, max_iter=20, tol=0).fit(signed())
    features = model.transform(signed())
    assert np.abs(features).max() < 100 * model.embedding_.max()
    close(features[:, 0], features[:, 1], 1e-6)


def test_kernel_functions():
    X, Y = signed(), signed(5, seed=2)
    close(kernels.rbf(X, Y).numpy(), gauss(X, Y, np.median(pdist(X))))
    close(kernels.rbf(X, Y, sigma=2.0).numpy(), gauss(X, Y, 2.0))
    close(kernels.polynomial(X, Y, degree=3).numpy(), (X @ Y.T) ** 3)
    close(kernels.polynomial(X * 1e40).numpy(), (X @ X.T * 1e80) ** 2)
    close(kernels.median_distance(X), np.median(pdist(X)))
    close(kernels.median_distance([[0.0], [0.0], [0.0], [0.0], [7.0]]), 7.0)
    assert kernels.median_distance([[3.0], [3.0]]) == 1.0
    with pytest.raises(ValueError, match="5 features, but the kernel was fixed on 6"):
        kernels.rbf(X, X[:, :5])


def test_tensors_in_tensors_out():
    X = torch.from_numpy(signed())
    seen = []
    spy = lambda A, B: seen.append((type(A), type(B))) or torch.from_numpy(laplace(A.numpy(), B.numpy()))
    model = KernelNMF(2, spy, max_iter=5, tol=0).fit(X)
    assert isinstance(model.transform(X), torch.Tensor) and isinstance(model.embedding_, torch.Tensor)
    assert set(seen) == {(torch.Tensor, torch.Tensor)}


@pytest.mark.parametrize("far", [1e6, 1e8, 1e12])
@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy, sp.csr_array])
def test_far_samples_leave_the_kernel_of_the_others_alone(far, kind):
    """One far sample, and two groups far from each other: kernels as from the differences of the samples."""
    X = np.random.default_rng(0).normal(size=(30, 5))
    one, half = X.copy(), X.copy()
    one[0], half[15:] = far, half[15:] + far
    for samples in (one, half):
        squared = ((samples[:, None] - samples) ** 2).sum(-1)
        median = np.median(np.sqrt(squared[np.triu_indices(30, 1)]))
        np.testing.assert_allclose(kernels.median_distance(kind(samples)), median, rtol=1e-9)
        kernel = kernels.fix_kernel("rbf", kind(samples), sigma=3.0)
        np.testing.assert_allclose(kernel.gram()[0].numpy(), np.exp(-squared / 18), atol=1e-8)
        np.testing.assert_allclose(kernel.rows(kind(samples[10:])).numpy(), np.exp(-squared[10:] / 18), atol=1e-8)


def test_a_callable_may_return_a_sparse_matrix():
    """Kernels of compact support are made sparse."""
    support = lambda A, B: np.maximum(1 - cdist(A, B) / 3, 0)
    X, new = signed(), signed(seed=3)[:4]
    expected = KernelNMF(3, support, max_iter=20, tol=0, random_state=0).fit(X)
    kinds = [sp.csr_array, sp.coo_matrix, lambda K: torch.from_numpy(K).to_sparse()]
    for kind in kinds:
        model = KernelNMF(3, lambda A, B, kind=kind: kind(support(A, B)), max_iter=20, tol=0, random_state=0).fit(X)
        close(model.embedding_, expected.embedding_)
        close(model.transform(new), expected.transform(new))


def test_nearby_samples_are_no_duplicates_beside_a_far_one():
    assert kernels.median_distance([[0.0], [1e-6], [3e-6], [1e9]]) == pytest.approx((3e-6 + 1e9) / 2)
    assert kernels.median_distance([[0.0], [1e-6], [2e-6], [3e-6], [4e-6], [1e9]]) == pytest.approx(3e-6)
    assert kernels.median_distance([[1.0], [1 + 2**-52], [1.0], [1.0], [3.0]]) == 2  # equal up to rounding


def test_the_model_keeps_its_samples():
    X = signed()
    model = KernelNMF(2, max_iter=5, tol=0, random_state=0).fit(X)
    before = model.transform(signed(5, seed=1))
    X[:] = 0
    close(model.transform(signed(5, seed=1)), before)
    close(pickle.loads(pickle.dumps(model)).transform(signed(5, seed=1)), before)


# Polynomial NMF


def pnmf(X, V, W, d, n, rule="corrected"):
    slope = lambda z: d * z ** (d - 1)
    for _ in range(n):
        V = V * ratio((X @ W) ** d, V @ (W.T @ W) ** d)
        if rule == "corrected":
            up = W @ (slope(W.T @ W) * (V.T @ V))
            W = W * ratio(X.T @ (slope(X @ W) * V), up) ** (1 / (2 * d - 1))
        else:
            W = W * ratio(X.T @ slope(X @ W), W @ np.diag(V.sum(0)) @ slope(W.T @ W))
    return V, W


def features(X, d):
    """phi(x): all products of d entries."""
    F = X
    for _ in range(d - 1):
        F = np.einsum("ia,ib->iab", F, X).reshape(len(X), -1)
    return F


@pytest.mark.parametrize("n", [5, 300])
@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_pnmf_follows_the_equations(degree, n, scale):
    X = positive() * scale
    V0, W0 = start(X.shape)
    model = PolynomialNMF(K, degree=degree, init=(V0, W0 * scale), max_iter=n, tol=0).fit(X)
    V, W = pnmf(X, V0, W0 * scale, degree, n)
    close(model.embedding_, V)
    close(model.factors_[0], W)
    loss = np.sum((features(X, degree) - V @ features(W.T, degree)) ** 2)
    np.testing.assert_allclose(model.loss_, loss, rtol=1e-8)
    np.testing.assert_allclose(model.reconstruction_err_, np.sqrt(loss), rtol=1e-8)
    np.testing.assert_allclose(model.history_["objective"][-1], loss, rtol=1e-8)


def test_the_printed_rule_is_kept_and_rises():
    rises = 0
    for seed in range(10):
        X, first = positive(seed=seed), start((14, 6), seed)
        model = PolynomialNMF(K, w_rule="printed", init=first, max_iter=60, tol=0).fit(X)
        V, W = pnmf(X, *first, 2, 60, "printed")
        close(model.embedding_, V)
        close(model.factors_[0], W)
        rises += int((np.diff(model.history_["objective"]) > 0).sum())
    assert rises > 30


def test_pnmf_is_monotone():
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X = rng.random((rng.integers(2, 10), rng.integers(2, 10))) * 10.0 ** rng.integers(-4, 5)
        X *= rng.random(X.shape) < 0.7
        model = PolynomialNMF(int(rng.integers(1, 6)), degree=1 + seed % 4, init="random", random_state=seed)
        objective = model.set_params(max_iter=40, tol=0).fit(X).history_["objective"]
        assert (np.diff(objective) <= 1e-10 * objective[0]).all()


def test_degree_one_is_nmf_with_v_first():
    X = positive()
    first = start(X.shape)
    model = PolynomialNMF(K, degree=1, init=first, max_iter=9, tol=0).fit(X)
    V = first[0] * ratio(X @ first[1], first[0] @ (first[1].T @ first[1]))
    nmf = NMF(K, solver="multiplicative", init=(V, first[1]), max_iter=8, tol=0, normalize=None).fit(X)
    W = nmf.factors_[0] * ratio(X.T @ nmf.embedding_, nmf.factors_[0] @ (nmf.embedding_.T @ nmf.embedding_))
    close(model.factors_[0], W)


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_pnmf_transform_solves_in_feature_space(degree):
    X, new = positive(), positive(5, seed=7)
    model = PolynomialNMF(K, degree=degree, init=start(X.shape), max_iter=40, tol=0).fit(X)
    bases = features(model.factors_[0].T, degree).T
    close(model.transform(new), np.array([nnls(bases, f)[0] for f in features(new, degree)]), 1e-7)
    pinv = model.set_params(transform_method="pinv").transform(new)
    close(pinv, features(new, degree) @ np.linalg.pinv(bases).T, 1e-7)


@pytest.mark.parametrize("method", ["nnls", "pinv"])
@pytest.mark.parametrize("degree", [1, 3, 9])
def test_pnmf_transforms_samples_in_any_unit(degree, method):
    model = PolynomialNMF(3, degree=degree, transform_method=method, random_state=0).fit(positive())
    new = positive(5, seed=7)
    for power in (-100, -20, 20, 100):  # squares of powers would leave the floating-point range, these do not
        scale = 2.0 ** (power * 9 // degree)
        close(model.transform(new * scale) / scale**degree, model.transform(new), 1e-8)
    assert not any(np.isnan(model.transform(new * scale)).any() for scale in (1e-300, 1e300))


def test_pnmf_of_denormal_data():
    with pytest.raises(ValueError, match="factor U1 would be zero in float64; divide X by"):
        PolynomialNMF(2, max_iter=5, tol=0, random_state=0).fit(np.full((3, 2), 5e-324))


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_pnmf_scales(scale):
    X = positive()
    base, far = (PolynomialNMF(3, max_iter=30, tol=0, random_state=0).fit(Z) for Z in (X, X * scale))
    models = [model.embedding_ @ features(model.factors_[0].T / s, 2) for model, s in ((far, scale), (base, 1.0))]
    close(*models, 1e-8)  # V and W alone depend on the unit, a power of two, that they start in
    close(far.loss_ / scale**4, base.loss_, 1e-8)
    close(far.transform(X * scale), far.transform(X * scale * 2) / 4)
    small = PolynomialNMF(3, max_iter=30, tol=0, random_state=0).fit((X * scale).astype(np.float32))
    assert np.isfinite(small.loss_) and abs(small.loss_ / far.loss_ - 1) < 1e-3
