"""What a run was measured on."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("nnfactor", "torch", "numpy", "scipy", "numba", "scikit-learn", "tensorly", "torchnmf", "nn-fac")

BLAS_VARIABLES = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")  # they choose a kernel that OpenBLAS would not choose itself

FASTEST_BLAS = ("peers",)  # experiments whose rivals run on the kernel that OpenBLAS chooses itself


def restart_on_fastest_blas(experiments: Iterable[str]) -> None:
    """Start this program anew without the variables that choose a kernel, where an experiment asks for it.

    OpenBLAS reads them when it is loaded: later is too late.
    """
    there = [name for name in BLAS_VARIABLES if name in os.environ]
    if not there or not set(FASTEST_BLAS).intersection(experiments):
        return
    print(f"starting anew without {' and '.join(there)}: OpenBLAS chooses its kernel", file=sys.stderr, flush=True)
    environment = {name: value for name, value in os.environ.items() if name not in BLAS_VARIABLES}
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


def prepare_torch(threads: int) -> None:
    """Set threads as asked, TF32 off."""
    import torch

    torch.set_num_threads(threads)
    torch.backends.cuda.matmul.allow_tf32 = False


def describe(device: Any, threads: int) -> dict[str, Any]:
    """Describe device, processor, threads, load and versions as plain values."""
    import torch

    return {
        "device": str(device),
        "device_name": torch.cuda.get_device_name(device) if device.type == "cuda" else processor(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": threads,
        "load_average": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
        "commit": commit(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def commit(folder: Path = Path(__file__).parent) -> str:
    """Name the commit of the checkout, "with changes" if files differ from it; the version where there is no git."""
    try:
        ask = lambda *words: subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, text=True, check=True, timeout=20
        ).stdout.strip()
        found = ask("rev-parse", "--short=10", "HEAD")
        return f"{found} with changes" if ask("status", "--porcelain", "--untracked-files=no") else found
    except (OSError, subprocess.SubprocessError):
        return f"version {_version('nnfactor')}"


def processor() -> str:
    """Name the processor's model."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
