"""What a checkpoint must know of a fit to be the right one: the estimators and their data."""

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ...core.arguments import nonnegative
from ...core.data.base import Data
from ...core.data.distributed.sharded import Sharded
from ...core.factors import as_factor
from ...core.labels import to_host
from .digests import describe_value, digest
from .fit_checkpoint import BEGIN_ANEW, FitCheckpoint
from .shared_checkpoint import SharedCheckpoint

CLOSE = {torch.float64: 1e-11, torch.float32: 1e-6}  # differences of measures that come of rounding

AnyCheckpoint = FitCheckpoint | SharedCheckpoint

MAY_CHANGE = ("callback", "verbose")  # who is told of a fit does not change it


def open_checkpoint(
    path: str | os.PathLike[str] | None, every: float, estimators: Sequence[Any], X: Any = None, **more: Any
) -> AnyCheckpoint | None:
    """Open the checkpoint of estimators of one class, None without a path; `more` must be equal as well.

    Where the samples of X are split over processes, the first of them keeps it.
    """
    if path is None:
        return None
    shards = [A for A in (X if isinstance(X, list | tuple) else [X]) if isinstance(A, Sharded)]
    if shards:
        nonnegative("checkpoint_every", every)
        return SharedCheckpoint(shards[0].sums, path, float(every), lambda: _open(path, every, estimators, more))
    return _open(path, every, estimators, more)


def _open(
    path: str | os.PathLike[str], every: float, estimators: Sequence[Any], more: Mapping[str, Any]
) -> FitCheckpoint:
    about = {"class": type(estimators[0]).__name__, "number of estimators": str(len(estimators))}
    columns: dict[str, list[str]] = {}
    for estimator in estimators:
        for name, value in estimator.get_params(deep=False).items():
            if name not in MAY_CHANGE:
                columns.setdefault(name, []).append(describe_value(value))
    for name, values in columns.items():
        about[name] = values[0] if len(set(values)) == 1 else f"[{', '.join(values)}]"
    return FitCheckpoint(path, every, about | {name: describe_value(value) for name, value in more.items()})


def expect_data(checkpoint: AnyCheckpoint, read: Sequence[tuple[Any, Any]]) -> None:
    """Refuse a checkpoint of other data than those that were read, with their labels."""
    for inputs, y in read:
        data = inputs.data
        if isinstance(checkpoint, SharedCheckpoint) or checkpoint.of_parts:
            checkpoint.splits_rows = data.sums.held is not None
            for view in inputs.views or (inputs,):
                _expect_measures(checkpoint, view.unscaled, None if checkpoint.splits_rows else y)
            continue
        kind = f"{type(data).__name__} {data.shape} {str(data.dtype).removeprefix('torch.')} on {data.device.type}"
        checkpoint.expect("X", f"{kind} with digest {digest(inputs)}")
        checkpoint.expect("y", describe_value(y))


def _expect_measures(checkpoint: AnyCheckpoint, data: Data, y: Any) -> None:
    """Compare data by what does not depend, but for rounding, on how the samples are split."""
    labels = None if y is None else digest([str(label) for label in to_host(y)])
    kind = f"{tuple(data.shape)} {str(data.dtype).removeprefix('torch.')}, labels {labels}"
    measures = measure(data)
    known = checkpoint.recall("kind of X", kind), checkpoint.recall("measures of X", measures)
    near = CLOSE[data.dtype] * max(measures[0], known[1][0])
    differs = any(abs(a - b) > near for a, b in zip(measures, known[1], strict=True))
    if known[0] != kind or differs:
        told = f"X is {known[0]}, now {kind}" if known[0] != kind else "samples of X, or their order, differ"
        raise ValueError(
            f"checkpoint={os.fspath(checkpoint.path)!r} is of other data: {told}; give the same data, {BEGIN_ANEW}"
        )


def measure(data: Data) -> list[float]:
    """Measure data by the largest sum that a product can reach, and by products with numbers for every sample.

    Every sample has weights of its own, so that their order counts.
    """
    draw = torch.Generator("cpu").manual_seed(0)
    drawn = torch.rand(data.shape[0], 3, generator=draw, dtype=torch.float64, device="cpu")
    weights = drawn.to(data.device, data.dtype)
    rows = as_factor(weights) if data.sums.held is None else data.sums.own(weights)
    ones = [torch.ones(d, 3, dtype=data.dtype, device=data.device) for d in data.shape[1:]]
    P = data.mttkrp([rows, *ones], 1).double()
    tilt = torch.linspace(0.5, 1.5, len(P), dtype=torch.float64, device=P.device)
    reach = float(data.sqnorm().double().sqrt()) * math.prod(data.shape) ** 0.5
    return [reach, *(tilt @ P).tolist()]
