"""Passes over dense data and a CP model: the ratio `X / Y` and the divergence, tile by tile, never all of `Y`.

A tile is four rows of the matrix and some hundreds of its columns. Its model, its ratio and what that gives to a
product with a factor stay in the innermost cache; torch writes and reads blocks of the model six times. Arrays of a
tile are flat and indices unsigned: with two indices, or with some that could be negative, entries would be gathered one
by one.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numba import types
from numba.extending import overload
from torch import Tensor

from .threads import call_in_parts, jit

N = np.uintp
LANES = N(32)  # columns of a tile are a multiple: vector instructions without remainders
WIDTH = N(256)  # columns of a tile, at most
S = N(272)  # from one row to the next: no power of two, by which rows would fall on the same lines of a cache
S2, S3 = N(2 * 272), N(3 * 272)
CHUNK = N(64)  # rows of a part of the products with the right factor
BLOCK = N(1024)  # rows that are summed before they are added to others: rounding does not grow with all rows

# log(1 + f) = 2 s + s q (L0 + q (L1 + ...)) with s = f / (2 + f) and q = s^2: to 1e-16, and with three terms to 3e-8
L0, L1, L2, L3 = 0.6666666666666735, 0.3999999999940942, 0.2857142874366239, 0.2222219843214978
L4, L5, L6 = 0.1818357216161805, 0.1531383769920937, 0.1479819860511659

sums = partial(jit, reassociate=True)


def multiply_ratio(X: Tensor, owner: Sequence[int], sides: Sequence[Tensor], floor: Tensor, inside: bool) -> Tensor:
    """Compute `(X / Y) right` (`inside`) or `(X / Y)' left` of every problem, `Y = max(left right', floor)`.

    Parameters
    ----------
    X : Tensor (sets, n, m), of which rows or columns are contiguous
    owner : sequence of int
        The set of every problem.
    sides : (left, right)
        `(..., n, k)` and `(..., m, k)`, with as many problems as owners.
    floor : Tensor
        One number, or one for each problem.
    """
    if X.stride(2) != 1:
        return multiply_ratio(X.mT, owner, sides[::-1], floor, not inside)
    V, U, arrays = _arrays(X, owner, sides, floor)
    (B, k, n), m, out = V.shape, U.shape[2], torch.empty_like(V if inside else U)
    items, loop = (B * -(-n // int(CHUNK)), times_right) if inside else (B * -(-m // int(WIDTH)), times_left)
    call_in_parts(loop, items, 4.0 * B * n * m * k, *arrays, out.numpy())
    return out.view(*sides[0].shape[:-2], *out.shape[1:]).mT


def divergence(X: Tensor, owner: Sequence[int], sides: Sequence[Tensor], floor: Tensor) -> Tensor:
    """Sum `x log(x / y) - x + y` over all entries for every problem, as above: `(...)`, float64."""
    if X.stride(2) != 1:
        return divergence(X.mT, owner, sides[::-1], floor)
    V, U, arrays = _arrays(X, owner, sides, floor)
    (B, k, n), m = V.shape, U.shape[2]
    parts = torch.zeros(B, -(-n // int(CHUNK)), dtype=torch.float64, device="cpu")
    call_in_parts(add_divergence, parts.numel(), 2.0 * B * n * m * (k + 10), *arrays, parts.numpy())
    return parts.sum(1).view(sides[0].shape[:-2])


def _arrays(X: Tensor, owner: Sequence[int], sides: Sequence[Tensor], floor: Tensor) -> tuple[Tensor, Tensor, tuple]:
    """Return both factors as `(B, k, rows)`, and what the loops take."""
    V, U = (F.mT.reshape(-1, F.shape[-1], F.shape[-2]).contiguous() for F in sides)
    floors = floor.to(V.dtype).reshape(-1).expand(len(V)).contiguous()
    flat, begins = flatten(X, owner)
    return V, U, (flat, begins, X.stride(1), V.numpy(), U.numpy(), floors.numpy())


def flatten(X: Tensor, owner: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Return the memory of matrices, whose rows may be apart, and where that of every problem begins."""
    end = sum((d - 1) * s for d, s in zip(X.shape, X.stride(), strict=True)) + 1
    return X.as_strided((end,), (1,)).numpy(), X.stride(0) * np.array(owner, dtype=N)


