"""Lists of views as users hand them in: told from one array, compared before anything moves, read one by one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import Tensor

from ...core.data.base import Data
from ...core.factors import as_factor
from .inputs import Inputs, given_array, read
from .labels import nearest_distribution


class View(BaseEstimator):
    """Feature count and names of one view, where `read` keeps them; and where and in which dtype it is worked on."""

    def __init__(self, device: Any = "auto", dtype: Any = "auto") -> None:
        self.device = device
        self.dtype = dtype


def listed_views(X: Any) -> list[Any] | None:
    """Return the views of a list of matrices; None for one matrix, also as a nested list or a list of rows."""
    if isinstance(X, list | tuple) and not len(X):
        raise ValueError("X is an empty list; it must hold at least one view (n_samples, n_features)")
    if not isinstance(X, list | tuple) or all(len(_shape(v)) < 2 for v in X):
        return None
    for p, view in enumerate(X):
        if len(_shape(view)) != 2:
            raise ValueError(f"view {p} has shape {_shape(view)}; every view must be (n_samples, n_features)")
    counts = [_shape(v)[0] for v in X]
    usual = Counter(counts).most_common(1)[0][0]
    for p, n in enumerate(counts):
        if n != usual:
            turned = "; is it transposed?" if _shape(X[p])[1] == usual else ""
            raise ValueError(
                f"view {p} has {n} samples (shape {_shape(X[p])}), but view {counts.index(usual)} has {usual}; all "
                f"views must hold the same samples in the same order{turned}"
            )
    return list(X)


def read_views(estimator: Any, X: Any, reset: bool, signed: bool) -> list[Inputs]:
    """Every view as `read` reads it, on one device and in one dtype; errors name the view.

    The estimator keeps what it must know of listed views in `_views`; one array is read as by every other estimator.
    """
    views = listed_views(X)
    if reset:
        estimator._views = None if views is None else [View() for _ in views]
    known = [estimator] if estimator._views is None else estimator._views
    views = [X] if views is None else views
    if len(views) != len(known):
        raise ValueError(f"X has {len(views)} views, {type(estimator).__name__} was fitted with {len(known)}")
    if estimator._views is None:
        return [read(estimator, views[0], reset=reset, signed=signed)]
    device, dtype = _one_device(views, estimator.device), estimator.dtype
    sources = [_read_one(v, p, known[p], reset, signed, device, dtype) for p, v in enumerate(views)]
    if len({s.data.dtype for s in sources}) > 1:
        sources = [_read_one(v, p, known[p], reset, signed, device, "float64") for p, v in enumerate(views)]
    if reset:
        estimator.n_features_in_ = [view.n_features_in_ for view in known]
    return sources


def view_scales(sources: list[Inputs], scaled: bool) -> tuple[list[float], np.ndarray, float]:
    """Return the factors of squared distances, the divisors of the user's views, and the objective's unit.

    `scaled`: every view by `||X|| / sqrt(n)`. Otherwise by one number, 1 unless sources of extreme size came divided by
    a power of two each: the objective is then divided by its square (0 or inf where that leaves the range).
    """
    if scaled:
        roots = [math.sqrt(float(s.data.sqnorm()) / s.data.shape[0]) or 1.0 for s in sources]
        return [r**-2 for r in roots], np.array([r * s.scale for r, s in zip(roots, sources, strict=True)]), 1.0
    size = max(s.scale for s in sources)
    return [max((s.scale / size) ** 2, 1e-280) for s in sources], np.full(len(sources), size), size * size


def view_weights(weights: Any, like: Data, n_views: int) -> Tensor:
    """`(1, n_views)`: 1 / n_views for a word, else the numbers divided by their sum."""
    given = np.full(n_views, 1.0) if isinstance(weights, str) else np.asarray(weights, dtype=np.float64)
    if given.shape != (n_views,) or not (np.isfinite(given).all() and (given >= 0).all() and given.sum() > 0):
        raise ValueError(
            f"view_weights must be 'learned', 'equal' or {n_views} numbers >= 0, not all 0; got {weights!r}"
        )
    return torch.from_numpy(given / given.sum()).to(like.device, like.dtype)[None]


def given_views(arrays: Any, sources: list[Inputs], k: int) -> list[Any]:
    """`init` as arrays: V, U1, ... in the units of the data at hand, and last the view weights `(1, P)` or None."""
    P, like = len(sources), sources[0].data
    shapes = {"V": (like.shape[0], k), **{f"U{p + 1}": (s.data.shape[1], k) for p, s in enumerate(sources)}}
    wanted = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
    hint = f"; init is ({wanted}[, view weights ({P},)])"
    if not isinstance(arrays, Sequence) or len(arrays) not in (P + 1, P + 2):
        found = f"{len(arrays)} arrays" if isinstance(arrays, Sequence) else type(arrays).__name__
        raise ValueError(f"init for {P} views: got {found}{hint}, or 'auto', 'random', 'nndsvda'")
    start: list[Any] = []
    for (name, shape), array, source in zip(shapes.items(), arrays[: P + 1], [None, *sources], strict=True):
        free = source is not None and source.data.smallest() < 0
        F = given_array(f"init: {name}", array, shape, like, free=free, hint=hint)
        start.append(as_factor(F if source is None else F / source.scale))
    if len(arrays) == P + 1:
        return [*start, None]
    weights = given_array("init: view weights", arrays[-1], (P,), like, hint=hint)
    return [*start, view_weights(weights.cpu(), like, P)]


def scale_weight(weight: float, unit: float) -> float:
    """Return a penalty's weight in an objective divided by `unit`, kept finite."""
    return min(float(weight) / unit, 1e280) if unit else 1e280 * (weight > 0)


