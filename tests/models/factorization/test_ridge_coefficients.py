"""`transform_method="ridge"`: coefficients and their strength, through every estimator that has them."""

import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from estimators import blocks, labels
from sklearn.base import clone

from nnfactor import LNMF, N2S2L, NGE, NMF, NTF, SULF, ConstrainedNMF, GraphNMF, SemiNMF, batch_fit
from nnfactor.core.solve.ridge import STRENGTHS

X, Y, NEW = blocks(24), labels(24), blocks(10, seed=5)
CUBE = blocks(24, 24).reshape(24, 4, 6)
MODELS = {
    "NMF": NMF,
    "NMF, KL": lambda k, **kw: NMF(k, loss="kl", **kw),
    "NTF": NTF,
    "NGE": NGE,
    "N2S2L": lambda k, **kw: N2S2L(k, neighbors=3, **kw),
    "GraphNMF": lambda k, **kw: GraphNMF(k, n_neighbors=3, **kw),
    "LNMF": LNMF,
    "ConstrainedNMF": ConstrainedNMF,
    "SemiNMF": SemiNMF,
}
every_model = pytest.mark.parametrize("key", MODELS)


def make(key, **settings):
    return MODELS[key](4, **{"random_state": 0, "max_iter": 20, "tol": 0, "transform_method": "ridge", **settings})


def kron(factors):
    """The bases of samples as vectors, `(m, k)`."""
    H = np.asarray(factors[0], dtype=float)
    for F in factors[1:]:
        H = (H[:, None] * np.asarray(F, dtype=float)).reshape(-1, H.shape[1])
    return H


def closed_form(U, Z, ridge):
    lengths = np.linalg.norm(U, axis=0)
    left, s, right = np.linalg.svd(U / lengths, full_matrices=False)
    return Z @ (left * (s / (s**2 + (ridge * s[0]) ** 2))) @ right / lengths


def errors_of_cross_validation(U, Z):
    """The textbook's generalised cross-validation with every hat matrix."""
    unit = U / np.linalg.norm(U, axis=0)
    top, errors = np.linalg.norm(unit, 2), []
    for ridge in STRENGTHS.numpy():
        hat = unit @ np.linalg.solve(unit.T @ unit + (ridge * top) ** 2 * np.eye(U.shape[1]), unit.T)
        errors.append(((Z - Z @ hat) ** 2).sum() / np.trace(np.eye(len(U)) - hat) ** 2)
    return np.array(errors)


@every_model
@pytest.mark.parametrize("ridge", [0.0, 0.1, 1.0])
def test_transform_is_the_closed_form(key, ridge):
    model = make(key, ridge=ridge).fit(X, Y)
    V = model.transform(NEW)
    np.testing.assert_allclose(V, closed_form(kron(model.factors_), NEW, ridge), rtol=1e-7, atol=1e-9)
    assert model.ridge_ == ridge and V.dtype == X.dtype
    np.testing.assert_allclose(model.inverse_transform(V), V @ kron(model.factors_).T, rtol=1e-10)


@every_model
def test_cross_validation_needs_no_labels_and_finds_the_least_error(key):
    model = make(key, ridge="cv").fit(X, Y)
    errors = errors_of_cross_validation(kron(model.factors_), X)
    at = int(np.argmin(abs(STRENGTHS.numpy() - model.ridge_)))
    assert STRENGTHS[at] == pytest.approx(model.ridge_, rel=1e-12)
    assert errors[at] == pytest.approx(errors.min(), rel=1e-6)
    np.testing.assert_allclose(
        model.transform(NEW), closed_form(kron(model.factors_), NEW, model.ridge_), rtol=1e-6, atol=1e-9
    )


@pytest.mark.parametrize("key", ["NTF", "NGE", "N2S2L"])
@pytest.mark.parametrize("ridge", [0.1, "cv"])
def test_tensors(key, ridge):
    model = make(key, ridge=ridge).fit(CUBE, Y)
    U, Z = kron(model.factors_), CUBE[:7].reshape(7, -1)
    if ridge == "cv":
        errors = errors_of_cross_validation(U, CUBE.reshape(24, -1))
        assert errors[int(np.argmin(abs(STRENGTHS.numpy() - model.ridge_)))] == pytest.approx(errors.min(), rel=1e-6)
    np.testing.assert_allclose(model.transform(CUBE[:7]), closed_form(U, Z, model.ridge_), rtol=1e-7, atol=1e-9)


def test_as_many_components_as_features_leave_no_residual():
    model = NMF(8, transform_method="ridge", ridge="cv", random_state=0).fit(X)
    assert model.ridge_ in STRENGTHS.tolist() and np.isfinite(model.transform(NEW)).all()
    wide = NMF(12, transform_method="ridge", ridge="cv", random_state=0).fit(X)
    assert np.isfinite(wide.transform(NEW)).all()


@every_model
@pytest.mark.parametrize("ridge", [0.1, "cv"])
def test_sparse_equals_dense(key, ridge):
    thin = X * (np.median(X) < X)
    dense, sparse = make(key, ridge=ridge).fit(thin, Y), make(key, ridge=ridge).fit(sp.csr_array(thin), Y)
    assert dense.ridge_ == sparse.ridge_
    np.testing.assert_allclose(sparse.transform(sp.csr_array(thin)), dense.transform(thin), rtol=1e-5, atol=1e-7)
    same = dense.transform(sp.csr_array(thin))
    np.testing.assert_allclose(same, dense.transform(thin), rtol=1e-9, atol=1e-12)


