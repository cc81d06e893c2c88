"""Co-training and co-regularized spectral clustering against plain references, and what must hold for odd input."""

import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Ridge

from nnfactor.metrics import clustering_accuracy
from nnfactor.models.classification.co_regularized_spectral import PairwiseCoRegularizedSpectral
from nnfactor.models.classification.co_training import CoTraining
from nnfactor.models.factorization.sulf import SULF

relaxed = settings(max_examples=30, deadline=None, derandomize=True)


def data(rng, n=40, sizes=(4, 7), classes=3, spread=2.0):
    y = rng.permutation(np.arange(n) % classes)
    return [rng.normal(size=(n, m)) + spread * rng.normal(size=(classes, m))[y] for m in sizes], y


def some(rng, y, share):
    """Labels of a share of the samples, one of every class at least."""
    out = np.where(rng.random(len(y)) < share, y, -1)
    for c in set(y):
        out[np.flatnonzero(y == c)[0]] = c
    return out


def reference_cotraining(views, y, classes, rounds, per_class, alpha):
    """Straight from the text, sample by sample; ridge is scikit-learn's."""
    n, P = len(y), len(views)
    views = [V - V.mean(0) for V in views]
    views = [V / np.sqrt((V**2).sum() / n) for V in views]
    labels, told = [list(y) for _ in views], [set() for _ in views]

    def scores(p):
        at = [i for i in range(n) if labels[p][i] >= 0]
        ridge = Ridge(alpha=alpha * len(at), solver="svd").fit(
            views[p][at], np.eye(classes)[[labels[p][i] for i in at]]
        )
        return ridge.predict(views[p]).reshape(n, classes)

    for _ in range(rounds if P > 1 else 0):
        lessons = []
        for p in range(P):
            S, lesson = scores(p), {}
            for c in range(classes):
                mine = [i for i in range(n) if labels[p][i] < 0 and i not in told[p] and S[i].argmax() == c]
                for i in sorted(mine, key=lambda i: -S[i, c])[:per_class]:
                    lesson[i] = (S[i, c], c)
            lessons.append(lesson)
            told[p] |= set(lesson)
        for p in range(P):
            for i in range(n):
                offers = [lessons[q][i] for q in range(P) if q != p and i in lessons[q]]
                if offers and labels[p][i] < 0:
                    labels[p][i] = max(offers, key=lambda o: (o[0], -o[1]))[1]
    return labels, sum(scores(p) for p in range(P))


@relaxed
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=3),
    classes=st.integers(2, 4),
    rounds=st.sampled_from([0, 1, 2, 5]),
    per_class=st.integers(1, 3),
    sparse=st.booleans(),
    seed=st.integers(0, 9999),
)
def test_cotraining_equals_the_reference(sizes, classes, rounds, per_class, sparse, seed):
    rng = np.random.default_rng(seed)
    views, truth = data(rng, 24, sizes, classes)
    y = some(rng, truth, 0.2)
    labels, scores = reference_cotraining(views, y, classes, rounds, per_class, 0.05)
    X = [sp.csr_array(V) for V in views] if sparse else views
    model = CoTraining(n_rounds=rounds, n_per_class=per_class, alpha=0.05).fit(X, y)
    for found, expected in zip(model.taught_, labels, strict=True):
        np.testing.assert_array_equal(found, expected)
    margin = scores[:, 1] - scores[:, 0] if classes == 2 else scores
    np.testing.assert_allclose(model.decision_function(X), margin, atol=1e-8)
    np.testing.assert_array_equal(model.predict(X), scores.argmax(1))
    np.testing.assert_array_equal(model.transduction_, np.where(y >= 0, y, scores.argmax(1)))


def test_teaching_helps():
    rng = np.random.default_rng(0)
    views, truth = data(rng, 300, (10, 20), 3, spread=1.0)
    y = np.full(300, -1)
    for c in range(3):
        y[np.flatnonzero(truth == c)[:3]] = c
    alone, taught = (CoTraining(n_rounds=r, alpha=0.1).fit(views, y) for r in (0, 30))
    rest = y < 0
    accuracy = lambda model: (model.transduction_ == truth)[rest].mean()
    assert accuracy(taught) > accuracy(alone) + 0.02
    assert taught.n_iter_ == 30 and alone.n_iter_ == 0
    assert [(t >= 0).sum() for t in taught.taught_] > [9, 9]
    more = CoTraining(n_per_class=4, n_rounds=5).fit(views, y)
    assert (more.taught_[0] >= 0).sum() > (CoTraining(n_rounds=5).fit(views, y).taught_[0] >= 0).sum()
    norm = lambda a: np.linalg.norm(CoTraining(n_rounds=0, alpha=a).fit(views, y).coef_[0])
    assert norm(10) < norm(0.001)


