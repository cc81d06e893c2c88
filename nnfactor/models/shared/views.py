"""Lists of views as users hand them in: told from one array, compared before anything moves, read one by one."""

import math
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from ...core.arrays import as_numbers
from ...core.data.base import Data
from ...core.data.weighted import Weighted, largest_difference, observed_rows
from ...core.factors import as_factor
from ...core.rules.closed_form import unconstrained
from ...core.solve.nnls import normal_equations as least_squares_of
from .fitting import Model
from .hidden import warn_of_unseen
from .inputs import Inputs, given_array, place_factor, read, take_shard
from .scikit_learn import BaseEstimator


class View(BaseEstimator):
    """Feature count and names of one view, where `read` keeps them; where, in which dtype, and what is missing."""

    def __init__(self, device: Any = "auto", dtype: Any = "auto", missing: Any = None) -> None:
        self.device = device
        self.dtype = dtype
        self.missing = missing


def listed_views(X: Any) -> list[Any] | None:
    """Return the views of a list of matrices; None for one matrix, also as a nested list or a list of rows."""
    if not isinstance(X, list | tuple) and len(getattr(X, "shape", ())) == 3:
        raise ValueError(f"X has shape {tuple(X.shape)}; several views are a list of matrices: list(X) cuts them apart")
    if not isinstance(X, list | tuple):
        return None
    if not len(X):
        raise ValueError("X is an empty list; it must hold at least one view (n_samples, n_features)")
    shapes = [tuple(np.shape(view)) for view in X]
    if all(len(shape) < 2 for shape in shapes):
        return None
    for p, shape in enumerate(shapes):
        if len(shape) != 2:
            raise ValueError(f"view {p} has shape {shape}; every view must be (n_samples, n_features)")
    counts = [n for n, _ in shapes]
    usual = Counter(counts).most_common(1)[0][0]
    for p, (n, m) in enumerate(shapes):
        if n != usual:
            turned = "; is it transposed?" if m == usual else ""
            raise ValueError(
                f"view {p} has {n} samples (shape {(n, m)}), but view {counts.index(usual)} has {usual}; all views "
                f"must hold the same samples in the same order{turned}"
            )
    return list(X)


def read_views(estimator: Any, X: Any, reset: bool, signed: bool, weights: Any = None) -> Inputs:
    """Read every view as `read` does, on one device and in one dtype; errors name the view. Returns the first of them.

    The estimator keeps what it must know of listed views in `_views`; one array is read as by every other estimator.
    `weights` of entries are a list for listed views, None for one whose entries count alike.
    """
    if isinstance(X, list | tuple) and getattr(estimator, "_sharded", None) is not None:
        X = [take_shard(estimator, view, reset, weights) for view in X]
    listed = listed_views(X)
    if reset:
        estimator._views = None if listed is None else [View() for _ in listed]
    known = [estimator] if estimator._views is None else estimator._views
    views = [X] if listed is None else listed
    if len(views) != len(known):
        raise ValueError(f"X has {len(views)} views, {type(estimator).__name__} was fitted with {len(known)}")
    complete = not hasattr(estimator, "missing")
    if estimator._views is None:
        inputs = [read(estimator, views[0], reset=reset, signed=signed, weights=weights, complete=complete)]
    else:
        where, given = one_device(views, estimator.device), weights
        if weights is not None and (not isinstance(weights, list | tuple) or len(weights) != len(views)):
            raise ValueError(f"weights must be a list of {len(views)}, an array or None for each view")
        for view in known if reset and not complete else []:
            view.missing = estimator.missing
        inputs = read_all(views, known, reset, signed, where, estimator.dtype, weights=given, complete=complete)
    data = [view.data for view in inputs]
    if len({view.sums.alone for view in data}) > 1:
        raise ValueError("X has views that are Sharded and views that are not; split the samples of all")
    if any(X.weighted for X in data):
        if signed:
            raise ValueError("signed='semi' takes complete views; fill what is missing, or shift negative entries")
        if reset:
            warn_of_unseen(estimator, observed_rows(data), stacklevel=8)
    if reset and estimator._views is not None:
        estimator.n_features_in_ = [view.n_features_in_ for view in known]
    return replace(inputs[0], views=tuple(inputs))


def constant_views(inputs: Inputs) -> list[int]:
    """Find the views whose samples are all equal up to rounding, which tell no samples apart; none where all are so."""
    constant = [p for p, view in enumerate(inputs.views) if _spread(view.data) <= 8 * _rounding(view.data)]
    return constant if len(constant) < len(inputs.views) else []


def name_views(views: Sequence[int]) -> str:
    """Name views in a message.

    >>> name_views([2]), name_views([0, 2])
    ('view 2', 'views 0, 2')
    """
    return f"view{'s' if len(views) > 1 else ''} {', '.join(map(str, views))}"


