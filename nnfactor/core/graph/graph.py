"""Weighted undirected graphs over the rows of a factor, sparse on every device."""

from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from ..arrays import as_array, as_numbers
from ..cache import TensorCache
from ..data.as_data import as_scipy, as_tensor, is_sparse, precision, to_csr
from ..data.csr import CSR, narrow_csr
from ..factors import cached_flat
from ..labels import number_classes


class Graph:
    """An undirected graph with weights >= 0 and without self loops: `S` of the papers, `L = D - S`.

    Parameters
    ----------
    adjacency : scipy sparse matrix, array or tensor, (n, n), or None
        Symmetric, nonnegative, finite. The diagonal is dropped.
    cliques : integer array (n,) or None
        Samples of one class (-1: of none) that are all linked to each other with `clique_weight`. They are kept as
        class sums and cost O(n), never n_c^2 edges.
    clique_weight : float

    Attributes
    ----------
    mean_degree : float
        Sum of the weights at a node, on average.
    method : str or None
        "exact" or "approximate" where the edges are nearest neighbours that were searched so.
    recall : float or None
        The share of the nearest neighbours among them: 1 if exact, else as seen on some samples.
    identity : (int, int)
        Equal for graphs that share their weights, however often they were copied.

    Notes
    -----
    The scipy matrix stays on the host as the master copy; each device and dtype gets its own CSR when first used.
    `graph @ F` is `S F` for a factor `(..., n, k)`, `graph.degree(F)` the column `D 1`, and `graph.energy(F)` is
    `f_j' L f_j` for every column, summed edge by edge (`v'Dv - v'Sv` would cancel).

    Examples
    --------
    A chain of three samples, and the same with the last two in one clique of weight 2:

    >>> import torch
    >>> from nnfactor.core import Graph
    >>> chain = Graph([[0, 1, 0], [1, 0, 1], [0, 1, 0]])
    >>> F = torch.tensor([[0.0], [1.0], [3.0]])
    >>> chain.energy(F).tolist(), (chain @ F).tolist()
    ([[5.0]], [[1.0], [3.0], [1.0]])
    >>> Graph([[0, 1, 0], [1, 0, 1], [0, 1, 0]], cliques=[-1, 0, 0], clique_weight=2.0).energy(F).tolist()
    [[13.0]]
    """

    method: str | None = None
    recall: float | None = None

    def __init__(self, adjacency: Any = None, cliques: Any = None, clique_weight: float = 1.0) -> None:
        if adjacency is None and cliques is None:
            raise ValueError("Graph needs an adjacency, cliques, or both; both are None")
        if not 0 <= clique_weight < np.inf:
            raise ValueError(f"clique_weight must be a finite number >= 0, got {clique_weight!r}")
        self.cliques = None if cliques is None else _number_cliques(cliques)
        self.adjacency = _canonical(sp.csr_array((len(cliques),) * 2) if adjacency is None else adjacency)
        if self.cliques is not None and self.cliques.shape != (self.n_nodes,):
            raise ValueError(f"cliques has shape {self.cliques.shape}, the adjacency has {self.n_nodes} nodes")
        self.clique_weight = float(clique_weight)
        self.identity = id(self.adjacency), id(self.cliques)
        total = float(self.adjacency.sum()) + (0 if self.cliques is None else self.clique_weight * self._pairs)
        self.mean_degree = total / max(1, self.adjacency.shape[0])
        self._placed: dict[tuple[torch.device, torch.dtype], _OnDevice] = {}

    @cached_property
    def cache(self) -> TensorCache:
        """Products that are kept; a copy of a graph begins with none."""
        return TensorCache()

    @property
    def n_nodes(self) -> int:
        """Number of samples, linked or not."""
        return int(self.adjacency.shape[0])

    @property
    def n_edges(self) -> int:
        """Number of undirected edges with a positive weight, those of the cliques counted."""
        return (self.adjacency.nnz + self._pairs) // 2

    @property
    def _pairs(self) -> int:
        """Ordered pairs of samples of one clique."""
        if self.cliques is None:
            return 0
        sizes = np.bincount(self.cliques[self.cliques >= 0])
        return int((sizes * (sizes - 1)).sum())

    def on(self, F: Tensor) -> "_OnDevice":
        """Place the graph on the device and in the dtype of `F`, once for each."""
        known = self._placed.get((F.device, F.dtype))
        return known or self._placed.setdefault((F.device, F.dtype), _OnDevice(self, F.device, F.dtype))

    def degree(self, F: Tensor) -> Tensor:
        """Sum of the weights at every node, `(n, 1)`, on the device and in the dtype of `F`."""
        return self.on(F).degree

    def product(self, rows: Tensor, out: Tensor | None = None) -> Tensor:
        """`S @ rows` for a plain row-major matrix `(n, c)`, into `out` if given."""
        if rows.shape[0] != self.n_nodes:
            raise ValueError(f"a graph of {self.n_nodes} nodes cannot act on {rows.shape[0]} rows")
        return self.on(rows).product(rows, out)

    def times(self, F: Tensor, columns: slice | None = None) -> Tensor:
        """`S F` for all columns of a factor or some, `(..., n, s)`."""
        out = self._times(F, columns)
        return out if F.dim() == 2 else out.view(F.shape[-2], *F.shape[:-2], -1).movedim(0, -2)

    __matmul__ = times

    def energy(self, F: Tensor, columns: slice | None = None) -> Tensor:
        """`f' L f` for every column of `F` (or some), `(..., 1, k)`: sum over edges of w (f_i - f_j)^2."""
        shape = (*F.shape[:-2], 1, -1)
        return self.cache(f"energy {columns}", (F,), lambda: self.on(F).energy(cached_flat(F, columns)).view(shape))

    def energy_parts(self, F: Tensor, columns: slice | None = None) -> tuple[Tensor, Tensor]:
        """`f' D f` and `f' S f`, whose difference is the energy; the product is kept for `times` of the same factor."""
        rows, shape = cached_flat(F, columns), (*F.shape[:-2], 1, -1)
        both = self.degree(F).mT @ rows.square(), (rows * self._times(F, columns, keep=True)).sum(0)
        return both[0].view(shape), both[1].view(shape)

    def _times(self, F: Tensor, columns: slice | None, keep: bool = False) -> Tensor:
        """`S F` row-major, which is kept for as long as F is the last factor that somebody wanted kept."""
        key = f"times {columns}"
        if keep:
            return self.cache(key, (F,), lambda: self.product(cached_flat(F, columns)))
        seen = self.cache.known(key, (F,))
        return self.product(cached_flat(F, columns)) if seen is None else seen

    def toarray(self) -> np.ndarray:
        """Copy the adjacency to a dense array (for small graphs and tests)."""
        S = self.adjacency.toarray()
        if self.cliques is not None:
            same = (self.cliques[:, None] == self.cliques) & (self.cliques >= 0)
            np.fill_diagonal(same, False)
            S = S + self.clique_weight * same
        return S

    def __repr__(self) -> str:
        how = f", approximate neighbours, recall {self.recall:.3f}" if self.method == "approximate" else ""
        return f"Graph({self.n_nodes} nodes, {self.n_edges} edges{how})"

    def __getstate__(self) -> dict[str, Any]:
        names = "adjacency", "cliques", "clique_weight", "mean_degree", "method", "recall"
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, identity=(id(state["adjacency"]), id(state["cliques"])), _placed={})


