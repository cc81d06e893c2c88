"""Lists of tensors with named modes, as users hand them in: compared before anything moves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..shared.inputs import Inputs


@dataclass(frozen=True)
class TensorInputs(Inputs):
    """Several tensors; `places` says which of the fitted ones they are."""

    places: tuple[int, ...] = ()


def read_modes(modes: Any) -> tuple[tuple[str, ...], ...]:
    """Read names of modes; refuse repeated ones, matrices of fewer than two, and tensors that share none."""
    if isinstance(modes, str) or not isinstance(modes, Sequence) or not len(modes):
        raise ValueError(f"modes must be a list of tuples of names, such as [('sample', 'gene')], got {modes!r}")
    for p, names in enumerate(modes):
        ok = isinstance(names, Sequence) and not isinstance(names, str) and all(isinstance(m, str) for m in names)
        if not ok or len(names) < 2 or len(set(names)) < len(names):
            raise ValueError(f"modes[{p}] must hold two or more different names, got {names!r}")
        others = {m for q, other in enumerate(modes) if q != p for m in other}
        if len(modes) > 1 and not others & set(names):
            raise ValueError(f"modes[{p}]={tuple(names)} shares no mode with the other tensors; fit it by itself")
    return tuple(map(tuple, modes))


def check_weights(weights: Any, n_tensors: int) -> np.ndarray:
    """Read one positive weight for each tensor, 1 by default."""
    try:
        found = np.ones(n_tensors) if weights is None else np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError):
        found = np.zeros(0)
    if found.shape != (n_tensors,) or not (np.isfinite(found).all() and (found > 0).all()):
        raise ValueError(f"weights must be {n_tensors} numbers > 0, one for each tensor, got {weights!r}")
    return found


def list_tensors(X: Any, modes: Sequence[Sequence[str]], sample: str | None) -> dict[int, Any]:
    """List the tensors that are given by number; for `transform` those that have samples and are not None."""
    if not isinstance(X, list | tuple):
        X = [X] if len(modes) == 1 else None
    if X is None or len(X) != len(modes):
        found = "no list" if X is None else f"{len(X)} tensors"
        left_out = "" if sample is None else "; None for one that was not measured"
        raise ValueError(
            f"X must be a list of {len(modes)} tensors, one for each entry of modes{left_out}; got {found}"
        )
    if sample is None:
        return dict(enumerate(X))
    given = {p: A for p, A in enumerate(X) if A is not None and sample in modes[p]}
    if not given:
        raise ValueError(f"X has no tensor with mode {sample!r}; transform needs at least one")
    return given


def check_split(split: set[int], modes: Sequence[Sequence[str]]) -> None:
    """Refuse tensors with samples of which some are split over processes and some are not, or in another mode."""
    sample = modes[0][0]
    for p, names in enumerate(modes) if split else ():
        if (p in split) != (sample in names) or sample in names[1:]:
            raise ValueError(
                f"X[{p}] has the modes {tuple(names)}; where samples are Sharded, tensors with {sample!r} as their "
                "first mode are, and all others are handed in whole by every process"
            )


def check_sizes(
    given: Mapping[int, Any], modes: Sequence[Sequence[str]], known: Mapping[str, int] | None = None
) -> None:
    """Refuse tensors of another order than their names say, or that differ in a mode that they share."""
    sizes: dict[str, tuple[int, str]] = {m: (d, "the data of fit have") for m, d in (known or {}).items()}
    for p, A in given.items():
        shape, names = tuple(getattr(A, "shape", None) or np.shape(A)), tuple(modes[p])
        if len(shape) != len(names):
            raise ValueError(f"X[{p}] has shape {shape}; its modes are {names}, one name for each axis")
        for m, d in zip(names, shape, strict=True):
            size, where = sizes.setdefault(m, (d, f"X[{p}] has"))
            if size != d:
                raise ValueError(f"X[{p}] has {d} in mode {m!r} (shape {shape}), but {where} {size}")
