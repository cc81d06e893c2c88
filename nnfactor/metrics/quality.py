"""Quality of clusterings, sparsity of factors, and distance of factorizations from a stationary point.

Labels may be numbers, strings or objects, in arrays, lists or tensors. Every value counts as a class, -1 too:
select the samples that are to be judged.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from ..core import Term, block_of
from ..core.arrays import as_numbers, refuse_masked
from ..core.factors import column_norms, divide
from ..core.labels import number_classes, read_labels
from ..core.precision import strict_precision


def clustering_accuracy(y_true: Any, y_pred: Any) -> float:
    """Return the share of samples that are right when clusters and classes are matched one to one in the best way.

    As in Jiang et al. 2014; the matching is the Hungarian method's. Where there are more clusters than classes, the
    rest of them is wrong.

    Parameters
    ----------
    y_true, y_pred : (n_samples,)
        Classes and clusters; names do not matter. ValueError if they are empty, or of different lengths.

    Examples
    --------
    >>> from nnfactor.metrics import clustering_accuracy
    >>> clustering_accuracy(["a", "a", "b", "b"], [1, 1, 0, 1])
    0.75
    """
    table = _count_pairs(*_encode_both(y_true, y_pred))
    return float(table[linear_sum_assignment(table, maximize=True)].sum() / table.sum())


def normalized_mutual_information(y_true: Any, y_pred: Any) -> float:
    """Divide the mutual information of two labellings by the larger of their entropies (Jiang et al. 2014, Eq. 31).

    From 0 for independent labellings to 1 for equal ones up to names; two of one class each agree: 1. Other
    normalisations (scikit-learn's default is the mean of the entropies) give larger values.

    Parameters
    ----------
    y_true, y_pred : (n_samples,)
        As for `clustering_accuracy`.

    Examples
    --------
    >>> from nnfactor.metrics import normalized_mutual_information
    >>> round(normalized_mutual_information([0, 0, 1, 1], [0, 0, 1, 2]), 3)
    0.667
    """
    from sklearn.metrics import normalized_mutual_info_score

    return float(np.clip(normalized_mutual_info_score(*_encode_both(y_true, y_pred), average_method="max"), 0.0, 1.0))


def hoyer_sparsity(F: Any, *, average: bool = False) -> Any:
    """Measure the sparsity of every column, `(sqrt(n) - ||f||_1 / ||f||_2) / (sqrt(n) - 1)` (Hoyer 2004).

    0 when all entries are equal in size, 1 when a single one is not zero; scales and signs of columns do not matter.

    Parameters
    ----------
    F : array or tensor (..., n, k), or one vector (n,)
        Finite, not empty (ValueError). A zero column counts as 1: nothing in it is active. With n = 1 all are 0.
    average : bool
        The mean over the columns instead. Default False, for columns of one factor often differ much.

    Returns
    -------
    (..., k), float64, in the kind of `F`; a float for a vector, and for `average=True` without leading dimensions.

    Examples
    --------
    >>> from nnfactor.metrics import hoyer_sparsity
    >>> hoyer_sparsity([[1.0, 0.0], [1.0, 3.0]]).round(6).tolist()
    [0.0, 1.0]
    """
    as_torch = isinstance(F, Tensor)
    values = (F.detach() if as_torch else torch.from_numpy(as_numbers(F, "F").astype(np.float64))).double().abs()
    if values.numel() == 0 or values.dim() == 0:
        raise ValueError(f"F has shape {tuple(values.shape)}; it must be (n, k) or (n,), not empty")
    bad = int((~values.isfinite()).sum())
    if bad:
        raise ValueError(f"F contains {bad} NaN or infinite entries; sparsity needs finite ones")
    single = values.dim() == 1
    values = values[:, None] if single else values
    root = values.shape[-2] ** 0.5
    values = divide(values, values.amax(-2, keepdim=True).expand_as(values))  # squares stay in range
    ratio = divide(values.sum(-2), values.square().sum(-2).sqrt())
    ratio = torch.where(ratio > 0, ratio, 1)  # a zero column
    sparsity = ((root - ratio) / (root - 1)).clamp(0, 1) if root > 1 else torch.zeros_like(ratio)
    sparsity = sparsity.mean(-1) if average or single else sparsity
    return float(sparsity) if sparsity.dim() == 0 else sparsity if as_torch else sparsity.numpy()


def kkt_residual(
    terms: Sequence[Term], factors: Mapping[str, Tensor], names: str | Sequence[str] | None = None
) -> float | Tensor:
    """Measure how far nonnegative factors are from a stationary point of a model: 0 there, of order 1 far from it.

    A minimum over F >= 0 has F >= 0, gradient G >= 0 and F G = 0, that is min(F, G) = 0 everywhere. F and G have
    different units, so each column has its own: with G = plus - minus the half gradient of the core's `Block`,

        || min( f / ||f|| , g / (||plus|| + ||minus||) ) ||      per column; root mean square over the columns,

    and the largest of the factors. It does not change when the data, the penalties with them, or the columns of a
    factor are rescaled.

    Parameters
    ----------
    terms : sequence of terms
        The model, as for `nnfactor.core.run`.
    factors : mapping of names to tensors (..., rows, k)
        Nonnegative, in the dtype of the data: float64 for residuals below 1e-7. Leading dimensions are a batch.
    names : str or sequence of str, optional
        The factors to look at, of those that the terms touch (ValueError). Default: all; leave out what is frozen or
        may be negative.

    Returns
    -------
    float, or a tensor (...) with one number per problem of a batch.

    Notes
    -----
    A zero column of F counts only with entries of G that are negative: growing there would lower the objective.

    Examples
    --------
    >>> import torch
    >>> from nnfactor.core import Fit
    >>> from nnfactor.metrics import kkt_residual
    >>> V, U = torch.rand(6, 2, dtype=torch.float64), torch.rand(5, 2, dtype=torch.float64)
    >>> terms = [Fit(V @ U.T, ("V", "U1"))]
    >>> kkt_residual(terms, {"V": V, "U1": U}) < 1e-12, kkt_residual(terms, {"V": 2 * V, "U1": U}) > 0.1
    (True, True)
    """
    touched = list(dict.fromkeys(name for term in terms for name in term.factor_names))
    names = touched if names is None else [names] if isinstance(names, str) else list(names)
    unknown = [name for name in names if name not in touched]
    if unknown or not names:
        raise ValueError(f"names={names!r}: the terms touch {touched}; name some of those")
    with strict_precision(factors[names[0]].device):
        found = torch.stack([_measure_column_residuals(terms, factors, name) for name in names]).amax(0)
    return float(found) if found.dim() == 0 else found


def _measure_column_residuals(terms: Sequence[Term], factors: Mapping[str, Tensor], name: str) -> Tensor:
    F = factors[name]
    block = block_of(terms, factors, name)
    plus, minus = (part(F).expand_as(F).double() for part in (block.gradient_plus, block.gradient_minus))
    F, G = F.double(), plus - minus
    unit = column_norms(plus) + column_norms(minus)
    worst = torch.minimum(divide(F, column_norms(F).expand_as(F)), divide(G, unit.expand_as(G)))
    return worst.square().sum(-2).mean(-1).sqrt()


def _encode_both(y_true: Any, y_pred: Any) -> tuple[np.ndarray, np.ndarray]:
    """Encode both labellings as integers 0, 1, ..."""
    refuse_masked(y_true, "y_true")
    refuse_masked(y_pred, "y_pred")
    a, b = read_labels(y_true), read_labels(y_pred)
    if a.shape != b.shape or a.ndim != 1 or not len(a):
        raise ValueError(
            f"y_true has shape {a.shape}, y_pred {b.shape}; both must be (n_samples,), of one length and not empty"
        )
    return _encode(a), _encode(b)


def _encode(y: np.ndarray) -> np.ndarray:
    if y.dtype.kind != "O":
        return number_classes(y)[0]
    seen: dict[Any, int] = {}  # objects need not be ordered
    return np.array([seen.setdefault(label, len(seen)) for label in y])


def _count_pairs(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Count how often class i and cluster j fall together."""
    shape = (a.max() + 1, b.max() + 1)
    return np.bincount(a * shape[1] + b, minlength=shape[0] * shape[1]).reshape(shape)
