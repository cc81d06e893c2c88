"""Sums over samples that are split over the processes of a group of `torch.distributed`."""

from collections.abc import Callable, Hashable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
import torch.distributed as dist
from torch import Tensor

from ...factors import as_factor, column_norms, gram
from .sample_sums import SampleSums
from .watch import Watch


class Newest:
    """What is kept of the newest tensors under a key, until they are written to or others come.

    Unlike `TensorCache` it asks nothing that may differ between processes, such as who made a tensor's memory: what one
    process knows and another does not, only the other would ask for. Writes by numpy to a factor are not noticed.
    """

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[tuple[Tensor, ...], list[int], Any]] = {}

    def known(self, key: Hashable, inputs: Sequence[Tensor]) -> bool:
        """Tell whether the newest tensors are these."""
        kept = self._kept.get(key)
        return kept is not None and all(
            [a is b and b._version == v for a, b, v in zip(kept[0], inputs, kept[1], strict=True)]
        )

    def __call__(self, key: Hashable, inputs: Sequence[Tensor], make: Callable[[], Any]) -> Any:
        """Return what is kept of these tensors, or make it."""
        if not self.known(key, inputs):
            value = make()
            self._kept[key] = tuple(inputs), [t._version for t in inputs], value
        return self._kept[key][2]


