"""Restarts of one fit that are computed apart, and joined: the outcome is that of the single fit."""

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np
import torch
from sklearn.base import clone

from ...core.solve.history.result import find_best
from ..shared.fitting import draw_seeds
from ..shared.parameters import GivenSeeds


def take_restarts(estimator: Any, seed: Any, share: Sequence[int]) -> Any:
    """Make an estimator, not fitted, that runs some of the restarts which `random_state=seed` begins.

    The first restart of all begins as `init` says, all others at random. Instead of the seed, seeds of all restarts.
    """
    seeds = draw_seeds(clone(estimator).set_params(random_state=seed))
    made = clone(estimator).set_params(n_init=len(share), random_state=GivenSeeds([seeds[r] for r in share]))
    return made if 0 in share else made.set_params(init="random")


def join_restarts(estimator: Any, seed: Any, fits: Mapping[tuple[int, ...], Any]) -> Any:
    """Join fits of `take_restarts`, by the restarts that each has run; their best is what a single fit publishes."""
    shares = sorted(fits)
    restarts = [r for share in shares for r in share]
    missing = sorted(set(range(estimator.n_init)) - set(restarts))
    if missing or len(restarts) != estimator.n_init:
        raise ValueError(f"restarts {missing or restarts} of {estimator.n_init} are missing, or there twice")
    order = np.argsort(restarts)
    tables = [fits[share].restarts_ for share in shares]
    joined = {key: _concatenate([table[key] for table in tables], order) for key in tables[0]}
    dtype = getattr(torch, fits[shares[0]].fit_info_["dtype"])
    best = find_best(joined["loss"], dtype)
    model = copy(fits[next(share for share in shares if best in share)])
    model.set_params(n_init=estimator.n_init, random_state=seed, init=estimator.init)
    seeds = draw_seeds(clone(estimator).set_params(random_state=seed))
    model.fit_info_ = {**model.fit_info_, "seeds": seeds}
    if estimator.n_init > 1:
        model.restarts_ = joined
    else:
        del model.restarts_
    return model


def _concatenate(values: list[Any], order: np.ndarray) -> Any:
    """Put tables of restarts one below the other, in the order of the restarts."""
    if isinstance(values[0], Mapping):
        return {key: _concatenate([v[key] for v in values], order) for key in values[0]}
    if isinstance(values[0], list | tuple):
        return [_concatenate(list(parts), order) for parts in zip(*values, strict=True)]
    if isinstance(values[0], torch.Tensor):
        return torch.cat(values)[torch.from_numpy(order).to(values[0].device)]
    return np.concatenate(values)[order]
