"""What all semi-supervised classifiers share: labels in, class scores, labels and distributions out."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from numbers import Real
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ...core import Graph, as_graph
from ...core.graph.neighbors import squared_distances, store_like
from ...graphs import knn_graph
from ..shared.inputs import Inputs, PickledOnCPU, read, run_environment
from ..shared.labels import class_codes, labels_of
from ..shared.parameters import nonnegative, one_of, positive, whole
from ..shared.restore import forget_and_restore_on_error

Points = Any  # a float64 tensor, or float64 scipy CSR


class SemiSupervised(PickledOnCPU, ClassifierMixin, BaseEstimator):
    """Base of the classifiers: reads X and y, asks for class scores, publishes labels.

    A sample with no positive distribution (no label reaches it) has a row of zeros in `label_distributions_`, and is
    labelled -1 among numbers, "-1" among strings and None among objects; one UserWarning says how many there are.
    """

    @abstractmethod
    def _learn(self, source: Inputs, codes: np.ndarray, Y: Tensor) -> tuple[Tensor, Tensor]:
        """From labels as codes (-1: none) and one-hot rows: scores and distributions (n, C) of the training samples."""

    @abstractmethod
    def _decide(self, source: Inputs) -> Tensor:
        """Scores of new samples, (n, C), float64; a row of zeros where nothing is known."""

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from labelled and unlabelled samples.

        Parameters
        ----------
        X : array, tensor, DataFrame or scipy sparse matrix (n_samples, n_features)
            Any sign and scale; never changed.
        y : array (n_samples,)
            Labels; never changed. Unlabelled: -1 and NaN among numbers; None, NaN, -1 and "-1" among strings and
            objects. A marker is never a class, so -1 cannot be one. A single class is allowed.

        Raises
        ------
        ValueError
            Bad data or parameters; y absent, of another length, with fractions as labels, or without any label.
        """
        self._check_parameters()
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        with forget_and_restore_on_error(self):
            source = read(self, X, reset=True, signed=True)
            codes, classes = class_codes(y, source.data.shape[0], stacklevel=3)
            if not len(classes):
                name = type(self).__name__
                raise ValueError(f"y has no label: all {len(codes)} samples are unlabelled; {name} needs at least one")
            self.classes_ = classes
            known = torch.from_numpy(codes).to(source.data.device)
            Y = (known.unsqueeze(1) == torch.arange(len(classes), device=known.device)).double()
            with torch.no_grad(), torch.autocast(known.device.type, enabled=False):
                scores, shares = self._learn(source, codes, Y)
            self.scores_, self.label_distributions_ = (
                source.to_caller(S.to(source.data.dtype)) for S in (scores, shares)
            )
            self.transduction_ = self._named(scores, source)
            self.fit_info_ = run_environment(source.data)
        return self

    def predict(self, X: Any) -> Any:
        """The class of every sample (n_samples,), in the kind of X where labels are numbers; see the class for -1."""
        scores, source = self._new(X)
        return self._named(scores, source)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy of `predict(X)` against y (n_samples,), on any device."""
        y, found = (v.cpu().numpy() if isinstance(v, Tensor) else v for v in (y, self.predict(X)))
        from sklearn.metrics import accuracy_score

        return float(accuracy_score(y, found, sample_weight=sample_weight))

    def _new(self, X: Any) -> tuple[Tensor, Inputs]:
        check_is_fitted(self)
        source = read(self, X, reset=False, signed=True)
        with torch.no_grad(), torch.autocast(source.data.device.type, enabled=False):
            return self._decide(source), source

    def _named(self, scores: Tensor, source: Inputs) -> Any:
        """Labels from scores; one warning if some rows are zero."""
        lost = (scores == 0).all(1)
        codes = torch.where(lost, -1, scores.argmax(1)).cpu().numpy()
        labels = labels_of(codes, self.classes_)
        count = int((codes < 0).sum())
        if count:
            marker = labels_of(np.array([-1]), self.classes_).tolist()[0]
            warnings.warn(
                f"{type(self).__name__}: no label reaches {count} of {len(codes)} samples; they are marked {marker!r}, "
                "with zeros as their distribution. Label one sample of their part, or link more (n_neighbors, sigma)",
                UserWarning,
                stacklevel=3,
            )
        numbers = source.as_torch and labels.dtype.kind in "fib"
        return torch.from_numpy(labels).to(source.data.device) if numbers else labels

    def _check_parameters(self) -> None:
        for name in ("CA", "CI", "sigma", "tol", "alpha", "n_neighbors", "max_rounds"):
            if hasattr(self, name):
                _check_parameter(name, getattr(self, name))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def graph_of(graph: Any, points: Points, n_neighbors: int) -> Graph:
    """The binary neighbour graph of samples, or an adjacency checked to be over them."""
    n = points.shape[0]
    if isinstance(graph, str):
        one_of("graph", graph, ("knn",), f"an adjacency ({n}, {n})")
        return knn_graph(points, n_neighbors)
    links = as_graph(graph if isinstance(graph, Graph | Tensor) or sp.issparse(graph) else np.asarray(graph), "graph")
    if links.n_nodes != n:
        raise ValueError(f"graph is over {links.n_nodes} samples, X has {n}; one node per training sample is needed")
    if links.cliques is not None:
        raise ValueError("graph has cliques; use an adjacency, as_links(graph.toarray()) for a small one")
    return links


def distances(Z: Points, P: Points) -> Tensor:
    """Squared distances (len(Z), n), float64, on the device of P."""
    centre = None if sp.issparse(P) else P.mean(0)
    return squared_distances(store_like(Z, P), P, centre)


def margins(scores: Tensor) -> Tensor:
    """What scikit-learn calls a decision function: (n, C), and for two classes the difference (n,)."""
    return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores


def as_float64(values: Any, device: torch.device) -> Tensor:
    """On a device; floating-point numbers in float64."""
    T = values if isinstance(values, Tensor) else torch.from_numpy(np.ascontiguousarray(values))
    return T.to(device, torch.float64 if T.is_floating_point() else T.dtype)


def _check_parameter(name: str, value: Any) -> None:
    if name == "sigma" and (value is None or not np.isscalar(value)):
        array = np.asarray(0.0 if value is None else value.cpu() if isinstance(value, Tensor) else value)
        if value is None or (array.dtype.kind in "fiu" and (array > 0).all() and np.isfinite(array).all()):
            return
        raise ValueError(f"sigma must be > 0 and finite for every feature, got {value!r}")
    if name in ("n_neighbors", "max_rounds"):
        whole(name, value, least=int(name == "n_neighbors"))
    elif name == "alpha":
        if not isinstance(value, Real) or isinstance(value, bool) or not 0 <= float(value) < 1:
            raise ValueError(f"alpha must be in [0, 1), got {value!r}")
    elif name == "CI":
        nonnegative(name, value)
    else:
        positive(name, value)
