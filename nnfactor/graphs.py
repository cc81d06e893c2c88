"""Graphs over samples as `Graph`: nearest neighbours, marginal Fisher, pixel grids, your own adjacency."""

import math
import warnings
from collections.abc import Callable, Sequence
from itertools import product
from numbers import Real
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from .core import Graph, as_graph
from .core.arguments import positive, whole
from .core.arrays import as_array
from .core.graph.approximate import find_approximate, has_search
from .core.graph.distances import gaussian, median_length
from .core.graph.linear_neighborhood import reconstruction_weights
from .core.graph.neighbors import Pairs, Points, find_nearest, find_shortest, join_pairs, read_points
from .core.labels import encode_labels, read_labels

Array = TypeVar("Array", np.ndarray, Tensor)
Kernel = Callable[[np.ndarray], np.ndarray]

MOST_EXACT = 100_000  # samples that method="auto" searches exactly: about 20 seconds for 20 features on one core

METHODS = ("auto", "exact", "approximate")


def knn_graph(X: Any, n_neighbors: int = 5, *, weights: str | float = "binary", method: str = "auto") -> Graph:
    """Link i and j if i is among the p nearest samples of j or j among those of i, by Euclidean distances.

    Symmetric, without self loops; one sample alone has no link.

    Parameters
    ----------
    X : array, tensor, DataFrame or scipy sparse matrix, (n_samples, ...)
        Any sign; tensors are flattened per sample. Dense data are worked on where they live, sparse data on the host.
    n_neighbors : int
        p. The default 5 is common practice (the papers do not print theirs; harmonic functions use 7). More than
        n_samples - 1 means all others.
    weights : "binary", "median" or a number
        "binary" (the papers' S): every link weighs 1. A number sigma > 0: exp(-||x_i - x_j||^2 / sigma^2), without the
        factor 2 of other conventions (Zhu, Ghahramani and Lafferty 2003). "median": the same with sigma the median
        length of the links (of those longer than 0), so that it follows the scale of the data.
    method : "auto", "exact" or "approximate"
        How neighbours are searched; `graph.method` says how they were. "exact": all distances, a tile at a time.
        "approximate": nearest neighbour descent by pynndescent (extra `graphs`), on the host, from one seed, though a
        few links may differ between calls; `graph.recall` and the graph's text say which share it gets right. "auto":
        exact up to 100 000 samples, and where entries are hidden or pynndescent is missing (then with a warning).

    Raises
    ------
    ImportError
        `method="approximate"` without pynndescent.
    ValueError, TypeError
        NaN or infinite entries, fewer than two dimensions or an empty one, complex or text data; `n_neighbors` not an
        integer >= 1; unknown `weights` or `method`; hidden entries with `method="approximate"`.

    Notes
    -----
    Duplicates are neighbours at distance 0. Equal distances are ordered by index; those that differ by float64 rounding
    alone may come in either order. Where a weight underflows to 0 the link vanishes: a sigma far below the neighbour
    distances empties the graph. Exact neighbours take O(n^2 m) in products of matrices, more with many equal
    distances, and besides X in float64 the memory of a few blocks and of the graph: nothing is n x n.

    Examples
    --------
    >>> from nnfactor.graphs import knn_graph
    >>> knn_graph([[0.0], [1.0], [5.0], [7.0]], n_neighbors=1).toarray().astype(int).tolist()
    [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]
    """
    whole("n_neighbors", n_neighbors)
    points = read_points(X)
    kernel = _kernel(weights, points.unit)  # before the work: it may refuse
    pairs, told = _search(points, int(n_neighbors), method)
    return _tell(_link(points.n, pairs, kernel), told)


