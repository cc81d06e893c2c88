"""Metrics of components against TensorLy and formulas written out, and on models whose answer is known."""

import numpy as np
import pytest
import torch

from nnfactor import NMF, NTF, SULF
from nnfactor.metrics import (
    core_consistency,
    degeneracy_score,
    factor_match_score,
    percentage_variation,
    split_half_similarity,
)

SHAPE, K = (7, 6, 5), 3


def factors(seed, k=K):
    rng = np.random.default_rng(seed)
    return [rng.random((d, k)) for d in SHAPE]


def full(Fs):
    return np.einsum("ir,jr,kr->ijk", *Fs)


def cosine(a, b):
    return a @ b / np.sqrt((a @ a) * (b @ b))


def test_factor_match_score_is_the_best_of_all_permutations():
    from itertools import permutations

    A, B = factors(0), factors(1)

    def pair(i, j, weights):
        score = np.prod([abs(cosine(F[:, i], G[:, j])) for F, G in zip(A, B)])
        s, t = (np.prod([np.linalg.norm(F[:, c]) for F in Fs]) for Fs, c in ((A, i), (B, j)))
        return score * (1 - abs(s - t) / max(s, t) if weights else 1)

    for weights in (True, False):
        wanted = max(np.mean([pair(i, p[i], weights) for i in range(K)]) for p in permutations(range(K)))
        assert factor_match_score(A, B, consider_weights=weights) == pytest.approx(wanted)


def test_factor_match_score_knows_order_lengths_and_missing_components():
    A = factors(0)
    order = [2, 0, 1]
    B = [F[:, order] * s for F, s in zip(A, (2.0, 0.5, 1.0))]
    score, permutation = factor_match_score(A, B, return_permutation=True)
    assert score == pytest.approx(1) and permutation.tolist() == [1, 2, 0]
    assert factor_match_score((np.ones(K), A), [torch.from_numpy(F) for F in A]) == pytest.approx(1)
    assert factor_match_score([F[:, :2] for F in A], A) == pytest.approx(2 / 3)
    assert factor_match_score(A, [A[0][:4], *A[1:]], skip_mode=0) == pytest.approx(1)
    with pytest.raises(ValueError, match="rows"):
        factor_match_score(A, [A[0][:4], *A[1:]])


@pytest.mark.parametrize("normalised", [False, True])
def test_core_consistency_is_that_of_the_least_squares_core(normalised):
    A = factors(0)
    X = full(factors(1, 5))
    design = np.kron(A[0], np.kron(A[1], A[2]))
    G = np.linalg.lstsq(design, X.ravel(), rcond=None)[0].reshape(K, K, K)
    ideal = np.zeros((K, K, K))
    ideal[range(K), range(K), range(K)] = 1
    wanted = 100 - 100 * np.square(G - ideal).sum() / (np.square(G).sum() if normalised else K)
    assert core_consistency(A, X, normalised=normalised) == pytest.approx(wanted)
    assert core_consistency(A, full(A)) == pytest.approx(100)


def test_core_consistency_agrees_with_tensorly():
    tl = pytest.importorskip("tensorly")
    from tensorly.tenalg import multi_mode_dot

    A, X = factors(0), full(factors(1, 4))
    G = tl.to_numpy(multi_mode_dot(tl.tensor(X), [np.linalg.pinv(F) for F in A]))
    ideal = np.zeros_like(G)
    ideal[range(K), range(K), range(K)] = 1
    assert core_consistency((None, A), X) == pytest.approx(100 - 100 * np.square(G - ideal).sum() / K)


def test_degeneracy_score_is_the_least_product_of_cosines():
    A = factors(0)
    A[0][:, 1] = -A[0][:, 0] + 0.01
    wanted = min(np.prod([cosine(F[:, i], F[:, j]) for F in A]) for i in range(K) for j in range(K))
    assert degeneracy_score(A) == pytest.approx(wanted) and wanted < 0


def test_percentage_variation_is_of_the_data_or_of_the_model():
    A = factors(0)
    squares = np.array([np.square(full([F[:, [r]] for F in A])).sum() for r in range(K)])
    X = full(factors(1))
    np.testing.assert_allclose(percentage_variation(A, X), 100 * squares / np.square(X).sum())
    np.testing.assert_allclose(percentage_variation(A, method="model"), 100 * squares / squares.sum())
    with pytest.raises(ValueError, match="X is None"):
        percentage_variation(A)


def test_fitted_estimators_are_models():
    X = full(factors(0, 2))
    model = NTF(2, random_state=0).fit(X)
    assert core_consistency(model, X) > 99 and factor_match_score(model, factors(0, 2)) > 0.98
    split = split_half_similarity(NTF(2, random_state=0), X, n_splits=2, random_state=0)
    assert split.shape == (2,) and split.min() > 0.95
    assert split_half_similarity(NMF(1), torch.from_numpy(X[:, 0]), n_splits=1, random_state=0)[0] > 0.8


def test_shares_of_several_arrays_are_not_one_number():
    X = np.random.default_rng(0).random((12, 6))
    with pytest.raises(ValueError, match="SULF models several arrays"):
        percentage_variation(SULF(2, random_state=0, max_iter=5, tol=0).fit([X, X]), method="model")
