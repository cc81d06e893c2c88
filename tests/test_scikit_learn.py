"""scikit-learn's own checks, over every estimator that takes one array."""

import pytest
from estimators import MATRIX
from expected_failures import expected_failures
from sklearn.utils.estimator_checks import parametrize_with_checks

from nnfactor import (
    LNMF,
    SRC,
    SRLSC,
    SULF,
    ConstrainedNMF,
    GraphNMF,
    HarmonicFunction,
    KernelNMF,
    LapRLSC,
    LocalGlobalConsistency,
    PolynomialNMF,
    SemiNMF,
)

INSTANCES = [
    *(make(max_iter=60) for make in MATRIX.values()),
    KernelNMF(3, max_iter=60),
    KernelNMF(3, kernel="poly", features="paper", max_iter=60),
    PolynomialNMF(3, max_iter=60),
    LNMF(3, max_iter=60),
    GraphNMF(3, max_iter=60),
    GraphNMF(3, solver="auto", scale_free=True, max_iter=60),
    ConstrainedNMF(3, max_iter=60),
    SemiNMF(3, max_iter=60),
    SULF(3, max_iter=60),
    SRLSC(),
    LapRLSC(),
    SRC(),
    HarmonicFunction(),
    LocalGlobalConsistency(),
]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(INSTANCES, expected_failed_checks=expected_failures, xfail_strict=True)
def test_scikit_learn_checks(estimator, check):
    check(estimator)
