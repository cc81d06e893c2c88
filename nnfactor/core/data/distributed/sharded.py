"""Data whose samples are split over processes."""

from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ...cache import TensorCache
from ..as_data import as_data
from ..base import Data, summary
from ..dense import floor_of
from .process_sums import ProcessSums, collect
from .watch import watch


class Sharded(Data):
    """Samples split over the processes of a group of `torch.distributed`: each hands in its own, and keeps them.

    Every process runs the same program with the same parameters, and has its own rows of the sample factor, in the
    order of the ranks. The other factors, objectives and what is decided by them are equal in all. Products with the
    samples (`times`) need no message; one flat `all_reduce` brings the sums over samples of a sweep. Of order 3 and
    more there is one for each mode, as the sum of what every mode takes is far smaller than the product of all modes.

    Parameters
    ----------
    X : array, tensor, scipy sparse matrix, sparse tensor or Data (n_local, d_1, ..., d_r)
        Rows of this process, at least one, as for `as_data`; numbers of rows may differ. They must not be written to.
    group : process group, optional
        Default: the one of all processes, which `torch.distributed.init_process_group` made.
    device, dtype : optional, as for `as_data`

    Attributes
    ----------
    shape : tuple of int
        That of all samples together.
    local : Data
        The rows of this process.

    Raises
    ------
    RuntimeError
        There is no process group.
    ValueError
        Rows of one process are bad, or differ from those of others in features or dtype; in all processes, by rank.
    """

    def __init__(
        self,
        X: Any,
        group: Any = None,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if not (dist.is_available() and dist.is_initialized()):
            raise RuntimeError(
                "Sharded needs a process group: call torch.distributed.init_process_group('gloo') first, in a program "
                "that torchrun starts"
            )
        group = dist.group.WORLD if group is None else group
        local, facts = _read_rows(X, device, dtype)
        watched = watch(group)
        every = collect(facts, watched)
        _refuse_mixture(every)
        assert local is not None
        rows = [known["shape"][0] for known in every]
        super().__init__((sum(rows), *local.shape[1:]), local.dtype, local.device)
        self.sums: ProcessSums = ProcessSums(group, watched, local.device, rows)
        self.cut, self.read_in, self.rows_per_problem = local.cut, local.read_in, local.rows_per_problem
        self.entries_read = sum(known["entries"] for known in every)
        self._largest = max(known["largest"] for known in every)
        self.floor = floor_of(torch.tensor(self._largest, dtype=self.dtype, device=self.device))
        self.local = copy(local)
        self.local.cache, self.local.floor = TensorCache(*local.cache.data), self.floor
        numbers = torch.tensor([known["numbers"] for known in every], dtype=torch.float64, device="cpu").to(self.device)
        low, high, total, count, squares = numbers.unbind(1)
        whole = torch.stack([low.min(), high.max(), total.sum(), count.sum()])
        self.cache("summary", (), lambda: whole)  # of all samples: nothing is asked of the entries again
        self.cache("sqnorm", (), lambda: squares.sum())

    def entries(self) -> Iterator[Tensor]:
        """Iterate over the entries of this process."""
        return self.local.entries()

    def samples(self) -> Any:
        """Refuse: no process has all samples."""
        raise ValueError(
            f"X is Sharded over {self.sums.size} processes, none of which has all samples; graphs, kernels and "
            "hold-outs need them: hand in one array in one process"
        )

    def scaled(self, factor: float) -> "Sharded":
        """Multiply the rows of every process by a number."""
        return Sharded(self.local.scaled(factor), self.sums.group)

    def take(self, rows: Tensor) -> Data:  # type: ignore[override]
        """Refuse: samples do not move between processes."""
        raise ValueError(
            f"X is Sharded over {self.sums.size} processes; mini-batches and hold-outs need samples from all of them: "
            "use batch_size=None, or one array in one process"
        )

    def times(self, F: Tensor) -> Tensor:
        """Multiply the rows of this process by `F`: the rows of this process of the product."""
        return self.local.times(F)

    def times_transposed(self, F: Tensor) -> Tensor:
        """Multiply the transposed rows by `F`, which has as many rows as this process, and add over all."""
        return self.sums.total(self.local.times_transposed(F))[0]

    def mttkrp(self, factors: Sequence[Tensor], mode: int) -> Tensor:
        """Contract the rows of this process, for another mode than the samples added over all (kept)."""
        if mode == 0:
            return self.local.mttkrp(factors, 0)
        others = [F for b, F in enumerate(factors) if b != mode]
        add = lambda: self.sums.total_with_gram(self.local.mttkrp(factors, mode), factors[0])
        return self.sums.newest(("mttkrp", mode), others, add)

    def residual_sq(self, factors: Sequence[Tensor]) -> Tensor:
        """Add the squared residuals of the rows of every process, from float64 factors (kept)."""
        wide = [F.double() for F in factors]
        return self.sums.newest("residual_sq", wide, lambda: self.divergence(wide, 2))

    def distance_sq(self, factors: Sequence[Tensor], mode: int = 0) -> Tensor:
        """Add the distances of the rows of every process."""
        return self.sums.total(self.local.distance_sq(factors, mode))[0]

    def divergence(self, factors: Sequence[Tensor], beta: float) -> Tensor:
        """Add the divergences of the rows of every process."""
        return self.sums.total(self.local.divergence(factors, beta))[0]

    def ratio_products(self, factors: Sequence[Tensor], mode: int, beta: float) -> tuple[Tensor, Tensor]:
        """Compute both of the rows of this process; for another mode than the samples add them over all."""
        minus, plus = self.local.ratio_products(factors, mode, beta)
        if mode == 0:
            return minus, plus
        minus, plus = self.sums.total(minus, plus)
        return minus, plus

    def group_product(self, factors: Sequence[Tensor], last: bool) -> Tensor:
        """Refuse: Tucker models sum over samples outside of data."""
        raise ValueError("X is Sharded, which Tucker models do not take; use NTF, or one array in one process")

    def largest(self) -> float:
        """Find the largest absolute value of an entry of all processes."""
        return self._largest


def _read_rows(X: Any, device: Any, dtype: Any) -> tuple[Data | None, dict[str, Any]]:
    """Read the rows of this process, and list what the others must know of them: an error instead of raising it."""
    try:
        local = as_data(X, device, dtype, name="X", signed=True)
        if isinstance(local, Sharded) or local.weighted or not local.in_memory:
            kind = type(local).__name__
            raise ValueError(f"X is {kind}, which cannot be sharded; hand in rows in memory, without weights")
    except (TypeError, ValueError) as error:
        return None, {"error": str(error)}
    return local, {
        "error": None,
        "shape": local.shape,
        "dtype": str(local.dtype),
        "kind": type(local).__name__,
        "entries": local.entries_read,
        "numbers": [*summary(local).tolist(), float(local.sqnorm())],
        "largest": local.largest(),
    }


def _refuse_mixture(every: Sequence[dict[str, Any]]) -> None:
    """Refuse what one process could not read, and rows that are not of one array."""
    for rank, known in enumerate(every):
        if known["error"] is not None:
            raise ValueError(f"rows of rank {rank}: {known['error']}")
    first = every[0]
    for rank, known in enumerate(every):
        kind = lambda one: (*one["shape"][1:], one["dtype"], one["kind"])
        if kind(known) != kind(first):
            raise ValueError(
                f"rows of rank {rank} are {known['kind']} of {known['shape']} and {known['dtype']}, those of rank "
                f"0 {first['kind']} of {first['shape']} and {first['dtype']}; only the numbers of rows may differ: "
                "convert them alike"
            )