@sums
def times_right(X, begins, stride, V, U, floors, out, begin, end):  # noqa: ANN001, ANN201
    """Write `(X / Y) U'` for chunks of rows `begin..end` of all problems."""
    k, n, m = N(V.shape[1]), N(V.shape[2]), N(U.shape[2])
    chunks, (wide, u, y, v) = (n + CHUNK - N(1)) // CHUNK, _tile(V)
    p = np.zeros(CHUNK * wide, V.dtype)
    for item in range(N(begin), N(end)):
        b, first = item // chunks, item % chunks * CHUNK
        last = min(n, first + CHUNK)
        p[:] = 0
        for start in range(N(0), m, WIDTH):
            width, w = _load_columns(u, U, b, start)
            for i in range(first, last, N(4)):
                rows = min(N(4), last - i)
                _load_rows(v, V, b, i, rows)
                _model(y, v, u, wide, w)
                _divide(y, X, begins[b] + i * N(stride) + start, N(stride), rows, width, w, floors[b])
                _add_to_rows(p, (i - first) * wide, y, u, wide, w)
        for i in range(first, last, N(4)):
            at = (i - first) * wide
            for c in range(k):
                for r in range(min(N(4), last - i)):
                    out[b, c, i + r] = p[at + N(4) * c + r]


@sums
def times_left(X, begins, stride, V, U, floors, out, begin, end):  # noqa: ANN001, ANN201
    """Write `V (X / Y)` for tiles of columns `begin..end` of all problems."""
    k, n, m = N(V.shape[1]), N(V.shape[2]), N(U.shape[2])
    tiles, (wide, u, y, v) = (m + WIDTH - N(1)) // WIDTH, _tile(V)
    q = np.zeros(wide * S, V.dtype)
    for item in range(N(begin), N(end)):
        b, start = item // tiles, item % tiles * WIDTH
        width, w = _load_columns(u, U, b, start)
        out[b, :, start : start + width] = 0
        for first in range(N(0), n, BLOCK):
            last = min(n, first + BLOCK)
            q[:] = 0
            for i in range(first, last, N(4)):
                rows = min(N(4), last - i)
                _load_rows(v, V, b, i, rows)
                _model(y, v, u, wide, w)
                _divide(y, X, begins[b] + i * N(stride) + start, N(stride), rows, width, w, floors[b])
                _add_to_columns(q, v, y, wide, w)
            for c in range(k):
                at = c * S
                for j in range(width):
                    out[b, c, start + j] += q[at + j]


@sums
def add_divergence(X, begins, stride, V, U, floors, out, begin, end):  # noqa: ANN001, ANN201
    """Add the divergence over chunks of rows `begin..end` of all problems; every row of a tile is summed by itself."""
    n, m = N(V.shape[2]), N(U.shape[2])
    chunks, (wide, u, y, v) = (n + CHUNK - N(1)) // CHUNK, _tile(V)
    least = V.dtype.type(np.finfo(V.dtype).tiny)
    for item in range(N(begin), N(end)):
        b, first = item // chunks, item % chunks * CHUNK
        last, floor = min(n, first + CHUNK), floors[b]
        for start in range(N(0), m, WIDTH):
            width, w = _load_columns(u, U, b, start)
            for i in range(first, last, N(4)):
                rows = min(N(4), last - i)
                _load_rows(v, V, b, i, rows)
                _model(y, v, u, wide, w)
                for r in range(rows):
                    at, row, total = r * S, begins[b] + (i + r) * N(stride) + start, V.dtype.type(0)
                    for j in range(width):
                        x, z = V.dtype.type(X[row + j]), y[at + j]
                        z = floor if z < floor else z
                        ratio = x / z
                        total += x * _log(least if ratio < least else ratio) - x + z
                    out[b, item % chunks] += total


