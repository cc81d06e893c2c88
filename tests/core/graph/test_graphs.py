"""Graphs against brute force, with many ties, duplicates and offsets; cliques and grids against dense algebra."""

import time
import tracemalloc

import numpy as np
import pandas as pd
import pytest
import reference
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nnfactor.core import Graph
from nnfactor.core.graph import neighbors
from nnfactor.graphs import adjacency_graph, cube, grid_graph, knn_graph, marginal_fisher_graphs, pixels

cases = settings(max_examples=80, deadline=None, derandomize=True)
seeds = st.integers(0, 2**32 - 1)


def tied(seed, rows=14, span=2):
    """Small integers: most distances are shared, many samples are duplicates."""
    rng = np.random.default_rng(seed)
    n, m = rng.integers(1, rows), rng.integers(1, 4)
    return rng.integers(-span, span + 1, (n, m)).astype(float)


def labels(seed, n, classes=3):
    return np.random.default_rng(seed + 1).integers(-1, classes, n)


def gaussian(X, S, sigma):
    distances = np.linalg.norm(X[:, None] - X[None], axis=-1)
    return S * np.exp(-((distances / sigma) ** 2))


# Nearest neighbours


@cases
@given(seed=seeds, p=st.integers(1, 16))
def test_knn_equals_brute_force_with_ties(seed, p):
    X = tied(seed)
    S = knn_graph(X, p).toarray()
    np.testing.assert_array_equal(S, reference.knn_graph(X, p))


@cases
@given(seed=seeds, p=st.integers(1, 5), exponent=st.sampled_from([-600, -40, 0, 40, 500]))
def test_knn_of_arbitrary_numbers(seed, p, exponent):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(12, 3)) * 10.0 ** rng.integers(-3, 4, (12, 1))
    S = knn_graph(np.ldexp(X, exponent), p).toarray()
    np.testing.assert_array_equal(S, reference.knn_graph(X, p))


@cases
@given(seed=seeds, p=st.integers(1, 6))
def test_sparse_equals_dense(seed, p):
    X = tied(seed, span=1)
    S = knn_graph(X, p).toarray()
    for kind in (sp.csr_matrix, sp.csc_array, sp.coo_array):
        np.testing.assert_array_equal(knn_graph(kind(X), p).toarray(), S)
    y = labels(seed, len(X))
    for a, b in zip(marginal_fisher_graphs(sp.csr_array(X), y), marginal_fisher_graphs(X, y)):
        np.testing.assert_array_equal(a.toarray(), b.toarray())


@pytest.mark.parametrize("budget", [1, 7, 40, 1000])
def test_chunks_change_nothing(budget, monkeypatch):
    rng = np.random.default_rng(budget)
    X, y = rng.integers(0, 3, (40, 4)).astype(float), rng.integers(-1, 3, 40)
    inputs = (X, torch.from_numpy(X), sp.csr_array(X))
    whole = [(knn_graph(Z, 4), *marginal_fisher_graphs(Z, y, 2, 9)) for Z in inputs]
    monkeypatch.setattr(neighbors, "BUDGET", budget)
    for Z, expected in zip(inputs, whole):
        for a, b in zip((knn_graph(Z, 4), *marginal_fisher_graphs(Z, y, 2, 9)), expected):
            np.testing.assert_array_equal(a.toarray(), b.toarray())


@pytest.mark.parametrize("budget", [1, 100, 10_000])
def test_pairs_in_chunks_without_ties(budget, monkeypatch):
    monkeypatch.setattr(neighbors, "BUDGET", budget)
    for seed in range(5):
        X, y = np.random.default_rng(seed).normal(size=(30, 3)), labels(seed, 30)
        between = marginal_fisher_graphs(X, y, 1, 12)[1].toarray()
        np.testing.assert_array_equal(between, reference.marginal_fisher(X, y, 1, 12)[1])


