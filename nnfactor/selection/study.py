"""What choosing a rank computes: fits of all ranks to all data, and parts of which each can be computed by itself.

`select_rank` computes everything at once. Several machines may share the parts: folds and parts of the samples follow
from the seed.
"""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from ..core.data.base import Data
from ..core.data.distributed.watch import Watch
from ..core.labels import encode_labels
from ..models.factorization.nmf import NMF
from ..models.restarts.dealt import same
from ..models.shared.base import Factorization
from ..models.shared.batch import batch_fit
from ..models.shared.constraints import is_asked, known_components
from ..models.shared.fitting import read_random_state, read_weighted
from ..models.shared.parameters import one_of, whole
from .arrays import as_indexable, divide
from .blocks import draw_blocks, most_components
from .held_out import draw_speckles, plain, predict_block, predict_speckles
from .stability import can_resample, draw_parts, fit_part

Criterion = Literal["auto", "bicross", "speckled", "stability", "core_consistency"]

RESTARTS, PARTS = 5, 20  # for each rank unless said otherwise: of all data, and of parts for "stability"

DRAW: dict[str, Any] = {"bicross": draw_blocks, "speckled": draw_speckles}
PREDICT: dict[str, Any] = {"bicross": predict_block, "speckled": predict_speckles}


@dataclass(frozen=True, eq=False)
class RankStudy:
    """Estimators of all ranks, data, and parts: folds that are held out, or random halves of the samples."""

    estimator: Any
    X: Any
    weights: Any
    ranks: list[int]
    criterion: str
    n_init: int  # restarts of all data for each rank
    seed: int
    parts: Sequence[Any]
    y: Any = None

    @classmethod
    def plan(
        cls,
        estimator: Factorization,
        X: Any,
        ranks: Any,
        criterion: Criterion = "auto",
        *,
        n_init: int | None = None,
        random_state: Any = None,
        weights: Any = None,
        y: Any = None,
    ) -> Self:
        """Check what is asked, and draw the parts; arguments are those of `select_rank`."""
        chosen = _choose(estimator, X, criterion)
        ranks = _check(estimator, ranks, chosen, n_init, X)
        random = read_random_state(estimator.random_state if random_state is None else random_state)
        halves = chosen == "stability" and can_resample(estimator, X)
        if halves or chosen in DRAW:
            X = as_indexable(X, getattr(estimator, "sample_shape", None))
        if isinstance(X, Data) and chosen in DRAW:
            _check_blocks(estimator, X, chosen, weights)
        own = estimator.n_init if estimator.n_init > 1 else PARTS if chosen == "stability" else RESTARTS
        seed, runs = int(random.randint(2**31 - 1)), n_init or own
        study = cls(estimator, X, weights, ranks, chosen, RESTARTS if halves else runs, seed, (), y)
        parts: Sequence[Any] = draw_parts(X.shape[0], random, runs, study._codes) if halves else ()
        if chosen in DRAW:
            parts = DRAW[chosen](study.estimators([1, *ranks]), X, weights, random)
        return replace(study, parts=parts)

    def estimators(self, ranks: Sequence[int]) -> list[Any]:
        """Make the estimators of some ranks for all data; one component to compare with is free if more are known."""
        own, known = {"n_init": self.n_init, "random_state": self.seed}, known_components(self.estimator)
        asked = lambda k: {"n_components": k, **({"fixed": None} if k < known else {})}
        return [clone(self.estimator).set_params(**own, **asked(k)) for k in ranks]

    @property
    def largest_judged(self) -> int | None:
        """The largest rank that the criterion can judge for data of this size; None: it has no such limit."""
        return most_components(self.X.shape, self.parts) if self.criterion == "bicross" else None

    def shared(self, watched: Watch) -> Self:
        """Return the study as the first process has drawn it."""
        return replace(self, **same(watched, lambda: {"seed": self.seed, "parts": self.parts}))

    def fit(self, distributed: Any = None) -> dict[int, Any]:
        """Fit all ranks to all data, as one batch, or dealt over processes."""
        given = {"distributed": distributed} | ({} if self.weights is None else {"weights": self.weights})
        with _quiet():
            return dict(zip(self.ranks, batch_fit(self.estimators(self.ranks), self.X, self.y, **given), strict=True))

    def compute(self, i: int) -> list[Any]:
        """Compute a part: losses of what a fold holds out (of a constant, of one component, of the ranks), or fits."""
        with _quiet():
            if self.criterion in DRAW:
                tried = self.estimators(sorted({1, *self.ranks}))
                given = (self._scaled, self.weights, self.parts[i], self.y)
                constant, one, *more = PREDICT[self.criterion](tried, *given)
                return [constant, one, *([one] if self.ranks[0] == 1 else []), *more]
            made = [e.set_params(**plain(self.estimator)) for e in self.estimators(self.ranks)]
            return fit_part(made, self._scaled, self.weights, self.parts[i], self._codes)

    @cached_property
    def _codes(self) -> np.ndarray | None:
        """The classes of the samples as codes, of which parts can be taken; None without labels."""
        return None if self.y is None else encode_labels(self.y, self.X.shape[0])[0]

    @cached_property
    def _scaled(self) -> Any:
        """The data that parts are taken of, divided as a fit of all of them would: every part by the same number.

        By themselves parts and what is predicted of them would have factors whose products leave the range. What is
        asked of factors holds in the user's units.
        """
        if is_asked(self.estimator) or not isinstance(getattr(self.estimator, "init", ""), str):
            return self.X
        probe = clone(self.estimator).set_params(**plain(self.estimator))
        return divide(self.X, read_weighted(probe, self.X, True, self.weights).scale)


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", message=".*without any observed entry.*")
        yield


