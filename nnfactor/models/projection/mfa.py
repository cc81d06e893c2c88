"""Marginal Fisher analysis (Yan et al. 2007) and its semi-supervised form (Wang et al. 2009b)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import numpy as np
import scipy.linalg
import scipy.sparse as sp
import torch
from torch import Tensor

from ...core import Graph
from ...core.labels import encode_labels
from ...graphs import marginal_fisher_graphs
from ..shared.fitting import forget_and_restore_on_error
from ..shared.inputs import read
from ..shared.parameters import Device, DType, check_neighbors, graph_over, neighbor_graph, nonnegative, one_of, whole
from .base import DenseRows, Projection, Space, SparseRows, fix_signs

EPS = float(np.finfo(np.float64).eps)

SHORTEST = (
    1e-6  # of the longest principal axis: shorter ones are spikes, and lost in the Gram matrix of tall sparse data
)

INFINITE = 1e-10  # a ratio above one over this, in units of the two traces, has a denominator of rounding only


class _MarginalFisher(Projection):
    """Directions of the largest ratios of two graph energies, over all samples unless a subclass chooses."""

    n_components: int
    n_neighbors: int | None
    n_pairs: int
    pca: int | Literal["auto"] | None
    scaling: Literal["unit", "orthonormal", "b-orthonormal"]
    graph: Any
    graph_: tuple[Graph, Graph]
    n_pca_: int
    classes_: np.ndarray

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the directions.

        Parameters
        ----------
        X : array, tensor, DataFrame or scipy sparse matrix (n_samples, n_features)
            Any sign; never changed.
        y : array (n_samples,)
            Labels; -1 and NaN among numbers, None, NaN, -1, "-1" and "" among text and objects are unlabelled.

        Raises
        ------
        ValueError
            Bad data or parameters; no labels, or all -1, with graphs that are built from labels; adjacencies of another
            size, or not symmetric and nonnegative.
        """
        self._check_parameters()
        with forget_and_restore_on_error(self):
            inputs = read(self, X, reset=True, signed=True)
            X = inputs.points()
            intrinsic, penalty, keep = self._build_graphs(X, y)
            n = len(keep)
            auto = max(1, n - max(1, len(self.classes_)))
            dimensions = n if self.pca is None else auto if self.pca == "auto" else int(self.pca)
            with torch.no_grad():
                space = _Principal.of(X[keep], dimensions, SHORTEST if self.pca == "auto" else 0.0)
                A, B = space.energy(penalty, keep), self._denominator(space, X, intrinsic, keep)
                V, ratios = _maximize_ratios(A, B, space.lengths, int(self.n_components))
                W = fix_signs(self._scale_directions(space, V, B, ratios, inputs.scale))
            self._publish(inputs, W, space.mean)
            self.eigenvalues_ = inputs.to_caller(ratios.to(inputs.data.device))
            self.graph_, self.n_pca_ = (intrinsic, penalty), len(space.lengths)
        return self

    def _denominator(self, space: _Principal, X: Any, intrinsic: Graph, keep: np.ndarray) -> Tensor:
        """Compute the matrix below the ratio, over the principal coordinates of the samples `keep`."""
        return space.energy(intrinsic, keep)

    def _choose_samples(self, codes: np.ndarray, *graphs: Graph) -> np.ndarray:
        """Return the indices of the samples that take part."""
        return np.arange(len(codes))

    def _build_graphs(self, X: Any, y: Any) -> tuple[Graph, Graph, np.ndarray]:
        """Return the intrinsic and the penalty graph over all samples, and the samples that take part."""
        n = X.shape[0]
        built = isinstance(self.graph, str)
        if y is None and built:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None: graph='marginal_fisher' is "
                "built from labels (-1: unlabelled); without labels pass graph=(intrinsic, penalty)"
            )
        codes, self.classes_ = (np.zeros(n, dtype=int), np.array([])) if y is None else encode_labels(y, n)
        if built and not (codes >= 0).any():
            raise ValueError(f"y has no labelled sample among {n}; {type(self).__name__} needs at least one")
        if built:
            intrinsic, penalty = marginal_fisher_graphs(X, codes, n_neighbors=self.n_neighbors, n_pairs=self.n_pairs)
        else:
            intrinsic, penalty = (graph_over(A, f"graph[{i}]", n) for i, A in enumerate(self.graph))
        keep = self._choose_samples(codes, intrinsic, penalty)
        if not len(keep):
            raise ValueError(f"no sample of {n} has a label or a link; {type(self).__name__} needs at least one")
        return intrinsic, penalty, keep

    def _scale_directions(self, space: _Principal, V: Tensor, B: Tensor, ratios: Tensor, unit: float) -> Tensor:
        """Bring directions to the features and to the length that is asked for."""
        W = space.lift(V / space.lengths[:, None])
        lengths = W.norm(dim=0)
        if self.scaling == "b-orthonormal":
            energy = (V * (B @ V)).sum(0).clamp(min=0).sqrt()
            lengths = torch.where(ratios.isinf() | (energy == 0), lengths, energy * unit)
        W = W / lengths
        return torch.linalg.qr(W)[0] if self.scaling == "orthonormal" else W

    def _check_parameters(self) -> None:
        whole("n_components", self.n_components)
        one_of("scaling", self.scaling, ("unit", "orthonormal", "b-orthonormal"))
        if self.pca is not None and not (isinstance(self.pca, str) and self.pca == "auto"):
            whole("pca", self.pca, also="'auto', None or ")
        if isinstance(self.graph, str):
            one_of("graph", self.graph, ("marginal_fisher",), "a pair (intrinsic, penalty) of adjacencies")
        elif not isinstance(self.graph, Sequence) or len(self.graph) != 2:
            raise ValueError(f"graph={self.graph!r} is not known; use 'marginal_fisher' or a pair (intrinsic, penalty)")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = isinstance(self.graph, str)
        return tags


