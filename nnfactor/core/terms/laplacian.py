"""The Laplacian penalty of a graph over the rows of a factor."""

from copy import copy
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ..block import Block, Quad
from ..factors import square_norms
from ..graph.graph import Graph, as_graph
from .base import Factors, Term, Weight, WeightLike, check_weight, per_column


@dataclass(frozen=True, eq=False)
class Laplacian(Term):
    """`weight sum_j c_j prod_b ||u^b_j||^2 v_j' L v_j` over factor `on`, `L` the Laplacian of `graph`.

    Parameters
    ----------
    graph, on : Graph, scipy sparse matrix or array (n, n); str
        The factor `on` has the nodes as rows.
    norms_of : sequence of str
        Factors whose column norms enter; then rescaling columns between `on` and them leaves the penalty unchanged
        (Wang et al. 2009a and 2009b, Eq. 9). Empty: the plain `tr(V' L V)`.
    weight : float, Tensor or Weight
        A number, one number per problem, or an entry of the state that holds them.
    columns : slice, array (k,) or None
        The columns that the graph acts on, a mask of them, or their weights c_j >= 0. None: all. Columns outside the
        first and the last nonzero weight cost nothing.
    split : {"net", "paper"}
        How `v_j' L v_j >= 0` enters the block of a factor in `norms_of`. "net", as one number: the multiplicative rule
        is `U *= M / (U G + U diag(c_j v_j'L v_j))`. "paper", in two parts (Wang et al. 2009a, Eq. 15; 2009b, Eq. 25):
        `U *= (M + U diag(c_j v_j'S v_j)) / (U G + U diag(c_j v_j'D v_j))`; c_j has the weight and the other factors'
        squared norms. The objective is the same; "paper" takes many more iterations at large weights.

    Examples
    --------
    >>> import torch
    >>> from nnfactor.core import Laplacian
    >>> V = torch.tensor([[0.0, 1.0], [1.0, 1.0], [3.0, 1.0]])
    >>> chain = [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
    >>> float(Laplacian(chain, "V", weight=10.0).value({"V": V}))           # 10 (1^2 + 2^2); equal rows cost nothing
    50.0
    >>> float(Laplacian(chain, "V", weight=10.0, columns=[False, True]).value({"V": V}))
    0.0
    """

    graph: Graph | Any  # a Graph once it is read
    on: str
    norms_of: tuple[str, ...] = ()
    weight: WeightLike = 1.0
    columns: Any = None
    split: Literal["net", "paper"] = "net"
    _nonzero: list[int] = field(init=False, repr=False)  # the columns of nonzero weight, of an array

    def __post_init__(self) -> None:
        # a copy starts without cached products and device copies: those that a run makes end with the term
        object.__setattr__(self, "graph", copy(as_graph(self.graph, "graph")))
        object.__setattr__(self, "norms_of", tuple(self.norms_of))
        check_weight(self)
        if self.split not in ("net", "paper"):
            raise ValueError(f"split must be 'net' or 'paper', got {self.split!r}")
        if self.columns is not None and not isinstance(self.columns, slice):
            weights = np.asarray(self.columns.cpu() if isinstance(self.columns, Tensor) else self.columns, dtype=float)
            if weights.ndim != 1 or not (np.isfinite(weights).all() and (weights >= 0).all()):
                raise ValueError("columns must be a mask or finite weights >= 0, one per column")
            object.__setattr__(self, "columns", weights)
            object.__setattr__(self, "_nonzero", np.flatnonzero(weights).tolist())

    @property
    def factor_names(self) -> tuple[str, ...]:
        """The factor and those in `norms_of`."""
        return (self.on, *self.norms_of)

    @property
    def scale_free(self) -> bool:
        """Whether a component may be rescaled: where the other factors' norms weigh its columns."""
        return bool(self.norms_of)

    def check(self, factors: Factors) -> None:
        """Refuse factors of other lengths than the graph and the weights of the columns."""
        V, n = factors[self.on], self.graph.n_nodes
        if V.shape[-2] != n:
            raise ValueError(f"factors[{self.on!r}] has {V.shape[-2]} rows, but the graph has {n} nodes")
        k = len(self.columns) if isinstance(self.columns, np.ndarray) else V.shape[-1]
        for name in self.factor_names:
            if factors[name].shape[-1] != k:
                source = f"{self.on!r} has" if k == V.shape[-1] else "columns has weights for"
                raise ValueError(f"factors[{name!r}] has {factors[name].shape[-1]} columns, but {source} {k}")

    def _span(self, V: Tensor) -> slice | None:
        """Return the columns that the graph acts on, None for all; empty if there are none."""
        if self.columns is None:
            return None
        some = range(V.shape[-1])[self.columns] if isinstance(self.columns, slice) else self._nonzero
        return slice(min(some[0], some[-1]), max(some[0], some[-1]) + 1) if some else slice(0, 0)

    def block(self, factors: Factors, name: str) -> Block:
        """Return `+ D` and `- S`, weighted by column, for `on`; for one of `norms_of` the weights of its columns."""
        V = factors[self.on]
        span = self._span(V)
        if span == slice(0, 0):
            return Block()
        c = self._scale_columns(factors, span, skip=name)
        extend = lambda c: c if span is None else torch.constant_pad_nd(c, (span.start, V.shape[-1] - span.stop))
        if name == self.on:
            return Block(quads=(Quad(c, self.graph.degree(V), 1, span), Quad(c, self.graph, -1, span)))
        if self.split == "net":
            return Block(quads=(Quad(extend(c * self.graph.energy(V, span))),))
        vDv, vSv = self.graph.energy_parts(V, span)
        return Block(quads=(Quad(extend(c * vDv)), Quad(extend(c * vSv), sign=-1)))

    def value(self, factors: Factors) -> Tensor:
        """Sum edge by edge, never as a difference."""
        V = factors[self.on]
        span = self._span(V)
        energy = self.graph.energy(V, span)
        return (self._scale_columns(factors, span) * energy).sum((-2, -1), dtype=torch.float64)

    def _scale_columns(self, factors: Factors, span: slice | None, skip: str | None = None) -> Tensor:
        """Compute `weight c_j prod_b ||u^b_j||^2`, b in `norms_of` but for `skip`, over the span: `(..., 1, span)`."""
        V, columns, number = factors[self.on], span or slice(None), 1.0
        if not isinstance(self.weight, Tensor | Weight):
            number = float(self.weight)
        make = lambda: V.new_tensor(number * self._columns(V)[columns]).unsqueeze(0)
        c = self.graph.cache((number, V.device, V.dtype, V.shape[-1]), (), make)
        if isinstance(self.weight, Tensor | Weight):
            c = c * per_column(self.weight, factors, V)[..., columns]
        return reduce(torch.mul, [square_norms(factors[b])[..., columns] for b in self.norms_of if b != skip], c)

    def _columns(self, V: Tensor) -> np.ndarray:
        """Return the weights c_j of all columns, `(k,)`."""
        if isinstance(self.columns, np.ndarray):
            return self.columns
        c = np.zeros(V.shape[-1])
        c[self.columns or slice(None)] = 1
        return c
