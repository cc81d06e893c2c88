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

import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from ..factors import stack_problems
from ..rules.base import Rule
from ..terms.base import Term, add_blocks, add_direct_values, add_values, describe, select_problems
from .checks import check_rules, check_run
from .cuda_graph import State, Sweep, capture
from .stopping import has_settled, keeps_sweeps, precision_of, read_objective

Row = tuple[int, float, np.ndarray, Any]  # of the history: iteration, seconds, running problems, their objectives
Method = Callable[[Sequence[Term], Mapping[str, Rule]], Sweep]


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


def take(state: Any, keep: Any) -> Any:
    """Return the state of some problems of a batch: `keep` indexes the first dimension of every tensor in it."""
    return {key: take(value, keep) for key, value in state.items()} if isinstance(state, dict) else state[keep]


@contextmanager
def strict_precision(device: torch.device) -> Iterator[None]:
    """Switch gradients and autocast off: products in the dtype of their factors. TF32 is as the caller has set it."""
    with without_denormals(), torch.no_grad(), torch.autocast(device.type, enabled=False):
        yield


@contextmanager
def without_denormals() -> Iterator[None]:
    """Treat denormal numbers as zeros meanwhile, in this thread: CPUs need ten times as long for a product with them.

    Multiplicative rules make entries that small.
    """
    flushed = sys.float_info.min * 0.5 == 0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(flushed)


@dataclass(frozen=True)
class Progress:
    """What a callback gets: the best of the problems that still run."""

    iteration: int
    objective: float
    seconds: float
    factors: Mapping[str, Tensor]  # copies: what is written to them changes nothing

    def __repr__(self) -> str:
        reached = f"iteration={self.iteration}, objective={self.objective:.6g}, seconds={self.seconds:.3g}"
        return f"Progress({reached}, {_describe_all(self.factors)})"


