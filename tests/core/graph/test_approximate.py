"""Approximate neighbours, which method searches, and the memory of the exact search."""

import pickle
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from nnfactor import graphs
from nnfactor.core import Graph
from nnfactor.core.data.weighted import PartialSamples
from nnfactor.core.graph import approximate, neighbors
from nnfactor.graphs import knn_graph, linear_neighborhood_graph


class FewFound:
    """A search that finds the next samples of a line in the wrong order, and for some samples nothing."""

    def __init__(self, Z, n_neighbors, **told):
        at = np.arange(len(Z))[:, None] + np.arange(n_neighbors)[::-1] - 2
        listed = np.where((at < 0) | (at >= len(Z)), -1, at)
        listed[[3, 17]] = -1
        self.neighbor_graph = listed.astype(np.int32), np.zeros(listed.shape, np.float32)


@pytest.fixture
def few_found(monkeypatch):
    modules = {
        "pynndescent": SimpleNamespace(NNDescent=FewFound),
        "numba": SimpleNamespace(config=SimpleNamespace(NUMBA_NUM_THREADS=1)),
    }
    monkeypatch.setattr(approximate, "import_module", modules.get)
    monkeypatch.setattr(graphs, "has_search", lambda: True)


def test_what_a_search_proposes_is_measured_and_completed(few_found):
    X = np.arange(400.0)[:, None] ** 1.01  # nearest are the next ones, mostly the one before
    approximate_graph, exact = knn_graph(X, 2, method="approximate"), knn_graph(X, 2, method="exact")
    np.testing.assert_array_equal(approximate_graph.toarray(), exact.toarray())
    assert (approximate_graph.method, approximate_graph.recall) == ("approximate", 1.0)
    assert (exact.method, exact.recall, repr(exact)) == ("exact", 1.0, f"Graph(400 nodes, {exact.n_edges} edges)")
    assert repr(approximate_graph).endswith("edges, approximate neighbours, recall 1.000)")
    again = pickle.loads(pickle.dumps(approximate_graph))
    assert (again.method, again.recall) == ("approximate", 1.0) and Graph(exact.adjacency).method is None


def test_the_share_of_the_nearest_is_told(few_found):
    X = np.random.default_rng(0).normal(size=(300, 2))  # what is next in the list is not near
    graph = knn_graph(X, 3, method="approximate")
    assert 0 < graph.recall < 0.5 and f"recall {graph.recall:.3f}" in repr(graph)
    weights = linear_neighborhood_graph(X, 3, method="approximate")
    assert weights.method == "approximate" and 0 < weights.recall < 0.5
    np.testing.assert_allclose(weights.adjacency.sum(), 300)


def test_which_method_is_chosen(few_found, monkeypatch):
    X = np.random.default_rng(0).normal(size=(60, 2))
    monkeypatch.setattr(graphs, "MOST_EXACT", 60)
    assert knn_graph(X).method == linear_neighborhood_graph(X).method == "exact"
    monkeypatch.setattr(graphs, "MOST_EXACT", 59)
    assert knn_graph(X).method == "approximate" and knn_graph(X, method="exact").method == "exact"
    assert knn_graph(X[:1], method="approximate").n_edges == 0
    monkeypatch.setattr(graphs, "has_search", lambda: False)
    with pytest.warns(UserWarning, match=r"60 samples.*nnfactor\[graphs\]"):
        assert knn_graph(X).method == "exact"
    assert knn_graph(X, method="exact").method == "exact"
    with pytest.raises(ValueError, match="method must be 'auto', 'exact' or 'approximate', got 'fast'"):
        knn_graph(X, method="fast")


def test_a_missing_search_and_hidden_entries_are_refused(monkeypatch):
    def missing(name):
        raise ImportError(name)

    X = np.random.default_rng(0).normal(size=(60, 2))
    monkeypatch.setattr(approximate, "import_module", missing)
    with pytest.raises(ImportError, match=r"nnfactor\[graphs\]"):
        knn_graph(X, method="approximate")
    hidden = PartialSamples(torch.from_numpy(X), torch.ones(60, 2, dtype=torch.bool))
    assert knn_graph(hidden, method="exact").method == "exact"
    with pytest.raises(ValueError, match="hidden entries"):
        knn_graph(hidden, method="approximate")


def test_approximate_neighbours_are_nearly_the_nearest():
    """All in one test: a process compiles the search for half a minute."""
    pytest.importorskip("pynndescent", reason="the extra graphs brings it")
    X = np.random.default_rng(0).gamma(1.0, size=(3000, 8)) + 1000.0
    exact, graph = knn_graph(X, 6), knn_graph(X, 6, method="approximate")
    assert graph.method == "approximate" and graph.recall > 0.9
    shared = exact.adjacency.multiply(graph.adjacency).nnz / exact.adjacency.nnz
    assert shared > 0.9
    again = knn_graph(X, 6, method="approximate")
    assert again.adjacency.multiply(graph.adjacency).nnz > 0.95 * graph.adjacency.nnz
    sparse = sp.csr_array(np.where(X > 1001, X - 1001, 0))
    assert knn_graph(sparse, 6, method="approximate").recall > 0.8


class Largest(TorchDispatchMode):
    """The most entries of a tensor that an operation made."""

    entries = 0

    def __torch_dispatch__(self, call, types, args=(), kwargs=None):
        made = call(*args, **(kwargs or {}))
        several = made if isinstance(made, tuple | list) else [made]
        self.entries = max([self.entries, *(t.numel() for t in several if isinstance(t, torch.Tensor))])
        return made


@pytest.mark.parametrize("kind", ["normal", "duplicates", "sparse"])
def test_no_array_of_an_exact_search_grows_with_the_square(kind, monkeypatch):
    """Counted: for n samples no tensor is larger than a tile, the samples themselves, or a few numbers a neighbour."""
    n, m, p = 1500, 4, 3
    monkeypatch.setattr(neighbors, "BUDGET", 1 << 12)
    X = np.random.default_rng(0).normal(size=(n, m))
    X = {"normal": X, "duplicates": np.round(X / 4), "sparse": sp.csr_array(np.where(X > 0.5, X, 0))}[kind]
    with Largest() as seen:
        graph = knn_graph(X, p)
    assert graph.n_edges >= n * p / 2
    assert seen.entries <= max(neighbors.BUDGET, n * m) < n * n / 300
