"""A graph term as one mini-batch sees it, with all other samples fixed: exact, and local to the batch."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn.functional import pad

from ..block import Block, Quad
from ..graph.graph import Graph
from .base import Factors
from .laplacian import Laplacian


class BatchNeighbourhood:
    """The links of a graph that touch a batch: those inside, and those to samples around it.

    A clique's samples outside the batch act as one node at their mean, linked with their number times the weight:
    that differs from the links themselves by a constant.

    Parameters
    ----------
    graph : Graph
        A term over all samples.
    rows : integer array
        The samples of the batch.
    """

    def __init__(self, graph: Laplacian, rows: np.ndarray) -> None:
        links, touching = graph.graph, graph.graph.adjacency[rows]
        self.halo = np.setdiff1d(touching.indices, rows)
        cliques = None if links.cliques is None else links.cliques[rows]
        self.members, self.place, virtual = _others(links, rows)
        inside, across = touching[:, rows], sp.hstack([touching[:, self.halo], virtual], format="csr")
        self.inside = replace(graph, graph=Graph(inside, cliques, links.clique_weight))
        everything = sp.block_array([[inside, across], [across.T, None]], format="csr")
        cliques = None if cliques is None else np.append(cliques, np.full(across.shape[1], -1))
        self.around = replace(graph, graph=Graph(everything, cliques, links.clique_weight), norms_of=())
        self.n_outside, self.degree = across.shape[1], np.asarray(across.sum(axis=1)).reshape(-1, 1)

    def outside(self, V: Tensor) -> Tensor:
        """Coefficients of the nodes around, `(..., n_outside, k)`."""
        index = lambda rows: torch.from_numpy(np.asarray(rows, dtype=np.int64)).to(V.device)
        halo = V.mT.index_select(-1, index(self.halo))
        if not len(self.members):
            return halo.mT
        sizes = torch.from_numpy(np.bincount(self.place)).to(V.device, V.dtype)
        sums = halo.new_zeros(*halo.shape[:-1], len(sizes))
        sums = sums.index_add_(-1, index(self.place), V.mT.index_select(-1, index(self.members)))
        return torch.cat([halo, sums / sizes], dim=-1).mT


@dataclass(frozen=True, eq=False)
class BatchLaplacian:
    """What V of a batch needs of a `Laplacian`, given the coefficients around the batch: a block, without a value."""

    cut: BatchNeighbourhood
    outside: Tensor
    factor_names: tuple[str, ...] = ("V",)

    def block(self, factors: Factors, name: str) -> Block:
        """The graph inside; links to fixed samples are weights of rows and a pull."""
        block = self.cut.inside.block(factors, name)
        if not self.cut.n_outside or not block.quads:
            return block
        V, c, span = factors[name], block.quads[0].cols, block.quads[0].span
        here = len(self.cut.degree)
        others = torch.cat([torch.zeros_like(V).mT, self.outside.mT], dim=-1).mT
        linear_minus = c * self.cut.around.graph.times(others, span)[..., :here, :]
        if span is not None:
            linear_minus = pad(linear_minus, (span.start, V.shape[-1] - span.stop))
        degree = torch.from_numpy(self.cut.degree).to(V.device, V.dtype)
        return block + Block(quads=(Quad(c, degree, 1, span),), linear_minus=linear_minus)

    def energy(self, V: Tensor) -> Tensor:
        """The energy of all links that touch the batch, per column, without the gauge: `(..., 1, k)`."""
        V = torch.cat([V.mT, self.outside.mT], dim=-1).mT
        quads = self.cut.around.block({"V": V}, "").quads
        return quads[0].cols if quads else V.new_zeros(*V.shape[:-2], 1, V.shape[-1])


def _others(links: Graph, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, sp.csr_array]:
    """Clique members outside the batch, the number of each one's virtual node, and the links of the batch to those."""
    none = np.zeros(0, dtype=np.int64)
    if links.cliques is None:
        return none, none, sp.csr_array((len(rows), 0))
    outside = links.cliques.copy()
    outside[rows] = -1
    members = np.flatnonzero((outside >= 0) & np.isin(outside, links.cliques[rows]))
    classes, place, sizes = np.unique(outside[members], return_inverse=True, return_counts=True)
    same = links.cliques[rows][:, None] == classes
    return members, place, sp.csr_array(links.clique_weight * same * sizes)
