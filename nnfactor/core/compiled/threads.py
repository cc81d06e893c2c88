"""Compiled loops on as many threads as torch uses."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

import numba
import torch
from threadpoolctl import ThreadpoolController

from ..precision import denormals, keeps_denormals

WORTH = 4_000_000  # operations of a part: fewer take less time than another thread needs to begin


def jit(function: Callable, reassociate: bool = False, inline: bool = False) -> Callable:
    """Compile at the first call, without the interpreter's lock; on disk, where a folder for that can be written.

    `reassociate`: sums may be added in any order, as vector instructions do. `inline`: the code becomes that of the
    caller. Else LLVM works on a function once for itself and once more for every function above it.
    """
    allowed = {"contract", "reassoc", "nsz"} if reassociate else {"contract"}
    options: Any = {
        "nogil": True,
        "fastmath": allowed,
        "error_model": "numpy",
        "inline": "always" if inline else "never",
    }
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
    pool = _pool(parts - 1, os.getpid())
    others = [pool.submit(_call, loop, keeps_denormals(), *arguments, *cuts[i : i + 2]) for i in range(1, parts)]
    loop(*arguments, *cuts[:2])
    for other in others:
        other.result()


def _call(loop: Callable, keep: bool, *arguments: Any) -> None:
    with denormals(keep):  # a setting of every thread
        loop(*arguments)


@cache
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    """Return the threads beside the caller's, of this process: those of a parent do not outlive a fork."""
    return ThreadPoolExecutor(threads, thread_name_prefix="nnfactor")


@contextmanager
def one_thread_of_blas() -> Iterator[None]:
    """Let the BLAS that compiled loops call, scipy's, take no threads of its own meanwhile.

    The setting is one of the process: the first of several callers at a time changes it, the last one restores it.
    """
    with _single["lock"]:
        if not _single["callers"]:
            _single["threads"] = [(library, library.get_num_threads()) for library in _blas_libraries()]
            _set_threads([(library, 1) for library, n in _single["threads"] if n > 1])
        _single["callers"] += 1
    try:
        yield
    finally:
        with _single["lock"]:
            _single["callers"] -= 1
            if not _single["callers"]:
                _set_threads([(library, n) for library, n in _single["threads"] if n > 1])


_single: dict[str, Any] = {"lock": Lock(), "callers": 0, "threads": []}


def _set_threads(wanted: list[tuple[Any, int]]) -> None:
    for library, n in wanted:
        library.set_num_threads(n)


@cache
def _blas_libraries() -> list[Any]:
    import scipy.linalg.cython_blas  # noqa: F401  # only what is loaded is found

    return ThreadpoolController().select(user_api="blas").lib_controllers