def linear_neighborhood_graph(X: Any, n_neighbors: int = 7, *, method: str = "auto") -> Graph:
    """Weigh links by how samples are reconstructed from their nearest ones (Wang and Zhang 2008).

    Every sample is a mean of its p nearest, `min ||x_i - sum_j w_ij x_j||^2` over w >= 0 with `sum_j w_ij = 1`. The
    link of i and j weighs `(w_ij + w_ji) / 2`: the Laplacian's energy is then half of `sum_ij w_ij (f_i - f_j)^2`.

    Parameters
    ----------
    X, n_neighbors, method
        As for `knn_graph`; p = 7 as in Fan et al. 2011. With more neighbours than dimensions many weights can
        reconstruct a sample; nearly the shortest are taken.

    Raises
    ------
    ImportError, ValueError, TypeError
        As `knn_graph`.

    Examples
    --------
    A sample at a quarter of the way between two others:

    >>> from nnfactor.graphs import linear_neighborhood_graph
    >>> linear_neighborhood_graph([[0.0], [1.0], [4.0]], n_neighbors=2).toarray().round(3).tolist()
    [[0.0, 0.875, 0.0], [0.875, 0.0, 0.625], [0.0, 0.625, 0.0]]
    """
    whole("n_neighbors", n_neighbors)
    points = read_points(X)
    pairs, told = _search(points, int(n_neighbors), method)
    W = reconstruction_weights(points, pairs)
    return _tell(Graph(W / 2 + W.T / 2), told)


def marginal_fisher_graphs(X: Any, y: Any, n_neighbors: int | None = None, n_pairs: int = 20) -> tuple[Graph, Graph]:
    """Build the intrinsic and the penalty graph of marginal Fisher analysis (Yan et al. 2007).

    Intrinsic: every labelled sample with its k1 nearest of the same class ("or", as in `knn_graph`). Penalty: for
    every class the k2 shortest pairs (i, j) of a sample i inside and a labelled sample j outside. All weights are 1.
    Ties go to the smaller index or (i, j).

    Parameters
    ----------
    X : (n_samples, ...), as in `knn_graph`
    y : integers, (n_samples,)
        -1 (in floating point also NaN) is unlabelled: such samples have no links. Encode other labels first.
    n_neighbors : int, optional
        k1, at most n_c - 1 in a class of n_c samples. Default: min(n_c - 1, 3), as Wang et al. 2009a. Any number
        >= n_samples links all samples of a class, as Wang et al. 2009b.
    n_pairs : int
        k2, 20 in the papers. 0 gives no penalty links; more than there are pairs takes all.

    Returns
    -------
    (intrinsic, penalty), both over n_samples nodes. A class with k1 = n_c - 1 is kept as a clique, O(n_c) numbers. No
    intrinsic link in a class of one, no penalty link with one class, none at all without labels.

    Raises
    ------
    ValueError, TypeError
        As `knn_graph`; `y` of another length or not of integers; `n_pairs` not an integer >= 0.

    Examples
    --------
    >>> from nnfactor.graphs import marginal_fisher_graphs
    >>> marginal_fisher_graphs([[0.0], [1.0], [2.0], [9.0], [5.0]], [0, 0, 1, 1, -1], n_pairs=1)
    (Graph(5 nodes, 2 edges), Graph(5 nodes, 1 edges))
    """
    k1 = 3 if n_neighbors is None else n_neighbors
    whole("n_neighbors", k1)
    whole("n_pairs", n_pairs, least=0)
    points = read_points(X)
    code = _codes(y, points.n)
    return _build_intrinsic(points, code, int(k1)), _build_penalty(points, code, int(n_pairs))


