"""The work itself: data on disk, a pass over them, and a fit in a process of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from nnfactor import Chunked
from nnfactor.io import open_data
from nnfactor.io.file_kinds import need

from ...harness.errors import BenchmarkError

CHUNK = 8  # megabytes of a chunk of zarr, all columns, at most


@dataclass(frozen=True)
class Fit:
    """Seconds of a process by the clock, and the bytes that were resident at its highest point."""

    seconds: float
    peak: int


def write_data(folder: str, name: str, megabytes: int, columns: int, limit: int, seed: int) -> float:
    """Write a nonnegative matrix of rank 20 and noise, float32, chunk by chunk; return the seconds.

    A block of a fit within the limit, a third of it, holds two chunks or more.
    """
    zarr, begun, rng = need("zarr", name, "writing it"), perf_counter(), np.random.default_rng(seed)
    chunk = max(1, min(CHUNK * 10**6, limit * 10**6 // 6) // (4 * columns))
    rows = max(chunk, megabytes * 10**6 // (4 * columns))
    if shutil.disk_usage(folder).free < 5 * rows * columns:
        raise BenchmarkError(f"parameters.megabytes={megabytes}: {folder} has no room for that; use --out or fewer")
    given = {"shape": (rows, columns), "chunks": (chunk, columns), "dtype": "f4"}
    target = zarr.open(str(Path(folder, f"{name}.zarr")), mode="w", **given)
    bases = rng.random((20, columns), dtype=np.float32) ** 4
    for first in range(0, rows, chunk):
        n = min(chunk, rows - first)
        noise = rng.random((n, columns), dtype=np.float32)
        target[first : first + n] = rng.random((n, 20), dtype=np.float32) ** 4 @ bases + 0.1 * noise
    return perf_counter() - begun


def read_once(folder: str, columns: int, limit: int) -> tuple[float, float]:
    """Read all blocks once as a fit does, the system's cache of the files dropped; return seconds and MB/s."""
    path = Path(folder, "big.zarr")
    for file in path.rglob("*"):
        if file.is_file() and hasattr(os, "posix_fadvise"):
            with open(file, "rb") as stream:
                os.fsync(stream.fileno())
                os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    data: Any = Chunked(open_data(path).values, limit * 10**6)
    begun = perf_counter()
    for _ in data.blocks():
        pass
    seconds = perf_counter() - begun
    return seconds, data.shape[0] * columns * 4e-6 / seconds


def fit(folder: str, name: str, p: Any, threads: int | None, limit: int | None) -> Fit:
    """Run the command line on a file, within a limit of so many megabytes or in memory."""
    words = ["fit", f"{name}.zarr", "-k", str(p.n_components), "--max-iter", str(p.iterations), "--tol", "0"]
    words += ["--init", "random", "--seed", "0", "--no-plots", "-q", "--name", f"{name}_{limit}"]
    words += ["--max-bytes", f"{limit}MB"] if limit else []
    count = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)} if threads else {}
    root = str(Path(__file__).parents[3])
    paths = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    begun = perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "nnfactor", *words], cwd=folder, env={**os.environ, **count, "PYTHONPATH": paths}
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise BenchmarkError(f"nnfactor {' '.join(words)} ended with status {process.returncode}")
    unit = 1 if sys.platform == "darwin" else 1024
    return Fit(perf_counter() - begun, usage.ru_maxrss * unit)
