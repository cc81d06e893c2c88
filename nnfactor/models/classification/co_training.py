"""Co-training (Blum and Mitchell 1998), with which Jiang et al. 2014 compare."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...core.arrays import Array
from ..shared.inputs import Inputs, as_float64, as_given
from ..shared.parameters import Device, DType, nonnegative, whole
from ..shared.views import drop_constant, read_views
from .base import SemiSupervised, margins
from .ridge import Ridge, multiply


@dataclass(kw_only=True, eq=False, repr=False)
class CoTraining(SemiSupervised):
    """Co-training: classifiers of different views teach each other (Blum and Mitchell 1998).

    In every round each view's classifier, ridge regression on one-hot labels, labels for every class its `n_per_class`
    surest unlabelled samples, and the other views learn from them. Predictions are those of the summed scores.

    Parameters
    ----------
    n_rounds : int >= 0
        Rounds of teaching; 30 as in the paper. It ends earlier when no view has anything left to teach. 0, or one view
        alone: ridge classification.
    n_per_class : int
        Samples that a view labels per class and round: the surest of those that it gives to the class. The paper takes
        1 and 3 for its two classes.
    alpha : float > 0
        Ridge, (1/l) ||X_l W + b - Y||^2 + alpha ||W||^2, on views divided by the root of their mean squared distance to
        the mean: free of units, scales of the views and number of samples. 0.001 did best on handwritten digits.
    device : "auto", "cpu", "cuda" or "cuda:i"; dtype : "auto", "float32" or "float64"
        As for `DPCA`; results are float32 if every view is.

    Attributes
    ----------
    classes_ : array (n_classes,)
    coef_ : list of (n_features of the view, n_classes); intercept_ : list of (n_classes,)
        For the data as given. Zeros for a view whose samples are all equal: it is left out, with a warning.
    label_distributions_, scores_ : (n_samples, n_classes)
        As `predict_proba`; one-hot where a label was given.
    transduction_ : array (n_samples,)
        A class for every sample of `fit`, the given one where there was one.
    taught_ : list of integer arrays (n_samples,)
        What every view was trained with at last: codes into `classes_`, -1 for nothing.
    n_iter_ : int; n_features_in_ : list of int; fit_info_ : dict

    Notes
    -----
    A view chooses among the samples that it has no label for and has not taught. All choose before any learns, so the
    order of the views has no influence; where two views teach a third differently the larger score counts, of equals
    the smaller class. A label once taught stays.

    Examples
    --------
    >>> import numpy as np
    >>> from nnfactor import CoTraining
    >>> rng = np.random.default_rng(0)
    >>> truth = np.repeat([0, 1], 50)
    >>> views = [rng.normal(size=(100, 4)) + 3 * truth[:, None] for _ in range(2)]
    >>> y = np.where(np.arange(100) % 50 < 2, truth, -1)     # two labels per class
    >>> bool((CoTraining().fit(views, y).transduction_ == truth).mean() > 0.95)
    True
    """

    n_rounds: int = 30
    n_per_class: int = 1
    alpha: float = 0.001
    device: Device = "auto"
    dtype: DType = "auto"
    coef_: list[Array] = field(init=False)
    intercept_: list[Array] = field(init=False)
    taught_: list[np.ndarray] = field(init=False)
    n_iter_: int = field(init=False)

    def decision_function(self, X: Any) -> Array:
        """Sum the scores of the views, `(n_samples, n_classes)`; each view's sum to 1 over the classes.

        For two classes the difference (n_samples,), > 0 for the second.
        """
        scores, inputs = self._score_new(X)
        return as_given(margins(scores), inputs)

    def predict_proba(self, X: Any) -> Array:
        """Clip scores at 0 and bring rows to sum 1: an order of belief, not calibrated probabilities."""
        scores, inputs = self._score_new(X)
        return as_given(_clip(scores), inputs)

    def _check_parameters(self) -> None:
        whole("n_rounds", self.n_rounds, least=0)
        whole("n_per_class", self.n_per_class)
        nonnegative("alpha", self.alpha)
        if self.alpha == 0:
            raise ValueError("alpha must be > 0, got 0; with more features than samples ridge needs it, try 1e-6")

    def _read(self, X: Any, reset: bool) -> Inputs:
        return read_views(self, X, reset=reset, signed=True)

    def _fit_scores(self, inputs: Inputs, class_codes: np.ndarray, Y: Tensor) -> tuple[Tensor, Tensor]:
        n_classes, used = Y.shape[1], drop_constant(inputs, "CoTraining", stacklevel=3)
        ridges = [Ridge.of(inputs.views[p], float(self.alpha)) for p in used]
        taught, self.n_iter_ = self._teach(ridges, class_codes, n_classes)
        fits = [ridge.fit(known, n_classes) for ridge, known in zip(ridges, taught, strict=True)]
        scores = sum(ridge.scores(*fit) for ridge, fit in zip(ridges, fits, strict=True))
        self.taught_ = [class_codes.copy() for _ in inputs.views]
        own = [(Y.new_zeros(view.data.shape[1], n_classes), Y.new_zeros(n_classes)) for view in inputs.views]
        for p, ridge, fit, known in zip(used, ridges, fits, taught, strict=True):
            self.taught_[p], own[p] = known, ridge.to_data(*fit, inputs.views[p].scale)
        self.coef_, self.intercept_ = ([as_given(F, inputs) for F in part] for part in zip(*own, strict=True))
        shares = torch.where(Y.sum(1, keepdim=True) > 0, Y, _clip(torch.as_tensor(scores, device=Y.device).to(Y)))
        return shares, shares

    def _predict_scores(self, inputs: Inputs) -> Tensor:
        total = torch.zeros(inputs.data.shape[0], len(self.classes_), dtype=torch.float64, device=inputs.data.device)
        for view, W, b in zip(inputs.views, self.coef_, self.intercept_, strict=True):
            W, b = (as_float64(F, view.data.device) for F in (W, b))
            total += multiply(view.samples64(), W * view.scale) + b
        return total

    def _teach(self, ridges: list[Ridge], codes: np.ndarray, n_classes: int) -> tuple[list[np.ndarray], int]:
        """Let the views teach each other; return what each knows at the end, and the number of rounds."""
        labels = [codes.copy() for _ in ridges]
        taught = [np.zeros(len(codes), dtype=bool) for _ in ridges]
        rounds = int(self.n_rounds) if len(ridges) > 1 else 0
        for done in range(rounds):
            lessons = []
            for ridge, known, told in zip(ridges, labels, taught, strict=True):
                scores = ridge.scores(*ridge.fit(known, n_classes))
                lessons.append(_choose_lesson(scores, (known < 0) & ~told, int(self.n_per_class)))
                told |= lessons[-1][0] >= 0
            if not any((told >= 0).any() for told, _ in lessons):
                return labels, done
            for p, known in enumerate(labels):
                _take(known, lessons[:p] + lessons[p + 1 :])
        return labels, rounds


def _choose_lesson(scores: np.ndarray, open_: np.ndarray, n_per_class: int) -> tuple[np.ndarray, np.ndarray]:
    """Choose a lesson: classes (-1: none) and scores, for the surest open samples of every class."""
    best, top = scores.argmax(1), scores.max(1)
    classes = np.full(len(best), -1)
    for c in range(scores.shape[1]):
        mine = np.flatnonzero(open_ & (best == c))
        classes[mine[np.argsort(-top[mine], kind="stable")[:n_per_class]]] = c
    return classes, top


def _take(known: np.ndarray, lessons: list[tuple[np.ndarray, np.ndarray]]) -> None:
    """Fill what is unknown with the surest lesson, of equals with the smaller class."""
    classes, scores = (np.stack(part) for part in zip(*lessons, strict=True))
    scores = np.where(classes >= 0, scores, -np.inf)
    tied = (scores == scores.max(0)) & (classes >= 0)
    answer = np.where(tied, classes, np.iinfo(classes.dtype).max).min(0)
    new = (known < 0) & tied.any(0)
    known[new] = answer[new]


def _clip(scores: Tensor) -> Tensor:
    """Clip scores at 0 and bring rows to sum 1."""
    scores = scores.clamp(min=0)  # rows summed to the number of views: the largest entry is positive
    return scores / scores.sum(1, keepdim=True)
