"""Classifiers that spread a few labels over a neighbour graph, and what all semi-supervised classifiers share.

Harmonic functions (Zhu, Ghahramani and Lafferty 2003; GFHF in paper 003, HGF in paper 000) and learning with local and
global consistency (Zhou, Bousquet, Lal, Weston and Schoelkopf 2004; CONS).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import splu
from torch import Tensor

from ...core import Graph
from ...core.graph.neighbors import gaussian, median_length
from ...core.linalg import conjugate_gradients
from ..shared.inputs import Inputs
from ..shared.parameters import one_of
from .base import Points, SemiSupervised, as_float64, distances, graph_of

CHUNK = 1 << 22  # distances held at once


class _Propagation(SemiSupervised):
    """Scores of the training samples from a graph; new samples take a weighted mean of them."""

    def predict_proba(self, X: Any) -> Any:
        """Distribution over `classes_` (n_samples, n_classes), the class scores divided by their sum.

        The scores are sum_i w(x, x_i) F_i / sum_i w(x, x_i) over the training samples that `out_of_sample` names, w
        the Gaussian of width `sigma_`, computed so that far samples do not underflow.
        """
        scores, source = self._new(X)
        return source.to_caller(_shares(scores).to(source.data.dtype))

    def _read_graph(self, source: Inputs) -> None:
        """Samples, widths and graph; `_points` are in units of `_unit`, and of sigma where it is one per feature."""
        one_of("out_of_sample", self.out_of_sample, ("all", "neighbors"))
        self._points, self._unit = source.samples64(), source.scale
        given: Any = self.sigma
        per_feature = given is not None and not np.isscalar(given)
        if per_feature:
            given = np.asarray(given.cpu() if isinstance(given, Tensor) else given, dtype=np.float64)
            if given.shape != (self.n_features_in_,):
                need = f"use a number or one per feature, {self.n_features_in_}"
                raise ValueError(f"sigma has shape {given.shape}; {need}")
            self._points = _stretched(self._points, given / self._unit)
        links = graph_of(self.graph, self._points, self.n_neighbors)
        squared = _square_lengths(self._points, links)
        if given is None:
            self._width = median_length(squared)
        else:
            self._width = 1.0 if per_feature else float(given) / self._unit
        self.sigma_ = given if per_feature else self._width * self._unit
        self.graph_ = _weigh_links(links, squared, self._width) if isinstance(self.graph, str) else links

    def _decide(self, source: Inputs) -> Tensor:
        Z, P = source.samples64(), self._points
        Z = Z * (source.scale / self._unit) if source.scale != self._unit else Z
        sigma: Any = self.sigma_
        if not np.isscalar(sigma):
            Z = _stretched(Z, sigma / self._unit)
        F = as_float64(self._F, source.data.device)
        count = P.shape[0] if self.out_of_sample == "all" else min(int(self.n_neighbors), P.shape[0])
        step = max(1, CHUNK // P.shape[0])
        pieces = (Z[a : a + step] for a in range(0, Z.shape[0], step))
        return self._finish(torch.cat([_weighted_mean(z, P, self._width, F, count) for z in pieces]))

    def _finish(self, F: Tensor) -> Tensor:
        return F

    @property
    def _F(self) -> Any:
        return self.scores_


@dataclass(kw_only=True, eq=False, repr=False)
class HarmonicFunction(_Propagation):
    """Harmonic functions on a graph: F_u = (D_uu - W_uu)^-1 W_ul Y_l (Zhu et al. 2003; GFHF, HGF).

    Labelled samples keep their labels; every other is the weighted mean of its neighbours.

    Parameters
    ----------
    class_mass : bool
        Class mass normalisation (CMN): class c is scaled by (count_c + 1) / (l + C) over its mass, the sum of its
        column of F_u. False, as in the papers' tables.
    graph : "knn" or an adjacency (n_samples, n_samples)
        "knn": i and j are linked if one is among the nearest of the other, with weight exp(-||x - y||^2 / sigma^2), no
        factor 2. An adjacency (array, tensor, scipy sparse, `Graph`; symmetric, >= 0) is used as it is.
    n_neighbors : int
        7 as in paper 003; n_samples - 1 at most.
    sigma : None, number > 0 or array (n_features,)
        In the units of X. None: the median length of the links, which follows the scale of the data. One per feature:
        exp(-sum_k (x_k - y_k)^2 / sigma_k^2), neighbours found in that metric.
    out_of_sample : "all" or "neighbors"
        A new sample takes sum_i w(x, x_i) F_i / sum_i w(x, x_i) over all training samples, or over its
        `n_neighbors` nearest, as the graph would link it. With the median width far samples outweigh near ones by
        number: on 2000 faces of 38 people "neighbors" is right in 44 % where "all" is in 25 %.
    device, dtype
        As for `NMF`: "auto" follows the data, on CUDA if there is one. Systems are solved in float64.

    Attributes
    ----------
    classes_ : array (C,)
    transduction_ : (n_samples,)
        Labels of the training samples. Where no label reaches (a part of the graph without one): -1, "-1" or None.
    label_distributions_ : (n_samples, C)
        Rows sum to 1; zeros where no label reaches. With `class_mass` scaled, then normalised.
    scores_ : (n_samples, C)
        F, one-hot for labelled samples; before the mass normalisation they sum to 1 where a label reaches.
    sigma_, graph_, n_features_in_, feature_names_in_, fit_info_

    Notes
    -----
    The symmetric positive definite system (I - D^-1/2 W D^-1/2)_uu is solved for all classes at once by conjugate
    gradients: one sparse product an iteration, on the device, no n x n array and no fill-in, which a factorisation of a
    neighbour graph of high-dimensional data has in plenty. A graph it does not settle is factorised after all.

    Examples
    --------
    >>> from nnfactor import HarmonicFunction
    >>> X = [[0.0], [1.0], [2.0], [8.0], [9.0]]
    >>> model = HarmonicFunction(n_neighbors=1).fit(X, ["a", None, None, "b", None])
    >>> model.transduction_.tolist(), model.predict([[7.0]]).tolist()
    (['a', 'a', 'a', 'b', 'b'], ['b'])
    """

    class_mass: bool = False
    graph: Any = "knn"
    n_neighbors: int = 7
    sigma: Any = None
    out_of_sample: str = "all"
    device: Any = "auto"
    dtype: Any = "auto"

    def _learn(self, source: Inputs, codes: np.ndarray, Y: Tensor) -> tuple[Tensor, Tensor]:
        one_of("class_mass", self.class_mass, (True, False))
        self._read_graph(source)
        reached = as_float64(_reached(self.graph_, codes), Y.device).unsqueeze(1)
        free = reached & as_float64(codes < 0, Y.device).unsqueeze(1)
        root = _inverse_root(self.graph_, Y)
        F = Y + root * solve_propagation(self.graph_, 1.0, free, root * self.graph_.product(Y))
        total = F.sum(1, keepdim=True)
        F = torch.where((total - 1).abs() < 1e-6, F / torch.where(total > 0, total, 1), 0)  # else beyond float64
        self._scale = np.ones(Y.shape[1])
        if self.class_mass:
            mass = (F * (1 - Y.sum(1, keepdim=True))).sum(0)
            prior = (Y.sum(0) + 1) / (Y.sum() + Y.shape[1])
            self._scale = torch.where(mass > 0, prior / torch.where(mass > 0, mass, 1), 1).cpu().numpy()
        self._raw = source.to_caller(F.to(source.data.dtype))
        scores = torch.where(free, self._finish(F), Y)
        return scores, _shares(scores)

    def _finish(self, F: Tensor) -> Tensor:
        return F * as_float64(self._scale, F.device)

    @property
    def _F(self) -> Any:
        return self._raw


@dataclass(kw_only=True, eq=False, repr=False)
class LocalGlobalConsistency(_Propagation):
    """Local and global consistency: F = (I - alpha D^-1/2 W D^-1/2)^-1 Y (Zhou et al. 2004; CONS).

    Parameters
    ----------
    alpha : float in [0, 1)
        How far labels spread; 0.99 as in Zhou et al. Labelled samples may change their label.
    graph, n_neighbors, sigma, out_of_sample, device, dtype
        As for `HarmonicFunction`.

    Attributes
    ----------
    classes_, transduction_, sigma_, graph_, n_features_in_, feature_names_in_, fit_info_
        As for `HarmonicFunction`.
    label_distributions_ : (n_samples, C)
        Rows of `scores_` divided by their sum; zeros where no label reaches.
    scores_ : (n_samples, C)
        F.

    Examples
    --------
    >>> from nnfactor import LocalGlobalConsistency
    >>> X = [[0.0], [1.0], [2.0], [8.0], [9.0]]
    >>> LocalGlobalConsistency(n_neighbors=1).fit(X, [0, -1, -1, 1, -1]).transduction_.tolist()
    [0, 0, 0, 1, 1]
    """

    alpha: float = 0.99
    graph: Any = "knn"
    n_neighbors: int = 7
    sigma: Any = None
    out_of_sample: str = "all"
    device: Any = "auto"
    dtype: Any = "auto"

    def _learn(self, source: Inputs, codes: np.ndarray, Y: Tensor) -> tuple[Tensor, Tensor]:
        self._read_graph(source)
        reached = as_float64(_reached(self.graph_, codes), Y.device).unsqueeze(1)
        F = solve_propagation(self.graph_, float(self.alpha), reached, Y)
        return F, _shares(F)


def solve_propagation(links: Graph, alpha: float, mask: Tensor, rhs: Tensor) -> Tensor:
    """Solve (I - alpha D^-1/2 W D^-1/2) F = rhs on the masked samples, 0 elsewhere; rhs and F >= 0, (n, C).

    Conjugate gradients, all columns at once, until residuals are 1e-13 of the right-hand sides. If they do not settle,
    or some rows are so small that this says nothing about them, a sparse factorisation gives every entry to its own
    precision (the matrix is an M-matrix: nothing cancels).
    """
    root = _inverse_root(links, rhs) * mask
    product = lambda v: v - alpha * root * links.product(root * v)
    b = rhs * mask
    enough = 1e-26 * b.square().sum(0)
    F, settled = conjugate_gradients(product, torch.zeros_like(b), b, 1 + min(4 * len(b), 2000), enough, every=10)
    largest = F.amax(1, keepdim=True)
    if settled and not bool((mask & (largest < 1e-9 * F.max())).any()):
        return F.clamp(min=0)
    return _solve_by_factors(links, alpha, root, b).clamp(min=0)


def _shares(F: Tensor) -> Tensor:
    total = F.sum(1, keepdim=True)
    return torch.where(total > 0, F / torch.where(total > 0, total, 1), 0)


def _stretched(points: Points, sigma: np.ndarray) -> Points:
    return sp.csr_array(points * (1 / sigma)) if sp.issparse(points) else points / as_float64(sigma, points.device)


def _square_lengths(points: Points, links: Graph) -> np.ndarray:
    """Squared length of every link i < j, from differences, in the order of the upper triangle."""
    upper = sp.triu(links.adjacency, k=1).tocoo()
    step = max(1, CHUNK // max(1, points.shape[1]))
    pieces = [np.zeros(0)]
    for a in range(0, upper.nnz, step):
        i, j = upper.row[a : a + step], upper.col[a : a + step]
        if sp.issparse(points):
            pieces.append((points[i] - points[j]).power(2).sum(axis=1))
        else:
            ends = (points[torch.from_numpy(side.astype(np.int64)).to(points.device)] for side in (i, j))
            pieces.append((next(ends) - next(ends)).square().sum(1).cpu().numpy())
    return np.concatenate(pieces)


def _weigh_links(links: Graph, squared: np.ndarray, width: float) -> Graph:
    """The same links with Gaussian weights of their squared lengths, given in the order of the upper triangle."""
    upper = sp.triu(links.adjacency, k=1).tocoo()
    weights = gaussian(torch.from_numpy(squared), width).numpy()  # may underflow to 0: then the link vanishes
    half = sp.csr_array((weights, (upper.row, upper.col)), shape=upper.shape)
    return Graph(half + half.T)


def _weighted_mean(Z: Points, P: Points, width: float, F: Tensor, count: int) -> Tensor:
    """sum_i w(z, x_i) F_i / sum_i w(z, x_i) over the `count` nearest, all weights divided by the largest of them."""
    squared = distances(Z, P).to(F.device)
    if count < P.shape[0]:
        near = squared.topk(count, largest=False)
        squared = torch.full_like(squared, torch.inf).scatter(1, near.indices, near.values)
    w = gaussian(squared - squared.amin(1, keepdim=True), width)
    return w @ F / w.sum(1, keepdim=True)


def _inverse_root(links: Graph, like: Tensor) -> Tensor:
    """D^-1/2, (n, 1); 0 at an isolated sample."""
    degree = links.degree(like)
    return torch.where(degree > 0, degree.clamp(min=1e-300).rsqrt(), 0)


def _reached(links: Graph, codes: np.ndarray) -> np.ndarray:
    """Whether the connected part of a sample holds a label."""
    parts = connected_components(links.adjacency, directed=False)[1]
    return np.isin(parts, parts[codes >= 0])


def _solve_by_factors(links: Graph, alpha: float, root: Tensor, b: Tensor) -> Tensor:
    R = sp.dia_array((root.cpu().numpy().T, 0), shape=(len(b), len(b)))
    A = sp.csc_array(sp.eye_array(len(b)) - alpha * (R @ links.adjacency @ R))
    try:
        F = splu(A, permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True}, diag_pivot_thresh=0.0).solve(
            b.cpu().numpy()
        )
    except RuntimeError:  # singular to working precision: nothing can be said
        return torch.zeros_like(b)
    return torch.from_numpy(np.nan_to_num(F, nan=0.0, posinf=0.0, neginf=0.0)).to(b)
