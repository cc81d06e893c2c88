"""Mini-batches for factorizations: `batch_size` in `fit`, and `partial_fit` for streams."""

from __future__ import annotations

import numbers
from dataclasses import replace
from typing import Any, Self, cast

import numpy as np
import torch
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from torch import Tensor

from ...core import Run
from ...core.data.as_data import Data, Samples
from ...core.data.dense import Dense
from ...core.data.sparse_tensor import SparseTensor
from ...core.factors import as_factor, gram, khatri_rao
from ...core.solve.minibatch import (
    MiniBatchSweep,
    cut_batches,
    improve_bases,
    improve_coefficients,
    start_coefficients,
    update_sums,
)
from ...core.solve.run import strict_precision
from ...core.terms.base import objective
from ...core.terms.fit import Fit
from ...core.terms.laplacian import Laplacian
from ...core.terms.statistics import KLStatistics, SufficientStatistics, energies, zero_sums
from .base import Factorization, beta_of, mode_names
from .fitting import Model
from .inputs import Inputs, given_array
from .parameters import nonnegative, one_of, whole
from .restore import restore_on_error

ROUNDS = 3  # of coefficients and bases on one batch of a stream

FIRST_ROUNDS = 30  # while fewer than 10 k samples were seen: without them random bases cost dozens of batches

ABOUT_A_RUN = ("loss_", "reconstruction_err_", "n_iter_", "converged_", "history_", "restarts_", "fit_info_")


def _takes_batches(estimator: Any) -> bool:
    """Whether the estimator, with its parameters, learns from batches; otherwise it has no `partial_fit`."""
    given = estimator.get_params(deep=False)
    complaint = _unsupported(given, 2)
    if complaint:
        raise AttributeError(complaint)
    return "batch_size" in given


def _unsupported(given: dict[str, Any], order: int) -> str:
    """Why there are no sums that stand for samples; nothing if there are, or if a parameter is bad anyway."""
    loss = given.get("loss", "frobenius")
    if (loss not in ("frobenius", "kullback-leibler", 1, 2) and isinstance(loss, numbers.Real)) or (
        order > 2 and loss in ("kullback-leibler", 1)
    ):
        return (
            f"loss={loss!r} with data of {order} dimensions has no mini-batches; they work for loss='frobenius' with "
            "data of any order and for loss='kullback-leibler' with matrices. Use fit with batch_size=None"
        )
    if given.get("basis_rule", "exact") == "paper":
        return "basis_rule='paper' has no mini-batches; use basis_rule='exact', or fit with batch_size=None"
    return ""


