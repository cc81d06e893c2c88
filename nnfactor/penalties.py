"""Penalties that estimators take for their factors: `NMF(5, penalties={"V": [L1(0.1)], "U1": [Smooth(2.0)]})`.

The objective becomes `loss + sum weight p(F)`, everything in the units of the data and of the published factors.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite
from numbers import Real
from typing import Any, ClassVar

from .core.graph.graph import Graph, as_graph
from .core.terms import penalties as terms
from .core.terms.base import Term
from .core.terms.laplacian import Laplacian
from .graphs import grid_graph


@dataclass(frozen=True)
class Penalty(ABC):
    """A weight times a function of one factor.

    Parameters
    ----------
    weight : float >= 0
        For data times c it means the same when multiplied by c (`L1` on "V", `L21`), and when left as it is (`L2` and
        `Smooth` on "V"); it stands against a sum over all entries: for twice as many samples double those on bases.
    """

    weight: float
    degree: ClassVar[int] = 2  # a factor times c has c ** degree times the penalty

    def __post_init__(self) -> None:
        if isinstance(self.weight, bool) or not isinstance(self.weight, Real) or not 0 <= float(self.weight) < 1e308:
            raise ValueError(f"{type(self).__name__}: weight must be a finite number >= 0, got {self.weight!r}")

    @abstractmethod
    def term(self, on: str, weight: float, rows: int) -> Term:
        """Make the core's term for a factor of so many rows."""


@dataclass(frozen=True)
class L1(Penalty):
    """`weight sum |f|`: sparse entries."""

    degree: ClassVar[int] = 1

    def term(self, on: str, weight: float, rows: int) -> Term:
        """Make the core's term."""
        return terms.L1(on, weight)


@dataclass(frozen=True)
class L2(Penalty):
    """`weight ||F||^2`: small entries."""

    def term(self, on: str, weight: float, rows: int) -> Term:
        """Make the core's term."""
        return terms.L2(on, weight)


@dataclass(frozen=True)
class L21(Penalty):
    """`weight sum_i ||f_i||` over the rows: whole rows vanish."""

    degree: ClassVar[int] = 1

    def term(self, on: str, weight: float, rows: int) -> Term:
        """Make the core's term."""
        return terms.L21(on, weight)


@dataclass(frozen=True)
class Orthogonal(Penalty):
    """`weight sum_{i != j} f_i' f_j` over pairs of columns: components that overlap little."""

    def term(self, on: str, weight: float, rows: int) -> Term:
        """Make the core's term."""
        return terms.Orthogonal(on, weight)


@dataclass(frozen=True, eq=False)
class Smooth(Penalty):
    """`weight sum_{i ~ j} a_ij ||f_i - f_j||^2`: neighbours alike.

    Parameters
    ----------
    weight : float >= 0
    graph : adjacency `(rows, rows)`, Graph or None
        Which rows are neighbours. None: each and the next, as along a spectrum or in time.
    """

    graph: Any = None

    def term(self, on: str, weight: float, rows: int) -> Term:
        """Make the core's term: its Laplacian counts each edge once."""
        graph = _chain(rows) if self.graph is None else as_graph(self.graph)
        if graph.n_nodes != rows:
            raise ValueError(f"Smooth on {on!r}: the graph has {graph.n_nodes} nodes, but the factor {rows} rows")
        return Laplacian(graph, on, (), weight)


@lru_cache(maxsize=16)
def _chain(rows: int) -> Graph:
    """Make the graph of rows in a line; the same object for the same number, so that fits with it are one batch."""
    return grid_graph((rows,))


def check_penalty(name: str, penalty: Any) -> None:
    """Refuse what is no penalty."""
    if not isinstance(penalty, Penalty) or not isfinite(penalty.weight):
        raise ValueError(
            f"penalties[{name!r}] holds {penalty!r}; it must hold penalties of nnfactor.penalties, such as L1(0.1)"
        )
