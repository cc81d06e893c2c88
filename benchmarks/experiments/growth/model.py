"""The time of a sweep on paper: operations, bytes, messages and what does not grow. Plain Python.

A sweep of `solver="hals"` on n x m data with k components, the samples split over P processes, has

* two products with the data of a process, each of `2 k` operations and one read for an entry,
* a Gram and a sweep over columns for each of the n / P rows of V, and for all m rows of U in every process,
* one flat message of `m k + k^2` numbers between all processes,
* operations that are launched whatever the size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from math import ceil, log, log2

FACTOR_PASSES = 6  # reads and writes of a factor in a sweep: product written and read, Gram, columns read and written

STORED = 16  # bytes of a stored entry of sparse data in float32: value and 32-bit column, by rows and by columns

MOST_INDEX = 2**31 - 1  # stored entries of a process that 32-bit indices reach


@dataclass(frozen=True)
class Shape:
    """One problem: samples, features, components, and the share of entries that are stored (1: dense)."""

    n: int
    m: int
    k: int
    density: float = 1.0

    @property
    def stored(self) -> float:
        """Entries that are stored."""
        return self.n * self.m * self.density

    def message(self, itemsize: int = 4) -> int:
        """Bytes of the message of a sweep."""
        return (self.m * self.k + self.k**2) * itemsize


@dataclass(frozen=True)
class Parts:
    """Seconds of a sweep by what they are spent on."""

    products: float
    factors: float
    message: float
    host: float

    @property
    def total(self) -> float:
        """Seconds of the sweep."""
        return self.products + self.factors + self.message + self.host

    @property
    def largest(self) -> str:
        """Name the part that takes most."""
        parts = asdict(self)
        return max(parts, key=parts.__getitem__)


Rates = Sequence[tuple[int, float]]  # rows, and seconds at so many


@dataclass(frozen=True)
class Measured:
    """Constants that were measured apart from the sweeps that they predict.

    Attributes
    ----------
    times, transposed : seconds for a stored entry, of a product with the data and with their transpose, by rows of the
        data: how much of them is in which cache
    row : seconds for a row of a factor: its Gram and its sweep over columns
    latency, transfer : seconds of a short message, after work that not all processes end at the same time, and bytes
        per second of a long one
    host : seconds of a sweep over next to nothing, without its message
    """

    times: Rates
    transposed: Rates
    row: float
    latency: float
    transfer: float
    host: float

    def predict(self, s: Shape, processes: int = 1, itemsize: int = 4) -> Parts:
        """Predict a sweep; the largest share of the samples decides."""
        rows = ceil(s.n / processes)
        stored = rows * s.m * s.density
        products = stored * (interpolate(self.times, rows) + interpolate(self.transposed, rows))
        message = self.latency + s.message(itemsize) / self.transfer
        return Parts(products, (rows + s.m) * self.row, message, self.host)


def interpolate(rates: Rates, rows: int) -> float:
    """Read a rate between two that were measured, on a logarithmic scale of rows; beyond the last it stays.

    >>> interpolate([(10, 1.0), (1000, 3.0)], 100), interpolate([(10, 1.0), (1000, 3.0)], 10**6)
    (2.0, 3.0)
    """
    if rows <= rates[0][0]:
        return rates[0][1]
    for (a, low), (b, high) in pairwise(rates):
        if rows <= b:
            return low + (high - low) * log(rows / a) / log(b / a)
    return rates[-1][1]


@dataclass(frozen=True)
class Published:
    """A GPU and its network as their makers state them; nothing of it is measured here.

    Attributes
    ----------
    bandwidth, operations : bytes and float32 operations per second of one GPU
    memory : bytes of one GPU
    inside, between : bytes per second that a GPU sends within a machine, and between machines
    machine : GPUs of a machine
    hop : seconds of one step of a message between machines

    Notes
    -----
    H100 SXM by NVIDIA's data sheet: 80 GB at 3.35 TB/s, 67 TFLOPS in float32 without tensor cores, NVLink 900 GB/s in
    both directions together. InfiniBand NDR: 400 Gb/s for each GPU. A step between machines is what NCCL's own tuning
    table has for trees over a network, 5 microseconds.
    """

    bandwidth: float = 3.35e12
    operations: float = 67e12
    memory: float = 80e9
    inside: float = 450e9
    between: float = 50e9
    machine: int = 8
    hop: float = 5e-6

    def predict(self, s: Shape, gpus: int, host: float) -> Parts:
        """Predict a sweep in float32: the larger of bytes and operations, then the message, then the host."""
        rows = ceil(s.n / gpus)
        stored = rows * s.m * s.density
        moved = stored * (4 if s.density == 1 else STORED // 2)
        products = 2 * max(moved / self.bandwidth, 2 * s.k * stored / self.operations)
        long = (rows + s.m) * s.k
        factors = max(FACTOR_PASSES * 4 * long / self.bandwidth, 4 * s.k * long / self.operations)
        return Parts(products, factors, self.message(s.message(), gpus), host)

    def message(self, size: float, gpus: int) -> float:
        """Predict one sum over all GPUs: a ring moves the message twice, a tree has two steps for every doubling."""
        if gpus == 1:
            return 0.0
        rate = self.inside if gpus <= self.machine else self.between
        return 2 * size * (gpus - 1) / gpus / rate + 2 * ceil(log2(gpus)) * self.hop

    def needed(self, s: Shape, gpus: int) -> float:
        """Bytes of one GPU: data, and factors with what a sweep makes of them."""
        rows = ceil(s.n / gpus)
        data = rows * s.m * 4 if s.density == 1 else rows * s.m * s.density * STORED
        return data + FACTOR_PASSES * 4 * (rows + s.m) * s.k

    def fewest(self, s: Shape) -> int:
        """Find how many GPUs hold the data."""
        fixed = FACTOR_PASSES * 4 * s.m * s.k
        return max(1, ceil((self.needed(s, 1) - fixed) / (self.memory - fixed))) if fixed < self.memory else 0


def limits(gpu: Published, s: Shape, gpus: int, host: float) -> list[tuple[str, float, float]]:
    """List what bounds a problem on so many GPUs: in words, where it is met, and where the problem is."""
    rows = ceil(s.n / gpus)
    parts = gpu.predict(s, gpus, host)
    row_bytes = (gpu.needed(s, 1) - FACTOR_PASSES * 4 * s.m * s.k) / s.n
    latency = gpu.message(0, gpus)
    slope = (parts.message - latency) / s.m
    found: list[tuple[str, float, float]] = [
        ("samples a GPU that fill its memory", (gpu.memory - FACTOR_PASSES * 4 * s.m * s.k) / row_bytes, rows),
        (
            "samples a GPU below which the message takes as long as the products",
            parts.message / parts.products * rows,
            rows,
        ),
        ("samples a GPU below which the host takes as long as the products", host / parts.products * rows, rows),
        ("features at which U alone fills a GPU", gpu.memory / (FACTOR_PASSES * 4 * s.k), s.m),
        ("features at which the message takes as long as its hops", latency / slope, s.m),
    ]
    if s.density < 1:
        found.append(("samples a GPU at which 32-bit indices end", MOST_INDEX / (s.m * s.density), rows))
    return found
