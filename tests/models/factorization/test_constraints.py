"""Penalties, fixed entries, bounds, simplex rows and terms of one's own, against references written out."""

import pickle

import numpy as np
import pytest
import torch
from scipy.optimize import lsq_linear, minimize, nnls
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.decomposition import NMF as ScikitLearn

from nnfactor import N2S2L, NGE, NMF, NTF, GraphNMF, batch_fit, penalties
from nnfactor.core import L2, Block, Quad, Term
from nnfactor.core.solve.simplex_coefficients import simplex_coefficients

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

RNG = np.random.default_rng(0)
U = RNG.gamma(0.5, 1, (30, 4)) + 0.05
V = RNG.dirichlet(np.ones(4) * 0.5, 50)
X = V @ U.T * np.exp(0.02 * RNG.normal(size=(50, 30)))
PARTLY = np.where(np.arange(4) < 2, U, np.nan)
KW = {"random_state": 0, "max_iter": 300}
SOLVERS = [{}, {"solver": "hals"}, {"solver": "mu"}, {"loss": "kullback-leibler"}, {"loss": 1.5}]


def fully_constrained(x, A, weight=1e5):
    return nnls(np.vstack([A, weight * np.ones(A.shape[1])]), np.append(x, weight))[0]


def falls(model):
    objective = model.history_["objective"]
    return (np.diff(objective).max() if model.solver != "auto" else objective[-1] - objective[0]) <= 1e-9 * objective[0]


@pytest.mark.parametrize("own", [False, True])
def test_simplex_coefficients_are_the_minimisers(own):
    rng = np.random.default_rng(1)
    for k in (1, 2, 7, 25):
        A = rng.random((40, k)) ** 3
        Y = np.vstack(
            [rng.dirichlet(np.ones(k), 20) @ A.T + 0.1 * rng.random((20, 40)), rng.random((5, 40)), 1e3 * A.T[:1]]
        )
        G, B = torch.from_numpy(A.T @ A), torch.from_numpy(Y @ A)
        found = simplex_coefficients(G.expand(len(Y), k, k) if own else G, B).numpy()
        assert found.min() >= 0 and abs(found.sum(1) - 1).max() <= 1e-12
        gradient = found @ G.numpy() - B.numpy()  # equal where a coefficient is positive, and nowhere lower
        level = (gradient * found).sum(1, keepdims=True)
        assert ((gradient - level) >= -1e-8 * (1 + abs(level))).all()
        assert (abs(gradient - level) * found <= 1e-8 * (1 + abs(level))).all()


def test_unmixing_with_known_spectra_is_exact():
    expected = np.stack([fully_constrained(x, U) for x in X])
    model = NMF(4, fixed={"U1": U}, simplex="V", **KW).fit(X)
    np.testing.assert_array_equal(model.factors_[0], U)
    np.testing.assert_allclose(model.embedding_, expected, atol=1e-5)
    np.testing.assert_allclose(model.transform(X), expected, atol=1e-8)
    np.testing.assert_allclose(model.embedding_.sum(1), 1, atol=1e-12)
    far = clone(model).set_params(fixed={"U1": 1e150 * U}).fit(1e150 * X)
    np.testing.assert_allclose(far.embedding_, expected, atol=1e-5)
    np.testing.assert_array_equal(far.factors_[0], 1e150 * U)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kw", SOLVERS)
def test_fixed_entries_come_back_bit_for_bit(kw, dtype):
    model = NMF(4, fixed={"U1": PARTLY}, n_init=2, **KW, **kw).fit(X.astype(dtype))
    np.testing.assert_array_equal(model.factors_[0][:, :2], U[:, :2].astype(dtype))
    assert model.factors_[0].dtype == dtype
    single = clone(model).set_params(n_init=1, tol=0, max_iter=100).fit(X)
    assert falls(single) and single.loss_ <= 1.2 * NMF(4, max_iter=100, tol=0, random_state=0, **kw).fit(X).loss_ + 1e-3
    scattered = np.where(RNG.random(U.shape) < 0.2, 0.3, np.nan)
    np.testing.assert_array_equal(NMF(4, fixed={"U1": scattered}, **KW, **kw).fit(X).factors_[0][scattered == 0.3], 0.3)


