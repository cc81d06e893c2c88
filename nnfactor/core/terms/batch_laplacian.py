"""A graph term for one mini-batch while all other samples are fixed: it costs what the batch and its links do."""

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn.functional import pad

from ..block import Block, Quad
from ..factors import add_to_rows, concatenate, select_rows, zero_factor
from ..graph.graph import Graph
from .base import Factors
from .laplacian import Laplacian


class BatchNeighbourhood:
    """The edges of a graph that end in a batch: those inside, and those to samples around it.

    The samples of a clique outside the batch are replaced by one node at their mean, whose edges have their number
    times the weight: the value differs by a constant. `term` is over all samples, `rows` are those of the batch.
    """

    def __init__(self, term: Laplacian, rows: np.ndarray) -> None:
        graph, edges = term.graph, term.graph.adjacency[rows]
        self.halo = np.setdiff1d(edges.indices, rows)
        cliques = None if graph.cliques is None else graph.cliques[rows]
        self.members, self.place, virtual = _replace_members(graph, rows)
        inside, across = edges[:, rows], sp.hstack([edges[:, self.halo], virtual], format="csr")
        self.inside = replace(term, graph=Graph(inside, cliques, graph.clique_weight))
        everything = sp.block_array([[inside, across], [across.T, None]], format="csr")
        cliques = None if cliques is None else np.append(cliques, np.full(across.shape[1], -1))
        self.around = replace(term, graph=Graph(everything, cliques, graph.clique_weight), norms_of=())
        self.n_outside, self.degree = across.shape[1], np.asarray(across.sum(axis=1)).reshape(-1, 1)

    def outside(self, V: Tensor) -> Tensor:
        """Return the coefficients of the nodes around, `(..., n_outside, k)`."""
        index = lambda rows: torch.from_numpy(np.asarray(rows, dtype=np.int64)).to(V.device)
        halo = select_rows(V, index(self.halo))
        if not len(self.members):
            return halo
        sizes = torch.from_numpy(np.bincount(self.place)).to(V.device, V.dtype)
        means = zero_factor(len(sizes), V)
        add_to_rows(means, index(self.place), select_rows(V, index(self.members)))
        return concatenate([halo, means / sizes.unsqueeze(-1)], -2)


@dataclass(frozen=True, eq=False)
class BatchLaplacian:
    """The block of a batch's V for a `Laplacian`, given the coefficients around the batch; it has no value."""

    cut: BatchNeighbourhood
    outside: Tensor
    factor_names: tuple[str, ...] = ("V",)

    def block(self, factors: Factors, name: str) -> Block:
        """Return the graph inside, and for edges to fixed samples weights of rows and a linear part."""
        block = self.cut.inside.block(factors, name)
        if not self.cut.n_outside or not block.quads:
            return block
        V, c, columns = factors[name], block.quads[0].column_matrix, block.quads[0].columns
        fixed = concatenate([torch.zeros_like(V), self.outside], -2)
        linear_minus = c * self.cut.around.graph.times(fixed, columns)[..., : V.shape[-2], :]
        if columns is not None:
            linear_minus = pad(linear_minus, (columns.start, V.shape[-1] - columns.stop))
        degree = torch.from_numpy(self.cut.degree).to(V.device, V.dtype)
        return block + Block(quads=(Quad(c, degree, 1, columns),), linear_minus=linear_minus)

    def energy(self, V: Tensor) -> Tensor:
        """Compute the energy of all edges that end in the batch, per column, without norms of others: `(..., 1, k)`."""
        quads = self.cut.around.block({"V": concatenate([V, self.outside], -2)}, "").quads
        return quads[0].column_matrix if quads else V.new_zeros(*V.shape[:-2], 1, V.shape[-1])


def _replace_members(graph: Graph, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, sp.csr_array]:
    """Find clique members outside the batch, the number of each one's virtual node, and the batch's edges to those."""
    none = np.zeros(0, dtype=np.int64)
    if graph.cliques is None:
        return none, none, sp.csr_array((len(rows), 0))
    outside = graph.cliques.copy()
    outside[rows] = -1
    members = np.flatnonzero((outside >= 0) & np.isin(outside, graph.cliques[rows]))
    classes, place, sizes = np.unique(outside[members], return_inverse=True, return_counts=True)
    same = graph.cliques[rows][:, None] == classes
    return members, place, sp.csr_array(graph.clique_weight * same * sizes)
