"""Minimisation over one column of a factor after the other, as `rules.hals` has it, tile by tile.

A tile is some rows of a factor with all their columns: it stays in the innermost cache for all sweeps. Arrays of a tile
are flat, their columns one behind the other: with two indices a loop over them is half as fast.
"""

import numpy as np
from torch import Tensor

from .threads import call_in_parts, jit

TILE = 128  # rows, a constant: the innermost loops become vector instructions without remainders


def minimise_columns(F: Tensor, linear: Tensor, G: Tensor, steps: Tensor | None, sweeps: int) -> Tensor:
    """Return the factor after some sweeps over its columns, `f_j = max(0, f_j + (m_j - F g_j) steps_j)`.

    Parameters
    ----------
    F, linear, G : Tensor
        `(B, k, n)`, `(B, k, n)` and `(B, k, k)`: the factor, its linear part and the Gram.
    steps : Tensor, optional
        `(B, k, n or 1)`: one over the curvature, 0 where an entry stays. Without them the diagonal of G has it.
    """
    (B, k, n), out = F.shape, F.new_empty(F.shape)
    given, each = (out, 0) if steps is None else (steps, steps.shape[-1])
    arrays = [T.numpy() for T in (F, linear, G.contiguous(), given, out)]
    items = B * -(-n // TILE)
    call_in_parts(_sweep_tiles, items, 2.0 * items * TILE * k * k * sweeps, *arrays, each, sweeps)
    return out


def minimise_rows(F: Tensor, linear: Tensor, G: Tensor, floor: Tensor, sweeps: int) -> Tensor:
    """Return the factor after some sweeps over its columns, where every row has a Gram of its own.

    Parameters
    ----------
    F, linear, G : Tensor
        `(B, k, n)`, `(B, k, n)` and `(B, k, k, n)`: the factor, its linear part and the Grams.
    floor : Tensor
        `(B,)`: an entry whose curvature is no higher stays.
    """
    (B, k, n), out = F.shape, F.new_empty(F.shape)
    arrays = [T.numpy() for T in (F, linear, G, floor, out)]
    items = B * -(-n // TILE)
    call_in_parts(_sweep_rows, items, 2.0 * items * TILE * k * k * sweeps, *arrays, sweeps)
    return out


@jit
def _sweep_tiles(F, linear, G, steps, out, each, sweeps, begin, end):  # noqa: ANN001, ANN202
    """Sweep over the tiles `begin..end` of all problems; they do not depend on each other."""
    k, n = F.shape[1:]
    tiles = (n + TILE - 1) // TILE
    f, given, left = np.zeros(k * TILE, F.dtype), np.zeros(k * TILE, F.dtype), np.empty(TILE, F.dtype)
    rates, own = np.empty(k, F.dtype), np.zeros(k * TILE if each > 1 else 0, F.dtype)
    for item in range(begin, end):
        b, first = item // tiles, item % tiles * TILE
        width = min(TILE, n - first)
        _load(f, F[b], first, width)
        _load(given, linear[b], first, width)
        if each > 1:
            _load(own, steps[b], first, width)
        elif each == 1:
            rates[:] = steps[b, :, 0]
        else:
            _invert_diagonal(G[b], rates)
        for _ in range(sweeps):
            for c in range(k):
                at = c * TILE
                for t in range(TILE):
                    left[t] = given[at + t]
                _subtract_product(left, G[b, c], f)
                if each > 1:
                    for t in range(TILE):
                        f[at + t] = max(F.dtype.type(0), f[at + t] + left[t] * own[at + t])
                else:
                    rate = rates[c]
                    for t in range(TILE):
                        f[at + t] = max(F.dtype.type(0), f[at + t] + left[t] * rate)
        _store(f, out[b], first, width)


@jit
def _sweep_rows(F, linear, G, floor, out, sweeps, begin, end):  # noqa: ANN001, ANN202
    """Sweep over the tiles `begin..end` of all problems, whose rows have Grams of their own."""
    k, n = F.shape[1:]
    tiles = (n + TILE - 1) // TILE
    f, left = np.zeros(k * TILE, F.dtype), np.empty(TILE, F.dtype)
    for item in range(begin, end):
        b, first = item // tiles, item % tiles * TILE
        width = min(TILE, n - first)
        _load(f, F[b], first, width)
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
                        f[c * TILE + t] = max(F.dtype.type(0), f[c * TILE + t] + left[t] / curvature)
        _store(f, out[b], first, width)


@jit
def _subtract_product(left, weights, f):  # noqa: ANN001, ANN202
    """Subtract the columns of a tile, times their weights: four at once, so that `left` is read and written less."""
    k, four = len(weights), len(weights) // 4 * 4
    for d in range(0, four, 4):
        v, w, x, y = weights[d], weights[d + 1], weights[d + 2], weights[d + 3]
        at = d * TILE
        for t in range(TILE):
            left[t] -= (v * f[at + t] + w * f[at + TILE + t]) + (x * f[at + 2 * TILE + t] + y * f[at + 3 * TILE + t])
    for d in range(four, k):
        w = weights[d]
        for t in range(TILE):
            left[t] -= w * f[d * TILE + t]


@jit
def _load(tile, F, first, width):  # noqa: ANN001, ANN202
    """Copy `width` rows of a factor `(k, n)` into a tile; what follows them in the tile stays."""
    for c in range(len(F)):
        column, into = F[c, first : first + width], tile[c * TILE : c * TILE + width]
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
