"""Discriminant PCA with labels and pairs (Sun and Zhang 2009)."""

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import connected_components
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ...core.arrays import Array
from ...core.labels import encode_labels, to_host
from ...core.precision import strict_precision
from ..shared.fitting import forget_and_restore_on_error
from ..shared.inputs import as_float64, read, read_coefficients
from ..shared.parameters import Device, DType, nonnegative, whole
from .base import DenseRows, Projection, Space, SparseRows, fix_signs

Pairs = np.ndarray  # (p, 2) integers, i < j, each pair once


@dataclass(kw_only=True, eq=False, repr=False)
class DPCA(Projection):
    """Principal component analysis that also uses labels and pairwise constraints (Sun and Zhang 2009, Eqs. 8 to 11).

    The directions are the top eigenvectors of

        S_B - eta S_W + lam S_T ,        S_T = (1/n) sum_i (x_i - mean)(x_i - mean)'

    where S_B and S_W are the averages of (x_i - x_j)(x_i - x_j)' over unordered pairs of different and of the same
    labelled class, united with the cannot-link and the must-link pairs. No pairs give a zero matrix; without any
    supervision this is PCA.

    Parameters
    ----------
    n_components : int
        Number of directions; at most n_features are kept. 2, as for a picture.
    eta, lam : float >= 0
        Weights of the pairs that belong together and of the total scatter; free of the data's unit. 1, of the 0.1, 1
        and 10 that the paper tries.
    device : "auto", "cpu", "cuda" or "cuda:i"
        "auto": where a tensor is, else CUDA if there is one. Sparse data are worked on by the host.
    dtype : "auto", "float32" or "float64"
        Of the results. "auto": float32 stays float32, everything else is float64. The work is always in float64.

    Attributes
    ----------
    components_ : (n_components_, n_features)
        Orthonormal rows; in each, the largest entry (the first of equals) is positive.
    eigenvalues_ : (n_components_,)
        In the squared unit of the data, largest first; can be negative. float64, for squares of float32 may overflow.
    mean_ : (n_features,)
    n_components_ : int, min(n_components, n_features)
    n_features_in_, feature_names_in_, fit_info_

    Notes
    -----
    No pair is ever listed: with n_c samples of class c among l labelled, class means m_c and their weighted mean m,

        sum over same      =  sum_c n_c sum_i (x_i - m_c)(x_i - m_c)'
        sum over different =  sum_c (l - n_c) sum_i (x_i - m_c)(x_i - m_c)' + l sum_c n_c (m_c - m)(m_c - m)'

    With more features than samples the eigenproblem is solved in the row space of the centred data and `n_components`
    directions beside it, of eigenvalue 0. In sparse data, then, directions with less than 1e-12 of the largest variance
    count as zero.

    Examples
    --------
    >>> import numpy as np
    >>> from nnfactor import DPCA
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 5)) * [9, 1, 1, 1, 1]     # the first feature only varies most
    >>> y = np.repeat([0, 1, -1], 20)                      # -1: unlabelled
    >>> X[:20, 2] += 6
    >>> np.abs(DPCA(n_components=1, eta=10.0).fit(X, y).components_[0]).round().astype(int)
    array([0, 0, 1, 0, 0])
    >>> np.abs(DPCA(n_components=1).fit(X).components_[0]).round().astype(int)
    array([1, 0, 0, 0, 0])
    """

    n_components: int = field(default=2, kw_only=False)
    eta: float = 1.0
    lam: float = 1.0
    device: Device = "auto"
    dtype: DType = "auto"

    def fit(self, X: Any, y: Any = None, *, must_link: Any = None, cannot_link: Any = None) -> Self:
        """Learn the directions.

        Parameters
        ----------
        X : array, tensor, DataFrame or scipy sparse matrix (n_samples, n_features)
            Any sign; never changed.
        y : array (n_samples,), optional
            Labels; -1 and NaN among numbers, None, NaN, -1, "-1" and "" among text and objects are unlabelled.
        must_link, cannot_link : integer array (n_pairs, 2), optional
            Rows of `X` that belong to the same, to different classes. Order and repetition do not matter, nor do pairs
            that the labels already tell. Pairs that follow from others are not added.

        Raises
        ------
        ValueError
            Bad data or parameters; an index out of range; a sample paired with itself; a pair in both lists, or against
            the labels, also through a chain of other pairs and labels.
        """
        whole("n_components", self.n_components)
        nonnegative("eta", self.eta)
        nonnegative("lam", self.lam)
        with forget_and_restore_on_error(self):
            inputs = read(self, X, reset=True, signed=True)
            n, m = inputs.data.shape
            codes = encode_labels(y, n)[0] if y is not None else np.full(n, -1)
            same, different = _read_constraints(must_link, cannot_link, codes)
            d = min(int(self.n_components), m)
            with torch.no_grad():
                space = Space.of(inputs.points(), pad=d)
                values, vectors = torch.linalg.eigh(self._objective(space.rows, codes, same, different))
                W = fix_signs(space.lift(vectors.flip(1)[:, :d]))
            self._publish(inputs, W, space.mean)
            values = values.flip(0)[:d] * inputs.scale * inputs.scale
            self.eigenvalues_ = inputs.to_caller(values.to(inputs.data.device))
        return self

    def inverse_transform(self, Z: Any) -> Array:
        """Return points of the fitted subspace with coordinates `Z (n_samples, n_components_)`, in the kind of `Z`."""
        check_is_fitted(self)
        rows = read_coefficients(Z, self.n_components_, "Z")
        with strict_precision(rows.device):
            X = rows.double() @ as_float64(self.components_, rows.device) + as_float64(self.mean_, rows.device)
        return X.to(rows.dtype) if isinstance(Z, Tensor) else X.to(rows.dtype).numpy()

    def _objective(self, rows: DenseRows | SparseRows, codes: np.ndarray, same: Pairs, different: Pairs) -> Tensor:
        """Compute `S_B - eta S_W + lam S_T` in the coordinates of `rows`."""
        n, eta, lam = len(codes), float(self.eta), float(self.lam)
        sizes = np.bincount(codes[codes >= 0])
        labelled = sizes.sum()
        within = int((sizes * (sizes - 1) // 2).sum())
        across = int(labelled * (labelled - 1) // 2) - within
        n_same, n_different = max(1, within + len(same)), max(1, across + len(different))
        M = rows.within(np.zeros(n, dtype=int), np.array([lam / n]))
        if len(sizes):
            M += rows.within(codes, (labelled - sizes) / n_different - eta * sizes / n_same)
            means = rows.means(codes)
            weight = torch.from_numpy(sizes / labelled).to(means)[:, None]
            means = means - (weight * means).sum(0)
            M += (labelled**2 / n_different) * (weight * means).mT @ means
        M += rows.along(different[:, 0], different[:, 1], np.full(len(different), 1 / n_different))
        M -= rows.along(same[:, 0], same[:, 1], np.full(len(same), eta / n_same))
        return (M + M.mT) / 2


def _read_constraints(must_link: Any, cannot_link: Any, codes: np.ndarray) -> tuple[Pairs, Pairs]:
    """Return the pairs that the labels do not already tell; refuse what is contradictory."""
    same = _read_pairs(must_link, "must_link", len(codes))
    different = _read_pairs(cannot_link, "cannot_link", len(codes))
    both = {tuple(p) for p in same.tolist()} & {tuple(p) for p in different.tolist()}
    if both:
        raise ValueError(f"{len(both)} pairs are in must_link and cannot_link, the first is {min(both)}; drop one")
    for name, pairs, agree in (("must_link", same, True), ("cannot_link", different, False)):
        i, j = codes[pairs.T]
        wrong = np.flatnonzero((i >= 0) & (j >= 0) & ((i == j) != agree))
        if len(wrong):
            raise ValueError(
                f"{name} contradicts y in {len(wrong)} pairs, the first is {tuple(pairs[wrong[0]].tolist())}: its "
                f"labels {'differ' if agree else 'are equal'}; drop the pair, or mark a sample as unlabelled (-1)"
            )
    _refuse_chains(same, different, codes)
    unknown = lambda pairs: pairs[(codes[pairs] < 0).any(1)]
    return unknown(same), unknown(different)


def _refuse_chains(same: Pairs, different: Pairs, codes: np.ndarray) -> None:
    """Refuse what contradicts through other samples: must-links and labels, followed on, join what is told apart."""
    n, labelled = len(codes), np.flatnonzero(codes >= 0)
    nodes = n + codes.max(initial=-1) + 1  # samples, then a node of every class
    i, j = np.r_[same[:, 0], labelled], np.r_[same[:, 1], n + codes[labelled]]
    parts = connected_components(sp.coo_array((np.ones(len(i)), (i, j)), shape=(nodes, nodes)), directed=False)[1]
    apart = different[parts[different[:, 0]] == parts[different[:, 1]]]
    if len(apart):
        raise ValueError(
            f"cannot_link has {len(apart)} pairs that must_link and y join through other samples, the first is "
            f"{tuple(apart[0].tolist())}; drop a pair of the chain"
        )
    if len(np.unique(parts[n:])) < nodes - n:
        raise ValueError("must_link joins samples of different labels through other samples; drop a pair of the chain")


def _read_pairs(pairs: Any, name: str, n: int) -> Pairs:
    """Check pairs of samples; return them with i < j, each once."""
    pairs = to_host([] if pairs is None else pairs, "pairs")
    if pairs.size == 0:
        return np.zeros((0, 2), dtype=np.int64)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        raise ValueError(f"{name} must be integers (n_pairs, 2), got {pairs.dtype} of shape {pairs.shape}")
    bad = pairs[((pairs < 0) | (pairs >= n)).any(1)]
    if len(bad):
        raise ValueError(f"{name} has {len(bad)} pairs outside 0..{n - 1}, the first is {tuple(bad[0].tolist())}")
    itself = pairs[pairs[:, 0] == pairs[:, 1]]
    if len(itself):
        raise ValueError(f"{name} pairs sample {itself[0, 0]} with itself; a pair is two different samples")
    return np.unique(np.sort(pairs.astype(np.int64), axis=1), axis=0)
