"""The report of a run: a page as that of a result folder, and every number beside it."""

import csv
import json
from base64 import b64encode
from io import BytesIO

import pytest

pytest.importorskip("matplotlib")

import torch
from html_pages import Page, show_in_browser
from matplotlib.figure import Figure as Canvas

from benchmarks.harness import config as configs
from benchmarks.harness.machine import describe
from benchmarks.harness.results import Figure, Line, Panel, Picture, Report, Score, Section, Table
from benchmarks.report.page import worth_showing, write

SCORES = Table(
    "Scores <all>",
    ["method_a & b", "score", "n", "verdict", "spread"],
    [
        ["ten", Score(10.06, 0.5, 3), 1, "met", "1 to 2"],
        ["nine", Score(9.5), None, "not met", "-"],
        ["none", None, 1234567.125, "not run", "-"],
    ],
)
ROWS = [
    {"kind": "method", "method": "ten", "score": 10.06},
    {"kind": "curve", "method": "ten", "objective": 0.1 + 0.2},
    {"kind": "picture", "png": "AAAA"},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("runs") / "my <run>"
    made.mkdir()
    buffer = BytesIO()
    Canvas(figsize=(1, 1)).savefig(buffer, format="png")
    curves = Figure("Curves", [Panel("iterations", "objective", [Line("ten", [1, 10], [2.0, 1.0])])])
    parts = [SCORES, curves, Picture("Bases", b64encode(buffer.getvalue()).decode(), 64), Table("Nothing", ["a"], [])]
    sections = [
        Section("What was measured", ["First <words>."], parts),
        Section("Left out", [], [Table("", ["a"], [])]),
    ]
    machine = {**describe(torch.device("cpu"), 1), "variants": ["quick"], "seconds": 1.0}
    write(made, configs.load(configs.find("nge_speed")), Report(sections, ROWS, ("curve", "picture")), machine)
    return made


@pytest.fixture(scope="module")
def page(folder):
    return Page(folder / "report.html")


def test_nothing_is_loaded_and_links_are_to_what_is_there(folder, page):
    files = page.linked_files()
    assert files == {"summary.csv", "details.csv", "results.jsonl", "config.toml", "machine.json"}
    assert all((folder / file).is_file() for file in files)
    assert [attrs["src"].partition(";")[0] for attrs in page.all("img")] == ["data:image/svg+xml", "data:image/png"]
    assert all(attrs["alt"] for attrs in page.all("img"))


def test_every_number_is_in_a_csv(folder):
    read = lambda name: list(csv.DictReader((folder / name).read_text().splitlines()))
    assert read("summary.csv") == [{"kind": "method", "method": "ten", "score": "10.06"}]
    assert read("details.csv") == [{"kind": "curve", "method": "ten", "objective": repr(0.1 + 0.2)}]
    assert json.loads((folder / "machine.json").read_text())["variants"] == ["quick"]


def test_heads_stand_over_their_numbers_which_are_sorted_in_full(page):
    heads = next(row for row in page.rows if row[0][1] == "method_a & b")
    assert [attrs.get("class") for attrs, _ in heads] == ["text", None, None, "text", "text"]
    assert page.row("ten")[1] == [{"data-value": "10.06"}, "10.1 ± 0.5"]
    assert page.row("none")[2] == [{"data-value": "1234567.125"}, "1.235e+06"]
    assert [page.row(name)[3][0]["class"] for name in ("ten", "nine", "none")] == ["text good", "text bad", "text"]


def test_what_is_empty_is_not_shown(page):
    assert "Left out" not in page.text and "Nothing" not in page.text
    assert "First <words>." in page.text and "Run with --quick" in page.text and "Scores <all>" in page.text
    assert [worth_showing(Section("", text, ())) for text in ((), ("x",))] == [False, True]


def test_a_browser_shows_and_sorts_it(folder, tmp_path):
    told = show_in_browser(folder / "report.html", tmp_path)
    assert told["up"] == ["nine", "ten", "none"] and told["down"] == ["ten", "nine", "none"]  # a missing one stays last
    assert told["focused"] and told["pictures"] and told["loaded"] == 0 and told["wide"] == []
