"""The bases of a fitted estimator: found by a fit, set, or known beforehand (signatures, spectra of a library)."""

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar, Self, cast

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ...core.arrays import Array
from ...core.data.as_data import as_data
from ...core.data.base import Data, times_power
from ...core.data.weighted import Weighted
from ...core.factors import reconstruct
from ...core.precision import strict_precision
from ...core.solve.ridge import choose_for
from .fitting import forget_and_restore_on_error, read_weighted, select_published
from .inputs import Inputs, choose_device, choose_dtype, given_array, place_factor, read, read_coefficients
from .parameters import loss_exponent


class Bases:
    """What the factorizations do with their feature factors once those are there."""

    embedding_: Array
    factors_: list[Array]
    loss_: float
    reconstruction_err_: float
    n_iter_: int
    converged_: bool
    history_: dict[str, np.ndarray]
    restarts_: dict[str, Any]
    fit_info_: dict[str, Any]
    n_features_in_: Any  # int; of several views a list
    transform_method: Any  # of those that have a choice
    ridge: Any  # of those whose coefficients can be shrunk
    ridge_: float
    _of_features: ClassVar[bool] = True  # whether a feature factor has a row for each feature

    def _bases(self: Any, like: Data | Tensor) -> list[Tensor]:
        """Place the feature factors where they are needed; refuse one that was set and does not fit."""
        bases = [place_factor(F, like) for F in self.factors_]
        shapes = [(d, bases[0].shape[-1]) for d in getattr(self, "sample_shape_", (self.n_features_in_,))]
        if [tuple(F.shape) for F in bases] != shapes:
            found = [tuple(F.shape) for F in bases]
            raise ValueError(f"factors_ have shapes {found}; {type(self).__name__} was fitted to data of {shapes}")
        return bases

    def inverse_transform(self: Any, V: Any) -> Array:
        """Return the data that coefficients stand for, in the shape given to `fit` and the kind of `V`.

        `V (n_samples, n_components)` is anything that `fit` would take, of any sign; ValueError for NaN and infinity.
        """
        check_is_fitted(self)
        rows = read_coefficients(V, self._n_features_out)
        with strict_precision(rows.device):
            bases = self._bases(rows)
            X = reconstruct([rows.to(bases[0].dtype), *bases]).reshape(len(rows), *self._given_shape)
        return X if isinstance(V, Tensor) else X.numpy()

    def score(self: Any, X: Any, y: Any = None) -> float:
        """Return minus the mean loss of an entry of X under `transform(X)` and the bases: greater is better, at most 0.

        The model's own loss, without penalties, for any samples, such as those of a fold: `GridSearchCV(NMF(2), ...)`
        works. But the rows of a fold are solved on all of their entries, so that more components always score better
        there: choose their number by `select_rank`, and by this what leaves it as it is. `y` is not used.
        """
        return self._score(X)

    def _score(self: Any, X: Any, weights: Any = None) -> float:
        check_is_fitted(self)
        inputs = read_weighted(self, X, False, weights)
        with strict_precision(inputs.data.device):
            return -self._mean_loss(inputs, self._coefficients(inputs))

    def _mean_loss(self: Any, inputs: Inputs, V: Tensor) -> float:
        """Average the loss of data over their entries; `V` are their coefficients, in the units of the data."""
        loss = mean_loss(self, inputs, [V.double() / inputs.scale, *self._bases(inputs.data)])
        return times_power(loss, inputs.scale, loss_exponent(self))

    @property
    def components_(self: Any) -> Array:
        """The feature factor of a matrix with components as rows, `(k, m)`: the memory of `factors_[0]`.

        It may be written to and set; `transform` and `inverse_transform` then go by it.
        """
        factors, name = vars(self).get("factors_"), type(self).__name__
        if factors is None:
            raise NotFittedError(f"{name} is not fitted yet, and has no components_; call fit first")
        if len(factors) != 1 or not self._of_features:
            raise AttributeError(f"{name} has no components_; it has {len(factors)} factors_ instead")
        return factors[0].T

    @components_.setter
    def components_(self: Any, H: Any) -> None:
        if "factors_" not in vars(self):
            return self._adopt(H)
        own = self.components_
        hint = ", as fitted; for others use from_components"
        like = place_factor(own, own if isinstance(own, Tensor) else torch.empty(0, device="cpu"))
        F = given_array("components_", H, tuple(own.shape), like, free=self._signed, hint=hint).T.contiguous()
        self.__dict__.update(factors_=[F if isinstance(own, Tensor) else F.numpy()])
        self.__dict__.pop("_labelled", None)  # samples on other bases

    def _adopt(self, components: Any) -> None:
        """Become the fitted estimator of known bases."""
        raise NotFittedError(f"{type(self).__name__} is not fitted; components_ can be set after fit")

    def to_cp(self: Any) -> Any:
        """Return the fitted model as `tensorly.cp_tensor.CPTensor`, weights one, samples first; needs TensorLy."""
        check_is_fitted(self, "embedding_")
        try:
            from tensorly.cp_tensor import CPTensor
        except ImportError:
            raise ImportError("to_cp needs TensorLy: pip install tensorly, or use embedding_ and factors_") from None
        weights = self.embedding_[0] * 0 + 1
        return CPTensor((weights, [self.embedding_, *self.factors_]))

    @property
    def _n_features_out(self: Any) -> int:
        check_is_fitted(self)
        return int(self.factors_[0].shape[1])


