"""Sweeps of HALS with momentum over small dense problems, as many as are asked for in one compiled loop.

On some thousand entries, what Python and torch do between two products takes ten times as long as the products. The
steps are those of `her`, which says what they are for.

A problem has a matrix `(r, c)`, whose rows are those of a first group of modes and whose columns those of a second
group, and factors of all modes, one behind the other in a flat array, `(k, d)` each.
"""

from collections.abc import Sequence
from math import exp, inf, log
from typing import Any, NamedTuple

import numpy as np

from .columns import TILE, sweep_tiles
from .flat_factors import Modes, contract, copy, factor, inlined, khatri_rao, sums
from .threads import call_in_parts, jit, one_thread_of_blas

LIMIT, ROUNDING, WEIGHT, PAST, CAP, REACH = range(6)  # columns of the numbers of a problem


class Momentum(NamedTuple):
    """The constants of `her`: of the weight, of a rise that is a disaster, and of lengths that are far apart."""

    grow: float
    shrink: float
    grow_cap: float
    rise: float
    apart: float


class Point(NamedTuple):
    """Where problems are: what `her` keeps, for B problems; the loop writes to all of them.

    Attributes
    ----------
    before, ahead, reached : arrays (B, k * sum(sizes))
        The factors that are kept, those from which the next sweep starts, and those of the objective.
    numbers : array (B, 6)
    objective, kept : arrays (B,)
    """

    before: np.ndarray
    ahead: np.ndarray
    reached: np.ndarray
    numbers: np.ndarray
    objective: np.ndarray
    kept: np.ndarray


class Buffers(NamedTuple):
    """What a sweep of one problem computes."""

    new: np.ndarray  # improved factors, flat
    grams: np.ndarray  # (modes, k, k): of the factors "ahead"
    others: np.ndarray  # (k, k): of all modes but one
    last: np.ndarray  # (k, k): of the factor that is improved last
    by_rows: np.ndarray  # (k, r): the product of the matrix with the second group
    by_columns: np.ndarray  # (k, c): with the first group


def sweep_problems(
    matrices: np.ndarray,
    owners: Sequence[int],
    squares: np.ndarray,
    modes: Modes,
    inner: np.ndarray,
    point: Point,
    momentum: Momentum,
    count: int,
) -> np.ndarray:
    """Make `count` sweeps of every problem: of the matrix `matrices[owners[b]]`, whose squared norm is `squares[b]`.

    `inner` says how often the columns of every factor are swept each time. Returns the objectives, `(count, B)`.
    """
    B, length = point.before.shape
    k = length // int(modes.sizes.sum())
    products = 4.0 * matrices[0].size * k
    sweeps = float((2.0 * k * k * modes.sizes * (inner + 2)).sum())
    passed = np.empty((count, B))
    given: tuple[Any, ...] = (matrices, np.array(owners), squares, modes, inner, point, momentum, k, passed)
    with one_thread_of_blas():  # a part of the problems is one thread's
        call_in_parts(_sweep_problems, B, B * count * (products + sweeps), *given)
    return passed


@jit
def _sweep_problems(matrices, owners, squares, modes, inner, point, momentum, k, passed, begin, end):  # noqa: ANN001, ANN202
    """Sweep over the problems `begin..end`, which do not depend on each other."""
    _, r, c = matrices.shape
    n_modes, length, dtype = len(modes.sizes), point.before.shape[1], matrices.dtype
    made = Buffers(
        np.empty(length, dtype),
        np.empty((n_modes, k, k), dtype),
        np.empty((k, k), dtype),
        np.empty((k, k), dtype),
        np.empty((k, r), dtype),
        np.empty((k, c), dtype),
    )
    last = modes.order[n_modes - 1]
    for b in range(begin, end):
        before, ahead, reached, numbers = point.before[b], point.ahead[b], point.reached[b], point.numbers[b]
        _multiply_grams(ahead, modes.sizes, made.grams)
        for turn in range(len(passed)):
            reach = dtype.type(numbers[REACH])
            value = _improve(matrices[owners[b]], squares[b], modes, inner, before, ahead, made, reach, momentum.apart)
            good = value <= numbers[LIMIT]  # False for NaN
            if good:
                copy(ahead, reached)
                F, new = factor(ahead, modes.sizes, k, last), factor(made.new, modes.sizes, k, last)
                copy(new.reshape(-1), factor(reached, modes.sizes, k, last).reshape(-1))
                _extrapolate(factor(before, modes.sizes, k, last), new, reach, F)
                _multiply_turned(F, F, made.grams[last])
                copy(made.new, before)
                point.objective[b] = value
            else:
                copy(before, ahead)
                _multiply_grams(ahead, modes.sizes, made.grams)
            point.kept[b], passed[turn, b] = good, point.objective[b]
            _update_numbers(numbers, good, value, point.objective[b], momentum)


