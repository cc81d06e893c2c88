"""What a run has reached so far: its history, which problems still run, and how the others ended."""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...factors import stack_problems
from ...terms.base import Term, add_direct_values, select_problems
from .progress import LOG, Callback, Progress, close_callbacks, find_lowest
from .result import Row, Run

State = dict[str, Any]


def take(state: Any, keep: Any) -> Any:
    """Return the state of some problems of a batch: `keep` indexes the first dimension of every tensor in it."""
    return {key: take(value, keep) for key, value in state.items()} if isinstance(state, dict) else state[keep]


def device_of(factors: Mapping[str, Tensor]) -> torch.device:
    """Return the device of factors."""
    return next(iter(factors.values())).device


@dataclass(frozen=True)
class Audience:
    """Who is told of a run, and under which name."""

    name: str = "run"
    verbose: int = 0
    callbacks: Sequence[Callback] = ()


class Record:
    """The history of a run, which problems still run, and how the others ended."""

    def __init__(
        self,
        terms: Sequence[Term],
        factors: Mapping[str, Tensor],
        audience: Audience,
        every_row: bool,
        max_iter: int,
        max_seconds: float | None,
    ) -> None:
        sizes = [len(F) for F in factors.values() if F.dim() == 3]
        self.batched, size = bool(sizes), max(sizes, default=1)
        self.terms, self.audience, self.every_row = terms, audience, every_row or audience.verbose >= 2
        self.max_iter, self.max_seconds, self.stopped = max_iter, max_seconds, False
        self.began, self.iteration = time.perf_counter(), 0
        self.running = np.arange(size)
        self.objective, self.n_iter = np.full(size, np.nan), np.zeros(size, dtype=int)
        self.converged = np.zeros(size, dtype=bool)
        self.rows: list[Row] = []
        self.ended: dict[int, dict[str, Tensor]] = {}

    def __enter__(self) -> "Record":
        return self

    def __exit__(self, *raised: object) -> None:
        close_callbacks(self.audience.callbacks)

    @property
    def seconds(self) -> float:
        """Seconds since the run began; those of an interrupted one count."""
        return time.perf_counter() - self.began

    def add_row(self, iteration: int, values: Any) -> None:
        """Add a row to the history; the host reads a tensor at the end of the run."""
        self.rows.append((iteration, self.seconds, self.running, values))

    def add_rows(self, iteration: int, values: np.ndarray | None) -> None:
        """Add rows of iterations made together, `(iterations, problems)`, but that of the last, which is read."""
        if self.every_row and values is not None:
            times = np.linspace(self.rows[-1][1], self.seconds, len(values) + 1)[1:-1].tolist()
            self.rows += [(iteration + i, t, self.running, values[i]) for i, t in enumerate(times)]

    def read(self, iteration: int, values: Tensor) -> np.ndarray:
        """Add a row that the host reads now; raise when no objective is finite any more."""
        now = values.numpy().copy()  # a row of its own: `finish` writes to it
        if now.shape != self.running.shape:
            raise ValueError(
                f"the terms have {len(now)} values, but factors hold {len(self.running)} problems: a value is one "
                "number for each, and weights are numbers, () or (B,)"
            )
        self.add_row(iteration, now)
        self.iteration = iteration
        if not np.isfinite(now).any() and not np.isfinite(self.objective).any():
            raise FloatingPointError(
                f"{self.audience.name}: the objective became {now[0]} at iteration {iteration}; nothing was fitted. "
                "Check the scale of the data, of init and of the penalty weights, or use float64"
            )
        return now

    def mark(self) -> dict[str, Any]:
        """Return what the record holds now; later readings change nothing in it."""
        copies = {name: getattr(self, name).copy() for name in ("objective", "n_iter", "converged")}
        now = {name: getattr(self, name) for name in ("running", "ended", "seconds", "stopped")}
        return {"n_rows": len(self.rows), "read": self.iteration, **now, **copies}

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Go on from a mark, with its rows."""
        self.rows, self.iteration, self.began = unpack_rows(kept["rows"]), kept["read"], self.began - kept["seconds"]
        for name in ("running", "ended", "stopped", "objective", "n_iter", "converged"):
            setattr(self, name, kept[name])
        if 0 < len(self.running) < len(self.objective):
            device = device_of(next(iter(self.ended.values())))
            self.terms = select_problems(self.terms, torch.from_numpy(self.running).to(device))

    def report(self, state: State, now: np.ndarray) -> None:
        """Tell the user of a reading; a callback or the time may end the run."""
        audience, best = self.audience, find_lowest(now)
        if (audience.verbose or LOG.isEnabledFor(logging.DEBUG)) and self.iteration:
            reached = f"iteration {self.iteration}: objective {now[best]:.6g}, {len(now)} running"
            LOG.debug("%s: %s", audience.name, reached)
            if audience.verbose:
                print(f"[{audience.name}] {reached}")
        self.stopped = self.max_seconds is not None and self.seconds > self.max_seconds
        if audience.callbacks:
            told = Progress(
                audience.name,
                self.iteration,
                self.max_iter,
                float(now[best]),
                now.copy(),  # `finish` writes to the row
                self.running,
                self.seconds,
                state["factors"],
                self.batched,
            )
            self.stopped |= any([bool(callback(told)) for callback in audience.callbacks])  # all are told

    def finish(self, state: State, finished: np.ndarray, now: np.ndarray, converged: np.ndarray) -> State:
        """Keep how some of the running problems ended; return the state of those that go on.

        Their objective is read once more, without cancellation: the best problem is chosen by it.
        """
        ids, factors, values = self.running[finished], state["factors"], now[finished]
        if not len(ids):
            return state
        chosen, others = (
            torch.from_numpy(np.flatnonzero(some)).to(device_of(factors)) for some in (finished, ~finished)
        )
        ended = factors if finished.all() else take(factors, chosen)  # no view: it would keep the others in memory
        if any(type(term).direct is not Term.direct for term in self.terms):
            values = add_direct_values(select_problems(self.terms, chosen), ended).reshape(-1).cpu().numpy()
            *_, problems, row = self.rows[-1]
            row[np.isin(problems, ids)] = values
        self.objective[ids] = np.where(np.isfinite(values), values, np.inf)
        self.n_iter[ids], self.converged[ids] = self.iteration, converged[finished]
        self.running = self.running[~finished]
        if not self.batched:
            return state
        self.terms = select_problems(self.terms, others) if len(others) else self.terms
        self.ended = self.ended | {int(p): take(ended, i) for i, p in enumerate(ids)}
        return take(state, others)

    def result(self, state: State, now: np.ndarray) -> Run:
        """End the problems that reached a limit, and return how all ended."""
        limited = np.ones(len(self.running), dtype=bool)
        factors = self.finish(state, limited, now, ~limited)["factors"]
        if self.batched:
            columns = {key: [self.ended[p][key] for p in range(len(self.objective))] for key in factors}
            factors = {key: stack_problems(Fs) if Fs[0].dim() else torch.stack(Fs) for key, Fs in columns.items()}
        rows = [(i, s, p, v if isinstance(v, np.ndarray) else v.cpu().numpy()) for i, s, p, v in self.rows]
        return Run(factors, self.objective, self.n_iter, self.converged, rows, stopped=self.stopped)


def pack_rows(rows: Sequence[Row]) -> dict[str, np.ndarray]:
    """Turn rows of a history into few arrays; they are many."""
    values = [np.asarray(v if isinstance(v, np.ndarray) else v.cpu()) for *_, v in rows]
    return {
        "iteration": np.array([row[0] for row in rows]),
        "seconds": np.array([row[1] for row in rows]),
        "length": np.array([len(row[2]) for row in rows]),
        "problem": np.concatenate([row[2] for row in rows]),
        "value": np.concatenate(values),
    }


def unpack_rows(packed: Mapping[str, np.ndarray]) -> list[Row]:
    """Undo `pack_rows`."""
    ends = np.cumsum(packed["length"])[:-1]
    parts = zip(np.split(packed["problem"], ends), np.split(packed["value"], ends), strict=True)
    begun = zip(packed["iteration"].tolist(), packed["seconds"].tolist(), parts, strict=True)
    return [(iteration, seconds, problem, value.copy()) for iteration, seconds, (problem, value) in begun]
