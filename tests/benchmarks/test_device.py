"""The run on a device: in small on the CPU, without a card, and what remains of a run in which a part fails."""

import json
import os

import pytest

pytest.importorskip("matplotlib")

import torch

from benchmarks.__main__ import main
from benchmarks.experiments.device import experiment
from benchmarks.experiments.device.parameters import SECONDS, Parameters
from benchmarks.harness.errors import ConfigError
from benchmarks.harness.journal import read_rows

needs_no_card = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")


def test_every_part_runs_in_small_on_the_cpu(tmp_path):
    before = dict(os.environ)
    assert main(["device", "--quick", "--out", str(tmp_path), "--traceback"]) == 0
    assert dict(os.environ) == before  # switches are restored
    rows = read_rows(tmp_path / "device")
    machine = json.loads((tmp_path / "device" / "machine.json").read_text())
    assert list(dict.fromkeys(row["part"] for row in rows)) == list(SECONDS)
    assert {row["card"] for row in rows} == {machine["device_name"]}
    measured = [row for row in rows if row["value"] != experiment.NOT_MEASURED]
    assert all(row["value"] >= 0 for row in measured)
    only_cuda = {"torch, captured", "compiled loops"}
    assert all(row["what"] in only_cuda or row["what"].startswith("Triton") for row in rows if row not in measured)


@needs_no_card
def test_without_a_card_nothing_is_measured(tmp_path, capsys):
    assert main(["device", "--out", str(tmp_path), "--traceback"]) == 0
    assert "no CUDA device here" in capsys.readouterr().err
    rows = read_rows(tmp_path / "device")
    assert list(dict.fromkeys(row["part"] for row in rows)) == list(SECONDS)
    assert {row["value"] for row in rows} == {"not measured"} and {row["card"] for row in rows} == {"none"}


def test_a_part_that_fails_leaves_the_others(tmp_path, monkeypatch, capsys):
    from benchmarks.experiments.device import parts

    def fail(lab, case):
        yield "first", 1.0, "s"
        raise MemoryError("no room")

    monkeypatch.setitem(parts.PARTS, "tf32", (parts.PARTS["tf32"][0], parts.PARTS["roofs"][1]))
    monkeypatch.setitem(parts.PARTS, "roofs", (parts.PARTS["roofs"][0], fail))
    chosen = ["--set", 'parameters.parts=["roofs", "tf32"]']
    assert main(["device", "--quick", "--out", str(tmp_path), *chosen]) == 2
    assert "roofs: MemoryError: no room" in capsys.readouterr().err
    rows = read_rows(tmp_path / "device")
    assert [(row["part"], row["what"]) for row in rows] == [
        ("roofs", "first"),
        ("tf32", "products"),
        ("tf32", "products"),
    ]


def test_a_part_whose_time_is_over_says_so(monkeypatch):
    monkeypatch.setitem(SECONDS, "roofs", -1.0)
    part = (lambda p: ("copy",), lambda lab, case: iter([("bandwidth", 1.0, "GB/s")]))
    rows = list(experiment._measure("roofs", part, Parameters(), object(), 1e30))
    assert [row["value"] for row in rows] == ["not measured"]


def test_a_run_takes_at_most_ten_minutes():
    assert sum(SECONDS.values()) <= experiment.MOST == 600
    with pytest.raises(ConfigError, match="unknown part 'roof'"):
        Parameters(parts=("roof",))