def _choose(estimator: Any, X: Any, criterion: str) -> str:
    """Choose what holds entries out: of matrices blocks, of tensors and for other models single entries."""
    one_of("criterion", criterion, ("auto", "bicross", "speckled", "stability", "core_consistency"))
    if criterion != "auto":
        return criterion
    tensor = len(getattr(X, "shape", ())) > 2 or getattr(estimator, "sample_shape", None) is not None
    able = hasattr(estimator, "missing") and not getattr(estimator, "_listed_views", False)
    if isinstance(estimator, NMF):
        return "speckled" if able and (tensor or _of_all_data(estimator)) else "bicross"
    return "speckled" if able else "stability"


def _check_blocks(estimator: Any, X: Data, criterion: str, weights: Any) -> None:
    """Refuse what parts of data in blocks cannot be: single entries, tensors, hidden entries."""
    why = "criterion='speckled' hides single entries" if criterion == "speckled" else None
    why = why or (f"X has {X.order} modes" if X.order > 2 else None)
    why = why or ("entries are missing or have weights" if weights is not None or estimator.missing else None)
    if why:
        raise ValueError(
            f"X is {type(X).__name__}, and {why}: of data in blocks only whole rows and columns of a plain matrix are "
            "held out; use criterion='stability', or an array in memory"
        )


def _of_all_data(estimator: Any) -> list[str]:
    """List the parameters that hold something of the shape of all data, which parts of them do not have."""
    return [name for name in ("fixed", "terms") if getattr(estimator, name, None)]


def _check(estimator: Any, ranks: Any, criterion: str, n_init: Any, X: Any) -> list[int]:
    """Refuse what cannot be; sort the ranks."""
    name, single = type(estimator).__name__, not getattr(estimator, "_listed_views", False)
    if not isinstance(estimator, Factorization):
        raise TypeError(f"estimator is {name}; it must be a factorization such as NMF(2), without components fitted")
    if "n_components" not in estimator.get_params(deep=False):
        raise ValueError(
            f"{name} has no single n_components whose values could be compared; fit it for each of its ranks"
        )
    fits = {"bicross": isinstance(estimator, NMF), "speckled": hasattr(estimator, "missing") and single}
    fits |= {"stability": True, "core_consistency": single and getattr(estimator, "_tensors", False)}
    if not fits[criterion]:
        others = [key for key, value in fits.items() if value]
        raise ValueError(f"criterion={criterion!r} does not go with {name}; use one of {others}")
    if criterion == "bicross" and (shaped := _of_all_data(estimator)):
        raise ValueError(
            f"criterion='bicross' fits parts of X, which {shaped[0]}= of all of X does not fit; use "
            "criterion='speckled' or 'stability'"
        )
    if n_init is not None:
        whole("n_init", n_init, least=1, also="None or ")
    if not isinstance(ranks, Iterable):
        raise ValueError(f"ranks must be whole numbers such as range(2, 11), got {ranks!r}")
    ranks = list(ranks)
    if len(set(map(str, ranks))) < len(ranks) == (getattr(X, "shape", None) or (None,))[0]:
        raise ValueError(
            "ranks has an entry for each sample, as labels have; use select_rank(estimator, X, ranks, y=labels)"
        )
    for k in ranks:
        whole("ranks", k, least=1)
    found = sorted({int(k) for k in ranks})
    if not found:
        raise ValueError("ranks is empty; give whole numbers such as range(2, 11)")
    if found[0] < (known := known_components(estimator)):
        raise ValueError(
            f"ranks begin with {found[0]}, but fixed= holds {known} components, which all ranks have; use ranks from "
            f"{known} on"
        )
    if criterion == "stability" and n_init == 1:
        raise ValueError("n_init=1: one run has no stability; use 10 or more")
    warn_of_large_ranks(estimator, X, found)
    return found


def warn_of_large_ranks(estimator: Any, X: Any, ranks: Sequence[int]) -> None:
    """Warn of more components than a matrix has rows or columns, where `init="auto"` changes to random starts."""
    shape = tuple(getattr(X, "shape", ()))
    plain_matrix = len(shape) == 2 and getattr(estimator, "sample_shape", None) is None
    starts = getattr(estimator, "init", None)
    if plain_matrix and isinstance(starts, str) and starts == "auto" and max(ranks, default=0) > min(shape):
        n, m = shape
        warnings.warn(
            f"n_components={max(ranks)} is more than a matrix of {n} x {m} determines: above {min(n, m)} "
            "init='auto' starts at random, as in scikit-learn, and every fit can be exact; use fewer",
            UserWarning,
            stacklevel=2,
        )
