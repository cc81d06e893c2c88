"""Being one of several processes of a run: what is split, what is sent, and who writes.

Restarts and ranks are dealt over the processes, which then need no messages; where there are fewer of these, or no room
for all data in every process, each takes a part of the samples.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
import torch
import torch.distributed as dist

from ..core import Sharded
from ..core.data.base import Data
from ..core.data.distributed.watch import LostProcess
from ..core.free_memory import free_bytes
from ..models.shared.inputs import choose_dtype
from ..selection.arrays import as_indexable, take
from .data import Given
from .errors import UserError
from .launch import MEET, is_one_of_several

T = TypeVar("T")


@dataclass(frozen=True)
class Processes:
    """The processes of a run, of which this one is `rank`; by itself in a run of one."""

    rank: int = 0
    size: int = 1
    device: Any = None  # where this process computes, if it has a GPU of its own
    splits_samples: bool = False

    @property
    def is_first(self) -> bool:
        """Whether this process writes what there is once."""
        return self.rank == 0

    @property
    def workers(self) -> int:
        """How many processes have work of their own."""
        return 1 if self.splits_samples else self.size

    def same(self, make: Callable[[], T]) -> T:
        """Let the first process make a value, and give it to all."""
        if self.size == 1:
            return make()
        made = [make() if self.is_first else None]
        with _told():
            dist.broadcast_object_list(made)
        return made[0]  # type: ignore[return-value]

    def wait(self) -> None:
        """Wait until all processes are here."""
        if self.size > 1:
            with _told():
                dist.barrier()

    def wait_for_others(self) -> None:
        """Let the first process wait for the work of the others, however long they need: no message, no limit."""
        if self.workers > 1:
            store = dist.PrefixStore("nnfactor", dist.distributed_c10d._get_default_store())
            store.set(f"done {self.rank}", "")
            while self.is_first and not store.check([f"done {rank}" for rank in range(self.size)]):
                time.sleep(0.05)

    def rows(self, n: int) -> slice:
        """Return the samples of this process: even parts, in the order of the ranks."""
        if n < self.size:
            raise UserError(f"--processes {self.size} is more than the {n} samples; use at most {n}")
        return slice(n * self.rank // self.size, n * (self.rank + 1) // self.size)

    def whole(self, model: Any) -> Any:
        """Give the first process the coefficients of all samples, of a model that each has fitted to its own."""
        if not self.splits_samples:
            return model
        restarts = getattr(model, "restarts_", {})
        own = (model.embedding_, restarts.get("embeddings"))
        found: list[Any] | None = [None] * self.size if self.is_first else None
        with _told():
            dist.gather_object(own, found)
        if found is not None:
            model.embedding_ = np.concatenate([rows for rows, _ in found])
            if own[1] is not None:
                model.restarts_ = restarts | {"embeddings": np.concatenate([rows for _, rows in found], 1)}
        return model


ALONE = Processes()


@contextmanager
def _told() -> Iterator[None]:
    """Say what it means if a message does not come; who started the processes knows which one has ended."""
    try:
        yield
    except RuntimeError as error:
        raise LostProcess(f"another process ended, or did not answer ({error})", []) from error


def require_gpus(size: int) -> None:
    """Refuse a run on more GPUs than there are."""
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if found < size:
        have, better = (f"{found}", f"--gpus {found}") if found else ("no", f"--processes {size}")
        raise UserError(f"--gpus {size}: torch sees {have} GPU{'s' * (found > 1)} here; use {better}")


@contextmanager
def join(gpus: bool) -> Iterator[Processes]:
    """Be one of the processes of a run, if this was started as one."""
    if not is_one_of_several():
        yield ALONE
        return
    if MEET in os.environ:
        threading.Thread(target=_end_with_parent, daemon=True).start()
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpus else None
    if device is not None:
        torch.cuda.set_device(device)
    where = f"file://{os.environ[MEET]}/store" if MEET in os.environ else "env://"
    dist.init_process_group("cpu:gloo,cuda:nccl" if gpus else "gloo", where, rank=rank, world_size=size)
    yield Processes(rank, size, device)
    dist.destroy_process_group()


def _end_with_parent() -> None:
    """End when the process that started this one does: it holds the other end of the standard input."""
    while os.read(0, 1):
        pass
    os._exit(1)


def choose_split(processes: Processes, n_jobs: int, estimator: Any, given: Given) -> Processes:
    """Decide what is split: the fits, where every process gets one and has room for all data, or the samples."""
    if processes.size == 1:
        return processes
    in_blocks = not getattr(given.X, "in_memory", True)  # which each process would read anew for its fits
    n_bytes = sum(_bytes(table.values) for table in given.tables)
    fits = n_bytes * processes.size <= 0.5 * free_bytes(torch.device("cpu")) and not in_blocks
    may_split = takes_parts(estimator, given)
    if may_split and processes.same(lambda: n_jobs < processes.size or not fits):
        return replace(processes, splits_samples=True)
    if n_jobs == 1:
        name = type(estimator).__name__
        told = "one fit of {} (with labels, weights, missing entries or batches, or of several files) is not shared by"
        raise UserError(f"{told.format(name)} processes; use restarts (--n-init), or one process")
    return processes


def takes_parts(estimator: Any, given: Given) -> bool:
    """Tell whether samples of this fit can be split: nothing else is given for each of them."""
    asked = [getattr(estimator, name, None) is not None for name in ("missing", "batch_size")]
    plain = given.y is None and given.weights is None and not isinstance(given.X, list)
    return getattr(estimator, "_sharded", None) is not None and plain and not any(asked)


def _bytes(values: Any) -> float:
    """Estimate the memory of data, half of it more for the indices of sparse ones."""
    stored = getattr(values, "nnz", None)
    count = float(np.prod(values.shape, dtype=float)) if stored is None else 1.5 * float(stored)
    return count * np.dtype(values.dtype).itemsize


def share(given: Given, processes: Processes, estimator: Any, max_bytes: int | None) -> Given:
    """Read what this process needs of data that were only opened: its samples, or all."""
    X, table = given.X, given.tables[0]
    if processes.size == 1 or (isinstance(X, list | Data) and not processes.splits_samples):
        return given
    if not processes.splits_samples:
        in_memory = isinstance(X, np.ndarray) or sp.issparse(X)
        return given if in_memory else replace(given, X=X[0 : X.shape[0]])
    at, how = processes.rows(X.shape[0]), {"device": processes.device, "dtype": choose_dtype(estimator.dtype)}
    if max_bytes is not None:
        return replace(given, X=Sharded.part_of(table.values, max_bytes=max_bytes, **how))
    rows = take(as_indexable(X), np.arange(at.start, at.stop), 0) if sp.issparse(X) else X[at]
    return replace(given, X=Sharded(rows, **how))
