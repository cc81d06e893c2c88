"""The checkpoint of a fit whose samples are split over processes: the first process keeps the whole of it."""

import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from torch import Tensor

from ...core.data.distributed.first_process import deal, first_makes, gather_to_first
from ...core.data.distributed.process_sums import ProcessSums
from ...core.factors import as_factor
from .fit_checkpoint import FitCheckpoint

SAMPLES = "V"  # the factor whose rows are the samples, wherever a condition has it

OFTEN = 10  # times in the period that processes agree on whether it is time to save: each is a message


class SharedCheckpoint:
    """What `FitCheckpoint` is to one process, for several: it holds the rows of all, and any number may go on from it.

    Parameters
    ----------
    sums : ProcessSums
        Of the data.
    path : str or path
        The file.
    every : float
        Seconds between two savings; 0: after every sweep.
    make : callable
        It opens the file; asked in the first process.

    Raises
    ------
    ValueError, OSError
        As of `FitCheckpoint`, in all processes.
    """

    saves_interrupted = False  # signals reach processes at different sweeps

    def __init__(
        self, sums: ProcessSums, path: str | os.PathLike[str], every: float, make: Callable[[], FitCheckpoint]
    ) -> None:
        self.path, self.sums, self.every, self.splits_rows = Path(path), sums, every, True
        self.file: FitCheckpoint | None = None
        self.sweeps, self.ask_after, self.asked_at = 0, 1, time.monotonic()

        def open_file() -> None:
            self.file = make()
            if "X" in self.file.recalled:
                raise ValueError(
                    f"checkpoint={os.fspath(path)!r} was begun by one process with all samples, and X is Sharded; "
                    "go on in one process, or use another path"
                )

        first_makes(sums, open_file)

    def recall(self, name: str, value: Any) -> Any:
        """Return what was kept of a decision, the same in all processes."""
        return first_makes(self.sums, lambda: self._file.recall(name, value))

    def begin(self) -> None:
        """Write the file for the first time."""
        first_makes(self.sums, lambda: self._file.begin())

    def load(self) -> Mapping[str, Any] | None:
        """Return what was kept of the run that begins now, with the rows of this process."""
        parts: list[Any] = [None] * self.sums.size

        def read() -> None:
            if (content := self._file.load()) is not None:
                parts[:] = [_change(content, partial(self._cut, rank=rank)) for rank in range(self.sums.size)]

        first_makes(self.sums, read)
        return deal(self.sums, parts)

    def is_due(self) -> bool:
        """Tell whether it is time to save, by the clock of the first process; it is asked some times in the period."""
        if not self.every:
            return True
        self.sweeps += 1
        if self.sweeps < self.ask_after:
            return False
        wait = -1.0
        if self.file is not None:
            now = time.monotonic()
            wait = 0.0 if self.file.is_due() else 1 + self.every / OFTEN * self.sweeps // max(now - self.asked_at, 1e-9)
            self.asked_at = now
        wait = self.sums.largest(wait)
        self.sweeps, self.ask_after = 0, max(1, int(wait))
        return wait == 0

    def save(self, content: Mapping[str, Any]) -> None:
        """Keep the condition of the run."""
        whole = _change(content, self._join)
        first_makes(self.sums, lambda: self._file.save(whole))

    def save_result(self, content: Mapping[str, Any]) -> None:
        """Keep how the run ended."""
        whole = _change(content, self._join)
        first_makes(self.sums, lambda: self._file.save_result(whole))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.file is not None:
            self.file.__exit__(kind, error, at)

    @property
    def _file(self) -> FitCheckpoint:
        assert self.file is not None
        return self.file

    def _join(self, V: Tensor) -> Tensor:
        """Join the rows of all processes in the first; where every process holds all rows, they are there."""
        return gather_to_first(self.sums, V) if self.splits_rows else V

    def _cut(self, V: Tensor, rank: int) -> Tensor:
        """Copy the rows of a process, where it holds only those."""
        if not self.splits_rows:
            return V
        first = sum(self.sums.rows[:rank])
        return as_factor(V[..., first : first + self.sums.rows[rank], :].clone())


def _change(content: Any, change: Callable[[Tensor], Tensor], known: dict[int, Tensor] | None = None) -> Any:
    """Change the factors of the samples inside of nested dictionaries; one that stands in two places stays one."""
    known = {} if known is None else known
    if not isinstance(content, Mapping):
        return content
    made = {}
    for name, value in content.items():
        if name == SAMPLES and isinstance(value, Tensor):
            if id(value) not in known:
                known[id(value)] = change(value)
            made[name] = known[id(value)]
        else:
            made[name] = _change(value, change, known)
    return made
