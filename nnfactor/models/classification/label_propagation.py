"""Classifiers that propagate a few labels over a neighbour graph.

Harmonic functions (Zhu, Ghahramani and Lafferty 2003; GFHF in Fan et al. 2011, HGF in Wang et al. 2009b) and learning
with local and global consistency (Zhou, Bousquet, Lal, Weston and Schoelkopf 2004; CONS).
"""

from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, cast

import numpy as np
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import splu
from torch import Tensor

from ...core import Graph
from ...core.arrays import Array
from ...core.factors import divide
from ...core.graph.distances import gaussian, median_length
from ...core.graph.neighbors import read_points
from ...core.labels import to_host
from ...core.linalg import conjugate_gradients
from ..shared.inputs import Inputs, as_float64, as_given
from ..shared.parameters import Device, DType, one_of, positive, whole
from .base import Points, SemiSupervised, given_width, graph_of, invert_degrees, measure_distances

CHUNK = 1 << 22  # distances held at once


class _Propagation(SemiSupervised):
    """Scores of the training samples from a graph; new samples take a weighted mean of them (see `out_of_sample`)."""

    graph: Any
    n_neighbors: int
    sigma: Any
    gamma: float | None
    out_of_sample: Literal["all", "neighbors"]
    graph_: Graph
    _known: Array

    def predict_proba(self, X: Any) -> Array:
        """Return distributions over `classes_` (n_samples, n_classes): the class scores divided by their sum."""
        scores, inputs = self._score_new(X)
        return as_given(divide(scores, scores.sum(1, keepdim=True)), inputs)

    def _check_parameters(self) -> None:
        whole("n_neighbors", self.n_neighbors)
        one_of("out_of_sample", self.out_of_sample, ("all", "neighbors"))
        sigma = given_width(self.sigma, self.gamma, None)
        if np.isscalar(sigma):
            positive("sigma", sigma)
        elif sigma is not None:
            widths = to_host(sigma, "sigma")
            if not (widths.dtype.kind in "fiu" and (widths > 0).all() and np.isfinite(widths).all()):
                raise ValueError(f"sigma must be > 0 and finite for every feature, got {self.sigma!r}")

    def _read_graph(self, inputs: Inputs) -> None:
        """Keep samples, widths and graph; `_points` are in units of `_unit`, and of sigma if it is one per feature."""
        self._points, self._unit = inputs.samples64(copy=True), inputs.scale
        n = self._points.shape[0]
        self._count = n if self.out_of_sample == "all" else min(int(self.n_neighbors), n)
        given: Any = given_width(self.sigma, self.gamma, None)
        per_feature = given is not None and not np.isscalar(given)
        if per_feature:
            given = to_host(given, "sigma").astype(np.float64)
            if given.shape != (self.n_features_in_,):
                need = f"use a number or one per feature, {self.n_features_in_}"
                raise ValueError(f"sigma has shape {given.shape}; {need}")
            self._points = _divide_features(self._points, given / self._unit)
        self.graph_ = graph_of(self.graph, self._points, self.n_neighbors)
        links = sp.triu(self.graph_.adjacency, k=1).tocoo()
        squared = _measure_links(self._points, links.row, links.col)
        if given is None:
            self._width = median_length(squared)
        else:
            self._width = 1.0 if per_feature else float(given) / self._unit
        self.sigma_ = given if per_feature else self._width * self._unit
        if isinstance(self.graph, str) and self.graph == "knn":
            weights = gaussian(torch.from_numpy(squared), self._width).numpy()  # 0 by underflow: the link vanishes
            half = sp.csr_array((weights, (links.row, links.col)), shape=links.shape)
            self.graph_ = Graph(half + half.T)

    def _predict_scores(self, inputs: Inputs) -> Tensor:
        Z, P, sigma = inputs.samples64(), self._points, cast(Any, self.sigma_)
        Z = Z * (inputs.scale / self._unit) if inputs.scale != self._unit else Z
        if not np.isscalar(sigma):
            Z = _divide_features(Z, sigma / self._unit)
        F = as_float64(self._known, inputs.data.device)
        step = max(1, CHUNK // P.shape[0])
        pieces = (Z[a : a + step] for a in range(0, Z.shape[0], step))
        return torch.cat([_average(z, P, self._width, F, self._count) for z in pieces])


@dataclass(kw_only=True, eq=False, repr=False)
class HarmonicFunction(_Propagation):
    """Harmonic functions on a graph: F_u = (D_uu - W_uu)^-1 W_ul Y_l (Zhu et al. 2003; GFHF, HGF).

    Labelled samples keep their labels; every other is the weighted mean of its neighbours.

    Parameters
    ----------
    class_mass : bool
        Class mass normalisation (CMN): class c is scaled by (count_c + 1) / (l + C) over its mass, the sum of its
        column of F_u. False, as in the papers' tables.
    graph : "knn", "linear_neighborhood" or an adjacency (n_samples, n_samples)
        "knn": i and j are linked if one is among the nearest of the other, with weight exp(-||x - y||^2 / sigma^2), no
        factor 2. "linear_neighborhood": weights of reconstruction from the nearest, those of i and of j averaged
        (Wang and Zhang 2008; `graphs.linear_neighborhood_graph`). An adjacency (array, tensor, scipy sparse, `Graph`;
        symmetric, >= 0) is used as it is.
    n_neighbors : int
        7 as in Fan et al. 2011; n_samples - 1 at most.
    sigma : None, number > 0 or array (n_features,)
        In the units of X. None: the median length of the links, which follows the scale of the data. One per feature:
        exp(-sum_k (x_k - y_k)^2 / sigma_k^2), neighbours found in that metric.
    out_of_sample : "all" or "neighbors"
        A new sample takes sum_i w(x, x_i) F_i / sum_i w(x, x_i), w the Gaussian of width `sigma_`, over all training
        samples, or over its `n_neighbors` nearest, as the graph would link it. With the median width far samples
        outweigh near ones by number: on 2000 faces of 38 people "neighbors" is right in 44 % where "all" is in 25 %.
    device, dtype
        As for `NMF`: "auto" follows the data, on CUDA if there is one. Systems are solved in float64.
    gamma : float > 0 or None
        The weights as scikit-learn writes them, exp(-gamma ||x - y||^2), in place of sigma: gamma = 1 / sigma^2.
        ValueError if sigma is given too.

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
    Conjugate gradients solve the symmetric positive definite system (I - D^-1/2 W D^-1/2)_uu for all classes at once:
    one sparse product an iteration, no n x n array and no fill-in. Where they do not settle it is factorised.

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
    out_of_sample: Literal["all", "neighbors"] = "all"
    device: Device = "auto"
    dtype: DType = "auto"
    gamma: float | None = None

    def _check_parameters(self) -> None:
        super()._check_parameters()
        one_of("class_mass", self.class_mass, (True, False))

    def _fit_scores(self, inputs: Inputs, class_codes: np.ndarray, Y: Tensor) -> tuple[Tensor, Tensor]:
        self._read_graph(inputs)
        reached = _mark_reached(self.graph_, class_codes, Y.device)
        free = reached & (Y.sum(1, keepdim=True) == 0)
        root = invert_degrees(self.graph_, Y)
        F = Y + root * solve_propagation(self.graph_, 1.0, free, root * self.graph_.product(Y))
        total = F.sum(1, keepdim=True)
        F = torch.where((total - 1).abs() < 1e-6, divide(F, total), 0)  # 0: beyond the range of float64
        scale = torch.ones_like(total[0])
        if self.class_mass:
            mass = (F * (1 - Y.sum(1, keepdim=True))).sum(0)
            prior = (Y.sum(0) + 1) / (Y.sum() + Y.shape[1])
            scale = torch.where(mass > 0, divide(prior, mass), 1)
        self._known, self._scale = as_given(F, inputs), scale.cpu().numpy()
        scores = torch.where(free, F * scale, Y)
        return scores, divide(scores, scores.sum(1, keepdim=True))

    def _predict_scores(self, inputs: Inputs) -> Tensor:
        return super()._predict_scores(inputs) * as_float64(self._scale, inputs.data.device)


@dataclass(kw_only=True, eq=False, repr=False)
class LocalGlobalConsistency(_Propagation):
    """Local and global consistency: F = (I - alpha D^-1/2 W D^-1/2)^-1 Y (Zhou et al. 2004; CONS).

    Parameters
    ----------
    alpha : float in [0, 1)
        How far labels go; 0.99 as in Zhou et al. Labelled samples may change their label.
    graph, n_neighbors, sigma, out_of_sample, device, dtype, gamma
        As for `HarmonicFunction`.

    Attributes
    ----------
    scores_, label_distributions_ : (n_samples, C)
        F, and its rows divided by their sum; zeros where no label reaches.
    classes_, transduction_, sigma_, graph_, n_features_in_, feature_names_in_, fit_info_
        As for `HarmonicFunction`.

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
    out_of_sample: Literal["all", "neighbors"] = "all"
    device: Device = "auto"
    dtype: DType = "auto"
    gamma: float | None = None

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not isinstance(self.alpha, Real) or isinstance(self.alpha, bool) or not 0 <= float(self.alpha) < 1:
            raise ValueError(f"alpha must be in [0, 1), got {self.alpha!r}")

    def _fit_scores(self, inputs: Inputs, class_codes: np.ndarray, Y: Tensor) -> tuple[Tensor, Tensor]:
        self._read_graph(inputs)
        reached = _mark_reached(self.graph_, class_codes, Y.device)
        F = solve_propagation(self.graph_, float(self.alpha), reached, Y)
        self._known = as_given(F, inputs)
        return F, divide(F, F.sum(1, keepdim=True))


def solve_propagation(links: Graph, alpha: float, mask: Tensor, rhs: Tensor) -> Tensor:
    """Solve (I - alpha D^-1/2 W D^-1/2) F = rhs on the masked samples, 0 elsewhere; rhs and F >= 0, (n, C).

    By conjugate gradients until residuals are 1e-13 of rhs. If they do not settle, or some rows are so small that this
    says nothing about them, a sparse factorisation gives every entry to its own precision (no entry of an M-matrix's
    inverse cancels).
    """
    root = invert_degrees(links, rhs) * mask
    product = lambda v: v - alpha * root * links.product(root * v)
    b = rhs * mask
    enough = 1e-26 * b.square().sum(0)
    F, settled = conjugate_gradients(product, torch.zeros_like(b), b, 1 + min(4 * len(b), 2000), enough, every=10)
    largest = F.amax(1, keepdim=True)
    if settled and not bool((mask & (largest < 1e-9 * F.max())).any()):
        return F.clamp(min=0)
    return _solve_by_factors(links, alpha, root, b).clamp(min=0)


def _divide_features(points: Points, sigma: np.ndarray) -> Points:
    """Divide every feature by its width."""
    return sp.csr_array(points * (1 / sigma)) if sp.issparse(points) else points / as_float64(sigma, points.device)


def _measure_links(points: Points, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """Measure the squared length of links, from differences."""
    samples = read_points(points)
    sides = (torch.from_numpy(side.astype(np.int64)).to(samples.device) for side in (i, j))
    return samples.measure(*sides).cpu().numpy() * samples.unit**2


def _average(Z: Points, P: Points, width: float, F: Tensor, count: int) -> Tensor:
    """Average F over the `count` nearest: sum_i w(z, x_i) F_i / sum_i w(z, x_i), weights divided by the largest."""
    squared = measure_distances(Z, P).to(F.device)
    if count < P.shape[0]:
        near = squared.topk(count, largest=False)
        squared = torch.full_like(squared, torch.inf).scatter(1, near.indices, near.values)
    w = gaussian(squared - squared.amin(1, keepdim=True), width)
    return w @ F / w.sum(1, keepdim=True)


def _mark_reached(links: Graph, codes: np.ndarray, device: torch.device) -> Tensor:
    """Tell whether the connected part of a sample holds a label, (n, 1)."""
    parts = connected_components(links.adjacency, directed=False)[1]
    return torch.from_numpy(np.isin(parts, parts[codes >= 0])).to(device).unsqueeze(1)


def _solve_by_factors(links: Graph, alpha: float, root: Tensor, b: Tensor) -> Tensor:
    """Solve the system of `solve_propagation` by a sparse factorisation on the host; root is D^-1/2 (n, 1)."""
    R = sp.dia_array((root.cpu().numpy().T, 0), shape=(len(b), len(b)))
    A = sp.csc_array(sp.eye_array(len(b)) - alpha * (R @ links.adjacency @ R))
    try:
        factors = splu(A, permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True}, diag_pivot_thresh=0.0)
        F = factors.solve(b.cpu().numpy())
    except RuntimeError:  # singular to working precision: nothing can be said
        return torch.zeros_like(b)
    return torch.from_numpy(np.nan_to_num(F, nan=0.0, posinf=0.0, neginf=0.0)).to(b)
