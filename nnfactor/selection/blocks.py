"""Blocks of rows and columns that folds hold out, and the ranks that they can judge."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ..models.factorization.nmf import NMF

GROUPS = 5  # of rows and of columns: a fit sees 64 % of the entries, and finds what is weak better than with fewer

ROUNDS = 2  # how often every row and every column is held out


def draw_blocks(
    estimators: Sequence[NMF], X: Any, weights: Any, random: np.random.RandomState
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Draw pairs of rows and columns to hold out; a round holds out every row and every column once."""
    sides = [[np.sort(at) for at in np.array_split(random.permutation(d), min(d, GROUPS))] for d in X.shape[:2]]
    turns = max(map(len, sides))
    pairs = [(a % len(sides[0]), (a + shift) % len(sides[1])) for shift in range(ROUNDS) for a in range(turns)]
    folds = [(sides[0][a], sides[1][b]) for a, b in dict.fromkeys(pairs)]
    _check_size(estimators, X.shape, folds)
    return folds


def _check_size(
    estimators: Sequence[NMF], shape: Sequence[int], folds: Sequence[tuple[np.ndarray, np.ndarray]]
) -> None:
    """Refuse ranks whose coefficients what a fold keeps does not determine."""
    (rows, columns), most = _kept(shape, folds), most_components(shape, folds)
    largest = max(e.n_components for e in estimators)
    if largest > most or not rows or not columns:
        raise ValueError(
            f"X of shape {tuple(shape)} is too small for n_components={largest}: a fold of criterion='bicross' keeps "
            f"{rows} rows and {columns} columns, which determine {most} components; use ranks up to {most}, or "
            "criterion='stability'"
        )


def most_components(shape: Sequence[int], folds: Sequence[tuple[np.ndarray, np.ndarray]]) -> int:
    """Return the largest rank whose coefficients are determined by what every fold keeps."""
    return min(_kept(shape, folds)) * prod(shape[2:])


def _kept(shape: Sequence[int], folds: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[int, int]:
    """Count the rows and the columns that every fold keeps at least."""
    rows, columns = (d - max(len(fold[side]) for fold in folds) for side, d in enumerate(shape[:2]))
    return rows, columns
