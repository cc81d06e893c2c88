"""Parameters that are refused, in one wording: the name, what would work, what was given."""

import numbers
from collections.abc import Sequence
from math import isfinite
from typing import Any, Literal

import numpy as np
import torch

from ...core.arguments import nonnegative, one_of, positive, whole
from ...core.data.distributed.sample_sums import WHOLE, SampleSums
from ...core.graph.graph import Graph, as_graph
from ...graphs import knn_graph

Init = Literal["auto", "random", "nndsvda"] | tuple[Any, ...] | list[Any]  # a word, or arrays: V, U1, ...
Loss = Literal["frobenius", "kullback-leibler", "kl", "itakura-saito"] | float
Solver = Literal["auto", "multiplicative", "mu", "hals", "projected"]
Coefficients = Literal["nnls", "pinv"]
ShrunkCoefficients = Literal["nnls", "pinv", "ridge"]  # of models with a strength `ridge`
Ridge = float | Literal["cv"]
Device = str | torch.device  # "auto", "cpu", "cuda", "cuda:1", ...
DType = Literal["auto", "float32", "float64"] | torch.dtype | np.dtype | type[np.floating]
Seed = int | np.random.RandomState | np.random.Generator | None

__all__ = [
    "Coefficients",
    "DType",
    "Device",
    "GivenSeeds",
    "Init",
    "Loss",
    "Ridge",
    "Seed",
    "ShrunkCoefficients",
    "Solver",
    "beta_of",
    "check_neighbors",
    "graph_over",
    "lists_restarts",
    "loss_exponent",
    "neighbor_graph",
    "nonnegative",
    "one_of",
    "positive",
    "whole",
]


class GivenSeeds(np.random.RandomState):
    """A random state that hands out seeds which were drawn before: those of some restarts of a fit."""

    def __init__(self, seeds: Sequence[int]) -> None:
        super().__init__(0)
        self.seeds = list(seeds)

    def randint(self, low: Any, high: Any = None, size: Any = None, dtype: Any = int) -> Any:
        """Return the seeds, whatever the bounds."""
        return np.array(self.seeds, dtype=dtype)

    def __reduce__(self) -> Any:
        return GivenSeeds, (self.seeds,)


def lists_restarts(estimator: Any) -> bool:
    """Tell whether a fit publishes `restarts_`: of several restarts, or of those that one machine has a share of."""
    return estimator.n_init > 1 or isinstance(estimator.random_state, GivenSeeds)


def graph_over(graph: Any, name: str, n_samples: int, sums: SampleSums = WHOLE) -> Graph:
    """Read an adjacency over the samples, or what this process has of its rows; refuse another number of nodes."""
    read = as_graph(graph if sums.alone or isinstance(graph, Graph) else sums.join(graph, name), name)
    if read.n_nodes != n_samples:
        raise ValueError(f"{name} has {read.n_nodes} nodes, X has {n_samples} samples; one node per sample is needed")
    return read


def check_neighbors(neighbors: Any) -> None:
    """Refuse what is neither a number of nearest neighbours nor, as far as one sees, an adjacency."""
    if isinstance(neighbors, numbers.Integral | str) or neighbors is None:
        whole("neighbors", neighbors, also="an adjacency or ")


def neighbor_graph(neighbors: Any, samples: Any, n_samples: int, sums: SampleSums = WHOLE) -> Graph:
    """Link every sample with so many nearest ones, or read the adjacency that was given."""
    if isinstance(neighbors, numbers.Integral):
        return knn_graph(samples, int(neighbors))
    return graph_over(neighbors, "neighbors", n_samples, sums)


def loss_exponent(estimator: Any) -> float:
    """Return the exponent of an estimator's loss; one without the parameter minimises the Frobenius norm."""
    return beta_of(getattr(estimator, "loss", "frobenius"))


def beta_of(loss: Any) -> float:
    """Return the exponent of a loss: a number itself, or that of a name."""
    named = {"frobenius": 2.0, "kullback-leibler": 1.0, "kl": 1.0, "itakura-saito": 0.0}
    if isinstance(loss, str) and loss in named:
        return named[loss]
    if isinstance(loss, numbers.Real) and not isinstance(loss, bool) and isfinite(float(loss)):
        return float(loss)
    raise ValueError(
        f"loss={loss!r} is not known; use 'frobenius', 'kullback-leibler' or 'kl', 'itakura-saito', or a number beta"
    )
