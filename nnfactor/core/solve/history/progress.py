"""What callbacks are told of a run, and the logger of the package."""

import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...terms.base import describe

try:
    import resource
except ImportError:  # Windows has none
    resource = None  # type: ignore[assignment]

LOG = logging.getLogger("nnfactor")  # silent until the user configures logging, as libraries are
LOG.addHandler(logging.NullHandler())


@dataclass(frozen=True, eq=False)
class Progress:
    """What a callback gets at every reading: all problems that still run, and the factors of the best of them.

    A true answer of the callback ends the run. A callback with a method `close()` is told of the end of every run,
    whatever ended it. `nnfactor.callbacks` has some that are ready.
    """

    name: str  # of the run: the class of the estimator
    iteration: int
    max_iter: int
    objective: float  # the lowest
    objectives: np.ndarray  # (n_running,), in the order of `running`
    running: np.ndarray  # (n_running,): numbers of the problems that still run, such as restarts
    seconds: float
    state: Mapping[str, Tensor] = field(repr=False)  # the run's own factors, of all problems: not to be written to
    batched: bool = field(repr=False)  # whether they have a batch dimension

    @cached_property
    def factors(self) -> dict[str, Tensor]:
        """Copy the factors of the best problem, when they are first asked for."""
        best = find_lowest(self.objectives)
        return {name: (F[best] if self.batched else F).clone() for name, F in self.state.items()}

    @property
    def memory(self) -> int:
        """Measure the memory in use now, in bytes: allocated on the CUDA device, or resident of the process."""
        device = next(iter(self.state.values())).device
        return torch.cuda.memory_allocated(device) if device.type == "cuda" else resident_bytes()

    def __repr__(self) -> str:
        reached = f"iteration={self.iteration}, objective={self.objective:.6g}, seconds={self.seconds:.3g}"
        return f"Progress({reached}, {len(self.running)} running, {describe_all(self.factors)})"


Callback = Callable[[Progress], Any]


def list_callbacks(callback: Callback | Sequence[Callback] | None) -> list[Callback]:
    """List callbacks: none, one or several."""
    if callback is None:
        return []
    several = [callback] if callable(callback) else callback
    if not isinstance(several, list | tuple) or not all(map(callable, several)):
        raise ValueError(f"callback must be a function, a list of functions or None, got {callback!r}")
    return list(several)


def close_callbacks(callbacks: Sequence[Callback]) -> None:
    """Tell callbacks that want to know of it that the run has ended."""
    for callback in callbacks:
        getattr(callback, "close", lambda: None)()


def find_lowest(objectives: np.ndarray) -> int:
    """Find the lowest objective; NaN are the last choice."""
    return int(np.where(np.isnan(objectives), np.inf, objectives).argmin())


def describe_all(factors: Mapping[str, Tensor]) -> str:
    """Name kind and shape of every factor."""
    return ", ".join(f"{name} {describe(F)}" for name, F in factors.items())


def resident_bytes() -> int:
    """Read how much memory of the process is resident; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # no Linux: the most that it has been
        usage = resource and resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return int(usage or 0) * (1 if sys.platform == "darwin" else 1024)