@pytest.mark.parametrize("kw", SOLVERS)
def test_bounds_hold(kw):
    model = NMF(4, bounds={"V": (0.01, 0.3), "U1": (None, 1.0)}, tol=0, random_state=0, max_iter=80, **kw).fit(X)
    assert model.embedding_.min() >= 0.01 and model.embedding_.max() <= 0.3 and model.factors_[0].max() <= 1.0
    assert falls(model)


def test_transform_within_bounds_is_the_minimiser():
    model = NMF(4, bounds={"V": (0.0, 0.2)}, **KW).fit(X)
    found = model.transform(X)
    gradient = found @ model.components_ @ model.components_.T - X @ model.components_.T
    size = abs(X @ model.components_.T).max()
    assert found.max() <= 0.2
    assert (gradient[found == 0.2] <= 1e-6 * size).all() and (gradient[found == 0] >= -1e-6 * size).all()
    assert abs(gradient[(found > 0) & (found < 0.2)]).max() <= 1e-6 * size


@pytest.mark.parametrize("l1_ratio", [0.0, 0.5, 1.0])
def test_scikit_learns_regularisation(l1_ratio):
    kw = {"alpha_W": 0.01, "alpha_H": 0.02, "l1_ratio": l1_ratio}
    ours = NMF(4, random_state=0, max_iter=5000, tol=1e-9, **kw).fit(X)
    other = ScikitLearn(4, init="nndsvda", max_iter=5000, tol=1e-10, **kw).fit(X)

    def objective(W, H):
        n, m = X.shape
        l1 = l1_ratio * (0.01 * m * W.sum() + 0.02 * n * H.sum())
        return ((X - W @ H) ** 2).sum() + 2 * l1 + (1 - l1_ratio) * (0.01 * m * (W**2).sum() + 0.02 * n * (H**2).sum())

    np.testing.assert_allclose(ours.loss_, objective(ours.embedding_, ours.components_), rtol=1e-8)
    assert ours.loss_ <= 1.01 * objective(other.transform(X), other.components_)
    np.testing.assert_allclose(ours.transform(X), ours.embedding_, atol=1e-3)


PENALTIES = {
    "L1": (penalties.L1, lambda F: F.sum()),
    "L2": (penalties.L2, lambda F: (F**2).sum()),
    "L21": (penalties.L21, lambda F: np.sqrt((F**2).sum(1) + 1e-10).sum()),
    "Orthogonal": (penalties.Orthogonal, lambda F: 2 * np.triu(F.T @ F, 1).sum()),
    "Smooth": (penalties.Smooth, lambda F: (np.diff(F, axis=0) ** 2).sum()),
}


@pytest.mark.parametrize("on", ["V", "U1"])
@pytest.mark.parametrize("solver", ["auto", "hals", "projected"])
@pytest.mark.parametrize("name", PENALTIES)
def test_a_penalty_lowers_what_it_penalises(name, solver, on):
    """The loss is that of the published factors, in the units of the data; the other factor has short columns."""
    make, size = PENALTIES[name]
    free = NMF(4, solver=solver, **KW).fit(X)
    model = NMF(4, solver=solver, penalties={on: [make(0.5)]}, tol=0, max_iter=200, random_state=0).fit(X)
    F = {"V": model.embedding_, "U1": model.factors_[0]}
    other = F["U1" if on == "V" else "V"]
    error = ((X - F["V"] @ F["U1"].T) ** 2).sum()
    np.testing.assert_allclose(model.loss_, error + 0.5 * size(F[on]), rtol=1e-6)
    assert np.linalg.norm(other, axis=0).max() <= 1 + 1e-9 and falls(model)
    lengths = np.linalg.norm(free.embedding_, axis=0) if on == "U1" else 1.0
    assert size(F[on]) < size((free.factors_[0] * lengths) if on == "U1" else free.embedding_)


