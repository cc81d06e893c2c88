"""Loss of entries that a fit has not seen: of blocks (bi-cross-validation), and of scattered ones (speckled)."""

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import pairwise
from math import prod
from typing import Any, cast

import numpy as np
import torch
from sklearn.base import clone
from torch import Tensor

from ..core import BetaFit, bmme, multiplicative, run
from ..core.cache import tiny
from ..core.data.as_data import is_sparse
from ..core.data.weighted import Weighted
from ..core.factors import as_factor, pad_columns, stack_problems
from ..core.labels import to_host
from ..metrics.components import unit_columns
from ..models.factorization.nmf import NMF
from ..models.shared.base import mode_names, solve_coefficients
from ..models.shared.bases import mean_loss, read_for_score
from ..models.shared.batch import batch_fit
from ..models.shared.constraints import is_asked
from ..models.shared.inputs import Inputs, as_float64
from ..models.shared.parameters import loss_exponent
from .arrays import (
    counted_entries,
    hide_entries,
    lower_weights,
    mark_entries,
    replace_entries,
    scale_fixed,
    scale_modes,
    scale_rows,
    stored_entries,
    swap,
    take,
)
from .blocks import GROUPS
from .stability import similarities

STARTS = {2: 1}  # of a fold, by the order of the data: a matrix has singular vectors, a tensor only random starts
OTHER_STARTS = 3

EXCHANGES = 1  # how often each rank of a tensor starts from its neighbours

HIDDEN = 0.05  # share of the entries that a speckled fold hides

# Weight of the mean of what is seen, in place of a hidden entry of a tensor. A component of a tensor may have one entry
# alone; if that is hidden any number would do, and the loss of a rank was then up to twenty times too large.
SLIGHT = 0.03

# The same where the loss is another divergence: zeros that are hidden are so much cheaper than the mean there that with
# `SLIGHT` one component more, the same for all entries, was found in data of five with little noise.
SLIGHTEST = 1e-3

FLOOR = 1e-3  # of its mean, added to a start: a multiplicative rule keeps zeros, and this loss may need another

MARGINS = 0.01  # share of the product of means in predictions of counts: a zero for a count of 1 is infinitely bad

ROUGH = 1e-3  # least `transform_tol` of predictions: their loss has other errors, and 1e-6 takes several times as long

# Of tensors: entries drawn to see how the noise grows; groups of those above a share of their mean, each of as many.
DRAWN, BINS, LITTLE = 20_000, 20, 0.1

# `noise_power` above which least squares does not judge the ranks of a tensor: fits of many components have 0.4 to 0.6
# where the noise is even, 0.7 to 1 where there is nothing else, 1.3 to 1.9 where it is that of counts or of shares.
GROWS = 1.1

ROUGH_FITS = 1e-4  # least `tol` of fits of a fold, for the same reason; their starts by least squares have `ROUGH`

MOST_ITERATIONS = (
    500  # of fits of a fold: with about as many components as columns they go on for ever towards no error
)

NOT_OF_BASES = ("n_components", "n_init", "init", "random_state", "normalize")


def _is_free(estimator: Any) -> bool:
    """Tell whether another loss may judge ranks: nothing is asked of the factors but signs and known entries."""
    if not isinstance(estimator, NMF) or is_asked(clone(estimator).set_params(fixed=None)):
        return False
    return 1 <= loss_exponent(estimator) <= 2


def _may_be_scaled(estimator: Any, X: Any) -> bool:
    """Tell whether least squares of a matrix may be weighted.

    Of tensors the product of means over three modes says little about an entry; weights made the choice worse.
    """
    return _is_free(estimator) and len(X.shape) == 2


