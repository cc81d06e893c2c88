"""Nonnegative factorization in kernel space (Zhang and Liu 2009)."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NoReturn

import scipy.sparse as sp
import torch
from torch import Tensor

from ...core import Dense, Fit, Run
from ...core.arrays import Array
from ...core.factors import gram
from ...core.linalg import invert_spectrum
from ...kernels import Kernel, check_kernel, fix_kernel, root
from ..shared.base import Factorization, power
from ..shared.fitting import Learnt, Model
from ..shared.inputs import Inputs, place_factor, read
from ..shared.parameters import Solver, one_of
from ..shared.solvers import unsupervised_rule


class InFeatureSpace(Factorization):
    """Components are not points of the data space."""

    @property
    def inverse_transform(self) -> NoReturn:
        """Refuse: a combination in feature space has no exact pre-image among the data."""
        raise AttributeError(f"{type(self).__name__} has no inverse_transform: feature space has no pre-images")

    @property
    def to_cp(self) -> NoReturn:
        """Refuse: the model is not a CP model of the data."""
        raise AttributeError(f"{type(self).__name__} has no to_cp: it is not a CP model of the data")


MUCH = 0.25  # share of the root that is clipped (in the norm) from which a fit warns; usual kernels lose 0 to 0.06


@dataclass(kw_only=True, eq=False, repr=False)
class KernelNMF(InFeatureSpace):
    """Nonnegative matrix factorization in a flexible kernel space (Zhang and Liu 2009).

    Finds bases `phi(X)' A` in feature space. With `U = R A` (B in the paper) that is Frobenius NMF of the root of the
    kernel matrix K of the samples: minimises `||R - U V'||^2`, R = max(K^(1/2), 0), over nonnegative V and U (n x k);
    the objective carries no 1/2. Time O(n^3) for the root and O(n^2 k) per iteration, memory a few n^2; no cost but
    that of K depends on the number of features.

    Parameters
    ----------
    n_components : int
        Rank k; may exceed the number of samples.
    kernel : {"rbf", "poly", "linear", "precomputed"} or callable
        "rbf": exp(-||x - y||^2 / (2 sigma^2)), the paper's; data of any sign. "poly": (x'y)^degree, nonnegative data;
        "linear" is degree 1. "precomputed": `fit` takes K (n, n), `transform` the values (n_new, n) of new samples
        against the fitted ones. A callable gets two sets of samples (arrays, or tensors if `fit` got one; sparse as
        they are) and returns their kernel matrix. All must be positive semidefinite.
    sigma : "median" or float
        Width of "rbf", in the units of X. "median": the median distance of two samples, which follows their scale.
    degree : int
        Of "poly".
    features : {"exact", "paper"}
        What `transform` returns for the kernel row k of a sample. "exact": its least-squares coefficients
        `k A (A'KA)^+`. "paper": `k K^-1 (A^+)'`, which assumes a pseudo-inverse identity that does not hold (3 to 23 %
        off). Both may be negative, and leave out eigenvalues of K and A'KA below `n eps` of the largest: rounding.
    solver : {"multiplicative", "mu", "auto", "hals", "projected"}
        "multiplicative": the paper's rules, U first, then V with the new U. "auto" is that of `NMF`, and faster.
    init : {"auto", "random", "nndsvda"} or tuple (V, U)
        As for `NMF`, of R; both arrays (n, k).
    n_init : int, restarts, run as one batch; the best is kept
    max_iter : int, iterations at most; 0 publishes the start
    tol : float, when to stop, as for `NMF`; 0 runs exactly `max_iter` iterations
    random_state : int, RandomState, Generator or None, draws one seed per restart
    device : str or torch.device; "auto" is a tensor's own, else CUDA if present, else the CPU
    dtype : {"auto", "float32", "float64"}; "auto" is that of the data. The kernel and its root are float64
    callback : callable, list of them or None: called with `core.Progress` at every reading, a true answer stops the fit
    verbose : int, 1 prints a line at every reading of the objective, 2 also records every iteration

    Attributes
    ----------
    embedding_ : (n_samples, k), the fitted V
    factors_ : list with U (n_samples, k)
    dual_coef_ : (n_samples, k), A = R^+ U: component j is `sum_i A_ij phi(x_i)`
    root_clipped_ : float
        Norm of the negative part of K^(1/2), set to 0, over that of K^(1/2). Unless it is small, R^2 is not K.
    kernel_ : nnfactor.kernels.Kernel, fixed on the samples, which it keeps, with `sigma`
    loss_, reconstruction_err_ : float, `||R - U V'||^2` and its square root
    n_iter_, converged_, history_, restarts_, fit_info_
        As for `NMF`.

    Examples
    --------
    >>> import numpy as np
    >>> from nnfactor import KernelNMF
    >>> X = np.random.default_rng(0).normal(size=(20, 50))
    >>> model = KernelNMF(n_components=4, random_state=0, max_iter=1000).fit(X[:15])
    >>> model.embedding_.shape, model.transform(X[15:]).shape
    ((15, 4), (5, 4))
    """

    kernel: str | Callable[[Any, Any], Any] = field(default="rbf", kw_only=False)
    sigma: Literal["median"] | float = "median"
    degree: int = 2
    features: Literal["exact", "paper"] = "exact"
    solver: Solver = "multiplicative"
    kernel_: Kernel = field(init=False)
    dual_coef_: Array = field(init=False)
    root_clipped_: float = field(init=False)
    _maps: dict[str, Tensor] = field(init=False)

    _of_features = False  # U has a row per sample

    @property
    def score(self) -> NoReturn:
        """Refuse: what a fit minimises is the residual of a root, which new samples do not have."""
        raise AttributeError("KernelNMF has no score: its loss is that of the root of the kernel of the fitted samples")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("factors_", "components_", "dual_coef_"):
            raise AttributeError(f"{name} of KernelNMF cannot be set: transform goes by what fit made of the kernel")
        super().__setattr__(name, value)

    def _read(self, X: Any, reset: bool) -> Inputs:
        kernel = self.kernel if reset else self.kernel_.name
        inputs = read(self, X, reset=reset, signed=_takes_negative(kernel))
        if _is_pairwise(kernel) and sp.issparse(inputs.X):
            raise TypeError("X: sparse input is not supported with kernel='precomputed'; use X.toarray()")
        return inputs

    def _learn_structure(self, inputs: Inputs, y: Any) -> Learnt:
        """Fix the kernel and take its root R, which is factored."""
        X = _samples(inputs, self.kernel)  # kept: a copy that the caller cannot write to
        X = X.clone() if isinstance(X, Tensor) else X.copy()
        kernel = fix_kernel(self.kernel, X, sigma=self.sigma, degree=self.degree)
        held = torch.finfo(inputs.data.dtype)
        if not held.tiny <= kernel.root_unit <= held.max:
            size = f"too {'large' if kernel.root_unit > 1 else 'small'} for degree={self.degree}"
            raise ValueError(f"X is {size} in {inputs.data.dtype}; rescale X or use float64")
        K, eps = kernel.gram()
        if inputs.data.largest() > 0 and not bool(K.any()):
            raise ValueError(
                f"X has entries around {inputs.scale:.1g}, whose kernel is 0; divide X by {inputs.scale:.3g} first"
            )
        S, values, E = root(K.to(inputs.data.device), eps, "kernel")
        R = S.clamp(min=0)
        return {
            "root_clipped_": float((R - S).norm() / S.norm()) if bool((S < 0).any()) else 0.0,
            "kernel_": replace(kernel, X=None) if _is_pairwise(self.kernel) else kernel,
            "roots": (S, R, values, E, eps),
            "data": Dense(R.to(inputs.data.dtype)),
        }

    def _model(self, inputs: Inputs, learnt: Learnt) -> Model:
        data, unit, names = learnt["data"], learnt["kernel_"].root_unit, ("V", "U1")
        rule = unsupervised_rule(self.solver, 2)
        shapes = dict.fromkeys(names, (data.shape[0], int(self.n_components)))
        scales, rules = (unit, 1.0), {"U1": rule, "V": rule}
        return Model([Fit(data, names)], rules, shapes, [data], scales, power(unit, 2.0), shares_scales=False)

    def _results(self, inputs: Inputs, learnt: Learnt, model: Model, run: Run) -> dict[str, Any]:
        found = super()._results(inputs, learnt, model, run)
        U = place_factor(found["factors_"][0], model.data[0]).double()
        A, found["_maps"] = _map_features(U, *learnt["roots"])
        found["dual_coef_"] = inputs.to_caller((A / model.scales[0]).to(inputs.data.dtype))
        return found

    def _coefficients(self, inputs: Inputs) -> Tensor:
        kernel, device = self.kernel_.on(inputs.data.device), inputs.data.device
        K = kernel.rows(_samples(inputs, kernel.name)).to(device)
        return K @ self._maps[self.features].to(device) * kernel.root_unit

    def _complaints(self) -> list[str]:
        clipped = f"{self.root_clipped_:.0%} of the root of the kernel matrix is negative and was set to 0"
        told = f"models another kernel: {clipped}. Use a kernel without negative values"
        return super()._complaints() + ([told] if self.root_clipped_ > MUCH else [])

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_kernel(self.kernel, self.sigma, self.degree)
        one_of("features", self.features, ("exact", "paper"))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = not _takes_negative(self.kernel)
        tags.input_tags.pairwise = _is_pairwise(self.kernel)
        tags.input_tags.sparse = not _is_pairwise(self.kernel)
        return tags


def _is_pairwise(kernel: Any) -> bool:
    return isinstance(kernel, str) and kernel == "precomputed"


def _takes_negative(kernel: Any) -> bool:
    return not (isinstance(kernel, str) and kernel in ("poly", "linear"))


def _samples(inputs: Inputs, kernel: Any) -> Any:
    """Return what a kernel is computed from: for a callable, what the caller works with."""
    X = inputs.given_samples()
    return X.cpu().numpy() if callable(kernel) and isinstance(X, Tensor) and not inputs.as_torch else X


def _map_features(
    U: Tensor, S: Tensor, R: Tensor, values: Tensor, E: Tensor, eps: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """Compute A = R^+ U, and what kernel rows are multiplied with: `A (A'KA)^+` ("exact"), `K^+ (A^+)'` ("paper").

    S = K^(1/2) = E diag(sqrt(values)) E'. A'KA is a Gram of S A: formed as A' (K A) it would cancel.
    """
    cut = len(S) * eps
    if torch.equal(R, S):
        A = invert_spectrum(values.sqrt(), E, 0) @ U
    else:  # clamping may have made R indefinite
        roots, axes = torch.linalg.eigh(R)
        A = invert_spectrum(roots, axes, cut**0.5) @ U
    moments, axes = torch.linalg.eigh(gram(S @ A))
    exact = A @ invert_spectrum(moments, axes, cut)
    paper = invert_spectrum(values, E, 0) @ torch.linalg.pinv(A, rtol=cut).T
    return A, {"exact": exact, "paper": paper}