def test_sparse_data_stay_sparse(monkeypatch):
    wide = sp.random_array((200, 300), density=0.02, rng=np.random.default_rng(0), format="csr")
    model = NMF(5, transform_method="ridge", ridge="cv", random_state=0, max_iter=5, tol=0)
    for name in ("toarray", "todense"):
        monkeypatch.setattr(sp.csr_array, name, lambda *_: pytest.fail("X was made dense"))
    assert model.fit(wide).transform(wide).shape == (200, 5)


@every_model
def test_float32_stays(key):
    model = make(key, ridge="cv").fit(X.astype(np.float32), Y)
    V = model.transform(NEW.astype(np.float32))
    assert V.dtype == np.float32
    exact = closed_form(kron(model.factors_), NEW, model.ridge_)
    np.testing.assert_allclose(V, exact, rtol=1e-3, atol=1e-4 * abs(exact).max())


@every_model
def test_copies_and_clones(key):
    model = make(key, ridge="cv").fit(X, Y)
    loaded, again = pickle.loads(pickle.dumps(model)), clone(model).fit(X, Y)
    assert loaded.ridge_ == again.ridge_ == model.ridge_ and clone(model).ridge == "cv"
    for other in (loaded, again):
        np.testing.assert_array_equal(other.transform(NEW), model.transform(NEW))


@every_model
def test_a_fitted_strength_stays_until_the_next_fit(key):
    model = make(key, ridge=0.3).fit(X, Y)
    before = model.transform(NEW)
    model.set_params(ridge=0.001)
    np.testing.assert_array_equal(model.transform(NEW), before)
    assert model.fit(X, Y).ridge_ == 0.001 and not np.allclose(model.transform(NEW), before)


def test_the_method_may_change_after_a_fit():
    model = make("NMF", transform_method="nnls", ridge=0.2).fit(X)
    assert not hasattr(model, "ridge_") and (model.transform(NEW) >= 0).all()
    shrunk = model.set_params(transform_method="ridge").transform(NEW)
    np.testing.assert_allclose(shrunk, closed_form(kron(model.factors_), NEW, 0.2), rtol=1e-7, atol=1e-9)
    with pytest.raises(ValueError, match="ridge='cv' chooses its strength in fit"):
        model.set_params(ridge="cv").transform(NEW)


def test_known_bases():
    H = np.random.default_rng(1).random((3, 8))
    model = NMF.from_components(H, transform_method="ridge", ridge=0.05)
    np.testing.assert_allclose(model.transform(NEW), closed_form(H.T, NEW, 0.05), rtol=1e-7, atol=1e-10)
    with pytest.raises(ValueError, match="ridge='cv' chooses the strength for samples"):
        NMF.from_components(H, transform_method="ridge", ridge="cv")
    factors = [np.random.default_rng(b).random((d, 3)) for b, d in enumerate((4, 6))]
    model = NTF.from_components(factors, transform_method="ridge")
    expected = closed_form(kron(factors), CUBE.reshape(24, -1), 0.1)
    np.testing.assert_allclose(model.transform(CUBE), expected, rtol=1e-7, atol=1e-10)


def test_batches_and_restarts():
    grid = [NMF(k, transform_method="ridge", ridge=r, random_state=0, n_init=2) for k in (3, 4) for r in (0.1, "cv")]
    alone = [clone(model).fit(X) for model in grid]
    for one, other in zip(batch_fit(grid, X), alone, strict=True):
        assert one.ridge_ == other.ridge_
        np.testing.assert_allclose(one.transform(NEW), other.transform(NEW), rtol=1e-4, atol=1e-6)


def test_streams_choose_on_the_last_batch():
    model = NMF(4, transform_method="ridge", ridge="cv", random_state=0)
    for batch in (X[:12], X[12:]):
        model.partial_fit(batch)
        errors = errors_of_cross_validation(kron(model.factors_), batch)
        assert errors[int(np.argmin(abs(STRENGTHS.numpy() - model.ridge_)))] == pytest.approx(errors.min(), rel=1e-6)


def test_extreme_units_choose_the_same_strength():
    model, large = make("NMF", ridge="cv").fit(X), make("NMF", ridge="cv").fit(X * 2.0**400)
    assert model.ridge_ == large.ridge_
    np.testing.assert_allclose(large.transform(NEW * 2.0**400) / 2.0**400, model.transform(NEW), rtol=1e-6, atol=1e-9)


def test_fit_transform_is_transform_and_the_embedding_stays_nonnegative():
    model = make("NMF", ridge=0.1)
    np.testing.assert_array_equal(model.fit_transform(X), model.transform(X))
    assert (model.embedding_ >= 0).all() and (model.transform(np.eye(8)) < 0).any()


def test_tensors_of_torch_stay_there():
    model = make("NTF", ridge="cv").fit(torch.from_numpy(CUBE).float())
    V = model.transform(torch.from_numpy(CUBE).float())
    assert isinstance(V, torch.Tensor) and V.dtype == torch.float32 and isinstance(model.ridge_, float)


@pytest.mark.parametrize("ridge", [-0.1, np.nan, np.inf, "gcv", None, True])
def test_refused_strengths(ridge):
    with pytest.raises(ValueError, match="ridge must be a finite number >= 0, or 'cv'"):
        make("NMF", ridge=ridge).fit(X)


def test_models_without_a_strength_have_no_ridge():
    with warnings.catch_warnings(), pytest.raises(ValueError, match="transform_method='ridge' is not known"):
        SULF(2, transform_method="ridge").fit([X, X], Y)