@pytest.mark.parametrize("digits", [40, -40, 500])
@pytest.mark.parametrize("name", PENALTIES)
def test_weights_have_the_unit_of_the_data(name, digits):
    """Of data that are 2^40 times as large, a weight on V of degree one is so many times as large."""
    make, _ = PENALTIES[name]
    c = 2.0**digits
    init = RNG.random((50, 4)), RNG.random((30, 4))
    a = NMF(4, penalties={"V": [make(0.5)]}, init=init, max_iter=50, tol=0).fit(X)
    far = {"penalties": {"V": [make(0.5 * c ** (2 - make.degree))]}, "init": (init[0] * c, init[1])}
    b = clone(a).set_params(**far).fit(X * c)
    np.testing.assert_allclose(b.loss_ / c / c, a.loss_, rtol=1e-6)
    np.testing.assert_allclose(b.embedding_ / c, a.embedding_, rtol=1e-3, atol=1e-3)


def test_terms_of_ones_own():
    class Sum(Term):
        """`100 (sum of a row of V - 1)^2`."""

        factor_names = ("V",)

        def value(self, factors):
            return 100 * (factors["V"].sum(-1) - 1).square().sum(-1)

        def block(self, factors, name):
            hundred = torch.full((4, 4), 100.0, dtype=factors["V"].dtype)
            return Block((Quad(hundred),), torch.full_like(factors["V"], 100.0))

    model = NMF(4, terms=[Sum()], fixed={"U1": U}, **KW).fit(X)
    plain = NMF(4, fixed={"U1": U}, **KW).fit(X)
    distance = lambda m: np.abs(m.embedding_.sum(1) - 1).max()
    assert distance(model) < 0.3 * distance(plain)
    shapes = []
    NMF(4, terms=lambda found: shapes.append(found) or [L2("V", 0.1)], **KW).fit(X)
    assert shapes == [{"V": (50, 4), "U1": (30, 4)}]
    a, b = batch_fit(
        [NMF(4, terms=[L2("V", 0.1), L2("U1", 0.1)], init="random", random_state=s, max_iter=50) for s in (0, 1)], X
    )
    assert a.loss_ != b.loss_


class Near(Term):
    """`weight ||F - target||^2`."""

    def __init__(self, on, target, weight):
        self.on, self.target, self.weight = on, target, weight

    factor_names = property(lambda self: (self.on,))

    def value(self, factors):
        return self.weight * (factors[self.on] - self.target).square().sum((-2, -1))

    def block(self, factors, name):
        weights = torch.full_like(self.target[:1], self.weight)
        return Block((Quad(weights),), self.weight * self.target)


LABELLED = {
    "NGE": lambda **kw: NGE(4, n_discriminative=2, **kw),
    "NGE, mu": lambda **kw: NGE(4, n_discriminative=2, solver="mu", **kw),
    "NGE, m_matrix": lambda **kw: NGE(4, n_discriminative=2, solver="m_matrix", **kw),
    "NGE, hals": lambda **kw: NGE(4, n_discriminative=2, solver="hals", **kw),
    "N2S2L": lambda **kw: N2S2L(4, n_discriminative=2, **kw),
    "GraphNMF": lambda **kw: GraphNMF(4, **kw),
    "GraphNMF, auto": lambda **kw: GraphNMF(4, scale_free=True, solver="auto", **kw),
}


@pytest.mark.parametrize("make", LABELLED.values(), ids=LABELLED)
def test_own_terms_of_label_models(make):
    y = np.arange(50) % 3 - 1
    target = torch.from_numpy(np.random.default_rng(0).random((30, 4)))  # of its own: tests come in any order
    how = {"random_state": 0, "max_iter": 300, "tol": 0}
    near = Near("U1", target, 100.0)
    plain, model = make(**how).fit(X, y), make(terms=[near], **how).fit(X, y)
    distance = lambda m: np.abs(m.factors_[0] - target.numpy()).max()
    assert distance(model) < 0.5 * distance(plain)
    objective = model.history_["objective"]
    assert (np.diff(objective) <= 1e-9 * objective[0]).all()
    several = lambda: [make(terms=[near], init="random", **{**how, "random_state": s, "max_iter": 30}) for s in (0, 1)]
    for one, alone in zip(batch_fit(several(), X, y), several(), strict=True):
        np.testing.assert_allclose(one.loss_, alone.fit(X, y).loss_, rtol=1e-8)
    assert make(terms=[near], n_init=2, **{**how, "max_iter": 5}).fit(X, y).restarts_["loss"].shape == (2,)
    np.testing.assert_allclose(clone(model).fit(X, y).loss_, model.loss_, rtol=1e-9)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).transform(X), model.transform(X))
    with pytest.raises(ValueError, match="terms depend on 'W', which is no factor"):
        make(terms=[Near("W", target, 1.0)]).fit(X, y)