@dataclass(kw_only=True, eq=False, repr=False)
class MFA(_MarginalFisher):
    """Marginal Fisher analysis: directions that part the classes where they meet and keep each class together.

    Maximises w'X'L^p X w / w'X'L X w (Yan et al. 2007) after PCA, with L and L^p the Laplacians of the intrinsic graph
    (nearest neighbours within a class) and of the penalty graph (shortest pairs between a class and the others).

    Parameters
    ----------
    n_components : int
        Number of directions; no more than PCA leaves are kept.
    n_neighbors, n_pairs : int or None, int
        Neighbours within the class and pairs between classes, as in `graphs.marginal_fisher_graphs`: None is
        min(n_c - 1, 3), and 20.
    pca : "auto", int or None
        Dimensions that PCA leaves. "auto": N - N_c for N samples in N_c classes, as in the papers, at least 1: the
        denominator is then regular as a rule. Axes shorter than 1e-6 of the longest are left out too: ratios are blind
        to size, and a spike of rounding would lead. None: all that hold variance.
    scaling : {"unit", "orthonormal", "b-orthonormal"}
        "unit": directions of length 1. "b-orthonormal": w'X'LXw = 1, what eigenvalue routines return; directions in
        which classes hardly vary become long (on ORL 1-NN is right in 46 %, with "unit" in 94 %). "orthonormal": their
        QR basis; often the best, but no longer the solutions.
    graph : "marginal_fisher" or (intrinsic, penalty)
        Or two adjacencies over all samples, each dense, scipy sparse or a `Graph`; `y` may then be None (N_c = 1).
    device, dtype
        As for `DPCA`.

    Attributes
    ----------
    components_ : (n_components_, n_features)
        One direction a row; the largest entry (the first of equals) is positive.
    eigenvalues_ : (n_components_,)
        The ratios, largest first, float64; inf where the denominator vanishes. Not of the QR basis.
    graph_ : (Graph, Graph)
        Intrinsic and penalty graph over all samples.
    mean_ : (n_features,); n_components_, n_pca_ : int
    classes_, n_features_in_, feature_names_in_, fit_info_

    Notes
    -----
    Unlabelled samples have no part: PCA, graphs and mean are those of the labelled, as in Wang et al. 2009b. With
    `graph=` the samples that have neither label nor link are left out. Distances for the graphs are those of the
    samples as given.

    Nothing is regularised. Where the denominator vanishes the ratio is inf: such directions come first, orthonormal,
    the largest w'X'L^p X w first. Where both vanish nothing is known: they come last, by variance. No penalty link at
    all (one class): PCA.

    Examples
    --------
    >>> import numpy as np
    >>> from nnfactor import MFA
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1], 30)
    >>> X = rng.normal(size=(60, 3)) * [1, 20, 1]
    >>> X[:, 2] += 6 * y                                   # what tells the classes apart
    >>> np.abs(MFA(n_components=1).fit(X, y).components_[0]).round().astype(int)
    array([0, 0, 1])
    """

    n_components: int = field(kw_only=False)
    n_neighbors: int | None = None
    n_pairs: int = 20
    pca: int | Literal["auto"] | None = "auto"
    scaling: Literal["unit", "orthonormal", "b-orthonormal"] = "unit"
    graph: Any = "marginal_fisher"
    device: Device = "auto"
    dtype: DType = "auto"

    def _choose_samples(self, codes: np.ndarray, *graphs: Graph) -> np.ndarray:
        """Return those with a label or a link."""
        degree = sum(links.degree(torch.zeros(1, dtype=torch.float64, device="cpu")) for links in graphs)
        return np.flatnonzero((codes >= 0) | (np.ravel(degree) > 0))


