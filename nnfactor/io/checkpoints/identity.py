"""What a checkpoint must know of a fit to be the right one: the estimators and their data."""

import os
from collections.abc import Sequence
from typing import Any

from .digests import describe_value, digest
from .fit_checkpoint import FitCheckpoint

MAY_CHANGE = ("callback", "verbose")  # who is told of a fit does not change it


def open_checkpoint(
    path: str | os.PathLike[str] | None, every: float, estimators: Sequence[Any], **more: Any
) -> FitCheckpoint | None:
    """Open the checkpoint of estimators of one class, None without a path; `more` must be equal as well."""
    if path is None:
        return None
    about = {"class": type(estimators[0]).__name__, "number of estimators": str(len(estimators))}
    columns: dict[str, list[str]] = {}
    for estimator in estimators:
        for name, value in estimator.get_params(deep=False).items():
            if name not in MAY_CHANGE:
                columns.setdefault(name, []).append(describe_value(value))
    for name, values in columns.items():
        about[name] = values[0] if len(set(values)) == 1 else f"[{', '.join(values)}]"
    return FitCheckpoint(path, every, about | {name: describe_value(value) for name, value in more.items()})


def expect_data(checkpoint: FitCheckpoint, read: Sequence[tuple[Any, Any]]) -> None:
    """Refuse a checkpoint of other data than those that were read, with their labels."""
    for inputs, y in read:
        data = inputs.data
        kind = f"{type(data).__name__} {data.shape} {str(data.dtype).removeprefix('torch.')} on {data.device.type}"
        checkpoint.expect("X", f"{kind} with digest {digest(inputs)}")
        checkpoint.expect("y", describe_value(y))