def test_order_and_scale_of_views_have_no_influence():
    rng = np.random.default_rng(1)
    views, truth = data(rng, 60, (5, 9, 3))
    y = some(rng, truth, 0.1)
    a = CoTraining(n_rounds=4).fit(views, y)
    b = CoTraining(n_rounds=4).fit(views[::-1], y)
    np.testing.assert_allclose(a.decision_function(views), b.decision_function(views[::-1]), atol=1e-12)
    for scales in ([1e-30, 1, 1e30], [1e150, 1e-150, 3]):
        scaled = [V * s for V, s in zip(views, scales)]
        c = CoTraining(n_rounds=4).fit(scaled, y)
        np.testing.assert_allclose(c.decision_function(scaled), a.decision_function(views), atol=1e-7)
    shifted = [V + 1e6 for V in views]
    d = CoTraining(n_rounds=4).fit(shifted, y)
    np.testing.assert_allclose(d.decision_function(shifted), a.decision_function(views), atol=1e-6)


def test_cotraining_ends_when_nothing_is_left_to_teach():
    rng = np.random.default_rng(2)
    views, truth = data(rng, 20)
    model = CoTraining(n_rounds=1000, n_per_class=50).fit(views, some(rng, truth, 0.2))
    assert model.n_iter_ < 5 and all((t >= 0).all() for t in model.taught_)
    full = CoTraining().fit(views, truth)
    assert full.n_iter_ == 0 and (full.transduction_ == truth).all()


ODD = {
    "zeros": lambda rng: [np.zeros((8, 3)), rng.normal(size=(8, 2))],
    "all zeros": lambda rng: [np.zeros((8, 3))] * 2,
    "constant": lambda rng: [np.full((8, 3), 0.1), np.full((8, 1), 7.0)],
    "duplicates": lambda rng: [np.repeat(rng.normal(size=(4, 3)), 2, axis=0)] * 2,
    "wide": lambda rng: [rng.normal(size=(8, 300)), rng.normal(size=(8, 1))],
    "zero rows": lambda rng: [rng.normal(size=(8, 3)) * (np.arange(8) > 2)[:, None], rng.normal(size=(8, 3))],
}


@pytest.mark.filterwarnings("ignore:.* leaves view 0 out")
@pytest.mark.parametrize("case", ODD)
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array, torch.from_numpy])
def test_degenerate_views(case, kind):
    views = [kind(V) for V in ODD[case](np.random.default_rng(4))]
    model = CoTraining().fit(views, [0, 1, -1, -1, -1, 0, -1, 1])
    assert np.isfinite(np.asarray(model.label_distributions_)).all() and len(model.predict(views)) == 8
    spectral = PairwiseCoRegularizedSpectral(2, random_state=0, tol=1e-3)
    try:
        spectral.fit(views)
    except ConvergenceWarning as warning:
        assert "distinct clusters" in str(warning)  # k-means has fewer distinct rows than clusters, and says so
    else:
        assert len(spectral.labels_) == 8 and np.isfinite(np.asarray(spectral.embedding_)).all()


