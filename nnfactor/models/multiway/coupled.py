"""Coupled factorization: matrices and tensors of any order that share modes, and a factor for each mode."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ...core import Run, her, step
from ...core.arrays import Array
from ...core.data.base import Data, power_of_two
from ...core.factors import as_factor, column_norms, gram_of_others, reconstruct
from ...core.precision import strict_precision
from ...core.solve.coupled_start import Lengths, draw_coupled, sort_coupled
from ...core.solve.nnls import coefficients_from
from ...core.solve.view_init import start_views
from ...core.terms.fit import WeightedFit
from ..shared.base import Factorization
from ..shared.fitting import Learnt, Model
from ..shared.inputs import Inputs, given_array, place_factor, read_coefficients, take_shard, to_torch
from ..shared.parameters import Coefficients, Solver, lists_restarts, one_of
from ..shared.solvers import unsupervised_rule
from ..shared.views import View, one_device, read_all
from .tensors import TensorInputs, check_sizes, check_split, check_weights, list_tensors, read_modes

APART = 128.0  # lengths of a component's columns stay within 1/128 and 128 times what they could be at equal lengths


@dataclass(kw_only=True, eq=False, repr=False)
class Coupled(Factorization):
    """Nonnegative factorization of several matrices and tensors of any order that share modes, such as the samples.

    Tensor p is a CP model of the factors of its modes, and a mode that several tensors have is one factor (coupled
    matrix-tensor factorization; Acar, Kolda and Dunlavy 2011). Minimises over nonnegative factors

        sum_p weight_p ||X_p - [[factors of its modes]]||^2 / ||X_p||^2

    With one tensor it is `NTF`; with matrices that share their samples it is `SULF` without labels and with fixed
    weights.

    Parameters
    ----------
    n_components : int
        Number of components k, the same in all tensors; a component that a tensor lacks gets weight 0 there.
    modes : list of tuples of str
        Names of the modes of every tensor, such as `[("sample", "gene"), ("sample", "time", "channel")]`; equal names
        are one factor. The first mode of the first tensor is that of the samples. A tensor shares a mode with others.
    weights : list of float > 0, optional
        One for each tensor, of its relative squared error: they mean the same whatever the size, the number of entries
        and the unit of a tensor. Default: 1 for each. With `||X_p||^2` the objective is the plain sum of squares.
    solver : {"auto", "multiplicative", "mu", "hals", "projected"}
        "auto": HALS with 5 sweeps for one product with the data, and momentum with restarts. The others are plain and
        monotone, as for `NMF`.
    init : {"auto", "random", "nndsvda"} or dict of arrays by mode
        Where restart 0 begins. "auto": nonnegative double SVD of the matrices side by side, where all tensors are
        matrices of the same samples; else |normal| numbers with the tensors' means. Arrays are copied.
    n_init : int, restarts, run as one batch; the best is kept
    max_iter : int, iterations at most; 0 publishes the start
    tol : float, when to stop, as for `NMF`; 0 runs exactly `max_iter` iterations
    transform_method : {"nnls", "pinv"}, coefficients of `transform`: nonnegative, or of any sign
    random_state : int, RandomState, Generator or None, draws one seed per restart
    device : str or torch.device; "auto" is that of a tensor, else CUDA if present, else the CPU
    dtype : {"auto", "float32", "float64"}; "auto" is that of the data, float64 if they differ
    callback : callable, list of them or None: called with `core.Progress` at every reading, a true answer stops the fit
    verbose : int, 1 prints a line at every reading of the objective, 2 also records every iteration

    Attributes
    ----------
    factors_ : dict of (d, k) by mode, columns of length one
    component_weights_ : (n_tensors, k)
        How much of each component a tensor has: `X_p ~ sum_j component_weights_[p, j] u_j o v_j o ...`, in its units.
        Components are sorted by falling energy in all tensors.
    embedding_ : (n_samples, k), the factor of the samples
    tensor_errors_ : (n_tensors,), `||X_p - model|| / ||X_p||`; tensor_norms_ : (n_tensors,), `||X_p||`
    loss_ : float, the objective above; reconstruction_err_ : float, the root of the sum of squares of all residuals
    n_features_in_ : list of int; n_iter_, converged_, history_, fit_info_ : as for `NMF`
    restarts_ : dict
        With `n_init > 1`: "loss", "n_iter", "factors" (by mode, (n_init, d, k)) and "component_weights".

    Notes
    -----
    `X` is a list with one array, tensor, sparse matrix or sparse tensor for each entry of `modes`, axes in the order of
    the names. Missing entries are refused.

    Examples
    --------
    Images of digits, and their mean brightness by rows as a second measurement of the same samples:

    >>> from sklearn.datasets import load_digits
    >>> from nnfactor import Coupled
    >>> images = load_digits().images[:200]
    >>> modes = [("sample", "row", "column"), ("sample", "band")]
    >>> model = Coupled(8, modes=modes, random_state=0).fit([images, images.mean(axis=2)])
    >>> {name: F.shape for name, F in model.factors_.items()}
    {'sample': (200, 8), 'row': (8, 8), 'column': (8, 8), 'band': (8, 8)}
    >>> model.component_weights_.shape, bool((model.tensor_errors_ < 0.6).all())
    ((2, 8), True)
    >>> model.transform([images[:3], None]).shape        # samples of which only one tensor was measured
    (3, 8)
    """

    init: Any = "auto"
    modes: Sequence[Sequence[str]]
    weights: Sequence[float] | None = None
    solver: Solver = "auto"
    transform_method: Coefficients = "nnls"
    factors_: dict[str, Array] = field(init=False)  # type: ignore[assignment]
    component_weights_: Array = field(init=False)
    tensor_errors_: np.ndarray = field(init=False)
    tensor_norms_: np.ndarray = field(init=False)
    _views: list[View] = field(init=False)
    _modes: tuple[tuple[str, ...], ...] = field(init=False)
    _tensor_weights: np.ndarray = field(init=False)

    _tensors = True
    _listed_views = True
    _sharded = "gathered"
    _of_features = False

    def inverse_transform(self, V: Any) -> Any:
        """Return all tensors that coefficients `(n_samples, k)` stand for; those without samples as fitted."""
        check_is_fitted(self)
        rows = read_coefficients(V, self._n_features_out)
        with strict_precision(rows.device):
            known = {name: place_factor(F, rows) for name, F in self.factors_.items()}
            sizes = place_factor(self.component_weights_, rows)
            known[self._modes[0][0]] = rows.to(sizes.dtype)
            found = [reconstruct([known[m] for m in names], w) for names, w in zip(self._modes, sizes, strict=True)]
        return found if isinstance(V, Tensor) else [X.numpy() for X in found]

    def to_cp(self, tensor: int = 0) -> Any:
        """Return the model of one tensor as `tensorly.cp_tensor.CPTensor`; needs TensorLy."""
        check_is_fitted(self)
        try:
            from tensorly.cp_tensor import CPTensor
        except ImportError:
            raise ImportError("to_cp needs TensorLy: pip install tensorly, or use factors_") from None
        return CPTensor((self.component_weights_[tensor], [self.factors_[name] for name in self._modes[tensor]]))

    @property
    def _n_features_out(self) -> int:
        check_is_fitted(self)
        return int(self.component_weights_.shape[1])

    def _read(self, X: Any, reset: bool) -> Inputs:
        modes = read_modes(self.modes) if reset else self._modes
        given = list_tensors(X, modes, None if reset else modes[0][0])
        given = {p: take_shard(self, A, reset) for p, A in given.items()}
        check_split({p for p, A in given.items() if isinstance(A, Data) and not A.sums.alone}, modes)
        sizes = None if reset else {name: len(F) for name, F in self.factors_.items() if name != modes[0][0]}
        check_sizes(given, modes, sizes)
        if reset:
            self._views = [View() for _ in modes]
        views, tensors = [self._views[p] for p in given], list(given.values())
        device = one_device(tensors, self.device)
        inputs = read_all(tensors, views, reset, False, device, self.dtype, tensors=True, name="X[{}]")
        if reset:
            self.n_features_in_ = [view.n_features_in_ for view in self._views]
        first = inputs[0]
        parts = {name: getattr(first, name) for name in ("data", "unscaled", "X", "scale", "as_torch", "shape")}
        return TensorInputs(**parts, views=tuple(inputs), places=tuple(given))

    def _learn_structure(self, inputs: Inputs, y: Any) -> Learnt:
        norms = [float(view.data.sqnorm().sqrt()) for view in inputs.views]
        return {
            "norms": norms,
            "tensor_norms_": np.array([n * view.scale for n, view in zip(norms, inputs.views, strict=True)]),
            "_modes": read_modes(self.modes),
            "_tensor_weights": check_weights(self.weights, len(norms)),
        }

    def _model(self, inputs: Inputs, learnt: Learnt) -> Model:
        data, modes, k = [view.data for view in inputs.views], learnt["_modes"], int(self.n_components)
        relative = [float(w) / (n or 1.0) ** 2 for w, n in zip(learnt["_tensor_weights"], learnt["norms"], strict=True)]
        shapes = {m: (d, k) for X, names in zip(data, modes, strict=True) for m, d in zip(names, X.shape, strict=True)}
        terms = [WeightedFit(X, names, w) for X, names, w in zip(data, modes, relative, strict=True)]
        sample, *others = shapes
        lengths = Lengths(tuple(shapes), modes, APART)
        rules = dict.fromkeys([*others, sample], unsupervised_rule(self.solver, 2, order=3))
        method = partial(her, bound=lengths.bound) if self.solver == "auto" else step
        scales = _scales(list(shapes), modes, [view.scale for view in inputs.views])
        ordered = partial(sort_coupled, tuple(shapes), modes, tuple(relative)) if self.max_iter else list
        return Model(terms, rules, shapes, data, scales, 1.0, method, ordered, shares_scales=False)

    def _start(self, inputs: Inputs, model: Model, seeds: list[int], restart: int) -> dict[str, Tensor]:
        terms = cast(Sequence[WeightedFit], model.terms)
        modes, names = [term.modes for term in terms], model.names
        if not restart and not isinstance(self.init, str):
            return self._given(model)
        views = all(len(m) == 2 and m[0] == names[0] for m in modes) and len({m[1] for m in modes}) == len(modes)
        fits = views and self.n_components <= min(model.data[0].shape[0], sum(X.shape[1] for X in model.data))
        if not restart and self.init == "nndsvda" and not fits:
            raise ValueError(
                "init='nndsvda' needs matrices that share their first mode only, with at least as many samples and "
                "features as components; use init='random'"
            )
        if not restart and fits and self.init != "random":
            relative = [float(cast(float, term.weight)) for term in terms]
            V, *bases = start_views(list(model.data), relative, model.rank, seeds[restart], True)
            return {names[0]: V, **{m[1]: U for m, U in zip(modes, bases, strict=True)}}
        return draw_coupled(dict(model.shapes), modes, list(model.data), seeds[restart])

    def _given(self, model: Model) -> dict[str, Tensor]:
        wanted = ", ".join(f"{name!r}: {shape}" for name, shape in model.shapes.items())
        if not isinstance(self.init, Mapping) or set(self.init) != set(model.shapes):
            found = sorted(map(str, self.init)) if isinstance(self.init, Mapping) else type(self.init).__name__
            raise ValueError(f"init must be 'auto', 'random', 'nndsvda' or arrays by mode, {{{wanted}}}; got {found}")
        like, sample = model.data[0], model.names[0]
        arrays = {**self.init, sample: like.sums.join(self.init[sample], f"init[{sample!r}]")}
        read = lambda name, shape: given_array(f"init[{name!r}]", arrays[name], shape, like)
        pairs = zip(model.shapes.items(), model.scales, strict=True)
        return {name: as_factor(read(name, shape) / scale) for (name, shape), scale in pairs}

    def _results(self, inputs: Inputs, learnt: Learnt, model: Model, run: Run) -> dict[str, Any]:
        found = super()._results(inputs, learnt, model, run)
        modes = learnt["_modes"]
        lengthy = dict(zip(model.names, [found["embedding_"], *found["factors_"]], strict=True))
        found["factors_"], found["component_weights_"] = _unit_columns(lengthy, modes)
        sample, cut = model.names[0], inputs.data.sums.cut
        found["embedding_"] = found["factors_"][sample]
        found["factors_"][sample] = cut(found["embedding_"])
        if lists_restarts(self):
            factors = model.arrange([run.factors[n] for n in model.names])
            in_units = [inputs.to_caller(F * s) for F, s in zip(factors, model.scales, strict=True)]
            of = dict(zip(model.names, in_units, strict=True))
            restarts = found["restarts_"]
            restarts["factors"], restarts["component_weights"] = _unit_columns(of, modes, int(self.n_components))
            restarts["factors"][sample] = cut(restarts["factors"][sample])
        return found

    def _errors(self, inputs: Inputs, model: Model, factors: list[Tensor]) -> dict[str, Any]:
        of, terms = dict(zip(model.names, factors, strict=True)), cast(Sequence[WeightedFit], model.terms)
        errors = [float(X.residual_sq([of[m] for m in t.modes]).sqrt()) for X, t in zip(model.data, terms, strict=True)]
        norms = [float(X.sqnorm().sqrt()) or 1.0 for X in model.data]
        total = math.hypot(*(e * view.scale for e, view in zip(errors, inputs.views, strict=True)))
        return {"reconstruction_err_": total, "tensor_errors_": np.array(errors) / norms}

    def _coefficients(self, inputs: Inputs) -> Tensor:
        """Solve the samples of all tensors that were measured, each by its weight and in units of its norm at `fit`."""
        G = B = torch.zeros(1, 1, dtype=torch.float64, device=inputs.data.device)
        for p, view in zip(cast(TensorInputs, inputs).places, inputs.views, strict=True):
            names, norm = self._modes[p], float(self.tensor_norms_[p]) or 1.0
            at, data = names.index(self._modes[0][0]), view.data
            k = self._n_features_out
            bases = [
                data_like(data, d, k) if m == names[at] else as_factor(place_factor(self.factors_[m], data))
                for m, d in zip(names, data.shape, strict=True)
            ]
            w = place_factor(self.component_weights_, data)[p].double() / norm
            weight = float(self._tensor_weights[p])
            grams = gram_of_others([F.double() for F in bases], at)
            G = G.to(grams) + weight * w.unsqueeze(-1) * grams * w
            B = B.to(grams) + weight * (view.scale / norm) * data.mttkrp(bases, at).double() * w
        return coefficients_from(G, B, self.transform_method)

    def _mean_loss(self, inputs: Inputs, V: Tensor) -> float:
        """Average the relative squared errors of tensors by their weights."""
        places, total = cast(TensorInputs, inputs).places, 0.0
        for p, view in zip(places, inputs.views, strict=True):
            data, sample = view.data, self._modes[0][0]
            size = power_of_two(view.scale)
            w = place_factor(self.component_weights_, data)[p].double() / size
            of = {m: place_factor(F, data).double() for m, F in self.factors_.items()} | {sample: V.double()}
            first, *rest = (of[m] for m in self._modes[p])
            error = float(data.residual_sq([first * w, *rest])) / (float(data.sqnorm()) or 1.0)
            total += float(self._tensor_weights[p]) * error
        return total / float(self._tensor_weights[list(places)].sum())

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_weights(self.weights, len(read_modes(self.modes)))
        one_of("solver", self.solver, ("auto", "multiplicative", "mu", "hals", "projected"))

    def _twins(self) -> list[tuple[int, int]]:
        return []

    def _vanished(self) -> bool:
        return self.reconstruction_err_ > 0 and not bool((self.component_weights_ != 0).any())


def data_like(data: Any, rows: int, k: int) -> Tensor:
    """Make room for a factor of the data's dtype, whose entries nobody reads."""
    return torch.empty(k, rows, dtype=data.dtype, device=data.device).T


