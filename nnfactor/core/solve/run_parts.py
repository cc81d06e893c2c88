"""Runs of some of the problems of a batch, and of several batches."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
import torch

from ..factors import concatenate
from .run import Run

PER_PROBLEM = ("objective", "n_iter", "converged")  # arrays of a run


def select_problems(run: Run, begin: int, end: int) -> Run:
    """Return problems `begin..end` of a run, always with a batch dimension."""
    rows = []
    for iteration, seconds, problems, values in run.rows:
        a, b = np.searchsorted(problems, [begin, end])
        if a < b:
            rows.append((iteration, seconds, problems[a:b] - begin, values[a:b]))
    alone = len(run.objective) == 1
    factors = {n: (F[None] if alone and F.dim() in (0, 2) else F)[begin:end] for n, F in run.factors.items()}
    columns: dict[str, Any] = {name: getattr(run, name)[begin:end] for name in PER_PROBLEM}
    return replace(run, factors=factors, rows=rows, **columns)


def split_run(run: Run, owners: Sequence[int]) -> Iterator[tuple[int, Run]]:
    """Cut a run into one for each owner of problems, which stand side by side."""
    begin = 0
    for owner, some in groupby(owners):
        end = begin + len(list(some))
        yield owner, select_problems(run, begin, end)
        begin = end


def concatenate_runs(runs: Sequence[Run]) -> Run:
    """Join the problems of several runs."""
    if len(runs) == 1:
        return runs[0]
    shifts = np.cumsum([0, *(len(r.objective) for r in runs)])
    rows = [(i, s, p + shift, v) for r, shift in zip(runs, shifts, strict=False) for i, s, p, v in r.rows]
    join = lambda name, F: (concatenate if F.dim() == 3 else torch.cat)([r.factors[name] for r in runs])
    factors = {name: join(name, F) for name, F in runs[0].factors.items()}
    columns: dict[str, Any] = {name: np.concatenate([getattr(r, name) for r in runs]) for name in PER_PROBLEM}
    return replace(runs[0], factors=factors, rows=rows, **columns)
