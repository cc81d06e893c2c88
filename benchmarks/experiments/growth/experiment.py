"""How sweeps grow with data and processes: measured here, predicted here, and predicted for GPUs that are not here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from ...harness.kinds import Context
from ...harness.results import Report, Row, Section, Table
from ...harness.words import check_positive
from .model import Measured, Parts, Published, Shape, limits

NOT_MEASURED = "predicted, not measured"

H100 = Published()


@dataclass(frozen=True)
class Parameters:
    """What `[parameters]` may say.

    Attributes
    ----------
    samples : of the smallest data
    sizes : how many times as many samples
    features, sparse_features : of dense and of sparse data
    density : share of the entries of sparse data that are stored
    n_components : int
    processes : numbers of processes that share the samples
    rows : samples of the data of which constants are measured, in increasing order
    messages : bytes of a short and of a long message
    exact, approximate : samples of which graphs of nearest neighbours are made, by either method
    graph_features : of these samples
    turns : of all works one after the other; the least time of each counts, as others may use the machine as well
    seconds : within which the processes of a number end, and a graph is made
    """

    samples: int = 1000
    sizes: tuple[int, ...] = (1, 3, 10, 30, 100)
    features: int = 500
    sparse_features: int = 2000
    density: float = 0.02
    n_components: int = 20
    processes: tuple[int, ...] = (1, 2)
    rows: tuple[int, ...] = (500, 4000, 32000, 256000)
    messages: tuple[int, ...] = (4, 4_000_000)
    exact: tuple[int, ...] = (10_000, 100_000)
    approximate: tuple[int, ...] = (1_000_000,)
    graph_features: int = 20
    turns: int = 15
    seconds: int = 1800

    def __post_init__(self) -> None:
        check_positive(self, "samples", "sizes", "features", "sparse_features", "n_components", "processes", "rows")
        check_positive(self, "messages", "exact", "approximate", "graph_features", "turns", "seconds")
        if not 0 < self.density < 1:
            raise ValueError(f"density must be between 0 and 1, got {self.density}")
        if len(self.rows) < 3 or len(self.messages) != 2:
            raise ValueError("rows must list three numbers or more, messages two")


def run(parameters: Parameters, context: Context) -> Report:
    """Measure constants and sweeps in the same turns, predict these by those, then GPUs by published constants."""
    from .ranks import measure

    p = parameters
    kinds = {"dense": (p.features, 1.0), "sparse": (p.sparse_features, p.density)}
    told = {
        "k": p.n_components,
        "seed": context.settings.seed,
        "turns": p.turns,
        "messages": p.messages,
        "rows": p.rows,
        "sizes": p.sizes,
        "kinds": {name: {"samples": p.samples, "features": m, "density": d} for name, (m, d) in kinds.items()},
    }
    found = {}
    context.folder.mkdir(parents=True, exist_ok=True)
    for size in p.processes:
        context.say(f"{size} process(es)")
        with TemporaryDirectory(dir=context.folder) as folder:
            found[size] = measure(Path(folder).resolve(), size, told, p.seconds)
    rows, host = [], 0.0
    for name, (m, density) in kinds.items():
        for size, turns in found.items():
            known = constants(turns, name, m, density, p)
            host = host or known.host
            rows.append(_constant_row(name, size, known))
            for times in p.sizes:
                shape = Shape(p.samples * times, m, p.n_components, density)
                rows.append(
                    _point_row(name, size, times, shape, known, [turn[f"{name}/sweep/{times}"] for turn in turns])
                )
    rows += [_summary(rows)]
    rows += [*gpu_rows(host), *limit_rows(host), *_graph_rows(p, context)]
    return Report(_sections(rows), rows)


def _graph_rows(p: Parameters, context: Context) -> Iterator[Row]:
    """Make graphs one after the other; say what could not be made."""
    from .graphs import build

    for method, sizes in (("exact", p.exact), ("approximate", p.approximate)):
        for samples in sizes:
            context.say(f"{method} neighbours of {samples} samples")
            made = build(samples, p.graph_features, method, context.settings.seed, p.seconds)
            missed = {"kind": "skipped", "problem": f"{method} neighbours of {samples} samples"}
            why = f"not made within {p.seconds} s, or the extra graphs is not installed"
            yield {"kind": "graph", **made} if made else {**missed, "why": why}


def constants(turns: Sequence[dict[str, float]], kind: str, m: int, density: float, p: Parameters) -> Measured:
    """Take the least over the turns, and rates of them."""
    seconds = {name: min(turn[name] for turn in turns) for name in turns[0]}
    rates = lambda what: [(rows, seconds[f"{kind}/{what}/{rows}"] / (rows * m * density)) for rows in p.rows]
    few, many = p.rows[0], p.rows[-2]
    row = (seconds[f"{kind}/row/{many}"] - seconds[f"{kind}/row/{few}"]) / (many - few)
    short, long = (max(seconds[f"message/{length}"] - seconds["pause"], 0.0) for length in p.messages)
    transfer = (p.messages[1] - p.messages[0]) / max(long - short, 1e-9)
    host = max(seconds[f"{kind}/host"] - short, 0.0)
    return Measured(rates("times"), rates("transposed"), max(row, 0.0), short, transfer, host)


CASES = {  # 10^12 entries each: tall and dense, square and dense, sparse with as many stored entries
    "tall, dense": Shape(10**8, 10**4, 20),
    "square, dense": Shape(10**6, 10**6, 50),
    "tall, sparse": Shape(10**9, 3 * 10**4, 20, 1 / 30),
}

WEAK = {"tall, dense": Shape(10**5, 10**4, 20), "square, dense": Shape(10**3, 10**6, 50)}  # a GPU has so much

GPUS = (1, 8, 64, 128, 256, 512, 1000)


def gpu_rows(host: float, gpu: Published = H100) -> list[Row]:
    """Predict strong scaling of the cases, from as many GPUs as hold them, and weak scaling."""
    rows = []
    for name, shape in CASES.items():
        fewest = gpu.fewest(shape)
        counts = [fewest, *(g for g in GPUS if g > fewest)]
        first = gpu.predict(shape, fewest, host).total * fewest
        for count in counts:
            parts = gpu.predict(shape, count, host)
            rows.append(_gpu_row("strong", name, count, shape, parts, first / (parts.total * count)))
    for name, shape in WEAK.items():
        alone = gpu.predict(shape, 1, host).total
        for count in (g for g in GPUS if g in (1, 8, 64, 512, 1000)):
            grown = Shape(shape.n * count, shape.m, shape.k, shape.density)
            parts = gpu.predict(grown, count, host)
            rows.append(_gpu_row("weak", name, count, grown, parts, alone / parts.total))
    return rows


def limit_rows(host: float, gpu: Published = H100, gpus: int = 1000) -> list[Row]:
    """Say where each case on so many GPUs meets its limits."""
    return [
        {"kind": "limit", "case": name, "gpus": gpus, "what": what, "limit": f"{at:.3g}", "here": f"{here:.3g}"}
        | {"status": NOT_MEASURED}
        for name, shape in CASES.items()
        for what, at, here in limits(gpu, shape, gpus, host)
    ]


def _constant_row(name: str, size: int, known: Measured) -> Row:
    rate = lambda rates: " ".join(f"{1e9 * seconds:.2f}" for _, seconds in rates)
    return {
        "kind": "constant",
        "data": name,
        "processes": size,
        "times_ns": rate(known.times),
        "transposed_ns": rate(known.transposed),
        "row_ns": round(1e9 * known.row, 1),
        "latency_us": round(1e6 * known.latency),
        "transfer_mb_s": round(known.transfer / 1e6),
        "host_us": round(1e6 * known.host),
    }


def _point_row(name: str, size: int, times: int, s: Shape, known: Measured, seconds: Sequence[float]) -> Row:
    measured, predicted = min(seconds), known.predict(s, size)
    return {
        "kind": "point",
        "data": name,
        "processes": size,
        "size": f"{times}x",
        "samples": s.n,
        "measured_ms": round(1e3 * measured, 2),
        "median_ms": round(1e3 * median(seconds), 2),
        "predicted_ms": round(1e3 * predicted.total, 2),
        "off_percent": round(100 * (predicted.total / measured - 1)),
        "largest": predicted.largest,
    }


def _summary(rows: Sequence[Row]) -> Row:
    """Count the points within 20 %, for one process and for all."""
    points = [row for row in rows if row["kind"] == "point"]
    alone = [row for row in points if row["processes"] == 1]
    within = lambda some: sum(abs(row["off_percent"]) <= 20 for row in some)
    return {
        "kind": "agreement",
        "points": len(points),
        "within_20_percent": within(points),
        "of_one_process": len(alone),
        "within_20_percent_alone": within(alone),
        "median_off_percent": median(abs(row["off_percent"]) for row in points),
        "most_off_percent": max(abs(row["off_percent"]) for row in points),
    }


def _gpu_row(scaling: str, name: str, gpus: int, s: Shape, parts: Parts, efficiency: float) -> Row:
    ms = lambda seconds: f"{1e3 * seconds:.3g}"
    return {
        "kind": "gpu",
        "scaling": scaling,
        "case": name,
        "gpus": gpus,
        "entries": f"{s.stored:.3g}",
        "sweep_ms": ms(parts.total),
        "products_ms": ms(parts.products),
        "factors_ms": ms(parts.factors),
        "message_ms": ms(parts.message),
        "host_ms": ms(parts.host),
        "efficiency": f"{efficiency:.2f}",
        "status": NOT_MEASURED,
    }


def _sections(rows: Sequence[Row]) -> list[Section]:
    of = lambda kind: [{k: v for k, v in row.items() if k != "kind"} for row in rows if row["kind"] == kind]
    table = lambda caption, kind: Table.of(caption, of(kind))
    here = (
        "A sweep of NMF by HALS over samples that are split over processes, against a model whose constants are "
        "measured in the same turns, apart from sweeps: products with the data and sweeps over the columns of a factor "
        "at other sizes, messages after work, and a sweep over 8 x 8 entries. The least time of all turns counts."
    )
    there = (
        "Predicted, not measured: the same model with the constants that makers publish for H100 SXM, NVLink and "
        "InfiniBand NDR, and with the host's time of this machine."
    )
    parts: dict[str, Any] = {"constants": table("Constants", "constant"), "points": table("Sweeps", "point")}
    agreement = table("Agreement", "agreement")
    return [
        Section("Measured", [here], [*parts.values(), agreement]),
        Section("GPUs", [there], [table("Scaling", "gpu"), table("Limits", "limit")]),
        Section("Graphs of nearest neighbours", (), [table("Graphs", "graph")]),
    ]