@dataclass(kw_only=True, eq=False, repr=False)
class SMFA(_MarginalFisher):
    """Semi-supervised marginal Fisher analysis: unlabelled samples join through a neighbour graph (Wang et al. 2009b).

    Maximises w'X'L^p X w / w'X'(L + beta L^s) X w over all samples after PCA, with L^s the Laplacian of the nearest
    neighbour graph over labelled and unlabelled samples. At least one sample needs a label.

    Parameters
    ----------
    n_components, n_neighbors, n_pairs, scaling, graph, device, dtype
        As for `MFA`.
    beta : float >= 0
        Weight of the neighbour graph; the paper chooses it from 1e-6 to 1e3. Free of the unit of the data. With 0 the
        unlabelled enter through PCA only.
    neighbors : int or adjacency
        p of the p-nearest-neighbour graph (weights 1; the paper does not print its p, 5 is common practice), or an
        adjacency over all samples.
    pca : "auto", int or None
        "auto": N_all - N_c, the unlabelled counted, as in the paper. One to three times N_c often classifies better:
        choose it by cross-validation (docs/findings/n2s2l_accuracy.md).

    Attributes
    ----------
    neighbors_ : Graph
    components_, eigenvalues_, mean_, n_components_, n_pca_, graph_, classes_, n_features_in_, \
feature_names_in_, fit_info_
        As for `MFA`; the mean is that of all samples.

    Examples
    --------
    >>> import numpy as np
    >>> from nnfactor import SMFA
    >>> rng = np.random.default_rng(0)
    >>> truth = np.repeat([0, 1], 30)
    >>> X = rng.normal(size=(60, 3)) * [1, 20, 1]
    >>> X[:, 2] += 8 * truth
    >>> y = np.where(np.arange(60) % 10 < 3, truth, -1)    # three labelled of every ten
    >>> np.abs(SMFA(n_components=1, beta=0.1).fit(X, y).components_[0]).round().astype(int)
    array([0, 0, 1])
    """

    n_components: int = field(kw_only=False)
    beta: float = 1.0
    neighbors: Any = 5
    n_neighbors: int | None = None
    n_pairs: int = 20
    pca: int | Literal["auto"] | None = "auto"
    scaling: Literal["unit", "orthonormal", "b-orthonormal"] = "unit"
    graph: Any = "marginal_fisher"
    device: Device = "auto"
    dtype: DType = "auto"

    def _denominator(self, space: _Principal, X: Any, intrinsic: Graph, keep: np.ndarray) -> Tensor:
        self.neighbors_ = neighbor_graph(self.neighbors, X, X.shape[0])
        return space.energy(intrinsic, keep) + float(self.beta) * space.energy(self.neighbors_, keep)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        nonnegative("beta", self.beta)
        check_neighbors(self.neighbors)


