"""Nonnegative Tucker decomposition: a core and a factor for each mode, every mode with a rank of its own."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any, Literal

import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ...core import Rule, Run, hals, her, multiplicative, projected_gradient, step
from ...core.arrays import Array
from ...core.data.base import Data, power_of_two, times_power
from ...core.factors import as_factor, draw_factor, gram
from ...core.multilinear import (
    as_core,
    bound_lengths,
    core_factor,
    core_gram,
    core_product,
    reconstruct_tucker,
    sort_modes,
)
from ...core.precision import strict_precision
from ...core.solve.memory_budget import COPIES
from ...core.solve.nnls import coefficients_from
from ...core.terms.tucker import TuckerFit
from ..shared.base import Factorization, mode_names, power
from ..shared.fitting import Learnt, Model
from ..shared.inputs import Inputs, given_array, place_factor, read_coefficients
from ..shared.parameters import Coefficients, Solver, lists_restarts, one_of, whole

SWEEPS, STEPS = 10, 30  # of HALS over a factor and of projected gradient over the core, for one product with the data

APART = 128.0  # lengths of columns stay within 1/128 and 128 between sweeps: the core takes up the rest


@dataclass(frozen=True)
class TuckerModel(Model):
    """A Tucker model: its last factor keeps the core."""

    @property
    def key(self) -> Any:
        """Equal for models that one batch can hold: of equal ranks in every mode."""
        return super().key, tuple(self.shapes.values())

    def problem_bytes(self) -> int:
        """Estimate the bytes that one problem needs: copies of its factors, and the data contracted in parts."""
        (data,), factors = self.data, list(self.shapes.values())[:-1]
        core = prod(r for _, r in factors)
        first, last = factors[: data.cut], factors[data.cut :]
        groups = [prod(r for _, r in a) * prod(d for d, _ in b) for a, b in ((first, last), (last, first))]
        return (COPIES * (sum(d * r for d, r in factors) + core) + 4 * sum(groups)) * data.dtype.itemsize


@dataclass(kw_only=True, eq=False, repr=False)
class NTD(Factorization):
    """Nonnegative Tucker decomposition `X ~ core x_0 V x_1 U1 x_2 U2 ...` of a tensor of any order, samples first.

    Minimises `||X - core x_0 V x_1 U1 ...||^2` over nonnegative V (n x r_0), U_b (d_b x r_b) and core (r_0 x ... x r_N)
    (Kim and Choi 2007, Phan and Cichocki 2011). Every mode has its own number of components, and the core says how much
    of each combination there is. With a diagonal core it is the CP model of `NTF`; of a matrix it is the three-factor
    model `V core U'`.

    A sweep costs two products with the data at any order: neither the tensor nor a Kronecker product is ever unfolded
    or formed, and a sparse tensor stays sparse.

    Parameters
    ----------
    ranks : int or sequence of int
        Components of every mode, samples first; one number is that of all modes.
    sample_shape : tuple of int, optional
        Shape of one sample when `X` comes as flattened rows, as scikit-learn pipelines hand it on.
    solver : {"auto", "multiplicative", "mu", "hals", "projected"}
        Of the factors. "auto": HALS with 10 sweeps for one product with the data, the core by 30 steps of accelerated
        projected gradient, and momentum with restarts (Ang and Gillis 2019): measured, these take the least time. The
        others are plain and monotone. "hals": one sweep, and 10 steps for the core, whose entries have no column in
        closed form; "multiplicative" (= "mu") and "projected" treat all alike.
    init : {"auto", "random"} or tuple (V, U1, ..., core)
        Where restart 0 begins. "auto" is "random": |normal| numbers whose reconstruction has the data's mean. Arrays
        are copied and used as given; the core has the shape of `ranks`.
    n_init : int, restarts, run as one batch; the best is kept
    max_iter : int, iterations at most; 0 publishes the start
    tol : float, when to stop, as for `NMF`; 0 runs exactly `max_iter` iterations
    transform_method : {"nnls", "pinv"}, coefficients of `transform`: nonnegative, or of any sign
    random_state : int, RandomState, Generator or None, draws one seed per restart
    device : str or torch.device; "auto" is a tensor's own, else CUDA if present, else the CPU
    dtype : {"auto", "float32", "float64"}; "auto" is that of the data
    callback : callable, list of them or None: called with `core.Progress` at every reading, a true answer stops the fit
    verbose : int, 1 prints a line at every reading of the objective, 2 also records every iteration
    keep_embeddings : bool, whether `restarts_` also holds the sample factor of every restart
    normalize : {"l2"} or None
        The gauge of what is published: columns of all factors have length one and the core carries the scale, with the
        components of every mode by the falling length of their slices of the core. None leaves lengths and order as the
        solver left them. The fit is the same.

    Attributes
    ----------
    core_ : (r_0, r_1, ..., r_N), which carries the scale
    embedding_ : (n_samples, r_0), the fitted V; factors_ : list of (d_b, r_b)
    sample_shape_ : tuple of int; `n_features_in_` and feature names count flattened features
    loss_, reconstruction_err_, n_iter_, converged_, history_, fit_info_
        As for `NMF`.
    restarts_ : dict
        As for `NMF`, and "core" (n_init, r_0, ..., r_N).

    Notes
    -----
    Entries that are missing are refused: `NTF` takes them. Unlike a CP model, a Tucker model can be turned within a
    mode; the sign alone makes it nearly unique where its parts are sparse.

    Examples
    --------
    Images of digits: ten components of samples, made of five profiles of rows and of columns.

    >>> from sklearn.datasets import load_digits
    >>> from nnfactor import NTD
    >>> X = load_digits().images[:300]
    >>> model = NTD((10, 5, 5), random_state=0).fit(X)
    >>> model.embedding_.shape, model.core_.shape, [F.shape for F in model.factors_]
    ((300, 10), (10, 5, 5), [(8, 5), (8, 5)])
    >>> bool(model.reconstruction_err_ < 0.5 * (X**2).sum() ** 0.5), model.transform(X[:2]).shape
    (True, (2, 10))
    """

    ranks: int | Sequence[int] = field(kw_only=False)
    init: Literal["auto", "random"] | tuple[Any, ...] | list[Any] = "auto"
    sample_shape: Sequence[int] | None = None
    solver: Solver = "auto"
    transform_method: Coefficients = "nnls"
    keep_embeddings: bool = False
    normalize: Literal["l2"] | None = "l2"
    n_components: int = field(init=False)  # no parameter of this model, and never set: `ranks` is
    core_: Array = field(init=False)
    sample_shape_: tuple[int, ...] = field(init=False)
    _given_shape: tuple[int, ...] = field(init=False)

    _tensors = True
    _of_features = False

    def inverse_transform(self, V: Any) -> Array:
        """Return the data that coefficients `(n_samples, r_0)` stand for, in the shape given to `fit`."""
        check_is_fitted(self)
        rows = read_coefficients(V, self._n_features_out)
        with strict_precision(rows.device):
            bases, core = self._bases(rows), place_factor(self.core_, rows)
            X = reconstruct_tucker([rows.to(core.dtype), *bases], core).reshape(len(rows), *self._given_shape)
        return X if isinstance(V, Tensor) else X.numpy()

    def to_cp(self) -> Any:
        """Refuse: a Tucker model is no CP model; use `to_tucker`."""
        raise ValueError("NTD is a Tucker model; use to_tucker(), or fit NTF for a CP model")

    def to_tucker(self) -> Any:
        """Return the fitted model as `tensorly.tucker_tensor.TuckerTensor`, samples first; needs TensorLy."""
        check_is_fitted(self)
        try:
            from tensorly.tucker_tensor import TuckerTensor
        except ImportError:
            raise ImportError("to_tucker needs TensorLy: pip install tensorly, or use core_ and factors_") from None
        return TuckerTensor((self.core_, [self.embedding_, *self.factors_]))

    @property
    def _n_features_out(self) -> int:
        check_is_fitted(self)
        return int(self.core_.shape[0])

    def _bases(self, like: Data | Tensor) -> list[Tensor]:
        bases = [place_factor(F, like) for F in self.factors_]
        shapes = list(zip(self.sample_shape_, self.core_.shape[1:], strict=True))
        if [tuple(F.shape) for F in bases] != shapes:
            found = [tuple(F.shape) for F in bases]
            raise ValueError(
                f"factors_ have shapes {found}; with core_ {tuple(self.core_.shape)} they must be {shapes}"
            )
        return bases

    def _model(self, inputs: Inputs, learnt: Learnt) -> Model:
        data = inputs.data
        ranks, names = _read_ranks(self.ranks, data.order), (*mode_names(data), "core")
        V, *bases, core = names
        shapes = dict(zip(names, [*zip(data.shape, ranks, strict=True), (prod(ranks[1:]), ranks[0])], strict=True))
        own, of_core = self._rules()
        rules = {**dict.fromkeys([*bases, V], own), core: of_core}
        bounded = partial(_bounded, names[:-1], APART)
        return TuckerModel(
            [TuckerFit(data, names[:-1], core)],
            rules,
            shapes,
            [data],
            [*len(ranks) * [1.0], inputs.scale],
            power(inputs.scale, 2),
            partial(her, bound=bounded) if self.solver == "auto" else step,
            normalize=_publish if self.max_iter and self.normalize else lambda factors: factors,
            padded=False,
        )

    def _rules(self) -> tuple[Rule, Rule]:
        """Choose the rule of the factors and that of the core."""
        if self.solver in ("multiplicative", "mu"):
            return multiplicative, multiplicative
        if self.solver == "projected":
            return projected_gradient, projected_gradient
        sweeps, steps = (SWEEPS, STEPS) if self.solver == "auto" else (1, STEPS // 3)
        return partial(hals, sweeps=sweeps), partial(projected_gradient, steps=steps)

    def _start(self, inputs: Inputs, model: Model, seeds: list[int], restart: int) -> dict[str, Tensor]:
        names, data = model.names, model.data[0]
        shapes = list(model.shapes.values())[:-1]
        ranks = [k for _, k in shapes]
        if restart or isinstance(self.init, str):
            factors, core = _draw(data, ranks, seeds[restart])
        else:
            factors, core = _given(self.init, data, dict(zip(names, shapes, strict=False)), ranks)
            core = core / inputs.scale
        start = dict(zip(names, [*factors, core_factor(core, data.order)], strict=True))
        return _bounded(names[:-1], 1.0, start) if self.max_iter else start

    def _results(self, inputs: Inputs, learnt: Learnt, model: Model, run: Run) -> dict[str, Any]:
        found = super()._results(inputs, learnt, model, run)
        ranks = [r for _, r in model.shapes.values()][:-1]
        as_array = lambda C: C.swapaxes(-1, -2).reshape(*C.shape[:-2], *ranks)
        found["core_"] = as_array(found["factors_"].pop())
        if lists_restarts(self):
            found["restarts_"]["core"] = as_array(found["restarts_"]["factors"].pop())
        return found

    def _errors(self, inputs: Inputs, model: Model, factors: list[Tensor]) -> dict[str, Any]:
        *Fs, C = factors
        core = as_core(C, [F.shape[-1] for F in Fs])
        return {"reconstruction_err_": inputs.scale * float(model.data[0].tucker_residual_sq(Fs, core).sqrt())}

    def _coefficients(self, inputs: Inputs) -> Tensor:
        data, core = inputs.data, place_factor(self.core_, inputs.data)
        size = power_of_two(float(core.max()))  # of the data, whose square may be out of range
        bases, core = self._bases(data), core.double() / size
        like = bases[0].new_empty(data.shape[0], core.shape[0])
        T = data.multilinear([like, *map(as_factor, bases)], 0).double()
        grams = [torch.empty(0, device=data.device), *(gram(F.double()) for F in bases)]
        G, B = core_gram(core, grams, 0), core_product(core, T, 0, data.order)
        return coefficients_from(G, B, self.transform_method) * (inputs.scale / size)

    def _mean_loss(self, inputs: Inputs, V: Tensor) -> float:
        data, core = inputs.data, place_factor(self.core_, inputs.data)
        loss = data.tucker_residual_sq([V.double() / inputs.scale, *self._bases(data)], core)
        return times_power(float(loss) / prod(data.shape), inputs.scale, 2)

    def _check_parameters(self) -> None:
        _read_ranks(self.ranks, 1 if isinstance(self.ranks, Sequence) else None)
        super()._check_parameters()
        one_of("solver", self.solver, ("auto", "multiplicative", "mu", "hals", "projected"))
        one_of("normalize", self.normalize, ("l2", None))
        if isinstance(self.init, str):
            one_of("init", self.init, ("auto", "random"), "a tuple of arrays (V, U1, ..., core)")

    def _twins(self) -> list[tuple[int, int]]:
        return []  # components that are equal in one mode differ in the core

    def _vanished(self) -> bool:
        return self.reconstruction_err_ > 0 and not bool((self.core_ != 0).any())


def _read_ranks(ranks: Any, order: int | None) -> tuple[int, ...]:
    """Read one rank for each mode; with `order` None or 1 for as many modes as there are."""
    listed = list(ranks) if isinstance(ranks, Sequence) and not isinstance(ranks, str) else (order or 1) * [ranks]
    if not listed or (order not in (None, 1) and len(listed) != order):
        raise ValueError(f"ranks={ranks!r} has {len(listed)} numbers; X has {order} modes, samples first")
    for r in listed:
        whole("ranks", r)
    return tuple(map(int, listed))


def _bounded(names: Sequence[str], apart: float, factors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Bring columns into `1/apart .. apart` at the cost of the core."""
    Fs = [factors[name] for name in names]
    Fs, core = bound_lengths(Fs, as_core(factors["core"], [F.shape[-1] for F in Fs]), apart)
    return {**factors, **dict(zip(names, map(as_factor, Fs), strict=True)), "core": core_factor(core, len(Fs))}


