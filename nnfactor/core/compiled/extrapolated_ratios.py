"""Multiplicative sweeps with momentum under Kullback-Leibler over small dense problems, many in one compiled loop.

The steps are those of `bmme` with the multiplicative rule, and the passes over the data those of `ratios`. Matrices and
factors are as in `extrapolated`.
"""

from collections.abc import Sequence
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from .flat_factors import Modes, contract, copy, factor, inlined, khatri_rao
from .ratios import CHUNK, LANES, WIDTH, add_divergence, flatten, times_left, times_right
from .threads import call_in_parts, jit


class Trail(NamedTuple):
    """Where B problems are: what `bmme` keeps; the loop writes to all of it.

    Attributes
    ----------
    now, before : arrays (B, k * sum(sizes))
        The factors, and those of the sweep before.
    t : array (B,)
    begun : bool
        Whether there was a sweep before.
    """

    now: np.ndarray
    before: np.ndarray
    t: np.ndarray
    begun: bool


class Buffers(NamedTuple):
    """What a sweep of one problem computes."""

    start: np.ndarray  # factors before it, flat
    by_rows: np.ndarray  # (1, k, r): the product of the ratio with the second group
    by_columns: np.ndarray  # (1, k, c): with the first group
    plus: np.ndarray  # (k,): products of the sums of columns


def operations(r: int, c: int, k: int) -> float:
    """Count those of a sweep over a matrix; the passes over the data take some columns at once."""
    return 8.0 * r * max(c, int(LANES)) * k


def sweep_ratios(
    X: Tensor,
    owners: Sequence[int],
    floors: np.ndarray,
    modes: Modes,
    trail: Trail,
    step: float,
    count: int,
    tell: bool,
) -> np.ndarray | None:
    """Make `count` sweeps of every problem: of the matrix `X[owners[b]]` of `(sets, r, c)`, whose rows are contiguous.

    A model is no less than `floors[b]`. Returns the divergences after each sweep, `(count, B)`, if it shall `tell`.
    """
    (_, r, c), B = X.shape, len(trail.t)
    k = trail.now.shape[1] // int(modes.sizes.sum())
    flat, begins = flatten(X, owners)
    passed = np.zeros((count, B) if tell else (0, B))
    given: tuple[Any, ...] = (flat, begins, X.stride(1), (r, c), floors, modes, trail, step, k, count, passed)
    call_in_parts(_sweep_problems, B, 8.0 * B * count * r * c * k, *given)
    return passed if tell else None


@jit
def _sweep_problems(  # noqa: ANN202
    X, begins, stride, shape, floors, modes, trail, step, k, count, passed, begin, end  # noqa: ANN001
):  # fmt: skip
    """Sweep over the problems `begin..end`, which do not depend on each other."""
    (r, c), dtype, length, n_modes = shape, trail.now.dtype, trail.now.shape[1], len(modes.sizes)
    made = Buffers(np.empty(length, dtype), np.empty((1, k, r), dtype), np.empty((1, k, c), dtype), np.empty(k, dtype))
    chunks = (r + int(CHUNK) - 1) // int(CHUNK)
    parts = np.zeros((1, chunks))
    for b in range(begin, end):
        now, before, begun = trail.now[b], trail.before[b], trail.begun
        place = (X, begins[b : b + 1], stride, floors[b : b + 1])
        for turn in range(count):
            t = trail.t[b]
            following = sqrt(t * t + 0.25) + 0.5
            weight = dtype.type((t - 1) / following)
            copy(now, made.start)
            for s in range(n_modes):
                mode = modes.order[s]
                if begun:
                    F, start = factor(now, modes.sizes, k, mode), factor(made.start, modes.sizes, k, mode)
                    _extrapolate(factor(before, modes.sizes, k, mode), start, weight, F)
                _improve(place, modes, now, mode, made, dtype.type(step))
            copy(made.start, before)
            begun, trail.t[b] = True, following
            if len(passed):
                V = khatri_rao(now, modes.sizes, k, 0, modes.cut).reshape(1, k, r)
                U = khatri_rao(now, modes.sizes, k, modes.cut, n_modes).reshape(1, k, c)
                for i in range(chunks):
                    parts[0, i] = 0
                add_divergence(*place[:3], V, U, place[3], parts, 0, chunks)
                for i in range(chunks):
                    passed[turn, b] += parts[0, i]


@inlined
def _improve(place, modes, now, mode, made, step):  # noqa: ANN001, ANN202
    """Improve the factor of a mode, in place."""
    (X, begins, stride, floors), sizes, cut, n_modes = place, modes.sizes, modes.cut, len(modes.sizes)
    k, r, c = len(made.plus), made.by_rows.shape[2], made.by_columns.shape[2]
    V = khatri_rao(now, sizes, k, 0, cut).reshape(1, k, r)
    U = khatri_rao(now, sizes, k, cut, n_modes).reshape(1, k, c)
    if mode < cut:
        times_right(X, begins, stride, V, U, floors, made.by_rows, 0, (r + int(CHUNK) - 1) // int(CHUNK))
        minus = contract(made.by_rows[0], now, sizes, 0, cut, mode)
    else:
        times_left(X, begins, stride, V, U, floors, made.by_columns, 0, (c + int(WIDTH) - 1) // int(WIDTH))
        minus = contract(made.by_columns[0], now, sizes, cut, n_modes, mode)
    _multiply_sums(now, sizes, k, mode, made.plus)
    _multiply(factor(now, sizes, k, mode), minus, made.plus, step)


@jit
def _extrapolate(before, start, weight, out):  # noqa: ANN001, ANN202
    """Write `start + weight max(0, start - before)`."""
    a, b, into = before.reshape(-1), start.reshape(-1), out.reshape(-1)
    for i in range(len(into)):
        rise = b[i] - a[i]
        into[i] = b[i] + weight * (0 if rise < 0 else rise)


@jit
def _multiply_sums(flat, sizes, k, mode, out):  # noqa: ANN001, ANN202
    """Multiply the sums of the columns of all factors but one."""
    for d in range(k):
        out[d] = 1
        for m in range(len(sizes)):
            if m != mode:
                f, total = factor(flat, sizes, k, m)[d], 0.0
                for i in range(len(f)):
                    total += f[i]
                out[d] *= out.dtype.type(total)


@jit
def _multiply(F, minus, plus, step):  # noqa: ANN001, ANN202
    """Apply the multiplicative rule; what has become tiny is 0, as it would shrink for ever."""
    tiny = F.dtype.type(np.finfo(F.dtype).tiny)
    highest, least = 1 / tiny, F.dtype.type(sqrt(tiny))
    for d in range(len(F)):
        f, m, p = F[d], minus[d], plus[d]
        for i in range(len(f)):
            ratio = m[i] / p
            ratio = F.dtype.type(1) if ratio != ratio else min(ratio, highest)
            new = ratio * f[i]
            if step != 1:
                longer, new = f[i] + step * (new - f[i]), new * (step - 1)
                new = longer if longer > new else new
            f[i] = 0 if new <= least else new
