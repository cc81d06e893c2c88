"""What estimators take that know missing and weighted entries."""

import os
import warnings
from collections.abc import Sequence
from typing import Any, Literal, Self, cast

from torch import Tensor

from ...core.arrays import Array
from ...core.data.weighted import Weighted
from .inputs import read
from .scikit_learn import TransformerMixin

Missing = Literal["nan", "unstored"] | None


class HiddenEntries(TransformerMixin):  # so that what `transform` gives follows `set_output`
    """What estimators share that take missing and weighted entries, beside `Factorization` and a field `missing`."""

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        weights: Any = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: float = 60.0,
    ) -> Self:
        """Learn the factors.

        Parameters
        ----------
        X : array, tensor, DataFrame or scipy sparse matrix (n_samples, n_features), or (n_samples, d_1, ..., d_r)
            Nonnegative data, samples first. Never changed, never moved to the host. What the mask of a masked array
            hides is missing.
        y : array (n_samples,), optional
            Labels, where the model uses them.
        weights : array, tensor or sparse, of the shape of X, optional
            How much each entry counts, >= 0: the loss is `sum w d(x, y)`. Whatever stands in X where a weight is 0, or
            is not stored in sparse weights, has no influence: NaN, infinite and negative numbers too.
        checkpoint : str or path, optional
            A file in which the fit keeps what it has reached. The same call, with the same data and parameters, goes
            on from there after an interruption, and ends with the very numbers of a fit that was not interrupted (on
            the same machine, with as many threads). It stays when the fit has ended: the call returns the result again.
            Beside it are two more files, with ".previous" and ".results" behind the name.
        checkpoint_every : float
            Seconds between two savings; longer where they would take more than a tenth of the time.

        Raises
        ------
        ValueError
            Bad data, weights or parameters, or a checkpoint of other data, parameters or versions; the message says
            what would work. Nothing is fitted then.
        OSError
            The checkpoint cannot be written; found before the first sweep, or for want of room after it.

        Warns
        -----
        UserWarning
            Samples or features without any observed entry; their coefficients are 0, or what other terms and
            constraints say.
        """
        return cast(Any, self)._fit(X, y, weights, checkpoint, checkpoint_every)

    def transform(self, X: Any, *, weights: Any = None) -> Array:
        """Compute coefficients of samples with the bases fixed, without graph or label terms; every row by itself.

        Returns `(n_samples, n_components)` in the kind of `X`. `transform_method="nnls"` minimises the model's own
        divergence: exact nonnegative least squares for Frobenius. "pinv" is the unconstrained least-squares answer, the
        papers' features (it can be negative). "ridge" shrinks that, where bases are nearly dependent:
        `min ||x - U c||^2 + (ridge s)^2 ||c||^2` with the bases at unit length and s their largest singular value;
        what is returned are the coefficients of the published bases, for `inverse_transform`, in all three. Missing
        entries and `weights`, as in `fit`, are those of the new samples; a sample without any has coefficients 0.
        """
        return cast(Any, self)._transform(X, weights=weights)

    def fit_transform(self, X: Any, y: Any = None, *, weights: Any = None, **kept: Any) -> Array:
        """Fit (`kept`: with which checkpoint), then compute coefficients as `transform` does."""
        return self.fit(X, y, weights=weights, **kept).transform(X, weights=weights)

    def score(self, X: Any, y: Any = None, *, weights: Any = None) -> float:
        """Return minus the mean loss of an entry of X under `transform(X)` and the bases: greater is better, at most 0.

        The model's own loss, without penalties, over the entries that count and by their weights, for any samples, such
        as those of a fold: `GridSearchCV(NMF(2), ...)` works. But the rows of a fold are solved on all of their
        entries, so that more components always score better there: choose their number by `select_rank`, and by this
        what leaves it as it is. `y` is not used.
        """
        return cast(Any, self)._score(X, weights)

    def _read(self: Any, X: Any, reset: bool, weights: Any = None) -> Any:
        shape = getattr(self, "sample_shape", None) if reset else getattr(self, "sample_shape_", None)
        inputs = read(self, X, reset=reset, sample_shape=shape, tensors=self._tensors, weights=weights)
        if reset and inputs.data.weighted:
            warn_of_unobserved(self, cast(Weighted, inputs.data), stacklevel=7)
        return inputs


def warn_of_unobserved(estimator: Any, data: Weighted, stacklevel: int) -> None:
    """Warn of samples and features that have no entry that counts."""
    names = ["features"] if data.order == 2 else [f"slices of mode {b}" for b in range(1, data.order)]
    warn_of_unseen(estimator, [data.observed(mode) for mode in range(data.order)], names, stacklevel + 1)


def warn_of_unseen(
    estimator: Any, observed: Sequence[Tensor], others: Sequence[str] | None = None, stacklevel: int = 2
) -> None:
    """Warn of rows of factors that have no entry that counts; `others` names those of all factors but the first."""
    missing = [int((~seen).sum()) for seen in observed]
    if any(missing):
        names = ["samples", *(others or [f"features of view {p}" for p in range(len(missing) - 1)])]
        found = " and ".join(f"{count} {name}" for count, name in zip(missing, names, strict=True) if count)
        told = (
            f"{type(estimator).__name__}: {found} without any observed entry; their coefficients are 0, or what other "
            "terms and constraints say"
        )
        warnings.warn(told, UserWarning, stacklevel=stacklevel)