def _publish(factors: list[Tensor]) -> list[Tensor]:
    """Bring columns to length one, and components of every mode in order."""
    *Fs, C = factors
    Fs, core = sort_modes(*bound_lengths(Fs, as_core(C, [F.shape[-1] for F in Fs]), 1.0))
    return [*map(as_factor, Fs), as_factor(core_factor(core, len(Fs)))]


def _draw(data: Data, ranks: Sequence[int], seed: int) -> tuple[list[Tensor], Tensor]:
    """Draw |normal| factors and core whose reconstruction has the data's mean; on the CPU, the same for all devices."""
    generator = torch.Generator("cpu").manual_seed(seed)
    factors = [draw_factor(d, r, generator, data.device) for d, r in zip(data.shape, ranks, strict=True)]
    core = as_core(draw_factor(prod(ranks[1:]), ranks[0], generator, data.device), ranks)
    total = reconstruct_tucker([F.sum(0, keepdim=True) for F in factors], core).sum()
    core = core * (data.mean() * prod(data.shape) / total)
    return [F.to(data.dtype) for F in factors], core.to(data.dtype)


def _given(
    arrays: Any, data: Data, shapes: dict[str, tuple[int, int]], ranks: Sequence[int]
) -> tuple[list[Tensor], Tensor]:
    """Read `init` as arrays: checked, copied, cast."""
    wanted = ", ".join(f"{name} {shape}" for name, shape in shapes.items()) + f", core {tuple(ranks)}"
    if not isinstance(arrays, Sequence) or len(arrays) != len(shapes) + 1:
        found = f"{len(arrays)} arrays" if isinstance(arrays, Sequence) else type(arrays).__name__
        raise ValueError(f"init must be 'auto', 'random' or the arrays ({wanted}); got {found}")
    hint = f"; init is ({wanted})"
    *factors, core = arrays
    read = lambda name, array, shape: given_array(f"init: {name}", array, shape, data, hint=hint)
    Fs = [as_factor(read(name, F, shape)) for (name, shape), F in zip(shapes.items(), factors, strict=True)]
    return Fs, read("core", core, tuple(ranks))
