"""Estimators of bases that are known: signatures, programs, spectra of a library."""

from __future__ import annotations

from math import prod
from typing import Any, Self, cast

import scipy.sparse as sp
import torch

from ...core.data.as_data import as_data
from .fitting import select_published
from .inputs import choose_device, choose_dtype, read
from .restore import forget_and_restore_on_error


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
            Of the estimator, but for `n_components`, which is k.

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
        estimator = cast(Any, cls)(1, **parameters)
        estimator.n_components = None
        estimator._adopt(components)
        return estimator

    def _adopt(self, components: Any) -> None:
        """Become the fitted estimator of known bases; with n_components=None, of as many as there are."""
        model = cast(Any, self)
        wanted = model.n_components
        with forget_and_restore_on_error(model):
            factors = model._read_bases(components)
            widths = tuple(int(F.shape[0]) for F in factors)
            model.n_components = int(factors[0].shape[1]) if wanted is None else wanted
            model._check_parameters()
            if factors[0].shape[1] != model.n_components:
                raise ValueError(f"components: {factors[0].shape[1]} were given, but n_components is {wanted}")
            shapes = {"_given_shape": widths, "n_features_in_": prod(widths)}
            shapes |= {"sample_shape_": widths} if model._tensors else {}
            learnt = select_published(model._learn_structure(None, None))
            vars(model).update(learnt, factors_=factors, **shapes)

    def _read_bases(self, components: Any) -> list[Any]:
        """Read bases as rows, as if they were samples: names of features are noted."""
        try:
            inputs = read(self, components, reset=True)
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
