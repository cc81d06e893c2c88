"""What the first process does for all: it collects, decides, reads and writes."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from .process_sums import ProcessSums


def gather_to_first(sums: ProcessSums, F: Tensor) -> Tensor:
    """Join the rows of all processes in the first, component-major; the others get their own back."""
    parts: list[Tensor] | None = None
    own = torch.nn.functional.pad(F.mT, (0, max(sums.rows) - F.shape[-2])).contiguous()
    if sums.rank == 0:
        parts = [torch.empty_like(own) for _ in sums.rows]
    sums.watch.exchange(lambda group: dist.gather(own, parts, sums.watch.first, group))
    return F if parts is None else torch.cat([P[..., :n] for P, n in zip(parts, sums.rows, strict=True)], -1).mT


def first_makes(sums: ProcessSums, make: Callable[[], Any]) -> Any:
    """Let the first process make a value for all, or fail, as all do then; it may take as long as it needs."""
    told: list[Any] = [None, None]
    if sums.rank == 0:
        try:
            told[0] = make()
        except (OSError, ValueError) as error:
            told[1] = error
    sums.watch.tell_all(told)
    if told[1] is not None:
        raise told[1]
    return told[0]


def deal(sums: ProcessSums, parts: list[Any]) -> Any:
    """Give every process its part of a list that the first one has."""
    found: list[Any] = [None]
    given = parts if sums.rank == 0 else None
    sums.watch.exchange(lambda group: dist.scatter_object_list(found, given, sums.watch.first, group))
    return found[0]
