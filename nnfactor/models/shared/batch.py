"""Many fits at once: estimators of one class that differ in seed, rank or hyper-parameters, as batches."""

import os
import warnings
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from typing import Any, TypeVar

from sklearn.exceptions import ConvergenceWarning

from ...core.data.base import Data
from ...core.data.distributed.watch import Watch
from ...io.checkpoints.identity import open_checkpoint
from ..restarts.dealt import fit_dealt, read_group
from .base import Factorization
from .fitting import Given, fit_together, forget_and_restore_on_error, labelled
from .parameters import whole

E = TypeVar("E", bound=Factorization)


def batch_fit(
    estimators: Sequence[E],
    X: Any,
    y: Any = None,
    *,
    max_bytes: int | None = None,
    weights: Any = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: float = 60.0,
    distributed: Any = None,
) -> list[E]:
    """Fit estimators of one class, to the same data or each to its own, many problems in one run with a stop for each.

    Every estimator comes out as from a `fit` of its own (to rounding), at a fraction of the time where problems are
    small: data are read and graphs built once, and one product with the data serves all. One batch can hold any
    `random_state`, `n_init`, `init`, `transform_method` and `keep_embeddings`; any weights of `NGE`, `N2S2L`,
    `GraphNMF` and `SULF`; different `n_components` that are close, or any of small data (`SemiNMF` and `SULF`: equal
    ones only); and data sets of one shape, such as bootstrap samples, permutations or windows: small dense arrays (on
    a CPU up to 262,144 entries each) in models without graphs or hidden entries. Estimators that differ in anything
    else, or in rules, form batches of their own, as does one with a `callback` or a `batch_size`.

    Parameters
    ----------
    estimators : sequence of estimators of one class, no object twice; they are fitted in place
    X, y, weights
        As for `fit`. Or X is a list (or tuple) of arrays, DataFrames or sparse matrices, the data of every estimator
        (for `SULF` a list of lists of views), and y and weights are one for all, or lists too, None for a data set
        without. One tensor is an array, not a list of matrices.
    max_bytes : int, optional
        Memory that the problems of one run may take beside data and results, as estimated from their shapes; they are
        split into runs accordingly. None: half of what is free on the device. The results do not depend on it.
    checkpoint, checkpoint_every : as for `fit`, one file for all estimators: runs that have ended are not run again
    distributed : {"auto"}, process group or None: deal restarts over its processes, which call alike, and get all

    Returns
    -------
    list of the estimators, in order; their `history_["seconds"]` counts from the start of a run

    Raises
    ------
    ValueError, FloatingPointError, torch.OutOfMemoryError, OSError
        No estimators, different classes, or bad parameters or data of one (named). No restart has a finite objective; a
        batch did not fit (says which `max_bytes` would); no checkpoint written. All are then what they were.

    Examples
    --------
    >>> import numpy as np
    >>> from nnfactor import NMF, batch_fit
    >>> X = np.random.default_rng(0).random((30, 4)) @ np.random.default_rng(1).random((4, 20))
    >>> fits = batch_fit([NMF(k, random_state=seed) for k in (2, 3, 4) for seed in range(5)], X)
    >>> [f.n_components for f in fits if f.loss_ < 1e-3 * np.sum(X**2)][0]
    4
    >>> samples = [X[np.random.default_rng(i).integers(30, size=30)] for i in range(20)]  # bootstrap
    >>> len(batch_fit([NMF(2, random_state=0) for _ in samples], samples))
    20
    """
    estimators, given, kept = _checked(estimators, max_bytes), (X, y, weights), (checkpoint, checkpoint_every)
    fit = _fit_all if (watched := read_group(distributed)) is None else partial(_fit_dealt, watched)
    fit(estimators, given, max_bytes, kept)
    return _warn(estimators)


def _fit_all(estimators: list[E], given: tuple[Any, Any, Any], max_bytes: int | None, kept: tuple[Any, float]) -> None:
    """Fit estimators, or leave all as they are."""
    position = {id(e): f"estimators[{i}]: " for i, e in enumerate(estimators)}
    label = lambda estimator: position[id(estimator)]
    for estimator in estimators:
        with labelled(label, estimator):
            estimator._check_parameters()
    checkpoint = open_checkpoint(*kept, estimators, given[0], max_bytes=max_bytes)
    with ExitStack() as stack:
        for estimator in estimators:
            stack.enter_context(forget_and_restore_on_error(estimator))
        stack.enter_context(checkpoint or nullcontext())
        fit_together(estimators, _given(estimators, *given), max_bytes, label, checkpoint)


