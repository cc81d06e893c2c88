"""How estimators are fitted, in six steps: read, learn, model, starts, run, publish (`fit_together`).

Estimators of one class are fitted together; a single fit is a list of one. The estimators of a *family* have equal
parameters as far as reading and learning depend on them: data are read, and graphs built, once for all. The estimators
of a *batch* have models that differ in weights and rank only. Its *problems* are the restarts of its estimators, each
with a start of its own; `run` sweeps over all problems of a batch at once.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from itertools import groupby
from math import isfinite
from numbers import Real
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch import Tensor

from ...core import Rule, Run, Term, step
from ...core.data.base import Data
from ...core.factors import concatenate, pad_columns, sort_components
from ...core.solve import init
from ...core.solve.memory_budget import bytes_per_problem, problems_per_batch
from ...core.solve.run import Method, strict_precision
from ...core.terms.base import Weight
from .inputs import Inputs
from .scikit_learn import BaseEstimator

# Columns times entries of X that may be wasted to save a batch: on one core a batch costs 1 to 3 ms a sweep whatever is
# in it. A GPU has the same fixed costs and, estimated, a thousand times the throughput.
PADDING = {"cpu": 3e6, "cuda": 3e9}

# Parameters that may differ inside a family, beside the weights that a class names as `_weights`.
START = ("random_state", "n_init", "init", "n_components", "keep_embeddings")
MAY_DIFFER = (
    *START,
    "transform_method",
    "transform_tol",
    "transform_max_iter",
    "normalize",
    "ridge",
    "classifier",
    "metric",
    "coefficients",
)

PER_PROBLEM = ("objective", "n_iter", "converged")  # arrays of a run

READ = ("n_features_in_", "feature_names_in_", "_views")  # what `_read` sets on the first estimator of a family

Learnt = Mapping[str, Any]  # what data and labels say; entries that end or begin with an underscore are published


@dataclass(frozen=True)
class Model:
    """What an estimator minimises, over which factors, by which rules, and what its factors mean to the user.

    Times `scales`, factors are in the units of the user's data; times `unit`, the objective is.
    """

    terms: Sequence[Term]  # the objective is the sum of their values
    rules: Mapping[str, Rule]  # one for each factor that is updated, in the order of the updates
    shapes: Mapping[str, tuple[int, int]]  # factors as `init` gives and `factors_` shows them, the sample factor first
    data: Sequence[Data]  # what is factored, in the units of the run: one, or one for each view
    scales: Sequence[float]  # one for each factor
    unit: float = 1.0
    method: Method = step  # makes a sweep of terms and rules
    normalize: Callable[[list[Tensor]], list[Tensor]] = lambda factors: factors  # to the lengths that are published
    ordered: bool = False  # whether components are published by falling energy: their places mean nothing
    embed: Callable[[Tensor], Tensor] = lambda V: V  # from the sample factor to one row per sample
    shares_scales: bool = True  # whether a power of two may move from one factor to another: their product is the model
    within: Mapping[str, Callable[[Tensor], Tensor]] = field(default_factory=dict)  # sets that factors must lie in
    finish: Callable[[list[Tensor]], list[Tensor]] = lambda factors: factors  # of factors in the user's units
    padded: bool = True  # whether a smaller rank may run with zero columns, which every rule keeps at exactly zero

    @property
    def names(self) -> tuple[str, ...]:
        """The factors, the sample factor first."""
        return tuple(self.shapes)

    @property
    def scale_free(self) -> bool:
        """Whether lengths mean nothing to the objective, so that they may be chosen for what comes after."""
        return all(term.scale_free for term in self.terms)

    def rescale(self, factors: list[Tensor]) -> list[Tensor]:
        """Give components the lengths that are published; lengths that a term penalises are left alone."""
        return self.normalize(factors) if self.scale_free else factors

    def arrange(self, factors: list[Tensor]) -> list[Tensor]:
        """Return factors as they are published: the same model, of the right lengths and in order."""
        factors = self.rescale(factors)
        return sort_components(factors) if self.ordered and self.scale_free else factors

    @property
    def rank(self) -> int:
        """The number of components."""
        return next(iter(self.shapes.values()))[1]

    def problem_bytes(self) -> int:
        """Estimate the bytes that one problem needs at most."""
        return sum(bytes_per_problem(X, self.rank) for X in self.data)

    @property
    def key(self) -> Hashable:
        """Equal for models that one batch can hold: those that differ in the weights of terms and in rank only."""
        rank = None if self.padded else self.rank
        return _identity(tuple(self.terms)), _identity(self.rules), _identity(self.method), self.names, rank


@dataclass(frozen=True)
class Member:
    """An estimator of a family, its model, and a seed for each of its restarts."""

    estimator: Any
    model: Model
    seeds: list[int]


Problem = tuple[int, int]  # the position of a member in its batch, and the number of a restart


def fit_together(
    estimators: Sequence[Any],
    X: Any,
    y: Any = None,
    max_bytes: int | None = None,
    label: Callable[[Any], str] = lambda estimator: "",
    weights: Any = None,
) -> None:
    """Fit estimators of one class, in place. Seeds are drawn in the order of the list.

    `label` names an estimator in errors; it has nothing to do with the labels `y` of samples. `weights` are those of
    the entries of X, for estimators that take them.
    """
    seeds = {id(e): draw_seeds(e) for e in estimators}
    for family in group(estimators, family_key):
        first = family[0]
        inputs = read_weighted(first, X, True, weights)
        noted = {name: vars(first)[name] for name in READ if name in vars(first)}
        with strict_precision(inputs.data.device):
            learnt = first._learn_structure(inputs, y)
            members = []
            for estimator in family:
                with labelled(label, estimator):
                    check_range(estimator, inputs.data.dtype)
                    members.append(Member(estimator, estimator._model(inputs, learnt), seeds[id(estimator)]))
            for batch in batches(members):
                for member, run in run_batch(batch, inputs, learnt, max_bytes, label):
                    publish(member, inputs, learnt, run, noted)


def read_weighted(estimator: Any, X: Any, reset: bool, weights: Any) -> Inputs:
    """Read data, and their weights if there are any."""
    return estimator._read(X, reset=reset) if weights is None else estimator._read(X, reset=reset, weights=weights)


def check_range(estimator: Any, dtype: torch.dtype) -> None:
    """Refuse a weight that the dtype of the work cannot hold."""
    for name in estimator._weights:
        value = getattr(estimator, name)
        if not isinstance(value, str) and value > torch.finfo(dtype).max:
            kind = str(dtype).removeprefix("torch.")
            raise ValueError(f"{name}={value:g} is beyond the range of {kind}; lower it, or use dtype='float64'")


def draw_seeds(estimator: Any) -> list[int]:
    """Give every restart a seed of its own, whatever the others are."""
    seeds = read_random_state(estimator.random_state).randint(2**31 - 1, size=estimator.n_init)
    return [int(s) for s in seeds]


def read_random_state(state: Any) -> np.random.RandomState:
    """Read what scikit-learn takes for a random state, or a Generator of numpy, from which one seed is drawn."""
    return check_random_state(int(state.integers(2**32)) if isinstance(state, np.random.Generator) else state)


def group(items: Iterable[Any], key: Callable[[Any], Hashable]) -> list[list[Any]]:
    """Group items with equal keys; groups and items stay in the order of their first appearance."""
    groups: dict[Hashable, list[Any]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())


def family_key(estimator: Any) -> Hashable:
    """Return a key that is equal for estimators of one family; with a callback or mini-batches it runs alone."""
    if estimator.callback is not None or getattr(estimator, "batch_size", None) is not None:
        return id(estimator)
    may_differ = {*MAY_DIFFER, *estimator._weights}
    return tuple(
        (name, _identity(value)) for name, value in estimator.get_params(deep=False).items() if name not in may_differ
    )


def batches(members: Sequence[Member]) -> list[list[Member]]:
    """Group members that run as one batch: equal ranks, or ranks whose padding costs less than a batch of their own.

    From the largest down, a rank joins the batch of the larger one when the columns that its problems gain, times the
    entries of the data, are below `PADDING`.
    """
    found: list[list[Member]] = []
    for alike in group(members, lambda m: m.model.key):
        data = alike[0].model.data
        allowed = PADDING.get(data[0].device.type, 0) / max(1, sum(d.entries_read for d in data))
        largest = 0
        for k, same in groupby(sorted(alike, key=lambda m: -m.model.rank), key=lambda m: m.model.rank):
            some = list(same)
            wasted = (largest - k) * sum(len(m.seeds) for m in some)
            if not largest or wasted > allowed:
                found.append([])
                largest = k
            found[-1].extend(some)
    return found


def run_batch(
    batch: list[Member], inputs: Inputs, learnt: Learnt, max_bytes: int | None, label: Callable[[Any], str]
) -> Iterator[tuple[Member, Run]]:
    """Run the problems of a batch, as many at once as fit into memory; yield every member that is complete."""
    model = join_models([m.model for m in batch])
    problems = [(i, r) for i, m in enumerate(batch) for r in range(len(m.seeds))]
    single = len(problems) == 1 and max_bytes is None
    size = 1 if single else problems_per_batch(len(problems), model.problem_bytes(), inputs.data.device, max_bytes)
    waiting: dict[int, list[Run]] = {}
    for a in range(0, len(problems), size):
        some = problems[a : a + size]
        starts = [stack_starts(batch, model, inputs, some, label)]
        with _explain_memory(len(some), model.problem_bytes):
            run = batch[0].estimator._run(model, learnt, starts.pop(), batch[0].seeds)  # nobody else holds them
        for i, restarts in split_run(run, some):
            waiting.setdefault(i, []).append(restarts)
            if sum(len(r.objective) for r in waiting[i]) == len(batch[i].seeds):
                complete = concatenate_runs(waiting.pop(i))
                if not np.isfinite(complete.objective).any():
                    raise FloatingPointError(
                        f"{label(batch[i].estimator)}{type(batch[i].estimator).__name__}: the objective of every "
                        f"restart became NaN or infinite; nothing was fitted. {batch[i].estimator._remedy}"
                    )
                yield batch[i], complete


def join_models(models: Sequence[Model]) -> Model:
    """Make the model of a batch: its first, which has the largest rank; weights that differ go into the state."""
    columns = zip(*(m.terms for m in models), strict=True)
    return replace(models[0], terms=[_join_terms(terms, f"weight of term {i}") for i, terms in enumerate(columns)])


def _join_terms(terms: Sequence[Any], name: str) -> Any:
    weights: list[Any] = [getattr(t, "weight", None) for t in terms]
    if all(w is weights[0] or w == weights[0] for w in weights):
        return terms[0]
    return replace(terms[0], weight=Weight(name, tuple(map(float, weights))))


def stack_starts(
    batch: list[Member], model: Model, inputs: Inputs, problems: list[Problem], label: Callable[[Any], str]
) -> dict[str, Tensor]:
    """Stack starts, and weights that differ: of one problem as they are, of several with a batch dimension."""
    starts = []
    for i, restart in problems:
        member = batch[i]
        with labelled(label, member.estimator):
            start = member.estimator._start(inputs, member.model, member.seeds, restart)
        missing = model.rank - member.model.rank  # zero columns, which every rule that is used keeps at exactly zero
        starts.append([pad_columns(F, missing) if missing else F for F in start.values()])
    state = dict(zip(start, starts[0] if len(starts) == 1 else init.stack(starts), strict=True))
    weights = [getattr(t, "weight", None) for t in model.terms]
    for weight in (w for w in weights if isinstance(w, Weight)):
        values = torch.tensor([weight.values[i] for i, _ in problems], dtype=torch.float64, device=inputs.data.device)
        state[weight.name] = values[0] if len(starts) == 1 else values
    return state


def publish(member: Member, inputs: Inputs, learnt: Learnt, run: Run, noted: Mapping[str, Any]) -> None:
    """Set everything that is published, at once, when nothing can fail any more."""
    results = member.estimator._results(inputs, learnt, member.model, run)
    results["fit_info_"]["seeds"] = member.seeds
    vars(member.estimator).update({**deepcopy(dict(noted)), **select_published(learnt), **results})


def select_published(learnt: Learnt) -> dict[str, Any]:
    """Select what was learnt and is published, names with an underscore; no two estimators share an array."""
    shown = {name: value for name, value in learnt.items() if name.endswith("_") or name.startswith("_")}
    return {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in shown.items()}


def split_run(run: Run, problems: list[Problem]) -> Iterator[tuple[int, Run]]:
    """Cut a run into one for each member of the batch, whose problems stand side by side."""
    begin = 0
    for i, some in groupby(problems, key=lambda problem: problem[0]):
        end = begin + len(list(some))
        yield i, select_problems(run, begin, end)
        begin = end


def select_problems(run: Run, begin: int, end: int) -> Run:
    """Return problems `begin..end` of a run, always with a batch dimension."""
    rows = []
    for iteration, seconds, problems, values in run.rows:
        a, b = np.searchsorted(problems, [begin, end])
        if a < b:
            rows.append((iteration, seconds, problems[a:b] - begin, values[a:b]))
    alone = len(run.objective) == 1
    factors = {n: (F[None] if alone and F.dim() in (0, 2) else F)[begin:end] for n, F in run.factors.items()}
    columns: dict[str, Any] = {name: getattr(run, name)[begin:end] for name in PER_PROBLEM}
    return replace(run, factors=factors, rows=rows, **columns)


def concatenate_runs(runs: Sequence[Run]) -> Run:
    """Join the problems of several runs."""
    if len(runs) == 1:
        return runs[0]
    shifts = np.cumsum([0, *(len(r.objective) for r in runs)])
    rows = [(i, s, p + shift, v) for r, shift in zip(runs, shifts, strict=False) for i, s, p, v in r.rows]
    join = lambda name, F: (concatenate if F.dim() == 3 else torch.cat)([r.factors[name] for r in runs])
    factors = {name: join(name, F) for name, F in runs[0].factors.items()}
    columns: dict[str, Any] = {name: np.concatenate([getattr(r, name) for r in runs]) for name in PER_PROBLEM}
    return replace(runs[0], factors=factors, rows=rows, **columns)


def _identity(value: Any) -> Hashable:
    """Return a key that is equal for equal plain values and containers of them; other objects count by address.

    The number that is a term's weight is left out (it may differ within a batch), as is what the term sets itself.
    """
    if value is None or isinstance(value, str | int | float | bool | torch.dtype | torch.device):
        return type(value).__name__, value
    if isinstance(value, tuple | list):
        return tuple(map(_identity, value))
    if isinstance(value, Mapping):
        return tuple((name, _identity(v)) for name, v in value.items())
    if isinstance(value, slice):
        return value.start, value.stop
    if isinstance(value, partial):
        return value.func, _identity(value.args), _identity(value.keywords)
    if isinstance(value, BaseEstimator):
        return type(value).__name__, _identity(value.get_params(deep=False))
    if isinstance(value, Term) and is_dataclass(value):
        given = {f.name: getattr(value, f.name) for f in fields(value) if f.init and f.name != "cache"}
        if isinstance(given.get("weight"), Real) and isfinite(given["weight"]):
            del given["weight"]
        return type(value), _identity(given)
    return getattr(value, "identity", id(value))


@contextmanager
def labelled(label: Callable[[Any], str], estimator: Any) -> Iterator[None]:
    """Put the label of the estimator in front of an error."""
    try:
        yield
    except ValueError as error:
        if not label(estimator):
            raise
        raise ValueError(f"{label(estimator)}{error}") from error


@contextmanager
def _explain_memory(problems: int, bytes_each: Callable[[], int]) -> Iterator[None]:
    """Say what would work if memory runs out."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise torch.OutOfMemoryError(
            f"{error}\n{problems} problems ran as one batch, estimated at {bytes_each() / 2**20:.0f} MiB each; "
            f"batch_fit(..., max_bytes={max(1, problems // 2) * bytes_each()}) makes smaller batches, "
            "float32 needs half as much"
        ) from error


@contextmanager
def forget_and_restore_on_error(estimator: BaseEstimator) -> Iterator[None]:
    """Forget the fit before this one; if this one fails, the estimator is what it was."""
    with restore_on_error(estimator):
        for name in list(vars(estimator)):
            if name.endswith("_") and not name.startswith("_"):
                delattr(estimator, name)
        yield


@contextmanager
def restore_on_error(estimator: BaseEstimator) -> Iterator[None]:
    """Restore the estimator if something fails."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise
