"""scikit-learn's base classes; `scikit_learn.pyi` has their types, without which every member would be unknown."""

from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    MetaEstimatorMixin,
    TransformerMixin,
)

__all__ = [
    "BaseEstimator", "ClassNamePrefixFeaturesOutMixin", "ClassifierMixin", "ClusterMixin", "MetaEstimatorMixin",
    "TransformerMixin",
]  # fmt: skip