def drop_constant(inputs: Inputs, name: str, stacklevel: int) -> list[int]:
    """List the views in which samples differ, and warn of the others."""
    if constant := constant_views(inputs):
        told = f"{name} leaves {name_views(constant)} out, since all samples are equal there; drop it from X"
        warnings.warn(told, UserWarning, stacklevel=stacklevel + 1)
    return [p for p in range(len(inputs.views)) if p not in constant]


def are_learned(view_weights: Any) -> bool:
    """Tell whether the weights of views are learned, not given."""
    return isinstance(view_weights, str) and view_weights == "learned"


def complain_of_weights(weights: np.ndarray, constant: Sequence[int], learned: bool, lam: float) -> list[str]:
    """Tell of views without any difference between samples, and of weights that leave a single view."""
    told, telling = [], [p for p in range(len(weights)) if p not in constant]
    used = [p for p in telling if weights[p] > 0]
    if constant and learned:
        told.append(f"gives {name_views(constant)} weight 0, since all samples are equal there; drop it from X")
    if not used:
        told.append("has view_weights of 0 for every view in which samples differ")
    elif learned and len(used) < min(2, len(telling)):
        others = name_views([p for p in telling if p not in used])
        told.append(
            f"learned to use view {used[0]} alone, the easiest to fit; {others} had no part in embedding_. Raise "
            f"lam={lam:g} (half to five times the number of samples spreads the weights), or fix view_weights"
        )
    return told


def view_scales(sources: Sequence[Inputs], scaled: bool) -> tuple[list[float], np.ndarray, float]:
    """Return the factors of squared distances, the divisors of the user's views, and the objective's unit.

    `scaled`: every view by `||X|| / sqrt(n)`. Otherwise by one number, 1 unless views of extreme size came divided by a
    power of two each: the objective is then divided by its square (0 or inf where that leaves the range).
    """
    if scaled:
        roots = [math.sqrt(float(s.data.sqnorm()) / s.data.shape[0]) or 1.0 for s in sources]
        return [r**-2 for r in roots], np.array([r * s.scale for r, s in zip(roots, sources, strict=True)]), 1.0
    size = max(s.scale for s in sources)
    return [max((s.scale / size) ** 2, 1e-280) for s in sources], np.full(len(sources), size), size * size


def mean_energy(sources: Sequence[Inputs], scales: Sequence[float], left_out: Sequence[int]) -> float:
    """Return the mean squared norm of the views, each times its scale: n for scaled ones; 1 if all are zero."""
    used = [p for p in range(len(sources)) if p not in left_out]
    return sum(scales[p] * float(sources[p].data.sqnorm()) for p in used) / len(used) or 1.0


def normal_equations(
    inputs: Inputs, bases: Sequence[Any], sizes: np.ndarray, weights: np.ndarray
) -> tuple[Tensor, Tensor]:
    """Return `sum_p pi_p U^p'U^p` (k, k) and `sum_p pi_p X^p U^p` (n, k) of views divided by their sizes, float64.

    Where entries are hidden or weighted the first is `(n, k, k)`, one for each sample.
    """
    G = B = torch.zeros(1, dtype=torch.float64, device=inputs.data.device)
    for view, basis, size, pi in zip(inputs.views, bases, sizes, weights, strict=True):
        data = view.data
        U = as_factor((place_factor(basis, G).double() / size).to(data.dtype))
        pieces = list(least_squares_of(data, [U]))
        own = torch.cat([g for g, _ in pieces]) if data.weighted else pieces[0][0]
        G, B = G + float(pi) * own, B + (float(pi) * view.scale / size) * torch.cat([b for _, b in pieces])
    return G, B


def lengths_of_views(bases: Sequence[Any], sizes: np.ndarray, weights: np.ndarray, like: Tensor) -> Tensor:
    """Compute the lengths of components in all views divided by their sizes, `(k,)`, in the dtype of `like`."""
    columns = [
        (place_factor(U, like).to(like.dtype) / size).square().sum(0) for U, size in zip(bases, sizes, strict=True)
    ]
    return reduce(torch.add, [float(pi) * squares for pi, squares in zip(weights, columns, strict=True)]).sqrt()


def measure_residuals(model: Model, factors: Sequence[Tensor]) -> tuple[float, np.ndarray]:
    """Compute the residual of all views in the units of the data, and that of each relative to its norm."""
    V, *bases = factors
    errors = [float(X.residual_sq([V, U]).sqrt()) for X, U in zip(model.data, bases, strict=True)]
    norms = [float(X.sqnorm().sqrt()) or 1.0 for X in model.data]
    total = math.hypot(*(e * scale for e, scale in zip(errors, model.scales[1:], strict=True)))
    return total, np.array(errors) / norms


