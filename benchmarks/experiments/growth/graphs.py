"""Graphs of nearest neighbours of many samples, each in a process of its own: seconds, memory, and which are found.

`python -m benchmarks.experiments.growth.graphs SAMPLES FEATURES METHOD SEED` makes one, and says of it in JSON.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

NEIGHBORS = 5

FIRST = 2000  # samples of a first graph, which loads code and compiles what is compiled


def build(samples: int, features: int, method: str, seed: int, seconds: float) -> dict[str, Any] | None:
    """Build a graph in a new process; None if it takes longer than the limit, or the method's package is missing."""
    root = str(Path(__file__).parents[3])
    paths = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    one = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "PYTHONPATH": paths}
    words = [
        sys.executable,
        "-m",
        "benchmarks.experiments.growth.graphs",
        str(samples),
        str(features),
        method,
        str(seed),
    ]
    process = subprocess.Popen(words, env={**os.environ, **one}, start_new_session=True, stdout=subprocess.PIPE)
    try:
        told, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return json.loads(told) if process.returncode == 0 else None


def work(samples: int, features: int, method: str, seed: int) -> dict[str, Any]:
    """Build the graph here: seconds of the processor and megabytes at the highest point beyond the data."""
    import numpy as np
    import torch

    from nnfactor.graphs import knn_graph

    from ...timing.memory import peak_growth

    torch.set_num_threads(1)
    rng = np.random.default_rng(seed)
    draw = lambda n: (rng.gamma(1.0, size=(n, 10)) @ rng.random((10, features))).astype(np.float32)
    knn_graph(draw(FIRST), NEIGHBORS, method=method)
    X = draw(samples)
    found: list[Any] = []
    began = time.process_time()
    bytes_beyond = peak_growth(lambda: found.append(knn_graph(X, NEIGHBORS, method=method)), torch.device("cpu"))
    return {
        "samples": samples,
        "features": features,
        "method": found[0].method,
        "cpu_seconds": round(time.process_time() - began, 1),
        "peak_mb": None if bytes_beyond is None else round(bytes_beyond / 1e6),
        "data_mb": round(X.nbytes / 1e6, 1),
        "edges": found[0].n_edges,
        "recall": round(found[0].recall, 3),
    }


if __name__ == "__main__":
    print(json.dumps(work(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))))
