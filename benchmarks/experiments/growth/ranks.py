"""Processes that measure together: constants, and sweeps of every size, in turn.

`python -m benchmarks.experiments.growth.ranks FOLDER RANK SIZE` is one of them; rank 0 writes what it found.
"""

from __future__ import annotations

import datetime
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

ENOUGH = 0.005  # seconds that a timed stretch should take: a short one can pass between what others do

PAUSE = 256  # side of the product between two messages: about a millisecond

MOST = 200  # calls of a stretch, at most


def measure(folder: Path, size: int, told: dict[str, Any], seconds: float) -> list[dict[str, float]]:
    """Run `size` processes on this machine; give the times of every turn. All of them end, at the latest at the limit.

    Raises
    ------
    BenchmarkError
        One of them failed or the time is over.
    """
    from ...harness.errors import BenchmarkError

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "told.json").write_text(json.dumps(told), encoding="utf-8")
    root = str(Path(__file__).parents[3])
    paths = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    one = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "PYTHONPATH": paths}
    words = [sys.executable, "-m", "benchmarks.experiments.growth.ranks", str(folder)]
    begin = lambda rank: subprocess.Popen(
        [*words, str(rank), str(size)], env={**os.environ, **one}, start_new_session=True
    )
    processes = [begin(rank) for rank in range(size)]
    end = perf_counter() + seconds
    try:
        statuses = [process.wait(max(0.1, end - perf_counter())) for process in processes]
    except subprocess.TimeoutExpired:
        raise BenchmarkError(f"{size} processes took longer than {seconds:.0f} s") from None
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    if any(statuses):
        raise BenchmarkError(f"one of {size} processes ended with status {max(map(abs, statuses))}")
    return json.loads((folder / "turns.json").read_text(encoding="utf-8"))


def work(folder: Path, rank: int, size: int) -> None:
    """Be one process of a group: all turns of all works."""
    import torch
    import torch.distributed as dist

    from nnfactor.core.precision import strict_precision

    told = json.loads((folder / "told.json").read_text(encoding="utf-8"))
    torch.set_num_threads(1)
    limit = datetime.timedelta(seconds=60)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=size, timeout=limit)
    turns = []
    with strict_precision(torch.device("cpu")):
        works = dict(list_works(told, rank, size))
        counts = {name: _count(call) for name, call in works.items()}
        for turn in range(told["turns"] + 1):
            times = {name: _time(works[name], counts[name]) for name in (works if turn % 2 else reversed(works))}
            turns.append(times)
    if rank == 0:
        (folder / "turns.json").write_text(json.dumps(turns[1:]), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


def _count(call: Callable[[], Any]) -> int:
    """Choose how often a work is called in a row, the same in all processes."""
    import torch
    import torch.distributed as dist

    call()
    number = torch.tensor([ENOUGH / max(_time(call, 1), 1e-6)])
    dist.broadcast(number, 0)
    return int(min(MOST, max(1, float(number))))


def _time(call: Callable[[], Any], count: int) -> float:
    """Seconds of one call, begun by all processes together, until the last of them has ended."""
    import torch
    import torch.distributed as dist

    dist.barrier()
    start = perf_counter()
    for _ in range(count):
        call()
    spent = torch.tensor([(perf_counter() - start) / count], dtype=torch.float64)
    dist.all_reduce(spent, dist.ReduceOp.MAX)
    return float(spent)


def list_works(told: dict[str, Any], rank: int, size: int) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Name what is timed: constants (`kind/what/rows`), then sweeps (`kind/sweep/times`)."""
    import torch

    square = torch.ones(PAUSE, PAUSE)
    yield "pause", lambda: square @ square
    for length in told["messages"]:  # after work: what waits must be woken, and nobody ends at the same time
        flat = torch.zeros(length // 4)
        yield f"message/{length}", partial(_work_and_add, square, flat)
    for kind, start in told["kinds"].items():
        make = _Maker(kind, start["features"], start["density"], told["k"], told["seed"])
        yield f"{kind}/host", make.sweep(8, rank, size, features=8)
        for rows in told["rows"]:
            data, V, U = make.local(rows)
            yield f"{kind}/times/{rows}", partial(data.times, U)
            yield f"{kind}/transposed/{rows}", partial(data.times_transposed, V)
            yield f"{kind}/row/{rows}", make.columns(V)
        for times in told["sizes"]:
            yield f"{kind}/sweep/{times}", make.sweep(start["samples"] * times, rank, size)


def _work_and_add(square: Any, flat: Any) -> None:
    """Multiply, and send a message."""
    import torch.distributed as dist

    square @ square
    dist.all_reduce(flat)


class _Maker:
    """Data and sweeps of one kind, the same for every number of processes."""

    def __init__(self, kind: str, features: int, density: float, k: int, seed: int) -> None:
        self.kind, self.features, self.density, self.k, self.seed = kind, features, density, k, seed

    def rows(self, n: int, features: int) -> Any:
        """Draw n samples, float32."""
        import numpy as np
        import scipy.sparse as sp

        rng = np.random.default_rng(self.seed)
        if self.density == 1:
            return rng.random((n, features), dtype=np.float32)
        count = max(1, round(self.density * features))  # in every row, in order
        columns = np.sort(rng.integers(0, features, (n, count)), axis=1)
        values = rng.random(n * count, dtype=np.float32) + np.float32(0.1)
        X = sp.csr_array((values, columns.ravel(), np.arange(0, n * count + 1, count)), shape=(n, features))
        X.sum_duplicates()
        return X

    def local(self, n: int) -> tuple[Any, Any, Any]:
        """Make data of this process alone, and factors."""
        from nnfactor.core import as_data

        return as_data(self.rows(n, self.features)), self.factor(n), self.factor(self.features)

    def factor(self, n: int) -> Any:
        """Draw a factor as the core stores it."""
        import torch

        return torch.rand(self.k, n, generator=torch.Generator().manual_seed(self.seed)).mT

    def columns(self, V: Any) -> Callable[[], Any]:
        """Make the work on the rows of a factor: their Gram, and a sweep over the columns."""
        from nnfactor.core import Block, Quad, hals
        from nnfactor.core.factors import gram

        G, linear = gram(V) + 1, V.clone()

        def call() -> Any:
            return gram(hals(V, Block(quads=(Quad(G),), linear_minus=linear)))

        return call

    def sweep(self, n: int, rank: int, size: int, features: int = 0) -> Callable[[], Any]:
        """Make a sweep over n samples that are split over all processes; each call goes on from the last."""
        from nnfactor.core import Fit, Sharded, hals, step

        features = features or self.features
        held = n * (rank + 1) // size - n * rank // size
        data = Sharded(self.rows(max(1, held), features))
        state = {"factors": {"V": self.factor(max(1, held)), "U1": self.factor(features)}}
        move = step([Fit(data, ("V", "U1"))], {"V": hals, "U1": hals})

        def call() -> None:
            nonlocal state
            state = move(state)

        return call


if __name__ == "__main__":
    work(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
