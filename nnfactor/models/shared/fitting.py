"""Estimators of one class fitted together: families share data and graphs, batches share one run.

A *family* agrees in every parameter that cannot differ inside a batch: the data are read and the graphs are built
once. A *batch* of a family shares a model; its *problems* are the restarts of its estimators, each with a start (and
perhaps hyper-parameters) of its own. A single fit is the family of one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import Tensor

from ...core import Rule, Run, Term, Weight, step
from ...core.solve import init
from ...core.solve.memory_budget import bytes_per_problem, fitting, work
from ...core.solve.run import Method, strict_precision
from .inputs import Inputs

if TYPE_CHECKING:
    from .base import Factorization


@dataclass(frozen=True)
class Model:
    """What an estimator is underneath.

    `terms` over named factors, a rule for each in the order of the updates, the `names` in the order in which factors
    are given and published (samples first), and the `method` that makes sweeps of terms and rules.
    """

    terms: Sequence[Term]
    rules: Mapping[str, Rule]
    names: tuple[str, ...]
    method: Method = step


FREE = ("random_state", "n_init", "init", "n_components", "transform_method", "keep_embeddings")

# Columns times entries of X that may be wasted to save a batch. On one core a batch costs 1 to 3 ms a sweep whatever is
# in it; padding that wasted up to 3e6 took 0.5 to 0.9 of the time (two of 24 cases: 1.1, 1.2), 30 x 40 to 1000 x 800.
# A GPU has the same fixed costs and, estimated, a thousand times the throughput.
PADDING = {"cpu": 3e6, "cuda": 3e9}

Problem = tuple["Factorization", int]  # an estimator and the number of a restart


def fit_together(
    estimators: Sequence[Factorization],
    X: Any,
    y: Any = None,
    max_bytes: int | None = None,
    at: Callable[[Any], str] = lambda estimator: "",
) -> None:
    """Fit estimators of one class; `at` says how errors call one of them. Seeds are drawn in the order of the list."""
    for estimator in estimators:
        estimator._seeds = estimator._drawn_seeds()
    for family in grouped(estimators, family_key):
        _fit_family(family, X, y, max_bytes, at)


def grouped(items: Iterable[Any], key: Callable[[Any], Hashable]) -> list[list[Any]]:
    """Items with equal keys together, both in the order of their first appearance."""
    groups: dict[Hashable, list[Any]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())


def family_key(estimator: Factorization) -> Hashable:
    """What a family agrees in. Whoever has a callback, which is told of one estimator, or mini-batches, which are
    drawn by one, is a family.
    """
    if estimator.callback is not None or getattr(estimator, "batch_size", None) is not None:
        return id(estimator)
    may_differ = {*FREE, *estimator._batched}
    return tuple(
        (name, _identity(value)) for name, value in estimator.get_params(deep=False).items() if name not in may_differ
    )


def _identity(value: Any) -> Hashable:
    """Equal for parameters that are surely alike: plain values and objects built from them by value, others by id."""
    if value is None or isinstance(value, str | int | float | bool | torch.dtype | torch.device):
        return type(value).__name__, value
    if isinstance(value, tuple | list):
        return tuple(map(_identity, value))
    if isinstance(value, BaseEstimator):
        return type(value).__name__, tuple((k, _identity(v)) for k, v in value.get_params(deep=False).items())
    return id(value)


def _fit_family(family: list[Factorization], X: Any, y: Any, max_bytes: int | None, at: Callable[[Any], str]) -> None:
    first, before = family[0], dict(vars(family[0]))
    source = first._read(X, reset=True)
    with strict_precision(source.data.device):
        source = first._target(source)
        first._prepare(source, y)
        _share(first, before, family[1:])
        for members in batches(family, source, at):
            _Batch(members, source, y, max_bytes, at).fit()


def batches(family: Sequence[Factorization], source: Inputs, at: Callable[[Any], str]) -> list[list[Factorization]]:
    """The estimators that run as one batch: equal ranks, or ranks whose padding costs less than a batch of their own.

    Ranks are taken from the largest down. A rank joins the batch of the larger one when the columns that its problems
    gain, times the entries of the data, are below `PADDING`: measured, what a batch costs whatever is in it.
    """
    found: list[list[Factorization]] = []
    allowed = PADDING.get(source.data.device.type, 0) / max(1, work(source.data))
    for alike in grouped(family, lambda e: _called(at, e, partial(e._batch_key, source))):
        largest = 0
        for k, same in groupby(sorted(alike, key=lambda e: -e.n_components), key=lambda e: int(e.n_components)):
            some = list(same)
            wasted = (largest - k) * sum(int(e.n_init) for e in some)
            if not largest or not alike[0]._padded or wasted > allowed:
                found.append([])
                largest = k
            found[-1].extend(some)
    return found


@dataclass
class _Batch:
    """Some estimators of a family, their model, and how they run."""

    members: list[Factorization]
    source: Inputs
    y: Any
    max_bytes: int | None
    at: Callable[[Any], str]

    def fit(self) -> None:
        """Run sub-batches that fit into memory, one after the other; publish whoever is complete."""
        model = self._model()
        parts: dict[int, list[Run]] = {}
        problems = [(e, r) for e in self.members for r in range(int(e.n_init))]
        each = bytes_per_problem(self.source.data, self.rank)
        size = fitting(len(problems), each, self.source.data.device, self.max_bytes)
        for a in range(0, len(problems), size):
            some = problems[a : a + size]
            with _explained(len(some), each):
                result = self.members[0]._run(self.source, model, self._state(model, some), self.y)
            for estimator, part in _by_estimator(result, some):
                parts.setdefault(id(estimator), []).append(part)
                if sum(len(p.objective) for p in parts[id(estimator)]) == estimator.n_init:
                    self._publish(estimator, model, joined(parts.pop(id(estimator))))

    @property
    def rank(self) -> int:
        """The largest, to which the others are padded."""
        return max(int(e.n_components) for e in self.members)

    @property
    def varying(self) -> list[str]:
        """Hyper-parameters that differ between the members."""
        names = self.members[0]._batched
        return [name for name in names if len({float(getattr(e, name)) for e in self.members}) > 1]

    def _model(self) -> Model:
        """The model of all, by an estimator of the largest rank whose varying parameters are names of state entries."""
        first = self.members[0]
        whole = first if len(self.members) == 1 else object.__new__(type(first))
        whole.__dict__.update(vars(first))
        whole.n_components = first.n_components if whole is first else self.rank
        for name in self.varying:
            setattr(whole, name, Weight(name, tuple(float(getattr(e, name)) for e in self.members)))
        before = dict(vars(whole))
        with named(self.at, first):
            model = whole._model(self.source, self.y)
        _share(whole, before, [e for e in self.members if e is not whole])
        return model

    def _state(self, model: Model, problems: list[Problem]) -> dict[str, Tensor]:
        """Starts and varying hyper-parameters: of one problem as they are, of several as a batch."""
        starts = []
        for estimator, restart in problems:
            with named(self.at, estimator):
                starts.append([_padded(F, self.rank) for F in estimator._start(self.source, restart)])
        state = dict(zip(model.names, starts[0] if len(starts) == 1 else init.stack(starts), strict=True))
        for name in self.varying:
            values = torch.tensor([float(getattr(e, name)) for e, _ in problems], dtype=torch.float64)
            state[name] = (values[0] if len(starts) == 1 else values).to(self.source.data.device)
        return state

    def _publish(self, estimator: Factorization, model: Model, result: Run) -> None:
        if not np.isfinite(result.objective).any():
            raise FloatingPointError(
                f"{self.at(estimator)}{type(estimator).__name__}: the objective of every restart became NaN or "
                "infinite; nothing was fitted. Check the scale of init and of the penalty weights, or use float64"
            )
        estimator._publish(self.source, model, result)


def _padded(F: Tensor, k: int) -> Tensor:
    """A factor with zero columns up to `k`, component-major: every rule that is used keeps them at exactly zero."""
    missing = k - F.shape[-1]
    return torch.cat([F.mT, F.new_zeros(missing, len(F))]).mT if missing else F


def _share(first: Factorization, before: dict[str, Any], others: Sequence[Factorization]) -> None:
    """What an estimator has learned of the data since `before` is true of the others too."""
    learned = {name: value for name, value in vars(first).items() if name not in before or before[name] is not value}
    for other in others:
        other.__dict__.update(learned)


def _by_estimator(result: Run, problems: list[Problem]) -> Iterator[tuple[Factorization, Run]]:
    """A run cut into those of its estimators, whose problems are neighbours."""
    begin = 0
    for _, some in groupby(problems, key=lambda problem: id(problem[0])):
        end = begin + len(list(some))
        yield problems[begin][0], part(result, begin, end)
        begin = end


def part(result: Run, begin: int, end: int) -> Run:
    """Problems `begin..end` of a run, always with a batch dimension."""
    rows = []
    for iteration, seconds, problems, values in result.rows:
        a, b = np.searchsorted(problems, [begin, end])
        if a < b:
            rows.append((iteration, seconds, problems[a:b] - begin, values[a:b]))
    whole = len(result.objective) == 1
    single = {n: F[None] if whole and F.dim() in (0, 2) else F for n, F in result.factors.items()}
    factors = {n: F[begin:end] for n, F in single.items()}
    here = slice(begin, end)
    return Run(factors, result.objective[here], result.n_iter[here], result.converged[here], rows)


def joined(runs: Sequence[Run]) -> Run:
    """The problems of several runs as one."""
    if len(runs) == 1:
        return runs[0]
    shifts = np.cumsum([0, *(len(r.objective) for r in runs)])
    rows = [(i, s, p + shift, v) for r, shift in zip(runs, shifts, strict=False) for i, s, p, v in r.rows]
    factors = {
        n: torch.cat([r.factors[n].mT for r in runs]).mT
        if runs[0].factors[n].dim() == 3
        else torch.cat([r.factors[n] for r in runs])
        for n in runs[0].factors
    }
    column = lambda name: np.concatenate([getattr(r, name) for r in runs])
    return Run(factors, column("objective"), column("n_iter"), column("converged"), rows)


def _called(at: Callable[[Any], str], estimator: Any, f: Callable[[], Any]) -> Any:
    with named(at, estimator):
        return f()


@contextmanager
def named(at: Callable[[Any], str], estimator: Any) -> Iterator[None]:
    """Errors say which estimator they are about."""
    try:
        yield
    except ValueError as error:
        if not at(estimator):
            raise
        raise ValueError(f"{at(estimator)}{error}") from error


@contextmanager
def _explained(problems: int, each: int) -> Iterator[None]:
    """Out of memory: say what would work."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise torch.OutOfMemoryError(
            f"{error}\n{problems} problems ran as one batch, estimated at {each / 2**20:.0f} MiB each; "
            f"batch_fit(..., max_bytes={max(1, problems // 2) * each}) makes smaller batches, "
            "float32 needs half as much"
        ) from error


def weight_of(parameter: Any) -> float | Weight:
    """Return a hyper-parameter as a term's weight: a number, or the entry of the state that holds those of a batch."""
    return parameter if isinstance(parameter, Weight) else float(parameter)


def values_of(parameter: Any) -> tuple[float, ...]:
    """Return the number that a hyper-parameter is, or all that it is in a batch."""
    return parameter.values if isinstance(parameter, Weight) else (float(parameter),)