def grid_graph(shape: int | Sequence[int], *, neighbors: int = 4) -> Graph:
    """Link neighbouring pixels (or voxels) of a grid, weight 1, in C order of the axes as `pixels` lists them.

    Parameters
    ----------
    shape : int or sequence of ints >= 1
        Length of every axis, without bands; any number of axes (`(h, w)` for images, `(n,)` for a chain).
    neighbors : 4 or 8
        4: one step along one of d axes (2 d neighbours; the usual smoothness). 8: diagonal steps too (all 3^d - 1).
        Anything else is a ValueError.

    Examples
    --------
    >>> from nnfactor.graphs import grid_graph
    >>> grid_graph((2, 3)), grid_graph((2, 3), neighbors=8)
    (Graph(6 nodes, 7 edges), Graph(6 nodes, 11 edges))
    """
    lengths = _read_shape(shape)
    if isinstance(neighbors, bool) or neighbors not in (4, 8):
        raise ValueError(f"neighbors must be 4 (steps along one axis) or 8 (diagonal steps too), got {neighbors!r}")
    cells = np.arange(math.prod(lengths)).reshape(lengths)
    found = []
    for move in product((-1, 0, 1), repeat=len(lengths)):
        if move > (0,) * len(lengths) and (neighbors == 8 or sum(map(abs, move)) == 1):  # links have no direction: half
            here, there = (cells[_cells_within(m, lengths)].ravel() for m in (move, tuple(-step for step in move)))
            found.append((here, there, np.ones(len(here))))
    return _link(cells.size, join_pairs(found))


def pixels(cube: Array) -> Array:
    """Flatten a cube `(h, w, bands)` to one row per pixel, `(h w, bands)`: samples, as the models want them.

    Any number of axes before the bands. NumPy in, NumPy out; torch in, torch out (a view where possible). The inverse
    is `cube(rows, (h, w))`. ValueError for fewer than two dimensions.

    Examples
    --------
    >>> import numpy as np
    >>> from nnfactor.graphs import pixels
    >>> pixels(np.zeros((4, 5, 3))).shape
    (20, 3)
    """
    cube = cube if isinstance(cube, Tensor) else np.asanyarray(cube)  # a mask stays
    if cube.ndim < 2:
        raise ValueError(f"cube has shape {tuple(cube.shape)}; it must have pixel axes and then bands: (h, w, bands)")
    return cube.reshape(math.prod(cube.shape[:-1]), cube.shape[-1])


def cube(rows: Array, shape: int | Sequence[int]) -> Array:
    """Put one row per pixel back on the grid: `(h w, k)` and `(h, w)` give `(h, w, k)`; labels `(h w,)` give `(h, w)`.

    The inverse of `pixels`. ValueError if there is not one row per cell, or for a length that is not an integer >= 1.

    Examples
    --------
    >>> import numpy as np
    >>> from nnfactor.graphs import cube
    >>> cube(np.zeros((20, 3)), (4, 5)).shape
    (4, 5, 3)
    """
    rows, lengths = rows if isinstance(rows, Tensor) else np.asanyarray(rows), _read_shape(shape)
    if rows.ndim == 0 or len(rows) != math.prod(lengths):
        raise ValueError(f"rows has shape {tuple(rows.shape)}, but a grid {lengths} has {math.prod(lengths)} cells")
    return rows.reshape(*lengths, *rows.shape[1:])


def adjacency_graph(A: Any) -> Graph:
    """Read an adjacency of your own: scipy sparse, array, tensor (dense or sparse) or DataFrame, (n, n).

    Weights are >= 0, finite and symmetric (up to 1e-12 of the largest), else a ValueError; 0 is no link. The diagonal
    is dropped, for self loops do not change a Laplacian. `A` is copied.

    Examples
    --------
    >>> from nnfactor.graphs import adjacency_graph
    >>> adjacency_graph([[0, 2, 0], [2, 0, 1], [0, 1, 0]])
    Graph(3 nodes, 2 edges)
    """
    return as_graph(A if hasattr(A, "shape") or isinstance(A, Graph) else as_array(A, "A"), name="A")


def _search(points: Points, p: int, method: Any) -> tuple[Pairs, tuple[str, float]]:
    """Search the p nearest others of every sample; say by which method, and the share that is right."""
    if method not in METHODS:
        raise ValueError(f"method must be 'auto', 'exact' or 'approximate', got {method!r}")
    p, many = min(p, points.n - 1), points.n > MOST_EXACT
    if method == "approximate" and points.partial:
        raise ValueError("method='approximate' needs complete samples, and X has hidden entries; use method='exact'")
    if p and (method == "approximate" or (method == "auto" and many and has_search() and not points.partial)):
        pairs, recall = find_approximate(points, p)
        return pairs, ("approximate", recall)
    if method == "auto" and many and not points.partial:
        warnings.warn(
            f"the exact neighbours of {points.n} samples are searched, in a time that grows with its square: install "
            "nnfactor[graphs] for approximate ones, or say method='exact'",
            UserWarning,
            stacklevel=3,
        )
    return find_nearest(points, p), ("exact", 1.0)