def test_centring_keeps_candidates_few(monkeypatch):
    """Without it the answer is right too, but the bound on rounding would admit every pair."""
    pairs, measure = 0, neighbors.Points.measure

    def counted(points, i, j):
        nonlocal pairs
        pairs += len(i)
        return measure(points, i, j)

    monkeypatch.setattr(neighbors.Points, "measure", counted)
    X = np.random.default_rng(0).normal(size=(300, 5)) + 1e9
    np.testing.assert_array_equal(knn_graph(X, 4).toarray(), reference.knn_graph(X, 4))
    assert 1200 <= pairs <= 1210


@pytest.mark.parametrize("sparse", [False, True])
def test_far_from_the_origin_in_float32(sparse):
    rng = np.random.default_rng(0)
    cluster = np.repeat(np.arange(50), 6)
    X = (1e6 + 64.0 * rng.integers(0, 1000, (50, 8))[cluster] + rng.integers(-4, 5, (300, 8))).astype(np.float32)
    S = knn_graph(sp.csr_array(X) if sparse else X, 5).toarray()
    np.testing.assert_array_equal(S, (cluster[:, None] == cluster) & ~np.eye(300, dtype=bool))
    np.testing.assert_array_equal(knn_graph(torch.from_numpy(X), 3).toarray(), reference.knn_graph(X.astype(float), 3))


def test_near_ties_below_the_rounding_of_products():
    X = 2.0**30 * np.array([[1.0, 1.0], [-1.0, 1.0], [0.5, -1.0]])  # three far corners
    steps = np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 2.0], [1.0, 1.0], [2.0, 1.0], [0.0, 1.0]])
    X = (X[:, None] + steps * 2.0**-18).reshape(-1, 2)
    for p in (1, 2, 4):
        np.testing.assert_array_equal(knn_graph(X, p).toarray(), reference.knn_graph(X, p))


def test_duplicates_beyond_any_margin_come_by_index():
    X = np.zeros((300, 3))
    X[100:] = np.random.default_rng(0).normal(size=(200, 3)) + 9
    S = knn_graph(X, 5).toarray()
    expected = np.zeros((100, 100))
    expected[:, :5] = expected[:5] = 1
    expected[:5, 5:6] = expected[5:6, :5] = 1  # the first five skip themselves and take the sixth
    np.fill_diagonal(expected, 0)
    np.testing.assert_array_equal(S[:100, :100], expected)
    assert S[:100, 100:].sum() == 0


def test_more_neighbours_than_samples_is_complete_and_one_sample_is_alone():
    X = np.arange(5.0)[:, None]
    for p in (4, 5, 100):
        np.testing.assert_array_equal(knn_graph(X, p).toarray(), 1 - np.eye(5))
    assert knn_graph([[3.0, 1.0]]).n_edges == 0
    assert knn_graph([[3.0, 1.0]], weights="median").n_nodes == 1


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")  # torch says so once, when the test builds one
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.uint8, np.int16, bool, ">f4", np.float16])
def test_every_kind_of_input(dtype):
    X = np.random.default_rng(1).integers(0, 2 if dtype is bool else 9, (20, 6)).astype(dtype)
    expected = reference.knn_graph(X.astype(float), 3)
    native = X.astype(X.dtype.newbyteorder("="))
    tensor = torch.from_numpy(native)
    for Z in (X, np.asfortranarray(X), X[:, ::-1], tensor, tensor.mT.contiguous().mT, pd.DataFrame(native), X.tolist()):
        np.testing.assert_array_equal(knn_graph(Z, 3).toarray(), expected)
    if dtype is not np.float16:
        for layout in ("to_sparse_coo", "to_sparse_csr"):
            Z = getattr(tensor.double(), layout)()
            np.testing.assert_array_equal(knn_graph(Z, 3).toarray(), expected)


def test_tensors_are_flattened_and_input_is_untouched():
    X = np.random.default_rng(2).normal(size=(15, 2, 3, 2))
    before = X.copy()
    X.flags.writeable = False
    S = knn_graph(X, 3).toarray()
    np.testing.assert_array_equal(S, knn_graph(X.reshape(15, -1), 3).toarray())
    np.testing.assert_array_equal(
        S, knn_graph(torch.tensor(before).transpose(1, 3).contiguous().transpose(1, 3), 3).toarray()
    )
    y = labels(5, 15)
    for a, b in zip(marginal_fisher_graphs(X, y), marginal_fisher_graphs(X.reshape(15, -1), y)):
        np.testing.assert_array_equal(a.toarray(), b.toarray())
    np.testing.assert_array_equal(X, before)


