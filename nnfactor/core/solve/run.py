"""`step` is state -> state, `iterate` is the only loop, `run` decides when it ends and what is kept.

A state is a value: `{"factors": {name: tensor}}`. Everything that differs between the problems of a batch is in it:
`take(state, keep)` drops finished problems. A factor without a rule is frozen.

Three starts as one batch, factors `(3, rows, k)`:

>>> import torch
>>> from nnfactor.core import Fit, hals, run
>>> X = torch.rand(20, 4, dtype=torch.float64) @ torch.rand(4, 12, dtype=torch.float64)
>>> start = {"V": torch.rand(3, 20, 4, dtype=X.dtype), "U1": torch.rand(3, 12, 4, dtype=X.dtype)}
>>> result = run([Fit(X, ("V", "U1"))], {"U1": hals, "V": hals}, start, max_iter=50, tol=0)
>>> result.factors["V"].shape, result.objective.shape, sorted(result.history(problem=0))
(torch.Size([3, 20, 4]), (3,), ['iteration', 'objective', 'seconds'])
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import islice
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from ..precision import ProductPrecision, begins_in_tf32, restart_state, strict_precision
from ..rules.base import Rule
from ..terms.base import Term, add_blocks, add_values, samples_of
from .checks import check_rules, check_run
from .cuda_graph import Method, State, Sweep, choose_sweeps
from .history.checkpoint import Checkpoint, Keeper, pack_run, place, unpack_run
from .history.progress import LOG, Callback, Progress, describe_all, list_callbacks
from .history.record import Audience, Record, device_of, take
from .history.result import Run, describe_range
from .stopping import has_settled, keeps_sweeps, precision_of, read_objective

__all__ = ["Progress", "Run", "iterate", "objective_of", "run", "step", "take"]


def step(terms: Sequence[Term], rules: Mapping[str, Rule]) -> Sweep:
    """Make a sweep: it improves every factor that has a rule, in the order of `rules`, at the newest factors."""
    check_rules(terms, rules)

    def sweep(state: State) -> State:
        factors = state["factors"]
        for name, rule in rules.items():
            factors = {**factors, name: rule(factors[name], add_blocks(terms, factors, name))}
        return {**state, "factors": factors}

    return sweep


def objective_of(terms: Sequence[Term], state: State) -> Tensor:
    """Return the objective at the factors of a state: its entry "objective", or computed."""
    return state["objective"] if "objective" in state else add_values(terms, state["factors"])


def iterate(sweep: Sweep, state: State) -> Iterator[State]:
    """Yield the states after one, two, ... sweeps, without end."""
    while True:
        yield (state := sweep(state))


def run(
    terms: Sequence[Term],
    rules: Mapping[str, Rule],
    factors: Mapping[str, Tensor],
    *,
    method: Method = step,
    max_iter: int = 2000,
    tol: float = 3e-5,
    every: int = 10,
    record_all: bool = False,
    max_seconds: float | None = None,
    callback: Callback | Sequence[Callback] | None = None,
    verbose: int = 0,
    name: str = "run",
    extra: Mapping[str, Any] | None = None,
    cuda_graph: bool | None = None,
    warn: bool = True,
    checkpoint: Checkpoint | None = None,
) -> Run:
    """Sweep until every problem has stopped.

    Parameters
    ----------
    terms, rules
        The model, and one rule per factor in the order of the updates. Factors without a rule are frozen. Terms keep
        products of their data, and notice what torch writes to these, but no writes to a numpy array of that memory.
    factors : dict of Tensor
        `(rows, k)`, or `(B, rows, k)` for a batch of B problems, in the dtype of the data; copied first. Entries that
        terms name as weights are `()` or `(B,)`.
    method : callable
        It makes the sweep from terms and rules: `step`, or `her` or `bmme`, whose sweeps have momentum.
    max_iter, tol, every : int, float, int
        Every `every` iterations the objective is read, and a problem whose objective fell by no more than `tol` times
        itself since the last reading, without a rise, stops and leaves the batch; so does one whose change is below
        1e-13 of `||X||^2` (float32: 1e-9). `tol=0` runs exactly `max_iter`.
    record_all : bool
        One history row per iteration, not per reading. `tol=0` implies it, but for terms whose `value_reads_data`.
    max_seconds, callback : float, callable or list of them, optional
        Stop at the first reading after this time, or when `callback(Progress)`, called at every reading, is true.
    verbose, name, warn : int, str, bool
        Print a line per reading (2: `record_all` too) and warn of `max_iter` (ConvergenceWarning), with this name.
    extra : mapping, optional
        Entries of the state beside "factors", for `method`; nested mappings of tensors with the batch dimension.
    cuda_graph : bool
        Replay sweeps that never read the host as a CUDA graph. None: where launches take longer than their work.
    checkpoint : Checkpoint, optional
        Where the run keeps its condition, and from where it goes on if something is there.

    Raises
    ------
    FloatingPointError
        The objective of every problem became NaN or infinite. Single bad problems leave the batch with objective inf.
    TypeError, ValueError
        Arguments that do not fit together; the message says what would work.
    """
    check_run(terms, rules, factors, method, (max_iter, tol, every, max_seconds))
    every_row = record_all or not (tol or any(term.value_reads_data for term in terms))
    record = _open_record(terms, factors, (name, verbose, list_callbacks(callback)), every_row, (max_iter, max_seconds))
    make = choose_sweeps(method, terms, rules, factors, cuda_graph)
    return _warn_of_limit(_run_on(make, factors, extra, record, (tol, every), checkpoint), name, max_iter, warn * tol)


def _open_record(
    terms: Sequence[Term],
    factors: Mapping[str, Tensor],
    told: tuple[str, int, Sequence[Callback]],
    every_row: bool,
    limits: tuple[int, float | None],
) -> Record:
    """Open the record of a run; where processes share the samples, one that is told to stop tells all others."""
    name, verbose, callbacks = told
    callbacks, max_seconds = samples_of(terms)[1].listeners(callbacks, limits[1])
    return Record(terms, factors, Audience(name, verbose, callbacks), every_row, limits[0], max_seconds)


def _run_on(
    make: Callable[[Sequence[Term]], Sweep],
    factors: Mapping[str, Tensor],
    extra: Mapping[str, Any] | None,
    record: Record,
    limits: tuple[float, int],
    checkpoint: Checkpoint | None,
) -> Run:
    """Run from the start, or from where a checkpoint left it."""
    name, device = record.audience.name, device_of(factors)
    known = place(checkpoint.load(), device) if checkpoint is not None else None
    if known is not None and "state" not in known:
        LOG.info("%s: this run had ended before", name)
        return unpack_run(known)
    if LOG.isEnabledFor(logging.INFO):
        LOG.info("%s: begins, %s, on %s", name, describe_all(factors), device)
    keeper = Keeper(checkpoint, record) if checkpoint is not None else None
    precision = ProductPrecision(known is None and begins_in_tf32(device.type, _dtype_of(factors)))
    with strict_precision(device), precision, record, keeper or nullcontext():
        begun = {**(extra or {}), "factors": {key: F.clone() for key, F in factors.items()}}
        state = known["state"] if known else begun
        result = _sweep_until_stopped(make, state, record, limits, keeper, known, precision)
        if checkpoint is not None:
            checkpoint.save_result(pack_run(result))
    LOG.info("%s: objective %s after %s iterations", name, *map(describe_range, (result.objective, result.n_iter)))
    return result


def _dtype_of(factors: Mapping[str, Tensor]) -> torch.dtype:
    return max(factors.values(), key=Tensor.dim).dtype  # others are weights


def _warn_of_limit(result: Run, name: str, max_iter: int, tol: float) -> Run:
    """Warn of problems that ended at `max_iter`, as estimators do."""
    open_ = ~result.converged & np.isfinite(result.objective) & (result.n_iter == max_iter)
    if max_iter and tol > 0 and open_.any():
        which = "its objective" if len(open_) == 1 else f"{open_.sum()} of {len(open_)} objectives"
        message = f"{name} stopped at max_iter={max_iter} before {which} settled to tol={tol}; raise max_iter or tol"
        warnings.warn(message, ConvergenceWarning, stacklevel=3)
    return result


def _sweep_until_stopped(
    make: Callable[[Sequence[Term]], Sweep],
    state: State,
    record: Record,
    limits: tuple[float, int],
    keeper: Keeper | None,
    known: Mapping[str, Any] | None,
    precision: ProductPrecision,
) -> Run:
    """Sweep without the host, then read the objective, which lets problems stop; and so on.

    The record holds the terms of the running problems. Where they differ in data, the sweep is made anew if one stops.
    With what is `known` of a run that was interrupted it goes on from there.
    """
    (tol, every), max_iter, iteration = limits, record.max_iter, 0
    if known is not None:
        record.restore(known)
        before, iteration = known["before"], known["iteration"]
        LOG.info("%s: goes on after %d iterations", record.audience.name, iteration)
    terms, sweep = record.terms, make(record.terms)
    least, finest = precision_of(terms, state["factors"], tol)
    read = lambda: read_objective(terms, objective_of(terms, state), state["factors"], finest)
    if known is None:
        before = record.read(0, read())
        record.report(state, before)
    elif hasattr(sweep, "skip"):
        sweep.skip(iteration)
    while iteration < max_iter and len(record.running) and not record.stopped:
        stretch = min(every - iteration % every, max_iter - iteration)
        several = None if keeper else getattr(sweep, "many", None)  # sweeps that take less time together
        together = several(state, stretch, record.every_row) if several else None
        if together is not None:
            state, iteration = together[0], iteration + stretch
            record.add_rows(iteration - stretch + 1, together[1])
        for newest in islice(iterate(sweep, state), 0 if together else stretch):
            state, iteration = newest, iteration + 1
            if iteration % every and iteration < max_iter:
                if record.every_row:
                    record.add_row(iteration, objective_of(terms, state).reshape(-1))
                if keeper:
                    keeper.reach(iteration, state, before)
        values = read()
        if refined := precision.refine(before, values.numpy()):  # what is kept of products, and graphs, are in TF32
            state, sweep = restart_state(state), make(terms)
            values = read()
        now = record.read(iteration, values)
        record.report(state, now)
        settled = has_settled(before, now, tol, least) & keeps_sweeps(state) & (not refined)
        converged = settled & (tol > 0) & (iteration % every == 0)
        stays = np.isfinite(now) & ~converged
        state = record.finish(state, ~stays, now, converged)
        before = now[stays]
        if record.terms is not terms and len(before):
            terms, sweep = record.terms, make(record.terms)
            least, finest = precision_of(terms, state["factors"], tol)
        if keeper:
            keeper.reach(iteration, state, before)
    return record.result(state, before)
