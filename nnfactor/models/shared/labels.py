"""Labels as users hand them in, some samples unlabelled: codes and classes, and back."""

import warnings
from numbers import Real
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import DataConversionWarning
from torch import Tensor

from ...core.labels import encode_labels, read_labels, to_host
from ...core.linalg import project_simplex


class LabelledScore:
    """Mixin of classifiers: accuracy over the samples that have a label."""

    def score(self: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy of `predict(X)` over the samples with a label in y (n_samples,), weighted.

        Samples that y marks as unlabelled do not count. ValueError if none has a label, or none of those a weight.
        """
        predicted = to_host(self.predict(X))
        codes, classes = encode_labels(y, len(predicted))
        known = codes >= 0
        weights = np.ones(len(codes)) if sample_weight is None else to_host(sample_weight)
        if weights.shape != codes.shape:
            raise ValueError(f"sample_weight has shape {weights.shape}; it must be ({len(codes)},), one per sample")
        if not weights[known].any():
            lack = "labelled sample of weight > 0" if known.any() else "label"
            raise ValueError(f"y has no {lack} among {len(codes)} samples; a score needs one at least")
        truth, predicted = classes[codes[known]], predicted[known]
        if truth.dtype.kind != predicted.dtype.kind:
            truth, predicted = truth.astype(object), predicted.astype(object)
        return float(np.average(truth == predicted, weights=weights[known]))


def encode_classes(y: Any, n_samples: int, stacklevel: int) -> tuple[np.ndarray, np.ndarray]:
    """Encode the labels of a classifier: warn of a column; without y there are no classes."""
    if y is None:
        return np.full(n_samples, -1), np.array([])
    if len(shape := y.shape if hasattr(y, "shape") else read_labels(y).shape) == 2 and shape[1] == 1:
        told = "A column-vector y was passed when a 1d array was expected; use y.ravel()"
        warnings.warn(told, DataConversionWarning, stacklevel=stacklevel)
    return encode_labels(y, n_samples)


def encode_required_classes(estimator: Any, y: Any, n_samples: int, stacklevel: int) -> tuple[np.ndarray, np.ndarray]:
    """Encode the labels of an estimator that cannot do without: refuse y without any."""
    name = type(estimator).__name__
    if y is None:
        raise ValueError(f"{name} requires y to be passed, but the target y is None")
    codes, classes = encode_classes(y, n_samples, stacklevel + 1)
    if not len(classes):
        raise ValueError(f"y has no label: all {n_samples} samples are unlabelled; {name} needs at least one")
    return codes, classes


def join_classes(known: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Add the classes of a later batch to the known ones; a ValueError if they are of another type."""
    if not (len(known) and len(classes)):
        return known if len(known) else classes
    before, now = known.tolist()[0], classes.tolist()[0]
    if isinstance(before, Real) != isinstance(now, Real):
        raise ValueError(
            f"y holds labels such as {now!r}, but earlier batches had labels such as {before!r}; use labels of one type"
        )
    return np.union1d(known, classes)


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


def place_labels(labels: np.ndarray, device: torch.device | None) -> Any:
    """Return labels as a tensor, if a device is given and they are numbers."""
    if device is None or labels.dtype.kind not in "biuf":
        return labels
    return torch.from_numpy(labels.astype(labels.dtype.newbyteorder("="))).to(device)
