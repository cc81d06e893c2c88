"""Agreement of components, and how well a CP model describes the data; names as in the package tlviz.

A model is a fitted estimator, a list of factors `(d_mode, k)`, samples first, or TensorLy's `(weights, factors)`.
"""

from functools import reduce
from typing import Any, Literal, overload

import numpy as np
import scipy.sparse as sp
import torch
from scipy.optimize import linear_sum_assignment
from sklearn.base import clone
from sklearn.utils import check_random_state
from torch import Tensor

from ..core.arguments import one_of, whole
from ..core.arrays import as_numbers
from ..core.labels import to_host


@overload
def factor_match_score(
    a: Any,
    b: Any,
    *,
    consider_weights: bool = True,
    skip_mode: int | None = None,
    absolute_value: bool = True,
    return_permutation: Literal[False] = False,
) -> float: ...
@overload
def factor_match_score(
    a: Any,
    b: Any,
    *,
    consider_weights: bool = True,
    skip_mode: int | None = None,
    absolute_value: bool = True,
    return_permutation: Literal[True],
) -> tuple[float, np.ndarray]: ...
def factor_match_score(
    a: Any,
    b: Any,
    *,
    consider_weights: bool = True,
    skip_mode: int | None = None,
    absolute_value: bool = True,
    return_permutation: bool = False,
) -> Any:
    """Average the products of cosines over all modes of components that are matched one to one (Tomasi and Bro 2005).

    1 for equal models up to order and lengths of components, 0 where nothing is alike.

    Parameters
    ----------
    a, b : models
        With the same shapes. Where one has more components than the other, the rest of them counts as 0.
    consider_weights : bool
        Whether each product is multiplied by `1 - |s - t| / max(s, t)`, s and t the lengths of the two components.
    skip_mode : int, optional
        A mode to leave out, such as 0 where the samples of two models are different ones; lengths are left out then.
    absolute_value : bool
        Whether signs of cosines do not matter.
    return_permutation : bool
        Whether to return the components of b that match those of a as well, -1 for none.

    Returns
    -------
    float, or (float, (k_a,) int array)

    Raises
    ------
    ValueError
        Models of different shapes.

    Examples
    --------
    >>> import numpy as np
    >>> from nnfactor import NMF
    >>> from nnfactor.metrics import factor_match_score
    >>> V, U = (np.random.default_rng(rows).random((rows, 2)) ** 4 for rows in (60, 20))
    >>> X = V @ U.T + 0.01 * np.random.default_rng(0).random((60, 20))
    >>> first, second = (NMF(2, init="random", random_state=seed).fit(X) for seed in (0, 1))
    >>> factor_match_score(first, second) > 0.95
    True
    """
    score = _scores(_read_factors(a, "a"), _read_factors(b, "b"), consider_weights, skip_mode, absolute_value)
    rows, columns = linear_sum_assignment(score, maximize=True)
    found = float(score[rows, columns].sum() / max(score.shape))
    if not return_permutation:
        return found
    permutation = np.full(len(score), -1)
    permutation[rows] = columns
    return found, permutation


def _scores(A: list[np.ndarray], B: list[np.ndarray], weighted: bool, skip: int | None, absolute: bool) -> np.ndarray:
    """Compute the score of every pair of components, `(k_a, k_b)`."""
    shapes = [[len(F) for m, F in enumerate(Fs) if m != skip] for Fs in (A, B)]
    if len(A) != len(B) or shapes[0] != shapes[1]:
        raise ValueError(f"a and b have factors with {[len(F) for F in A]} and {[len(F) for F in B]} rows")
    score = np.ones((A[0].shape[1], B[0].shape[1]))
    for m in range(len(A)):
        if m != skip:
            cosines = unit_columns(A[m]).T @ unit_columns(B[m])
            score *= np.abs(cosines) if absolute else cosines
    if weighted and skip is None:
        s, t = _component_lengths(A)[:, None], _component_lengths(B)[None]
        most = np.maximum(s, t)
        score *= 1 - np.abs(s - t) / np.where(most > 0, most, 1)
    return score


def core_consistency(model: Any, X: Any, *, normalised: bool = False) -> float:
    """Measure how far the best core of Tucker's model with these factors is diagonal (Bro and Kiers 2003), per cent.

    `100 (1 - ||G - I||^2 / k)`, G the least-squares core, I the superdiagonal of ones. 100 for a model that is
    trilinear, near 0 or below where components share what varies: the rank is too high.

    Parameters
    ----------
    model : a CP model of any order
    X : dense array or tensor, samples first, of the shape of the model
    normalised : bool
        Whether to divide by `||G||^2` in place of k; then it is at least 0.

    Examples
    --------
    >>> import numpy as np
    >>> from nnfactor.metrics import core_consistency
    >>> factors = [np.eye(4)[:, :2], np.eye(3)[:, :2], np.eye(5)[:, :2]]
    >>> core_consistency(factors, np.einsum("ir,jr,kr->ijk", *factors))
    100.0
    """
    factors = _read_factors(model)
    core = _read_array(X, factors)
    for F in factors:  # every product moves its mode to the end: after all of them they are in order
        core = np.tensordot(core, np.linalg.pinv(F), (0, 1))
    k = factors[0].shape[1]
    ideal = np.zeros(core.shape)
    ideal[(np.arange(k),) * core.ndim] = 1
    unit = float((core**2).sum()) if normalised else k
    return 100.0 - 100.0 * float(((core - ideal) ** 2).sum()) / unit


