"""How estimators are fitted, in six steps: read, learn, model, starts, run, publish (`fit_together`).

Estimators of one class are fitted together; a single fit is a list of one. The estimators of a *family* have equal
parameters as far as reading and learning depend on them: what they are given is read, and graphs are built, once for
all. The estimators of a *batch* have models that differ in weights, rank and data only. Its *problems* are the restarts
of its estimators, each with a start of its own; `run` sweeps over all problems of a batch at once.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch import Tensor

from ...core import Rule, Run, Term, step
from ...core.data.base import Data
from ...core.data.stacked import Stacked
from ...core.factors import pad_columns, sort_components
from ...core.precision import strict_precision
from ...core.solve import init
from ...core.solve.memory_budget import MANY, bytes_per_problem, problems_per_batch, refuse_without_room
from ...core.solve.run import Method
from ...core.solve.run_parts import concatenate_runs, split_run
from ...core.terms.base import Weight
from ...core.terms.identity import identity_of
from ...io.checkpoints.identity import AnyCheckpoint, expect_data
from .inputs import Inputs, own_results
from .scikit_learn import BaseEstimator

# Columns times entries of X that may be wasted to save a batch: on one core a batch costs 1 to 3 ms a sweep whatever is
# in it. A GPU has the same fixed costs and, estimated, a thousand times the throughput.
PADDING = {"cpu": 3e6, "cuda": 3e9}

# Parameters that may differ inside a family, beside the weights that a class names as `_weights`.
START = ("random_state", "n_init", "init", "n_components", "keep_embeddings")
MAY_DIFFER = (
    *START,
    *("transform_method", "transform_tol", "transform_max_iter", "normalize", "ridge"),
    *("classifier", "metric", "coefficients"),
)

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
        return sort_components(factors, self.data[0].sums.column_norms) if self.ordered and self.scale_free else factors

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
        return identity_of(tuple(self.terms)), identity_of(self.rules), identity_of(self.method), self.names, rank


@dataclass(frozen=True, eq=False)
class Given:
    """What `fit` is given: data, labels and weights of entries; estimators with the very same object share them."""

    X: Any
    y: Any = None
    weights: Any = None


@dataclass(frozen=True)
class Family:
    """Estimators that differ in nothing on which reading and learning depend, and what was read."""

    estimators: list[Any]
    y: Any
    inputs: Inputs
    noted: Mapping[str, Any]  # what reading set on the first estimator


@dataclass(frozen=True)
class Member:
    """An estimator, what was read and learnt for it, its model, and a seed for each of its restarts."""

    estimator: Any
    inputs: Inputs
    learnt: Learnt
    noted: Mapping[str, Any]
    model: Model
    seeds: list[int]


Problem = tuple[int, int]  # the position of a member in its batch, and the number of a restart


def fit_together(
    estimators: Sequence[Any],
    given: Sequence[Given],
    max_bytes: int | None = None,
    label: Callable[[Any], str] = lambda estimator: "",
    checkpoint: AnyCheckpoint | None = None,
) -> None:
    """Fit estimators of one class, in place, each to what it is given. Seeds are drawn in the order of the list.

    `label` names an estimator in errors; it has nothing to do with the labels `y` of samples. What depends on chance or
    on free memory is kept in a checkpoint and read from it: a fit that goes on runs the same runs in the same order.
    """
    seeds = {id(e): draw_seeds(e) for e in estimators}
    if checkpoint is not None:
        seeds = dict(zip(seeds, checkpoint.recall("seeds", list(seeds.values())), strict=True))
        checkpoint.begin()
    for alike in group(list(zip(estimators, given, strict=True)), lambda pair: family_key(pair[0])):
        parts = group(alike, lambda pair: id(pair[1]))
        about = label if len(parts) > 1 else None  # names the data that an error is about
        families = [read_family(part, about) for part in parts]
        if checkpoint is not None:
            expect_data(checkpoint, [(family.inputs, family.y) for family in families])
        with strict_precision(families[0].inputs.data.device):
            members: list[Member] = []
            for family in families:
                with labelled(about, family.estimators[0]) if about else nullcontext():
                    learnt = family.estimators[0]._learn_structure(family.inputs, family.y)
                members += make_members(family, learnt, seeds, label)
            for batch in batches(members):
                for member, run in run_batch(batch, max_bytes, label, checkpoint):
                    publish(member, run)


def read_family(pairs: Sequence[tuple[Any, Given]], about: Callable[[Any], str] | None) -> Family:
    """Read what estimators are given, all the same, by the first of them."""
    first, given = pairs[0]
    with labelled(about, first) if about else nullcontext():
        inputs = read_weighted(first, given.X, True, given.weights)
    noted = {name: vars(first)[name] for name in READ if name in vars(first)}
    y = given.y if inputs.data.sums.alone else inputs.data.sums.join(given.y, "y")
    return Family([estimator for estimator, _ in pairs], y, inputs, noted)


def make_members(
    family: Family, learnt: Learnt, seeds: Mapping[int, list[int]], label: Callable[[Any], str]
) -> list[Member]:
    """Make the model of every estimator of a family."""
    inputs, sums, members = family.inputs, family.inputs.data.sums, []
    for estimator in family.estimators:
        with labelled(label, estimator):
            check_range(estimator, inputs.data.dtype)
            model = estimator._model(inputs, learnt)
        drawn = seeds[id(estimator)] if sums.alone else sums.same(seeds[id(estimator)])
        members.append(Member(estimator, inputs, learnt, family.noted, model, drawn))
    return members


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


def group(items: Sequence[Any], key: Callable[[Any], Hashable]) -> list[list[Any]]:
    """Group items with equal keys; groups and items stay in the order of their first appearance."""
    if len(items) == 1:
        return [list(items)]
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
        (name, identity_of(value)) for name, value in estimator.get_params(deep=False).items() if name not in may_differ
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
    batch: list[Member], max_bytes: int | None, label: Callable[[Any], str], checkpoint: AnyCheckpoint | None
) -> Iterator[tuple[Member, Run]]:
    """Run the problems of a batch, as many at once as fit into memory; yield every member that is complete."""
    first, data = batch[0], batch[0].inputs.data
    problems = [(i, r) for i, m in enumerate(batch) for r in range(len(m.seeds))]
    stacked = any(m.inputs is not first.inputs for m in batch)
    copies = sum(X.entries_read * X.dtype.itemsize for X in first.model.data) if stacked else 0
    bytes_each = lambda: first.model.problem_bytes() + copies
    rows = sum(X.rows_per_problem for X in first.model.data)
    if rows * first.model.rank > MANY:
        refuse_without_room(rows, first.model.rank, data.dtype.itemsize, data.device)
    single = len(problems) == 1 and max_bytes is None
    size = 1 if single else data.sums.least(problems_per_batch(len(problems), bytes_each(), data.device, max_bytes))
    size = size if checkpoint is None else checkpoint.recall("size of batches", size)
    waiting: dict[int, list[Run]] = {}
    for some in (problems[a : a + size] for a in range(0, len(problems), size)):
        model = join_models([m.model for m in batch], [i for i, _ in some])
        starts = [stack_starts(batch, model, some, label)]
        with _explain_memory(len(some), bytes_each):
            run = first.estimator._run(model, first.learnt, starts.pop(), first.seeds, checkpoint)  # nobody holds them
        for i, restarts in split_run(run, [i for i, _ in some]):
            waiting.setdefault(i, []).append(restarts)
            if sum(len(r.objective) for r in waiting[i]) == len(batch[i].seeds):
                complete = concatenate_runs(waiting.pop(i))
                if not np.isfinite(complete.objective).any():
                    raise FloatingPointError(
                        f"{label(batch[i].estimator)}{type(batch[i].estimator).__name__}: the objective of every "
                        f"restart became NaN or infinite; nothing was fitted. {batch[i].estimator._remedy}"
                    )
                yield batch[i], complete


def join_models(models: Sequence[Model], owners: Sequence[int]) -> Model:
    """Make the model of some problems of a batch, each of one of these models, by position.

    It is the first model, which has the largest rank; weights that differ go into the state, data that differ are
    stacked.
    """
    columns = zip(*(m.terms for m in models), strict=True)
    joined = [_join_terms(terms, owners, f"weight of term {i}") for i, terms in enumerate(columns)]
    return replace(models[0], terms=joined)


def _join_terms(terms: Sequence[Any], owners: Sequence[int], name: str) -> Any:
    weights: list[Any] = [getattr(t, "weight", None) for t in terms]
    equal = all(w is weights[0] or w == weights[0] for w in weights)
    changed: dict[str, Any] = {} if equal else {"weight": Weight(name, tuple(map(float, weights)))}
    data: list[Any] = [getattr(terms[i], "data", None) for i in owners]
    if any(X is not data[0] for X in data):
        changed["data"] = Stacked.of(data)
    elif data[0] is not getattr(terms[0], "data", None):
        changed["data"] = data[0]
    return replace(terms[0], **changed) if changed else terms[0]


def stack_starts(
    batch: list[Member], model: Model, problems: list[Problem], label: Callable[[Any], str]
) -> dict[str, Tensor]:
    """Stack starts, and weights that differ: of one problem as they are, of several with a batch dimension."""
    starts = []
    for i, restart in problems:
        member = batch[i]
        with labelled(label, member.estimator):
            start = member.estimator._start(member.inputs, member.model, member.seeds, restart)
        missing = model.rank - member.model.rank  # zero columns, which every rule that is used keeps at exactly zero
        starts.append([pad_columns(F, missing) if missing else F for F in start.values()])
    state = dict(zip(start, starts[0] if len(starts) == 1 else init.stack(starts), strict=True))
    device = batch[0].inputs.data.device
    weights = [getattr(t, "weight", None) for t in model.terms]
    for weight in (w for w in weights if isinstance(w, Weight)):
        values = torch.tensor([weight.values[i] for i, _ in problems], dtype=torch.float64, device=device)
        state[weight.name] = values[0] if len(starts) == 1 else values
    return state


def publish(member: Member, run: Run) -> None:
    """Set everything that is published, when nothing can fail any more."""
    results = member.estimator._results(member.inputs, member.learnt, member.model, run)
    results = results if member.inputs.data.sums.alone else own_results(member.inputs, results)
    results["fit_info_"]["seeds"] = member.seeds
    vars(member.estimator).update({**deepcopy(dict(member.noted)), **select_published(member.learnt), **results})


def select_published(learnt: Learnt) -> dict[str, Any]:
    """Select what was learnt and is published, names with an underscore; no two estimators share an array."""
    shown = {name: value for name, value in learnt.items() if name.endswith("_") or name.startswith("_")}
    return {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in shown.items()}


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