@jit
def _tile(V):  # noqa: ANN001, ANN202
    """Make the memory of a tile: the components, in fours; of the right factor, of the model and of the left one."""
    wide = (N(V.shape[1]) + N(3)) // N(4) * N(4)
    return wide, np.zeros(wide * S, V.dtype), np.zeros(N(4) * S, V.dtype), np.zeros(N(4) * wide, V.dtype)


@jit
def _load_columns(u, U, b, start):  # noqa: ANN001, ANN202
    """Copy the columns of a tile of a factor `(k, m)`, and zeros behind them; says how many, and in whole lanes."""
    width = min(WIDTH, N(U.shape[2]) - start)
    for c in range(N(U.shape[1])):
        at = c * S
        for j in range(width):
            u[at + j] = U[b, c, start + j]
        for j in range(width, S):
            u[at + j] = 0
    return width, (width + LANES - N(1)) // LANES * LANES


@jit
def _load_rows(v, V, b, first, rows):  # noqa: ANN001, ANN202
    """Copy four rows of a factor `(k, n)`, one component behind the other; zeros where there are fewer."""
    for c in range(N(V.shape[1])):
        at = N(4) * c
        for r in range(rows):
            v[at + r] = V[b, c, first + r]
        for r in range(rows, N(4)):
            v[at + r] = 0


@jit
def _model(y, v, u, wide, w):  # noqa: ANN001, ANN202
    """Write the four rows of the model: four components at once, sixteen products for eight numbers that are read."""
    for c in range(N(0), wide, N(4)):
        a, b = c * S, N(4) * c
        (a0, a1, a2, a3), (b0, b1, b2, b3) = _four(v, b), _four(v, b + N(4))
        (c0, c1, c2, c3), (d0, d1, d2, d3) = _four(v, b + N(8)), _four(v, b + N(12))
        if c == N(0):  # zeros first would be another pass
            for j in range(w):
                p, q, r, s = u[a + j], u[a + j + S], u[a + j + S2], u[a + j + S3]
                y[j] = a0 * p + b0 * q + c0 * r + d0 * s
                y[j + S] = a1 * p + b1 * q + c1 * r + d1 * s
                y[j + S2] = a2 * p + b2 * q + c2 * r + d2 * s
                y[j + S3] = a3 * p + b3 * q + c3 * r + d3 * s
        else:
            for j in range(w):
                p, q, r, s = u[a + j], u[a + j + S], u[a + j + S2], u[a + j + S3]
                y[j] += a0 * p + b0 * q + c0 * r + d0 * s
                y[j + S] += a1 * p + b1 * q + c1 * r + d1 * s
                y[j + S2] += a2 * p + b2 * q + c2 * r + d2 * s
                y[j + S3] += a3 * p + b3 * q + c3 * r + d3 * s


@jit
def _four(v, at):  # noqa: ANN001, ANN202
    return v[at], v[at + N(1)], v[at + N(2)], v[at + N(3)]


@jit
def _divide(y, X, begin, stride, rows, width, w, floor):  # noqa: ANN001, ANN202
    """Write the ratio over the model; zeros where the tile is larger than the matrix."""
    for r in range(N(4)):
        at, row, there = r * S, begin + r * stride, width if r < rows else N(0)
        for j in range(there):
            z = y[at + j]
            y[at + j] = X[row + j] / (floor if z < floor else z)  # NaN stays
        for j in range(there, w):
            y[at + j] = 0


