"""How many problems of a batch fit into memory."""

import os
from math import ceil, prod
from pathlib import Path

import torch

from .. import gpu
from ..data.base import Data

# A problem is counted in copies of its factors: states, gradients, temporaries of rules, results. Peak memory of 42
# problems (float32, k = 20) over that of two: multiplicative 10, HALS 12, Kullback-Leibler 23, NGE 31 copies a problem
# at 4000 x 300, NTF 13 (of its matrix's sides) at 300 x 60 x 60, sparse 6 at 6000 x 3000.
COPIES = 32

SHARE = 0.5  # of the free memory


def bytes_per_problem(data: Data, rank: int) -> int:
    """Estimate the bytes that one problem needs at most."""
    numbers = COPIES * data.rows_per_problem * rank
    if data.entries_read < prod(data.shape):  # ratios at the stored entries are made whole, those of all in chunks
        numbers += 2 * data.entries_read
    return numbers * data.dtype.itemsize


def problems_per_batch(problems: int, each: int, device: torch.device, max_bytes: int | None = None) -> int:
    """Choose how many problems of `each` bytes run at once, in batches of nearly equal size."""
    if max_bytes is not None and max_bytes < each:
        raise ValueError(f"max_bytes={max_bytes} is too little for one problem; it needs about {each} bytes")
    budget = max_bytes if max_bytes is not None else SHARE * free_bytes(device)
    most = max(1, int(min(problems, budget // each)))
    return ceil(problems / ceil(problems / most))


def free_bytes(device: torch.device) -> float:
    """Measure the memory that can still be taken on a device; infinity where nobody says."""
    return min(_available(), _group_limit()) if device.type == "cpu" else gpu.free_bytes(device)


def _available() -> float:
    """Ask the operating system what it could give, caches included where it tells."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(1024.0 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError, IndexError):
        pass
    try:
        return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return float("inf")


def _group_limit() -> float:
    """Read what a container leaves (control groups, version 2)."""
    group = Path("/sys/fs/cgroup")
    try:
        limit, used = ((group / name).read_text().strip() for name in ("memory.max", "memory.current"))
        cache = next(int(v) for k, v in map(str.split, (group / "memory.stat").read_text().splitlines()) if k == "file")
    except (OSError, StopIteration, ValueError):
        return float("inf")
    return float("inf") if limit == "max" else float(int(limit) - int(used) + cache)