def _find_scales(estimator: Any, X: Any, weights: Any) -> list[np.ndarray]:
    """Find a number for each slice of each mode, by which data are multiplied for weighted least squares.

    The weight of an entry is one over the product of the means of its slices, as in correspondence analysis. The noise
    of counts and of proportions is larger where entries are: without weights a few of them decide, and components fit
    them (Landa, Zhang and Kluger 2022 scale rows and columns for that reason). Neither rank nor signs change.
    """
    data = read_for_score(clone(estimator).set_params(**plain(estimator)), X, weights).data
    ones = [torch.ones(d, 1, dtype=data.dtype, device=data.device) for d in data.shape]
    found = []
    for mode, d in enumerate(data.shape):
        sums = data.mttkrp(ones, mode).double()
        counts = cast(Weighted, data).weigh(ones, mode).double() if data.weighted else sums * 0 + prod(data.shape) / d
        means = np.nan_to_num(to_host(torch.where(counts > 0, sums / counts, 0))[:, 0])
        typical = means.mean() or 1.0
        found.append(np.where(means > 0, np.sqrt(typical / np.where(means > 0, means, 1)), 1.0))
    return found


def _scales_of_seen(estimator: Any, X: Any, weights: Any, rows: np.ndarray, columns: np.ndarray) -> list[np.ndarray]:
    """Find the scales of all rows over the kept columns, and of all columns over the kept rows."""
    part = lambda at, mode: [None if A is None else take(A, at, mode) for A in (X, weights)]
    sides = _find_scales(estimator, *part(columns, 1)), _find_scales(estimator, *part(rows, 0))
    return [sides[0][0], sides[1][1], *sides[0][2:]]


def predict_block(
    estimators: Sequence[NMF], X: Any, weights: Any, fold: tuple[np.ndarray, np.ndarray], y: Any = None
) -> list[float]:
    """Compute the mean loss of a block of rows and columns that fits to the other rows and columns predict.

    Entries of the result: one number for all entries (the mean of what was seen), then `estimators`, the first of which
    has one component. A fold fits to the rows and columns that it keeps, from starts that are made of them alone; then
    it solves the coefficients of the rows that it holds out on the columns that it keeps, those of the columns in the
    same way, and multiplies the two. The squared distance has the weights of `_find_scales`, if there are any.
    """
    rows, columns = fold
    kept_rows, kept_columns = (np.setdiff1d(np.arange(d), at) for d, at in zip(X.shape, (rows, columns), strict=False))
    scales = None
    if _may_be_scaled(estimators[0], X):
        scales = _scales_of_seen(estimators[0], X, weights, kept_rows, kept_columns)
        if loss_exponent(estimators[0]) == 2:
            X, scales = scale_modes(X, scales), None
    corner = lambda r, c: [None if A is None else take(take(A, r, 0), c, 1) for A in (X, weights)]
    (seen, w), left = corner(kept_rows, kept_columns), corner(rows, kept_columns)
    above = [None if A is None else swap(A) for A in corner(kept_rows, columns)]
    probe = clone(estimators[0]).set_params(**plain(estimators[0]))
    inside = read_for_score(probe, seen, w)
    block = read_for_score(clone(probe), *corner(rows, columns))
    fits = [_make_fold(e, len(X.shape)) for e in estimators]
    if scales is not None:
        fits = _start_near(fits, seen, w, [scales[0][kept_rows], scales[1][kept_columns], *scales[2:]])
    fits = _fit_all(fits, seen, w)
    if _is_free(fits[0]) and fits[0].transform_method == "nnls":
        pairs = zip(_solve_together(fits, False, left), _solve_together(fits, True, above), strict=True)
        known = {id(fit): [*pair, *fit.factors_[1:]] for fit, pair in zip(fits, pairs, strict=True)}
        return _losses(fits, block, inside, lambda fit: known[id(fit)])
    given = {name: value for name, value in fits[0].get_params(deep=False).items() if name not in NOT_OF_BASES}
    given["transform_tol"] = max(fits[0].transform_tol, ROUGH)
    return _losses(fits, block, inside, lambda fit: _predicted_factors(fit, given, left, above))


def _make_fold(estimator: NMF, order: int) -> NMF:
    """Make an estimator for the data that a fold keeps; a start that the user made is one of all data."""
    init = estimator.init if isinstance(estimator.init, str) else "auto"
    rough = {"tol": max(estimator.tol, ROUGH_FITS), "max_iter": min(estimator.max_iter, MOST_ITERATIONS)}
    starts = STARTS.get(order, OTHER_STARTS)
    return clone(estimator).set_params(init=init, n_init=starts, **rough, **plain(estimator))


