"""Loss of entries that a fit has not seen: of blocks (bi-cross-validation), and of scattered ones (speckled)."""

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from torch import Tensor

from ..models.factorization.nmf import NMF
from ..models.shared.bases import mean_loss, read_for_score
from ..models.shared.batch import batch_fit
from ..models.shared.inputs import Inputs, as_float64
from ..models.shared.parameters import loss_exponent
from .arrays import counted_entries, hide_entries, mark_entries, stored_entries, swap, take

GROUPS = 5  # of rows and of columns: a fit sees 64 % of the entries, and finds what is weak better than with fewer

ROUNDS = 2  # how often every row and every column is held out

HIDDEN = 0.05  # share of the entries that a speckled fold hides

FLOOR = 1e-3  # of its mean, added to a start: a multiplicative rule keeps zeros, and other samples may need another

MARGINS = 0.01  # share of the product of means in predictions of counts: a zero for a count of 1 is infinitely bad

ROUGH = 1e-4  # least `transform_tol` of predictions: their loss has other errors, and 1e-6 takes twice the time

NOT_OF_BASES = ("n_components", "n_init", "init", "random_state", "normalize")


def block_losses(full: Sequence[NMF], X: Any, weights: Any, random: np.random.RandomState) -> np.ndarray:
    """Compute the mean loss of blocks of rows and columns that fits to the other rows and columns predict.

    Columns of the result: one number for all entries (the mean of what was seen), then the estimators of `full`, whose
    factors are the starts; the first has one component. A fold fits to the rows and columns that it keeps, solves the
    coefficients of the rows that it holds out on the columns that it keeps, those of the columns in the same way, and
    multiplies the two.
    """
    folds = _fold_pairs(X.shape, random)
    _check_size(full, X.shape, folds)
    return np.array([_predict_block(full, X, weights, *fold) for fold in folds])


def _fold_pairs(shape: Sequence[int], random: np.random.RandomState) -> list[tuple[np.ndarray, np.ndarray]]:
    """Draw pairs of rows and columns to hold out; a round holds out every row and every column once."""
    sides = [np.array_split(random.permutation(d), min(d, GROUPS)) for d in shape[:2]]
    turns = max(map(len, sides))
    pairs = [(a % len(sides[0]), (a + shift) % len(sides[1])) for shift in range(ROUNDS) for a in range(turns)]
    return [(sides[0][a], sides[1][b]) for a, b in dict.fromkeys(pairs)]


def _check_size(full: Sequence[NMF], shape: Sequence[int], folds: Sequence[tuple[np.ndarray, np.ndarray]]) -> None:
    """Refuse ranks whose coefficients what a fold keeps does not determine."""
    rows, columns = (d - max(len(fold[side]) for fold in folds) for side, d in enumerate(shape[:2]))
    most, largest = min(rows, columns) * prod(shape[2:]), max(e.n_components for e in full)
    if largest > most or not rows or not columns:
        raise ValueError(
            f"ranks go up to {largest}, but of X of shape {tuple(shape)} a fold of criterion='bicross' keeps {rows} "
            f"rows and {columns} columns, which determine {most} components; use ranks up to {most}, or "
            "criterion='stability'"
        )


def _predict_block(full: Sequence[NMF], X: Any, weights: Any, rows: np.ndarray, columns: np.ndarray) -> list[float]:
    kept_rows, kept_columns = (np.setdiff1d(np.arange(d), at) for d, at in zip(X.shape, (rows, columns), strict=False))
    corner = lambda r, c: [None if A is None else take(take(A, r, 0), c, 1) for A in (X, weights)]
    (seen, w), left = corner(kept_rows, kept_columns), corner(rows, kept_columns)
    above = [None if A is None else swap(A) for A in corner(kept_rows, columns)]
    probe = clone(full[0]).set_params(**_plain(full[0]))
    inside = read_for_score(probe, seen, w)
    block = read_for_score(clone(probe), *corner(rows, columns))
    starts = [_start_at(e, kept_rows, kept_columns) for e in full]
    fits = batch_fit(starts, seen, weights=w) if w is not None else batch_fit(starts, seen)
    return _losses(fits, block, inside, lambda fit: _predicted_factors(fit, left, above))