def settle_ridge(estimator: Any, data: Data | None, bases: list[Tensor]) -> dict[str, float]:
    """Publish the strength of `transform_method="ridge"`; "cv" chooses it for these samples on these bases."""
    if not hasattr(estimator, "ridge") or estimator.transform_method != "ridge":
        return {}
    if estimator.ridge != "cv":
        return {"ridge_": float(estimator.ridge)}
    if data is None:
        raise ValueError("ridge='cv' chooses the strength for samples, and there are none; give a number such as 0.1")
    if data.weighted:
        raise ValueError("ridge='cv' needs complete samples, and X has hidden or weighted entries; give a number")
    return {"ridge_": choose_for(data, bases)}


def ridge_strength(estimator: Any) -> float:
    """Return the strength that the fit settled; without one, for it solved otherwise, that of the parameter."""
    if not hasattr(estimator, "ridge_") and estimator.ridge == "cv":
        raise ValueError(
            "ridge='cv' chooses its strength in fit, where transform_method was another; fit again, or set ridge to a "
            "number"
        )
    return float(getattr(estimator, "ridge_", estimator.ridge))


class KnownBases:
    """What `NMF` and `NTF` share about bases that no fit has found, beside `Factorization`."""

    @classmethod
    def from_components(cls, components: Any, **parameters: Any) -> Self:
        """Make a fitted estimator of known bases, for `transform` and `inverse_transform`.

        Parameters
        ----------
        components : array, tensor, DataFrame or sparse matrix (k, n_features); `NTF`: list of arrays (d_b, k)
            Nonnegative bases, as `components_` and as `factors_`; copied. Columns of a DataFrame name the features.
        **parameters
            Of the estimator, but for `n_components`, which is k. `normalize` is None unless given: lengths and order of
            the bases are kept by `partial_fit` and by a fit that follows.

        Returns
        -------
        estimator with `factors_`, `components_` and `n_features_in_`. What a fit says of its samples is absent;
        `partial_fit` goes on from the bases, `fit` begins anew.

        Raises
        ------
        ValueError
            Bad bases or parameters.

        Examples
        --------
        >>> import numpy as np
        >>> from nnfactor import NMF
        >>> H = np.array([[1.0, 0.0, 2.0], [0.0, 1.0, 1.0]])
        >>> NMF.from_components(H).transform([[2.0, 3.0, 7.0]]).round(6).tolist()
        [[2.0, 3.0]]
        """
        estimator = cast(Any, cls)(1, **{"normalize": None, **parameters})
        estimator.n_components = None
        estimator._adopt(components)
        return estimator

    def _adopt(self: Any, components: Any) -> None:
        """Become the fitted estimator of known bases; with n_components=None, of as many as there are."""
        wanted = self.n_components
        with forget_and_restore_on_error(self):
            factors = self._read_bases(components)
            widths, k = tuple(int(F.shape[0]) for F in factors), int(factors[0].shape[1])
            self.n_components = k if wanted is None else wanted
            self._check_parameters()
            if k != self.n_components:
                raise ValueError(f"components: {k} were given, but n_components is {wanted}")
            shapes = {"_given_shape": widths, "n_features_in_": prod(widths)}
            shapes |= {"sample_shape_": widths} if self._tensors else {}
            learnt = {**select_published(self._learn_structure(None, None)), **settle_ridge(self, None, [])}
            self.__dict__.update(learnt, factors_=factors, **shapes)

    def _read_bases(self, components: Any) -> list[Any]:
        """Read bases as rows, as if they were samples: names of features are noted."""
        try:
            inputs = read(self, components, reset=True, complete=True)
        except ValueError as error:
            raise ValueError(f"components: {error}") from error
        H = inputs.unscaled.samples()
        F = torch.from_numpy(H.toarray()) if sp.issparse(H) else H
        return [inputs.to_caller(F.T.clone())]


def read_factors(estimator: Any, factors: Any) -> list[Any]:
    """Read one basis `(d_b, k)` for each mode, nonnegative: copies, in one dtype."""
    if not isinstance(factors, list | tuple) or not factors:
        raise ValueError(
            f"components must be a list of factors (d_b, k), one for each mode of a sample; got {factors!r}"
        )
    device, dtype = choose_device(estimator.device, factors[0]), choose_dtype(estimator.dtype)
    read = [as_data(F, device, dtype, name=f"components[{b}]") for b, F in enumerate(factors)]
    shapes = [data.shape for data in read]
    if any(len(shape) != 2 or shape[1] != shapes[0][1] for shape in shapes):
        raise ValueError(f"components have shapes {shapes}; all must be (d_b, k) with one k")
    common = max((data.dtype for data in read), key=lambda d: torch.finfo(d).bits)
    tensors = [torch.from_numpy(H.toarray()) if sp.issparse(H) else H for H in (data.samples() for data in read)]
    copies = [F.to(common, copy=True) for F in tensors]
    return copies if isinstance(factors[0], torch.Tensor) else [F.cpu().numpy() for F in copies]


def read_for_score(estimator: Any, X: Any, weights: Any = None) -> Inputs:
    """Read data as a fit of an estimator would, and their weights if there are any."""
    return read_weighted(estimator, X, True, weights)


def mean_loss(estimator: Any, inputs: Inputs, factors: Sequence[Tensor]) -> float:
    """Divide the loss of data under a CP model by the weight of all entries.

    `factors` are float64, and they and the loss in the units of `inputs.data`: of the user's data over `inputs.scale`.
    """
    data, beta = inputs.data, loss_exponent(estimator)
    total = float(cast(Weighted, data).total_weight()) if data.weighted else prod(data.shape)
    if not total:
        raise ValueError("X has no entry that counts: all are hidden or have weight 0; there is nothing to score")
    with strict_precision(data.device), torch.no_grad():
        loss = float(data.divergence([F.to(data.device, torch.float64) for F in factors], beta))
    return loss / total
