"""Samples that are split over processes, and whose factor every process holds as a whole."""

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from ...free_memory import free_bytes
from ..as_data import as_data
from ..base import Data
from ..dense import Dense
from ..sparse import Sparse
from ..weighted import Weighted, WeightedDense, make_part
from .process_sums import ProcessSums
from .sample_sums import SampleSums

SHARE = 0.5  # of the free memory that all samples may take where graphs are made of them


class GatheredSums(SampleSums):
    """Sums over rows that every process holds, of samples that are split: only what users give and get is split.

    Parameters
    ----------
    processes : ProcessSums
    """

    alone = False

    def __init__(self, processes: ProcessSums) -> None:
        self.processes = processes
        self.largest, self.least, self.same = processes.largest, processes.least, processes.same  # type: ignore[method-assign]
        self.peak, self.collect = processes.peak, processes.collect  # type: ignore[method-assign]
        self.listeners, self.alike = processes.listeners, processes.alike  # type: ignore[method-assign]

    def join(self, given: Any, name: str) -> Any:
        """Join what the processes give for their samples."""
        own = self.processes.join(given, name)
        device = own.device if isinstance(own, Tensor) else None
        pieces = self.processes.collect(own.cpu() if isinstance(own, Tensor) else own)
        if own is None:
            return None
        if sp.issparse(own):
            return sp.vstack(pieces, format="csr")
        if isinstance(own, Tensor):
            return torch.cat(pieces).to(device)
        kinds = {piece.dtype.kind if isinstance(piece, np.ndarray) else "list" for piece in pieces}
        if len(kinds) == 1 and "list" not in kinds:
            return np.concatenate(pieces)
        return [one for piece in pieces for one in (piece.tolist() if isinstance(piece, np.ndarray) else piece)]

    def decide(self, value: Tensor) -> Tensor:
        """Return the value of the first process: rounding of others, of another kind of machine, could decide else."""
        return self.processes.add(value if self.processes.rank == 0 else torch.zeros_like(value))

    def cut(self, found: Any) -> Any:
        """Return the rows of this process."""
        first = self.processes.first
        return found[..., first : first + self.processes.rows[self.processes.rank], :]


class OfShards:
    """What both kinds of gathered data do with samples, which stay in their processes until they are asked for."""

    shards: Any
    local: Any

    def entries(self) -> Iterator[Tensor]:
        """Iterate over the entries of this process."""
        return self.local.entries()

    def samples(self) -> Any:
        """Bring all samples, and their weights, to every process, where they fit."""
        return bring_all(cast(Data, self), self.shards)

    def scaled(self, factor: float) -> Any:
        """Multiply the rows of every process by a number."""
        return self.shards.scaled(factor).gathered()

    def take(self, rows: Tensor) -> Any:
        """Bring some samples, and their weights, to every process, in the order of the index."""
        return bring(self.shards, rows)