@pytest.mark.parametrize("value", [0.0, 0.1, -3e5])
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array, torch.from_numpy])
def test_a_view_of_equal_samples_is_left_out(value, kind):
    rng, truth = np.random.default_rng(1), np.arange(60) % 2
    X = np.abs(rng.normal(size=(60, 8))) + 2 * truth[:, None] * (np.arange(8) < 4)
    views, y = [X[:, :5], X[:, 3:]], np.where(np.arange(60) < 6, truth, -1)
    constant = kind(np.full((60, 3), value))
    alone, together = CoTraining().fit(views, y), PairwiseCoRegularizedSpectral(2, random_state=0).fit(views)
    for at in range(3):
        more = [*views[:at], constant, *views[at:]]
        with pytest.warns(UserWarning, match=f"CoTraining leaves view {at} out, since all samples are equal there"):
            model = CoTraining().fit(more, y)
        np.testing.assert_array_equal(np.asarray(model.label_distributions_), alone.label_distributions_)
        np.testing.assert_array_equal(np.asarray(model.predict_proba(more)), alone.predict_proba(views))
        np.testing.assert_array_equal(model.taught_[at], y)
        assert not np.asarray(model.coef_[at]).any() and np.asarray(model.coef_[at]).shape == (3, 2)
        with pytest.warns(UserWarning, match=f"PairwiseCoRegularizedSpectral leaves view {at} out"):
            spectral = PairwiseCoRegularizedSpectral(2, random_state=0).fit(more)
        assert not np.asarray(spectral.embeddings_[at]).any() and spectral.objective_ == together.objective_
        np.testing.assert_array_equal(spectral.labels_, together.labels_)


def test_one_sample_and_one_view():
    assert list(CoTraining().fit([np.ones((1, 2))], ["a"]).transduction_) == ["a"]
    assert list(PairwiseCoRegularizedSpectral(1, random_state=0).fit(np.ones((1, 2))).labels_) == [0]
    (X,), truth = data(np.random.default_rng(5), 30, (4,))
    y = np.where(np.arange(30) < 12, truth, -1)
    for bare in (X, sp.csr_array(X), torch.from_numpy(X), pd.DataFrame(X), X.tolist()):
        np.testing.assert_allclose(
            np.asarray(CoTraining().fit(bare, y).label_distributions_),
            CoTraining().fit([X], y).label_distributions_,
            atol=1e-9,
        )
    a = PairwiseCoRegularizedSpectral(3, random_state=0).fit(X)
    assert a.n_iter_ == 0 and a.converged_ and a.embedding_.shape == (30, 3)


def affinity(X):
    D = np.linalg.norm(X[:, None] - X, axis=2)
    K = np.exp(-(D**2) / (2 * np.median(D[np.triu_indices(len(X), 1)]) ** 2))
    return K / np.sqrt(np.outer(K.sum(1), K.sum(1)))


def reference_spectral(views, C, lam, rounds):
    L = [affinity(V) for V in views]
    top = lambda M: np.linalg.eigh(M)[1][:, -C:]
    U = [top(M) for M in L]
    for _ in range(rounds):
        for p in range(len(L)):
            U[p] = top(L[p] + lam * sum(U[q] @ U[q].T for q in range(len(L)) if q != p))
    return L, U


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("lam", [0.0, 0.05, 1.0])
def test_spectral_equals_the_reference(lam, sparse):
    views, _ = data(np.random.default_rng(6), 40, (4, 6, 30))
    X = [sp.csr_array(V) for V in views] if sparse else views
    model = PairwiseCoRegularizedSpectral(3, lam=lam, random_state=0).fit(X)
    assert model.converged_ and (lam > 0) == (model.n_iter_ > 0)
    L, U = reference_spectral(views, 3, lam, model.n_iter_)
    for u, v in zip(model.embeddings_, U, strict=True):
        np.testing.assert_allclose(u @ u.T, v @ v.T, atol=1e-6)  # projectors: signs and rotations are free
    value = sum(np.trace(u.T @ M @ u) for u, M in zip(U, L)) + lam * sum(
        np.linalg.norm(U[p].T @ U[q]) ** 2 for p in range(3) for q in range(p)
    )
    np.testing.assert_allclose(model.objective_, value, rtol=1e-9)
    assert (np.diff(model.history_) >= -1e-12 * abs(value)).all() and len(model.history_) == model.n_iter_ + 1
    rows = np.concatenate([u / np.linalg.norm(u, axis=1, keepdims=True) for u in model.embeddings_], axis=1)
    np.testing.assert_allclose(model.embedding_, rows, atol=1e-12)


def test_views_that_agree_cluster_better_than_one():
    rng = np.random.default_rng(7)
    views, truth = data(rng, 120, (6, 6, 6), 3, spread=1.0)
    score = lambda X, **kw: clustering_accuracy(
        truth, PairwiseCoRegularizedSpectral(3, random_state=0, **kw).fit(X).labels_
    )
    assert score(views) > max(score([V]) for V in views) - 0.02
    U = lambda lam: PairwiseCoRegularizedSpectral(3, lam=lam, random_state=0).fit(views).embeddings_
    overlap = lambda U: np.linalg.norm(U[0].T @ U[1])
    assert overlap(U(1.0)) > overlap(U(0.0))


