"""Mini-batches for factorizations: `batch_size` in `fit`, and `partial_fit` for streams."""

import os
from dataclasses import dataclass, field, replace
from typing import Any, Self, cast

import numpy as np
import torch
from sklearn.utils.metaestimators import available_if
from torch import Tensor

from ...core import Run, multiplicative, run
from ...core.data.base import Data
from ...core.data.dense import Dense
from ...core.factors import as_factor, gram
from ...core.precision import strict_precision
from ...core.solve.history.checkpoint import Checkpoint
from ...core.solve.minibatch import MiniBatchSweep, cut_batches, learn_batch
from ...core.terms.base import objective
from ...core.terms.laplacian import Laplacian
from ...core.terms.statistics import SufficientStatistics, energies, statistics_of
from ..streams.epochs import StreamCheckpoint, learn_epochs
from .base import limits_of, show_factors
from .bases import settle_ridge
from .constraints import is_asked
from .fitting import Learnt, Model, draw_seeds, read_weighted, select_published
from .inputs import Inputs, given_array, place_factor
from .parameters import beta_of, loss_exponent, nonnegative, whole

ROUNDS, STEP_ROUNDS = 3, 20  # of coefficients and bases on one batch of a stream; by the multiplicative rule

FIRST_ROUNDS = 30  # while fewer than 10 k samples were seen: without them random bases cost dozens of batches

LIFT = 1e-4  # of a column's mean: what replaces zeros of a fitted basis

SETTLED = ("n_components", "loss", "sample_shape", "n_discriminative")  # parameters that a stream begins with and keeps

ABOUT_A_RUN = ("loss_", "reconstruction_err_", "n_iter_", "converged_", "history_", "restarts_", "fit_info_")


def takes_batches(estimator: Any) -> bool:
    """Whether the estimator, with its parameters, learns from batches; otherwise it has no `partial_fit`."""
    _check_model(estimator, 2, AttributeError)
    return "batch_size" in estimator.get_params(deep=False)


def _check_model(estimator: Any, order: int, kind: type[Exception] = ValueError) -> None:
    """Refuse a model without sums that stand for samples; a parameter that is bad anyway is refused elsewhere."""
    try:
        beta = loss_exponent(estimator)
    except ValueError:
        return
    if beta not in (1, 2) or (order > 2 and beta == 1):
        raise kind(
            f"loss={estimator.loss!r} with data of {order} dimensions has no mini-batches; they work for "
            "loss='frobenius' with data of any order and for loss='kullback-leibler' with matrices. Use fit with "
            "batch_size=None"
        )
    if getattr(estimator, "basis_rule", "exact") == "paper":
        raise kind("basis_rule='paper' has no mini-batches; use basis_rule='exact', or fit with batch_size=None")


def _check_batches(estimator: Any, data: Data) -> None:
    """Refuse tensors with hidden entries, whose sums would be of all combinations of features, and constraints."""
    if is_asked(estimator):
        raise ValueError(
            "mini-batches take no penalties, bounds, fixed entries, simplex or terms; use fit with batch_size=None"
        )
    if data.weighted and data.order > 2:
        raise ValueError(
            "mini-batches of tensors with hidden or weighted entries are not supported; use fit with batch_size=None"
        )