@dataclass(frozen=True, eq=False)
class _Principal:
    """Samples in principal coordinates of unit variance `U`, `X - mean ~ U diag(lengths) Q'`; ratios stay the same."""

    rows: DenseRows | SparseRows
    lengths: Tensor  # (r,), r >= 1; 1 if the data do not vary
    mean: Tensor
    lift: Any

    @classmethod
    def of(cls, X: Tensor | sp.csr_array, dimensions: int, shortest: float) -> _Principal:
        """Keep so many axes at most, none of them shorter than that share of the longest."""
        space = Space.of(X, pad=1)  # so that there is a direction even if nothing varies
        if isinstance(space.rows, SparseRows):
            scatter = space.rows.within(np.zeros(X.shape[0], dtype=int), np.ones(1))
            values, Q = torch.linalg.eigh(scatter)
            values, Q = values.flip(0).clamp(min=0), Q.flip(1)
            noise = EPS * X.shape[0] * float(space.rows.X.power(2).sum(axis=0).max())
            s = torch.where(values > max(noise, SHORTEST**2 * float(values[0])), values, 0).sqrt()
            r, s = _choose_rank(s, dimensions)
            rows: DenseRows | SparseRows = SparseRows(space.rows.X, space.rows.mean, Q[:, :r] / s)
        else:
            U, s, Qt = _svd(space.rows.Y)
            Q, peak = Qt.mT, float(abs(X).max())
            longest = float(s[0]) if len(s) else 0.0
            least = max(shortest * longest, EPS * max(X.shape) * max(longest, peak))
            r, s = _choose_rank(torch.where(s > least, s, 0), dimensions)
            rows = DenseRows(U[:, :r])
        Q = Q[:, :r]
        return cls(rows, s, space.mean, lambda W: space.lift(Q @ W))

    def energy(self, links: Graph, keep: np.ndarray) -> Tensor:
        """Sum squares to `U' L U` for a graph over all samples of which `keep` are here; 0 if it is rounding."""
        S = sp.triu(links.adjacency[keep][:, keep], k=1).tocoo()
        F = self.rows.along(S.row, S.col, S.data)
        if links.cliques is not None:
            codes = links.cliques[keep]
            F = F + self.rows.within(codes, links.clique_weight * np.bincount(codes[codes >= 0]))
        weight = float(links.degree(torch.zeros(1, dtype=torch.float64, device="cpu")).sum())
        noise = weight * (16 * EPS * self.lengths[0] / self.lengths).square()  # of squared differences of equal samples
        return F * 0 if bool((F.diagonal() <= noise).all()) else (F + F.mT) / 2


def _maximize_ratios(A: Tensor, B: Tensor, lengths: Tensor, d: int) -> tuple[Tensor, Tensor]:
    """Find the `d` best directions of `v'Av / v'Bv` and their ratios: inf, falling, then those where both vanish.

    In coordinates of unit variance, A / (A + B) has the same directions as A / B and lies in [0, 1] on the range of
    A + B. `lengths` turn coordinates into lengths of features: `w = v / lengths`.
    """
    a, b = float(A.trace()), float(B.trace())
    scatter = torch.diag(lengths.square())
    everything = torch.eye(len(A), dtype=A.dtype, device=A.device)
    if a == 0:
        V = _rank_directions(everything, lengths, scatter)
        return V[:, :d], torch.zeros(V.shape[1], dtype=A.dtype, device=A.device)[:d]
    A, B = A / a, B / (b or 1.0)
    theta, E = torch.linalg.eigh(A + B)
    known = theta > 8 * len(A) * EPS * theta[-1]
    H = E[:, known] / theta[known].sqrt()
    tau, C = torch.linalg.eigh(H.mT @ A @ H)
    tau, V = tau.flip(0), H @ C.flip(1)
    infinite = tau > 1 - INFINITE
    first = _rank_directions(V[:, infinite], lengths, lengths[:, None] * A * lengths)
    last = _rank_directions(E[:, ~known], lengths, scatter)
    finite = tau[~infinite].clamp(min=0)
    ratios = torch.cat([tau[infinite] + torch.inf, finite / (1 - finite) * (a / (b or 1.0)), theta[~known] * 0])
    return torch.cat([first, V[:, ~infinite], last], dim=1)[:, :d], ratios[:d]


def _rank_directions(V: Tensor, lengths: Tensor, form: Tensor) -> Tensor:
    """Rotate a span to directions that are orthonormal over the features, those with the largest `form` first."""
    if not V.shape[1]:
        return V
    Q = torch.linalg.qr(V / lengths[:, None])[0]
    rotation = torch.linalg.eigh(Q.mT @ form @ Q)[1].flip(1)
    return (Q @ rotation) * lengths[:, None]


def _choose_rank(s: Tensor, dimensions: int) -> tuple[int, Tensor]:
    """Return how many directions to keep (at least one), and their lengths (1 for a direction without any)."""
    r = max(1, min(dimensions, int((s > 0).sum())))
    return r, torch.where(s[:r] > 0, s[:r], 1)


def _svd(Y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    try:
        return torch.linalg.svd(Y, full_matrices=False)
    except torch.linalg.LinAlgError:  # divide and conquer may fail where plain QR iteration does not
        U, s, Vt = scipy.linalg.svd(Y.cpu().numpy(), full_matrices=False, lapack_driver="gesvd")
        return torch.from_numpy(U).to(Y.device), torch.from_numpy(s).to(Y.device), torch.from_numpy(Vt).to(Y.device)
