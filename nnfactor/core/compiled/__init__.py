"""Loops that numba compiles for the CPU (extra `fast`); where it is not installed, torch does the same.

A factor passes through the cache tile by tile, with all its columns and all sweeps over them, where torch needs several
operations for every column. Importing numba takes a third of a second, once for every process, and the first call on a
machine compiles for some seconds; both wait until a loop is asked for. `NNFACTOR_COMPILED=0` switches them off.
"""

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType

import torch
from torch import Tensor

_switch = {"on": os.environ.get("NNFACTOR_COMPILED", "1") != "0"}


def compiled_loops(name: str, *tensors: Tensor) -> ModuleType | None:
    """Return the module of loops of this name, or None where torch has to do: no numba, a GPU, tensors that record."""
    if _switch["on"] and all(map(_is_plain, tensors)):
        return _load(name)
    return None


@contextmanager
def without_compiled_loops() -> Iterator[None]:
    """Leave everything to torch meanwhile: for comparisons."""
    before, _switch["on"] = _switch["on"], False
    try:
        yield
    finally:
        _switch["on"] = before


@cache
def _load(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(f"{__name__}.{name}")
    except ImportError:  # numba, or a part of it that this machine lacks
        return None


def _is_plain(t: Tensor) -> bool:
    """Tell whether numpy can see the memory of a tensor: no fake one, none of a gradient's graph."""
    return type(t) is Tensor and t.is_cpu and not t.requires_grad and t.dtype in (torch.float32, torch.float64)
