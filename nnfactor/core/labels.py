"""Classes as the codes 0, 1, ..., -1 for none."""

from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .arrays import as_array

MARKERS = (-1, "-1", b"-1")  # of the unlabelled, beside whatever is missing

EXACT = 2**53  # integers from here on are rounded in floating point, and may merge


def to_host(y: Any, name: str = "") -> np.ndarray:
    """Return labels, in whatever array, as a numpy array; with a name other values, which no mask may hide."""
    if isinstance(y, Tensor):
        return (y.float() if y.dtype == torch.bfloat16 else y).detach().cpu().numpy()
    return as_array(y, name) if name else np.asarray(y)


def read_labels(y: Any) -> np.ndarray:
    """Return labels as a numpy array, as objects where numpy would turn them into text or round large integers.

    >>> read_labels(["oak", float("nan")]).tolist()
    ['oak', nan]
    """
    labels = to_host(y)
    if isinstance(y, Tensor) or isinstance(getattr(y, "dtype", None), np.dtype):  # one type already
        return labels
    text = labels.dtype.kind in "SU"
    if text or (labels.dtype.kind == "f" and (np.abs(labels) >= EXACT).any()):
        objects = np.asarray(y, dtype=object)
        if not (text and all(isinstance(label, str | bytes) for label in objects.flat)):
            return objects
    return labels


def encode_labels(y: Any, n_samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Return integer codes (-1: unlabelled) and the classes, in the caller's own type, sorted.

    Unlabelled are -1 and NaN among numbers, and None, NaN, -1, "-1" and "" among strings and objects (NaN stands for
    all that is missing: NaT, pandas.NA, masked entries; "" for text of blanks). A marker is never a class.

    Raises
    ------
    ValueError
        Another length, complex, infinite or fractional labels, or strings among other objects.

    Examples
    --------
    >>> encode_labels([3, -1, 7], 3)
    (array([ 0, -1,  1]), array([3, 7]))
    >>> encode_labels(["ash", None, "-1", ""], 4)[0]
    array([ 0, -1, -1, -1])
    """
    labels = read_labels(y)
    hidden = np.ma.getmaskarray(y) if isinstance(y, np.ma.MaskedArray) else np.zeros(labels.shape, dtype=bool)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels, hidden = labels.ravel(), hidden.ravel()
    if labels.shape != (n_samples,):
        raise ValueError(f"y has shape {labels.shape}, X has {n_samples} samples; one label per sample is needed")
    if labels.dtype.kind == "c":
        raise ValueError("Complex data not supported: y is complex; labels are numbers, strings or objects")
    if labels.dtype.kind in "fiub":
        known = ~((labels == -1) | np.isnan(labels)) if labels.dtype.kind != "b" else np.ones(n_samples, dtype=bool)
    else:
        known = np.array([not _is_marker(label) for label in labels], dtype=bool)
    known &= ~hidden
    kinds = (
        {str if isinstance(label, str) else type(label) for label in labels[known]} if labels.dtype == object else {}
    )
    if len(kinds) > 1 and str in kinds:
        raise ValueError(f"y mixes {sorted(kind.__name__ for kind in kinds)}; use labels of one type")
    codes, classes = number_classes(labels, known)
    _refuse_continuous(classes)
    return codes, classes


def encode_optional_labels(y: Any, n_samples: int) -> tuple[np.ndarray | None, np.ndarray]:
    """Encode labels where there are any: without y there are no codes and no classes."""
    return (None, np.array([])) if y is None else encode_labels(y, n_samples)


def number_classes(y: np.ndarray, known: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return the code of every label `(n,)`, -1 where it is not `known` (a mask), and the classes in rising order.

    >>> number_classes(np.array([7, 0, 3, 7]), np.array([True, False, True, True]))
    (array([ 1, -1,  0,  1]), array([3, 7]))
    """
    known = np.ones(y.shape, dtype=bool) if known is None else known
    codes = np.full(y.shape, -1, dtype=np.int64)
    classes, codes[known] = np.unique(y[known], return_inverse=True)
    return codes, classes


def _is_marker(label: Any) -> bool:
    """Tell whether a label stands for none."""
    try:
        if isinstance(label, str | bytes):
            return label in MARKERS or not label.strip()  # an empty cell of a table
        return label is None or bool(label != label) or label in MARKERS  # NaN and NaT differ from themselves
    except TypeError:  # pandas.NA neither equals nor differs
        return True


def _refuse_continuous(classes: np.ndarray) -> None:
    """Raise a ValueError for classes that are infinite or fractions."""
    if classes.dtype.kind == "O":
        classes = np.array([float(c) for c in classes if isinstance(c, Real) and not isinstance(c, Integral)])
    if classes.dtype.kind != "f":
        return
    if np.isinf(classes).any():
        raise ValueError("y contains infinity; mark unlabelled samples with -1")
    if (broken := classes[classes != np.floor(classes)]).size:
        raise ValueError(
            f"Unknown label type: continuous. y holds fractions such as {broken[0]:g}; labels of classes must be whole "
            "numbers, strings or objects"
        )
