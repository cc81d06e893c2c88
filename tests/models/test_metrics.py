"""Metrics against their definitions, and their invariances."""

from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nnfactor.core import L1, BetaFit, Fit, Graph, Laplacian, hals, multiplicative, run
from nnfactor.metrics import clustering_accuracy, hoyer_sparsity, kkt_residual, normalized_mutual_information

relaxed = settings(max_examples=60, deadline=None, derandomize=True)
labellings = st.integers(1, 12).flatmap(
    lambda n: st.tuples(
        st.lists(st.integers(0, 3), min_size=n, max_size=n), st.lists(st.integers(0, 3), min_size=n, max_size=n)
    )
)


@relaxed
@given(labellings)
def test_accuracy_is_the_best_of_all_matchings(pair):
    a, b = map(np.array, pair)
    best = max(np.mean(np.array(names)[b] == a) for names in permutations(range(4)))
    assert clustering_accuracy(a, b) == pytest.approx(best)
    assert clustering_accuracy(b, a) == pytest.approx(best)


@relaxed
@given(labellings)
def test_nmi_is_its_definition(pair):
    a, b = map(np.array, pair)
    entropy = lambda p: -sum(q * np.log2(q) for q in np.ravel(p) if q > 0)
    joint = np.array([[np.mean((a == i) & (b == j)) for j in range(4)] for i in range(4)])
    ha, hb = entropy(joint.sum(1)), entropy(joint.sum(0))
    expected = 1.0 if max(ha, hb) == 0 else (ha + hb - entropy(joint)) / max(ha, hb)
    assert normalized_mutual_information(a, b) == pytest.approx(expected, abs=1e-12)
    assert normalized_mutual_information(b, a) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("metric", [clustering_accuracy, normalized_mutual_information])
def test_names_of_classes_do_not_matter(metric):
    a, b = np.array([0, 0, 1, 1, 2, 2]), np.array([2, 2, 0, 0, 1, 0])
    expected = metric(a, b)
    names = np.array(["x", "y", "z"])
    mixed = [("t", None, 1.5)[i] for i in b]
    for other in (names[b], list(names[b]), torch.from_numpy(b), b / 7 + 0.1, b - 1, mixed, b.astype(np.uint8)):
        assert metric(a, other) == metric(other, a) == pytest.approx(expected)
    assert metric(a, names[a]) == 1.0
    assert metric([3], ["c"]) == 1.0
    assert metric(np.zeros(5), np.arange(5)) == (0.2 if metric is clustering_accuracy else 0.0)


@pytest.mark.parametrize("metric", [clustering_accuracy, normalized_mutual_information])
@pytest.mark.parametrize(("a", "b"), [([], []), ([0, 1], [0]), ([[0, 1]], [[0, 1]]), (3, 3)])
def test_bad_labels_show_their_shapes(metric, a, b):
    with pytest.raises(ValueError, match=r"y_true has shape .*, y_pred .*both must be \(n_samples,\)"):
        metric(a, b)


def test_sparsity_is_its_definition():
    F = np.array([[1.0, 0, 0, 2], [1, 0, 0, -2], [1, 5, 0, 1], [1, 0, 0, 0]])
    hoyer = lambda f: (2 - np.abs(f).sum() / np.linalg.norm(f)) / 1
    np.testing.assert_allclose(hoyer_sparsity(F), [0, 1, 1, hoyer(F[:, 3])])
    assert hoyer_sparsity(F[:, 3]) == pytest.approx(hoyer(F[:, 3]))
    assert hoyer_sparsity(F, average=True) == pytest.approx(np.mean([0, 1, 1, hoyer(F[:, 3])]))
    np.testing.assert_array_equal(hoyer_sparsity(np.ones((1, 3))), 0)
    T = torch.from_numpy(np.stack([F, F[::-1].copy()]))
    assert torch.is_tensor(hoyer_sparsity(T)) and hoyer_sparsity(T).shape == (2, 4)
    assert hoyer_sparsity(T, average=True).shape == (2,)


@relaxed
@given(
    n=st.integers(1, 9),
    k=st.integers(1, 4),
    seed=st.integers(0, 999),
    scale=st.sampled_from([1e-300, 1e-30, 1e30, 1e300]),
)
def test_sparsity_is_bounded_and_blind_to_scale(n, k, seed, scale):
    rng = np.random.default_rng(seed)
    F = rng.random((n, k)) * (rng.random((n, k)) < 0.6)
    h = hoyer_sparsity(F)
    assert ((h >= 0) & (h <= 1)).all()
    np.testing.assert_allclose(hoyer_sparsity(F * scale), h, atol=1e-12)


