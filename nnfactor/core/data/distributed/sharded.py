"""Data whose samples are split over processes."""

from collections.abc import Iterator, Sequence
from copy import copy
from functools import partial
from math import prod
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor

from ...cache import TensorCache
from ..as_data import as_data
from ..base import Data, summary
from ..chunked.storage import Chunked
from ..dense import floor_of
from ..hidden import hidden_counts, hide, relaxes_all, take_mask, weigh_all
from ..weighted import Weighted, make_part
from .gathered import Gathered, GatheredWeighted
from .part import Part
from .process_sums import ProcessSums, collect
from .sharded_weighted import ShardedWeighted
from .watch import watch


class Sharded(Data):
    """Samples split over the processes of a group of `torch.distributed`: each hands in its own, and keeps them.

    Every process runs the same program with the same parameters, and has its own rows of the sample factor, in the
    order of the ranks. The other factors, objectives and what is decided by them are equal in all. Products with the
    samples (`times`) need no message; one flat `all_reduce` brings the sums over samples of a sweep. Of order 3 and
    more there is one for each mode, as the sum of what every mode takes is far smaller than the product of all modes.
    Models that couple samples (graphs, labels, views) work with `gathered` data: one `all_gather` more in a sweep
    brings the products of all samples, and every process holds the factor of all. Others work with `split` data, which
    are these themselves where no entry has a weight.

    Parameters
    ----------
    X : array, tensor, scipy sparse matrix, sparse tensor or Data (n_local, d_1, ..., d_r)
        Rows of this process, at least one, as for `as_data`; numbers of rows may differ. They must not be written to.
        Of a masked array, what it hides is missing. `Chunked` rows are read in blocks (`part_of`).
    group : process group, optional
        Default: the one of all processes, which `torch.distributed.init_process_group` made.
    device, dtype : optional, as for `as_data`
    missing : {"nan", "unstored"} or None
        What is missing, as for `NMF`; the same in every process.
    weights : array of the shape of X, optional
        How much each entry counts, as for `NMF.fit`.

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
        missing: str | None = None,
        weights: Any = None,
    ) -> None:
        _require_group()
        group = dist.group.WORLD if group is None else group
        local, facts = _read_rows(X, (device, dtype), missing, weights)
        watched = watch(group)
        every = collect(facts, watched)
        _refuse_mixture(every)
        assert local is not None
        rows = [known["shape"][0] for known in every]
        super().__init__((sum(rows), *local.shape[1:]), local.dtype, local.device)
        self.sums: ProcessSums = ProcessSums(group, watched, local.device, rows)
        self.weighted = any(known["weighted"] for known in every)
        self._largest = max(known["largest"] for known in every)
        self.floor = floor_of(torch.tensor(self._largest, dtype=self.dtype, device=self.device))
        local = weigh_all(local, self.shape) if self.weighted else local
        self.local = copy(local)
        self.local.floor = self.floor
        if local.in_memory:
            self.local.cache = TensorCache(*local.cache.data)
        self.cut, self.read_in, self.rows_per_problem = local.cut, local.read_in, local.rows_per_problem
        self.entries_read, self.dense = sum(known["entries"] for known in every), every[0]["dense"]
        self.peak = max(known["peak"] for known in every)
        self.relaxes = self.weighted and relaxes_all([known["hidden"] for known in every])
        if self.weighted:
            make_part(cast(Weighted, self.local), self.peak, float(self.floor))
        self.numbers = _add_up([known["numbers"] for known in every if known["counts"]], self.device)
        self._weighted_numbers = _add_up([known["weighted numbers"] for known in every], self.device)
        self.cache("summary", (), lambda: self.numbers[:4])  # of all samples: nothing is asked of the entries again
        self.cache("sqnorm", (), lambda: self.numbers[4])

    @classmethod
    def part_of(cls, source: Any, group: Any = None, **how: Any) -> "Sharded":
        """Make data of a source of all samples, of which every process reads its part: even, in the order of the ranks.

        Parameters
        ----------
        source : array-like that is sliced, or list, as for `Chunked`
            Every process opens the same, as by `nnfactor.io.open_data`.
        group : process group, optional
        how : `max_bytes`, `n_rows`, `dtype`, `device`, of `Chunked`
        """
        _require_group()
        rank, size = dist.get_rank(group), dist.get_world_size(group)
        return cls(partial(lambda: Chunked(Part(source, rank, size), **how)), group)

    def split(self) -> Data:
        """Make the same data for models whose rows of V do not depend on each other: themselves, but for weights."""
        if not self.weighted:
            return self
        base, local = copy(self), cast(Weighted, self.local)
        base.local, base.weighted, base.cache, numbers = local.data, False, TensorCache(), self._weighted_numbers
        base.cache("summary", (), lambda: numbers[:4])
        base.cache("sqnorm", (), lambda: numbers[4])
        return ShardedWeighted(self, base, local, self.numbers)

    def gathered(self) -> Data:
        """Make the same data for models that need the factor of all samples in one place (`Gathered`)."""
        if not self.weighted:
            return Gathered(self, self.local, self.numbers)
        local = cast(Weighted, self.local)
        return GatheredWeighted(self, Gathered(self, local.data, self._weighted_numbers), local, self.numbers)

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

    def completed(self, factors: Sequence[Tensor], mode: int) -> Tensor:
        """Refuse weighted rows: their sums need what `split` has."""
        if self.weighted:
            raise ValueError("X is Sharded with weighted or missing entries; use X.split(), as estimators do")
        return self.mttkrp(factors, mode)

    def group_product(self, factors: Sequence[Tensor], last: bool) -> Tensor:
        """Refuse: Tucker models sum over samples outside of data."""
        raise ValueError("X is Sharded, which Tucker models do not take; use NTF, or one array in one process")

    def largest(self) -> float:
        """Find the largest absolute value of an entry of all processes."""
        return self._largest


def _require_group() -> None:
    if not (dist.is_available() and dist.is_initialized()):
        raise RuntimeError(
            "Sharded needs a process group: call torch.distributed.init_process_group('gloo') first, in a program that "
            "torchrun starts"
        )


def _read_rows(X: Any, place: tuple[Any, Any], missing: Any, weights: Any) -> tuple[Data | None, dict[str, Any]]:
    """Read the rows of this process, and list what the others must know of them: an error instead of raising it."""
    try:
        local = _read(X() if isinstance(X, partial) else X, *place, missing, weights)
        largest = local.largest()  # of blocks, the pass in which all of the rest is found
        numbers = lambda data: [*summary(data).tolist(), float(data.sqnorm())]
        base = cast(Weighted, local).data if local.weighted else local
        return local, {
            "error": None,
            "shape": local.shape,
            "dtype": str(local.dtype),
            "kind": type(base).__name__,
            "dense": base.entries_read == prod(base.shape),
            "entries": local.entries_read,
            "numbers": numbers(local),
            "weighted numbers": numbers(base),
            "largest": largest,
            "weighted": local.weighted,
            "peak": local.peak,
            "hidden": hidden_counts(local),
            "counts": not local.weighted or bool(cast(Weighted, local).total_weight() > 0),
        }
    except (TypeError, ValueError, OSError) as error:
        return None, {"error": str(error)}


def _read(X: Any, device: Any, dtype: Any, missing: Any, weights: Any) -> Data:
    """Read rows as `as_data` does, with what hides or weighs entries."""
    X, mask = take_mask(X)
    weigh = None
    if mask is not None or missing is not None or weights is not None:
        X, weigh = hide(X, missing, mask, weights, zeros_are_free=False, none_may_count=True)
    local = as_data(X, device, dtype, name="X", signed=True)
    if not local.sums.alone:
        raise ValueError(f"X is {type(local).__name__}, which cannot be sharded; hand in the rows of this process")
    if not local.in_memory and (device, dtype) != (None, None):
        local = cast(Chunked, local).placed(None if device is None else torch.device(device), dtype)
    return local if weigh is None else weigh(local)


def _add_up(numbers: Sequence[Sequence[float]], device: torch.device) -> Tensor:
    """Join what every process found of its entries: the smallest, the largest, and three sums."""
    low, high, *sums = torch.tensor(numbers, dtype=torch.float64, device="cpu").to(device).unbind(1)
    return torch.stack([low.min(), high.max(), *(part.sum() for part in sums)])


def _refuse_mixture(every: Sequence[dict[str, Any]]) -> None:
    """Refuse what one process could not read, and rows that are not of one array."""
    for rank, known in enumerate(every):
        if known["error"] is not None:
            raise ValueError(f"rows of rank {rank}: {known['error']}")
    if not any(known["counts"] for known in every):
        raise ValueError("X has no entry that counts: all are hidden or have weight 0")
    first = every[0]
    for rank, known in enumerate(every):
        kind = lambda one: (*one["shape"][1:], one["dtype"], one["kind"])
        if kind(known) != kind(first):
            raise ValueError(
                f"rows of rank {rank} are {known['kind']} of {known['shape']} and {known['dtype']}, those of rank "
                f"0 {first['kind']} of {first['shape']} and {first['dtype']}; only the numbers of rows may differ: "
                "convert them alike"
            )
