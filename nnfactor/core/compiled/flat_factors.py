"""Factors of all modes one behind the other in a flat array, `(k, d)` each, for loops that are compiled as a whole."""

from functools import partial
from typing import NamedTuple

import numpy as np

from .threads import jit

sums, inlined = partial(jit, reassociate=True), partial(jit, inline=True)


class Modes(NamedTuple):
    """The modes of the data.

    Attributes
    ----------
    sizes : array of int
    cut : int
        How many of them are the rows of the matrices.
    order : array of int
        In which their factors are improved.
    """

    sizes: np.ndarray
    cut: int
    order: np.ndarray


@jit
def factor(flat, sizes, k, mode):  # noqa: ANN001, ANN201
    """View the factor of a mode, `(k, d)`."""
    begin = 0
    for m in range(mode):
        begin += k * sizes[m]
    return flat[begin : begin + k * sizes[mode]].reshape(k, sizes[mode])


@jit
def copy(source, into):  # noqa: ANN001, ANN201
    """Copy a flat array; assignments of arrays, which check shapes, take seconds to compile."""
    for i in range(len(source)):
        into[i] = source[i]


@jit
def khatri_rao(flat, sizes, k, first, end):  # noqa: ANN001, ANN201
    """Form the column-wise Kronecker product of the modes `first..end`; the first one's index runs slowest."""
    total = factor(flat, sizes, k, first)
    for mode in range(first + 1, end):
        F = factor(flat, sizes, k, mode)
        longer = np.empty((k, total.shape[1] * F.shape[1]), flat.dtype)
        for d in range(k):
            for i in range(total.shape[1]):
                for j in range(F.shape[1]):
                    longer[d, i * F.shape[1] + j] = total[d, i] * F[d, j]
        total = longer
    return total


@sums
def contract(product, flat, sizes, first, end, mode):  # noqa: ANN001, ANN201
    """Sum a product of the modes `first..end` against all their factors but that of `mode`, from both ends."""
    k = len(product)
    for m in range(end - 1, mode, -1):
        F = factor(flat, sizes, k, m)
        n, width = product.shape[1] // F.shape[1], F.shape[1]
        left = np.empty((k, n), flat.dtype)
        for d in range(k):
            f = F[d]
            for i in range(n):
                row, total = product[d, i * width : (i + 1) * width], f[0] * 0
                for j in range(width):
                    total += row[j] * f[j]
                left[d, i] = total
        product = left
    for m in range(first, mode):
        F = factor(flat, sizes, k, m)
        width = product.shape[1] // F.shape[1]
        left = np.zeros((k, width), flat.dtype)
        for d in range(k):
            into = left[d]
            for i in range(F.shape[1]):
                f, row = F[d, i], product[d, i * width : (i + 1) * width]
                for j in range(width):
                    into[j] += f * row[j]
        product = left
    return product