class Gathered(OfShards, Data):
    """Samples split over processes, as `Sharded`, for models that need the factor of all samples in one place.

    Every process has the same factors and improves them in the same way, so that terms and rules see one process with
    all samples. Products with the samples are gathered from all, sums over samples are added. What is published is cut
    to the samples of each process.

    Parameters
    ----------
    shards : Sharded
    local : Data
        The rows of this process.
    numbers : Tensor
        What `summary` says of all samples, and their squared norm: `(5,)`, float64.
    """

    def __init__(self, shards: Any, local: Data, numbers: Tensor) -> None:
        super().__init__(shards.shape, local.dtype, local.device)
        self.shards, self.local = shards, local
        self.processes: ProcessSums = shards.sums
        self.sums: SampleSums = GatheredSums(self.processes)
        self.cut, self.read_in, self.floor, self.entries_read = (
            local.cut,
            local.read_in,
            local.floor,
            shards.entries_read,
        )
        self.rows_per_problem, self.numbers = local.rows_per_problem + self.shape[0], numbers
        self.cache("summary", (), lambda: numbers[:4])
        self.cache("sqnorm", (), lambda: numbers[4])

    def by_samples(self) -> Data:
        """Give the same entries with a sample in each row."""
        return self if self.cut == 1 else Gathered(self.shards, self.local.by_samples(), self.numbers)

    def times(self, F: Tensor) -> Tensor:
        """Gather the products of the rows with `F`."""
        return self.processes.gather(self.local.times(F), self._per_sample)

    def times_transposed(self, F: Tensor) -> Tensor:
        """Add the products of the transposed rows."""
        return self.processes.total(self.local.times_transposed(self.processes.own(F, self._per_sample)))[0]

    def mttkrp(self, factors: Sequence[Tensor], mode: int) -> Tensor:
        """Contract the rows of this process; gather, or add for another mode than the samples (kept)."""
        others = [F for b, F in enumerate(factors) if b != mode]
        make = lambda: self.everywhere(self.local.mttkrp(self.own(factors), mode), mode)
        return self.processes.newest(("mttkrp", mode), others, make)

    def distance_sq(self, factors: Sequence[Tensor], mode: int = 0) -> Tensor:
        """Add the distances of the rows of every process."""
        return self.processes.total(self.local.distance_sq(self.own(factors), mode))[0]

    def divergence(self, factors: Sequence[Tensor], beta: float) -> Tensor:
        """Add the divergences of the rows of every process."""
        return self.processes.total(self.local.divergence(self.own(factors), beta))[0]

    def residual_sq(self, factors: Sequence[Tensor]) -> Tensor:
        """Add the squared residuals of the rows of every process, from float64 factors (kept)."""
        wide = [F.double() for F in factors]
        return self.processes.newest("residual_sq", wide, lambda: self.divergence(wide, 2))

    def ratio_products(self, factors: Sequence[Tensor], mode: int, beta: float) -> tuple[Tensor, Tensor]:
        """Compute both of the rows of this process; gather them, or add them up."""
        minus, plus = self.local.ratio_products(self.own(factors), mode, beta)
        if mode:
            minus, plus = self.processes.total(minus, plus)
            return minus, plus
        if plus.shape[-2] == 1 < min(self.processes.rows):  # the same for every row of all
            return self.processes.gather(minus), plus
        both = self.processes.gather(torch.cat([minus.mT, plus.expand_as(minus).mT], -2).mT)
        minus, plus = (part.contiguous().mT for part in both.mT.split(minus.shape[-1], -2))
        return minus, plus

    def own(self, factors: Sequence[Tensor]) -> list[Tensor]:
        """Give the factors with the rows of this process of the first (kept, for products of the rows are)."""
        V, *others = factors
        return [self.processes.newest("own", (V,), lambda: self.processes.own(V)), *others]

    def everywhere(self, product: Tensor, mode: int) -> Tensor:
        """Make what the rows of this process give known to all: rows of the sample factor are gathered, sums added."""
        return self.processes.total(product)[0] if mode else self.processes.gather(product)

    @property
    def _per_sample(self) -> int:
        """Rows of the matrix for each sample."""
        return prod(self.shape[1 : self.cut])


