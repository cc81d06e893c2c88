"""Base of the semi-supervised classifiers: labels in; class scores, labels and distributions out."""

import warnings
from abc import abstractmethod
from typing import Any, Self

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ...core import Graph
from ...core.arrays import Array
from ...core.graph.distances import find_centre, squared_distances, store_like, width_of_gamma
from ...graphs import knn_graph, linear_neighborhood_graph
from ..shared.fitting import forget_and_restore_on_error
from ..shared.inputs import Inputs, PickledOnCPU, as_given, read, run_environment
from ..shared.labels import LabelledScore, decide, decode_labels, encode_required_classes, place_labels
from ..shared.parameters import graph_over, one_of, positive
from ..shared.scikit_learn import BaseEstimator, ClassifierMixin

Points = Any  # a float64 tensor, or float64 scipy CSR


class SemiSupervised(PickledOnCPU, LabelledScore, ClassifierMixin, BaseEstimator):
    """Base of the classifiers: reads X and y, asks for class scores, publishes labels.

    A sample with no positive distribution (no label reaches it) has a row of zeros in `label_distributions_`, and is
    labelled -1 among numbers, "-1" among strings and None among objects; one UserWarning says how many there are.
    """

    classes_: np.ndarray
    transduction_: Array
    label_distributions_: Array
    scores_: Array
    fit_info_: dict[str, Any]

    @abstractmethod
    def _check_parameters(self) -> None:
        """Raise a ValueError for a parameter that is out of its bounds."""

    @abstractmethod
    def _fit_scores(self, inputs: Inputs, class_codes: np.ndarray, Y: Tensor) -> tuple[Tensor, Tensor]:
        """Compute scores and distributions (n, C) of the training samples from their classes.

        `class_codes` (n,) are positions in `classes_`, -1 for unlabelled samples; Y (n, C) is one-hot, or zero there.
        """

    @abstractmethod
    def _predict_scores(self, inputs: Inputs) -> Tensor:
        """Compute scores of new samples, (n, C), float64; a row of zeros where nothing is known."""

    def _read(self, X: Any, reset: bool) -> Inputs:
        """Read the samples of `fit` (reset), or those of a prediction."""
        return read(self, X, reset=reset, signed=True)

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from labelled and unlabelled samples.

        Parameters
        ----------
        X : array, tensor, DataFrame or scipy sparse matrix (n_samples, n_features)
            Any sign and scale; never changed. `CoTraining`: a list of views of the same samples, or one of them.
        y : array (n_samples,)
            Labels; never changed. Unlabelled: -1 and NaN among numbers; None, NaN, -1, "-1" and "" among text and
            objects. A marker is never a class, so -1 cannot be one; all else is a class, "unknown" too. A single
            class is allowed.

        Raises
        ------
        ValueError
            Bad data or parameters; y absent, of another length, with fractions as labels, or without any label.
        """
        self._check_parameters()
        with forget_and_restore_on_error(self):
            inputs = self._read(X, reset=True)
            class_codes, self.classes_ = encode_required_classes(self, y, inputs.data.shape[0], stacklevel=3)
            known = torch.from_numpy(class_codes).to(inputs.data.device)
            Y = (known.unsqueeze(1) == torch.arange(len(self.classes_), device=known.device)).double()
            with torch.no_grad(), torch.autocast(known.device.type, enabled=False):
                scores, shares = self._fit_scores(inputs, class_codes, Y)
            self.scores_, self.label_distributions_ = (as_given(F.clone(), inputs) for F in (scores, shares))
            self.transduction_ = self._decode(scores, inputs)
            self.fit_info_ = run_environment(inputs.data)
        return self

    def predict(self, X: Any) -> Array:
        """Predict the class of every sample (n_samples,), as a tensor for a tensor X if labels are numbers."""
        return self._decode(*self._score_new(X))

    def _score_new(self, X: Any) -> tuple[Tensor, Inputs]:
        check_is_fitted(self)
        inputs = self._read(X, reset=False)
        with torch.no_grad(), torch.autocast(inputs.data.device.type, enabled=False):
            return self._predict_scores(inputs), inputs

    def _decode(self, scores: Tensor, inputs: Inputs) -> Any:
        """Turn scores into labels; warn once if some rows are zero."""
        codes = decide(scores.cpu().numpy())
        labels = decode_labels(codes, self.classes_)
        if count := int((codes < 0).sum()):
            marker = decode_labels(np.array([-1]), self.classes_).tolist()[0]
            warnings.warn(
                f"{type(self).__name__}: no label reaches {count} of {len(codes)} samples; they are marked {marker!r}, "
                "with zeros as their distribution. Label one sample of their part, or link more (n_neighbors, sigma)",
                UserWarning,
                stacklevel=3,
            )
        return place_labels(labels, inputs.data.device if inputs.as_torch else None)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


GRAPHS = {"knn": knn_graph, "linear_neighborhood": linear_neighborhood_graph}


def given_width(sigma: Any, gamma: float | None, default: float | None) -> Any:
    """Return sigma, or the width that gamma says where it is given; a ValueError if both are, or either is bad.

    A sigma that is its default counts as not given: an estimator cannot tell the two apart.
    """
    if gamma is None:
        return sigma
    positive("gamma", gamma, also="None or ")
    if sigma is not None and not (np.isscalar(sigma) and sigma == default):
        raise ValueError(
            f"sigma={sigma!r} and gamma={gamma!r} are both given, for one width: exp(-d^2 / sigma^2) is exp(-gamma d^2)"
            f" with gamma = 1 / sigma^2. Leave sigma={default!r}, or gamma=None"
        )
    return width_of_gamma(gamma)


def graph_of(graph: Any, points: Points, n_neighbors: int) -> Graph:
    """Build a neighbour graph of samples, binary or of reconstruction, or check that an adjacency is over them."""
    n = points.shape[0]
    if isinstance(graph, str):
        one_of("graph", graph, tuple(GRAPHS), f"an adjacency ({n}, {n})")
        return GRAPHS[graph](points, n_neighbors)
    links = graph_over(graph, "graph", n)
    if links.cliques is not None:
        raise ValueError("graph has cliques; use an adjacency, as_graph(graph.toarray()) for a small one")
    return links


def invert_degrees(links: Graph, like: Tensor) -> Tensor:
    """Compute D^-1/2, (n, 1); 0 at an isolated sample."""
    degree = links.degree(like)
    return torch.where(degree > 0, degree.clamp(min=1e-300).rsqrt(), 0)


def measure_distances(Z: Points, P: Points) -> Tensor:
    """Measure squared distances (len(Z), n) in float64, on the device of P."""
    return squared_distances(store_like(Z, P), P, find_centre(P))


def margins(scores: Tensor) -> Tensor:
    """Turn scores (n, C) into what scikit-learn calls a decision function; for two classes the difference (n,)."""
    return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores
