"""Coupled factorization against a NumPy reference that shares no code, and what it promises of its results."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.optimize import nnls
from sklearn.base import clone

import nnfactor
from nnfactor import NTF, SULF, Coupled, batch_fit
from nnfactor.core.solve.history.result import find_best

MODES = [("sample", "gene"), ("sample", "time", "channel"), ("time", "site")]
SIZES = {"sample": 9, "gene": 7, "time": 5, "channel": 4, "site": 6}
LETTER = dict(zip(SIZES, "abcde"))


def model_of(factors, modes, weights=None):
    ends = [LETTER[m] for m in modes]
    k = next(iter(factors.values())).shape[1]
    w = np.ones(k) if weights is None else weights
    return np.einsum("z," + ",".join(f"{x}z" for x in ends) + "->" + "".join(ends), w, *(factors[m] for m in modes))


def problem(seed=0, k=3, noise=0.1):
    rng = np.random.default_rng(seed)
    planted = {m: rng.random((d, k)) ** 2 for m, d in SIZES.items()}
    X = [
        s * model_of(planted, m) * rng.uniform(1 - noise, 1 + noise, [SIZES[x] for x in m])
        for m, s in zip(MODES, (1, 50, 0.1))
    ]
    return X, {m: rng.random((d, k)) + 0.1 for m, d in SIZES.items()}


def relative_objective(X, factors, weights):
    return sum(w * ((A - model_of(factors, m)) ** 2).sum() / (A**2).sum() for A, m, w in zip(X, MODES, weights))


def step(X, factors, weights, rule):
    """One sweep: of every mode the unfolded tensors that have it, side by side, against their Khatri-Rao products."""
    factors = dict(factors)
    for mode in ("gene", "time", "channel", "site", "sample"):
        k = factors[mode].shape[1]
        G, B = np.zeros((k, k)), np.zeros(factors[mode].shape)
        for A, names, w in zip(X, MODES, weights):
            if mode not in names:
                continue
            K = np.ones((1, k))
            for m in names:
                if m != mode:
                    K = np.einsum("ik,jk->ijk", K, factors[m]).reshape(-1, k)
            unfolded = np.moveaxis(A, names.index(mode), 0).reshape(A.shape[names.index(mode)], -1)
            G, B = G + w / (A**2).sum() * K.T @ K, B + w / (A**2).sum() * unfolded @ K
        F = factors[mode].copy()
        if rule == "mu":
            factors[mode] = F * B / (F @ G)
            continue
        for j in np.flatnonzero(G.diagonal() > 0):  # a column without curvature stays
            F[:, j] = np.maximum(0, F[:, j] + (B[:, j] - F @ G[:, j]) / G[j, j])
        factors[mode] = F
    return factors


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("rule", ["mu", "hals"])
def test_sweeps_equal_the_reference(rule, kind):
    X, start = problem()
    weights = [1.0, 0.5, 3.0]
    given = X if kind == "dense" else [X[0], sp.coo_array(X[1]), sp.csr_array(X[2])]
    for n in (1, 30):
        model = Coupled(3, modes=MODES, weights=weights, solver=rule, init=start, max_iter=n, tol=0).fit(given)
        factors = start
        for _ in range(n):
            factors = step(X, factors, weights, rule)
        assert model.loss_ == pytest.approx(relative_objective(X, factors, weights), rel=1e-9)
        for p, names in enumerate(MODES):
            found = model_of(model.factors_, names, model.component_weights_[p])
            np.testing.assert_allclose(found, model_of(factors, names), rtol=1e-7, atol=1e-9)
            error = np.linalg.norm(X[p] - found) / np.linalg.norm(X[p])
            assert model.tensor_errors_[p] == pytest.approx(error)
        assert (np.diff(model.history_["objective"]) <= 1e-12).all()


def test_long_runs_with_momentum_end_where_no_entry_can_improve():
    X, start = problem()
    model = Coupled(3, modes=MODES, n_init=3, max_iter=4000, tol=1e-12, random_state=0).fit(X)
    factors = start
    for _ in range(300):
        factors = step(X, factors, [1, 1, 1], "hals")
    assert model.loss_ <= 1.01 * relative_objective(X, factors, [1, 1, 1])
    gradients = {m: 0 for m in SIZES}
    for p, names in enumerate(MODES):
        w, norm = model.component_weights_[p], (X[p] ** 2).sum()
        residual = model_of(model.factors_, names, w) - X[p]
        for m in names:
            others = {x: model.factors_[x] for x in names if x != m}
            ends = "".join(LETTER[x] for x in names)
            pieces = ",".join(f"{LETTER[x]}z" for x in others)
            gradients[m] = (
                gradients[m] + np.einsum(f"{ends},{pieces},z->{LETTER[m]}z", residual, *others.values(), w) / norm
            )
    for m, gradient in gradients.items():
        assert np.abs(np.minimum(model.factors_[m], gradient)).max() < 1e-4, m
        np.testing.assert_allclose(np.linalg.norm(model.factors_[m], axis=0), 1, rtol=1e-9)


def test_planted_factors_are_found():
    X, _ = problem(noise=0)
    model = Coupled(3, modes=MODES, n_init=5, max_iter=3000, tol=1e-9, random_state=0).fit(X)
    assert model.tensor_errors_.max() < 0.01 and model.component_weights_.shape == (3, 3)


def test_one_tensor_is_ntf_and_matrices_of_the_same_samples_are_views():
    X, _ = problem()
    rng = np.random.default_rng(1)
    start = {m: rng.random((SIZES[m], 3)) for m in MODES[1]}
    one = Coupled(3, modes=MODES[1:2], init=start, max_iter=40, tol=0, solver="hals").fit(X[1:2])
    ntf = NTF(3, init=tuple(start.values()), max_iter=40, tol=0, solver="hals").fit(X[1])
    assert one.loss_ == pytest.approx(ntf.loss_ / (X[1] ** 2).sum(), rel=1e-9)
    views = [X[0], X[1].reshape(9, -1)]
    modes = [("sample", "a"), ("sample", "b")]
    model = Coupled(3, modes=modes, max_iter=2000, tol=1e-6, random_state=0).fit(views)
    sulf = SULF(3, view_weights="equal", max_iter=2000, tol=1e-6, random_state=0).fit(views)
    shares = [
        np.linalg.norm(A - V) ** 2 / np.linalg.norm(A) ** 2
        for A, V in zip(views, sulf.inverse_transform(sulf.embedding_))
    ]
    assert model.loss_ <= 1.001 * sum(shares)


def test_weights_mean_the_same_for_every_unit_and_number_of_samples():
    X, start = problem()
    fit = lambda X, start: Coupled(
        3, modes=MODES, weights=[1, 2, 1], init=start, max_iter=60, tol=0, solver="hals"
    ).fit(X)
    plain = fit(X, start)
    scaled = fit([1e3 * X[0], X[1], 1e-4 * X[2]], start | {"gene": 1e3 * start["gene"], "site": 1e-4 * start["site"]})
    assert scaled.loss_ == pytest.approx(plain.loss_, rel=1e-9)
    for m in SIZES:
        np.testing.assert_allclose(scaled.factors_[m], plain.factors_[m], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(scaled.component_weights_, plain.component_weights_ * [[1e3], [1], [1e-4]], rtol=1e-6)
    tiny = Coupled(3, modes=MODES[:2], max_iter=60, tol=0, random_state=0).fit([1e-200 * X[0], 1e150 * X[1]])
    same = Coupled(3, modes=MODES[:2], max_iter=60, tol=0, random_state=0).fit(X[:2])
    assert tiny.loss_ == pytest.approx(same.loss_, rel=1e-3)
    assert np.isfinite(tiny.transform([1e-200 * X[0], None])).all()


def test_transform_solves_the_samples_of_what_was_measured():
    X, _ = problem()
    weights = np.array([1.0, 0.5, 3.0])
    model = Coupled(3, modes=MODES, weights=weights, random_state=0, max_iter=100, tol=0).fit(X)
    new = problem(seed=1)[0]
    norms = [np.linalg.norm(A) for A in X]

    def expected(some):
        rows = []
        for i in range(9):
            designs, targets = [], []
            for p in some:
                others = {m: model.factors_[m] for m in MODES[p][1:]}
                eye = {"sample": np.eye(3)} | others
                D = np.stack(
                    [
                        model_of(
                            {m: F[:, [j]] if m != "sample" else np.ones((1, 1)) for m, F in eye.items()},
                            MODES[p],
                            model.component_weights_[p][[j]],
                        ).ravel()
                        for j in range(3)
                    ],
                    1,
                )
                root = np.sqrt(weights[p]) / norms[p]
                designs.append(root * D)
                targets.append(root * new[p][i].ravel())
            rows.append(nnls(np.concatenate(designs), np.concatenate(targets))[0])
        return np.array(rows)

    np.testing.assert_allclose(model.transform(new), expected([0, 1]), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(model.transform([None, new[1], None]), expected([1]), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(
        model.transform([new[0][:4], new[1][:4], None]), expected([0, 1])[:4], rtol=1e-6, atol=1e-8
    )
    again = model.inverse_transform(model.transform(new))
    assert [A.shape for A in again] == [A.shape for A in new]
    errors = [((A - M) ** 2).sum() / (A**2).sum() for A, M in zip(new[:2], again)]
    assert model.score([*new[:2], None]) == pytest.approx(-(errors @ weights[:2]) / weights[:2].sum())


def test_batches_and_restarts_equal_separate_fits():
    X, _ = problem()
    several = lambda: [
        Coupled(k, modes=MODES, weights=w, n_init=2, random_state=0, max_iter=40, tol=0)
        for k, w in ((2, None), (3, None), (3, [1, 2, 3]))
    ]
    for one, alone in zip(batch_fit(several(), X), several(), strict=True):
        alone.fit(X)
        np.testing.assert_allclose(one.restarts_["loss"], alone.restarts_["loss"], rtol=1e-7)
        np.testing.assert_allclose(one.component_weights_, alone.component_weights_, rtol=1e-5, atol=1e-9)
        assert one.restarts_["factors"]["time"].shape == (2, 5, one.n_components)
        best = find_best(one.restarts_["loss"], torch.float64)  # the two may end in one minimum
        np.testing.assert_allclose(one.restarts_["component_weights"][best], one.component_weights_, rtol=1e-9)


def test_batches_of_data_sets_equal_separate_fits():
    sets = [problem(seed)[0] for seed in range(3)]
    several = lambda: [Coupled(3, modes=MODES, random_state=0, max_iter=40, tol=0) for _ in sets]
    for one, alone, X in zip(batch_fit(several(), sets), several(), sets, strict=True):
        np.testing.assert_allclose(one.component_weights_, alone.fit(X).component_weights_, rtol=1e-6, atol=1e-9)


def test_kinds_dtypes_files_and_parameters(tmp_path):
    X, _ = problem()
    model = Coupled(3, modes=MODES, random_state=0, max_iter=20, tol=0).fit(X)
    single = clone(model).fit([A.astype(np.float32) for A in X])
    assert {F.dtype for F in single.factors_.values()} == {np.dtype(np.float32)} and single.loss_ == pytest.approx(
        model.loss_, rel=1e-3
    )
    tensors = clone(model).fit([torch.from_numpy(A) for A in X])
    assert all(isinstance(F, torch.Tensor) for F in tensors.factors_.values())
    np.testing.assert_allclose(np.asarray(tensors.embedding_), model.embedding_)
    model.save(tmp_path / "model")
    for again in (pickle.loads(pickle.dumps(model)), nnfactor.load(tmp_path / "model")):
        assert np.array_equal(again.transform(X), model.transform(X)) and list(again.factors_) == list(SIZES)
    assert clone(model).get_params()["modes"] == MODES
    assert len(model.get_feature_names_out()) == 3
    model.set_params(modes=MODES[:2], weights=[1, 1])
    assert model.transform(X).shape == (9, 3)  # a fitted model answers from what was fitted
    frozen = [A.copy() for A in X]
    model.fit(X[:2])
    assert all(np.array_equal(a, b) for a, b in zip(X, frozen))


def test_float32_with_momentum_stays_in_range():
    X, _ = problem()
    model = Coupled(4, modes=MODES, random_state=0, max_iter=3000, tol=0).fit([A.astype(np.float32) for A in X])
    assert all(np.isfinite(F).all() for F in model.factors_.values()) and np.isfinite(model.component_weights_).all()


@pytest.mark.parametrize(
    "settings, change, message",
    [
        ({"modes": "sample"}, None, "modes must be a list of tuples"),
        ({"modes": [("a", "b"), ("c", "d")]}, None, r"modes\[0\]=\('a', 'b'\) shares no mode"),
        ({"modes": [("a", "a")]}, None, "two or more different names"),
        ({"weights": [1, 2]}, None, "weights must be 3 numbers > 0"),
        ({"weights": [1, 2, 0]}, None, "weights must be 3 numbers > 0"),
        ({"init": {"sample": np.ones((9, 3))}}, None, "init must be .*'gene': \\(7, 3\\)"),
        ({"init": "nndsvda"}, None, "init='nndsvda' needs matrices"),
        ({"solver": "svd"}, None, "solver='svd'"),
        ({}, lambda X: X[:2], "list of 3 tensors.*got 2 tensors"),
        ({}, lambda X: X[0], "list of 3 tensors.*got no list"),
        (
            {},
            lambda X: [X[0], X[1][:5], X[2]],
            r"X\[1\] has 5 in mode 'sample' \(shape \(5, 5, 4\)\), but X\[0\] has 9",
        ),
        (
            {},
            lambda X: [X[0], X[1][0], X[2]],
            r"X\[1\] has shape \(5, 4\); its modes are \('sample', 'time', 'channel'\)",
        ),
        ({}, lambda X: [X[0], -X[1], X[2]], r"X\[1\]: Negative values"),
        ({}, lambda X: [X[0], X[1] * np.nan, X[2]], r"X\[1\]: Input X contains NaN"),
    ],
)
def test_refusals(settings, change, message):
    X, _ = problem()
    model = Coupled(3, modes=MODES, max_iter=5, tol=0).set_params(**settings)
    with pytest.raises(ValueError, match=message):
        model.fit(change(X) if change else X)
    model = Coupled(3, modes=MODES, max_iter=5, tol=0).fit(X)
    with pytest.raises(ValueError, match="needs at least one"):
        model.transform([None, None, X[2]])
    with pytest.raises(ValueError, match=r"X\[0\] has 3 in mode 'gene'"):
        model.transform([X[0][:, :3], None, None])