@inlined
def _improve(matrix, square, modes, inner, before, ahead, made, reach, apart):  # noqa: ANN001, ANN202
    """Improve all factors once; return the objective with the newest "ahead", where the last is the improved one."""
    k, n_modes, cut = len(made.others), len(modes.sizes), modes.cut
    rows_known, columns_known, value = False, False, 0.0
    for step in range(n_modes):
        mode = modes.order[step]
        if step == n_modes - 1 and _bound_lengths(ahead, made.grams, modes, k, apart):
            rows_known, columns_known = False, False
        inside = mode < cut
        if inside and not rows_known:
            _multiply_turned(khatri_rao(ahead, modes.sizes, k, cut, n_modes), matrix, made.by_rows)
        if not inside and not columns_known:
            np.dot(khatri_rao(ahead, modes.sizes, k, 0, cut), matrix, made.by_columns)
        first, end, product = (0, cut, made.by_rows) if inside else (cut, n_modes, made.by_columns)
        linear = contract(product, ahead, modes.sizes, first, end, mode)
        _multiply_others(made.grams, mode, made.others)
        F, new = factor(ahead, modes.sizes, k, mode), factor(made.new, modes.sizes, k, mode)
        _sweep_columns(F, linear, made.others, new, inner[mode])
        if step == n_modes - 1:
            _multiply_turned(new, new, made.last)
            value = square - 2 * _inner(linear, new) + _inner(made.others, made.last)
            value = 0.0 if value < 0 else value  # NaN stays NaN
        else:
            _extrapolate(factor(before, modes.sizes, k, mode), new, reach, F)
            _multiply_turned(F, F, made.grams[mode])
            rows_known, columns_known = inside, not inside  # products with the other group still are of the newest
    return value


@inlined
def _sweep_columns(F, linear, G, new, sweeps):  # noqa: ANN001, ANN202
    """Minimise over one column after the other, some times, by the loop of all factors."""
    k, n = F.shape
    one, tiles = F.reshape(1, k, n), (n + TILE - 1) // TILE
    out = new.reshape(1, k, n)
    sweep_tiles(one, linear.reshape(1, k, n), G.reshape(1, k, k), one, one, one, out, 0, False, sweeps, 0, tiles)


@jit
def _extrapolate(before, new, reach, out):  # noqa: ANN001, ANN202
    """Write `before + reach (new - before)`, clamped at 0."""
    a, b, into = before.reshape(-1), new.reshape(-1), out.reshape(-1)
    for i in range(len(into)):
        x = a[i] + reach * (b[i] - a[i])
        into[i] = 0 if x < 0 else x


@jit
def _multiply_turned(A, B, out):  # noqa: ANN001, ANN202
    np.dot(A, B.T, out)


@jit
def _multiply_grams(flat, sizes, out):  # noqa: ANN001, ANN202
    for mode in range(len(sizes)):
        F = factor(flat, sizes, out.shape[1], mode)
        _multiply_turned(F, F, out[mode])


@jit
def _multiply_others(grams, mode, out):  # noqa: ANN001, ANN202
    """Multiply the Grams of all modes but one, entry by entry."""
    for c in range(len(out)):
        for d in range(len(out)):
            out[c, d] = 1
            for m in range(len(grams)):
                if m != mode:
                    out[c, d] *= grams[m, c, d]


@sums
def _inner(A, B):  # noqa: ANN001, ANN202
    """Sum the products of the entries, in float64."""
    a, b, total = A.reshape(-1), B.reshape(-1), 0.0
    for i in range(len(a)):
        total += np.float64(a[i]) * np.float64(b[i])
    return total


@jit
def _bound_lengths(flat, grams, modes, k, apart):  # noqa: ANN001, ANN202
    """Bring columns of all factors but the last near the geometric mean of their component; tell if any was far."""
    n_modes, last = len(modes.sizes), modes.order[len(modes.sizes) - 1]
    far, near = apart ** (2 + 2 / (n_modes - 1)), True
    for d in range(k):
        low, high = inf, 0.0
        for m in range(n_modes):
            low, high = min(low, np.float64(grams[m, d, d])), max(high, np.float64(grams[m, d, d]))
        near = near and high <= far * low
    if near:
        return False
    logs, mean = np.empty((n_modes, k)), np.zeros(k)
    for m in range(n_modes):
        for d in range(k):
            square = np.float64(grams[m, d, d])
            logs[m, d] = 0.5 * log(square) if square > 0 else -inf
            mean[d] += logs[m, d] / n_modes
    longest = -inf
    for d in range(k):
        longest = max(longest, mean[d])
    for m in range(n_modes):
        if m != last:
            for d in range(k):
                excess = logs[m, d] - (mean[d] if mean[d] > -inf else longest)
                if abs(excess) < inf and abs(excess) > log(apart):
                    times = exp(min(max(excess, -log(apart)), log(apart)) - excess)
                    f = factor(flat, modes.sizes, k, m)[d]
                    for i in range(len(f)):
                        f[i] *= flat.dtype.type(times)
            F = factor(flat, modes.sizes, k, m)
            _multiply_turned(F, F, grams[m])
    return True


@jit
def _update_numbers(numbers, good, value, reached, momentum):  # noqa: ANN001, ANN202
    """Write the numbers that a sweep to `value` changes; it was kept if `good`, and `reached` is the objective then."""
    weight, past, cap, rounding = numbers[WEIGHT], numbers[PAST], numbers[CAP], numbers[ROUNDING]
    known = inf if value != value else value
    disaster = known > rounding + (1 + momentum.rise) * reached
    numbers[LIMIT] = np.finfo(np.float64).max if disaster else known + rounding
    numbers[WEIGHT] = min(cap, momentum.grow * weight) if good else weight / momentum.shrink
    numbers[PAST] = weight
    numbers[CAP] = min(1.0, momentum.grow_cap * cap) if good else past
    numbers[REACH] = 1.0 if disaster else 1 + numbers[WEIGHT]