def test_untidy_sparse_equals_dense():
    rows, cols = np.array([2, 0, 0, 1, 2, 3]), np.array([1, 0, 0, 2, 0, 1])
    X = sp.coo_array((np.array([1.0, 2.0, 3.0, 4.0, 0.0, -2.0]), (rows, cols)), shape=(5, 3))
    twice = sp.csr_array(
        (np.array([4.0, 1.0, -3.0, 2.0]), np.array([2, 0, 2, 1]), np.array([0, 3, 3, 4])), shape=(3, 3)
    )
    twice.indices, twice.indptr = twice.indices.astype(np.int64), twice.indptr.astype(np.int64)
    for Z in (X, twice):
        stored = Z.data.copy()
        np.testing.assert_array_equal(knn_graph(Z, 2).toarray(), reference.knn_graph(Z.toarray(), 2))
        np.testing.assert_array_equal(knn_graph(Z, 1).toarray(), reference.knn_graph(Z.toarray(), 1))
        np.testing.assert_array_equal(Z.data, stored)


@pytest.mark.parametrize("unit", [1e-200, 1e-30, 1.0, 1e30, 1e200])
def test_gaussian_weights(unit):
    X = np.random.default_rng(3).normal(size=(30, 4)) * unit
    S = knn_graph(X, 4)
    lengths = np.linalg.norm(X[:, None] / unit - X[None] / unit, axis=-1)[S.toarray() > 0]
    sigma = np.median(lengths) * unit
    expected = gaussian(X / unit, S.toarray(), sigma / unit)
    for Z in (X, sp.csr_array(X)):
        np.testing.assert_allclose(knn_graph(Z, 4, weights="median").toarray(), expected, rtol=1e-12)
        np.testing.assert_allclose(knn_graph(Z, 4, weights=sigma).toarray(), expected, rtol=1e-12)
    W = knn_graph(X, 4, weights=2 * sigma).toarray()
    np.testing.assert_array_equal(W, W.T)
    np.testing.assert_allclose(W, expected**0.25, rtol=1e-12)


def test_gaussian_weights_of_duplicates_are_one():
    assert set(knn_graph(np.ones((6, 2)), 2, weights="median").adjacency.data) == {1.0}
    X = np.array([[0.0], [0.0], [0.0], [0.0], [3.0]])
    W = knn_graph(X, 1, weights="median").toarray()
    assert W[0, 1] == 1.0 and W[0, 4] == pytest.approx(np.exp(-1))
    assert knn_graph([[0.0], [1.0]], weights=1e-300).n_edges == 0  # underflow, documented


def test_components_and_isolated_nodes_are_finite():
    X = np.concatenate([np.zeros((3, 2)), np.full((3, 2), 1e3)])
    S = knn_graph(X, 2)
    F = torch.arange(12.0).view(6, 2)
    assert S.toarray()[:3, 3:].sum() == 0
    A = S.toarray()
    A[5] = A[:, 5] = 0
    L = torch.tensor(reference.laplacian(A)).float()
    alone = Graph(A)
    torch.testing.assert_close(alone.energy(F), (F * (L @ F)).sum(0, keepdim=True))
    assert alone.degree(F)[5] == 0 and torch.isfinite(alone.energy(F)).all()


def test_large_data_within_the_budget(monkeypatch):
    largest, upper = 0, neighbors.Points.upper

    def watched(points, rows, *others):
        nonlocal largest
        bound = upper(points, rows, *others)
        largest = max(largest, bound.numel())
        return bound

    monkeypatch.setattr(neighbors.Points, "upper", watched)
    X = np.random.default_rng(0).normal(size=(20_000, 10)).astype(np.float32)
    start = time.perf_counter()
    S = knn_graph(X, 5)
    assert time.perf_counter() - start < 60  # seconds; about 2 on one core
    assert largest <= neighbors.BUDGET
    assert S.adjacency.sum(1).min() >= 5
    some = slice(0, 20_000, 2000)
    D = ((X[some, None].astype(float) - X) ** 2).sum(-1)
    nearest = np.argsort(D, axis=1, kind="stable")[:, 1:6]
    for i, row in zip(range(0, 20_000, 2000), nearest):
        assert set(row) <= set(S.adjacency[[i]].indices)


