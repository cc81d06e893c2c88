"""Nonnegative least squares on known bases, as one call."""

from typing import Any

from ...core.arrays import Array
from .nmf import NMF


def nnls(X: Any, H: Any, *, device: Any = "auto") -> Array:
    """Solve `min ||x - c H||` over `c >= 0` for every sample x, exactly and all at once (Kim and Park 2011).

    `NMF.from_components(H)` does the same as an estimator, which keeps names, fits into pipelines, and takes other
    losses and unconstrained coefficients.

    Parameters
    ----------
    X : (n_samples, m), array, tensor, data frame or sparse matrix, >= 0
    H : (k, m), of any of these kinds, >= 0
        Bases in rows, such as spectra, signatures or topics. Column names of data frames must agree.
    device : str or torch.device, "auto" is a tensor's own, else CUDA if present, else the CPU

    Returns
    -------
    (n_samples, k), >= 0, in the kind of `X`

    Raises
    ------
    TypeError, ValueError
        X or H that is not numeric, not finite, negative, or that do not fit together; the message names it.

    Examples
    --------
    >>> from nnfactor import nnls
    >>> nnls([[2.0, 3.0, 7.0]], [[1.0, 0.0, 2.0], [0.0, 1.0, 1.0]]).round(6).tolist()
    [[2.0, 3.0]]
    """
    return NMF.from_components(H, device=device).transform(X)
