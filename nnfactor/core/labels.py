"""Classes as the codes 0, 1, ..., -1 for none."""

from typing import Any

import numpy as np
from torch import Tensor


def to_host(y: Any) -> np.ndarray:
    """Return labels, in whatever array, as a numpy array."""
    return y.detach().cpu().numpy() if isinstance(y, Tensor) else np.asarray(y)


def number_classes(y: np.ndarray, known: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return the code of every label `(n,)`, -1 where it is not `known` (a mask), and the classes in rising order.

    >>> number_classes(np.array([7, 0, 3, 7]), np.array([True, False, True, True]))
    (array([ 1, -1,  0,  1]), array([3, 7]))
    """
    known = np.ones(y.shape, dtype=bool) if known is None else known
    codes = np.full(y.shape, -1, dtype=np.int64)
    classes, codes[known] = np.unique(y[known], return_inverse=True)
    return codes, classes
