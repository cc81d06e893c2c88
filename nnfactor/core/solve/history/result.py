"""How a run ended."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .progress import describe_all

Row = tuple[int, float, np.ndarray, Any]  # of the history: iteration, seconds, running problems, their objectives


ROUNDING = 1e-2  # times the root of eps: 1.5e-10 of an objective in float64, 3e-6 in float32


@dataclass
class Run:
    """How a run ended, problem by problem (arrays of length n_problems)."""

    factors: dict[str, Tensor]  # with a batch dimension if and only if the start had one
    objective: np.ndarray
    n_iter: np.ndarray
    converged: np.ndarray
    rows: list[Row] = field(repr=False)
    n_batches: int = 1  # mini-batches that an iteration visits
    stopped: bool = False  # whether the callback or the time ended it

    def __repr__(self) -> str:
        ends = f"objective {describe_range(self.objective)} after {describe_range(self.n_iter)} iterations"
        return f"Run({ends}, {self.converged.sum()} of {len(self.converged)} converged, {describe_all(self.factors)})"

    def history(self, problem: int = 0) -> dict[str, np.ndarray]:
        """Return arrays iteration, objective, seconds of equal length; entry 0 is the start."""
        mine = [(i, v[ids == problem][0], s) for i, s, ids, v in self.rows if problem in ids]
        return dict(zip(("iteration", "objective", "seconds"), map(np.array, zip(*mine, strict=True)), strict=True))

    @property
    def best(self) -> int:
        """The problem with the lowest objective, the first of those that rounding cannot tell apart."""
        return find_best(self.objective, next(iter(self.factors.values())).dtype)


def find_best(objective: np.ndarray, dtype: torch.dtype) -> int:
    """Find the first objective that is the least, or larger by no more than fits of this dtype round it.

    Restarts often end in one minimum. Which of them is published must not depend on the kernels of a machine, nor on
    the problems beside it in a batch, which change the last digits.
    """
    least = float(np.min(objective))
    return int(np.argmax(objective <= least + ROUNDING * torch.finfo(dtype).eps ** 0.5 * abs(least)))


def describe_range(values: np.ndarray | Sequence[float]) -> str:
    """Name the smallest and the largest number."""
    low, high = (f"{v:.6g}" for v in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"