class Online(Factorization):
    """What `NMF` and `NGE` share about mini-batches. The mathematics is in `core.online`."""

    batch_size: int | None
    forgetting: float

    @available_if(_takes_batches)
    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Learn from one batch of a stream, then forget the batch.

        Its coefficients are solved with the bases fixed; then the bases improve on sums over all batches so far (V'V,
        X'V and graph energies; Mairal et al. 2010. Kullback-Leibler: Lefevre et al. 2011); three times, and thirty
        times while fewer than 10 k samples were seen. Memory: the batch, and one number for each feature and component.
        Batches may differ in size; a batch of one sample is one.

        Parameters
        ----------
        X : (n_samples, n_features), or a batch of tensors, as in `fit`
            Any number of rows. The first batch draws the bases: `init` "auto" and "random" at random with the batch's
            mean, "nndsvda" from the batch; arrays (V, U1, ...) give their bases and V is ignored.
        y : (n_samples,), optional
            Labels, where the model uses them.

        Returns
        -------
        self, with `factors_`, `components_`, `n_steps_` (batches), `n_samples_seen_`, `moments_` (the sums), and in
        `embedding_` the coefficients of this batch. What describes a whole run (`loss_`, `history_`, ...) is removed.

        Raises
        ------
        ValueError
            Another number of features than before, bad data, or a model without mini-batches. Nothing is learned then.

        Notes
        -----
        Steps follow the order of the batches; another order gives other bases. After `fit` it goes on from the fitted
        factors, which then stand for the data they were learned from. The unit of the sums is fixed by the first
        nonzero batch: later batches may be of any size that its dtype holds in that unit.
        """
        self._check_parameters()
        self._check_stream()
        with restore_on_error(self):
            self._absorb(X, y)
        return self

    def _codes(self, y: Any, n_samples: int) -> np.ndarray | None:
        """Classes whose samples come together in batches; None: no classes."""
        return None

    def _batch_model(self, source: Inputs, y: Any) -> Model:
        """The model of one batch of a stream."""
        return self._model(source, y)

    def _past_graphs(self, source: Inputs) -> list[Laplacian]:
        """The graphs that `fit` used, to go on from them."""
        return []

    def _run(self, source: Inputs, model: Model, start: dict[str, Tensor], y: Any) -> Run:
        if self.batch_size is None:
            return super()._run(source, model, start, y)
        self._check_model(source.data)
        n, beta = source.data.shape[0], beta_of(getattr(self, "loss", "frobenius"))
        graphs = [term.graph for term in model.terms if isinstance(term, Laplacian)]
        batches = cut_batches(n, int(self.batch_size), self._seeds[0], graphs, self._codes(y, n))
        epochs = MiniBatchSweep(model.terms, model.rules, batches, self._seeds[0], self._times(beta))
        terms = [epochs.term] if beta == 2 else model.terms
        state = epochs.begin(start)
        begun = state.pop("factors")
        result = self._loop(
            terms, model.rules, begun, method=lambda *_: epochs, extra=state, every=1, tol=self.tol / 10
        )
        result.factors = epochs.settle(result.factors)
        result.objective = objective(model.terms, result.factors).reshape(-1).cpu().numpy()
        self.n_steps_, self.n_samples_seen_ = int(result.n_iter[result.best]) * len(batches), n
        return result

    def _absorb(self, X: Any, y: Any) -> None:
        begins = not hasattr(self, "factors_")
        source = self._in_unit(self._read(X, reset=begins))
        self._check_model(source.data)
        with strict_precision(source.data.device):
            bases, sums = self._beginning(source) if begins else self._so_far(source)
            seen = 0 if begins else self.n_samples_seen_
            model = self._batch_model(source, y)
            keep = (seen / (seen + source.data.shape[0])) ** self.forgetting
            rounds = FIRST_ROUNDS if seen < 10 * self.n_components else ROUNDS
            sums = {key: keep * sums[key] for key in sums}
            factors = self._step(model, _as_rows(source.data), bases, sums, rounds)
            self._publish_step(source, factors, model.names, seen)

    def _step(self, model: Model, data: Samples, bases: dict, sums: dict, rounds: int) -> dict[str, Tensor]:
        """Coefficients of new samples, their share of the sums, then the bases."""
        first, *others = model.terms
        fit, graphs, modes = replace(cast(Any, first), data=data), cast("list[Laplacian]", others), model.names[1:]
        term, beta = (SufficientStatistics(modes), 2) if isinstance(fit, Fit) else (KLStatistics(modes), 1)
        bare = [replace(g, norms_of=()) for g in graphs]
        factors = {**bases, "V": start_coefficients(data, bases, modes)}
        for i in range(rounds):
            factors["V"] = improve_coefficients(
                [fit, *graphs], factors, model.rules["V"], 1 if i else self._times(beta)
            )
            share = term.sum_samples(data, factors)
            if isinstance(term, SufficientStatistics):
                share["energy"] = energies(bare, factors["V"])
            factors = improve_bases(term, model.rules, {**factors, **update_sums(sums, share)})
        return factors

    def _publish_step(self, source: Inputs, factors: dict[str, Tensor], names: tuple[str, ...], seen: int) -> None:
        """Everything at once, when nothing can fail any more; the sums follow the bases' normalisation."""
        bases = [factors[m] for m in names[1:]]
        if not all(bool(torch.isfinite(F).all()) for F in (*bases, factors["linear_minus"])):
            raise FloatingPointError(
                f"{type(self).__name__}.partial_fit: factors became NaN or infinite; nothing was learned. The batch is "
                "out of range in the unit that the first batch fixed: rescale the data, or use float64"
            )
        unit, *bases = self._published([torch.ones_like(factors["V"][:1]), *bases])
        for name in ABOUT_A_RUN:
            self.__dict__.pop(name, None)
        self._given_shape = source.shape[1:]
        if self._tensors:
            self.sample_shape_ = tuple(source.data.shape[1:])
        self.factors_ = [source.to_caller(F) for F in bases]
        if len(bases) == 1:
            self.components_ = source.to_caller(bases[0].mT)
        self.embedding_ = source.to_caller(factors["V"] * unit * source.scale)
        by = {"gram": unit.mT.double() * unit, "energy": unit.double().square()}
        sums = {
            key: factors[key] * by.get(key, unit)
            for key in ("gram", "linear_minus", "energy", "linear_plus")
            if key in factors
        }
        self.moments_ = {key: source.to_caller(value) for key, value in sums.items()} | {"scale": source.scale}
        n = len(self.embedding_)
        self.n_steps_, self.n_samples_seen_ = getattr(self, "n_steps_", 0) + 1, seen + n

    def _in_unit(self, source: Inputs) -> Inputs:
        """The batch in the unit of the sums, unless they are still zero."""
        known = getattr(self, "moments_", None)
        if known is None or not bool((known["linear_minus"] > 0).any()) or known["scale"] == source.scale:
            return source
        return replace(source, data=source.data.scaled(source.scale / known["scale"]), scale=known["scale"])

    def _so_far(self, source: Inputs) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Bases and sums to go on from; after `fit`, sums of the model itself, for which its bases are stationary."""
        data, names = source.data, mode_names(source.data)
        there = lambda F, dtype: as_factor(torch.as_tensor(F).to(data.device, dtype))
        bases = {m: there(F, data.dtype) for m, F in zip(names[1:], self.factors_, strict=True)}
        if hasattr(self, "moments_"):
            kept = {key: F for key, F in self.moments_.items() if key != "scale"}
            return bases, {key: there(F, torch.float64) for key, F in kept.items()}
        V = there(self.embedding_, torch.float64) / source.scale
        wide = khatri_rao([F.double() for F in bases.values()])
        self.n_samples_seen_, self.n_steps_ = len(V), getattr(self, "n_steps_", 0)
        if beta_of(getattr(self, "loss", "frobenius")) == 1:
            linear_plus = V.sum(-2, keepdim=True)
            return bases, {"linear_minus": wide * linear_plus, "linear_plus": linear_plus}
        energy = energies([replace(g, norms_of=()) for g in self._past_graphs(source)], V)
        linear_minus = as_factor(wide @ gram(V) + wide * energy)
        return bases, {"gram": gram(V), "linear_minus": linear_minus, "energy": energy}

    def _beginning(self, source: Inputs) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The bases that a stream starts from, and empty sums."""
        names = mode_names(source.data)
        bases = dict(zip(names[1:], self._first_bases(source), strict=True))
        term = (
            KLStatistics(names[1:])
            if beta_of(getattr(self, "loss", "frobenius")) == 1
            else SufficientStatistics(names[1:])
        )
        return bases, zero_sums(term, bases)

    def _first_bases(self, source: Inputs) -> list[Tensor]:
        data, shapes = source.data, list(self._shapes(source).items())
        if not isinstance(self.init, str):
            wanted = ", ".join(f"{n} {s}" for n, s in shapes[1:])
            if not hasattr(self.init, "__len__") or len(self.init) != len(shapes):
                raise ValueError(
                    f"init must be 'auto', 'random', 'nndsvda' or arrays (V, {wanted}); V is not used here"
                )
            pairs = zip(shapes[1:], list(self.init)[1:], strict=True)
            return [as_factor(given_array(f"init: {n}", F, shape, data)) for (n, shape), F in pairs]
        one_of("init", self.init, ("auto", "random", "nndsvda"), "a tuple of arrays (V, U1, ...)")
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        if data.largest() == 0:  # its mean says nothing about the stream
            data = Dense(torch.ones(1, *data.shape[1:], dtype=data.dtype, device=data.device))
        return self._drawn(data, seed, self.init == "nndsvda")[1:]

    def _times(self, beta: float) -> int:
        """How often the rule of V is applied to samples never seen: a coordinate rule settles sooner."""
        return 10 if beta != 2 else 30 if self.solver in ("multiplicative", "mu") else 7

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if getattr(self, "batch_size", None) is not None:
            whole("batch_size", self.batch_size, also="None (all samples at once) or ")
        nonnegative("forgetting", getattr(self, "forgetting", 0.0), note=" (0: nothing is forgotten)")

    def _check_model(self, data: Data) -> None:
        complaint = _unsupported(self.get_params(deep=False), data.order)
        if isinstance(data, SparseTensor):
            complaint = "sparse tensors have no mini-batches; use fit with batch_size=None, or hand in dense batches"
        if complaint:
            raise ValueError(complaint)

    def _check_stream(self) -> None:
        if self.n_init != 1:
            raise ValueError(
                f"partial_fit runs one start, got n_init={self.n_init}; use n_init=1 and an estimator per start, or "
                "fit with batch_size, which takes restarts"
            )


def _as_rows(data: Data) -> Samples:
    """The data as a matrix with one row per sample underneath."""
    rows = cast(Samples, data)
    return rows if data.order == 2 else Dense(cast(Dense, data).X, cut=1)