class GatheredWeighted(OfShards, Weighted):
    """Weighted samples split over processes: `Gathered`, with what `Weighted` asks of the weights.

    Parameters
    ----------
    shards : Sharded
    data : Gathered
        The entries times their weights.
    local : Weighted
        The rows of this process; `data` holds what they were made of.
    numbers : Tensor
        As for `Gathered`, of the entries that count.
    """

    def __init__(self, shards: Any, data: Gathered, local: Weighted, numbers: Tensor) -> None:
        super().__init__(data, shards.peak)
        self.shards, self.local, self.relaxes, self.sums = shards, local, shards.relaxes, data.sums
        self.base, self.processes, self.numbers = data, data.processes, numbers
        self.cache("summary", (), lambda: numbers[:4])
        self.cache("sqnorm", (), lambda: numbers[4])

    def by_samples(self) -> Data:
        """Give the same entries and weights with a sample in each row."""
        if self.cut == 1:
            return self
        local = cast(Weighted, self.local.by_samples())
        make_part(local, self.peak, float(cast(float, self.local.data.floor)))
        base = Gathered(self.shards, local.data, self.base.numbers)
        return GatheredWeighted(self.shards, base, local, self.numbers)

    def weights_times(self, F: Tensor) -> Tensor:
        """Gather the products of the weights of the rows."""
        found = self.local.weights_times(F)
        rows = prod(self.local.shape[: self.cut])  # of one kind the answer for a constant is one row
        return self.processes.gather(
            found.expand(*found.shape[:-2], rows, found.shape[-1]), rows // self.local.shape[0]
        )

    def weights_times_transposed(self, F: Tensor) -> Tensor:
        """Add the products of the weights of the rows."""
        per_sample = prod(self.shape[1 : self.cut])
        return self.processes.total(self.local.weights_times_transposed(self.processes.own(F, per_sample)))[0]

    def weigh(self, factors: Sequence[Tensor], mode: int, exponent: float = 1.0) -> Tensor:
        """Gather or add what the rows of this process give."""
        found = self.local.weigh(self.base.own(factors), mode, exponent)
        return self.base.everywhere(found.expand_as(self.base.own(factors)[mode]), mode)

    def residual_products(self, factors: Sequence[Tensor], mode: int) -> Tensor:
        """Gather or add them."""
        return self.base.everywhere(self.local.residual_products(self.base.own(factors), mode), mode)

    def distance_sq(self, factors: Sequence[Tensor], mode: int = 0) -> Tensor:
        """Add the distances of the rows of every process."""
        return self.processes.total(self.local.distance_sq(self.base.own(factors), mode))[0]

    def divergence(self, factors: Sequence[Tensor], beta: float) -> Tensor:
        """Add the divergences of the rows of every process."""
        return self.processes.total(self.local.divergence(self.base.own(factors), beta))[0]


def bring_all(data: Data, shards: Any) -> Any:
    """Bring all samples to every process, where they fit into the free memory of each."""
    need = prod(data.shape) if shards.dense else shards.entries_read
    need, free = need * data.dtype.itemsize, free_bytes(data.device)
    if shards.sums.largest(need / (SHARE * free)) > 1:
        raise ValueError(
            f"X is Sharded over {shards.sums.size} processes, and graphs and classifiers that are made of X need all "
            f"samples in each: {need / 2**20:.0f} MiB do not fit. Hand in a graph that was made before (graph=..., "
            "neighbors=...)"
        )
    return bring(shards, torch.arange(data.shape[0], device=data.device)).samples()


def bring(shards: Any, rows: Tensor) -> Data:
    """Bring some samples to every process, in the order of an index."""
    sums, local = shards.sums, shards.local
    inside = (rows >= sums.first) & (rows < sums.first + local.shape[0])
    own = local.take(rows[inside] - sums.first) if bool(inside.any()) else None
    own = own if own is None or own.in_memory else as_data(own.samples(), dtype=local.dtype, signed=True)
    packed = sums.alike(lambda: None if own is None else _pack(own))
    told = sums.collect((inside.nonzero()[:, 0].cpu(), packed))
    order = torch.cat([places for places, _ in told]).argsort()
    parts = [part for _, part in told if part is not None]
    if sp.issparse(parts[0]):
        return Sparse(sp.vstack(parts, format="csr")[order.numpy()], local.device, local.dtype)
    X, *W = (torch.cat(same)[order].to(local.device) for same in zip(*parts, strict=True))
    return WeightedDense(X, W[0]) if W else Dense(X)


def _pack(data: Data) -> Any:
    """Return the arrays of some samples on the host."""
    if isinstance(data, WeightedDense):
        return cast(Dense, data.data).X.cpu(), data.weights.X.cpu()
    if isinstance(data, Dense):
        return (data.X.cpu(),)
    if isinstance(data, Sparse):
        return data.samples()
    raise ValueError(
        f"rows of {type(data).__name__} stay in their process; hand in a graph that was made before, or dense rows"
    )