@pytest.mark.parametrize("X", [np.zeros((400, 3)), np.arange(1200).reshape(400, 3) % 2])
def test_ties_stay_within_the_budget(X, monkeypatch):
    """All-equal distances make every pair a candidate: a chunk at a time all the same."""
    monkeypatch.setattr(neighbors, "BUDGET", 4000)
    tracemalloc.start()
    knn_graph(X, 3)
    marginal_fisher_graphs(X, np.arange(400) % 2, 3, 5)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 400 * 400 * 8  # the candidates of a chunk lie in NumPy arrays


# Marginal Fisher


@cases
@given(seed=seeds, k1=st.sampled_from([None, 1, 2, 3, 50]), k2=st.sampled_from([0, 1, 2, 5, 20, 1000]))
def test_marginal_fisher_equals_brute_force_with_ties(seed, k1, k2):
    X = tied(seed)
    y = labels(seed, len(X))
    own, between = marginal_fisher_graphs(X, y, k1, k2)
    S, Sp = reference.marginal_fisher(X, y, k1, k2)
    np.testing.assert_array_equal(own.toarray(), S)
    np.testing.assert_array_equal(between.toarray(), Sp)


def test_cliques_are_class_sums_and_small_k1_is_sparse():
    X = np.random.default_rng(0).normal(size=(20, 3))
    y = np.array([0] * 12 + [1] * 4 + [2] + [-1] * 3)
    own, _ = marginal_fisher_graphs(X, y)  # k1 = 3: class 0 sparse, class 1 a clique of four
    assert own.adjacency[:12].nnz == own.adjacency.nnz > 0
    assert (own.cliques[12:16] >= 0).all() and (own.cliques[:12] == -1).all()
    everyone, _ = marginal_fisher_graphs(X, y, n_neighbors=20)
    assert everyone.adjacency.nnz == 0 and everyone.n_edges == 66 + 6
    np.testing.assert_array_equal(everyone.toarray(), (y[:, None] == y) & (y >= 0) & ~np.eye(20, dtype=bool))


@pytest.mark.parametrize("classes, expected", [(0, (0, 0)), (1, (3, 0))])
def test_no_label_and_one_class(classes, expected):
    y = [0, 0, -1, 0] if classes else [-1] * 4
    own, between = marginal_fisher_graphs(np.arange(8.0).reshape(4, 2), y)
    assert (own.n_edges, between.n_edges) == expected
    F = torch.ones(4, 2, dtype=torch.float64)
    assert (own @ F).shape == (4, 2) and between.energy(F).sum() == 0


def test_kinds_of_labels():
    X = tied(5, rows=30)
    y = labels(5, len(X))
    expected = [g.toarray() for g in marginal_fisher_graphs(X, y)]
    renamed = np.where(y == -1, -1, 10**15 + 7 * y)
    kinds = (
        y.tolist(),
        torch.from_numpy(y),
        pd.Series(y),
        y.astype(np.int8),
        np.where(y == -1, np.nan, y),
        y.astype(float),
    )
    for kind in (*kinds, torch.from_numpy(y).float(), renamed):
        for a, b in zip(marginal_fisher_graphs(X, kind), expected):
            np.testing.assert_array_equal(a.toarray(), b)
    before = y.copy()
    marginal_fisher_graphs(X, y)
    np.testing.assert_array_equal(y, before)
    assert marginal_fisher_graphs([[0.0], [1.0]], np.array([3, 3], dtype=np.uint8))[0].n_edges == 1


