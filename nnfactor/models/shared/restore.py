"""What fails leaves an estimator as it was."""

from collections.abc import Iterator
from contextlib import contextmanager

from .scikit_learn import BaseEstimator


@contextmanager
def forget_and_restore_on_error(estimator: BaseEstimator) -> Iterator[None]:
    """Forget the fit before this one; if this one fails, the estimator is what it was."""
    with restore_on_error(estimator):
        for name in list(vars(estimator)):
            if name.endswith("_") and not name.startswith("_"):
                delattr(estimator, name)
        yield


@contextmanager
def restore_on_error(estimator: BaseEstimator) -> Iterator[None]:
    """Restore the estimator if something fails."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise
