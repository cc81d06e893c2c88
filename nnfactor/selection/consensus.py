"""What restarts of a factorization have in common: matched components, medians, spread, usages."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.arguments import positive
from ..core.labels import to_host
from ..models.factorization.nmf import NMF
from .html import html_table
from .stability import feature_factors, match_restarts, restart_factors, silhouettes, similarities

NEIGHBOURS = 0.3  # share of the restarts whose distance is a component's local density (Kotliar et al. 2019)

STABLE = 0.8  # least silhouette of a stable component (Alexandrov et al. 2020)

KEPT = 0.5  # least share of the restarts that a stable component is found in


@dataclass(frozen=True, repr=False, eq=False)
class Consensus:
    """What `consensus` found; components in the order of the best restart.

    Attributes
    ----------
    factors : list of (d, k) arrays
        Medians over the restarts, of unit length (of unit sum where the estimator has normalize="l1").
    components : (k, d) array, of matrices: the transpose of the only factor
    embedding : (n_samples, k) array or tensor, or None
        Coefficients of the data on these components; None without data.
    stable : (k,) bool
        Whether `stability` is at least 0.8 and at least half of the restarts have the component.
    stability : (k,) array
        Mean silhouette of the matched components that were kept, from -1 to 1; NaN for a single component.
    share : (k,) array
        Share of the restarts whose component was kept.
    spread : list of (d, k) arrays
        Standard deviations over the kept components, in the units of `factors`.
    density : (n_restarts, k) array
        Mean distance of every component to its nearest ones; kept are those below `density_threshold`.
    n_restarts, n_failed : int
        Restarts that ended, and those that were left out because their loss is not finite.
    density_threshold : float
    """

    factors: list[np.ndarray]
    embedding: Any
    stable: np.ndarray
    stability: np.ndarray
    share: np.ndarray
    spread: list[np.ndarray]
    density: np.ndarray
    n_restarts: int
    n_failed: int
    density_threshold: float

    @property
    def components(self) -> np.ndarray:
        """The components of a matrix as rows."""
        if len(self.factors) != 1:
            raise AttributeError(f"components are those of matrices; there are {len(self.factors)} factors")
        return self.factors[0].T

    def __repr__(self) -> str:
        k = len(self.stable)
        return f"Consensus({int(self.stable.sum())} of {k} components are stable, {self.n_restarts} restarts)"

    def _repr_html_(self) -> str:
        """Show the components in notebooks, the stable ones bold."""
        columns = self.stable.tolist(), self.stability.tolist(), self.share.tolist()
        rows = [(j, *values) for j, values in enumerate(zip(*columns, strict=True), 1)]
        table = html_table(("component", "stable", "stability", "share of restarts"), rows, np.flatnonzero(self.stable))
        failed = f"; {self.n_failed} restarts failed" if self.n_failed else ""
        return f"<div><p>{self!r}{failed}</p>{table}</div>"


def consensus(restarts: Any, X: Any = None, *, density_threshold: float = 0.5, weights: Any = None) -> Consensus:
    """Find what restarts have in common.

    Components are matched one to one over the restarts (assignment on cosines, of tensors on their product over the
    modes), those far from the others are dropped by their local density (Kotliar et al. 2019), and medians are taken.

    Parameters
    ----------
    restarts : fitted NMF or NTF with n_init > 1, or list of fitted estimators
        Two or more, with the same number of components.
    X : data as for `fit`, optional
        For `embedding`: the coefficients of these samples on the medians.
    density_threshold : float
        Components whose mean distance to the nearest 30 % of those of other restarts is larger are dropped; distances
        of components of unit length are between 0 and 1.41. Default 0.5; 2 keeps all.
    weights : of the shape of X, optional
        As for `transform`.

    Returns
    -------
    Consensus

    Raises
    ------
    ValueError
        One restart, which has no consensus; different numbers of components; no component within the threshold.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from nnfactor import NMF, consensus
    >>> X = load_iris().data
    >>> found = consensus(NMF(2, init="random", n_init=10, random_state=0).fit(X), X)
    >>> found, found.embedding.shape
    (Consensus(2 of 2 components are stable, 10 restarts), (150, 2))
    """
    positive("density_threshold", density_threshold)
    model, factors, losses, n_failed = _read(restarts)
    matched = match_restarts(factors, losses)
    density = _local_density(matched)
    kept = density <= density_threshold
    kept &= (kept.mean(1) > 0.5)[:, None] | (kept.mean(1) == kept.mean(1).max())[:, None]  # a restart that went astray
    if not kept.any():
        raise ValueError(
            f"no component of {len(losses)} restarts is within density_threshold={density_threshold:g} of the others; "
            f"the least distance is {density.min():.3g}. Raise the threshold, or use fewer components"
        )
    stability, share = silhouettes(matched, kept), kept.mean(0)
    medians, spread = zip(*(_summarize(F, kept, getattr(model, "normalize", None)) for F in matched), strict=True)
    embedding = None if X is None else _refit(model, list(medians), X, weights)
    stable = (np.isnan(stability) | (stability >= STABLE)) & (share >= KEPT)
    found = (stable, stability, share, list(spread), density, len(losses), n_failed, float(density_threshold))
    return Consensus(list(medians), embedding, *found)


def _read(restarts: Any) -> tuple[Any, list[np.ndarray], np.ndarray, int]:
    """Read the feature factors of all restarts, `(restarts, d, k)` for each mode."""
    if hasattr(restarts, "factors_"):
        if not hasattr(restarts, "restarts_"):
            raise ValueError("the estimator has one run, which has no consensus; fit it with n_init=20 or more")
        factors, losses = restart_factors(restarts)
        n_failed = len(restarts.restarts_["loss"]) - len(losses)
        model = restarts
    else:
        models = list(restarts) if isinstance(restarts, Iterable) else []
        if not models or not all(hasattr(m, "factors_") for m in models):
            raise ValueError("restarts must be a fitted estimator with n_init > 1, or a list of fitted estimators")
        every = np.array([m.loss_ for m in models], dtype=np.float64)
        models, n_failed = [m for m in models if np.isfinite(m.loss_)], int((~np.isfinite(every)).sum())
        of = [feature_factors(m.factors_) for m in models]
        shapes = {tuple(tuple(F.shape) for F in Fs) for Fs in of}
        if len(shapes) > 1:
            raise ValueError(f"restarts have factors of different shapes: {sorted(shapes)}")
        model, losses = (models[0] if models else None), every[np.isfinite(every)]
        factors = [np.stack(Fs) for Fs in zip(*([to_host(F) for F in Fs_of] for Fs_of in of), strict=True)]
    if len(losses) < 2:
        raise ValueError(f"there are {len(losses)} restarts with a finite loss; a consensus needs two or more")
    return model, factors, losses, n_failed


def _local_density(matched: Sequence[np.ndarray]) -> np.ndarray:
    """Average the distances of every component to the nearest ones of all restarts, `(restarts, k)`."""
    n, _, k = matched[0].shape
    flat = [np.moveaxis(F, 1, 0).reshape(F.shape[1], n * k) for F in matched]
    far = np.sqrt(np.clip(2 - 2 * similarities(flat, flat), 0, None))
    np.fill_diagonal(far, np.inf)
    nearest = max(1, int(NEIGHBOURS * n))
    return np.sort(far, 1)[:, :nearest].mean(1).reshape(n, k)


def _summarize(F: np.ndarray, kept: np.ndarray, normalize: str | None) -> tuple[np.ndarray, np.ndarray]:
    """Take medians and standard deviations over the kept components `(restarts, d, k)`; over all where none was."""
    use = kept | ~kept.any(0)
    shown = F / np.where((sums := F.sum(1, keepdims=True)) > 0, sums, 1) if normalize == "l1" else F
    values = np.where(use[:, None, :], shown, np.nan)
    median, spread = np.nanmedian(values, 0), np.nanstd(values, 0)
    lengths = median.sum(0) if normalize == "l1" else np.sqrt(np.square(median).sum(0))
    return median / np.where(lengths > 0, lengths, 1), spread


def _refit(model: Any, factors: list[np.ndarray], X: Any, weights: Any) -> Any:
    """Solve the coefficients of the data on the medians."""
    if not isinstance(model, NMF):
        raise ValueError(f"X is for NMF and NTF, whose coefficients are refitted; {type(model).__name__} has X=None")
    names = ("loss", "transform_method", "transform_tol", "transform_max_iter", "missing", "device", "dtype", "ridge")
    given = {name: getattr(model, name) for name in names} | ({"ridge": 0.1} if model.ridge == "cv" else {})
    bases = factors if model._tensors else factors[0].T
    solver = type(model).from_components(bases, **given)
    return solver.transform(X) if weights is None else solver.transform(X, weights=weights)