@cases
@given(
    seed=seeds, batch=st.sampled_from([(), (1,), (3,), (2, 2)]), dtype=st.sampled_from([torch.float32, torch.float64])
)
def test_links_with_cliques_equal_dense_algebra(seed, batch, dtype):
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(1, 12)), int(rng.integers(1, 4))
    A = np.triu(rng.random((n, n)) * (rng.random((n, n)) < 0.3), 1)
    links = Graph(A + A.T, rng.integers(-1, 3, n), clique_weight=rng.random())
    F = torch.from_numpy(rng.random((*batch, k, n))).to(dtype).mT
    S = links.toarray()
    np.testing.assert_array_equal(S, S.T)
    L = torch.from_numpy(reference.laplacian(S)).to(dtype)
    S = torch.from_numpy(S).to(dtype)
    torch.testing.assert_close(links @ F, S @ F)
    torch.testing.assert_close(links.degree(F), S.sum(1, keepdim=True))
    torch.testing.assert_close(links.energy(F), (F * (L @ F)).sum(-2, keepdim=True), rtol=1e-5, atol=1e-5)
    own, neighbours = links.energy_parts(F, slice(0, 1))
    first = F[..., :1]
    torch.testing.assert_close(own, (first * (S.sum(1, keepdim=True) * first)).sum(-2, keepdim=True))
    torch.testing.assert_close(neighbours, (first * (S @ first)).sum(-2, keepdim=True))
    torch.testing.assert_close(links.times(F, slice(0, 1)), S @ first)  # the product that was kept
    F.mul_(2)
    torch.testing.assert_close(links.times(F, slice(0, 1)), S @ F[..., :1])


def test_marginal_fisher_of_one_large_class_is_cheap():
    X, y = np.random.default_rng(0).normal(size=(6000, 2)), np.zeros(6000, dtype=int)
    own, between = marginal_fisher_graphs(X, y, n_neighbors=6000)
    assert own.n_edges == 6000 * 5999 // 2 and own.adjacency.nnz == 0 and between.n_edges == 0


# Grids and adjacencies


@pytest.mark.parametrize("shape", [(1,), (5,), (1, 1), (3, 4), (1, 5), (2, 3, 4), (2, 1, 3, 2)])
@pytest.mark.parametrize("neighbors", [4, 8])
def test_grid_equals_brute_force(shape, neighbors):
    np.testing.assert_array_equal(grid_graph(shape, neighbors=neighbors).toarray(), reference.grid(shape, neighbors))


def test_grid_takes_one_length():
    np.testing.assert_array_equal(grid_graph(4).toarray(), grid_graph(np.array([4])).toarray())


def test_pixels_and_cube_are_inverse_and_agree_with_the_grid():
    image = np.arange(24.0).reshape(2, 4, 3)
    for X in (image, torch.from_numpy(image)):
        rows = pixels(X)
        assert type(rows) is type(X) and tuple(rows.shape) == (8, 3)
        assert type(cube(rows, (2, 4))) is type(X) and (cube(rows, (2, 4)) == X).all()
        assert tuple(cube(rows[:, 0], (2, 4)).shape) == (2, 4)
    assert pixels(np.zeros((2, 3, 4, 0))).shape == (24, 0)
    F = torch.from_numpy(pixels(image))
    differences = np.diff(image, axis=0) ** 2, np.diff(image, axis=1) ** 2
    expected = sum(d.sum((0, 1)) for d in differences)
    np.testing.assert_allclose(grid_graph((2, 4)).energy(F).numpy()[0], expected)


def test_adjacency_graph_reads_everything():
    A = np.array([[0.0, 2.0, 0.0], [2.0, 5.0, 1.0], [0.0, 1.0, 0.0]])
    expected = A - np.diag(np.diag(A))
    for Z in (A, A.tolist(), sp.csc_matrix(A), torch.tensor(A), torch.tensor(A).to_sparse(), pd.DataFrame(A), Graph(A)):
        np.testing.assert_array_equal(adjacency_graph(Z).toarray(), expected)
    links = Graph(A)
    assert adjacency_graph(links) is links


# Errors


