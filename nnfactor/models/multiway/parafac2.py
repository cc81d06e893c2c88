"""Nonnegative PARAFAC2: slices of different lengths that share one factor, while the other evolves."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import Any, Literal, cast

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ...core import Rule, Run, Term, hals, run
from ...core.arrays import Array
from ...core.data.as_data import as_data, as_scaled_data
from ...core.data.base import Data, power_of_two, times_power
from ...core.factors import as_factor, column_norms, draw_factor, zero_factor
from ...core.precision import strict_precision
from ...core.rules.closed_form import unconstrained
from ...core.rules.procrustes import procrustes
from ...core.slices import Slices, evolve
from ...core.solve import init
from ...core.solve.coupled_start import Lengths
from ...core.solve.momentum.extrapolation import nested
from ...core.terms.parafac2 import Evolving, EvolvingFit, Parafac2Fit
from ..shared.base import Factorization, power
from ..shared.fitting import Learnt, Model
from ..shared.inputs import Inputs, given_array, place_factor, to_torch
from ..shared.parameters import lists_restarts, nonnegative, one_of
from ..shared.views import View, one_device, read_all

APART = 128.0  # lengths of a component's columns stay within 1/128 and 128 times their mean

TIMES, SWEEPS = 3, 4  # of all other factors for one update of the projections, and of HALS for each of these


@dataclass(frozen=True)
class SliceInputs(Inputs):
    """Slices as the rows of one matrix; `whole` are all of their rows, where `data` are what a QR left of them."""

    lengths: tuple[int, ...] = ()
    whole: Data | None = None
    whole_lengths: tuple[int, ...] = ()

    @property
    def slices(self) -> Slices:
        """Which rows of the data belong to which slice."""
        return Slices(self.lengths, self.data.device)


@dataclass(kw_only=True, eq=False, repr=False)
class PARAFAC2(Factorization):
    """Nonnegative PARAFAC2: slices `X_i (n_i x J) ~ B_i diag(a_i) C'` of different lengths share C (J x k).

    The weights a_i and C are nonnegative. The B_i (n_i x k) evolve from slice to slice, but have one Gram matrix
    `B_i'B_i` for all (Harshman 1972), which makes the model unique as a CP model is: elution profiles that shift and
    change their form, subjects that were measured for different times.

    Parameters
    ----------
    n_components : int
        Number of components k, at most the rows of the shortest slice.
    evolving : {"free", "nonnegative"}
        "free": `B_i = P_i B` of any sign with orthonormal P_i, least squares by the direct fit of Kiers, ten Berge and
        Bro (1999). "nonnegative": factors E_i >= 0 of the slices are drawn to such a form (Cohen and Bro 2018), and the
        objective is

            sum_i ||X_i - E_i diag(a_i) C'||^2 + (coupling / I) sum_j ||a_j||^2 ||c_j||^2 sum_i ||e_ij - P_i b_j||^2

    coupling : float > 0
        Of "nonnegative": how strongly; the lengths of a and c keep it free of units, of the number of slices and of the
        scale of components. At 1 it weighs as much as the data of an average slice. Larger values come nearer to one
        Gram matrix (`coupling_error_` tells) and take more iterations.
    init : {"auto", "random"} or tuple (A, C, B)
        Where restart 0 begins: "auto" from the nonnegative double SVD of all slices on top of each other, with equal
        weights; random ones draw A and C. B is the identity; given arrays are copied.
    n_init : int, restarts, run as one batch; the best is kept
    max_iter : int, iterations at most; 0 publishes the start
    tol : float, when to stop, as for `NMF`; 0 runs exactly `max_iter` iterations
    momentum : bool
        Whether sweeps go on along what the last one changed (a line search as of Bro 1998), and are discarded where the
        objective would rise: it never does, with and without.
    random_state : int, RandomState, Generator or None, draws one seed per restart
    device : str or torch.device; "auto" is that of a tensor, else CUDA if present, else the CPU
    dtype : {"auto", "float32", "float64"}; "auto" is that of the slices, float64 if they differ
    callback : callable, list of them or None: called with `core.Progress` at every reading, a true answer stops the fit
    verbose : int, 1 prints a line at every reading of the objective, 2 also records every iteration

    Attributes
    ----------
    embedding_ : (n_slices, k), the weights a_i; they carry the scale
    factors_ : list with C (J, k), columns of length one; components_ : (k, J), its transpose
    evolving_ : list of (n_i, k), the B_i; the columns of B are of length one. With evolving="nonnegative" the E_i
    blueprint_ : (k, k), B; projections_ : list of (n_i, k), the P_i
    coupling_error_ : float, `||E - P B|| / ||E||`; 0 with evolving="free"
    loss_ : float, the objective; reconstruction_err_ : float, the root of the sum of squares of all residuals
    n_iter_, converged_, history_, fit_info_ : as for `NMF`
    restarts_ : dict
        With `n_init > 1`: "loss", "n_iter", "factors" [(n_init, J, k)], "embeddings" (n_init, n_slices, k).

    Notes
    -----
    `X` is a list of slices `(n_i, J)`, arrays, tensors or sparse matrices, or one array `(I, n, J)`. They are copied;
    with evolving="free" dense slices of more than J rows are replaced by the J rows of their QR factors, which changes
    no fit (Kiers et al. 1999). `transform` takes new slices of any length and finds their weights with B and C fixed.
    Missing entries are refused.

    Examples
    --------
    Digits by rows: the images of every class are a slice, whose pixels are shared:

    >>> from sklearn.datasets import load_digits
    >>> from nnfactor import PARAFAC2
    >>> X, y = load_digits(return_X_y=True)
    >>> slices = [X[:300][y[:300] == c] for c in range(10)]
    >>> model = PARAFAC2(4, random_state=0).fit(slices)
    >>> model.embedding_.shape, model.components_.shape, [len(B) for B in model.evolving_][:3]
    ((10, 4), (4, 64), [31, 30, 29])
    >>> bool((model.embedding_ >= 0).all() and (model.components_ >= 0).all())
    True
    """

    init: Literal["auto", "random"] | tuple[Any, ...] | list[Any] = "auto"
    evolving: Literal["free", "nonnegative"] = "free"
    coupling: float = 10.0
    momentum: bool = True
    evolving_: list[Array] = field(init=False)
    projections_: list[Array] = field(init=False)
    blueprint_: Array = field(init=False)
    coupling_error_: float = field(init=False)
    _evolving: str = field(init=False)
    _coupling: float = field(init=False)

    _listed_views = True

    def reconstruct(self) -> list[Any]:
        """Return the fitted slices `B_i diag(a_i) C'`."""
        check_is_fitted(self)
        return [(B * a) @ self.components_ for a, B in zip(self.embedding_, self.evolving_, strict=True)]

    def inverse_transform(self, V: Any) -> Any:
        """Refuse: what weights stand for depends on the evolving factor; `reconstruct` gives the fitted slices."""
        raise ValueError("PARAFAC2 has no inverse_transform: weights need an evolving factor. Use reconstruct()")

    def to_cp(self) -> Any:
        """Refuse: slices of different lengths are no tensor."""
        raise ValueError("PARAFAC2 is no CP model; use embedding_, evolving_ and components_")

    def _read(self, X: Any, reset: bool) -> Inputs:
        slices = list(X) if len(getattr(X, "shape", ())) == 3 else X
        if not isinstance(slices, list | tuple) or not len(slices):
            raise ValueError(f"X must be a list of slices (n_i, J), got {type(X).__name__}")
        shapes = [tuple(getattr(A, "shape", None) or np.shape(A)) for A in slices]
        columns = shapes[0][1:] if reset else (self.n_features_in_,)
        for i, shape in enumerate(shapes):
            if len(shape) != 2 or shape[1:] != columns:
                raise ValueError(f"X[{i}] has shape {shape}; every slice must be (n_i, {', '.join(map(str, columns))})")
            if shape[0] < (k := int(self.n_components) if reset else self._n_features_out):
                raise ValueError(f"X[{i}] has {shape[0]} rows; PARAFAC2 needs at least n_components={k} in every slice")
        device = one_device(slices, self.device)
        views = read_all(slices, [View() for _ in slices], True, False, device, self.dtype, name="X[{}]")
        parts = [view.unscaled.samples() for view in views]
        stacked = sp.vstack(parts, format="csr") if all(map(sp.issparse, parts)) else torch.cat([*map(_dense, parts)])
        target = views[0].data
        data, unscaled, scale = as_scaled_data(stacked, target.device, target.dtype)
        if reset:
            self.n_features_in_ = int(columns[0])
        lengths, k = tuple(n for n, _ in shapes), int(self.n_components) if reset else self._n_features_out
        free = (self.evolving if reset else self._evolving) == "free"
        short, rows = compress(data, lengths) if free and k <= columns[0] else (data, lengths)
        first = views[0].as_torch, tuple(data.shape), ()
        return SliceInputs(short, unscaled, unscaled, scale, *first, rows, data, lengths)

    def _learn_structure(self, inputs: Inputs, y: Any) -> Learnt:
        return {"_evolving": self.evolving, "_coupling": float(self.coupling)}

    def _terms(self, inputs: Inputs, evolving: str, coupling: float, n_slices: int) -> list[Term]:
        data, slices = inputs.data, cast(SliceInputs, inputs).slices
        if evolving == "free":
            return [Parafac2Fit(data, slices)]
        return [EvolvingFit(data, slices), Evolving(coupling / n_slices)]

    def _model(self, inputs: Inputs, learnt: Learnt) -> Model:
        (N, J), k = inputs.data.shape, int(self.n_components)
        slices = cast(SliceInputs, inputs).slices
        free, n_slices = self.evolving == "free", len(slices.lengths)
        shapes = {"A": (n_slices, k), "C": (J, k), "B": (k, k), "P": (N, k)} | ({} if free else {"E": (N, k)})
        rules = _rules(slices, free)
        scaled = Lengths(("A", "C", "B" if free else "E"), [("A", "C", "B" if free else "E")], APART)
        sets = (
            {name: _as_it_is if name == "B" else _positive for name in rules if name != "P"} if self.momentum else None
        )
        method = partial(nested, rare=("P",), times=TIMES, within=sets, bound=partial(_bounded, scaled, free))
        return Model(
            self._terms(inputs, self.evolving, float(self.coupling), n_slices),
            rules,
            shapes,
            [inputs.data],
            [inputs.scale, *(len(shapes) - 1) * [1.0]],
            power(inputs.scale, 2),
            method,
            normalize=_publish if self.max_iter else lambda factors: factors,
            shares_scales=False,
            padded=False,
        )

    def _start(self, inputs: Inputs, model: Model, seeds: list[int], restart: int) -> dict[str, Tensor]:
        data, k, n_slices = model.data[0], model.rank, model.shapes["A"][0]
        if not restart and not isinstance(self.init, str):
            A, C, B = self._given(model, inputs)
        else:
            whole = cast(Data, cast(SliceInputs, inputs).whole)  # triangular factors have entries below zero
            A, C = _draw(whole, n_slices, k, seeds[restart], svd=not restart and self.init == "auto")
            B = torch.eye(k, dtype=data.dtype, device=data.device)
        given = not restart and not isinstance(self.init, str)
        return _begin(data, cast(SliceInputs, inputs).slices, A, C, as_factor(B), "E" in model.shapes, keep=given)

    def _given(self, model: Model, inputs: Inputs) -> list[Tensor]:
        if not isinstance(self.init, Sequence) or len(self.init) != 3:
            raise ValueError(f"init must be 'auto', 'random' or the arrays (A, C, B), got {type(self.init).__name__}")
        shapes = [(n, model.shapes[n]) for n in ("A", "C", "B")]
        read = lambda n, shape, F: given_array(f"init: {n}", F, shape, model.data[0], free=n == "B")
        A, C, B = (as_factor(read(n, shape, F)) for (n, shape), F in zip(shapes, self.init, strict=True))
        return [A / inputs.scale, C, B]

    def _results(self, inputs: Inputs, learnt: Learnt, model: Model, run: Run) -> dict[str, Any]:
        found = super()._results(inputs, learnt, model, run)
        C, B, P, *rest = found["factors_"]
        slices, whole = cast(SliceInputs, inputs), cast(Data, cast(SliceInputs, inputs).whole)
        lengths = slices.whole_lengths
        if whole is not inputs.data:
            parts = cast(Tensor, whole.samples()).split(list(lengths))
            P = torch.cat([*map(_expand, parts, place_factor(P, whole).split(list(slices.lengths)))])
        E0 = evolve(to_torch(P), to_torch(B))
        E = to_torch(rest[0]) if rest else E0
        error = float((E.double() - E0.double()).norm() / (float(E.double().norm()) or 1.0))
        cut = lambda F: [inputs.to_caller(part) for part in to_torch(F).split(list(lengths), dim=-2)]
        found |= {"factors_": [C], "blueprint_": B, "projections_": cut(P), "evolving_": cut(E)}
        found["coupling_error_"] = error
        if lists_restarts(self):
            found["restarts_"]["factors"] = found["restarts_"]["factors"][:1]
            embeddings = model.arrange([run.factors[n] for n in model.names])[0]
            found["restarts_"]["embeddings"] = inputs.to_caller(embeddings * inputs.scale)
        return found

    def _errors(self, inputs: Inputs, model: Model, factors: list[Tensor]) -> dict[str, Any]:
        A, C, B, P, *rest = factors
        E = rest[0] if rest else evolve(P, B)
        rows = as_factor(E * cast(SliceInputs, inputs).slices.weights(A))
        return {"reconstruction_err_": inputs.scale * float(model.data[0].residual_sq([rows, C]).sqrt())}

    def _solve(self, inputs: Inputs) -> tuple[Tensor, float]:
        """Find weights and projections of slices with B and C fixed; the weights, and the mean loss of an entry.

        Free slices share nothing, but for when to stop: they are brought to one size, so that each of them counts.
        """
        slices, free, given = cast(SliceInputs, inputs).slices, self._evolving == "free", inputs.data
        sizes = _sizes_of_slices(given, slices) if free else given.sqnorm().new_ones(len(slices.lengths))
        data = _divide_slices(given, slices, sizes) if free else given
        inputs = replace(inputs, data=data)
        C, B = (as_factor(place_factor(F, data)) for F in (self.factors_[0], self.blueprint_))
        terms = self._terms(inputs, self._evolving, self._coupling, len(slices.lengths))
        mean = place_factor(self.embedding_, data).mean(0, keepdim=True)  # its size is found anew
        A = (mean / power_of_two(float(mean.max()))).expand(len(slices.lengths), -1)
        start = _begin(data, slices, as_factor(A), C, B, not free)
        rules = {name: rule for name, rule in _rules(slices, free).items() if name not in ("B", "C")}
        within = {name: _positive for name in rules if name != "P"}
        method = partial(nested, rare=("P",), within=within)
        solved = run(terms, rules, start, method=method, max_iter=2000, tol=1e-9, warn=False)
        entries = prod(cast(Data, cast(SliceInputs, inputs).whole).shape)
        A, loss = solved.factors["A"] * sizes.to(data.dtype)[:, None], float(solved.objective[0])
        if free:
            rows = evolve(solved.factors["P"], B) * slices.weights(A)
            loss = float(given.residual_sq([as_factor(rows), C]))
        return A * inputs.scale, times_power(loss / entries, inputs.scale, 2)

    def _coefficients(self, inputs: Inputs) -> Tensor:
        return self._solve(inputs)[0]

    def _score(self, X: Any, weights: Any = None) -> float:
        check_is_fitted(self)
        inputs = self._read(X, reset=False)
        with strict_precision(inputs.data.device):
            return -self._solve(inputs)[1]

    def _check_parameters(self) -> None:
        super()._check_parameters()
        one_of("evolving", self.evolving, ("free", "nonnegative"))
        nonnegative("coupling", self.coupling)
        one_of("momentum", self.momentum, (True, False))
        if isinstance(self.init, str):
            one_of("init", self.init, ("auto", "random"), "a tuple of arrays (A, C, B)")

    def _twins(self) -> list[tuple[int, int]]:
        return []


def _rules(slices: Slices, free: bool) -> dict[str, Rule]:
    """Choose the rules in the order of the updates: projections first, weights last."""
    own = partial(hals, sweeps=SWEEPS)
    rules: dict[str, Rule] = {"P": partial(procrustes, slices=slices), "B": unconstrained}
    return {**rules, **({} if free else {"E": own}), "C": own, "A": own}


def _begin(
    data: Data, slices: Slices, A: Tensor, C: Tensor, B: Tensor, with_rows: bool, keep: bool = False
) -> dict[str, Tensor]:
    """Complete a start: the best projections for A, B and C, and the best size of A unless it is to be kept."""
    P = _project(data, slices, {"A": A, "C": C, "B": B})
    E = evolve(P, B)
    if not keep:
        rows = as_factor(E * slices.weights(A))
        cross = (rows * data.times(C)).sum(dtype=torch.float64)
        square = ((rows.double().T @ rows.double()) * (C.double().T @ C.double())).sum()
        A = A * torch.where(square > 0, cross.clamp(min=0) / square, 1).to(A.dtype)
    start = {"A": as_factor(A), "C": C, "B": B, "P": P}
    return {**start, "E": as_factor(E.clamp(min=0))} if with_rows else start


def _project(data: Data, slices: Slices, known: dict[str, Tensor]) -> Tensor:
    """Find the best projections of slices for A, B and C."""
    room = zero_factor(data.shape[0], known["B"])
    known = {name: as_factor(F) for name, F in known.items()} | {"P": room}
    return procrustes(room, Parafac2Fit(data, slices).block(known, "P"), slices)


def compress(data: Data, lengths: Sequence[int]) -> tuple[Data, tuple[int, ...]]:
    """Replace dense slices of more rows than columns by their triangular factors: distances to models are the same."""
    width, X = data.shape[1], data.samples()
    if max(lengths) <= width or sp.issparse(X):
        return data, tuple(lengths)
    parts = [part if len(part) <= width else torch.linalg.qr(part, mode="r").R for part in X.split(list(lengths))]
    return as_data(torch.cat(parts), signed=True), tuple(map(len, parts))


def _sizes_of_slices(data: Data, slices: Slices) -> Tensor:
    """Find a power of two for each slice near its largest entry, `(I,)`, float64."""
    X, lowest = data.samples(), -1000 if data.dtype == torch.float64 else -120
    ends = np.cumsum(slices.lengths)
    parts = (X[end - n : end] for n, end in zip(slices.lengths, ends, strict=True))
    sizes = [power_of_two(float(abs(part).max()), lowest=lowest) for part in parts]
    return torch.tensor(sizes, dtype=torch.float64, device=data.device)


def _divide_slices(data: Data, slices: Slices, sizes: Tensor) -> Data:
    """Divide every slice by its size (a copy)."""
    X, by = data.samples(), (1 / sizes).to(data.dtype)[slices.of_row]
    scaled = sp.diags_array(by.cpu().numpy()) @ X if sp.issparse(X) else X * by[:, None]
    return as_data(scaled, data.device, data.dtype, signed=True)


def _expand(part: Tensor, P: Tensor) -> Tensor:
    """Return the projection of a slice from that of its triangular factor."""
    return P if len(part) == len(P) else torch.linalg.qr(part).Q @ P


def _draw(data: Data, n_slices: int, k: int, seed: int, svd: bool) -> tuple[Tensor, Tensor]:
    """Start from equal weights and singular vectors, or at random."""
    if svd and k <= min(data.shape):
        C = init.nndsvda(data, k, seed)[1]
        return torch.ones(k, n_slices, dtype=data.dtype, device=data.device).T, C
    generator = torch.Generator("cpu").manual_seed(seed)
    A, C = (draw_factor(n, k, generator, data.device).to(data.dtype) for n in (n_slices, data.shape[1]))
    return A, C


def _positive(F: Tensor) -> Tensor:
    return F.clamp(min=0)


def _as_it_is(F: Tensor) -> Tensor:
    """Let a factor of any sign be extrapolated."""
    return F


def _bounded(lengths: Lengths, free: bool, factors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Keep lengths in range; the blueprint follows the factor that it is coupled to."""
    bounded = lengths.bound(factors)
    if free:
        return bounded
    before, after = column_norms(factors["E"]), column_norms(bounded["E"])
    return {**bounded, "B": factors["B"] * torch.where(before > 0, after / torch.where(before > 0, before, 1), 1)}


def _publish(factors: list[Tensor]) -> list[Tensor]:
    """Bring columns of C and B to length one, A carries the scale; components by falling weight."""
    A, C, B, P, *rest = factors
    c, b = column_norms(C), column_norms(B)
    unit = lambda F, n: F / torch.where(n > 0, n, 1)
    A = A * c * b
    order = column_norms(A).argsort(dim=-1, descending=True, stable=True)
    place = lambda F: as_factor(F.take_along_dim(order, -1))
    return [place(A), place(unit(C, c)), place(unit(B, b)), P, *(place(unit(E, b)) for E in rest)]


def _dense(part: Any) -> Tensor:
    return part if isinstance(part, Tensor) else torch.from_numpy(part.toarray())
