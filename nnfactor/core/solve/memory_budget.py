"""How many problems of a batch fit into memory."""

from math import ceil, prod

import torch

from ..data.base import Data
from ..free_memory import free_bytes

# A problem is counted in copies of its factors: states, gradients, temporaries of rules, results. Peak memory of 42
# problems (float32, k = 20) over that of two: multiplicative 10, HALS 12, Kullback-Leibler 23, NGE 31 copies a problem
# at 4000 x 300, NTF 13 (of its matrix's sides) at 300 x 60 x 60, sparse 6 at 6000 x 3000.
COPIES = 32

SHARE = 0.5  # of the free memory


def bytes_per_problem(data: Data, rank: int) -> int:
    """Estimate the bytes that one problem needs at most."""
    numbers = COPIES * data.rows_per_problem * rank
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