def test_kernels():
    views, _ = data(np.random.default_rng(8), 40, (4, 6))
    fit = lambda X, **kw: PairwiseCoRegularizedSpectral(3, random_state=0, **kw).fit(X)
    expected = fit(views).objective_
    K = [np.exp(-(np.linalg.norm(V[:, None] - V, axis=2) ** 2) / 2) for V in views]
    assert fit(K, kernel="precomputed").objective_ == pytest.approx(fit(views, sigma=1.0).objective_, rel=1e-9)
    own = lambda X, Y: torch.exp(-(torch.cdist(X, Y) ** 2) / 2)
    assert fit(views, kernel=own).objective_ == pytest.approx(fit(views, sigma=1.0).objective_, rel=1e-9)
    for scale in (1e-30, 1e30, 1e-200):
        assert fit([V * scale for V in views]).objective_ == pytest.approx(expected, rel=1e-7)
    counts = [np.abs(V) for V in views]
    assert fit(counts, kernel="linear").converged_
    with pytest.raises(ValueError, match=r"view 0: kernel='linear': .* similarities are negative; use 'rbf'"):
        fit(views, kernel="linear")
    with pytest.raises(ValueError, match=r"view 1: .*symmetric"):
        fit([K[0], K[0] + np.triu(np.ones((40, 40)))], kernel="precomputed")
    with pytest.raises(ValueError, match=r"view 0: .*must be"):
        fit([K[0][:, :9]], kernel="precomputed")


def test_warns_if_and_only_if_the_cap_is_hit():
    views, _ = data(np.random.default_rng(9), 40, (4, 6))
    with pytest.warns(ConvergenceWarning, match="max_iter=1"):
        model = PairwiseCoRegularizedSpectral(3, lam=1.0, max_iter=1, tol=0, random_state=0).fit(views)
    assert not model.converged_ and model.n_iter_ == 1
    assert PairwiseCoRegularizedSpectral(3, random_state=0).fit(views).converged_


def test_seeds():
    views, _ = data(np.random.default_rng(10), 40, (4, 6))
    state = np.random.get_state()[1].copy()
    a, b = (PairwiseCoRegularizedSpectral(3, random_state=5).fit_predict(views) for _ in range(2))
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(state, np.random.get_state()[1])


def test_surface():
    rng = np.random.default_rng(11)
    views, truth = data(rng, 30, (3, 5))
    y = some(rng, truth, 0.3)
    frames = [pd.DataFrame(V, columns=[f"{p}{j}" for j in range(V.shape[1])]) for p, V in enumerate(views)]
    model = CoTraining().fit(frames, y)
    assert model.n_features_in_ == [3, 5] and [W.shape for W in model.coef_] == [(3, 3), (5, 3)]
    assert clone(model).get_params() == model.get_params() and "n_rounds" in repr(CoTraining(n_rounds=3))
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(frames), model.predict_proba(frames))
    np.testing.assert_allclose(
        model.decision_function([f.iloc[4:5] for f in frames]), model.decision_function(frames)[4:5], atol=1e-12
    )
    with pytest.raises(ValueError, match="view 1: The feature names"):
        model.predict([frames[0], frames[1][frames[1].columns[::-1]]])
    own = sum(V @ W + b for V, W, b in zip(views, model.coef_, model.intercept_))
    np.testing.assert_allclose(own, model.decision_function(frames), atol=1e-12)
    small = [torch.from_numpy(V).float() for V in views]
    tensors = CoTraining().fit(small, y)
    assert tensors.predict_proba(small).dtype == tensors.coef_[0].dtype == torch.float32
    np.testing.assert_allclose(tensors.predict_proba(small).numpy(), model.predict_proba(frames), atol=1e-5)
    spectral = PairwiseCoRegularizedSpectral(3, random_state=0).fit(small)
    assert spectral.embedding_.dtype == torch.float32 and isinstance(spectral.labels_, np.ndarray)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(spectral)).labels_, spectral.labels_)


V5, V4 = np.eye(5), np.eye(4)