@dataclass(kw_only=True, eq=False, repr=False)
class MiniBatches:
    """What `NMF` and `NGE` share about mini-batches, beside `Factorization`; see `core.solve.minibatch`."""

    batch_size: int | None = None
    forgetting: float = 2.0
    n_steps_: int = field(init=False)
    n_samples_seen_: int = field(init=False)
    moments_: dict[str, Any] = field(init=False)
    stream_: dict[str, Any] = field(init=False)

    @available_if(takes_batches)
    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        *,
        weights: Any = None,
        n_epochs: int | None = None,
        held_out: Any = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: float = 60.0,
    ) -> Self:
        """Learn from one batch of a stream, then forget the batch; or from all batches of a source, over epochs.

        Its coefficients are solved with the bases fixed; then the bases improve on sums over all batches so far (V'V,
        X'V and graph energies; Mairal et al. 2010. Kullback-Leibler: Lefevre et al. 2011); three times (by the
        multiplicative rule 20 times), and 30 times while fewer than 10 k samples were seen. Memory: the batch, and one
        number for each feature and component. After `fit` the fitted factors stand for their data.

        Parameters
        ----------
        X : (n_samples, n_features), or a batch of tensors, as in `fit`
            Any number of rows, in an order that matters. The first batch is where `init` draws the bases from; arrays
            (V, U1, ...) give their bases, V is ignored. The first nonzero batch fixes the unit of the sums; the dtype
            must hold later batches in that unit.
        y, weights : (n_samples,) and of the shape of X, optional
            As for `fit`.
        n_epochs : int, optional
            X is a source, of which so many epochs are learned; one that was interrupted is finished first, and counts.
            What has `shape` and is sliced (`Chunked`, memory map, zarr, h5py) is cut into batches of `batch_size` rows
            (default: those of a block or a chunk, else 1024); a list of arrays has a batch each. Every epoch has a new
            order. A function that gives blocks in turn, `lambda: read_blocks(path, 1000)`, keeps theirs.
        held_out : True or data, optional
            What the mean loss is of that `history_` has after every epoch: data, or a batch that the seed draws and
            that is not learned from (of blocks in turn the first).
        checkpoint, checkpoint_every : str or path, float, optional
            A model file, written after so many seconds and after every epoch. The same call goes on from it.

        Returns
        -------
        self, with `factors_`, `components_`, `n_steps_` (batches), `n_samples_seen_`, `moments_` (the sums), and in
        `embedding_` the coefficients of this batch. What describes a whole run (`loss_`, ...) is removed. After epochs
        also `n_iter_`, `history_`, and `stream_`, by which a saved estimator goes on as if it had not stopped.

        Raises
        ------
        ValueError
            Another number of features than before, another rank, loss or kind of labels, bad data, a model without
            mini-batches, or inside an epoch another source. Nothing of the batch is learned then.
        """
        self._check_parameters()
        if cast(Any, self).n_init != 1:
            raise ValueError(
                f"partial_fit runs one start, got n_init={cast(Any, self).n_init}; use n_init=1 and an estimator per "
                "start, or fit with batch_size, which takes restarts"
            )
        _check_settled(self)
        kept = None if checkpoint is None else StreamCheckpoint(checkpoint, checkpoint_every)
        learn_epochs(cast(Any, self), (X, y, weights), n_epochs, held_out, kept, absorb)
        return self

    def _learn_batch(self, inputs: Inputs, y: Any) -> Learnt:
        """Learn from one batch of a stream what does not depend on the rank."""
        return cast(Any, self)._learn_structure(inputs, y)

    def _past_graphs(self, names: tuple[str, ...]) -> list[Laplacian]:
        """Return the graphs that `fit` used, to go on from them."""
        return []

    def _run(
        self,
        model: Model,
        learnt: Learnt,
        start: dict[str, Tensor],
        seeds: list[int],
        checkpoint: Checkpoint | None,
    ) -> Run:
        above: Any = super()
        if self.batch_size is None or cast(Any, self).max_iter == 0:
            return above._run(model, learnt, start, seeds, checkpoint)
        data = model.data[0]
        _check_model(self, data.order)
        _check_batches(self, data)
        graphs = [term.graph for term in model.terms if isinstance(term, Laplacian)]
        known = graphs, learnt.get("codes"), data.together
        visited = cut_batches(data.shape[0], int(self.batch_size), seeds[0], *known)
        epochs = MiniBatchSweep(model.terms, model.rules, visited, seeds[0], _n_repeats(self))
        state = epochs.begin(start)
        begun = state.pop("factors")
        limits = {**limits_of(self, checkpoint), "every": 1, "tol": cast(Any, self).tol / 10}
        terms = [epochs.term] if isinstance(epochs.term, SufficientStatistics) else model.terms
        result = run(terms, model.rules, begun, method=lambda *_: epochs, extra=state, **limits)
        factors = epochs.settle(result.factors)
        values = objective(model.terms, factors).reshape(-1).cpu().numpy()
        return replace(result, factors=factors, objective=values, n_batches=len(visited))

    def _results(self, inputs: Inputs, learnt: Learnt, model: Model, run: Run) -> dict[str, Any]:
        found = {**cast(Any, super())._results(inputs, learnt, model, run), "_began_with": _settled(self)}
        if self.batch_size is not None:
            found |= {"n_steps_": found["n_iter_"] * run.n_batches, "n_samples_seen_": inputs.data.shape[0]}
        return found

    def _check_parameters(self) -> None:
        cast(Any, super())._check_parameters()
        if self.batch_size is not None:
            whole("batch_size", self.batch_size, also="None (all samples at once) or ")
        nonnegative("forgetting", self.forgetting, note=" (0: nothing is forgotten)")


