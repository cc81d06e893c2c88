"""What the machine can do: copy bandwidth and the rate of matrix products, measured; and how near to it work comes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

from .clock import Clock

COPY = {"cuda": 1 << 28, "cpu": 1 << 26}  # bytes: beyond every cache

SIDE = {"cuda": 4096, "cpu": 768}


@dataclass(frozen=True)
class Rates:
    """Bytes per second that a copy reads and writes, and operations per second of a large square product."""

    bandwidth: float
    operations: float

    def seconds(self, moved: float, operations: float) -> float:
        """Compute the least time for so many bytes and operations, when one hides behind the other."""
        return max(moved / self.bandwidth, operations / self.operations)


def measure(device: Any, dtype: Any, repeats: int = 5) -> Rates:
    """Measure both rates on a torch device, medians; by events on CUDA, so that launches are not counted."""
    import torch

    kind = "cuda" if device.type == "cuda" else "cpu"
    a = torch.ones(COPY[kind] // dtype.itemsize, dtype=dtype, device=device)
    b = torch.empty_like(a)
    copy = median(seconds_of(lambda: b.copy_(a), device) for _ in range(repeats))
    n = SIDE[kind]
    M, out = torch.ones(n, n, dtype=dtype, device=device), torch.empty(n, n, dtype=dtype, device=device)
    product = median(seconds_of(lambda: torch.mm(M, M, out=out), device) for _ in range(repeats))
    return Rates(2 * a.numel() * dtype.itemsize / copy, 2 * n**3 / product)


def seconds_of(work: Callable[[], Any], device: Any, calls: int = 3) -> float:
    """Time one call: a first one is discarded, then `calls` in a row; by the device's own events on CUDA."""
    work()
    if device.type != "cuda":
        return Clock.on(device).time(lambda: [work() for _ in range(calls)])[0] / calls
    import torch

    with torch.cuda.device(device):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize(device)
        start.record()
        for _ in range(calls):
            work()
        end.record()
        end.synchronize()
    return start.elapsed_time(end) / 1e3 / calls


def two_products(rates: Rates, entries: int, shape: tuple[int, ...], k: int, sparse: bool, itemsize: int) -> float:
    """Compute the least seconds of the two products of an iteration with the data: each reads them once.

    A sparse entry moves its value and a 32-bit index; factors move once per product.
    """
    moved = entries * (itemsize + 4 if sparse else itemsize) + sum(shape) * k * itemsize
    return 2 * rates.seconds(moved, 2 * entries * k)