@pytest.mark.parametrize("make", [CoTraining, lambda: PairwiseCoRegularizedSpectral(2)])
@pytest.mark.parametrize(
    ("views", "message"),
    [
        ([V5, V5, V4], r"view 2 has 4 samples .*view 0 has 5; all views must hold the same samples"),
        ([V5, np.where(V5 > 0, np.nan, 0)], "view 1: Input X contains NaN: 5 of 25 entries"),
        ([V5, np.where(V5 > 0, np.inf, 0)], "view 1: .*infinity"),
        ([V5, np.zeros((5, 0))], "view 1: .*0 feature"),
        (np.ones(5), "1D array"),
        (np.ones((2, 5, 3)), "X has shape"),
        ([V5, V5 * 1j], "view 1: Complex data"),
    ],
)
def test_bad_views_are_named(make, views, message):
    with pytest.raises(ValueError, match=message):
        make().fit(views, [0, 1, -1, -1, -1])


@pytest.mark.parametrize(
    "make, told",
    [
        (lambda X: {"a": X, "b": X}, "X is a dict.* a list of arrays"),
        (lambda X: (X for _ in range(2)), "X is a generator.* a list of arrays"),
        (lambda X: np.stack([X, X]), r"X has shape \(2, 10, 4\); several views are a list of matrices: list\(X\)"),
        (lambda X: torch.from_numpy(np.stack([X, X])), r"several views are a list of matrices: list\(X\)"),
    ],
)
def test_views_come_in_a_list(make, told):
    X = np.random.default_rng(0).random((10, 4))
    for model in (SULF(2), CoTraining(), PairwiseCoRegularizedSpectral(2)):
        with pytest.raises(ValueError, match=told):
            model.fit(make(X), np.arange(10) % 2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CoTraining(n_rounds=-1), "n_rounds must be a whole number >= 0, got -1"),
        (lambda: CoTraining(n_per_class=0), "n_per_class must be a whole number >= 1, got 0"),
        (lambda: CoTraining(alpha=0), "alpha must be > 0, got 0"),
        (lambda: CoTraining(alpha=np.nan), "alpha must be a finite number"),
        (lambda: PairwiseCoRegularizedSpectral(0), "n_clusters must be a whole number >= 1"),
        (lambda: PairwiseCoRegularizedSpectral(6), "n_clusters=6 needs as many samples, X has 5"),
        (lambda: PairwiseCoRegularizedSpectral(2, lam=-1), "lam must be"),
        (lambda: PairwiseCoRegularizedSpectral(2, kernel="sigmoid"), "kernel='sigmoid' is not known"),
        (lambda: PairwiseCoRegularizedSpectral(2, sigma=0), "sigma must be"),
    ],
)
def test_errors_name_the_argument(make, message):
    with pytest.raises(ValueError, match=message):
        make().fit([V5, V5], [0, 1, -1, -1, -1])


def test_more_refusals():
    with pytest.raises(ValueError, match="y has no label: all 5 samples"):
        CoTraining().fit([V5], [-1] * 5)
    with pytest.raises(ValueError, match=r"y has shape \(2,\), X has 5 samples"):
        CoTraining().fit([V5], [0, 1])
    model = CoTraining().fit([V5, V5], [0, 1, 0, 1, -1])
    with pytest.raises(ValueError, match="X has 1 views, CoTraining was fitted with 2"):
        model.predict([V5])
    with pytest.raises(ValueError, match="view 1: X has 4 features"):
        model.predict([V5, V5[:, :4]])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_equals_cpu():
    rng = np.random.default_rng(12)
    views, truth = data(rng, 60, (5, 80))
    y = some(rng, truth, 0.2)
    a, b = (CoTraining(device=d).fit(views, y).label_distributions_ for d in ("cpu", "cuda"))
    np.testing.assert_allclose(a, b, atol=1e-8)
    a, b = (PairwiseCoRegularizedSpectral(3, device=d, random_state=0).fit(views).objective_ for d in ("cpu", "cuda"))
    assert a == pytest.approx(b, rel=1e-8)
    model = CoTraining().fit([torch.from_numpy(V).cuda() for V in views], y)
    assert model.coef_[0].is_cuda and not pickle.loads(pickle.dumps(model)).coef_[0].is_cuda
