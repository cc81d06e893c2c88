"""Blocks that are read by another thread while the one before is multiplied."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from ...precision import denormals

Job = TypeVar("Job")
Result = TypeVar("Result")


def read_ahead(read: Callable[[Job], Result], jobs: Sequence[Job]) -> Iterator[Result]:
    """Yield `read(job)` for every job; while the caller works on one, the next is read by a thread.

    No more than one is read ahead: job i + 1 begins when the caller has asked for i, and so is done with i - 1.
    """
    if len(jobs) == 1:
        yield read(jobs[0])
        return
    with ThreadPoolExecutor(1, "nnfactor-reader") as thread:
        ahead = thread.submit(read, jobs[0])
        for job in jobs[1:]:
            done = ahead.result()
            ahead = thread.submit(read, job)
            yield done
        yield ahead.result()


class Buffer:
    """Memory on the host for one block, page-locked where it is copied to a GPU: then copies need no processor.

    Parameters
    ----------
    rows, columns : int
    dtype, device : of the products
    """

    def __init__(self, rows: int, columns: int, dtype: torch.dtype, device: torch.device) -> None:
        self.pinned = device.type == "cuda"
        self.host = torch.empty(rows, columns, dtype=dtype, device="cpu", pin_memory=self.pinned)
        self.copied: Any = None  # the event after which the memory may be written to again

    def writable(self) -> np.ndarray:
        """Give the memory to be filled, once the device has its copy of what was there."""
        if self.copied is not None:
            self.copied.synchronize()
        return self.host.numpy()

    def placed(self, rows: int, device: torch.device, stream: Any) -> Tensor:
        """Give the first rows on the device: on the CPU the memory itself, on a GPU a copy made beside products."""
        X = self.host[:rows]
        if stream is None:
            return X.to(device)
        with torch.cuda.stream(stream):
            X = X.to(device, non_blocking=True)
            self.copied = stream.record_event()
        current = torch.cuda.current_stream(device)
        current.wait_event(self.copied)
        X.record_stream(current)
        return X


class Buffers:
    """Buffers of one size that are lent, and kept between passes: fresh memory costs as much as reading it."""

    def __init__(self, rows: int, columns: int, dtype: torch.dtype, device: torch.device) -> None:
        self.made = rows, columns, dtype, device
        self._idle: list[Buffer] = []
        self._stream: Any = None

    @contextmanager
    def lend(self, count: int) -> Iterator[list[Buffer]]:
        """Lend buffers to one pass; a pass inside of another has its own."""
        lent = [self._idle.pop() if self._idle else Buffer(*self.made) for _ in range(count)]
        try:
            yield lent
        finally:
            self._idle = (self._idle + lent)[:2]

    @property
    def stream(self) -> Any:
        """The stream of copies to a GPU; None elsewhere."""
        device = self.made[3]
        if self._stream is None and device.type == "cuda":
            self._stream = torch.cuda.Stream(device)
        return self._stream


def convert_into(out: np.ndarray, rows: np.ndarray, factor: float) -> None:
    """Write numbers of any dtype, times a power of two, in another dtype; the product is in the wider of the two."""
    with np.errstate(over="ignore", under="ignore"):
        if factor == 1:
            np.copyto(out, rows, casting="unsafe")
        else:
            wide = np.result_type(out.dtype, rows.dtype) if rows.dtype.kind == "f" else np.float64
            with denormals(True):
                np.multiply(rows, factor, out=out, dtype=wide, casting="unsafe")