def degeneracy_score(model: Any) -> float:
    """Find the most negative product of cosines, over all modes, of two components (Krijnen, Dijkstra, Stegeman 2008).

    Near -1: two components cancel, as happens to unconstrained models of too high a rank. A nonnegative model has no
    negative one: its score is 0 or more, and near 1 where all components are alike. 1 for a single component.

    Examples
    --------
    >>> from nnfactor.metrics import degeneracy_score
    >>> degeneracy_score([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0], [0.0, 1.0]]])
    0.0
    """
    return float(reduce(np.multiply, [unit_columns(F).T @ unit_columns(F) for F in _read_factors(model)]).min())


def percentage_variation(model: Any, X: Any = None, *, method: Literal["data", "model"] = "data") -> np.ndarray:
    """Compute the sum of squares of every component, per cent of that of the data or of all components.

    Components overlap, so that the shares of nonnegative ones add up to less than the model explains.

    Parameters
    ----------
    model : a CP model of one array, or its factors, samples first
    X : array, tensor or sparse matrix, samples first
        For method="data".
    method : {"data", "model"}
        What is 100: the sum of squares of X, or that of all components one by one.

    Returns
    -------
    (k,) array

    Examples
    --------
    >>> from nnfactor.metrics import percentage_variation
    >>> percentage_variation([[[3.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]]], method="model").tolist()
    [90.0, 10.0]
    """
    one_of("method", method, ("data", "model"))
    if getattr(model, "_listed_views", False):
        raise ValueError(
            f"{type(model).__name__} models several arrays; their shares are apart: give the factors of one, as "
            "[embedding, factor], or draw them with plots.percentage_variation_plot"
        )
    squares = _component_lengths(_read_factors(model)) ** 2
    if method == "model":
        return 100 * squares / (squares.sum() or 1.0)
    if X is None:
        raise ValueError("X is None; method='data' needs the data, or use method='model'")
    values = X.data if sp.issparse(X) else _read_numbers(X)
    return 100 * squares / (float(np.square(np.asarray(values, dtype=np.float64)).sum()) or 1.0)


def split_half_similarity(estimator: Any, X: Any, *, n_splits: int = 5, random_state: Any = None) -> np.ndarray:
    """Fit two halves of the samples, and compare their feature factors (Harshman and De Sarbo 1984).

    Parameters
    ----------
    estimator : an unfitted estimator, such as NTF(3)
    X : data as for its `fit`; two samples at least
    n_splits : int
        Random splits. Default 5.
    random_state : int, RandomState or None

    Returns
    -------
    (n_splits,) array of `factor_match_score` without the sample mode

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from nnfactor import NMF
    >>> from nnfactor.metrics import split_half_similarity
    >>> bool(split_half_similarity(NMF(2, random_state=0), load_iris().data, random_state=0).mean() > 0.9)
    True
    """
    whole("n_splits", n_splits, least=1)
    X = X.tocsr() if sp.issparse(X) else X if isinstance(X, Tensor | np.ma.MaskedArray) else as_numbers(X)
    n, random, found = X.shape[0], check_random_state(random_state), []
    if n < 2:
        raise ValueError(f"X has {n} samples; two halves need at least 2")
    for _ in range(n_splits):
        order = random.permutation(n)
        halves = [clone(estimator).fit(_rows(X, at)) for at in (order[: n // 2], order[n // 2 :])]
        found.append(factor_match_score(*halves, skip_mode=0))
    return np.array(found)


def _rows(X: Any, at: np.ndarray) -> Any:
    return X[torch.from_numpy(at).to(X.device)] if isinstance(X, Tensor) else X[at]


def _read_factors(model: Any, name: str = "model") -> list[np.ndarray]:
    """Read the factors of a model, samples first, with all lengths in the first."""
    weights = None
    if hasattr(model, "factors_"):
        given = [model.embedding_, *model.factors_]
    elif len(model) == 2 and isinstance(model[1], list | tuple) and np.ndim(model[1][0]) == 2:
        weights, given = model
    else:
        given = list(model)
    factors = [_read_numbers(F) for F in given]
    if len(factors) < 2 or any(F.ndim != 2 or F.shape[1] != factors[0].shape[1] for F in factors):
        shapes = [F.shape for F in factors]
        raise ValueError(f"{name} has factors of shapes {shapes}; at least two, all (d, k) with one k, are needed")
    return factors if weights is None else [factors[0] * _read_numbers(weights), *factors[1:]]


def _read_array(X: Any, factors: list[np.ndarray]) -> np.ndarray:
    """Read dense data; refuse other shapes than the model's."""
    A, shape = _read_numbers(X), tuple(len(F) for F in factors)
    if A.shape != shape:
        raise ValueError(f"X has shape {A.shape}, the model {shape}")
    return A


def _read_numbers(F: Any) -> np.ndarray:
    return to_host(F).astype(np.float64, copy=False)


def _lengths(F: np.ndarray) -> np.ndarray:
    return np.sqrt(np.square(F).sum(0))


def unit_columns(F: Any) -> np.ndarray:
    """Bring columns `(..., d, k)` to unit length, in float64 on the host; zero columns stay."""
    A = _read_numbers(F)
    lengths = np.linalg.norm(A, axis=-2, keepdims=True)
    return A / np.where(lengths > 0, lengths, 1)


def _component_lengths(factors: list[np.ndarray]) -> np.ndarray:
    return reduce(np.multiply, map(_lengths, factors))