def absorb(estimator: Any, X: Any, y: Any, weights: Any = None) -> None:
    """Walk the road with one batch of a stream."""
    if isinstance(X, Data) and not X.sums.alone:
        raise ValueError("partial_fit takes a batch in one process, and X is Sharded; use fit")
    begins = not hasattr(estimator, "factors_")
    inputs = _in_unit(estimator, read_weighted(estimator, X, begins, weights))
    _check_model(estimator, inputs.data.order)
    _check_batches(estimator, inputs.data)
    with strict_precision(inputs.data.device):
        learnt = estimator._learn_batch(inputs, y)
        model = estimator._model(inputs, learnt)
        bases, sums = (begin_stream(estimator, inputs, model), None) if begins else resume(estimator, inputs, model)
        seen = 0 if begins else getattr(estimator, "n_samples_seen_", len(getattr(estimator, "embedding_", ())))
        keep = (seen / (seen + inputs.data.shape[0])) ** estimator.forgetting
        later = STEP_ROUNDS if model.rules[model.names[1]] is multiplicative else ROUNDS
        rounds = FIRST_ROUNDS if seen < 10 * estimator.n_components else later
        sums = sums and statistics_of(model.terms[0]).forget(sums, keep)
        factors = learn_batch(model.terms, model.rules, bases, sums, rounds, _n_repeats(estimator))
        publish_step(estimator, inputs, learnt, model, factors, seen)


def publish_step(
    estimator: Any, inputs: Inputs, learnt: Learnt, model: Model, factors: dict[str, Tensor], seen: int
) -> None:
    """Set everything at once, when nothing can fail any more; the sums follow the bases' normalisation."""
    bases = [factors[m] for m in model.names[1:]]
    if not all(bool(torch.isfinite(F).all()) for F in (*bases, factors["linear_minus"])):
        raise FloatingPointError(
            f"{type(estimator).__name__}.partial_fit: factors became NaN or infinite; nothing was learned. The batch "
            "is out of range in the unit that the first batch fixed: rescale the data, or use float64"
        )
    unit, *bases = model.rescale([torch.ones_like(factors["V"][:1]), *bases])
    by: dict[str, Any] = {"gram": gram(unit.double()), "energy": unit.double().square(), "counts": 1.0}
    if "linear_plus" in factors:  # Kullback-Leibler: the bases are the ratio of the two sums
        by["linear_minus"] = 1.0
    kept = [key for key in ("gram", "linear_minus", "energy", "linear_plus", "counts") if key in factors]
    sums = {key: inputs.to_caller(factors[key] * by.get(key, unit)) for key in kept}
    found: dict[str, Any] = {
        **show_factors(inputs, factors["V"] * unit * inputs.scale, bases, estimator._tensors),
        "moments_": sums | {"scale": inputs.scale},
        "n_steps_": getattr(estimator, "n_steps_", 0) + 1,
        "n_samples_seen_": seen + inputs.data.shape[0],
        "_began_with": _settled(estimator),
        **settle_ridge(estimator, inputs.data, bases),
    }
    for name in ABOUT_A_RUN:
        vars(estimator).pop(name, None)
    vars(estimator).update({**select_published(learnt), **found})


