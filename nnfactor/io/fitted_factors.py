"""Factors of fitted models as numpy arrays."""

from typing import Any

import numpy as np


def as_numpy(values: Any) -> np.ndarray:
    """Return an array or a tensor as numpy: of a tensor on a GPU a copy."""
    return np.asarray(values.detach().cpu().numpy() if hasattr(values, "detach") else values)


def fitted_factors(model: Any) -> list[np.ndarray]:
    """Return `embedding_` (n_samples, k), and a factor (d_b, k) for each further dimension of the data.

    Raises
    ------
    TypeError
        The model is not fitted, or no factorization.
    """
    if not hasattr(model, "embedding_") or not hasattr(model, "factors_"):
        raise TypeError(f"{type(model).__name__} has no embedding_ and factors_; fit it, or use a factorization")
    return [as_numpy(F) for F in (model.embedding_, *model.factors_)]
