"""Parameters that are refused, in one wording: the name, what would work, what was given."""

from __future__ import annotations

from typing import Any

from ...core.arguments import nonnegative, one_of, positive, whole
from ...core.graph.graph import Graph, as_graph

__all__ = ["graph_over", "nonnegative", "one_of", "positive", "whole"]


def graph_over(graph: Any, name: str, n_samples: int) -> Graph:
    """The links of an adjacency over the samples; another number of nodes is refused."""
    links = as_graph(graph, name)
    if links.n_nodes != n_samples:
        raise ValueError(f"{name} has {links.n_nodes} nodes, X has {n_samples} samples; one node per sample is needed")
    return links