@pytest.mark.parametrize("F", [np.zeros((0, 3)), 1.0, np.array([[np.nan, 1.0]]), np.array([[np.inf, 1.0]])])
def test_sparsity_refuses_bad_factors(F):
    with pytest.raises(ValueError, match="F "):
        hoyer_sparsity(F)


def nmf(seed=0, n=12, m=9, k=3):
    rng = np.random.default_rng(seed)
    X = torch.from_numpy(rng.random((n, m)))
    return X, {"V": torch.from_numpy(rng.random((n, k))), "U1": torch.from_numpy(rng.random((m, k)))}


MODELS = {
    "frobenius": lambda X: [Fit(X, ("V", "U1"))],
    "kullback-leibler": lambda X: [BetaFit(X, ("V", "U1"), 1.0)],
    "graph": lambda X: [
        Fit(X, ("V", "U1")),
        Laplacian(Graph(np.ones((len(X), len(X)))), "V", norms_of=("U1",), weight=0.1),
    ],
}


@pytest.mark.parametrize("key", MODELS)
def test_kkt_falls_to_zero_as_a_fit_converges(key):
    X, start = nmf()
    terms = MODELS[key](X)
    rule = multiplicative if key == "kullback-leibler" else hals
    after = lambda n: kkt_residual(terms, run(terms, {"U1": rule, "V": rule}, start, max_iter=n, tol=0).factors)
    assert 0.02 < kkt_residual(terms, start) < 2
    slow = key == "kullback-leibler"  # entries go to zero like one over the iterations
    assert after(4000 if slow else 1500) < (1e-4 if slow else 1e-6) < after(10) < kkt_residual(terms, start)


@pytest.mark.parametrize("key", ["frobenius", "kullback-leibler", "graph"])
def test_kkt_is_blind_to_scale(key):
    X, start = nmf()
    expected = kkt_residual(MODELS[key](X), start)
    for scale in (1e-30, 1e-3, 1e6, 1e30):
        factors = {"V": start["V"] * scale, "U1": start["U1"]}
        assert kkt_residual(MODELS[key](X * scale), factors) == pytest.approx(expected, rel=1e-9)
    columns = torch.tensor([1e-6, 1.0, 1e6], dtype=X.dtype)
    moved = {"V": start["V"] * columns, "U1": start["U1"] / columns}
    assert kkt_residual(MODELS[key](X), moved) == pytest.approx(expected, rel=1e-9)


def test_kkt_sees_each_kind_of_violation():
    V, U = torch.eye(3, dtype=torch.float64), torch.eye(3, dtype=torch.float64)
    terms = [Fit(V @ U.T, ("V", "U1"))]
    assert kkt_residual(terms, {"V": V, "U1": U}) == 0
    locked = V.clone()
    locked[0, 0] = 0  # a zero that wants to grow: a fixed point of multiplicative rules, not a minimum
    assert kkt_residual(terms, {"V": locked, "U1": U}, "V") > 0.1
    large = V.clone()
    large[0, 1] = 0.5  # positive and wants to shrink
    assert kkt_residual(terms, {"V": large, "U1": U}, "V") > 0.1
    zero = kkt_residual([*terms, L1("V", 1e3)], {"V": 0 * V, "U1": U}, "V")
    assert zero == 0  # zero is where so large a penalty wants it
    assert kkt_residual(terms, {"V": 0 * V, "U1": 0 * U}) == 0  # the saddle at zero is stationary, as it should be


def test_kkt_of_a_batch_and_of_chosen_factors():
    X, start = nmf()
    _, other = nmf(1)
    terms = MODELS["frobenius"](X)
    batch = {name: torch.stack([start[name], other[name]]) for name in start}
    found = kkt_residual(terms, batch)
    assert found.shape == (2,)
    np.testing.assert_allclose(found, [kkt_residual(terms, start), kkt_residual(terms, other)])
    parts = [kkt_residual(terms, start, name) for name in ("V", "U1")]
    assert kkt_residual(terms, start) == max(parts) == kkt_residual(terms, start, ["U1", "V"])
    for bad in ("W", [], ["V", "W"]):
        with pytest.raises(ValueError, match=r"the terms touch \['V', 'U1'\]"):
            kkt_residual(terms, start, bad)


def test_kkt_residuals_are_the_same_under_autocast():
    g = torch.Generator().manual_seed(0)
    V, U, X = (torch.rand(*shape, generator=g) for shape in ((40, 4), (20, 4), (40, 20)))
    terms = lambda: [Fit(X.clone(), ("V", "U1"))]
    expected = kkt_residual(terms(), {"V": V, "U1": U})
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert kkt_residual(terms(), {"V": V.clone(), "U1": U.clone()}) == pytest.approx(expected, rel=1e-5)
