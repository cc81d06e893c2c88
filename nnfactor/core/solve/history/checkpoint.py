"""A run that can be interrupted: where its condition is kept, and when.

The condition of a run is a value: the state of its sweep, its record and the last reading. It is taken after a sweep,
by reference, for sweeps leave no tensor of an old state changed. A run that goes on from it repeats the very numbers of
one that was not interrupted: caches are filled by the same products of the same tensors, in the same memory order.
"""

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from .progress import LOG
from .record import Record, State, pack_rows, unpack_rows
from .result import Run

INTERRUPTS = (KeyboardInterrupt, SystemExit)  # the second is what handlers of signals raise


class Checkpoint(Protocol):
    """Where runs keep their condition. What is kept are nested dictionaries of tensors, arrays and plain values.

    A sweep that keeps something outside of its state, such as a random generator, has a method `skip(n)`, which brings
    it to where n sweeps leave it.
    """

    def load(self) -> Mapping[str, Any] | None:
        """Return what was last kept of the run that begins now, or None; every run asks once."""

    def is_due(self) -> bool:
        """Tell whether it is time to save; asked after every sweep."""

    def save(self, content: Mapping[str, Any]) -> None:
        """Keep the condition of the run, in place of the one before."""

    def save_result(self, content: Mapping[str, Any]) -> None:
        """Keep how the run ended, in place of its condition."""


class Keeper:
    """Keeps a run: its newest condition when that is due and when somebody interrupts it, and in the end its result."""

    def __init__(self, checkpoint: Checkpoint, record: Record) -> None:
        self.checkpoint, self.record = checkpoint, record
        self.newest: dict[str, Any] = {}

    def reach(self, iteration: int, state: State, before: np.ndarray) -> None:
        """Note where the run is after a sweep and, if it was read, its reading; save that if it is due."""
        self.newest = {"iteration": iteration, "state": state, "before": before, **self.record.mark()}
        if self.checkpoint.is_due():
            self._save()

    def _save(self) -> None:
        rows = pack_rows(self.record.rows[: self.newest["n_rows"]])
        self.checkpoint.save({**self.newest, "rows": rows})

    def __enter__(self) -> "Keeper":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        saves = getattr(self.checkpoint, "saves_interrupted", True)
        if kind is not None and issubclass(kind, INTERRUPTS) and self.newest and saves:
            LOG.info("%s: interrupted after %d iterations", self.record.audience.name, self.newest["iteration"])
            self._save()


def pack_run(run: Run) -> dict[str, Any]:
    """Turn the result of a run into what a checkpoint keeps."""
    return {**vars(run), "rows": pack_rows(run.rows)}


def unpack_run(content: Mapping[str, Any]) -> Run:
    """Undo `pack_run`."""
    return Run(**{**content, "rows": unpack_rows(content["rows"])})


def place(content: Any, device: torch.device) -> Any:
    """Bring the tensors of a kept condition to a device; where they are the same tensor, they stay so."""
    moved: dict[int, Tensor] = {}

    def move(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: move(v) for key, v in value.items()}
        return moved.setdefault(id(value), value.to(device)) if isinstance(value, Tensor) else value

    return move(content)
