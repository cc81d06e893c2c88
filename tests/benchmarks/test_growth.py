"""The growth of sweeps: the arithmetic of the model, processes that end by themselves, a small run."""

import json
import time
from dataclasses import replace

import pytest

from benchmarks.__main__ import main
from benchmarks.experiments.growth.experiment import CASES, NOT_MEASURED, Parameters, constants, gpu_rows, limit_rows
from benchmarks.experiments.growth.model import Measured, Published, Shape, interpolate
from benchmarks.experiments.growth.ranks import measure
from benchmarks.harness.errors import BenchmarkError

KNOWN = Measured(((100, 1e-9), (10_000, 3e-9)), ((100, 2e-9), (10_000, 2e-9)), 1e-7, 1e-4, 1e9, 1e-3)


def test_rates_are_read_between_sizes():
    assert interpolate(KNOWN.times, 10) == 1e-9 and interpolate(KNOWN.times, 10**6) == 3e-9
    assert interpolate(KNOWN.times, 1000) == pytest.approx(2e-9)


def test_a_sweep_is_the_sum_of_its_parts():
    parts = KNOWN.predict(Shape(1000, 50, 4), 1)
    assert parts.products == pytest.approx(1000 * 50 * 4e-9)
    assert parts.factors == pytest.approx(1050 * 1e-7)
    assert parts.message == pytest.approx(1e-4 + (50 * 4 + 16) * 4 / 1e9)
    assert parts.total == pytest.approx(parts.products + parts.factors + parts.message + 1e-3)
    assert parts.largest == "host"
    half = KNOWN.predict(Shape(2000, 50, 4), 2)  # features are in every process
    assert half == parts
    sparse = KNOWN.predict(Shape(1000, 50, 4, 0.1), 1)
    assert sparse.products == pytest.approx(parts.products / 10) and sparse.message == parts.message


def test_constants_come_from_no_sweep():
    p = Parameters(rows=(10, 20, 40), messages=(4, 1004), turns=2)
    turn = {"pause": 1e-3, "message/4": 1.5e-3, "message/1004": 2.5e-3, "dense/host": 9e-4}
    turn |= {f"dense/{what}/{rows}": rows * 1e-6 for what in ("times", "transposed", "row") for rows in p.rows}
    known = constants([turn, {name: 2 * seconds for name, seconds in turn.items()}], "dense", 100, 1.0, p)
    assert known.latency == pytest.approx(5e-4) and known.transfer == pytest.approx(1e6)
    assert known.host == pytest.approx(4e-4) and known.row == pytest.approx(1e-6)
    assert [seconds for _, seconds in known.times] == pytest.approx([1e-8] * 3)


def test_gpus_are_bound_by_bytes_operations_and_messages():
    gpu = Published()
    wide = Shape(10**6, 10**4, 4)  # few components: bytes
    assert gpu.predict(wide, 1, 0).products == pytest.approx(2 * 4e10 / gpu.bandwidth)
    many = replace(wide, k=500)
    assert gpu.predict(many, 1, 0).products == pytest.approx(4 * 500 * 1e10 / gpu.operations)
    assert gpu.message(8e6, 1) == 0
    assert gpu.message(8e6, 2) == pytest.approx(8e6 / gpu.inside + 2 * gpu.hop)
    assert gpu.message(0, 1000) == pytest.approx(20 * gpu.hop)
    for shape in CASES.values():
        fewest = gpu.fewest(shape)
        assert gpu.needed(shape, fewest) <= gpu.memory * 1.001 and gpu.needed(shape, fewest - 1) > gpu.memory


def test_what_is_not_measured_says_so():
    rows = [*gpu_rows(1e-4), *limit_rows(1e-4)]
    assert {row["status"] for row in rows} == {NOT_MEASURED}
    assert {row["case"] for row in rows} == set(CASES)
    weak = [row for row in rows if row.get("scaling") == "weak"]
    assert {row["gpus"] for row in weak} == {1, 8, 64, 512, 1000} and weak[-1]["entries"] == "1e+12"
    assert all(0 < float(row["efficiency"]) <= 1 for row in rows if row["kind"] == "gpu")
    assert any("32-bit" in row["what"] for row in rows if row["kind"] == "limit")


def test_processes_end_at_the_limit(tmp_path):
    begun = time.perf_counter()
    with pytest.raises(BenchmarkError, match="2 processes took longer than 1 s"):
        measure(tmp_path, 2, {}, 1.0)
    assert time.perf_counter() - begun < 60


def test_a_process_that_fails_is_told(tmp_path):
    with pytest.raises(BenchmarkError, match="ended with status 1"):
        measure(tmp_path, 1, {}, 300.0)  # nothing told to do


def test_the_quick_run_end_to_end(tmp_path):
    assert main(["growth", "--quick", "--out", str(tmp_path), "--traceback"]) == 0
    rows = [json.loads(line) for line in (tmp_path / "growth" / "results.jsonl").read_text().splitlines()]
    points = [row for row in rows if row["kind"] == "point"]
    assert {(row["data"], row["processes"], row["size"]) for row in points} == {
        (data, size, times) for data in ("dense", "sparse") for size in (1, 2) for times in ("1x", "4x")
    }
    assert all(row["measured_ms"] > 0 and row["predicted_ms"] > 0 for row in points)
    (graph,) = [row for row in rows if row["kind"] == "graph"]
    assert graph["method"] == "exact" and graph["recall"] == 1 and graph["edges"] >= 1250
    (agreement,) = [row for row in rows if row["kind"] == "agreement"]
    assert agreement["points"] == 8