def as_graph(graph: Any, name: str = "graph") -> Graph:
    """Make a graph of a graph, a scipy sparse matrix, an array or a tensor; errors name the argument `name`."""
    if isinstance(graph, Graph):
        return graph
    try:
        return Graph(graph)
    except (ValueError, TypeError) as error:
        raise type(error)(f"{name}: {error}") from None


class _Cliques(NamedTuple):
    """Cliques on a device; what is said of a sample is of the clique that it is in."""

    indicator: CSR  # (cliques, n), one-hot columns
    place: Tensor  # (n,): its row of the indicator; 0 outside
    sizes: Tensor  # (n, 1): its size; 1 outside
    weights: Tensor  # (n, 1): the weight of its edges; 0 outside

    def sums(self, rows: Tensor) -> Tensor:
        """Sum the rows of each sample's clique."""
        return self.indicator.product(rows).index_select(0, self.place)


@dataclass(eq=False)
class _OnDevice:
    """One graph on one device: adjacency, incidence and cliques as CSR, built when first used."""

    graph: Graph
    device: torch.device
    dtype: torch.dtype

    @cached_property
    def adjacency(self) -> CSR | None:
        return self._csr(self.graph.adjacency) if self.graph.adjacency.nnz else None

    @cached_property
    def incidence(self) -> list[CSR]:
        """Edges as rows (+sqrt w, -sqrt w), in pieces of n (at least 4096) rows: no product outgrows a factor."""
        upper = sp.triu(self.graph.adjacency, k=1).tocoo()
        n, w = self.graph.n_nodes, np.sqrt(upper.data.astype(np.float64))
        pieces = []
        for a in range(0, upper.nnz, size := max(n, 4096)):
            i, j, r = upper.row[a : a + size], upper.col[a : a + size], w[a : a + size]
            rows = np.tile(np.arange(len(r)), 2)
            values, ends = np.concatenate([r, -r]), np.concatenate([i, j])
            pieces.append(self._csr(sp.csr_array((values, (rows, ends)), shape=(len(r), n))))
        return pieces

    @cached_property
    def cliques(self) -> _Cliques | None:
        if (c := self.graph.cliques) is None:
            return None
        (inside,), place = np.nonzero(c >= 0), np.maximum(c, 0)
        shape = (int(c.max(initial=0)) + 1, len(c))
        indicator = self._csr(sp.csr_array((np.ones(len(inside)), (c[inside], inside)), shape=shape))
        sizes = np.where(c >= 0, np.bincount(c[inside], minlength=1)[place], 1)
        weights = self.graph.clique_weight * (c >= 0)
        return _Cliques(indicator, torch.from_numpy(place).to(self.device), self._column(sizes), self._column(weights))

    @cached_property
    def degree(self) -> Tensor:
        degree = self._column(self.graph.adjacency.sum(axis=1))
        return degree if self.cliques is None else degree + self.cliques.weights * (self.cliques.sizes - 1)

    def product(self, rows: Tensor, out: Tensor | None) -> Tensor:
        out = rows.new_empty(rows.shape) if out is None else out
        out = out.zero_() if self.adjacency is None else self.adjacency.product(rows, out)
        if self.cliques is not None:
            out.addcmul_(self.cliques.sums(rows).sub_(rows), self.cliques.weights)
        return out

    def energy(self, rows: Tensor) -> Tensor:
        parts = [piece.product(rows).square_().sum(0) for piece in self.incidence]
        if self.cliques is not None:  # squared distances to the mean of a clique count its size times its weight
            centred = rows - self.cliques.sums(rows).div_(self.cliques.sizes)
            parts.append(centred.square_().mul_(self.cliques.weights * self.cliques.sizes).sum(0))
        return reduce(torch.add, parts) if parts else rows.new_zeros(rows.shape[1])

    def _csr(self, matrix: sp.csr_array) -> CSR:
        return CSR.from_scipy(matrix, self.device, self.dtype)

    def _column(self, values: np.ndarray) -> Tensor:
        return torch.from_numpy(np.asarray(values, dtype=np.float64)).to(self.device, self.dtype).view(-1, 1)


