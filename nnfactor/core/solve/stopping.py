"""When a problem has settled, and how exactly its objective is read to know.

A fall counts against the present objective. Against that of the start it would depend on what does not matter: a
constant under the data or a poor start makes the start's objective as large as one likes. `docs/findings/stopping.md`
compares rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..terms.base import Factors, Term, add_direct_values

# A change is none below these shares of the squared norm of the data and of its rounding. The first is the objective of
# an exact fit for any use: its residual is 3e-7 of the data. By the second, direct readings in float32 scatter.
EXACT, NOISE = 1e-13, 0.01


def precision_of(terms: Sequence[Term], factors: Factors, tol: float) -> tuple[np.ndarray, Tensor]:
    """Return the change that is none, and the objective below which the rounding of the norm hides changes by `tol`.

    One number each, or one for every problem where they differ in data. A `tol` below one unit in the last place is not
    meant to end a run.
    """
    eps = torch.finfo(max(factors.values(), key=Tensor.dim).dtype).eps
    size = sum(term.magnitude() for term in terms)
    norm = torch.as_tensor(size, dtype=torch.float64, device="cpu")
    finest = eps * norm / tol if tol >= eps else torch.zeros_like(norm)
    return (norm * max(EXACT, NOISE * eps)).numpy(), finest


def read_objective(terms: Sequence[Term], values: Tensor, factors: Factors, finest: Tensor) -> Tensor:
    """Move the objective of every problem to the host; up to `finest` sum it directly, from float64 factors.

    That costs about a product with the data, and only nearly exact fits need it.
    """
    values = values.reshape(-1).cpu()
    coarse = values <= finest  # 0: a difference that cancelled
    if not coarse.any():
        return values
    wide = {name: F.double() for name, F in factors.items()}
    return torch.where(coarse, add_direct_values(terms, wide).reshape(-1).cpu(), values)


def has_settled(before: np.ndarray, now: np.ndarray, tol: float, least: np.ndarray) -> np.ndarray:
    """Tell which objectives fell by no more than `tol` times themselves or by less than `least`, and did not rise."""
    return (before - now <= np.maximum(tol * now, least)) & (now - before <= least)


def keeps_sweeps(state: dict[str, Any]) -> np.ndarray:
    """Tell which problems kept their last sweep: momentum may discard many in a row, and then nothing has settled."""
    return state["kept"].reshape(-1).cpu().numpy() if "kept" in state else np.ones(1, dtype=bool)