@sums
def _add_to_rows(p, at, y, u, wide, w):  # noqa: ANN001, ANN202
    """Add the ratio times the right factor to sums over the four rows."""
    for c in range(N(0), wide, N(4)):
        a, b = c * S, at + N(4) * c
        a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = c0 = c1 = c2 = c3 = d0 = d1 = d2 = d3 = y.dtype.type(0)
        for j in range(w):
            p0, p1, p2, p3 = u[a + j], u[a + j + S], u[a + j + S2], u[a + j + S3]
            r, s, t, z = y[j], y[j + S], y[j + S2], y[j + S3]
            a0, a1, a2, a3 = a0 + r * p0, a1 + s * p0, a2 + t * p0, a3 + z * p0
            b0, b1, b2, b3 = b0 + r * p1, b1 + s * p1, b2 + t * p1, b3 + z * p1
            c0, c1, c2, c3 = c0 + r * p2, c1 + s * p2, c2 + t * p2, c3 + z * p2
            d0, d1, d2, d3 = d0 + r * p3, d1 + s * p3, d2 + t * p3, d3 + z * p3
        _add_four(p, b, a0, a1, a2, a3)
        _add_four(p, b + N(4), b0, b1, b2, b3)
        _add_four(p, b + N(8), c0, c1, c2, c3)
        _add_four(p, b + N(12), d0, d1, d2, d3)


@jit
def _add_four(p, at, r, s, t, z):  # noqa: ANN001, ANN202
    p[at] += r
    p[at + N(1)] += s
    p[at + N(2)] += t
    p[at + N(3)] += z


@jit
def _add_to_columns(q, v, y, wide, w):  # noqa: ANN001, ANN202
    """Add the left factor times the ratio to sums over the columns of the tile."""
    for c in range(N(0), wide, N(4)):
        a, b = c * S, N(4) * c
        (a0, a1, a2, a3), (b0, b1, b2, b3) = _four(v, b), _four(v, b + N(4))
        (c0, c1, c2, c3), (d0, d1, d2, d3) = _four(v, b + N(8)), _four(v, b + N(12))
        for j in range(w):
            r, s, t, z = y[j], y[j + S], y[j + S2], y[j + S3]
            q[a + j] += a0 * r + a1 * s + a2 * t + a3 * z
            q[a + j + S] += b0 * r + b1 * s + b2 * t + b3 * z
            q[a + j + S2] += c0 * r + c1 * s + c2 * t + c3 * z
            q[a + j + S3] += d0 * r + d1 * s + d2 * t + d3 * z


def _log(y: Any) -> Any:
    """Compute the logarithm of a normal number: by arithmetic alone, for a library is called entry by entry."""
    return np.log(y)


@overload(_log)
def _logarithm(y):  # noqa: ANN001, ANN202
    def single(y):  # noqa: ANN001, ANN202
        bits = np.float32(y).view(np.int32)
        e = (bits - np.int32(0x3F3504F3)) >> np.int32(23)  # so that the rest is between the roots of 1/2 and of 2
        f = np.int32(bits - (e << np.int32(23))).view(np.float32) - np.float32(1)
        s = f / (np.float32(2) + f)
        q = s * s
        tail = q * (np.float32(L0) + q * (np.float32(L1) + q * (np.float32(L2) + q * np.float32(L3))))
        return np.float32(e) * np.float32(np.log(2)) + (s * (np.float32(2) + tail))

    def double(y):  # noqa: ANN001, ANN202
        bits = np.float64(y).view(np.int64)
        e = (bits - np.int64(0x3FE6A09E667F3BCD)) >> np.int64(52)
        f = np.int64(bits - (e << np.int64(52))).view(np.float64) - 1.0
        s = f / (2.0 + f)
        q = s * s
        tail = q * (L0 + q * (L1 + q * (L2 + q * (L3 + q * (L4 + q * (L5 + q * L6))))))
        return np.float64(e) * np.log(2) + s * (2.0 + tail)

    return single if y == types.float32 else double
