"""Minimisation over one column of a factor after the other, as `rules.hals` has it, tile by tile.

A tile is some rows of a factor with all their columns: it stays in the innermost cache for all sweeps. Arrays of a tile
are flat, their columns one behind the other: with two indices a loop over them is half as fast.
"""

from collections.abc import Callable

import numpy as np
from torch import Tensor

from .threads import call_in_parts, jit

TILE = 128  # rows, a constant: the innermost loops become vector instructions without remainders


def minimise_columns(
    F: Tensor, linear: Tensor, G: Tensor, steps: Tensor | None, bounds: tuple[Tensor, Tensor] | None, sweeps: int
) -> Tensor:
    """Return the factor after some sweeps over its columns, `f_j = max(0, f_j + (m_j - F g_j) steps_j)`.

    Parameters
    ----------
    F, linear, G : Tensor
        `(B, k, n)`, `(B, k, n)` and `(B, k, k)`: the factor, its linear part and the Gram.
    steps : Tensor, optional
        `(B, k, n or 1)`: one over the curvature, 0 where an entry stays. Without them the diagonal of G has it.
    bounds : two Tensors, optional
        `(B or 1, k, n or 1)`: the least and the largest entries, in place of 0 and infinity.
    """
    each = 0 if steps is None else steps.shape[-1]
    return _over_tiles(sweep_tiles, F, (linear, G.contiguous(), F if steps is None else steps), bounds, sweeps, each)


def minimise_rows(
    F: Tensor, linear: Tensor, G: Tensor, floor: Tensor, bounds: tuple[Tensor, Tensor] | None, sweeps: int
) -> Tensor:
    """Return the factor after some sweeps over its columns, where every row has a Gram of its own.

    Parameters
    ----------
    F, linear, G : Tensor
        `(B, k, n)`, `(B, k, n)` and `(B, k, k, n)`: the factor, its linear part and the Grams.
    floor : Tensor
        `(B,)`: an entry whose curvature is no higher stays.
    bounds : two Tensors, optional
        As in `minimise_columns`.
    """
    return _over_tiles(_sweep_rows, F, (linear, G, floor), bounds, sweeps)


def _over_tiles(
    loop: Callable,
    F: Tensor,
    coefficients: tuple[Tensor, ...],
    bounds: tuple[Tensor, Tensor] | None,
    sweeps: int,
    *settings: int,
) -> Tensor:
    """Call a loop over all tiles of all problems; bounds that are not given are not read."""
    (B, k, n), out = F.shape, F.new_empty(F.shape)
    arrays = [T.numpy() for T in (F, *coefficients, *(bounds or (F, F)), out)]
    items = B * -(-n // TILE)
    work = 2.0 * items * TILE * k * k * sweeps
    call_in_parts(loop, items, work, *arrays, *settings, bounds is not None, sweeps)
    return out


@jit
def sweep_tiles(F, linear, G, steps, lower, upper, out, each, bounded, sweeps, begin, end):  # noqa: ANN001, ANN201
    """Sweep over the tiles `begin..end` of all problems; they do not depend on each other."""
    k, n = F.shape[1:]
    tiles = (n + TILE - 1) // TILE
    f, given, left = np.zeros(k * TILE, F.dtype), np.zeros(k * TILE, F.dtype), np.empty(TILE, F.dtype)
    rates, own = np.empty(k, F.dtype), np.zeros(k * TILE if each > 1 else 0, F.dtype)
    least, largest = np.zeros(k * TILE if bounded else 0, F.dtype), np.zeros(k * TILE if bounded else 0, F.dtype)
    for item in range(begin, end):
        b, first = item // tiles, item % tiles * TILE
        width = min(TILE, n - first)
        _load(f, F[b], first, width)
        _load(given, linear[b], first, width)
        if each > 1:
            _load(own, steps[b], first, width)
        elif each == 1:
            for c in range(k):
                rates[c] = steps[b, c, 0]
        else:
            _invert_diagonal(G[b], rates)
        if bounded:
            _load(least, lower[min(b, len(lower) - 1)], first, width)
            _load(largest, upper[min(b, len(upper) - 1)], first, width)
        for _ in range(sweeps):
            for c in range(k):
                at = c * TILE
                for t in range(TILE):
                    left[t] = given[at + t]
                _subtract_product(left, G[b, c], f)
                if each > 1:
                    for t in range(TILE):
                        left[t] = f[at + t] + left[t] * own[at + t]
                else:
                    rate = rates[c]
                    for t in range(TILE):
                        left[t] = f[at + t] + left[t] * rate
                if bounded:
                    for t in range(TILE):
                        f[at + t] = _within(left[t], least[at + t], largest[at + t])
                else:
                    for t in range(TILE):
                        f[at + t] = F.dtype.type(0) if left[t] < 0 else left[t]
        _store(f, out[b], first, width)


@jit
def _sweep_rows(F, linear, G, floor, lower, upper, out, bounded, sweeps, begin, end):  # noqa: ANN001, ANN202
    """Sweep over the tiles `begin..end` of all problems, whose rows have Grams of their own."""
    k, n = F.shape[1:]
    tiles = (n + TILE - 1) // TILE
    f, left = np.zeros(k * TILE, F.dtype), np.empty(TILE, F.dtype)
    least, largest = np.zeros(k * TILE, F.dtype), np.full(k * TILE, np.inf, F.dtype)
    for item in range(begin, end):
        b, first = item // tiles, item % tiles * TILE
        width = min(TILE, n - first)
        _load(f, F[b], first, width)
        if bounded:
            _load(least, lower[min(b, len(lower) - 1)], first, width)
            _load(largest, upper[min(b, len(upper) - 1)], first, width)
        for _ in range(sweeps):
            for c in range(k):
                for t in range(width):
                    left[t] = linear[b, c, first + t]
                for d in range(k):
                    for t in range(width):
                        left[t] -= G[b, c, d, first + t] * f[d * TILE + t]
                for t in range(width):
                    curvature = G[b, c, c, first + t]
                    if curvature > floor[b]:
                        new = f[c * TILE + t] + left[t] / curvature
                        f[c * TILE + t] = _within(new, least[c * TILE + t], largest[c * TILE + t])
        _store(f, out[b], first, width)


@jit
def _within(entry, least, largest):  # noqa: ANN001, ANN202
    """Return the nearest number within bounds; NaN stays NaN, as in torch, so that a bad problem is found."""
    entry = least if entry < least else entry
    return largest if entry > largest else entry


@jit
def _subtract_product(left, weights, f):  # noqa: ANN001, ANN202
    """Subtract the columns of a tile, times their weights: four at once, so that `left` is read and written less."""
    k, four = len(weights), len(weights) // 4 * 4
    for d in range(0, four, 4):
        v, w, x, y = weights[d], weights[d + 1], weights[d + 2], weights[d + 3]
        at = d * TILE
        for t in range(TILE):
            two = left[t] - v * f[at + t] - w * f[at + TILE + t]  # from the left: nothing but fused operations
            left[t] = two - x * f[at + 2 * TILE + t] - y * f[at + 3 * TILE + t]
    for d in range(four, k):
        w = weights[d]
        for t in range(TILE):
            left[t] -= w * f[d * TILE + t]


@jit
def _load(tile, F, first, width):  # noqa: ANN001, ANN202
    """Copy `width` rows of a factor `(k, n)`, or the only one, into a tile; what follows them in the tile stays."""
    for c in range(len(F)):
        into = tile[c * TILE : c * TILE + width]
        if F.shape[1] == 1:
            for t in range(width):
                into[t] = F[c, 0]
        else:
            column = F[c, first : first + width]
            for t in range(width):
                into[t] = column[t]


@jit
def _store(tile, F, first, width):  # noqa: ANN001, ANN202
    """Copy a tile back."""
    for c in range(len(F)):
        column, into = tile[c * TILE : c * TILE + width], F[c, first : first + width]
        for t in range(width):
            into[t] = column[t]


@jit
def _invert_diagonal(G, rates):  # noqa: ANN001, ANN202
    """Write one over the diagonal, 0 where that is 0 to rounding, against the largest."""
    largest = G.dtype.type(0)
    for c in range(len(G)):
        largest = max(largest, G[c, c])
    floor = G.dtype.type(np.finfo(G.dtype).eps ** 2) * largest
    for c in range(len(G)):
        rates[c] = 1 / G[c, c] if G[c, c] > floor else 0