def test_streams_take_no_own_terms():
    with pytest.raises(ValueError, match="mini-batches take no penalties"):
        NGE(4, n_discriminative=2, terms=[Near("U1", torch.ones(30, 4), 1.0)]).partial_fit(X, np.arange(50) % 2)


def test_tensors_missing_entries_and_restarts():
    parts = RNG.random((12, 2)), RNG.random((8, 2)), RNG.random((6, 2))
    cube = np.einsum("ir,jr,kr->ijk", *parts)
    model = NTF(2, fixed={"U1": parts[1]}, bounds={"U2": (0, 0.9)}, n_init=3, **KW).fit(cube)
    np.testing.assert_array_equal(model.factors_[0], parts[1])
    assert model.factors_[1].max() <= 0.9 and model.loss_ <= 1e-6 * (cube**2).sum()
    hidden = np.where(RNG.random(X.shape) < 0.3, np.nan, X)
    unmixed = NMF(4, fixed={"U1": U}, simplex="V", missing="nan", **KW).fit(hidden)
    expected = np.stack([fully_constrained(x[~np.isnan(x)], U[~np.isnan(x)]) for x in hidden])
    np.testing.assert_allclose(unmixed.transform(hidden), expected, atol=1e-6)
    np.testing.assert_allclose(unmixed.embedding_, expected, atol=1e-3)


@pytest.mark.parametrize(
    ("kw", "message"),
    [
        ({"penalties": [penalties.L1(1.0)]}, "penalties must be a dict"),
        ({"penalties": {"W": [penalties.L1(1.0)]}}, "penalties names 'W'"),
        ({"penalties": {"V": [0.1]}}, "must hold penalties of nnfactor.penalties"),
        ({"penalties": {"V": [penalties.L1(1.0)]}, "loss": "kl"}, "put one on U1 too"),
        ({"fixed": {"U1": U[:5]}}, r"fixed\['U1'\] has shape \(5, 4\)"),
        ({"fixed": {"U1": -U}}, "finite numbers >= 0"),
        ({"fixed": {"U1": U, "V": V}}, "leave one free"),
        ({"bounds": {"V": (1, 0)}}, "lower < upper"),
        ({"bounds": {"V": 1}}, "must be a pair"),
        ({"bounds": {"V": ("a", 1)}}, r"bounds\['V'\] must be a pair"),
        ({"fixed": {"U1": csr_array(U)}}, r"fixed\['U1'\] is sparse"),
        ({"simplex": "U2"}, "simplex names 'U2'"),
        ({"simplex": 5}, "simplex must be a factor or a list"),
        ({"simplex": ["V", "U1"]}, "one must carry the size"),
        ({"simplex": "V", "bounds": {"V": (0, 1)}}, "take no others"),
        ({"simplex": "V", "loss": "kl"}, "need loss='frobenius'"),
        ({"terms": "smooth"}, "terms must be a list"),
        ({"terms": [L2("W", 1.0)]}, "terms depend on 'W'"),
        ({"alpha_W": -1.0}, "alpha_W"),
        ({"alpha_W": 1.0, "l1_ratio": 2.0}, "l1_ratio"),
        ({"l1_ratio": 2.0}, "l1_ratio"),
        ({"alpha_H": "both"}, "alpha_H"),
        ({"simplex": "V", "batch_size": 10}, "mini-batches take no"),
    ],
)
def test_what_is_refused(kw, message):
    with pytest.raises(ValueError, match=message):
        NMF(4, **KW, **kw).fit(X)


def test_a_penalty_needs_a_weight():
    for bad in (-1.0, np.nan, "a", True):
        with pytest.raises(ValueError, match="L1: weight must be a finite number >= 0"):
            penalties.L1(bad)


def test_a_simplex_of_bases_leaves_coefficients_of_new_samples_free():
    model = NMF(4, simplex="U1", **KW).fit(X)
    A = model.factors_[0]
    np.testing.assert_allclose(A.sum(1), 1, atol=1e-12)
    np.testing.assert_allclose(model.transform(X), [nnls(A, x)[0] for x in X], atol=1e-6)


