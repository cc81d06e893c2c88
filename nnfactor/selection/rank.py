"""Choose the number of components by held-out entries, by the stability of restarts, or by core consistency.

All ranks and restarts of the full data are one batch (`batch_fit`), as are all ranks of a fold. A fold starts from what
it may see alone. Standard errors are of differences over the same folds: losses of folds differ by what is in them.

Where noise grows with the entries, as that of counts and of proportions does, least squares without weights fits
components to the noise of the largest entries, at the right rank too. Weights that are products over rows and columns
leave the rank as it is. A tensor has no such weights: where its noise grows, folds minimise the Kullback-Leibler
divergence, from rough least squares on. Fits to all data are always those of the estimator.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Generic, TypeVar

import numpy as np
import torch

from ..core.data.distributed.watch import Watch
from ..metrics.components import core_consistency
from ..models.restarts.dealt import deal, read_group
from ..models.shared.base import Factorization
from .blocks import GROUPS
from .held_out import HIDDEN
from .html import html_table
from .stability import restart_factors, summarize_groups, summarize_parts
from .study import Criterion, RankStudy

Model = TypeVar("Model", bound=Factorization)

STABLE, LEAST = 0.8, 0.2  # mean and smallest silhouette of a stable rank (Alexandrov et al. 2020)

CONSISTENT = 80.0  # core consistency of a trilinear model, per cent (Bro and Kiers 2003 call 90 very, 50 barely)

# Entries that a fold holds out for each that it fits: folds are not independent, as one over their number supposes.
SHARED = {"bicross": 1 / (GROUPS - 1) ** 2, "speckled": HIDDEN / (1 - HIDDEN)}

HELD_OUT = {"bicross": "a block of rows and columns", "speckled": "5 % of the entries"}


@dataclass(frozen=True, repr=False, eq=False)
class RankSelection(Generic[Model]):
    """What `select_rank` found.

    Attributes
    ----------
    rank : int or None
        The suggested number of components; None: no clear rank.
    criterion : str
    reason : str
        The rule in words, with the numbers that decided.
    table : pandas.DataFrame, or dict of arrays where pandas is missing
        One row for each rank: "rank", "loss" and "error" (`loss_`, `reconstruction_err_`), and as far as they apply
        "held_out" (mean loss of held-out entries, as a share of that of a constant) and its standard error
        "held_out_se", "restarts_mean", "restarts_min" (silhouettes of restarts of all data; NaN for one component),
        "stability_mean", "stability_min" (the same of fits to halves of the samples), "core_consistency".
    models : dict of rank -> estimator, fitted to all of X
    losses : (n_folds, 2 + n_ranks) array or None
        Mean loss of held-out entries for every fold, by which ranks were compared (see `criterion`): of a constant, of
        one component, then of each rank. Data whose squares are out of range are divided by a power of two for that.
    """

    rank: int | None
    criterion: str
    reason: str
    table: Any
    models: Mapping[int, Model]
    losses: np.ndarray | None = field(default=None)

    @property
    def model(self) -> Model:
        """The estimator of the suggested rank, fitted to all of X; ValueError where no rank is clear."""
        if self.rank is None:
            raise ValueError(f"there is no clear rank: {self.reason}; take one of models")
        return self.models[self.rank]

    def __repr__(self) -> str:
        ranks = [int(k) for k in self.table["rank"]]
        return f"RankSelection(rank={self.rank}, criterion={self.criterion!r}, ranks={ranks[0]}..{ranks[-1]})"

    def _repr_html_(self) -> str:
        """Show the table of ranks in notebooks, the suggested one bold, and the reason."""
        columns = {str(name): np.asarray(self.table[name]).tolist() for name in self.table}
        marked = [i for i, rank in enumerate(columns["rank"]) if rank == self.rank]
        table = html_table(list(columns), list(zip(*columns.values(), strict=True)), marked)
        return f"<div><p>RankSelection: {escape(self.reason)}</p>{table}</div>"


def select_rank(
    estimator: Model,
    X: Any,
    ranks: Iterable[int],
    criterion: Criterion = "auto",
    *,
    n_init: int | None = None,
    random_state: Any = None,
    weights: Any = None,
    y: Any = None,
    distributed: Any = None,
) -> RankSelection[Model]:
    """Choose the number of components.

    Folds of rows, as of `GridSearchCV`, always favour more components: coefficients are solved on the entries that
    score them. Here no entry that is predicted has been seen.

    Parameters
    ----------
    estimator : NMF, NTF or another factorization
        Its parameters are used, but for `n_components`. Known components (`fixed`) stay at every rank, and count.
    X, ranks : data as for `fit`, and an iterable of int, each >= 1
    criterion : {"auto", "bicross", "speckled", "stability", "core_consistency"}
        "bicross" (`NMF` and `NTF`; "auto" for matrices: no masks, sparse data as they are): blocks of rows and columns
        are held out, and predicted from fits to the others (Owen and Perry 2009). "speckled" (models with `missing`;
        "auto" for tensors, and with `fixed` or `terms`): 5 % of the entries are hidden (Wold 1978). Unless factors have
        penalties or bounds, both weigh the squared distance of a matrix by the means of rows and columns, and
        "speckled" takes the Kullback-Leibler divergence for a dense tensor whose noise grows with its entries. They
        take the smallest rank within one standard error of the least loss, and none if one component, or a constant,
        predicts as well. "stability": the largest rank whose fits to random halves of the samples (or restarts, where a
        model holds something for each sample) have silhouettes of 0.8 in the mean and 0.2 in the least component
        (Alexandrov et al. 2020). "core_consistency" (tensors): the largest rank of at least 80 % (Bro and Kiers 2003).
    n_init : int, optional
        Restarts for each rank, and halves. Default: those of the estimator if more than one, else 5, and 20 halves.
    random_state : int, RandomState, Generator or None: draws folds and starts; None: that of the estimator
    weights : of the shape of X, optional, as for `fit`; held-out losses are weighted, too
    y : labels (n_samples,), of models that use them, in all fits; halves have samples of every class
    distributed : {"auto"}, process group or None, as for `batch_fit`: restarts and folds are dealt over processes

    Returns
    -------
    RankSelection with `rank`, `reason`, `table`, `models` (of all ranks, fitted to all of X), and `model`

    Raises
    ------
    ValueError
        Ranks < 1, below the number of known components, or too many for a fold; a criterion that does not go with the
        estimator.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from nnfactor import NMF, select_rank
    >>> found = select_rank(NMF(2), load_iris().data, range(1, 4), random_state=0)
    >>> found.rank, sorted(found.models)
    (3, [1, 2, 3])
    """
    asked = {"n_init": n_init, "random_state": random_state, "weights": weights, "y": y}
    study = RankStudy.plan(estimator, X, ranks, criterion, **asked)
    return _compute(study, read_group(distributed))


def _compute(study: RankStudy, watched: Watch | None) -> RankSelection[Any]:
    """Compute all of a study, in this process or with others."""
    if watched is None:
        return conclude(study, study.fit(), [study.compute(i) for i in range(len(study.parts))])
    study = study.shared(watched)
    models, n = study.fit(watched.given), len(study.parts)
    found = deal(watched, n, lambda own: {i: study.compute(i) for i in own})
    return conclude(study, models, [next(some[i] for some in found if i in some) for i in range(n)])


def conclude(study: RankStudy, models: Mapping[int, Any], parts: Sequence[Any]) -> RankSelection[Any]:
    """Apply the rule of the criterion to fits of all ranks, and to what each part of the study has given."""
    losses = np.array(parts) if study.criterion in HELD_OUT else None
    resampled = summarize_parts(parts) if parts and losses is None else None
    columns = _columns(study.criterion, models, study.X, losses, resampled)
    rank, reason = _decide(study.criterion, columns, losses)
    if rank is not None:
        reason += _at_the_end(rank, study)
    return RankSelection(rank, study.criterion, reason, _as_table(columns), models, losses)


def _columns(
    criterion: str, models: Mapping[int, Any], X: Any, losses: np.ndarray | None, resampled: Any
) -> dict[str, np.ndarray]:
    """Make the columns of the table, one entry for each rank."""
    found = {"rank": np.array(list(models)), "loss": np.array([m.loss_ for m in models.values()])}
    found["error"] = np.array([m.reconstruction_err_ for m in models.values()])
    if losses is not None:
        shares = _shares(losses)
        found["held_out"] = shares.mean(0)[2:]
        found["held_out_se"] = _standard_errors(shares, criterion)[2:]
    found |= _pair_columns("restarts", [_restarts(m) for m in models.values()])
    if resampled is not None:
        found |= _pair_columns("stability", resampled)
    first = next(iter(models.values()))
    if len(getattr(first, "factors_", ())) > 1 and not first._listed_views:
        found["core_consistency"] = np.array([_consistency(m, X) for m in models.values()])
    return found


def _pair_columns(name: str, pairs: list[tuple[float, float]]) -> dict[str, np.ndarray]:
    values = np.array(pairs)
    return {f"{name}_mean": values[:, 0], f"{name}_min": values[:, 1]}


def _restarts(model: Any) -> tuple[float, float]:
    """Compute the mean and the least silhouette of the components of restarts; NaN where there are none."""
    return summarize_groups(*restart_factors(model)) if "restarts_" in vars(model) else (np.nan, np.nan)


def _consistency(model: Any, X: Any) -> float:
    """Compute the core consistency of a CP model of dense, complete data; NaN otherwise."""
    A = X if isinstance(X, torch.Tensor) else np.ma.asanyarray(X)
    shape = (len(model.embedding_), *(len(F) for F in model.factors_))
    if isinstance(A, torch.Tensor):
        A = A.to_dense() if A.layout == torch.strided else A
    if (isinstance(A, torch.Tensor) and A.layout != torch.strided) or np.ma.is_masked(A) or A.dtype == object:
        return np.nan
    A = A.reshape(shape)
    return core_consistency(model, A) if bool((A == A).all()) else np.nan


def _decide(criterion: str, columns: Mapping[str, np.ndarray], losses: np.ndarray | None) -> tuple[int | None, str]:
    """Apply the rule of a criterion, and say it in words."""
    ranks = columns["rank"]
    if losses is not None:
        return _least_within_one_error(ranks, losses, HELD_OUT[criterion], criterion)
    if criterion == "stability":
        of = "stability" if "stability_mean" in columns else "restarts"
        mean, least = columns[f"{of}_mean"], columns[f"{of}_min"]
        good = (mean >= STABLE) & (least >= LEAST)
        rule = f"a mean silhouette of at least {STABLE} and a least one of at least {LEAST}"
        note = "" if of == "stability" else "; the fits are restarts of all data"
        note += "; it is undefined for one component" if ranks[0] == 1 else ""
        values = lambda i: f"{mean[i]:.2f} and {least[i]:.2f}"
    else:
        consistency = columns["core_consistency"]
        good, rule, note = consistency >= CONSISTENT, f"a core consistency of at least {CONSISTENT:g} %", ""
        values = lambda i: f"{consistency[i]:.0f} %"
    if not good.any():
        return None, f"no clear rank by {criterion}: none has {rule}{note}"
    i = int(np.flatnonzero(good)[-1])
    return int(ranks[i]), f"{ranks[i]} by {criterion}: the largest rank with {rule} ({values(i)}){note}"


def _shares(losses: np.ndarray) -> np.ndarray:
    """Divide the losses of every fold by that of a constant; where that is exact, nothing is better."""
    constant = losses[:, :1]
    return np.where(constant > 0, losses / np.where(constant > 0, constant, 1), 1.0)


def _standard_errors(values: np.ndarray, criterion: str) -> np.ndarray:
    """Estimate the standard error of the mean over folds, whose fits share data (Nadeau and Bengio 2003)."""
    return values.std(0, ddof=1) * np.sqrt(1 / len(values) + SHARED[criterion])


def _least_within_one_error(ranks: np.ndarray, losses: np.ndarray, what: str, criterion: str) -> tuple[int | None, str]:
    """Take the smallest rank whose held-out loss is within one standard error of the least: of paired differences."""
    shares = _shares(losses)
    best = int(shares.mean(0).argmin())
    differences = shares - shares[:, [best]]
    within = differences.mean(0) <= _standard_errors(differences, criterion)
    folds = f"{len(shares)} folds, each of which holds out {what}"
    tried = [k for k in (1, *ranks)]
    if within[0]:
        return None, f"no clear rank by {criterion}: over {folds}, no rank predicts better than a constant"
    if within[1] and ranks[0] > 1:
        return None, f"no clear rank by {criterion}: over {folds}, no rank predicts better than one component"
    first = int(np.flatnonzero(within[2:])[0])
    k, least = int(ranks[first]), tried[best - 1]
    return k, (
        f"{k} by {criterion}: the smallest rank within one standard error of the least held-out loss, that of rank "
        f"{least}; mean over {folds}"
    )


def _at_the_end(rank: int, study: RankStudy) -> str:
    """Say what to do where the largest rank that was tried is suggested."""
    if len(study.ranks) == 1 or rank < study.ranks[-1]:
        return ""
    if rank == study.largest_judged:
        return f"; it is the largest that {study.criterion} can judge here: for more use criterion='stability'"
    return "; it is the largest that was tried: try more"


def _as_table(columns: dict[str, np.ndarray]) -> Any:
    """Make a data frame where pandas is there."""
    try:
        import pandas as pd
    except ImportError:
        return columns
    return pd.DataFrame(columns)
