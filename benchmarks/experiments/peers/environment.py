"""What the race was run with: the processor, the kernels of every BLAS, whether our compiled loops were used."""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ...harness.machine import BLAS_VARIABLES
from ...harness.results import Row


def describe_environment(processor: str) -> list[Row]:
    """List the parts that decide about speed, once the packages of the race are loaded."""
    rows = [{"what": "processor", "is": processor}]
    rows += [{"what": _library(one), "is": _kernel(one)} for one in _loaded() if one["user_api"] == "blas"]
    rows += [{"what": "BLAS of torch", "is": _of_torch()}, {"what": "sweeps of nnfactor", "is": _sweeps()}]
    there = [f"{name}={os.environ[name]}" for name in BLAS_VARIABLES if name in os.environ]
    rows.append({"what": "variables that choose a kernel", "is": ", ".join(there) or "not set"})
    return [{"kind": "environment", **row} for row in rows]


def _loaded() -> list[dict[str, Any]]:
    from threadpoolctl import threadpool_info

    return threadpool_info()


def _library(one: dict[str, Any]) -> str:
    """Name a library by the package that brings it: "numpy.libs/libscipy_openblas64_...so"."""
    folder = Path(one["filepath"]).parent
    package = folder.parent.name if folder.name == "lib" else folder.name.removesuffix(".libs")
    return f"BLAS of {package}"


def _kernel(one: dict[str, Any]) -> str:
    parts = (one["internal_api"], one.get("version"), one.get("architecture"))
    return " ".join(str(part) for part in parts if part) + f", {one['num_threads']} thread(s)"


def _of_torch() -> str:
    """Which BLAS torch was built with: linked into it, its kernel cannot be asked for."""
    import torch

    return f"{'MKL' if torch.backends.mkl.is_available() else 'not MKL'}, {torch.backends.cpu.get_cpu_capability()}"


def _sweeps() -> str:
    from nnfactor.core.compiled import compiled_loops

    return f"compiled by numba {version('numba')}" if compiled_loops("columns") else "torch"
