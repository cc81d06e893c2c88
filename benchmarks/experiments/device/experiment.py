"""A GPU in at most ten minutes: roofs, tests, sweeps, iterations, sparse data, restarts, TF32.

Every figure is written as it comes, so that a run that is cut off keeps what it measured. Without a card nothing is
measured, unless the CPU is asked for: then the same code runs there, for tests of it.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator

from ...harness.errors import BenchmarkError
from ...harness.journal import write_rows
from ...harness.kinds import Context
from ...harness.results import Report, Row, Section, Table
from .parameters import SECONDS, Parameters

__all__ = ["Parameters", "run"]

NOT_MEASURED = "not measured"
MOST = 600.0  # seconds of a run


def run(parameters: Parameters, context: Context) -> Report:
    """Measure part by part."""
    from ...harness.machine import describe
    from .parts import PARTS, Lab

    card = describe(context.device, context.settings.threads)["device_name"]
    idle = context.settings.device == "auto" and context.device.type == "cpu"
    if idle:
        context.say("no CUDA device here: nothing is measured (--device cpu runs every part on the CPU)")
    lab, rows, failed = None if idle else Lab(parameters, context), [], []
    ends = time.perf_counter() + MOST
    for name in parameters.parts:
        context.say(f"{name}, up to {SECONDS[name]:.0f} s")
        try:
            for found in _measure(name, PARTS[name], parameters, lab, ends):
                rows.append({"kind": "figure", "part": name, **found, "card": "none" if idle else card})
                write_rows(context.folder, rows)
        except Exception as error:
            context.say("".join(traceback.format_exception(error)))
            failed.append(f"{name}: {type(error).__name__}: {error}")
    if failed:
        raise BenchmarkError(f"{len(failed)} parts failed, all others are in {context.folder}: {'; '.join(failed)}")
    sections = [_section(name, [row for row in rows if row["part"] == name]) for name in parameters.parts]
    return Report(sections, rows)


def _measure(name: str, part: tuple, parameters: Parameters, lab: object, last: float) -> Iterator[Row]:
    """Give the figures of a part, case by case, until its time or that of the run is over."""
    cases, measure = part
    ends = min(last, time.perf_counter() + SECONDS[name])
    for case in cases(parameters):
        if lab is None or time.perf_counter() > ends:
            yield {"case": case, "what": "all", "value": NOT_MEASURED, "unit": ""}
            continue
        for what, value, unit in measure(lab, case):
            yield {"case": case, "what": what, "value": NOT_MEASURED if value is None else value, "unit": unit}


def _section(name: str, rows: list[Row]) -> Section:
    shown = [{key: row[key] for key in ("case", "what", "value", "unit", "card")} for row in rows]
    return Section(name, (), [Table.of("", shown)])
