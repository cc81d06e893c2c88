"""The surface that all factorizations share: scikit-learn's, with tensors, devices, restarts and histories."""

from __future__ import annotations

import numbers
import warnings
from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Self, cast

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ...core import Fit, Rule, Run, Term, run
from ...core.data.as_data import Data, Samples
from ...core.factors import as_factor, gram, reconstruct
from ...core.solve import init
from ...core.solve.nnls import divergence_coefficients, nnls, pseudo_inverse_coefficients
from ...core.solve.run import strict_precision
from ...core.terms.beta import BetaFit
from .fitting import Model, fit_together
from .inputs import Inputs, PickledOnCPU, _to, given_start, read, run_environment
from .parameters import one_of, whole
from .restore import forget_and_restore_on_error


class Factorization(PickledOnCPU, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base of the factorizations; a subclass says what its model is in `_model`.

    Sample factor `"V"`, feature factors `"U1"`, `"U2"`, ... in mode order. Parameters are documented where they are
    declared, in the subclasses.
    """

    _tensors = False  # whether data of more than two dimensions are taken
    _signed = False  # whether data may be negative; then the feature factors are free, and only V is nonnegative
    _batched: tuple[str, ...] = ()  # hyper-parameters that may differ inside a batch: weights that a term can name
    _padded = True  # whether a smaller rank may run with zero columns, which every rule must keep at exactly zero

    @abstractmethod
    def _model(self, source: Inputs, y: Any) -> Model:
        """Terms and rules for these data, after `_prepare`; in a batch for all of it, at its largest rank."""

    def _prepare(self, source: Inputs, y: Any) -> None:
        """Learn what does not depend on the rank: graphs, classes. Once for all estimators of a family."""

    def _batch_key(self, source: Inputs) -> Hashable:
        """What the estimators of a batch must agree in besides their parameters; known after `_prepare`."""
        return None

    def _read(self, X: Any, reset: bool) -> Inputs:
        """The data that a user hands in, to `fit` (reset) or to `transform`."""
        shape = getattr(self, "sample_shape", None) if reset else self._feature_shape
        return read(self, X, reset=reset, sample_shape=shape, tensors=self._tensors, signed=self._signed)

    def _target(self, source: Inputs) -> Inputs:
        """What is factored: the data, unless a model derives something else from them."""
        return source

    def _shapes(self, source: Inputs) -> dict[str, tuple[int, int]]:
        """Names and shapes of the arrays that `init` may give, in its order."""
        data = source.data
        return {name: (d, int(self.n_components)) for name, d in zip(mode_names(data), data.shape, strict=True)}

    def _rescaled(self, factors: list[Tensor], scale: float) -> list[Tensor]:
        """Factors of data that are `scale` times as large: the sample factor carries it."""
        return [factors[0] * scale, *factors[1:]]

    def _unit(self, scale: float) -> float:
        """What the objective of data divided by `scale` is multiplied with."""
        exponent = beta_of(getattr(self, "loss", "frobenius")) * float(np.log2(scale))
        return 2.0**exponent if exponent < 1024 else np.inf

    def _published(self, factors: list[Tensor]) -> list[Tensor]:
        """The factors as users see them; a scale-free model normalises here."""
        return factors

    def _embedded(self, V: Tensor) -> Tensor:
        """One row per sample from the sample factor."""
        return V

    def _features(self, source: Inputs) -> Tensor:
        """Coefficients of new samples, in the units of the data."""
        bases = [_to(F, source.data) for F in self.factors_]
        return self._coefficients(source.data, bases) * source.scale

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the factors.

        Parameters
        ----------
        X : array, tensor, DataFrame or scipy sparse matrix (n_samples, n_features), or (n_samples, d_1, ..., d_r)
            Nonnegative data, samples first. Never changed, never moved to the host.
        y : array (n_samples,), optional
            Labels, where the model uses them.

        Raises
        ------
        ValueError
            Bad data or parameters; the message names the argument, what was found and what would work. Nothing is
            fitted then.
        """
        self._check_parameters()
        with forget_and_restore_on_error(self):
            self._fit(X, y)
        for problem in self._complaints():
            warnings.warn(f"{type(self).__name__} {problem}", ConvergenceWarning, stacklevel=2)
        return self

    def _fit(self, X: Any, y: Any) -> None:
        fit_together([self], X, y)

    def _run(self, source: Inputs, model: Model, start: dict[str, Tensor], y: Any) -> Run:
        """From the start to the end, for one problem or a batch."""
        return self._loop(model.terms, model.rules, start, method=model.method)

    def _loop(self, terms: Sequence[Term], rules: Mapping[str, Rule], start: dict[str, Tensor], **options: Any) -> Run:
        """`run` with the estimator's limits, or others."""
        limits = {"max_iter": self.max_iter, "tol": self.tol, "callback": self.callback, "verbose": self.verbose}
        return run(terms, rules, start, name=type(self).__name__, **(limits | options))

    def transform(self, X: Any) -> Any:
        """Coefficients of samples with the bases fixed, without graph or label terms; every row by itself.

        `transform_method="nnls"` minimises the model's own divergence: exact nonnegative least squares for Frobenius.
        "pinv" is the unconstrained least-squares answer, the papers' features (it can be negative).

        Returns
        -------
        array or tensor (n_samples, n_components), in the kind of `X`
        """
        check_is_fitted(self)
        source = self._read(X, reset=False)
        with strict_precision(source.data.device):
            V = self._features(source)
        return source.to_caller(V.to(source.data.dtype))

    def inverse_transform(self, V: Any) -> Any:
        """Data that coefficients `V (n_samples, n_components)` stand for, in the shape that `fit` was given."""
        check_is_fitted(self)
        as_torch = isinstance(V, Tensor)
        V = V if as_torch else torch.as_tensor(np.asarray(V))
        if V.dim() != 2 or V.shape[1] != self.n_components:
            raise ValueError(f"V has shape {tuple(V.shape)}; it must be (n_samples, {self.n_components})")
        bases = [_to(F, V) for F in self.factors_]
        V = V.to(bases[0].dtype) if V.dtype != bases[0].dtype else V
        X = reconstruct([V, *bases]).reshape(len(V), *self._given_shape)
        return X if as_torch else X.numpy()

    def to_cp(self) -> Any:
        """The fitted model as `tensorly.cp_tensor.CPTensor`, weights one, samples first."""
        check_is_fitted(self)
        from tensorly.cp_tensor import CPTensor

        weights = self.embedding_[0] * 0 + 1
        return CPTensor((weights, [self.embedding_, *self.factors_]))

    @property
    def _n_features_out(self) -> int:
        return self.n_components

    @property
    def _feature_shape(self) -> tuple[int, ...]:
        return getattr(self, "sample_shape_", (self.n_features_in_,))

    def _coefficients(self, data: Data, bases: list[Tensor]) -> Tensor:
        """The sample factor of new data, float64 where it is solved exactly."""
        beta = beta_of(getattr(self, "loss", "frobenius"))
        if beta != 2 and self.transform_method == "nnls":
            return divergence_coefficients(data, bases, beta)
        G = gram(bases[0].double())
        for F in bases[1:]:
            G = G * gram(F.double())
        placeholder = bases[0].new_empty(data.shape[0], bases[0].shape[1])
        B = data.mttkrp([placeholder, *bases], 0)
        if self.transform_method == "nnls":
            return nnls(G, B)
        if len(bases) == 1:  # not from the Gram, which would square the condition number
            inverse = torch.linalg.pinv(bases[0].double())
            return cast(Samples, data).times(as_factor(inverse.mT.to(data.dtype))).double()
        return pseudo_inverse_coefficients(G, B)

    def _check_parameters(self) -> None:
        for name in ("n_components", "n_init", "max_iter"):
            whole(name, getattr(self, name))
        if not isinstance(self.tol, numbers.Real) or not float(self.tol) >= 0:
            raise ValueError(f"tol must be a number >= 0 (0 runs exactly max_iter iterations), got {self.tol!r}")
        if hasattr(self, "transform_method"):
            one_of("transform_method", self.transform_method, ("nnls", "pinv"))
        if self.callback is not None and not callable(self.callback):
            raise ValueError(f"callback must be callable or None, got {self.callback!r}")

    def _drawn_seeds(self) -> list[int]:
        """Every restart has a seed of its own, whatever the others are."""
        seeds = check_random_state(self.random_state).randint(2**31 - 1, size=self.n_init)
        return [int(s) for s in seeds]

    def _start(self, source: Inputs, restart: int) -> list[Tensor]:
        """Where a restart begins: the first as `init` says, the others at random."""
        data, k, seed = source.data, int(self.n_components), self._seeds[restart]
        if restart:
            return self._drawn(data, seed, False)
        if not isinstance(self.init, str):
            given = given_start(self.init, data, self._shapes(source), free=self._signed)
            return self._rescaled(given, 1 / source.scale)
        one_of("init", self.init, ("auto", "random", "nndsvda"), "a tuple of arrays (V, U1, ...)")
        fits = data.order == 2 and k <= min(data.shape)
        return self._drawn(data, seed, self.init == "nndsvda" or (self.init == "auto" and fits))

    def _drawn(self, data: Data, seed: int, svd: bool) -> list[Tensor]:
        """A start from singular vectors, or a random one."""
        k = int(self.n_components)
        return init.nndsvda(cast(Samples, data), k, seed) if svd else init.random(data, k, seed)

    def _publish(self, source: Inputs, model: Model, result: Run) -> None:
        """Set everything that ends in an underscore, at once, when nothing can fail any more.

        `result` holds the restarts of this estimator, in a batch with the rank of the largest.
        """
        data, names, k, best = source.data, model.names, int(self.n_components), result.best
        unit = self._unit(source.scale)
        V, *bases = self._published([result.factors[n][best] for n in names])
        in64 = {n: F.double() for n, F in zip(names, [V, *bases], strict=True)}
        in64 |= {n: F[best].double() for n, F in result.factors.items() if n not in in64}
        self.loss_ = float(in_unit(float(sum(t.direct(in64) for t in model.terms)), unit))
        rows = self._embedded(V)
        seen = [in64[names[0]] if rows is V else rows, *(in64[n] for n in names[1:])]  # the loss summed the same, often
        self.reconstruction_err_ = source.scale * float(data.residual_sq(seen).sqrt())
        rows, *shown = (F[..., :k] for F in self._rescaled([rows, *bases], source.scale))
        self._given_shape = source.shape[1:]
        if self._tensors:
            self.sample_shape_ = tuple(data.shape[1:])
        self.embedding_ = source.to_caller(rows)
        self.factors_ = [source.to_caller(F) for F in shown]
        if len(bases) == 1:
            self.components_ = source.to_caller(shown[0].mT)
        if self.n_init > 1:
            self.restarts_ = self._all_restarts(source, model, result)
        self._note_run(result, unit, data)

    def _all_restarts(self, source: Inputs, model: Model, result: Run) -> dict[str, Any]:
        """What every restart came to, factors as published."""
        V, *bases = self._published([result.factors[n] for n in model.names])
        rows, *shown = self._rescaled([V, *bases], source.scale)
        k = int(self.n_components)
        found = {
            "loss": in_unit(result.objective, self._unit(source.scale)),
            "n_iter": result.n_iter,
            "factors": [source.to_caller(F[..., :k]) for F in shown],
        }
        if getattr(self, "keep_embeddings", False):
            found["embeddings"] = source.to_caller(self._embedded(rows)[..., :k])
        return found

    def _note_run(self, result: Run, unit: float, data: Data) -> None:
        """How the best run went: iterations, history, where and with what it ran."""
        best = result.best
        self.n_iter_, self.converged_ = int(result.n_iter[best]), bool(result.converged[best])
        self.history_ = result.history(best)
        self.history_["objective"] = in_unit(self.history_["objective"], unit)
        self.fit_info_ = {**run_environment(data), "seeds": self._seeds}

    def _complaints(self) -> list[str]:
        """What a user should be warned of after a fit."""
        found = []
        if self.tol > 0 and not self.converged_ and self.n_iter_ == self.max_iter:
            found.append(
                f"stopped at max_iter={self.max_iter} before its objective settled to tol={self.tol}; "
                "raise max_iter or tol"
            )
        if self._vanished():
            found.append(
                "has a factor that is zero everywhere although the data are not; the penalties are stronger than the "
                "data, or init holds only zeros. Lower the weights or use another init"
            )
        return found

    def _vanished(self) -> bool:
        """Whether a factor is zero everywhere although the data are not."""
        return self.reconstruction_err_ > 0 and not all(bool((F != 0).any()) for F in (self.embedding_, *self.factors_))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = not self._signed
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def in_unit(objective: Any, unit: float) -> np.ndarray:
    """Objectives times their unit; zeros stay zeros where the unit is beyond the floating-point range."""
    values = np.asarray(objective, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.where(values == 0, 0.0, values * unit)


def mode_names(data: Data) -> tuple[str, ...]:
    """`("V", "U1", ...)`: one name per mode, samples first."""
    return ("V", *(f"U{b}" for b in range(1, data.order)))


def beta_of(loss: Any) -> float:
    """The exponent of a loss: "frobenius" is 2, "kullback-leibler" 1, a number itself."""
    named = {"frobenius": 2.0, "kullback-leibler": 1.0}
    if isinstance(loss, str) and loss in named:
        return named[loss]
    if isinstance(loss, numbers.Real) and not isinstance(loss, bool) and np.isfinite(float(loss)):
        return float(loss)
    raise ValueError(
        f"loss={loss!r} is not known; use 'frobenius', 'kullback-leibler' or a number beta (0: Itakura-Saito)"
    )


def fit_term(data: Data, beta: float) -> Term:
    """The data term of a loss."""
    modes = mode_names(data)
    return Fit(data, modes) if beta == 2 else BetaFit(data, modes, beta)