def view_weights(weights: Any, like: Data, n_views: int) -> Tensor:
    """`(1, n_views)`: 1 / n_views for a word, else the numbers divided by their sum."""
    given = (
        np.full(n_views, 1.0) if isinstance(weights, str) else as_numbers(weights, "view_weights").astype(np.float64)
    )
    if given.shape != (n_views,) or not (np.isfinite(given).all() and (given >= 0).all() and given.sum() > 0):
        wanted = f"'learned', 'equal' or {n_views} numbers >= 0, not all 0"
        raise ValueError(f"view_weights must be {wanted}; got {weights!r}")
    return torch.from_numpy(given / given.sum()).to(like.device, like.dtype)[None]


def given_views(arrays: Any, model: Model) -> tuple[list[Tensor], Tensor | None]:
    """Read `init`: V, U1, ... in the units of the run, and the view weights `(1, P)` where they are given."""
    P, like = len(model.data), model.data[0]
    wanted = ", ".join(f"{name} {shape}" for name, shape in model.shapes.items())
    hint = f"; init is ({wanted}[, view weights ({P},)])"
    if not isinstance(arrays, Sequence) or len(arrays) not in (P + 1, P + 2):
        found = f"{len(arrays)} arrays" if isinstance(arrays, Sequence) else type(arrays).__name__
        raise ValueError(f"init for {P} views: got {found}{hint}, or 'auto', 'random', 'nndsvda'")
    arrays = [like.sums.join(arrays[0], "init: V"), *arrays[1:]]
    factors = []
    for (name, shape), array, scale in zip(model.shapes.items(), arrays[: P + 1], model.scales, strict=True):
        free = model.rules[name] is unconstrained
        factors.append(as_factor(given_array(f"init: {name}", array, shape, like, free, hint) / scale))
    weights = [given_array("init: view weights", pi, (P,), like, hint=hint) for pi in arrays[P + 1 :]]
    return factors, view_weights(weights[0].cpu(), like, P) if weights else None


def scale_weight(name: str, weight: float, unit: float, dtype: torch.dtype) -> float:
    """Return a penalty's weight in an objective divided by `unit`, kept finite in float64 and refused in float32."""
    scaled = min(float(weight) / unit, 1e280) if unit else 1e280 * (weight > 0)
    if scaled > torch.finfo(dtype).max:
        raise ValueError(
            f"{name}={weight:g} is {scaled:.2g} times the squared size of the views, beyond the range of "
            f"{str(dtype).removeprefix('torch.')}; use scale_views=True or dtype='float64'"
        )
    return scaled


def read_all(
    views: Sequence[Any],
    known: Sequence[View],
    reset: bool,
    signed: bool,
    device: Any,
    dtype: Any,
    tensors: bool = False,
    name: str = "view {}",
    weights: Sequence[Any] | None = None,
    complete: bool = True,
) -> list[Inputs]:
    """Read views, or tensors, in one dtype: float64, where they differ; errors call them by `name`."""
    inputs = []
    for p, (view, keep) in enumerate(zip(views, known, strict=True)):
        try:
            keep = keep.set_params(device=device, dtype=dtype)
            own: dict[str, Any] = {"weights": weights[p] if weights else None, "complete": complete}
            inputs.append(read(keep, view, reset=reset, signed=signed, tensors=tensors, **own))
        except (ValueError, TypeError) as error:
            raise type(error)(f"{name.format(p)}: {error}") from error
    alike = len({one.data.dtype for one in inputs}) == 1
    return (
        inputs if alike else read_all(views, known, reset, signed, device, "float64", tensors, name, weights, complete)
    )


def _spread(data: Data) -> float:
    """Find the largest difference between two samples in one feature."""
    if data.weighted:
        return largest_difference(cast(Weighted, data))
    X = data.samples() if data.sums.alone else cast(Any, data).local.samples()
    if sp.issparse(X):
        low, high = (torch.from_numpy(ends.toarray()) for ends in (X.min(axis=0), X.max(axis=0)))
    else:
        low, high = X.aminmax(dim=0)
    return float((data.sums.peak(high) + data.sums.peak(-low)).max())


def _rounding(data: Data) -> float:
    return torch.finfo(data.dtype).eps * data.largest()


def one_device(views: Sequence[Any], device: Any) -> Any:
    """Return the device that was asked for, or the one of the views that are tensors."""
    there = {v.device: p for p, v in enumerate(views) if isinstance(v, Tensor)}
    if len(there) > 1:
        (a, p), (b, q) = list(there.items())[:2]
        raise ValueError(f"view {p} is on {a}, view {q} on {b}; move all views to one device")
    return next(iter(there), device) if isinstance(device, str) and device == "auto" else device
