"""How far fits agree: components matched one to one, and how well the groups are apart.

The fits are restarts of the same data, or of random parts of the samples: restarts alone can agree at too high a rank,
where they all fit the same noise (Lange et al. 2004 judge clusterings by parts of the data for that reason).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.base import clone

from ..core.labels import to_host
from ..metrics.components import unit_columns
from ..models.shared.batch import batch_fit
from .arrays import take

SHARE = 0.5  # of the samples that a fit of stability sees: larger parts have the same noise, and agree on it


def similarities(a: Sequence[np.ndarray], b: Sequence[np.ndarray]) -> np.ndarray:
    """Multiply the cosines of all modes for every pair of components, `(..., k_a, k_b)`."""
    product = np.ones(())
    for A, B in zip(a, b, strict=True):
        product = product * (np.swapaxes(A, -1, -2) @ B)
    return product


def match_to(reference: Sequence[np.ndarray], others: Sequence[np.ndarray]) -> np.ndarray:
    """Find, for the components of a reference, those of every restart in the assignment of the largest cosines."""
    cosines = similarities(reference, others)  # (restarts, k, k)
    return np.stack([linear_sum_assignment(C, maximize=True)[1] for C in cosines])


def match_restarts(factors: Sequence[Any], losses: np.ndarray, rounds: int = 10) -> list[np.ndarray]:
    """Order the components of restarts alike: by the best restart first, then by the means of the groups.

    `factors` are `(restarts, d, k)` for each mode; the same of unit length come back, in the order of the groups.
    """
    units = [unit_columns(F) for F in factors]
    best = int(np.argmin(losses))
    reference = [F[best] for F in units]
    order = np.tile(np.arange(units[0].shape[-1]), (len(losses), 1))
    for _ in range(rounds):
        found = match_to(reference, units)
        if (found == order).all():
            break
        order = found
        reference = [unit_columns(np.take_along_axis(F, order[:, None, :], -1).mean(0)) for F in units]
    return [np.take_along_axis(F, order[:, None, :], -1) for F in units]


def silhouettes(matched: Sequence[np.ndarray], kept: np.ndarray | None = None) -> np.ndarray:
    """Compute the mean silhouette of every group of matched components, `(k,)`; NaN for one component.

    The distance is 1 less the cosine (the product of those of all modes). Group j has one component of each restart, or
    of those where `kept (restarts, k)` says so; a silhouette is `(b - a) / max(a, b)`, a the mean distance to the
    others of the group, b the least mean distance to another group (Rousseeuw 1987). A group of fewer than two has -1.
    """
    restarts, _, k = matched[0].shape
    if k < 2 or restarts < 2:
        return np.full(k, np.nan)
    flat = [np.moveaxis(F, 1, 0).reshape(F.shape[1], restarts * k) for F in matched]
    far = np.clip(1 - similarities(flat, flat), 0, None)
    np.fill_diagonal(far, 0)
    far = far.reshape(restarts, k, restarts, k)
    use = np.ones((restarts, k)) if kept is None else kept.astype(np.float64)
    sums, counts = np.einsum("iajb,jb->iab", far, use), use.sum(0)  # from every component to every group
    own = np.einsum("ijj->ij", sums) / np.maximum(counts - 1, 1)
    means = np.where(counts > 0, sums / np.maximum(counts, 1), np.inf)
    others = np.where(np.eye(k, dtype=bool), np.inf, means).min(-1)
    others = np.where(np.isfinite(others), others, 1.0)
    largest = np.maximum(own, others)
    found = np.where(largest > 0, (others - own) / np.where(largest > 0, largest, 1), 0)
    return np.where(counts > 1, (found * use).sum(0) / np.maximum(counts, 1), -1.0)


def restart_factors(model: Any) -> tuple[list[Any], np.ndarray]:
    """Give the feature factors of all restarts of finite loss, `(restarts, d, k)` for each mode, and the losses."""
    losses = np.asarray(model.restarts_["loss"], dtype=np.float64)
    finite = np.isfinite(losses)
    return [to_host(F)[finite] for F in feature_factors(model.restarts_["factors"])], losses[finite]


def feature_factors(factors: Any) -> list[Any]:
    """List the factors of features; of those by the names of modes, all but the first, which has the samples."""
    return list(factors.values())[1:] if isinstance(factors, Mapping) else list(factors)


def can_resample(estimator: Any, X: Any) -> bool:
    """Tell whether parts of the samples can be fitted, and have bases to compare: of arrays, with nothing by sample."""
    plain = all(not hasattr(value, "shape") for value in estimator.get_params(deep=False).values())
    asked = bool(getattr(estimator, "terms", None)) or "V" in (getattr(estimator, "fixed", None) or {})
    views = isinstance(X, list | tuple) and any(hasattr(A, "shape") for A in X)
    return estimator._of_features and plain and not asked and not views


def draw_parts(
    n_samples: int, random: np.random.RandomState, runs: int, classes: np.ndarray | None = None
) -> list[tuple[np.ndarray, int]]:
    """Draw random parts of the samples, of each class (its codes `(n,)`) as much, and a seed for the start of each."""
    groups = [np.arange(n_samples)] if classes is None else [np.flatnonzero(classes == c) for c in np.unique(classes)]
    draw = lambda at: at[random.permutation(len(at))[: max(1, round(SHARE * len(at)))]]
    part = lambda: np.sort(np.concatenate([draw(at) for at in groups]))
    return [(part(), int(random.randint(2**31 - 1))) for _ in range(runs)]


def fit_part(
    estimators: Sequence[Any], X: Any, weights: Any, part: tuple[np.ndarray, int], y: np.ndarray | None = None
) -> list[tuple[list[np.ndarray], float]]:
    """Fit a part of the samples from a random start, all estimators as one batch; give feature factors and losses."""
    at, seed = part
    fits = [clone(e).set_params(n_init=1, random_state=seed) for e in estimators]
    for fit in fits:
        fit.set_params(**({"init": "random"} if not isinstance(fit.init, tuple) else {}))
    given = {} if weights is None else {"weights": take(weights, at, 0)}
    fits = batch_fit(fits, take(X, at, 0), None if y is None else y[at], **given)
    return [([to_host(F) for F in fit.factors_], fit.loss_) for fit in fits]


def summarize_parts(parts: Sequence[list[tuple[list[np.ndarray], float]]]) -> list[tuple[float, float]]:
    """Compute, for each estimator, the mean and the least silhouette over the fits of all parts."""
    stack = lambda fits: [np.stack(Fs) for Fs in zip(*(factors for factors, _ in fits), strict=True)]
    return [summarize_groups(stack(fits), np.array([loss for _, loss in fits])) for fits in zip(*parts, strict=True)]


def summarize_groups(factors: Sequence[Any], losses: np.ndarray) -> tuple[float, float]:
    """Compute the mean and the least silhouette of matched components over the fits of finite loss; NaN for one."""
    finite = np.isfinite(losses)
    if finite.sum() < 2:
        return np.nan, np.nan
    groups = silhouettes(match_restarts([F[finite] for F in factors], losses[finite]))
    return float(groups.mean()), float(groups.min())
