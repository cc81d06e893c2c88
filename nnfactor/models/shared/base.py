"""The surface that all factorizations share: scikit-learn's, with tensors, devices, restarts and histories."""

import math
import numbers
import os
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ...core import Rule, Run, Term, run, step
from ...core.arrays import Array
from ...core.data.base import Data
from ...core.data.weighted import Weighted, observed_rows
from ...core.factors import as_factor, components
from ...core.precision import strict_precision
from ...core.solve import init
from ...core.solve.history.checkpoint import Checkpoint
from ...core.solve.history.progress import list_callbacks
from ...core.solve.nnls import coefficients_from, normal_equations, weighted_coefficients
from ...core.solve.ridge import project
from ...core.solve.run import Method
from ...core.terms.base import add_direct_values
from ...io.checkpoints.identity import open_checkpoint
from .bases import Bases, ridge_strength, settle_ridge
from .fitting import Given, Learnt, Model, fit_together, forget_and_restore_on_error, read_weighted
from .inputs import Inputs, PickledOnCPU, given_start, read, run_environment
from .parameters import Device, DType, Init, Seed, lists_restarts, nonnegative, one_of, whole
from .scikit_learn import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin


@dataclass(kw_only=True, eq=False, repr=False)
class Factorization(Bases, PickledOnCPU, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base of the factorizations; a subclass says what its model is in `_model`, and documents the parameters.

    Sample factor `"V"`, feature factors `"U1"`, `"U2"`, ... in mode order.
    """

    n_components: int = field(kw_only=False)
    init: Init = "auto"
    n_init: int = 1
    max_iter: int = 2000
    tol: float = 3e-5
    random_state: Seed = None
    device: Device = "auto"
    dtype: DType = "auto"
    callback: Callable[..., Any] | Sequence[Callable[..., Any]] | None = None
    verbose: int = 0

    _tensors: ClassVar[bool] = False  # whether data of more than two dimensions are taken
    _listed_views: ClassVar[bool] = False  # whether `fit` takes a list of arrays
    _sharded: ClassVar[Literal["split", "gathered"] | None] = None  # whether `Sharded` data are taken, V split or whole
    _weights: ClassVar[tuple[str, ...]] = ()  # parameters that may differ inside a batch: weights of terms

    @property
    def _signed(self) -> bool:
        """Tell whether data may be negative; then the feature factors are free, and only V is nonnegative."""
        return False

    def _read(self, X: Any, reset: bool) -> Inputs:
        """Read the data that a user hands in, to `fit` (reset) or to `transform`."""
        shape = getattr(self, "sample_shape", None) if reset else getattr(self, "sample_shape_", None)
        return read(self, X, reset=reset, sample_shape=shape, tensors=self._tensors, signed=self._signed)

    def _learn_structure(self, inputs: Inputs, y: Any) -> Learnt:
        """Learn what does not depend on rank and weights: graphs, classes.

        Published are names that end in an underscore, and those that begin with one: what `transform` goes by.
        """
        return {}

    @abstractmethod
    def _model(self, inputs: Inputs, learnt: Learnt) -> Model:
        """Make the terms, rules and factors for these data."""

    def _start(self, inputs: Inputs, model: Model, seeds: list[int], restart: int) -> dict[str, Tensor]:
        """Make the start of a restart: the first as `init` says, the others at random."""
        if restart or isinstance(self.init, str):
            first, width = model.data[0], sum(X.shape[1] for X in model.data)
            svd = self.init == "auto" and first.order == 2 and self.n_components <= min(first.shape[0], width)
            if first.weighted and cast(Weighted, first).has_few(int(self.n_components)):
                svd = False  # singular vectors would be those of a mean
            factors = self._draw(model, seeds[restart], not restart and (svd or self.init == "nndsvda"))
        else:
            given = given_start(self.init, model.data[0], model.shapes, free=self._signed)
            factors = [F / scale for F, scale in zip(given, model.scales, strict=True)]
        if any(X.weighted for X in model.data):  # without an entry nothing would ever change these rows
            factors = [F * seen for F, seen in zip(factors, observed_rows(model.data), strict=True)]
        factors = [model.within[n](F) if n in model.within else F for n, F in zip(model.shapes, factors, strict=True)]
        return dict(zip(model.names, factors, strict=True))

    def _draw(self, model: Model, seed: int, svd: bool) -> list[Tensor]:
        """Start from singular vectors, or at random."""
        return (init.nndsvda if svd else init.random)(model.data[0], int(self.n_components), seed)

    def _run(
        self,
        model: Model,
        learnt: Learnt,
        start: dict[str, Tensor],
        seeds: list[int],
        checkpoint: Checkpoint | None,
    ) -> Run:
        """Run one problem, or a batch, to its end."""
        return run(model.terms, model.rules, start, method=model.method, **limits_of(self, checkpoint))

    def _coefficients(self, inputs: Inputs) -> Tensor:
        """Compute coefficients of new samples, in the units of the data."""
        data, method = inputs.data, self.transform_method
        strength = ridge_strength(self) if method == "ridge" else 0.0
        return solve_coefficients(data, self._bases(data), method, strength) * inputs.scale

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: float = 60.0,
    ) -> Self:
        """Learn the factors.

        Parameters
        ----------
        X : array, tensor, DataFrame or scipy sparse matrix (n_samples, n_features), or (n_samples, d_1, ..., d_r)
            Nonnegative data, samples first. Never changed, never moved to the host.
        y : array (n_samples,), optional
            Labels, where the model uses them.
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
            Bad data or parameters, or a checkpoint of other data, parameters or versions; the message says what would
            work. Nothing is fitted then.
        OSError
            The checkpoint cannot be written; found before the first sweep, or for want of room after it.
        """
        return self._fit(X, y, None, checkpoint, checkpoint_every)

    def _fit(self, X: Any, y: Any, weights: Any, checkpoint: Any = None, checkpoint_every: float = 60.0) -> Self:
        self._check_parameters()
        kept = None if checkpoint is None else open_checkpoint(checkpoint, checkpoint_every, [self], X)
        with forget_and_restore_on_error(self), kept or nullcontext():
            fit_together([self], [Given(X, y, weights)], checkpoint=kept)
        first = X[0] if isinstance(X, list | tuple) and len(X) else X
        told = self._complaints()
        for problem in first.sums.common(told) if isinstance(first, Data) else told:
            warnings.warn(f"{type(self).__name__} {problem}", ConvergenceWarning, stacklevel=3)
        return self

    def transform(self, X: Any) -> Array:
        """Compute coefficients of samples with the bases fixed, without graph or label terms; every row by itself.

        Returns `(n_samples, n_components)` in the kind of `X`. `transform_method="nnls"` minimises the model's own
        divergence: exact nonnegative least squares for Frobenius. "pinv" is the unconstrained least-squares answer, the
        papers' features (it can be negative). "ridge" shrinks that, where bases are nearly dependent:
        `min ||x - U c||^2 + (ridge s)^2 ||c||^2` with the bases at unit length and s their largest singular value;
        what is returned are the coefficients of the published bases, for `inverse_transform`, in all three.
        """
        return self._transform(X)

    def _transform(self, X: Any, weights: Any = None, **start: Any) -> Any:
        check_is_fitted(self)
        inputs = read_weighted(self, X, False, weights)
        with strict_precision(inputs.data.device):
            V = self._coefficients(inputs, **start)
        return inputs.to_caller(inputs.in_range(V.to(inputs.data.dtype)))

    def _check_parameters(self) -> None:
        for name in ("n_components", "n_init", "max_iter"):
            if hasattr(self, name):
                whole(name, getattr(self, name), least=int(name != "max_iter"))
        if not isinstance(self.tol, numbers.Real) or not float(self.tol) >= 0:
            raise ValueError(f"tol must be a number >= 0 (0 runs exactly max_iter iterations), got {self.tol!r}")
        if isinstance(self.init, str):
            one_of("init", self.init, ("auto", "random", "nndsvda"), "a tuple of arrays (V, U1, ...)")
        if hasattr(self, "transform_method"):
            shrunk = ("ridge",) if hasattr(self, "ridge") else ()
            one_of("transform_method", self.transform_method, ("nnls", "pinv", *shrunk))
        if not isinstance(ridge := getattr(self, "ridge", "cv"), str) or ridge != "cv":
            nonnegative("ridge", ridge, note=", or 'cv'")
        if (missing := getattr(self, "missing", None)) is not None:
            one_of("missing", missing, ("nan", "unstored"), None)
        if self.callback is not None:
            list_callbacks(self.callback)

    def _results(self, inputs: Inputs, learnt: Learnt, model: Model, run: Run) -> dict[str, Any]:
        """Name the fitted attributes. `run` holds the restarts of this estimator, at the largest rank of its batch."""
        names, best, history = model.names, run.best, run.history(run.best)
        k = int(self.n_components) if model.padded else None
        V, *bases = model.arrange([run.factors[n][best] for n in names])
        in64 = {n: F.double() for n, F in zip(names, [V, *bases], strict=True)}
        in64 |= {n: F[best].double() for n, F in run.factors.items() if n not in in64}
        loss = float(add_direct_values(model.terms, in64))
        rows = model.embed(V)
        in64[names[0]] = in64[names[0]] if rows is V else rows  # the very tensors of the loss: its residual is kept
        shown = model.finish([F[..., :k] for F in in_units_of_data(model, [rows, *bases])])
        found = {
            "loss_": float(in_unit(loss, model.unit)),
            **self._errors(inputs, model, [in64[n] for n in names]),
            **show_factors(inputs, shown[0], shown[1:], self._tensors),
            "n_iter_": int(run.n_iter[best]),
            "converged_": bool(run.converged[best]),
            "history_": history | {"objective": in_unit(history["objective"], model.unit)},
            "fit_info_": run_environment(model.data[0]),
        }
        found |= settle_ridge(self, inputs.data, shown[1:])
        if lists_restarts(self):
            found["restarts_"] = list_restarts(inputs, model, run, k, getattr(self, "keep_embeddings", False))
        return found

    @property
    def _remedy(self) -> str:  # when the objective is not finite
        return "Check the scale of init and of the penalty weights, or use float64"

    def _errors(self, inputs: Inputs, model: Model, factors: list[Tensor]) -> dict[str, Any]:
        """Compute the Frobenius norm of the residual in the units of the user's data."""
        return {"reconstruction_err_": math.prod(model.scales) * float(model.data[0].residual_sq(factors).sqrt())}

    def _complaints(self) -> list[str]:
        """List what a user should be warned of after a fit."""
        found = []
        if self.tol > 0 and not self.converged_ and self.n_iter_ == self.max_iter > 0:
            unsettled = f"stopped at max_iter={self.max_iter} before its objective settled to tol={self.tol}"
            found.append(f"{unsettled}; raise max_iter or tol")
        if not math.isfinite(self.loss_):
            found.append(
                "has a loss_ beyond the floating-point range; its factors are right. Divide X by a power of two or use "
                "float64 to know it"
            )
        for i, j in self._twins()[:1]:
            found.append(
                f"has equal components {i} and {j}, for init has; its rules never tell them apart. Use another init, "
                "or solver='auto' or 'hals'"
            )
        if self._vanished():
            found.append(
                "has a factor that is zero everywhere although the data are not; the penalties are stronger than the "
                "data, or init holds only zeros. Lower the weights or use another init"
            )
        return found

    def _twins(self) -> list[tuple[int, int]]:
        """List pairs of components that an `init` of arrays made equal in every factor, and that are not zero."""
        if isinstance(self.init, str) or self.max_iter == 0:
            return []
        factors = (self.embedding_, *self.factors_)
        sums = list(zip(*(F.sum(0).tolist() for F in factors), strict=True))
        alike = [(sums.index(s), j) for j, s in enumerate(sums) if any(s) and sums.index(s) < j]
        return [(i, j) for i, j in alike if all(bool(((F[:, i] - F[:, j]) == 0).all()) for F in factors)]

    def _vanished(self) -> bool:
        return self.reconstruction_err_ > 0 and not all(bool((F != 0).any()) for F in (self.embedding_, *self.factors_))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = not self._signed
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def cp_model(
    inputs: Inputs,
    n_components: int,
    terms: Sequence[Term],
    rules: Mapping[str, Rule],
    method: Method = step,
    beta: float = 2.0,
    **fields: Any,
) -> Model:
    """Make a CP model of the data, whose sample factor carries their scale; `fields` are others of `Model`."""
    data, scales = inputs.data, [inputs.scale, *(inputs.data.order - 1) * [1.0]]
    rows = (data.sums.held or data.shape[0], *data.shape[1:])
    shapes = {name: (d, int(n_components)) for name, d in zip(mode_names(data), rows, strict=True)}
    usual: dict[str, Any] = {"shapes": shapes, "data": [data], "scales": scales, "unit": power(inputs.scale, beta)}
    return Model(terms, rules, method=method, **(usual | fields))


def limits_of(estimator: Any, checkpoint: Checkpoint | None) -> dict[str, Any]:
    """Return what ends a run, who is told of it, and where it is kept."""
    told = {name: getattr(estimator, name) for name in ("max_iter", "tol", "callback", "verbose")}
    return {"name": type(estimator).__name__, "warn": False, "checkpoint": checkpoint, **told}


def solve_coefficients(data: Data, bases: list[Tensor], method: str, ridge: float = 0.0) -> Tensor:
    """Compute the sample factor of new data by least squares, float64."""
    if data.weighted:
        return weighted_coefficients(data, bases, method, ridge)
    if method == "ridge":
        return project(data, bases).coefficients(ridge)
    if method == "pinv" and len(bases) == 1:  # not from the Gram, which would square the condition number
        inverse = torch.linalg.pinv(components(bases[0]).double())
        return data.times(as_factor(inverse.to(data.dtype))).double()
    ((G, B),) = normal_equations(data, bases)
    return coefficients_from(G, B, method)


def show_factors(inputs: Inputs, rows: Tensor, bases: list[Tensor], tensors: bool) -> dict[str, Any]:
    """Name the factors as users see them, and the shapes that go with them; `tensors`: the model takes them."""
    rows, *bases = map(inputs.in_range, (rows, *bases))
    factors = [inputs.to_caller(F) for F in bases]
    found = {"embedding_": inputs.to_caller(rows), "factors_": factors, "_given_shape": inputs.shape[1:]}
    if tensors:
        found["sample_shape_"] = tuple(inputs.data.shape[1:])
    return found


def list_restarts(inputs: Inputs, model: Model, run: Run, n_components: int | None, embeddings: bool) -> dict[str, Any]:
    """List what every restart came to, factors as published, without the columns that padded them."""
    factors = model.arrange([run.factors[n] for n in model.names])
    rows, *bases = model.finish([F[..., :n_components] for F in in_units_of_data(model, factors)])
    shown = [inputs.to_caller(F) for F in bases]
    found = {"loss": in_unit(run.objective, model.unit), "n_iter": run.n_iter, "factors": shown}
    return found | ({"embeddings": inputs.to_caller(model.embed(rows))} if embeddings else {})


def in_units_of_data(model: Model, factors: Sequence[Tensor]) -> list[Tensor]:
    """Multiply factors by their scales, powers of two.

    Where one would leave the range of its dtype, as much of its scale as needed goes to the factor with most room.
    """
    if all(scale == 1 for scale in model.scales):
        return list(factors)
    range_, peaks = torch.finfo(factors[0].dtype), [float(F.abs().max()) for F in factors]
    peaks[0] = model.data[0].sums.largest(peaks[0])
    steps = [math.frexp(scale)[1] - 1 for scale in model.scales]  # powers of two to multiply by
    sizes = [math.frexp(peak)[1] + step for peak, step in zip(peaks, steps, strict=True)]
    if not (model.shares_scales and all(peaks) and all(map(math.isfinite, peaks))):
        for name, size, peak, scale in zip(model.names, sizes, peaks, model.scales, strict=False):
            if peak and size < math.frexp(range_.tiny)[1]:
                raise ValueError(
                    f"X has entries around {scale:.1g}, and factor {name} would be zero in {range_.dtype}; divide X by "
                    f"{scale:.3g} first, or use float64"
                )
        return [F * scale for F, scale in zip(factors, model.scales, strict=True)]
    least, most = math.frexp(range_.tiny / range_.eps)[1], math.frexp(range_.max)[1]
    for i in range(len(factors)):
        excess = sizes[i] - min(max(sizes[i], least), most)
        other = (min if excess > 0 else max)((j for j in range(len(factors)) if j != i), key=sizes.__getitem__)
        for j, change in ((i, -excess), (other, excess)):
            steps[j], sizes[j] = steps[j] + change, sizes[j] + change
    halves = [(step // 2, step - step // 2) for step in steps]  # the power itself may be out of range
    return [F * 2.0**a * 2.0**b for F, (a, b) in zip(factors, halves, strict=True)]


def in_unit(objective: Any, unit: float) -> np.ndarray:
    """Objectives times their unit; zeros stay zeros where the unit is beyond the floating-point range."""
    values = np.asarray(objective, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.where(values == 0, 0.0, values * unit)


def power(scale: float, exponent: float) -> float:
    """`scale ** exponent` for a power of two, infinity beyond the floating-point range."""
    digits = exponent * (math.frexp(scale)[1] - 1)
    return 2.0**digits if digits < 1024 else np.inf


def mode_names(data: Data) -> tuple[str, ...]:
    """`("V", "U1", ...)`: one name per mode, samples first."""
    return ("V", *(f"U{b}" for b in range(1, data.order)))