def _settled(estimator: Any) -> dict[str, Any]:
    """Return the parameters that a stream keeps."""
    return {name: value for name, value in vars(estimator).items() if name in SETTLED}


def _check_settled(estimator: Any) -> None:
    """Refuse a parameter that was another one when what is there was learned."""
    known = {"n_components": estimator._n_features_out} if hasattr(estimator, "factors_") else {}
    for name, began in (known | getattr(estimator, "_began_with", {})).items():
        now = getattr(estimator, name)
        if not (beta_of(now) == beta_of(began) if name == "loss" else np.array_equal(now, began)):
            raise ValueError(
                f"{name}={now!r}, but what was learned so far has {name}={began!r}, and a stream cannot change it; set "
                "it back, or begin anew with a clone of the estimator"
            )


def _known_sums(estimator: Any) -> dict[str, Any] | None:
    """Return the sums of a stream that has begun; those of zeros say nothing."""
    known = getattr(estimator, "moments_", None)
    return known if known and bool((known["linear_minus"] > 0).any()) else None


def _in_unit(estimator: Any, inputs: Inputs) -> Inputs:
    """Bring the batch into the unit of the sums."""
    known = _known_sums(estimator)
    if known is None or known["scale"] == inputs.scale:
        return inputs
    return replace(inputs, data=inputs.data.scaled(inputs.scale / known["scale"]), scale=known["scale"])


def resume(estimator: Any, inputs: Inputs, model: Model) -> tuple[dict[str, Tensor], dict[str, Tensor] | None]:
    """Bases and sums to go on from; after `fit`, sums of the model itself, for which its bases are stationary.

    Where the rule could not leave the zeros of a fitted basis they become small: what the data of the fit lacked may
    still come. Zeros that `init` may have given stay.
    """
    data, names = inputs.data, model.names
    there = lambda F, dtype: as_factor(place_factor(F, data).to(dtype))
    bases = {m: there(F, data.dtype) for m, F in zip(names[1:], estimator.factors_, strict=True)}
    if hasattr(estimator, "moments_"):
        known = _known_sums(estimator)
        return bases, known and {key: there(F, torch.float64) for key, F in known.items() if key != "scale"}
    if not hasattr(estimator, "embedding_"):  # bases that are known, of no samples
        return bases, None
    for m, F in bases.items():
        if model.rules[m] is multiplicative and isinstance(estimator.init, str):
            bases[m] = as_factor(F.where(F > 0, LIFT * F.mean(-2, keepdim=True)))
    V = there(estimator.embedding_, torch.float64) / inputs.scale
    energy = energies([replace(g, norms_of=()) for g in estimator._past_graphs(names)], V)
    return bases, statistics_of(model.terms[0]).sum_model({**bases, "V": V, "energy": energy})


def begin_stream(estimator: Any, inputs: Inputs, model: Model) -> dict[str, Tensor]:
    """Return the bases that a stream starts from: as a fit to the first batch, but of arrays without V."""
    data, shapes = model.data[0], list(model.shapes.items())[1:]
    if isinstance(estimator.init, str):
        if data.largest() == 0:  # its mean says nothing about the stream
            model = replace(model, data=[Dense(torch.ones(1, *data.shape[1:], dtype=data.dtype, device=data.device))])
        drawn = estimator._start(inputs, model, draw_seeds(estimator), 0)
        return {name: drawn[name] for name, _ in shapes}
    wanted = ", ".join(f"{name} {shape}" for name, shape in shapes)
    if not hasattr(estimator.init, "__len__") or len(estimator.init) != len(model.shapes):
        raise ValueError(f"init must be 'auto', 'random', 'nndsvda' or arrays (V, {wanted}); V is not used here")
    given = zip(shapes, list(estimator.init)[1:], strict=True)
    return {name: as_factor(given_array(f"init: {name}", F, shape, data)) for (name, shape), F in given}


def _n_repeats(estimator: Any) -> int:
    """How often the rule of V is applied to samples never seen: a coordinate rule settles sooner."""
    return 10 if loss_exponent(estimator) != 2 else 30 if estimator.solver in ("multiplicative", "mu") else 7