def _number_cliques(cliques: Any) -> np.ndarray:
    """Give cliques the numbers 0, 1, ... without gaps, -1 for none."""
    cliques = as_array(cliques, "cliques")
    if cliques.dtype.kind not in "iu":
        raise ValueError(f"cliques must be whole numbers (-1: in none), got dtype {cliques.dtype}")
    return number_classes(cliques, cliques >= 0)[0]


def _canonical(adjacency: Any) -> sp.csr_array:
    """Copy an adjacency to a symmetric float64 CSR without diagonal; a ValueError says what is wrong.

    Negative weights and differences from symmetry are rounding up to the square root of the precision that they are
    given in, relative to the largest weight: they are clipped, and both entries become their mean.
    """
    shape = tuple(np.shape(adjacency))
    if len(shape) != 2 or shape[0] != shape[1]:
        raise ValueError(f"an adjacency must be square, got shape {shape}")
    name = "the adjacency"
    sparse = is_sparse(adjacency)
    given = adjacency if isinstance(adjacency, Tensor) or sparse else as_array(adjacency, name)
    if isinstance(given, Tensor) and not sparse:
        given = as_tensor(given, name).cpu().numpy()
    values = as_scipy(given, name) if sparse else sp.csr_array(as_numbers(given, name).astype(np.float64))
    S = to_csr(values, name, np.float64).copy()
    S.data[S.indices == np.repeat(np.arange(shape[0]), np.diff(S.indptr))] = 0  # setdiag adds entries to write zeros
    bad = int((~np.isfinite(S.data)).sum())
    if bad:
        raise ValueError(f"{bad} weights of the adjacency are NaN or infinite")
    tolerance = precision(given.dtype) ** 0.5 * np.abs(S.data).max(initial=0)
    negative = S.data[S.data < -tolerance]
    if len(negative):
        raise ValueError(
            f"{len(negative)} weights of the adjacency are negative, the lowest {negative.min():g}; a graph Laplacian "
            "needs weights >= 0"
        )
    np.maximum(S.data, 0, out=S.data)
    S.eliminate_zeros()
    skew = abs(S - S.T)
    if skew.nnz and skew.max() > tolerance:
        i, j = (int(v) for v in np.unravel_index(skew.argmax(), shape))
        raise ValueError(
            f"the adjacency is not symmetric: entry ({i}, {j}) is {S[i, j]:g}, ({j}, {i}) is {S[j, i]:g}, a difference "
            f"of {skew.max():.3g}; use (S + S.T) / 2 or S.maximum(S.T)"
        )
    return narrow_csr((S / 2 + S.T / 2).tocsr() if skew.nnz else S)
