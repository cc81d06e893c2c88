"""How far the restarts of a fit agree: components matched one to one, and how well the groups are apart."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from ..core.labels import to_host
from ..metrics.components import unit_columns


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
    return [to_host(F)[finite] for F in model.restarts_["factors"]], losses[finite]