@dataclass
class Run:
    """How a run ended, problem by problem (arrays of length n_problems)."""

    factors: dict[str, Tensor]  # with a batch dimension if and only if the start had one
    objective: np.ndarray
    n_iter: np.ndarray
    converged: np.ndarray
    rows: list[Row] = field(repr=False)
    n_batches: int = 1  # mini-batches that an iteration visits

    def __repr__(self) -> str:
        ends = f"objective {_range(self.objective)} after {_range(self.n_iter)} iterations"
        return f"Run({ends}, {self.converged.sum()} of {len(self.converged)} converged, {_describe_all(self.factors)})"

    def history(self, problem: int = 0) -> dict[str, np.ndarray]:
        """Return arrays iteration, objective, seconds of equal length; entry 0 is the start."""
        mine = [(i, v[ids == problem][0], s) for i, s, ids, v in self.rows if problem in ids]
        return dict(zip(("iteration", "objective", "seconds"), map(np.array, zip(*mine, strict=True)), strict=True))

    @property
    def best(self) -> int:
        """The problem with the lowest objective, the first of equals."""
        return int(self.objective.argmin())


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
    callback: Callable[[Progress], Any] | None = None,
    verbose: int = 0,
    name: str = "run",
    extra: Mapping[str, Any] | None = None,
    cuda_graph: bool = False,
    warn: bool = True,
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
        One history row per iteration instead of one per reading (implied by `tol=0`); readings stay as rare.
    max_seconds, callback : float, callable, optional
        Stop at the first reading after this time, or when `callback(Progress)`, called at every reading, is true.
    verbose, name, warn : int, str, bool
        Print a line per reading (2: `record_all` too) and warn of `max_iter` (ConvergenceWarning), with this name.
    extra : mapping, optional
        Entries of the state beside "factors", for `method`; nested mappings of tensors with the batch dimension.
    cuda_graph : bool
        Replay sweeps that never read the host as a CUDA graph: faster where launches take longer than their work.

    Raises
    ------
    FloatingPointError
        The objective of every problem became NaN or infinite. Single bad problems leave the batch with objective inf.
    TypeError, ValueError
        Arguments that do not fit together; the message says what would work.
    """
    check_run(terms, rules, factors, method, (max_iter, tol, every, max_seconds))
    record = _Record(terms, factors, name, record_all or tol == 0 or verbose >= 2, max_seconds, callback, verbose)
    with strict_precision(_device(factors)):
        plain = lambda terms: method(terms, rules)
        make = (lambda terms: capture(plain(terms), _device(factors))) if cuda_graph else plain
        state = {**(extra or {}), "factors": {key: F.clone() for key, F in factors.items()}}
        result = _sweep_until_stopped(make, state, record, max_iter, tol, every)
    return _warn_of_limit(result, name, max_iter, tol) if warn and tol > 0 else result


def _warn_of_limit(result: Run, name: str, max_iter: int, tol: float) -> Run:
    """Warn of problems that ended at `max_iter`, as estimators do."""
    open_ = ~result.converged & np.isfinite(result.objective) & (result.n_iter == max_iter)
    if max_iter and open_.any():
        which = "its objective" if len(open_) == 1 else f"{open_.sum()} of {len(open_)} objectives"
        message = f"{name} stopped at max_iter={max_iter} before {which} settled to tol={tol}; raise max_iter or tol"
        warnings.warn(message, ConvergenceWarning, stacklevel=3)
    return result


def _sweep_until_stopped(
    make: Callable[[Sequence[Term]], Sweep], state: State, record: _Record, max_iter: int, tol: float, every: int
) -> Run:
    """Sweep without the host, then read the objective, which lets problems stop; and so on.

    The record holds the terms of the running problems. Where they differ in data, the sweep is made anew if one stops.
    """
    terms, sweep = record.terms, make(record.terms)
    least, finest = precision_of(terms, state["factors"], tol)
    read = lambda: read_objective(terms, objective_of(terms, state), state["factors"], finest)
    before = record.read(0, read())
    stop, iteration = record.report(state, before), 0
    while iteration < max_iter and len(record.running) and not stop:
        stretch = min(every, max_iter - iteration)
        for newest in islice(iterate(sweep, state), stretch):
            state, iteration = newest, iteration + 1
            if record.every_row and iteration % every and iteration < max_iter:
                record.add_row(iteration, objective_of(terms, state).reshape(-1))
        now = record.read(iteration, read())
        stop = record.report(state, now)
        converged = has_settled(before, now, tol, least) & keeps_sweeps(state) & (tol > 0) & (stretch == every)
        stays = np.isfinite(now) & ~converged
        state = record.finish(state, ~stays, now, converged)
        before = now[stays]
        if record.terms is not terms and len(before):
            terms, sweep = record.terms, make(record.terms)
            least, finest = precision_of(terms, state["factors"], tol)
    return record.result(state, before)


class _Record:
    """The history of a run, which problems still run, and how the others ended."""

    def __init__(
        self,
        terms: Sequence[Term],
        factors: Mapping[str, Tensor],
        name: str,
        every_row: bool,
        max_seconds: float | None,
        callback: Callable[[Progress], Any] | None,
        verbose: int,
    ) -> None:
        sizes = [len(F) for F in factors.values() if F.dim() == 3]
        self.batched, size = bool(sizes), max(sizes, default=1)
        self.terms, self.name, self.every_row, self.max_seconds = terms, name, every_row, max_seconds
        self.callback, self.verbose = callback, verbose
        self.began, self.iteration = time.perf_counter(), 0
        self.running = np.arange(size)
        self.objective, self.n_iter = np.full(size, np.nan), np.zeros(size, dtype=int)
        self.converged = np.zeros(size, dtype=bool)
        self.rows: list[Row] = []
        self.ended: dict[int, dict[str, Tensor]] = {}

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.began

    def add_row(self, iteration: int, values: Any) -> None:
        """Add a row to the history; the host reads a tensor at the end of the run."""
        self.rows.append((iteration, self.seconds, self.running, values))

    def read(self, iteration: int, values: Tensor) -> np.ndarray:
        """Add a row that the host reads now; raise when no objective is finite any more."""
        now = values.numpy().copy()  # a row of its own: `finish` writes to it
        if now.shape != self.running.shape:
            raise ValueError(
                f"the terms have {len(now)} values, but factors hold {len(self.running)} problems: a value is one "
                "number for each, and weights are numbers, () or (B,)"
            )
        self.add_row(iteration, now)
        self.iteration = iteration
        if not np.isfinite(now).any() and not np.isfinite(self.objective).any():
            raise FloatingPointError(
                f"{self.name}: the objective became {now[0]} at iteration {iteration}; nothing was fitted. "
                "Check the scale of the data, of init and of the penalty weights, or use float64"
            )
        return now

    def report(self, state: State, now: np.ndarray) -> bool:
        """Tell the user of a reading; return whether the callback or the time ends the run."""
        best = int(np.where(np.isnan(now), np.inf, now).argmin())
        if self.verbose and self.iteration:
            print(f"[{self.name}] iteration {self.iteration}: objective {now[best]:.6g}, {len(now)} running")
        late = self.max_seconds is not None and self.seconds > self.max_seconds
        if self.callback is None:
            return late
        factors = take(state["factors"], best) if self.batched else state["factors"]
        copies = {key: F.clone() for key, F in factors.items()}
        return bool(self.callback(Progress(self.iteration, float(now[best]), self.seconds, copies))) or late

    def finish(self, state: State, finished: np.ndarray, now: np.ndarray, converged: np.ndarray) -> State:
        """Keep how some of the running problems ended; return the state of those that go on.

        Their objective is read once more, without cancellation: the best problem is chosen by it.
        """
        ids, factors, values = self.running[finished], state["factors"], now[finished]
        if not len(ids):
            return state
        chosen, others = (torch.from_numpy(np.flatnonzero(some)).to(_device(factors)) for some in (finished, ~finished))
        ended = factors if finished.all() else take(factors, chosen)  # no view: it would keep the others in memory
        if any(type(term).direct is not Term.direct for term in self.terms):
            values = add_direct_values(select_problems(self.terms, chosen), ended).reshape(-1).cpu().numpy()
            *_, problems, row = self.rows[-1]
            row[np.isin(problems, ids)] = values
        self.objective[ids] = np.where(np.isfinite(values), values, np.inf)
        self.n_iter[ids], self.converged[ids] = self.iteration, converged[finished]
        self.running = self.running[~finished]
        if not self.batched:
            return state
        self.terms = select_problems(self.terms, others) if len(others) else self.terms
        self.ended |= {int(p): take(ended, i) for i, p in enumerate(ids)}
        return take(state, others)

    def result(self, state: State, now: np.ndarray) -> Run:
        """End the problems that reached a limit, and return how all ended."""
        limited = np.ones(len(self.running), dtype=bool)
        factors = self.finish(state, limited, now, ~limited)["factors"]
        if self.batched:
            columns = {key: [self.ended[p][key] for p in range(len(self.objective))] for key in factors}
            factors = {key: stack_problems(Fs) if Fs[0].dim() else torch.stack(Fs) for key, Fs in columns.items()}
        rows = [(i, s, p, v if isinstance(v, np.ndarray) else v.cpu().numpy()) for i, s, p, v in self.rows]
        return Run(factors, self.objective, self.n_iter, self.converged, rows)


def _describe_all(factors: Mapping[str, Tensor]) -> str:
    return ", ".join(f"{name} {describe(F)}" for name, F in factors.items())


def _range(values: np.ndarray) -> str:
    low, high = (f"{v:.6g}" for v in (values.min(), values.max()))
    return low if low == high else f"{low} to {high}"


def _device(factors: Mapping[str, Tensor]) -> torch.device:
    return next(iter(factors.values())).device