class ProcessSums(SampleSums):
    """Sums over the rows of all processes of a group; every process gets the same numbers, to the last bit.

    All processes must ask for the same sums in the same order. They do, as long as what they decide by is such a sum.

    Parameters
    ----------
    group : process group of `torch.distributed`
    watch : Watch
        Of that group: messages go through it.
    device : torch.device
        Where the rows are.
    rows : sequence of int
        Rows of every process, in the order of the ranks.
    """

    alone = False

    def __init__(self, group: Any, watch: Watch, device: torch.device, rows: Sequence[int]) -> None:
        self.group, self.watch, self.device, self.rank, self.size = group, watch, device, watch.rank, watch.size
        self.rows, self.held, self.first = list(rows), rows[self.rank], sum(rows[: self.rank])
        self.newest = Newest()

    def total(self, *parts: Tensor) -> list[Tensor]:
        """Add tensors over all processes: one flat message for all parts, which are of one dtype.

        Matrices are sent and come back component-major, whatever kernel made them: processes must not differ in it.
        """
        stored = [P.mT if P.dim() > 1 else P for P in parts]
        flat = torch.cat([P.reshape(-1) for P in stored])  # a copy, of a single part too
        self._reduce(flat, dist.ReduceOp.SUM)
        sums = [piece.view(P.shape) for piece, P in zip(flat.split([P.numel() for P in stored]), stored, strict=True)]
        return [S.mT if S.dim() > 1 else S for S in sums]

    def total_with_gram(self, product: Tensor, V: Tensor) -> Tensor:
        """Add products with `V` over all processes, and its Gram in the same message, which is asked for next."""
        if self.newest.known("gram", (V,)):
            return self.total(product)[0]
        product, G = self.total(product, gram(V))
        self.newest("gram", (V,), lambda: G)
        return product

    def gram(self, V: Tensor) -> Tensor:
        """Add the Grams of all rows; kept for the newest V."""
        return self.newest("gram", (V,), lambda: self.total(gram(V))[0])

    def gram_of_others(self, factors: Sequence[Tensor], mode: int) -> Tensor:
        """Multiply the Grams of all factors but one; that of the samples is the sum over all processes."""
        others = [F for b, F in enumerate(factors) if b != mode and b]
        grams = ([self.gram(factors[0])] if mode else []) + [gram(F) for F in others]
        return reduce(torch.mul, grams)

    def square_norms(self, V: Tensor) -> Tensor:
        """Read the squared lengths from the Gram."""
        return self.gram(V).diagonal(dim1=-2, dim2=-1).unsqueeze(-2)

    def column_norms(self, V: Tensor) -> Tensor:
        """Add the squares of the processes' own lengths over the longest of them."""
        norms = column_norms(V)
        peak = self.peak(norms)
        return peak * self.total((norms / torch.where(peak > 0, peak, 1)).square())[0].sqrt()

    def orthonormal(self, Y: Tensor) -> Tensor:
        """Factor the rows of every process, then all triangles that come of it (tall-skinny QR)."""
        Q, R = torch.linalg.qr(Y)
        sizes = [min(n, Y.shape[1]) for n in self.rows]
        own = slice(sum(sizes[: self.rank]), sum(sizes[: self.rank + 1]))
        triangles = Y.new_zeros(sum(sizes), Y.shape[1])
        triangles[own] = R
        return Q @ torch.linalg.qr(self.total(triangles)[0])[0][own]

    def add(self, part: Tensor) -> Tensor:
        """Add a sum over rows of this process to those of the others."""
        return self.total(part)[0]

    def peak(self, part: Tensor) -> Tensor:
        """Find the largest of every entry over all processes."""
        found = part.clone(memory_format=torch.contiguous_format)
        self._reduce(found, dist.ReduceOp.MAX)
        return found

    def alike(self, make: Callable[[], Any]) -> Any:
        """Make something of what users give; where one process refuses it, all do."""
        made, told = None, None
        try:
            made = make()
        except ValueError as error:
            told = str(error)
        every = self.collect(told)
        for rank, message in enumerate(every):
            if message is not None:
                raise ValueError(message if every[0] == message else f"rank {rank}: {message}")
        return made

    def largest(self, number: float) -> float:
        """Find the largest over all processes."""
        found = torch.tensor([number], dtype=torch.float64, device=self.device)
        self._reduce(found, dist.ReduceOp.MAX)
        return float(found)

    def least(self, number: int) -> int:
        """Find the least over all processes."""
        return int(-self.largest(-number))

    def same(self, value: Any) -> Any:
        """Send the value of the first process to all."""
        return self.collect(value)[0]

    def own(self, V: Tensor, per_sample: int = 1) -> Tensor:
        """Copy the rows of this process, of so many for each sample."""
        first, held = self.first * per_sample, self.rows[self.rank] * per_sample
        return as_factor(V[..., first : first + held, :])

    def gather(self, F: Tensor, per_sample: int = 1) -> Tensor:
        """Join the rows of all processes, in the order of the ranks and component-major; all get the same numbers."""
        rows = [n * per_sample for n in self.rows]
        own = torch.nn.functional.pad(F.mT, (0, max(rows) - F.shape[-2])).contiguous()  # messages of one length
        parts = [torch.empty_like(own) for _ in rows]
        self.watch.exchange(lambda group: dist.all_gather(parts, own, group))
        return torch.cat([part[..., :n] for part, n in zip(parts, rows, strict=True)], -1).mT

    def join(self, given: Any, name: str) -> Any:
        """Return what users give for the samples of this process; of what they give for all samples, its rows."""
        given, total = _sliceable(given), sum(self.rows)
        counts = self.collect(None if given is None else given.shape[0] if hasattr(given, "shape") else len(given))
        allowed = [(rows, total) if counts[0] is not None else (None,) for rows in self.rows]
        for rank, (count, fits) in enumerate(zip(counts, allowed, strict=True)):
            if count not in fits:
                held = "nothing" if count is None else f"{count} rows"
                raise ValueError(
                    f"{name}: rank {rank} gives {held}, and rank 0 {'nothing' if counts[0] is None else counts[0]}; "
                    f"every process gives the rows of its samples, here {self.rows[rank]}, or of all {total}"
                )
        own = given is None or counts[self.rank] == self.rows[self.rank]
        return given if own else given[self.first : self.first + self.rows[self.rank]]

    def listeners(self, callbacks: Sequence[Callable[[Any], Any]], max_seconds: float | None) -> tuple[Any, Any]:
        """Join callbacks and the limit in one answer, which is true in all processes as soon as it is in one."""
        if not callbacks and max_seconds is None:
            return callbacks, max_seconds
        late = [] if max_seconds is None else [lambda told: told.seconds > max_seconds]
        asked = [*callbacks, *late]
        return [lambda told: bool(self.largest(float(any([bool(ask(told)) for ask in asked]))))], None

    def collect(self, value: Any) -> list[Any]:
        """List what every process has, in the order of the ranks; all must ask."""
        return collect(value, self.watch)

    def _reduce(self, flat: Tensor, kind: Any) -> None:
        self.watch.exchange(lambda group: dist.all_reduce(flat, kind, group))


def _sliceable(given: Any) -> Any:
    """Return lists, arrays and tensors as they are, sparse matrices by rows, and anything else as an array."""
    if sp.issparse(given):
        return given.tocsr()
    return given if given is None or isinstance(given, list | tuple | np.ndarray | Tensor) else np.asarray(given)


def collect(value: Any, watch: Watch) -> list[Any]:
    """List a value that every process of a group has, in the order of the ranks."""
    found: list[Any] = [None] * watch.size
    watch.exchange(lambda group: dist.all_gather_object(found, value, group))
    return found