def broken(value):
    X = np.ones((6, 2))
    X[1, 1] = X[4, 0] = value
    return X


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy, sp.csr_array])
def test_not_finite_is_refused_with_the_count(value, kind):
    with pytest.raises(ValueError, match="NaN or infinity: 2 of 12"):
        knn_graph(kind(broken(value)))
    with pytest.raises(ValueError, match="2 of 12"):
        marginal_fisher_graphs(kind(broken(value)), [0, 1] * 3)


GOOD = np.arange(12.0).reshape(6, 2)


@pytest.mark.parametrize(
    "call, message",
    [
        *(
            (lambda p=p: knn_graph(GOOD, p), "n_neighbors must be a whole number >= 1")
            for p in (0, -1, 2.5, "5", None, True)
        ),
        *(
            (lambda w=w: knn_graph(GOOD, weights=w), "weights must be")
            for w in ("rbf", 0, -1.0, np.nan, np.inf, None, True)
        ),
        *((lambda p=p: marginal_fisher_graphs(GOOD, [0] * 6, p), "n_neighbors must") for p in (0, -2, 1.0)),
        *(
            (lambda p=p: marginal_fisher_graphs(GOOD, [0] * 6, 1, p), "n_pairs must be a whole number >= 0")
            for p in (-1, 1.5)
        ),
        (lambda: marginal_fisher_graphs(GOOD, [0] * 5), r"\(5,\), but X has 6 samples"),
        (lambda: marginal_fisher_graphs(GOOD, np.zeros((6, 1), int)), r"\(6, 1\)"),
        (lambda: marginal_fisher_graphs(GOOD, list("abcabc")), "encode the labels"),
        (lambda: marginal_fisher_graphs(GOOD, [0.5] * 6), "fractions"),
        (lambda: marginal_fisher_graphs(GOOD, [np.inf] * 6), "infinity"),
        (lambda: knn_graph(np.ones(3)), r"\(3,\)"),
        (lambda: knn_graph(np.ones((0, 3))), r"\(0, 3\)"),
        (lambda: knn_graph(np.ones((3, 0))), r"\(3, 0\)"),
        (lambda: knn_graph(np.ones((3, 2), complex)), "complex"),
        (lambda: knn_graph(sp.csr_array(np.ones((3, 2), complex))), "complex"),
        (lambda: knn_graph([["a", "b"]]), "text"),
        (lambda: grid_graph((3, 0)), "shape must be a whole number >= 1, got 0"),
        (lambda: grid_graph((2.5, 2)), "got 2.5"),
        (lambda: grid_graph(()), "shape is empty"),
        *((lambda v=v: grid_graph((3, 3), neighbors=v), "neighbors must be 4") for v in (6, 0, True, "4")),
        (lambda: pixels(np.ones(3)), r"\(3,\)"),
        (lambda: cube(np.ones((5, 2)), (2, 3)), r"\(5, 2\).* 6 cells"),
        (lambda: adjacency_graph(np.ones((2, 3))), "A: an adjacency must be square"),
        (lambda: adjacency_graph([[0, 1], [2, 0]]), "A: the adjacency is not symmetric"),
        (lambda: adjacency_graph(-np.ones((2, 2))), "A: .*negative"),
        (lambda: adjacency_graph(np.array([[0, np.nan], [np.nan, 0]])), "A: .*NaN"),
    ],
)
def test_errors_say_what_is_wrong(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_any_sparse_format_is_converted():
    assert (knn_graph(sp.lil_array(GOOD)).toarray() == knn_graph(sp.csr_array(GOOD)).toarray()).all()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_equals_cpu():
    X = torch.from_numpy(np.random.default_rng(0).integers(0, 4, (200, 3)))
    y = torch.from_numpy(labels(0, 200))
    for Z in (X, X.float(), X.double()):
        for a, b in zip(marginal_fisher_graphs(Z.cuda(), y.cuda()), marginal_fisher_graphs(Z, y)):
            np.testing.assert_array_equal(a.toarray(), b.toarray())
        np.testing.assert_array_equal(knn_graph(Z.cuda(), 5).toarray(), knn_graph(Z, 5).toarray())
