"""How many problems of a batch fit into memory."""

from math import ceil, prod

import torch

from ..data.base import Data
from ..free_memory import free_bytes

# A problem is counted in copies of its factors: states, gradients, temporaries of rules, results. Peak memory of 42
# problems (float32, k = 20) over that of two: multiplicative 10, HALS 12, Kullback-Leibler 23, NGE 31 copies a problem
# at 4000 x 300, NTF 13 (of its matrix's sides) at 300 x 60 x 60, sparse 6 at 6000 x 3000.
COPIES = 32

# The same of a single problem, which also has its start, its published factors and their float64 copies: 7 to 22 were
# seen. Fewer than these no fit has: where they have no room, nothing is begun.
LEAST_COPIES = 6

MANY = 1 << 22  # numbers in the factors of a problem from which on room for it is asked for before it begins

SHARE = 0.5  # of the free memory


def bytes_per_problem(data: Data, rank: int) -> int:
    """Estimate the bytes that one problem needs at most."""
    numbers = copies_of_factors(data.rows_per_problem, rank)
    sparse = data.entries_read < prod(data.shape)
    if data.in_memory and sparse:  # ratios at all stored entries are made, others in chunks
        numbers += 2 * data.entries_read
    return numbers * data.dtype.itemsize


def problems_per_batch(problems: int, each: int, device: torch.device, max_bytes: int | None = None) -> int:
    """Choose how many problems of `each` bytes run at once, in batches of nearly equal size."""
    if max_bytes is not None and max_bytes < each:
        raise ValueError(f"max_bytes={max_bytes} is too little for one problem; it needs about {each} bytes")
    budget = max_bytes if max_bytes is not None else SHARE * free_bytes(device)
    most = max(1, int(min(problems, budget // each)))
    return ceil(problems / ceil(problems / most))


def copies_of_factors(rows: int, rank: int, copies: int = COPIES) -> int:
    """Count the numbers that copies of the factors of a problem have; `rows` are those of all its factors."""
    return copies * rows * rank


def refuse_without_room(rows: int, rank: int, itemsize: int, device: torch.device) -> None:
    """Refuse a problem whose factors alone do not fit into what is free, before anything of it is made.

    Raises
    ------
    MemoryError
        With what is needed, what is free, and the rank that would fit.
    """
    need, free = copies_of_factors(rows, rank, LEAST_COPIES) * itemsize, free_bytes(device)
    if need > free:
        most = int(free // (LEAST_COPIES * rows * itemsize))
        advice = f"n_components={most}" if most else "fewer samples"
        raise MemoryError(
            f"a fit of rank {rank} holds {LEAST_COPIES} copies of its factors at least, {need / 1e9:.2f} GB beside the "
            f"data, but {free / 1e9:.2f} GB are free on {device}; use {advice}, or dtype='float32' where it is float64"
        )
