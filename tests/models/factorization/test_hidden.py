"""Missing and weighted entries: what is hidden has no influence, whatever stands there, and the rest counts as said."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from scipy.optimize import nnls
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from nnfactor import NGE, NMF, NTF, GraphNMF, batch_fit
from nnfactor.core import divergence as div
from nnfactor.graphs import knn_graph

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

RNG = np.random.default_rng(0)
X = RNG.gamma(0.5, 1, (40, 3)) @ RNG.gamma(0.5, 1, (3, 25)) + 0.05
HIDDEN = {"some": RNG.random(X.shape) < 0.3, "few": RNG.random(X.shape) < 0.04, "most": RNG.random(X.shape) < 0.75}
CUBE = np.einsum("ir,jr,kr->ijk", RNG.random((12, 2)), RNG.random((7, 2)), RNG.random((5, 2))) + 0.05
HOLES = RNG.random(CUBE.shape) < 0.25
FRAME = pd.DataFrame(X).add_prefix("f")
LABELS = np.arange(40) % 3 - 1
NEAR = knn_graph(X, 3).adjacency

KW = {"random_state": 0, "max_iter": 60, "tol": 0}
MODELS = {
    "NMF": lambda **kw: NMF(3, **KW, **kw),
    "NMF, hals": lambda **kw: NMF(3, solver="hals", **KW, **kw),
    "NMF, mu": lambda **kw: NMF(3, solver="mu", **KW, **kw),
    "NMF, projected": lambda **kw: NMF(3, solver="projected", **KW, **kw),
    "NMF, KL": lambda **kw: NMF(3, loss="kullback-leibler", **KW, **kw),
    "NMF, 1.5": lambda **kw: NMF(3, loss=1.5, **KW, **kw),
    "NMF, IS": lambda **kw: NMF(3, loss="itakura-saito", **KW, **kw),
    "NGE": lambda **kw: NGE(3, alpha=0.1, n_discriminative=2, graph=(NEAR, NEAR), **KW, **kw),
    "NGE, mu": lambda **kw: NGE(3, alpha=0.1, n_discriminative=2, graph=(NEAR, NEAR), solver="mu", **KW, **kw),
    "NGE, m_matrix": lambda **kw: NGE(
        3, alpha=0.1, n_discriminative=2, graph=(NEAR, NEAR), solver="m_matrix", **KW, **kw
    ),
    "GraphNMF": lambda **kw: GraphNMF(3, graph=NEAR, **KW, **kw),
}
BETA = {"NMF, KL": 1.0, "NMF, 1.5": 1.5, "NMF, IS": 0.0}


def same(a, b, rtol=1e-6):
    np.testing.assert_allclose(a.loss_, b.loss_, rtol=rtol)
    for F, G in zip((a.embedding_, *a.factors_), (b.embedding_, *b.factors_), strict=True):
        np.testing.assert_allclose(F, G, rtol=1e3 * rtol, atol=1e3 * rtol * np.abs(G).max())


@pytest.mark.parametrize("share", HIDDEN)
@pytest.mark.parametrize("name", MODELS)
def test_what_is_hidden_has_no_influence(name, share):
    """NaN, infinity, negative and huge numbers behind a mask, weights of 0, dense and sparse: one result, bit for bit."""
    H = HIDDEN[share]
    fitted = MODELS[name](missing="nan").fit(np.where(H, np.nan, X))
    for junk in (np.inf, -1.0, 1e300):
        again = MODELS[name]().fit(np.ma.masked_array(np.where(H, junk, X), H))
        np.testing.assert_array_equal(again.embedding_, fitted.embedding_)
        again = MODELS[name]().fit(np.where(H, junk, X), weights=~H)
        np.testing.assert_array_equal(again.factors_[0], fitted.factors_[0])
        assert again.loss_ == fitted.loss_
        np.testing.assert_array_equal(
            again.transform(np.where(H, junk, X), weights=~H), fitted.transform(np.where(H, np.nan, X))
        )


@pytest.mark.parametrize("share", HIDDEN)
@pytest.mark.parametrize("name", MODELS)
def test_the_loss_counts_what_is_seen_and_never_rises(name, share):
    H = HIDDEN[share]
    model = MODELS[name](missing="nan").set_params(verbose=2).fit(np.where(H, np.nan, X))
    Y = torch.from_numpy(model.embedding_ @ model.components_)
    squares = np.where(H, 0, X - Y.numpy()) ** 2
    np.testing.assert_allclose(model.reconstruction_err_, np.sqrt(squares.sum()), rtol=1e-6)
    if name.startswith("NMF"):
        loss = div.loss(torch.from_numpy(X), Y, BETA.get(name, 2.0)).numpy()
        np.testing.assert_allclose(model.loss_, loss[~H].sum(), rtol=1e-6)
    objective = model.history_["objective"]
    momentum = "auto" in (model.solver,)
    assert (objective[-1] - objective[0] if momentum else np.diff(objective).max()) <= 1e-9 * objective[0]
    assert objective[-1] < 0.9 * objective[0]


@pytest.mark.parametrize("name", [name for name in MODELS if name.startswith("NMF")])
def test_few_and_many_hidden_entries_agree(name):
    """Sums that are corrected, sums over what is seen, and completed data have one minimum."""
    H = HIDDEN["few"]
    W = (~H).astype(float)
    long = {"max_iter": 800, "init": (RNG.random((40, 3)) + 0.1, RNG.random((25, 3)) + 0.1)}
    make = lambda: MODELS[name]().set_params(**long)
    losses = [make().fit(X, weights=W).loss_, make().fit(X, weights=sp.csr_array(W)).loss_]
    losses += [make().fit(X, weights=np.where(H, 1e-12, 1.0)).loss_]
    np.testing.assert_allclose(losses, losses[0], rtol=2e-2)


@pytest.mark.parametrize("name", ["NMF", "NMF, mu", "NMF, KL", "NMF, 1.5", "NMF, IS"])
def test_weights_are_repetitions(name):
    """A sample of weight 2 is the sample twice, one of weight 0 none."""
    weight = np.tile([0, 1, 2, 1], 10)
    init = RNG.random((40, 3)) + 0.1, RNG.random((25, 3)) + 0.1
    twice = np.repeat(np.arange(40), weight)
    kw = {"max_iter": 3000, "solver": MODELS[name]().solver, "loss": MODELS[name]().loss}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        weighted = NMF(3, init=init, tol=1e-9, **kw).fit(X, weights=np.broadcast_to(weight[:, None], X.shape))
        repeated = NMF(3, init=(init[0][twice], init[1]), tol=1e-9, **kw).fit(X[twice])
    np.testing.assert_allclose(weighted.loss_, repeated.loss_, rtol=1e-2)
    assert not weighted.embedding_[::4].any()


@pytest.mark.parametrize("method", ["nnls", "pinv", "ridge"])
def test_transform_solves_what_is_seen(method):
    H, model = HIDDEN["some"], MODELS["NMF"](missing="nan").fit(X)
    model.set_params(transform_method=method)
    V = model.transform(np.where(H, np.nan, X))
    U = model.components_.T
    top = np.linalg.norm(U / np.linalg.norm(U, axis=0), 2)
    for x, h, v in zip(X, H, V, strict=True):
        A, b = U[~h], x[~h]
        if method == "nnls":
            expected = nnls(A, b)[0]
        elif method == "pinv":
            expected = np.linalg.pinv(A) @ b
        else:
            lengths = np.linalg.norm(U, axis=0)
            A = A / lengths
            expected = np.linalg.solve(A.T @ A + (0.1 * top) ** 2 * np.eye(3), A.T @ b) / lengths
        np.testing.assert_allclose(v, expected, atol=1e-7 * max(1, np.abs(expected).max()))


def test_transform_of_one_row_is_that_of_all():
    model, Y = MODELS["NMF"](missing="nan").fit(X), np.where(HIDDEN["some"], np.nan, X)
    np.testing.assert_allclose(model.transform(Y)[7:8], model.transform(Y[7:8]), rtol=1e-9)


@pytest.mark.parametrize("kw", [{}, {"solver": "mu"}, {"loss": "kullback-leibler"}])
def test_tensors(kw):
    long = {"max_iter": 600, "tol": 0}
    model = NTF(2, missing="nan", random_state=0, **long, **kw).fit(np.where(HOLES, np.nan, CUBE))
    filled = model.inverse_transform(model.transform(np.where(HOLES, np.nan, CUBE)))
    fresh = NTF(2, random_state=0, **long, **kw).fit(CUBE)
    error = lambda Y: np.abs(Y - CUBE)[HOLES].max()
    assert error(filled) <= 2 * error(fresh.inverse_transform(fresh.embedding_)) + 0.02
    some = torch.sparse_coo_tensor(np.stack((~HOLES).nonzero()), CUBE[~HOLES], CUBE.shape, check_invariants=True)
    if kw == {}:
        same(NTF(2, missing="unstored", random_state=0, **long).fit(some), model, 1e-5)


def test_unstored_entries_are_missing_or_zero():
    H = HIDDEN["most"]
    S = sp.csr_array(np.where(H, 0, X))
    ratings = NMF(3, missing="unstored", **KW).fit(S)
    same(ratings, NMF(3, missing="nan", **KW).fit(np.where(H, np.nan, X)))
    same(NMF(3, **KW).fit(S), NMF(3, **KW).fit(S.toarray()))
    np.testing.assert_allclose(
        ratings.transform(S), ratings.set_params(missing="nan").transform(np.where(H, np.nan, X)), atol=1e-8
    )
    with_nan = S.copy()
    with_nan.data[:5] = np.nan
    dense = S.toarray()
    dense[with_nan.toarray() != with_nan.toarray()] = np.nan
    same(NMF(3, missing="nan", **KW).fit(with_nan), NMF(3, missing="nan", **KW).fit(dense))


@pytest.mark.parametrize("name", ["NMF", "NMF, mu", "NMF, KL"])
def test_mini_batches_and_streams(name):
    H = HIDDEN["some"]
    Y = np.where(H, np.nan, X)
    long = {"max_iter": 400}
    full = MODELS[name](missing="nan").set_params(**long).fit(Y)
    mini = MODELS[name](missing="nan").set_params(batch_size=10, verbose=2, **long).fit(Y)
    assert np.diff(mini.history_["objective"]).max() <= 1e-9 * mini.history_["objective"][0]
    stream, other = MODELS[name](missing="nan"), MODELS[name]()
    for _ in range(15):
        for a in range(0, 40, 10):
            stream.partial_fit(Y[a : a + 10])
            other.partial_fit(np.where(H, 7.0, X)[a : a + 10], weights=~H[a : a + 10])
    np.testing.assert_array_equal(stream.components_, other.components_)
    seen = np.square(X[~H]).sum()
    error = lambda model: np.square(np.where(H, 0, X - model.transform(Y) @ model.components_)).sum() / seen
    assert error(mini) <= error(full) + 0.005 and error(stream) <= error(full) + 0.02
    with pytest.raises(ValueError, match="mini-batches of tensors"):
        NTF(2, missing="nan", batch_size=4).fit(np.where(HOLES, np.nan, CUBE))


def test_batches_and_restarts_are_separate_fits():
    Y = np.where(HIDDEN["some"], np.nan, X)
    make = lambda k, seed: NMF(k, missing="nan", random_state=seed, max_iter=50, tol=0)
    many = batch_fit([make(k, seed) for k in (2, 3) for seed in (0, 1)], Y)
    for model in many:
        same(model, make(model.n_components, model.random_state).fit(Y))
    weighted = batch_fit([make(2, 0)], X, weights=~HIDDEN["some"])[0]
    same(weighted, make(2, 0).fit(Y))
    restarts = make(3, 0).set_params(n_init=4).fit(Y)
    assert restarts.loss_ == pytest.approx(restarts.restarts_["loss"].min())


@pytest.mark.parametrize("kind", ["numpy", "pandas", "torch", "float32", "far"])
def test_kinds_of_input(kind):
    H = HIDDEN["some"]
    Y = np.where(H, np.nan, X)
    fitted = NMF(3, missing="nan", **KW).fit(Y)
    given = {
        "numpy": Y,
        "pandas": pd.DataFrame(Y).add_prefix("f"),
        "torch": torch.from_numpy(Y),
        "float32": Y.astype(np.float32),
        "far": 1e200 * Y,
    }[kind]
    model = NMF(3, missing="nan", **KW).fit(given)
    scale = 1e200 if kind == "far" else 1.0
    shown = np.asarray(model.embedding_, dtype=float) @ np.asarray(model.components_) / scale
    np.testing.assert_allclose(shown, fitted.embedding_ @ fitted.components_, rtol=0.05, atol=0.05)
    assert np.asarray(model.embedding_).dtype == (np.float32 if kind == "float32" else np.float64)
    if kind == "pandas":
        assert model.feature_names_in_[0] == "f0"
    assert np.isnan(Y).sum() == H.sum()  # nothing was written to


def test_rows_and_columns_without_entries():
    Y = X.copy()
    Y[4], Y[:, [2, 9]] = np.nan, np.nan
    with pytest.warns(UserWarning, match="1 samples and 2 features without any observed entry"):
        model = NMF(3, missing="nan", **KW).fit(Y)
    assert not model.embedding_[4].any() and not model.components_[:, [2, 9]].any()
    assert not model.transform(Y)[4].any()


def test_neighbours_are_found_over_common_features():
    H = HIDDEN["some"]
    W, Z = (~H).astype(float), np.where(H, 0, X)
    squared = (Z**2 @ W.T + W @ (Z**2).T - 2 * Z @ Z.T) * X.shape[1] / (W @ W.T)
    np.fill_diagonal(squared, np.inf)
    A = np.zeros((40, 40))
    A[np.repeat(np.arange(40), 4), np.argsort(squared, 1)[:, :4].ravel()] = 1
    model = GraphNMF(3, n_neighbors=4, missing="nan", **KW).fit(np.where(H, np.nan, X))
    np.testing.assert_array_equal(model.graph_.toarray(), np.maximum(A, A.T))
    NGE(3, missing="nan", **KW).fit(np.where(H, np.nan, X), LABELS)
    with pytest.raises(ValueError, match="hand in a graph"):
        GraphNMF(3, missing="unstored", **KW).fit(sp.csr_array(Z))


def test_complete_data_are_as_before():
    few = KW | {"max_iter": 20}  # later the objective stands still, and rounding chooses where in the valley factors go
    for weights in (None, np.ones_like(X)):
        same(NMF(3, missing="nan", **few).fit(X, weights=weights), NMF(3, **few).fit(X))
    same(NMF(3, **few).fit(np.ma.masked_array(X)), NMF(3, **few).fit(X))
    assert clone(NMF(3, missing="nan")).missing == "nan"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: NMF(2).fit(np.where(HIDDEN["few"], np.nan, X)), "missing='nan'"),
        (lambda: NMF(2, missing="none").fit(X), "missing='none'"),
        (lambda: NMF(2, missing="unstored").fit(X), "is for sparse X"),
        (lambda: NMF(2).fit(X, weights=np.ones((40, 24))), r"weights has shape \(40, 24\)"),
        (lambda: NMF(2).fit(X, weights=[X, None]), "weights is a list of entries of different shapes; it must be one"),
        (lambda: NMF(2).fit(FRAME, weights=FRAME.iloc[:, ::-1]), r"other columns than X; order them alike"),
        (lambda: NMF(2).fit(X, weights=-np.ones_like(X)), "Negative values in data passed to weights"),
        (lambda: NMF(2).fit(X, weights=np.full_like(X, np.nan)), "weights contains NaN"),
        (lambda: NMF(2).fit(X, weights=np.zeros_like(X)), "no entry that counts"),
        (lambda: NMF(2, missing="nan").fit(np.full_like(X, np.nan)), "no entry that counts"),
        (
            lambda: NMF(2, missing="nan", transform_method="ridge", ridge="cv").fit(np.where(HIDDEN["few"], np.nan, X)),
            "cv",
        ),
    ],
)
def test_what_is_refused(call, message):
    with pytest.raises(ValueError, match=message), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        call()


def test_new_samples_may_all_be_hidden():
    model = NMF(3, missing="nan", **KW).fit(X)
    assert not model.transform(np.full((2, 25), np.nan)).any()
    assert not model.transform(X[:1], weights=np.zeros((1, 25))).any()
    assert not NMF(3, missing="unstored", **KW).fit(sp.csr_array(X)).transform(sp.csr_array((2, 25))).any()


def test_flattened_samples_have_flattened_weights():
    flat = lambda Z: Z.reshape(12, -1)
    expected = NTF(2, **KW).fit(CUBE, weights=~HOLES)
    make = lambda: NTF(2, sample_shape=CUBE.shape[1:], **KW)
    same(make().fit(flat(CUBE), weights=flat(~HOLES)), expected)
    same(make().fit(flat(CUBE), weights=sp.csr_array(flat(~HOLES).astype(float))), expected)
    np.testing.assert_allclose(
        expected.transform(CUBE, weights=~HOLES),
        make().fit(flat(CUBE), weights=~HOLES).transform(flat(CUBE), weights=flat(~HOLES)),
        atol=1e-8,
    )


@pytest.mark.parametrize("order", [2, 3])
def test_unstored_entries_with_dense_weights(order):
    Z, H = (X, HIDDEN["most"]) if order == 2 else (CUBE, HOLES)
    W = RNG.random(Z.shape)
    make = lambda **kw: NTF(2, **KW, **kw)
    expected = make().fit(Z, weights=sp.coo_array(W * ~H))
    some = sp.coo_array((Z[~H], np.nonzero(~H)), shape=Z.shape)
    same(make(missing="unstored").fit(some, weights=W), expected)


def test_entries_of_a_tensor_that_repeat_are_one():
    at, values = np.stack((~HOLES).nonzero()), CUBE[~HOLES]
    twice = np.concatenate((at, at), 1)
    some = torch.sparse_coo_tensor(twice, np.concatenate((values, values)) / 2, CUBE.shape, check_invariants=True)
    weights = sp.coo_array((np.full(2 * len(values), 0.5), tuple(twice)), shape=CUBE.shape)
    expected = NTF(2, **KW).fit(CUBE, weights=~HOLES)
    np.testing.assert_allclose(NTF(2, missing="unstored", **KW).fit(some).loss_, expected.loss_, rtol=1e-6)
    np.testing.assert_allclose(NTF(2, **KW).fit(some, weights=weights).loss_, expected.loss_, rtol=1e-6)


@pytest.mark.parametrize(("dtype", "powers"), [(np.float32, (-28, 28)), (np.float64, (-200, 200))])
def test_weights_of_any_size(dtype, powers):
    expected = NMF(3, **KW).fit(X, weights=~HIDDEN["some"])
    for power in powers:
        model = NMF(3, **KW).fit(X.astype(dtype), weights=np.where(HIDDEN["some"], 0, 10.0**power))
        np.testing.assert_allclose(
            model.embedding_ @ model.components_, expected.embedding_ @ expected.components_, 0.1
        )
        np.testing.assert_allclose(model.loss_, 10.0**power * expected.loss_, rtol=0.1)


def test_known_bases_are_complete():
    H = RNG.random((3, 25))
    assert NMF.from_components(H, missing="unstored").transform(sp.csr_array(X)).shape == (40, 3)
    for bad in (np.where(H < 0.1, np.nan, H), np.ma.masked_array(H, H < 0.1)):
        with pytest.raises(ValueError, match="components: "):
            NMF.from_components(bad, missing="nan")


@pytest.mark.parametrize("kind", ["nan", "masked"])
def test_sparse_weights_beside_missing_entries(kind):
    W, H = np.where(RNG.random(X.shape) < 0.5, 0, 2.0), HIDDEN["few"]
    given = np.where(H, np.nan, X) if kind == "nan" else np.ma.masked_array(np.where(H, 1e9, X), H)
    make = lambda: NMF(3, missing="nan" if kind == "nan" else None, init="random", **KW)
    sparse, dense = make().fit(given, weights=sp.csr_array(W)), make().fit(given, weights=W)
    np.testing.assert_allclose(sparse.loss_, dense.loss_, rtol=1e-3)


@pytest.mark.parametrize("method", ["nnls", "pinv", "ridge"])
def test_labelled_samples_are_compared_as_transform_solves_them(method):
    """A labelled sample of the fit is its own nearest neighbour, whatever is hidden of it."""
    Y, y = np.where(HIDDEN["some"], np.nan, X), np.arange(40) % 4
    model = NGE(4, missing="nan", transform_method=method, coefficients="all", **KW).fit(Y, y)
    np.testing.assert_array_equal(model.predict(Y), y)
    if method != "nnls":
        with pytest.raises(ValueError, match="fit again"):
            model.set_params(transform_method="nnls").predict(Y)