@pytest.mark.parametrize("kw", [{"fixed": {"U1": U}}, {"fixed": {"U1": PARTLY}}, {"bounds": {"U1": (0.1, 1.0)}}])
def test_constraints_hold_where_nothing_is_observed(kw):
    hidden = X.copy()
    hidden[5], hidden[:, 3] = np.nan, np.nan
    with pytest.warns(UserWarning, match="without any observed entry"):
        model = NMF(4, simplex="V", missing="nan", **KW, **kw).fit(hidden)
    known = ~np.isnan(kw.get("fixed", {}).get("U1", np.full_like(U, np.nan)))
    np.testing.assert_array_equal(model.factors_[0][known], U[known])
    assert "bounds" not in kw or (model.factors_[0].min() >= 0.1 and model.factors_[0].max() <= 1.0)
    np.testing.assert_allclose(model.embedding_.sum(1), 1, atol=1e-12)
    np.testing.assert_allclose(model.transform(hidden).sum(1), 1, atol=1e-12)
    np.testing.assert_allclose(model.transform(hidden)[5], model.transform(hidden[5:6])[0], atol=1e-12)


@pytest.mark.parametrize("scale", [1.0, 1e200, 1e-200])
@pytest.mark.parametrize("name", ["V", "U1"])
def test_tiny_fixed_entries_come_back_in_any_unit(name, scale):
    known = np.where(RNG.random({"V": (50, 4), "U1": (30, 4)}[name]) < 0.3, np.nan, 0.2)
    known[:5, 0] = 0.0, 5e-324, 1e-310, 1e-300, 1e-30
    model = NMF(4, fixed={name: known}, n_init=2, keep_embeddings=True, **KW).fit(X * scale)
    some = ~np.isnan(known)
    np.testing.assert_array_equal((model.embedding_ if name == "V" else model.factors_[0])[some], known[some])
    restarts = model.restarts_["embeddings" if name == "V" else "factors"]
    np.testing.assert_array_equal((restarts if name == "V" else restarts[0])[1][some], known[some])


def test_terms_of_ones_own_in_batches_of_several_ranks():
    class Sum(Term):
        factor_names = ("V",)

        def value(self, factors):
            return 5 * (factors["V"].sum(-1) - 1).square().sum(-1)

        def block(self, factors, name):
            F = factors[name]
            return Block((Quad(F.new_full((F.shape[-1],) * 2, 5.0)),), torch.full_like(F, 5.0))

    terms = [Sum()]
    make = lambda k: NMF(k, terms=terms, random_state=0, max_iter=50, tol=0)
    for model in batch_fit([make(2), make(4)], X):
        np.testing.assert_allclose(model.loss_, make(model.n_components).fit(X).loss_, rtol=1e-6)


def test_simplex_coefficients_of_bases_that_are_zero():
    zeros = torch.zeros(3, 3, dtype=torch.float64)
    found = simplex_coefficients(zeros, zeros)
    torch.testing.assert_close(found, torch.full_like(found, 1 / 3))
    own = torch.stack((torch.eye(3, dtype=torch.float64), zeros))
    torch.testing.assert_close(simplex_coefficients(own, zeros[:2]), found[:2])


def test_numbers_of_numpy_are_numbers():
    for weight in (np.float32(0.5), np.int64(1)):
        assert penalties.L1(weight).weight == weight
    model = NMF(4, bounds={"V": np.array([0.0, 0.3])}, **KW).fit(X)
    assert model.embedding_.max() <= 0.3


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("k, rank, total", [(1, 1, 1.0), (3, 3, 1.0), (12, 12, 1e-3), (12, 5, 7.0), (30, 30, 1.0)])
def test_simplex_coefficients_are_optimal(k, rank, total, own):
    """By the conditions of optimality: one multiplier holds for positive entries, and none of the others would gain."""
    U = RNG.random((40, rank)) @ RNG.random((rank, k))
    X = RNG.dirichlet(np.full(k, 0.3), 300) @ U.T * total + 0.2 * RNG.standard_normal((300, 40))
    G, B = torch.from_numpy(U.T @ U), torch.from_numpy(X @ U)
    V = simplex_coefficients(G.expand(300, k, k).clone() if own else G, B, total)
    assert (V >= 0).all()
    torch.testing.assert_close(V.sum(1), torch.full((300,), total, dtype=torch.float64), rtol=1e-12, atol=0)
    gradient = V @ G - B
    multiplier = (gradient * V).sum(1, keepdim=True) / total
    size = B.abs().amax(1, keepdim=True) + total * G.diagonal().max()
    assert ((gradient - multiplier) / size).min() > -1e-9
    assert (((gradient - multiplier) * V).abs() / (size * total)).max() < 1e-9