def _scales(names: Sequence[str], modes: Sequence[Sequence[str]], scales: Sequence[float]) -> list[float]:
    """Give the power of two of every tensor to a factor that only it has."""
    found = dict.fromkeys(names, 1.0)
    for p, (own, scale) in enumerate(zip(modes, scales, strict=True)):
        alone = [m for m in own if all(m not in others for q, others in enumerate(modes) if q != p)]
        if scale != 1 and not alone:
            raise ValueError(
                f"X[{p}] has entries around {scale:.1g} and no mode of its own to carry that; divide it by {scale:.3g}"
            )
        if alone:
            found[alone[-1]] = scale
    return [found[name] for name in names]


def _unit_columns(
    factors: dict[str, Any], modes: Sequence[Sequence[str]], n_components: int | None = None
) -> tuple[dict[str, Any], Any]:
    """Bring columns to length one; return the products of their lengths in every tensor, `(..., n_tensors, k)`."""
    tensors = {name: to_torch(F)[..., :n_components] for name, F in factors.items()}
    lengths = {name: column_norms(F) for name, F in tensors.items()}
    unit = {name: (F / torch.where(lengths[name] > 0, lengths[name], 1)).contiguous() for name, F in tensors.items()}
    sizes = torch.cat([torch.stack([lengths[m] for m in names]).prod(0) for names in modes], -2)
    if isinstance(next(iter(factors.values())), Tensor):
        return unit, sizes
    return {name: F.numpy() for name, F in unit.items()}, sizes.numpy()