def _tell(graph: Graph, told: tuple[str, float]) -> Graph:
    """Write into a graph how its neighbours were searched."""
    graph.method, graph.recall = told
    return graph


def _build_intrinsic(points: Points, code: np.ndarray, k1: int) -> Graph:
    """Link every sample with its k1 nearest of the same class; small classes become cliques."""
    cliques, found = np.full(points.n, -1), []
    for c in range(code.max(initial=-1) + 1):
        members = np.flatnonzero(code == c)
        if len(members) <= k1 + 1:
            cliques[members] = c
        else:
            i, j, squared = find_nearest(points.take(members), k1)
            found.append((members[i], members[j], squared))
    return _link(points.n, join_pairs(found), cliques=cliques if (cliques >= 0).any() else None)


def _build_penalty(points: Points, code: np.ndarray, k2: int) -> Graph:
    """Link the k2 shortest pairs between every class and the others."""
    labelled = np.flatnonzero(code >= 0)
    i, j, squared = find_shortest(points.take(labelled), code[labelled], k2)
    return _link(points.n, (labelled[i], labelled[j], squared))


def _link(n: int, pairs: Pairs, kernel: Kernel = np.ones_like, cliques: np.ndarray | None = None) -> Graph:
    """Link pairs with weight `kernel(squared distances)`; a pair that was found in both directions counts once."""
    i, j, squared = pairs
    _, once = np.unique(np.minimum(i, j) * n + np.maximum(i, j), return_index=True)
    i, j, weights = i[once], j[once], kernel(squared[once])
    S = sp.csr_array((weights, (i, j)), shape=(n, n))
    return Graph(S + S.T, cliques)


def _cells_within(move: Sequence[int], lengths: Sequence[int]) -> tuple[slice, ...]:
    """Choose the cells that `move` does not push off the grid."""
    return tuple(slice(max(0, -s), length - max(0, s)) for s, length in zip(move, lengths, strict=True))


def _kernel(weights: Any, unit: float) -> Kernel:
    """Return the function from squared distances, in a unit of length, to weights of links."""
    if isinstance(weights, str) and weights == "binary":
        return np.ones_like
    median = isinstance(weights, str) and weights == "median"
    if not median:
        positive("weights", weights, also='"binary", "median" or ')

    def weigh(squared: np.ndarray) -> np.ndarray:
        width = median_length(squared) if median else float(weights) / unit
        return gaussian(torch.from_numpy(squared.copy()), width).numpy()

    return weigh


def _read_shape(shape: Any) -> tuple[int, ...]:
    """Check the lengths of the axes of a grid."""
    lengths = tuple(shape) if isinstance(shape, Sequence | np.ndarray) else (shape,)
    if not lengths:
        raise ValueError("shape is empty; it needs a length for every axis, as (h, w)")
    for length in lengths:
        whole("every length in shape", length)
    return tuple(map(int, lengths))


def _codes(y: Any, n: int) -> np.ndarray:
    """Encode classes as 0, 1, ... in increasing order of their labels, -1 where unlabelled; refuse all but integers."""
    if (shape := read_labels(y).shape) != (n,):
        raise ValueError(f"y has shape {shape}, but X has {n} samples; it needs one label per sample")
    codes, classes = encode_labels(y, n)
    if classes.dtype.kind not in "iufb" and not all(isinstance(c, Real) for c in classes):
        raise ValueError(
            f"y has labels such as {classes[0]!r}; encode the labels as integers, -1 for unlabelled samples"
        )
    return codes
