"""How much memory a fit to a data file needs, found before anything is read: what is there, and what would fit."""

from argparse import Namespace
from dataclasses import dataclass
from math import floor, log10, prod
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...core.arrays import float_type
from ...core.data.chunked.blocks import SHARES
from ...core.free_memory import free_bytes
from ...core.solve.history.progress import resident_bytes
from ...core.solve.memory_budget import LEAST_COPIES, SHARE, copies_of_factors
from ...io import open_data, read_data
from ...io.blocks import OPENED
from ..arguments import read_ranks, read_size
from ..describe import find_model
from ..errors import UserError
from ..values import rank_names

USUAL = 24  # copies of the factors that a single fit takes at most: 7 (float64) to 22 (float32) were seen

OF_SPARSE = 3  # copies of sparse data: as read, by rows, and by columns

LATER = 150_000_000  # bytes of packages that a fit loads when it begins and when it writes; compiled loops take as much

LEAST_BLOCKS = 100_000_000  # bytes that `--max-bytes` is advised to be at least, if the data have them


@dataclass(frozen=True)
class Stored:
    """What is known of data in a file without reading them."""

    shape: tuple[int, ...]
    dtype: np.dtype
    entries: int
    is_sparse: bool

    @classmethod
    def of(cls, values: Any) -> "Stored":
        """Ask an array, a sparse matrix, or rows of one in a file."""
        stored, dtype = getattr(values, "nnz", None), np.dtype(values.dtype)
        shape = tuple(int(d) for d in values.shape)
        return cls(shape, dtype, prod(shape) if stored is None else int(stored), stored is not None)

    @property
    def bytes(self) -> int:
        """Bytes of the entries, and of their places where zeros are not stored."""
        return self.entries * (self.dtype.itemsize + (8 if self.is_sparse else 0))

    def converted(self, dtype: str | None) -> int:
        """Count the bytes of copies that are made beside the entries as they are read: as floats, as the fit asks."""
        read, work = np.dtype(float_type(self.dtype)), np.dtype(dtype or float_type(self.dtype))
        if self.is_sparse:
            return (OF_SPARSE - 1) * self.entries * (work.itemsize + 8)
        return self.entries * ((read != self.dtype) * read.itemsize + (work != read) * work.itemsize)


def stored_in(path: Path, key: str | None, long: bool | None = None) -> Stored:
    """Find what a file stores; one that cannot be opened without reading it is read."""
    if path.suffix in OPENED:
        return Stored.of(open_data(path, key=key).values)
    return Stored.of(read_data(path, key=key, long=bool(long)).values)


def refuse_too_large(path: Path, key: str | None) -> None:
    """Refuse a file that does not fit into free memory before it is read."""
    if path.suffix not in OPENED or path.suffix == ".npy":  # that is mapped
        return
    stored = stored_in(path, key)
    need, free = stored.bytes + stored.converted(None), free_bytes(torch.device("cpu"))
    if need > free:
        raise UserError(
            f"{path} takes {told(need)} in memory, and {told(free)} are free; use --max-bytes "
            f"{told(_advised(stored, free, 0)).replace(' ', '')} to read it in blocks (nnfactor info --memory {path})"
        )


def state_need(path: Path, words: Namespace) -> list[str]:
    """State what a fit needs, line by line."""
    if "n_components" not in rank_names(find_model(words.model)):
        raise UserError(f"--memory is for models with a number of components, not for {words.model}")
    if words.n_init < 1:
        raise UserError(f"--n-init {words.n_init} must be 1 or more")
    stored, rank = stored_in(path, words.key, words.long), read_ranks(words.k or ["10"])[0]
    size = np.dtype(words.dtype or float_type(stored.dtype)).itemsize
    rows = sum(stored.shape)
    one, least = (copies_of_factors(rows, rank, copies) * size for copies in (USUAL, LEAST_COPIES))
    each = copies_of_factors(rows, rank) * size
    free, libraries = free_bytes(torch.device("cpu")), resident_bytes() + LATER
    kernel = 2 * 8 * stored.shape[0] ** 2 if words.model == "KernelNMF" else 0
    buffers = read_size(words.max_bytes) if words.max_bytes else _advised(stored, free, one)
    whole = stored.bytes + stored.converted(words.dtype) + kernel
    lines = [
        f"{path}: {' x '.join(map(str, stored.shape))}, {stored.dtype}{', sparse' if stored.is_sparse else ''}, "
        f"{told(stored.bytes)} in memory as stored",
        f"{words.model} with k = {rank}, {words.n_init} restart{'s' * (words.n_init > 1)}: about",
        f"  {'':34} {'in memory':>12} {'in blocks':>12}",
        _row("Python and libraries", libraries, libraries),
        _row("data as read", stored.bytes, min(buffers, whole)),
        _row("copies of them in another form", whole - stored.bytes, 0),
        _row(f"factors ({told(rows * rank * size)}) and work", one, one),
        _row("together", libraries + whole + one, libraries + min(buffers, whole) + one),
    ]
    for name, held in (("in memory", whole), (f"with --max-bytes {_as_option(buffers)}", min(buffers, whole))):
        lines.append(f"{name}: {_verdict(held, one, least, each, free, words.n_init)}")
    lines.append(f"free: {told(free)}, for what comes beside Python and libraries")
    return lines


def _row(name: str, whole: float, blocks: float) -> str:
    return f"  {name:34} {told(whole):>12} {told(blocks):>12}"


def _verdict(held: float, one: float, least: float, each: float, free: float, n_init: int) -> str:
    """Say whether a fit of data that take so much fits, and how many restarts run at once."""
    if held + least > free:
        return f"does not fit, {told(held + least - free)} too much"
    if held + one > free:
        return "may not fit"
    at_once = min(n_init, max(1, floor(SHARE * (free - held) / each)))
    return (
        "fits"
        if n_init == 1
        else f"fits; {at_once} of {n_init} restarts run at once"
        + ("" if at_once == n_init else f" (--n-init {at_once} is the most that is one batch)")
    )


def _advised(stored: Stored, free: float, work: float) -> float:
    """Choose a size for `--max-bytes`: a tenth of what is free, or enough for blocks of some megabytes."""
    row = stored.bytes / stored.shape[0] * SHARES
    most = min(max(0.1 * (free - work), row), float(stored.bytes))
    return _rounded(max(most, min(LEAST_BLOCKS, stored.bytes), row))


def _rounded(size: float) -> float:
    """Round up to one digit."""
    unit = 10.0 ** floor(log10(max(size, 1)))
    return float(-(-size // unit) * unit)


def _as_option(size: float) -> str:
    return told(size).replace(" ", "")


def told(size: float) -> str:
    """Write a size as `--max-bytes` takes it, with three digits at most.

    >>> told(2.5e9), told(640e6), told(12)
    ('2.5 GB', '640 MB', '12 B')
    """
    if size == float("inf"):
        return "an unknown size"
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return f"{float(f'{size / unit:.3g}'):g} {name}"
    return f"{size:.0f} B"
