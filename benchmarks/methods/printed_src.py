"""Sparse-representation classification by the program that Fan et al. 2011 print, which often has no feasible point."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass
class PrintedSRC:
    """Classify by min ||a||_1 with ||x - D a|| <= tolerance, D the labelled samples, all samples at unit length.

    Where no combination of D comes so near, a solver has no point to give. Here the code is then D'x, from which the
    examples of l1-magic start, the solver that the paper refers to. Elsewhere codes are those of `SRC`, whose program
    always has a feasible point.

    Parameters
    ----------
    tolerance : float
        The paper's, after Wright et al. 2009.
    tol : float
        Duality gap of the codes of `SRC`.
    device : str
    """

    tolerance: float = 0.05
    tol: float = 1e-2
    device: str = "cpu"

    def fit(self, X: Array, y: Array) -> Self:
        """Keep the labelled samples."""
        self.known = X, y
        return self

    def predict(self, X: Array) -> Array:
        """Classify samples of shape (n, m) by the class whose part of the code leaves the smallest residual."""
        from nnfactor import SRC

        D, y = self.known
        basis = np.linalg.qr(D.T)[0]
        feasible = np.linalg.norm(X - (X @ basis) @ basis.T, axis=1) <= self.tolerance
        classes = np.unique(y)
        parts = [np.linalg.norm(X - (X @ D[y == c].T) @ D[y == c], axis=1) for c in classes]
        found = classes[np.argmin(parts, axis=0)]
        if feasible.any():
            found[feasible] = SRC(tol=self.tol, device=self.device).fit(D, y).predict(X[feasible])
        return found
