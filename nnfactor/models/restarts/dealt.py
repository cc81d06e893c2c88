"""Fits that are dealt over processes, all of which have the data: no message until the last fit has ended."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch.distributed as dist
from sklearn.base import clone

from ...core.data.distributed.process_sums import collect
from ...core.data.distributed.watch import Watch, watch
from ..shared.fitting import draw_seeds
from ..shared.parameters import GivenSeeds
from .shares import join_restarts, take_restarts

Fit = Callable[[list[Any], list[int]], Sequence[Any]]  # of estimators, each with the position of its data


def read_group(distributed: Any) -> Watch | None:
    """Read what a user says of processes: None, "auto" for those of the group that exists, or a process group.

    All processes of the group must ask. None is returned where there is one process.
    """
    if distributed is None:
        return None
    there = dist.is_available() and dist.is_initialized()
    if isinstance(distributed, str):
        if distributed != "auto":
            raise ValueError(f"distributed={distributed!r}; use None, 'auto' or a process group of torch.distributed")
        distributed = dist.group.WORLD if there else None
    elif not there:
        raise ValueError("distributed is a process group, and torch.distributed has none; use 'auto' or None")
    if distributed is None or dist.get_world_size(distributed) == 1:
        return None
    return watch(distributed)


def deal(watched: Watch, n_jobs: int, compute: Callable[[list[int]], Any]) -> list[Any]:
    """Let every process compute its share of some jobs, in turn; return what all have found, in the order of the ranks.

    An error of one process is raised in all. Nobody waits in vain for a process that has ended (`Watch.meet`).
    """
    failure: Exception | None = None
    mine: Any = None
    try:
        mine = compute([*range(watched.rank, n_jobs, watched.size)])
    except Exception as error:
        failure = error
    watched.meet()
    outcomes = collect((failure, mine), watched)
    for rank, (failed, _) in enumerate(outcomes):
        if failed is not None:
            failed.add_note(f"in rank {rank} of {watched.size}")
            raise failed
    return [found for _, found in outcomes]


def same(watched: Watch, make: Callable[[], Any]) -> Any:
    """Let the first process draw something for all."""
    told = [make() if watched.rank == 0 else None]
    watched.tell_all(told)
    return told[0]


def fit_dealt(estimators: Sequence[Any], watched: Watch, fit: Fit) -> None:
    """Fit estimators in place, their restarts dealt over processes: all get what one process would, up to rounding.

    Restarts of mini-batches visit the same batches, and stay together.
    """
    seeds = same(watched, lambda: [draw_seeds(estimator) for estimator in estimators])
    single = [getattr(estimator, "batch_size", None) is not None for estimator in estimators]
    jobs = [(i, r) for i, own in enumerate(seeds) for r in ([None] if single[i] else range(len(own)))]
    found = deal(watched, len(jobs), partial(_fit_share, estimators, seeds, jobs, fit))
    for i, estimator in enumerate(estimators):
        fits = {share: fitted for own in found for share, fitted in own.get(i, {}).items()}
        joined = next(iter(fits.values())) if single[i] else join_restarts(estimator, GivenSeeds(seeds[i]), fits)
        given = estimator.get_params(deep=False)
        vars(estimator).update({**vars(joined), **given})


def _fit_share(
    estimators: Sequence[Any],
    seeds: Sequence[list[int]],
    jobs: Sequence[tuple[int, int | None]],
    fit: Fit,
    own: list[int],
) -> Mapping[int, Mapping[tuple[int, ...], Any]]:
    """Fit some jobs, those of one estimator together; no callback is sent to others."""
    mine: dict[int, list[Any]] = {}
    for i, restart in (jobs[job] for job in own):
        mine.setdefault(i, []).append(restart)
    made = []
    for i, share in mine.items():
        drawn = GivenSeeds(seeds[i])
        whole = share == [None]
        part = (
            clone(estimators[i]).set_params(random_state=drawn) if whole else take_restarts(estimators[i], drawn, share)
        )
        made.append(part.set_params(callback=estimators[i].callback))
    fits = fit(made, list(mine)) if made else []
    return {i: {tuple(mine[i]): f.set_params(callback=None, **_unsent(f))} for i, f in zip(mine, fits, strict=True)}


def _unsent(estimator: Any) -> dict[str, None]:
    """Return parameters that may hold functions, which cannot be sent."""
    return {"terms": None} if "terms" in estimator.get_params(deep=False) else {}