def view_errors(sources: list[Inputs], V: Tensor, bases: list[Tensor]) -> tuple[float, np.ndarray]:
    """`sqrt(sum_p ||X^p - V U^p'||^2)` in the units of the user's data, and each view's error relative to its norm."""
    errors = [math.sqrt(float(s.data.residual_sq([V, U]))) for s, U in zip(sources, bases, strict=True)]
    norms = [math.sqrt(float(s.data.sqnorm())) or 1.0 for s in sources]
    total = math.hypot(*(s.scale * e for s, e in zip(sources, errors, strict=True)))
    return total, np.array(errors) / np.array(norms)


def class_scores(V: Tensor, W: Tensor) -> Tensor:
    """`V W` in float64, zero for samples whose row of V is on its way to zero (multiplicative rules end near it)."""
    alive = V.amax(1, keepdim=True) > torch.finfo(V.dtype).eps ** 2 * V.max()
    return torch.where(alive, V.double() @ W.double(), 0)


def distributions(scores: Tensor, codes: np.ndarray) -> Tensor:
    """Return the distribution nearest to every row of scores; one-hot where a code is given, zero for zero scores."""
    nearest = nearest_distribution(scores)
    given = torch.from_numpy(np.flatnonzero(codes >= 0)).to(scores.device)
    nearest[given] = torch.eye(scores.shape[1]).to(scores)[codes[codes >= 0]]
    return nearest


def _read_one(view: Any, p: int, keep: View, reset: bool, signed: bool, device: Any, dtype: Any) -> Inputs:
    keep.set_params(device=device, dtype=dtype)
    try:
        return read(keep, view, reset=reset, signed=signed)
    except (ValueError, TypeError) as error:
        raise type(error)(f"view {p}: {error}") from error


def _one_device(views: list[Any], device: Any) -> Any:
    """Return the device that was asked for, or the one of the views that are tensors."""
    there = {v.device: p for p, v in enumerate(views) if isinstance(v, Tensor)}
    if len(there) > 1:
        (a, p), (b, q) = list(there.items())[:2]
        raise ValueError(f"view {p} is on {a}, view {q} on {b}; move all views to one device")
    return next(iter(there), device) if isinstance(device, str) and device == "auto" else device


def _shape(X: Any) -> tuple[int, ...]:
    return tuple(X.shape) if hasattr(X, "shape") else np.asarray(X).shape


def host(F: Any) -> np.ndarray:
    """Return a fitted array as numpy."""
    return np.asarray(torch.as_tensor(F).cpu())
