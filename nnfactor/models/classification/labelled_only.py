"""Any classifier behind features of partly labelled data: it learns from the samples that have a label."""

from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.utils import _safe_indexing, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _num_samples, check_is_fitted
from torch import Tensor

from ...core.arrays import Array
from ..shared.labels import LabelledScore, encode_required_classes
from ..shared.scikit_learn import BaseEstimator, ClassifierMixin, MetaEstimatorMixin


def _delegated(name: str) -> Any:
    """Make a method that the classifier answers, and that is there if it has one."""

    def method(self: Any, X: Any) -> Any:
        check_is_fitted(self)
        return getattr(self.estimator_, name)(X)

    method.__name__, method.__doc__ = name, f"Call `{name}` of the fitted classifier on X (n_samples, n_features)."
    return available_if(lambda self: hasattr(getattr(self, "estimator_", self.estimator), name))(method)


@dataclass(kw_only=True, eq=False, repr=False)
class LabelledOnly(LabelledScore, MetaEstimatorMixin, ClassifierMixin, BaseEstimator):
    """Classifier that learns from the labelled samples, and passes over those marked as unlabelled.

    Models such as `NGE` learn from unlabelled samples too. A classifier behind one in a pipeline gets the same y, and
    takes the marker -1 for a class; in here it does not.

    Parameters
    ----------
    estimator : classifier of scikit-learn's kind
        With `fit` and `predict`; it is cloned.

    Attributes
    ----------
    estimator_ : the fitted classifier
    classes_ : array (n_classes,), without markers
    n_features_in_, feature_names_in_ : those of the classifier, if it has them

    Notes
    -----
    `score` and what searches with it (`GridSearchCV`, `cross_val_score` with the default scoring) count labelled
    samples only. `predict_proba`, `predict_log_proba` and `decision_function` are those of the classifier.

    Examples
    --------
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from sklearn.pipeline import make_pipeline
    >>> from nnfactor import NGE, LabelledOnly
    >>> X = [[3, 0, 1], [4, 0, 1], [5, 1, 1], [0, 3, 1], [1, 4, 1], [0, 5, 1]]
    >>> y = ["a", "a", None, "b", "b", None]
    >>> model = make_pipeline(NGE(2, random_state=0), LabelledOnly(KNeighborsClassifier(1))).fit(X, y)
    >>> model.predict(X).tolist(), model.score(X, y)
    (['a', 'a', 'a', 'b', 'b', 'b'], 1.0)
    """

    estimator: Any = field(kw_only=False)

    def fit(self, X: Any, y: Any, **params: Any) -> Self:
        """Fit a clone of the classifier to the labelled samples.

        Parameters
        ----------
        X : (n_samples, n_features)
            What the classifier takes; a tensor if it takes tensors.
        y : array (n_samples,)
            Labels; -1 and NaN among numbers, None, NaN, -1, "-1" and "" among text and objects are unlabelled.
        **params
            For the classifier's `fit`; arrays with one entry per sample, such as `sample_weight`, are cut like X.

        Raises
        ------
        ValueError
            No label at all, or y of another length; and what the classifier refuses.
        """
        n = _num_samples(X)
        codes, classes = encode_required_classes(self, y, n, stacklevel=3)
        rows = np.flatnonzero(codes >= 0)
        per_sample = lambda A: hasattr(A, "__len__") and not isinstance(A, str | dict) and _num_samples(A) == n
        params = {name: _take(value, rows) if per_sample(value) else value for name, value in params.items()}
        classes = np.array(classes.tolist()) if classes.dtype == object else classes  # scikit-learn wants one type
        self.estimator_ = clone(self.estimator).fit(_take(X, rows), classes[codes[rows]], **params)
        self.classes_ = self.estimator_.classes_
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
        return self

    def predict(self, X: Any) -> Array:
        """Predict the class of every sample (n_samples,), as the classifier does."""
        check_is_fitted(self)
        return self.estimator_.predict(X)

    predict_proba = _delegated("predict_proba")
    predict_log_proba = _delegated("predict_log_proba")
    decision_function = _delegated("decision_function")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.input_tags = inner.input_tags
        if inner.classifier_tags is not None:
            tags.classifier_tags = replace(inner.classifier_tags, multi_label=False)
        return tags


def _take(A: Any, rows: np.ndarray) -> Any:
    """Take some of the samples, from whatever holds them."""
    if isinstance(A, Tensor):
        return A[torch.from_numpy(rows).to(A.device)]
    if sp.issparse(A):
        return A.tocsr()[rows]
    return _safe_indexing(A if hasattr(A, "__getitem__") else np.asarray(A), rows)