def _fit_all(fits: Sequence[Any], X: Any, weights: Any, y: Any = None) -> list[Any]:
    """Fit all ranks; of tensors each rank once more from the fits of its neighbours, and keep the better one.

    Random starts of a tensor often miss the best minimum at one rank and find it at the next: then the larger rank
    would seem to predict better. Of the many starts that neighbours give, the one that is best after a rough fit goes
    on: fits of all to the end took three times as long.
    """
    best = _together(fits, X, weights, y)
    loss, tol = (lambda fit: fit.loss_), {fit.n_components: fit.tol for fit in best}
    for _ in range(EXCHANGES if len(X.shape) > 2 and len(best) > 1 else 0):
        starts = [start for pair in pairwise(best) for start in _exchange(*pair)]
        rough = _together([start.set_params(tol=max(start.tol, ROUGH)) for start in starts], X, weights, y)
        first = [min((fit for fit in rough if fit.n_components == k), key=loss) for k in tol]
        others = [clone(fit).set_params(init=tuple(_factors(fit)), tol=tol[fit.n_components]) for fit in first]
        best = [min(pair, key=loss) for pair in zip(best, _together(others, X, weights, y), strict=True)]
    return best


def _together(fits: Sequence[Any], X: Any, weights: Any, y: Any = None) -> list[Any]:
    return list(batch_fit(fits, X, y, **({} if weights is None else {"weights": weights})))


def _exchange(small: Any, large: Any) -> list[Any]:
    """Start a rank from the next larger one without some components, and that from this one with others of it.

    Left out is each in turn, with the weakest ones where the ranks are further apart; the others are those that the
    smaller one lacks most.
    """
    factors = [[fit.embedding_, *fit.factors_] for fit in (small, large)]
    k, more = small.n_components, large.n_components - small.n_components
    weak = np.argsort(np.prod([np.linalg.norm(to_host(F), axis=0) for F in factors[1]], axis=0), kind="stable")
    left_out = [np.append(weak[weak != j][: more - 1], j) for j in range(k + more)]
    lacking = np.argsort(similarities(*([unit_columns(F) for F in Fs] for Fs in factors)).max(0), kind="stable")[:more]
    starts = [[take(F, np.setdiff1d(weak, at), 1) for F in factors[1]] for at in left_out]
    starts.append([_beside(F, take(G, lacking, 1)) for F, G in zip(*factors, strict=True)])
    filled = [tuple(F + FLOOR * F.mean(0) for F in start) for start in starts]
    return [clone(large if i == k + more else small).set_params(init=F, n_init=1) for i, F in enumerate(filled)]


def _beside(F: Any, G: Any) -> Any:
    return torch.cat([F, G], 1) if isinstance(F, Tensor) else np.concatenate([F, G], 1)


def _start_near(fits: Sequence[NMF], X: Any, weights: Any, scales: list[np.ndarray]) -> list[NMF]:
    """Start from least squares with weights near those of the loss (`_find_scales`): they take a tenth of the time."""
    quick = [clone(fit).set_params(loss="frobenius", solver="auto", normalize=None) for fit in fits]
    quick = _fit_all([fit.set_params(tol=max(fit.tol, ROUGH)) for fit in quick], scale_modes(X, scales), weights)
    found = []
    for fit, near in zip(fits, quick, strict=True):
        factors = [scale_rows(F, 1 / s) for F, s in zip([near.embedding_, *near.factors_], scales, strict=True)]
        start, tol = tuple(F + FLOOR * F.mean(0) for F in factors), max(fit.tol, ROUGH_FITS)
        found.append(clone(fit).set_params(init=start, n_init=1, tol=tol))
    return found


def _start_tensors(fits: Sequence[NMF], X: Any, weights: Any, hidden: Any) -> list[NMF]:
    """Start from rough least squares, with the Kullback-Leibler divergence where the noise grows with the entries.

    Every such divergence is least, in the mean, at the expectation; that whose weights are one over the variance
    tells small components from noise (quasi-likelihood; Wedderburn 1974). Of counts as noisy as that least squares has
    lower minima elsewhere, which predict worse than the true factors. A fold decides by what it sees.
    """
    quick = [clone(fit).set_params(loss="frobenius", solver="auto", normalize=None) for fit in fits]
    quick = _together([fit.set_params(tol=max(fit.tol, ROUGH)) for fit in quick], X, weights)
    grows = loss_exponent(fits[0]) == 2 and noise_power(hidden, weights, quick[-1]) > GROWS
    found = []
    for fit, near in zip(fits, quick, strict=True):
        start = tuple(F + FLOOR * F.mean(0) for F in (near.embedding_, *near.factors_))
        made = clone(fit).set_params(init=start, n_init=1, tol=max(fit.tol, ROUGH_FITS))
        found.append(made.set_params(loss="kullback-leibler", solver="auto") if grows else made)
    return found


def noise_power(X: Any, weights: np.ndarray, fit: NMF) -> float:
    """Estimate p of a variance `y^p` of the noise around a fit y: 0 is even noise, 1 that of counts, 2 of shares.

    It is the slope of the logarithms of mean squared residuals over those of means, in groups of equally many entries,
    drawn at random; of entries where the fit is next to nothing there is little to see. X has NaN where it is hidden.
    """
    at = np.unravel_index(np.random.RandomState(0).randint(prod(X.shape), size=DRAWN), tuple(X.shape))
    index = tuple(torch.from_numpy(i).to(X.device) for i in at) if isinstance(X, Tensor) else at
    drawn = to_host(X[index]) if isinstance(X, Tensor) else np.ma.filled(X[index], np.nan)
    y = reduce(np.multiply, (to_host(F)[i].astype(np.float64) for F, i in zip(_factors(fit), at, strict=True))).sum(1)
    seen = np.isfinite(drawn) & (weights[at] > 0)
    x, y = drawn[seen].astype(np.float64), y[seen]
    plenty = np.flatnonzero(y > LITTLE * y.mean()) if len(y) else np.arange(0)
    groups = np.array_split(plenty[y[plenty].argsort()], max(1, min(BINS, len(plenty) // BINS)))
    means, squares = (np.log([v[part].mean() for part in groups]) for v in (y, np.square(x - y) + tiny(torch.float64)))
    return float(np.polyfit(means, squares, 1)[0]) if len(groups) > 2 else 0.0


def _factors(fit: NMF) -> list[Any]:
    return [fit.embedding_, *fit.factors_]


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


def plain(estimator: Any) -> dict[str, Any]:
    """Return the parameters that folds have in common: they are quiet, one batch, and of arrays in their shape."""
    quiet = {"callback": None, "verbose": 0, "batch_size": None, "sample_shape": None}
    return {name: value for name, value in quiet.items() if name in estimator.get_params(deep=False)}


def _predicted_factors(fit: NMF, given: dict[str, Any], left: list[Any], above: list[Any]) -> list[Any]:
    """Solve the coefficients of the rows and of the columns that were held out."""
    U, *others = fit.factors_
    bases = lambda F: [F, *others] if others or fit._tensors else F.T
    solve = lambda F, A: type(fit).from_components(bases(F), **given).transform(A[0], weights=A[1])
    return [solve(U, left), solve(fit.embedding_, above), *others]


def _solve_together(fits: Sequence[NMF], swapped: bool, given: list[Any]) -> list[Tensor]:
    """Solve the coefficients of what was held out; with another loss than least squares all ranks as one batch.

    One rank after the other took half the time of a fold. `swapped`: of columns, with the rows' factor as a basis.
    """
    inputs = read_for_score(clone(fits[0]), *given)
    data, beta, names = inputs.data, loss_exponent(fits[0]), mode_names(inputs.data)
    place = lambda F: as_float64(F, data.device).to(data.dtype)
    first = lambda fit: fit.embedding_ if swapped else fit.factors_[0]
    known = [[place(F) for F in (first(fit), *fit.factors_[1:])] for fit in fits]
    if beta == 2:
        return [solve_coefficients(data, Fs, "nnls") * inputs.scale for Fs in known]
    pad = lambda F: pad_columns(F, max(fit.n_components for fit in fits) - F.shape[1])
    bases = [stack_problems([pad(F) for F in mode]) for mode in zip(*known, strict=True)]
    heights = reduce(torch.mul, (F.sum(-2, keepdim=True) for F in bases))
    ones = [torch.ones(d, 1, dtype=data.dtype, device=data.device) for d in data.shape]
    sums, total = data.mttkrp(ones, 0), heights.sum(-1, keepdim=True)
    start = as_factor((heights > 0) * sums / torch.where(total > 0, total, 1))
    state = {names[0]: start, **dict(zip(names[1:], bases, strict=True))}
    steps, fit = int(fits[0].transform_max_iter), BetaFit(data, names, beta)
    tol = max(float(fits[0].transform_tol), ROUGH) / 10  # of the objective, whose slope is nothing at the end
    found = run([fit], {names[0]: multiplicative}, state, method=bmme, max_iter=steps, tol=tol, warn=False)
    V = found.factors[names[0]] * inputs.scale
    return [V[i, :, : fit.n_components] for i, fit in enumerate(fits)]


def _mix(factors: list[Tensor], margins: list[Tensor]) -> list[Tensor]:
    """Add a little of the product of means to a prediction, as one more component."""
    V, *bases = factors
    M, *means = margins
    rows = torch.cat([V * (1 - MARGINS), M * MARGINS], 1)
    return [rows, *(torch.cat(pair, 1) for pair in zip(bases, means, strict=True))]


def draw_speckles(estimators: Sequence[Any], X: Any, weights: Any, random: np.random.RandomState) -> list[np.ndarray]:
    """Draw entries to hide, 5 % of all in each fold, as positions in the list of those that count."""
    places = _countable(estimators[0], X, weights)
    total = len(places[0]) if places else prod(X.shape)
    order = random.choice(total, size=min(total, max(GROUPS, round(HIDDEN * total) * GROUPS)), replace=False)
    return np.array_split(order, GROUPS)


def _countable(estimator: Any, X: Any, weights: Any) -> list[np.ndarray]:
    """Find the places of entries that count: what is stored where others are missing; [] for all."""
    if estimator.missing == "unstored":
        return stored_entries(X)
    counted = counted_entries(X, weights)
    return [] if counted is None else list(counted)


def predict_speckles(estimators: Sequence[Any], X: Any, weights: Any, fold: np.ndarray, y: Any = None) -> list[float]:
    """Compute the mean loss of scattered entries that were hidden from the fits, as `predict_block` does."""
    places = _countable(estimators[0], X, weights)
    at = [index[fold] for index in places] if places else list(np.unravel_index(fold, X.shape))
    missing = estimators[0].missing or "nan"
    fits = [_make_fold(e, len(X.shape)).set_params(missing=missing) for e in estimators]
    hidden = hide_entries(X, at)
    if _may_be_scaled(fits[0], X) and loss_exponent(fits[0]) == 2:
        scales = _find_scales(fits[0], hidden, weights)
        X, hidden = scale_modes(X, scales), scale_modes(hidden, scales)
        fits = [fit.set_params(fixed=scale_fixed(fit.fixed, scales)) for fit in fits]
    inside = read_for_score(clone(fits[0]), hidden, weights)
    if len(X.shape) > 2 and not is_sparse(X):
        mean = float(inside.data.mean()) * inside.scale
        filled, lowered = replace_entries(X, at, mean), lower_weights(X, weights, at, SLIGHT)
        fits = _start_tensors(fits, filled, lowered, hidden) if _is_free(fits[0]) else fits
        slight = SLIGHT if loss_exponent(fits[0]) == 2 else SLIGHTEST
        fits = _fit_all(fits, filled, lower_weights(X, weights, at, slight), y)
    else:
        fits = _fit_all(fits, hidden, weights, y)
    held_out = read_for_score(clone(fits[0]), X, mark_entries(X.shape, at, weights))
    return _losses(fits, held_out, inside, lambda fit: [fit.embedding_, *fit.factors_])
