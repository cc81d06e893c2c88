"""Many fits at once: estimators of one class that differ in seed, rank or hyper-parameters, as batches."""

import warnings
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import Any, TypeVar

from sklearn.exceptions import ConvergenceWarning

from .base import Factorization
from .fitting import fit_together, forget_and_restore_on_error, labelled
from .parameters import whole

E = TypeVar("E", bound=Factorization)


def batch_fit(
    estimators: Sequence[E], X: Any, y: Any = None, *, max_bytes: int | None = None, weights: Any = None
) -> list[E]:
    """Fit estimators of one class to the same data, many problems in one run with a stop for each.

    Every estimator comes out as from a `fit` of its own (to rounding), at a fraction of the time where the problems are
    small: data are read and graphs built once, and one product with the data serves all.

    One batch can hold any `random_state`, `n_init`, `init`, `transform_method` and `keep_embeddings`; any weights of
    `NGE` (alpha), `N2S2L` (alpha, beta), `GraphNMF` (lam) and `SULF` (beta, gamma, lam); and different `n_components`
    that are close, or any of small data (`SemiNMF` and `SULF`: equal ones only). Estimators that differ in anything
    else, or in the rules that their rank or weights imply, form batches of their own, one after the other, as does one
    with a `callback` or a `batch_size`. `verbose` prints lines for a whole batch.

    Parameters
    ----------
    estimators : sequence of estimators
        Of one class, no object twice. They are fitted in place.
    X, y
        As for `fit`.
    max_bytes : int, optional
        Memory that the problems of one run may take beside data and results, as estimated from their shapes; they are
        split into runs accordingly. None: half of what is free on the device. The results do not depend on it.
    weights : of the shape of X, optional
        As for `fit`, of estimators that take it.

    Returns
    -------
    list of the estimators, in order; `history_["seconds"]` counts from the start of an estimator's run

    Raises
    ------
    ValueError
        No estimators, different classes, or bad parameters of one, by its position. All are then what they were.
    FloatingPointError, torch.OutOfMemoryError
        An objective is not finite in any restart; a batch did not fit (says which `max_bytes` would).

    Examples
    --------
    >>> import numpy as np
    >>> from nnfactor import NMF, batch_fit
    >>> X = np.random.default_rng(0).random((30, 4)) @ np.random.default_rng(1).random((4, 20))
    >>> fits = batch_fit([NMF(k, random_state=seed) for k in (2, 3, 4) for seed in range(5)], X)
    >>> [f.n_components for f in fits if f.loss_ < 1e-3 * np.sum(X**2)][0], fits[0].embedding_.shape
    (4, (30, 2))
    """
    estimators = _checked(estimators, max_bytes)
    position = {id(e): f"estimators[{i}]: " for i, e in enumerate(estimators)}
    label = lambda estimator: position[id(estimator)]
    for estimator in estimators:
        with labelled(label, estimator):
            estimator._check_parameters()
    with ExitStack() as stack:
        for estimator in estimators:
            stack.enter_context(forget_and_restore_on_error(estimator))
        fit_together(estimators, X, y, max_bytes, label, weights)
    _warn(estimators)
    return estimators


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


def _warn(estimators: list[E]) -> None:
    """Every complaint once, with the positions of those that it is about."""
    about: dict[str, list[int]] = {}
    for i, estimator in enumerate(estimators):
        for complaint in estimator._complaints():
            about.setdefault(complaint, []).append(i)
    for complaint, positions in about.items():
        name, some = type(estimators[0]).__name__, f"{len(positions)} of {len(estimators)} estimators"
        where = f"{some} (positions {', '.join(map(str, positions))})"
        warnings.warn(f"{name}: {where}: each {complaint}", ConvergenceWarning, stacklevel=3)