def test_rows_that_exchanges_do_not_settle_are_solved(monkeypatch):
    from nnfactor.core.solve import simplex_coefficients as module

    U = RNG.random((20, 6))
    G, B = torch.from_numpy(U.T @ U), torch.from_numpy(RNG.random((50, 20)) @ U)
    found = simplex_coefficients(G, B)
    monkeypatch.setattr(module, "ROUNDS", 0)
    torch.testing.assert_close(simplex_coefficients(G, B), found, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("how", ["bounds", "L1", "both", "alpha_W"])
def test_transform_of_divergences_minimises_what_fit_does(how, hidden):
    settings = {
        "bounds": {"bounds": {"V": (0.05, 0.4)}},
        "L1": {"penalties": {"V": [penalties.L1(0.5)], "U1": [penalties.L2(0.1)]}},
        "both": {"bounds": {"V": (0.05, 0.4)}, "penalties": {"V": [penalties.L1(0.5)], "U1": [penalties.L2(0.1)]}},
        "alpha_W": {"alpha_W": 0.02, "alpha_H": 0.02, "l1_ratio": 1.0},
    }[how]
    data = RNG.poisson(5 * X / X.mean()).astype(float)
    seen = RNG.random(data.shape) < (0.6 if hidden else 2)
    given = np.where(seen, data, np.nan)
    model = NMF(3, loss="kullback-leibler", missing="nan", **settings, **{**KW, "transform_max_iter": 20000})
    model = model.set_params(transform_tol=1e-10, max_iter=30, tol=0).fit(given)
    found, U = model.transform(given[:6]), model.factors_[0]
    l1 = {"bounds": 0.0, "L1": 0.5, "both": 0.5, "alpha_W": 0.02 * 30}[how]
    low, high = (0.05, 0.4) if "bounds" in settings else (0.0, None)
    for i in range(6):
        x, B = data[i][seen[i]], U[seen[i]]
        loss = lambda v, x=x, B=B: np.sum(B @ v - x * np.log(B @ v + 1e-300)) + l1 * v.sum()
        slope = lambda v, x=x, B=B: B.T @ (1 - x / (B @ v + 1e-300)) + l1
        best = minimize(
            loss, np.clip(found[i], 1e-3, None), jac=slope, bounds=[(low or 1e-12, high)] * 3, method="L-BFGS-B"
        )
        assert loss(found[i]) <= best.fun + 1e-6 * abs(best.fun)
        assert found[i].min() >= low - 1e-12 and (high is None or found[i].max() <= high + 1e-12)


def test_transform_within_bounds_of_what_is_seen():
    seen = RNG.random(X.shape) < 0.6
    given = np.where(seen, X, np.nan)
    model = NMF(3, missing="nan", bounds={"V": (0.1, 0.5)}, random_state=0, max_iter=50, tol=0).fit(given)
    found, U = model.transform(given), model.factors_[0]
    for i in range(len(X)):
        best = lsq_linear(U[seen[i]], X[i][seen[i]], (0.1, 0.5), tol=1e-12).x
        np.testing.assert_allclose(found[i], best, atol=1e-6)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"terms": lambda: []}, "terms must be a list of nnfactor.core.Term, or a function of one argument"),
        ({"terms": lambda a, b: []}, "terms must be a list of nnfactor.core.Term, or a function of one argument"),
        ({"bounds": {"V": (True, 2)}}, r"bounds\['V'\] must be a pair \(lower, upper\) of numbers"),
    ],
)
def test_more_that_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        NMF(2, **settings).fit(X)
