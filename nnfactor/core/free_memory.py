"""How much memory can still be taken."""

import os
from pathlib import Path

import torch

from . import gpu


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
