"""A zarr array made on the fly, fitted by the command line within a part of its size, and in memory where it fits."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan
from tempfile import TemporaryDirectory
from typing import Any

from ...harness.kinds import Context
from ...harness.results import Report, Row, Section, Table
from ...harness.words import check_positive


@dataclass(frozen=True)
class Parameters:
    """What `[parameters]` may say.

    Attributes
    ----------
    megabytes : of the data, float32; as much is needed on the disk of the results for the time of the run
    columns : features
    share : how many times larger than `--max-bytes` the data are
    n_components, iterations : int
    most_in_memory : megabytes up to which the data are also fitted in memory, and the two times compared
    """

    megabytes: int = 1000
    columns: int = 2000
    share: int = 10
    n_components: int = 10
    iterations: int = 5
    most_in_memory: int = 4000

    def __post_init__(self) -> None:
        check_positive(self, "megabytes", "columns", "share", "n_components", "iterations")


def run(parameters: Parameters, context: Context) -> Report:
    """Write the data, read them once, fit them, and delete them."""
    from .work import fit, read_once, write_data

    p = parameters
    context.folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=context.folder) as folder:
        limit, seed = max(1, p.megabytes // p.share), context.settings.seed
        written = write_data(folder, "big", p.megabytes, p.columns, limit, seed)
        write_data(folder, "small", min(p.megabytes, 8), p.columns, limit, seed)
        context.say(f"wrote {p.megabytes} MB in {written:.1f} s")
        pass_seconds, rate = read_once(folder, p.columns, limit)
        context.say(f"read them once in {pass_seconds:.1f} s, {rate:.0f} MB/s")
        threads = context.settings.threads
        small = fit(folder, "small", p, threads, limit)
        blocks = fit(folder, "big", p, threads, limit)
        fits = p.megabytes <= p.most_in_memory
        memory = fit(folder, "big", p, threads, None) if fits else None
    rows = [_row(p, "in blocks", blocks, small, limit)]
    rows += [_row(p, "in memory", memory, small, None)] if memory else []
    passes = 2 * p.iterations + PASSES
    reading = passes * pass_seconds
    ratio = (blocks.seconds - small.seconds) / (memory.seconds - small.seconds + reading) if memory else nan
    summary: Row = {"kind": "time", "read_mb_s": round(rate), "passes": passes, "reading_s": round(reading, 1)}
    summary |= {"ratio": round(ratio, 2)} if memory else {}
    text = (
        "Seconds and megabytes of the process of the command line; beyond_mb: beyond a fit of 8 MB in blocks, which "
        "loads the same code. ratio: seconds in blocks over those in memory and those of reading, at the rate of one "
        "pass."
    )
    tables = [Table.of("Fits", [{k: v for k, v in r.items() if k != "kind"} for r in rows])]
    tables.append(Table.of("Time", [{k: v for k, v in summary.items() if k != "kind"}]))
    return Report([Section("Larger than memory", [text], tables)], [*rows, summary])


PASSES = 4  # checks, the objective at the start, the loss of the run and of what is published


def _row(p: Parameters, name: str, done: Any, small: Any, limit: int | None) -> Row:
    return {
        "kind": "fit",
        "fit": name,
        "data_mb": p.megabytes,
        "max_bytes_mb": "" if limit is None else limit,
        "seconds": round(done.seconds, 1),
        "peak_mb": round(done.peak / 1e6),
        "beyond_mb": round((done.peak - small.peak) / 1e6),
    }