def _losses(
    fits: Sequence[NMF], held_out: Inputs, seen: Inputs, predict: Callable[[NMF], list[np.ndarray | Tensor]]
) -> list[float]:
    """Compute the mean loss of a constant, the mean of what was seen, then of what each fit predicts.

    The first fit has one component: where a zero for a count is infinitely bad, a little of it is in all others.
    """
    device = held_out.data.device
    constant = [torch.ones(d, 1, dtype=torch.float64, device=device) for d in held_out.data.shape]
    constant[0] = constant[0] * float(seen.data.mean()) * (seen.scale / held_out.scale)
    found, margins = [mean_loss(fits[0], held_out, constant)], None
    for fit in fits:
        factors = [as_float64(F, device) for F in predict(fit)]
        factors[0] = factors[0] / held_out.scale
        if margins is None:
            margins = factors
        elif loss_exponent(fit) < 2:
            factors = _mix(factors, margins)
        found.append(mean_loss(fit, held_out, factors))
    return found


def _start_at(estimator: NMF, rows: np.ndarray, columns: np.ndarray) -> NMF:
    """Make an estimator for what a fold keeps, which starts from the factors of all data."""
    V, U, *others = estimator.embedding_, *estimator.factors_
    start = tuple(F + FLOOR * F.mean(0) for F in (take(V, rows, 0), take(U, columns, 0), *others))
    return clone(estimator).set_params(init=start, n_init=1, **_plain(estimator))


def _plain(estimator: Any) -> dict[str, Any]:
    """Return the parameters that folds have in common: they are quiet, one batch, and of arrays in their shape."""
    quiet = {"callback": None, "verbose": 0, "batch_size": None, "sample_shape": None}
    return {name: value for name, value in quiet.items() if hasattr(estimator, name)}


def _predicted_factors(fit: NMF, left: list[Any], above: list[Any]) -> list[Any]:
    """Solve the coefficients of the rows and of the columns that were held out."""
    given = {name: value for name, value in fit.get_params(deep=False).items() if name not in NOT_OF_BASES}
    given["transform_tol"] = max(fit.transform_tol, ROUGH)
    U, *others = fit.factors_
    bases = lambda F: [F, *others] if others or fit._tensors else F.T
    solve = lambda F, A: type(fit).from_components(bases(F), **given).transform(A[0], weights=A[1])
    return [solve(U, left), solve(fit.embedding_, above), *others]


def _mix(factors: list[Tensor], margins: list[Tensor]) -> list[Tensor]:
    """Add a little of the product of means to a prediction, as one more component."""
    V, *bases = factors
    M, *means = margins
    rows = torch.cat([V * (1 - MARGINS), M * MARGINS], 1)
    return [rows, *(torch.cat(pair, 1) for pair in zip(bases, means, strict=True))]


def speckled_losses(
    full: Sequence[Any], X: Any, weights: Any, random: np.random.RandomState, n_init: int, n_folds: int = GROUPS
) -> np.ndarray:
    """Compute the mean loss of entries, 5 % of all in each fold, that were hidden from the fits; as `block_losses`."""
    return np.array(
        [_predict_entries(full, X, weights, at, n_init) for at in _speckles(full[0], X, weights, random, n_folds)]
    )


def _speckles(
    estimator: Any, X: Any, weights: Any, random: np.random.RandomState, n_folds: int
) -> Iterator[list[np.ndarray]]:
    """Draw entries to hide among those that count: of a sparse matrix where others are missing, those it stores."""
    if estimator.missing == "unstored":
        places = stored_entries(X)
    else:
        counted = counted_entries(X, weights)
        places = [] if counted is None else list(counted)
    total = len(places[0]) if places else prod(X.shape)
    order = random.choice(total, size=min(total, max(n_folds, round(HIDDEN * total) * n_folds)), replace=False)
    for at in np.array_split(order, n_folds):
        yield [index[at] for index in places] if places else list(np.unravel_index(at, X.shape))


def _predict_entries(full: Sequence[Any], X: Any, weights: Any, at: list[np.ndarray], n_init: int) -> list[float]:
    missing = full[0].missing or "nan"
    fits = [clone(e).set_params(missing=missing, n_init=n_init, **_plain(e)) for e in full]
    hidden = hide_entries(X, at)
    batch_fit(fits, hidden, weights=weights)
    inside = read_for_score(clone(fits[0]), hidden, weights)
    held_out = read_for_score(clone(fits[0]), X, mark_entries(X.shape, at, weights))
    return _losses(fits, held_out, inside, lambda fit: [fit.embedding_, *fit.factors_])
