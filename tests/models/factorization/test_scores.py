"""`score` of factorizations: minus the mean loss of samples through `transform`."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.model_selection import GridSearchCV, cross_val_score

from nnfactor import LNMF, NMF, NTD, NTF, PARAFAC2, ConstrainedNMF, GraphNMF, KernelNMF, PolynomialNMF, SemiNMF

RNG = np.random.default_rng(0)
X = RNG.random((30, 3)) @ RNG.random((3, 12)) * RNG.gamma(9, 1 / 9, (30, 12))
NEW = X[20:]


@pytest.mark.parametrize(
    "estimator",
    [NMF(3), NTF(3), GraphNMF(3), LNMF(3), SemiNMF(3), ConstrainedNMF(3), NMF(3, transform_method="pinv")],
    ids=lambda e: type(e).__name__,
)
def test_score_is_minus_the_mean_square_of_the_residual(estimator):
    model = estimator.set_params(random_state=0, max_iter=50, tol=0).fit(X[:20])
    wanted = -np.square(NEW - model.inverse_transform(model.transform(NEW))).mean()
    assert model.score(NEW) == pytest.approx(wanted) and model.score(NEW, np.zeros(10)) == model.score(NEW)


def test_score_of_other_losses_is_their_divergence():
    from scipy.special import kl_div

    counts = np.round(10 * X)
    model = NMF(3, loss="kl", random_state=0, max_iter=50, tol=0).fit(counts[:20])
    Y = model.transform(counts[20:]) @ model.components_
    wanted = -kl_div(counts[20:], Y).mean()
    assert model.score(counts[20:]) == pytest.approx(wanted, rel=1e-6)
    assert model.score(sp.csr_array(counts[20:])) == pytest.approx(wanted, rel=1e-5)
    assert model.score(torch.from_numpy(counts[20:])) == pytest.approx(wanted, rel=1e-6)


def test_score_of_a_tensor_is_over_all_entries():
    T = X.reshape(30, 4, 3)
    model = NTF(2, random_state=0, max_iter=50, tol=0).fit(T[:20])
    assert model.score(T[20:]) == pytest.approx(
        -np.square(T[20:] - model.inverse_transform(model.transform(T[20:]))).mean()
    )


def test_score_of_polynomial_nmf_is_in_feature_space():
    model = PolynomialNMF(3, random_state=0, max_iter=50, tol=0).fit(X[:20])
    V, W = model.transform(NEW), model.factors_[0]
    loss = (NEW @ NEW.T).diagonal() ** 2 - 2 * (V * (NEW @ W) ** 2).sum(1) + (V @ (W.T @ W) ** 2 * V).sum(1)
    assert model.score(NEW) == pytest.approx(-loss.mean())
    assert model.score(1e-3 * NEW) == pytest.approx(-1e-12 * loss.mean(), rel=1e-6)


def test_kernel_nmf_has_no_score():
    assert not hasattr(KernelNMF(2), "score")


@pytest.mark.parametrize("loss", ["frobenius", "kl"])
def test_hidden_entries_do_not_count(loss):
    model = NMF(3, loss=loss, missing="nan", random_state=0, max_iter=50, tol=0).fit(X[:20])
    hidden = RNG.random(NEW.shape) < 0.2
    scores = [
        model.score(np.where(hidden, np.nan, NEW)),
        model.score(np.where(hidden, 1e9, NEW), weights=(~hidden).astype(float)),
    ]
    assert scores[0] == pytest.approx(scores[1])
    V = model.transform(np.where(hidden, np.nan, NEW))
    if loss == "frobenius":
        assert scores[0] == pytest.approx(-np.square(NEW - V @ model.components_)[~hidden].mean())


def test_the_scale_of_data_does_not_matter():
    models = [NMF(3, random_state=0, max_iter=50, tol=0).fit(c * X[:20]) for c in (1.0, 2.0**-600)]
    assert models[1].score(2.0**-500 * NEW) == pytest.approx(models[0].score(NEW) * 2.0**-1000)


def test_grid_search_takes_factorizations_as_they_are():
    search = GridSearchCV(NMF(2, random_state=0, max_iter=200, tol=0), {"n_components": [1, 3]}, cv=3).fit(X)
    assert search.best_params_ == {"n_components": 3}
    assert (cross_val_score(NMF(2, random_state=0, max_iter=200, tol=0), X, cv=3) < 0).all()


@pytest.mark.parametrize("estimator", [NMF(2), NMF(2, loss=3.0), NTF(2), NTD(2), PARAFAC2(2)], ids=lambda e: repr(e))
def test_a_score_beyond_the_range_is_minus_infinity(estimator):
    data = X.reshape(30, 4, 3) if isinstance(estimator, NTF | NTD | PARAFAC2) else X
    model = estimator.set_params(random_state=0, max_iter=5, tol=0).fit(data)
    assert model.score(1e250 * data) == -np.inf and model.score(1e-250 * data) == 0


def test_a_score_of_nothing_is_refused():
    model = NMF(2, missing="nan", random_state=0).fit(X)
    with pytest.raises(ValueError, match="no entry that counts"):
        model.score(np.full_like(X, np.nan))