def _fit_dealt(
    watched: Watch, estimators: list[E], given: tuple[Any, Any, Any], max_bytes: int | None, kept: tuple[Any, float]
) -> None:
    """Fit estimators whose restarts are dealt over processes, or leave all as they are."""
    if kept[0] is not None:
        raise ValueError("checkpoint is of one process, or of data that are Sharded; leave it or distributed out")
    if isinstance(given[0], Data) and not given[0].sums.alone:
        raise ValueError(
            "X is Sharded: its processes have parts of the data, and share every fit; leave distributed out"
        )
    own = _given(estimators, *given)
    several = len({id(one) for one in own}) > 1

    def fit(made: list[Any], positions: list[int]) -> list[Any]:
        some = [own[i] for i in positions]
        lists = [g.X for g in some], [g.y for g in some], [g.weights for g in some]
        _fit_all(made, lists if several else given, max_bytes, (None, 0.0))
        return made

    with ExitStack() as stack:
        for estimator in estimators:
            stack.enter_context(forget_and_restore_on_error(estimator))
        fit_dealt(estimators, watched, fit)


def _checked(estimators: Sequence[E], max_bytes: int | None) -> list[E]:
    """Check that estimators are different objects of one class."""
    if not isinstance(estimators, Iterable):
        raise ValueError(f"estimators must be a list of estimators, got {estimators!r}; for one, call its fit")
    estimators = list(estimators)
    if not estimators:
        raise ValueError("estimators is empty; give at least one")
    kind = type(estimators[0])
    for i, estimator in enumerate(estimators):
        if not isinstance(estimator, Factorization):
            wanted = "batch_fit takes factorizations such as NMF, NTF or NGE"
            raise ValueError(f"estimators[{i}] is {estimator!r}; {wanted}")
        if type(estimator) is not kind:
            names = f"estimators[{i}] is of class {type(estimator).__name__}, estimators[0] of {kind.__name__}"
            raise ValueError(f"{names}; call batch_fit once for each class")
    if len({id(e) for e in estimators}) < len(estimators):
        raise ValueError("estimators holds the same object twice; use sklearn.base.clone")
    if max_bytes is not None:
        whole("max_bytes", max_bytes, also="None or ")
    return estimators


def _given(estimators: list[Any], X: Any, y: Any, weights: Any) -> list[Given]:
    """Pair every estimator with what it is given; the same objects are read once."""
    if not _is_list_of_data(X, listed_views=type(estimators[0])._listed_views):
        return [Given(X, y, weights)] * len(estimators)
    columns, dimensions = [list(X)], 2 + type(estimators[0])._listed_views
    for name, values, least in (("y", y, 1), ("weights", weights, dimensions)):
        columns.append(list(values) if _is_one_for_each(values, len(X), least) else [values] * len(X))
        if len(columns[-1]) != len(X):
            raise ValueError(
                f"{name} is a list of {len(columns[-1])}, and X one of {len(X)} data sets; give one for each"
            )
    if len(X) != len(estimators):
        raise ValueError(
            f"X is a list of {len(X)} data sets, but there are {len(estimators)} estimators; give one for each data "
            "set, or one array for all of them: np.stack(X) makes a tensor"
        )
    known: dict[tuple[int, ...], Given] = {}
    return [known.setdefault(tuple(map(id, own)), Given(*own)) for own in zip(*columns, strict=True)]


def _is_list_of_data(X: Any, listed_views: bool) -> bool:
    """Tell a list of data sets from one: arrays of two dimensions at least, or lists of them where those are views."""
    if not isinstance(X, list | tuple) or not X:
        return False
    if listed_views:
        return all(_is_list_of_data(views, listed_views=False) for views in X)
    return all(len(getattr(data, "shape", ())) >= 2 for data in X)


def _is_one_for_each(values: Any, n: int, least: int) -> bool:
    """Tell a list of arrays of `least` dimensions, one or None for each of n data sets, from one array or list."""
    given = [v for v in values if v is not None] if isinstance(values, list | tuple) else [0]
    return all(_dimensions(v) >= least for v in given) and (bool(given) or len(values) == n)


def _dimensions(values: Any) -> int:
    """Count the dimensions of an array, or of nested lists by their deepest elements."""
    if hasattr(values, "shape"):
        return len(values.shape)
    return 1 + max(map(_dimensions, values)) if isinstance(values, list | tuple) and len(values) else 0


def _warn(estimators: list[E]) -> list[E]:
    """Tell every complaint once, with the positions of those that it is about; return the estimators."""
    about: dict[str, list[int]] = {}
    for i, estimator in enumerate(estimators):
        for complaint in estimator._complaints():
            about.setdefault(complaint, []).append(i)
    for complaint, positions in about.items():
        name, some = type(estimators[0]).__name__, f"{len(positions)} of {len(estimators)} estimators"
        where = f"{some} (positions {', '.join(map(str, positions))})"
        warnings.warn(f"{name}: {where}: each {complaint}", ConvergenceWarning, stacklevel=3)
    return estimators
