"""Loops that are compiled: by numba for the CPU (extra `fast`), by Triton for GPUs. Where there is none, torch does it.

A factor passes through the cache tile by tile, with all its columns and all sweeps over them, where torch needs several
operations for every column. Importing numba takes a third of a second, once for every process, and the first call on a
machine compiles for about ten seconds; both wait until a loop is asked for. Triton comes with torch's builds for CUDA
on Linux. `NNFACTOR_COMPILED=0` switches both off, `NNFACTOR_TRITON=0` the kernels of GPUs alone.
"""

import importlib
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType

import torch
from torch import Tensor

from ..gpu import sweeps_by_triton

LOG = logging.getLogger("nnfactor")

_switch = {"on": os.environ.get("NNFACTOR_COMPILED", "1") != "0"}


def compiled_loops(name: str, *tensors: Tensor) -> ModuleType | None:
    """Return the module of loops of this name for a factor and what goes with it, or None where torch has to do.

    That is without numba or Triton, for ranks beyond a kernel's, and for tensors that record gradients. Without tensors
    it is asked for the CPU.
    """
    if not _switch["on"] or not all(map(_is_plain, tensors)):
        return None
    if not tensors or tensors[0].is_cpu:
        return _load(name) if all(type(t) is Tensor for t in tensors) else None  # numpy sees no fake tensor
    F = tensors[0]
    if sweeps_by_triton(F.device.type, F.shape[-1]):
        return _load_for_gpu(f"triton_{name}", F.device if type(F) is Tensor else None)
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
    except ImportError as error:  # numba or Triton, or a part of them that this machine lacks
        LOG.info("%s: torch does what compiled loops would do (%s)", name, error)
        return None


@cache
def _load_for_gpu(name: str, device: torch.device | None) -> ModuleType | None:
    """Load kernels, and try them once on a device: some have no code for it, or lack the compiler for it."""
    kernels = _load(name)
    try:
        if kernels is not None and device is not None:
            kernels.probe(device)
    except Exception as error:  # whatever Triton raises
        LOG.info("%s: torch does what kernels would do on %s (%s)", name, device, error)
        return None
    return kernels


def _is_plain(t: Tensor) -> bool:
    return not t.requires_grad and t.dtype in (torch.float32, torch.float64)
