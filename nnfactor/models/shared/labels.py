"""Labels as users hand them in, some samples unlabelled: codes and classes, and back."""

import warnings
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import DataConversionWarning
from torch import Tensor

from ...core.labels import number_classes, to_host
from ...core.linalg import project_simplex

MARKERS = (-1, "-1", b"-1")  # of the unlabelled, beside whatever is missing


def encode_labels(y: Any, n_samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Return integer codes (-1: unlabelled) and the classes, in the caller's own type, sorted.

    Unlabelled are -1 and NaN among numbers, and None, NaN, NaT, pandas.NA, -1 and "-1" among strings and objects.

    >>> encode_labels([3, -1, 7], 3)
    (array([ 0, -1,  1]), array([3, 7]))
    >>> encode_labels(["ash", None, "-1"], 3)[0]
    array([ 0, -1, -1])
    """
    y = to_host(y)
    y = y.ravel() if y.ndim == 2 and y.shape[1] == 1 else y
    if y.shape != (n_samples,):
        raise ValueError(f"y has shape {y.shape}, X has {n_samples} samples; one label per sample is needed")
    if y.dtype.kind == "c":
        raise ValueError("y is complex; labels are numbers, strings or objects")
    if y.dtype.kind == "f" and np.isinf(y).any():
        raise ValueError(f"y contains infinity in {int(np.isinf(y).sum())} places; mark unlabelled samples with -1")
    if y.dtype.kind in "fiub":
        known = ~((y == -1) | np.isnan(y)) if y.dtype.kind != "b" else np.ones(len(y), dtype=bool)
    else:
        known = np.array([not _is_marker(v) for v in y], dtype=bool)
    if y.dtype.kind == "O":
        kinds = {type(v) for v in y[known]}
        if len(kinds) > 1 and any(issubclass(k, str) for k in kinds):
            raise ValueError(f"y mixes {sorted(k.__name__ for k in kinds)}; use labels of one type")
    return number_classes(y, known)


def encode_optional_labels(y: Any, n_samples: int) -> tuple[np.ndarray | None, np.ndarray]:
    """Encode labels where there are any: without y there are no codes and no classes."""
    return (None, np.array([])) if y is None else encode_labels(y, n_samples)


def encode_classes(y: Any, n_samples: int, stacklevel: int) -> tuple[np.ndarray, np.ndarray]:
    """Encode the labels of a classifier: warn of a column, refuse fractions; without y there are no classes."""
    if y is None:
        return np.full(n_samples, -1), np.array([])
    if len(shape := y.shape if hasattr(y, "shape") else np.asarray(y).shape) == 2 and shape[1] == 1:
        told = "A column-vector y was passed when a 1d array was expected; use y.ravel()"
        warnings.warn(told, DataConversionWarning, stacklevel=stacklevel)
    codes, classes = encode_labels(y, n_samples)
    if classes.dtype.kind == "f" and (broken := classes[classes != np.floor(classes)]).size:
        raise ValueError(
            f"Unknown label type: continuous. y holds fractions such as {broken[0]:g}; labels of classes must be whole "
            "numbers, strings or objects"
        )
    return codes, classes


def encode_required_classes(estimator: Any, y: Any, n_samples: int, stacklevel: int) -> tuple[np.ndarray, np.ndarray]:
    """Encode the labels of an estimator that cannot do without: refuse y without any."""
    name = type(estimator).__name__
    if y is None:
        raise ValueError(f"{name} requires y to be passed, but the target y is None")
    codes, classes = encode_classes(y, n_samples, stacklevel + 1)
    if not len(classes):
        raise ValueError(f"y has no label: all {n_samples} samples are unlabelled; {name} needs at least one")
    return codes, classes


def decode_labels(codes: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Decode codes into classes; code -1 becomes -1 among numbers, "-1" among strings and None among all else."""
    if (codes >= 0).all():
        return classes[codes]
    if classes.dtype.kind in "SU":
        labels: np.ndarray = np.append(classes.astype(str), "-1")
    elif classes.dtype.kind in "fiu":
        labels = np.append(classes.astype(np.result_type(classes.dtype, np.int8)), -1)
    else:
        labels = np.append(classes.astype(object), [None])
    return labels[codes]


def nearest_distribution(scores: Tensor) -> Tensor:
    """Project every row of scores (n, C) on the simplex, which keeps their order; a row of zeros stays one."""
    return torch.where((scores == 0).all(1, keepdim=True), 0, project_simplex(scores))


def decide(scores: np.ndarray) -> np.ndarray:
    """Return the code of the largest score of every row, the first of equals; -1 for a row of zeros."""
    return np.where((scores != 0).any(1), scores.argmax(1), -1)


def _is_marker(label: Any) -> bool:
    """Tell whether a label stands for none."""
    try:
        return label is None or bool(label != label) or label in MARKERS  # NaN and NaT differ from themselves
    except TypeError:  # pandas.NA neither equals nor differs
        return True
