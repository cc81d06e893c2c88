"""What is worth doing on a GPU: decided here, by shape, and nowhere else.

The bounds are estimates for cards with 5e13 operations and 3e12 bytes a second; none is measured yet, and
`python -m benchmarks device` measures them. An environment variable overrules a decision: "0" is never, "1" wherever it
is possible. It is read when the decision is due.

| variable | what |
|---|---|
| `NNFACTOR_TRITON` | sweeps over columns by Triton kernels (`NNFACTOR_COMPILED=0` switches these off as well) |
| `NNFACTOR_CUDA_GRAPH` | replays of sweeps from a CUDA graph |
| `NNFACTOR_DENSE` | sparse data stored as dense ones |
"""

import os
from collections.abc import Sequence
from math import prod

import torch

MOST_RANK = 128  # of a Triton kernel, which has all columns of a tile in registers
BUSY = 2e10  # operations of a sweep that keep a card busy for longer than launching them takes, about 400 us
FILLED = 0.03  # share of entries that are stored, from which dense products are faster than sparse ones
ROOM = 0.25  # of the free memory: what dense data may take


def sweeps_by_triton(device: str, rank: int) -> bool:
    """Tell whether a sweep over the columns of a factor is left to Triton: one launch, of torch two for each column."""
    return device == "cuda" and _switch("NNFACTOR_TRITON", True) and rank <= MOST_RANK


def replays_graph(device: str, entries: float, rank: int, problems: int) -> bool:
    """Tell whether sweeps are replayed: launches take longer than their work, two products with `entries` numbers."""
    return device == "cuda" and _switch("NNFACTOR_CUDA_GRAPH", 4.0 * entries * rank * problems <= BUSY)


def stores_dense(device: str, shape: Sequence[int], stored: int, itemsize: int, free: float) -> bool:
    """Tell whether sparse data are made dense: full enough, and in a part of the `free` bytes."""
    fits = prod(shape) * itemsize <= ROOM * free
    return device == "cuda" and fits and _switch("NNFACTOR_DENSE", stored >= FILLED * prod(shape))


def free_bytes(device: torch.device) -> float:
    """Measure the memory that can still be taken on a CUDA device; infinity elsewhere."""
    if device.type != "cuda":
        return float("inf")
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + kept


def _switch(name: str, decision: bool) -> bool:
    """Return what the environment says of a decision, or the decision."""
    return {"0": False, "1": True}.get(os.environ.get(name, ""), decision)
