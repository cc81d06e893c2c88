"""How much memory a piece of work needs on top of what was there before it."""

from __future__ import annotations

import contextlib
import ctypes
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")

HOW = {
    "cpu": "growth of the process's resident high-water mark, reset after freed memory went back to the system",
    "cuda": "growth of torch.cuda.max_memory_allocated",
    "": "not available: this system cannot reset a process's high-water mark",
}


def peak_growth(work: Callable[[], Any], device: Any) -> int | None:
    """Measure the bytes at the highest point of `work` beyond those before it; None where that cannot be had."""
    return _cuda(work, device) if device.type == "cuda" else _resident(work)


def how(device: Any) -> str:
    """Say how `peak_growth` measures there."""
    if device.type == "cuda":
        return HOW["cuda"]
    return HOW["cpu" if _reset() else ""]


def _cuda(work: Callable[[], Any], device: Any) -> int:
    import torch

    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    work()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before


def _resident(work: Callable[[], Any]) -> int | None:
    gc.collect()
    _return_freed_memory()
    if not _reset():
        return None
    before = _read("VmRSS")
    work()
    return max(0, _read("VmHWM") - before)


def _reset() -> bool:
    """Set the high-water mark to what is resident now."""
    try:
        CLEAR.write_text("5")
        return _read("VmHWM") > 0
    except (OSError, ValueError, StopIteration):
        return False


def _return_freed_memory() -> None:
    """Memory that the allocator kept would hide that the work needs it."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _read(name: str) -> int:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024
