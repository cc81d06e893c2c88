"""Parameters that are refused, in one wording: the name, what would work, what was given."""

from __future__ import annotations

import numbers
from math import isfinite
from typing import Any

from ...core.arguments import nonnegative, one_of, positive, whole
from ...core.graph.graph import Graph, as_graph

__all__ = ["beta_of", "graph_over", "nonnegative", "one_of", "positive", "whole"]


def graph_over(graph: Any, name: str, n_samples: int) -> Graph:
    """Read an adjacency over the samples; refuse another number of nodes."""
    links = as_graph(graph, name)
    if links.n_nodes != n_samples:
        raise ValueError(f"{name} has {links.n_nodes} nodes, X has {n_samples} samples; one node per sample is needed")
    return links


def beta_of(loss: Any) -> float:
    """Return the exponent of a loss: "frobenius" is 2, "kullback-leibler" 1, a number itself."""
    named = {"frobenius": 2.0, "kullback-leibler": 1.0}
    if isinstance(loss, str) and loss in named:
        return named[loss]
    if isinstance(loss, numbers.Real) and not isinstance(loss, bool) and isfinite(float(loss)):
        return float(loss)
    raise ValueError(
        f"loss={loss!r} is not known; use 'frobenius', 'kullback-leibler' or a number beta (0: Itakura-Saito)"
    )
