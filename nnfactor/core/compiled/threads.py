"""Compiled loops on as many threads as torch uses."""

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numba
import torch

WORTH = 4_000_000  # operations of a part: fewer take less time than another thread needs to begin


def jit(function: Callable, reassociate: bool = False) -> Callable:
    """Compile at the first call, without the interpreter's lock; on disk, where a folder for that can be written.

    `reassociate`: sums may be added in any order, as vector instructions do.
    """
    allowed = {"contract", "reassoc", "nsz"} if reassociate else {"contract"}
    options: Any = {"nogil": True, "fastmath": allowed, "error_model": "numpy"}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # no folder
        return numba.njit(**options)(function)


def call_in_parts(loop: Callable, items: int, operations: float, *arguments: Any) -> None:
    """Call `loop(*arguments, begin, end)` over parts of `range(items)`, which take so many operations together.

    Items must not depend on each other: then the answer does not depend on the number of threads.
    """
    parts = min(torch.get_num_threads(), items, int(operations / WORTH))
    if parts < 2:
        loop(*arguments, 0, items)
        return
    cuts = [items * i // parts for i in range(parts + 1)]
    flush = sys.float_info.min * 0.5 == 0  # a setting of every thread
    pool = _pool(parts - 1, os.getpid())
    others = [pool.submit(_call, loop, flush, *arguments, *cuts[i : i + 2]) for i in range(1, parts)]
    loop(*arguments, *cuts[:2])
    for other in others:
        other.result()


def _call(loop: Callable, flush: bool, *arguments: Any) -> None:
    torch.set_flush_denormal(flush)
    loop(*arguments)


@cache
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    """Return the threads beside the caller's, of this process: those of a parent do not outlive a fork."""
    return ThreadPoolExecutor(threads, thread_name_prefix="nnfactor")
