"""The report of a result folder: one page without requests, with every number, readable for everyone."""

import json

import matplotlib
import numpy as np
import pytest
from html_pages import Page, show_in_browser
from matplotlib.figure import Figure

from nnfactor.io import write_table
from nnfactor.plots import write_report
from nnfactor.plots.panels import CHANNELS

matplotlib.use("agg")

GENES = ["<b>gene</b>", 'quote"d', "a&b", *(f"gene {i}" for i in range(17))]
CELLS = [f"cell {i}" for i in range(12)]
LOSSES = [0.1 + 0.2, 1234567.125, float("nan")]


def write_folder(folder, ranks=(2, 3, 15), suggested=3, genes=GENES):
    """A result folder as the command line writes it."""
    rng = np.random.default_rng(0)
    for k in ranks:
        solution = folder / "all_solutions" / f"k_{k:02d}"
        solution.mkdir(parents=True)
        names = [f"component_{j + 1}" for j in range(k)]
        write_table(solution / "components.tsv", rng.random((k, len(genes))), names, genes)
        write_table(solution / "usages.tsv", rng.random((len(CELLS), k)), CELLS, names)
        (solution / "restarts.tsv").write_text("restart\tseed\tloss\titerations\n0\t17\t2.5\t30\n1\t4\t10.5\t9\n")
        (solution / "factors.safetensors").write_bytes(b"0" * 2500)
    rows = [f"{k}\t{loss!r}\tTrue\t{k == suggested}" for k, loss in zip(ranks, LOSSES, strict=False)]
    (folder / "all_solutions_stat.tsv").write_text("\n".join(["rank\tloss\tconverged\tsuggested", *rows]) + "\n")
    figure = Figure(figsize=(3, 2))
    figure.subplots().plot([0, 1])
    figure.savefig(folder / "selection_plot.png")
    known = {
        "command": ["nnfactor", "select-rank", "a file.csv"],
        "plan": {"verb": "select-rank", "model": "NMF", "seed": 7},
        "reason": "3 by bicross: <script>alert(1)</script>",
        "suggested": suggested,
        "environment": {"torch": "2.4"},
    }
    (folder / "metadata.json").write_text(json.dumps(known))
    (folder / "log.txt").write_text("begun\n")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = write_folder(tmp_path_factory.mktemp("results") / "my <run>")
    write_report(made)
    return made


@pytest.fixture(scope="module")
def page(folder):
    return Page(folder / "report.html")


def test_nothing_is_loaded_and_links_are_to_what_is_there(folder, page):
    files = page.linked_files()
    assert all((folder / file).is_file() for file in files)
    assert {"all_solutions_stat.tsv", "metadata.json", "all_solutions/k_02/components.tsv"} <= files
    assert all(attrs["src"].startswith("data:image/png;base64,") for attrs in page.all("img"))
    assert sorted(p.name for p in folder.iterdir() if p.name.startswith(".")) == []  # nothing unfinished


def test_every_picture_has_a_text_and_tables_can_be_reached_by_keys(page):
    assert len(page.all("img")) == 4 and all(len(attrs["alt"]) > 20 for attrs in page.all("img"))
    regions = [attrs for attrs in page.all("div") if attrs.get("role") == "region"]
    assert regions and all(attrs["tabindex"] == "0" and attrs["aria-label"] for attrs in regions)
    assert all(attrs["scope"] in ("col", "row") for attrs in page.all("th"))
    assert page.all("html")[0]["lang"] == "en" and len(page.all("h1")) == 1


def test_numbers_are_rounded_and_sorted_in_full(page):
    assert page.row("2")[1] == [{"data-value": repr(0.1 + 0.2)}, "0.3"]
    assert page.row("3")[1][0]["data-value"] == "1234567.125"
    assert page.row("15")[1][1] == "–"  # noqa: RUF001


def test_the_suggestion_is_marked_and_open(page):
    marked = [attrs for attrs in page.all("tr") if attrs.get("class") == "marked"]
    assert len(marked) == 1
    assert [attrs["id"] for attrs in page.all("details") if "open" in attrs] == ["k3"]
    assert "3 components, suggested" in page.text


def test_names_and_reasons_are_text(folder, page):
    assert "3 by bicross: <script>alert(1)</script>" in page.text
    assert len(page.all("script")) == 1 and not page.all("b")
    assert "<b>gene</b>" in page.text and 'quote"d' in page.text and "my <run>: select-rank of NMF" in page.text
    assert "nnfactor select-rank 'a file.csv'" in page.text


def test_the_largest_entries_are_named(folder, page):
    lines = (folder / "all_solutions" / "k_02" / "components.tsv").read_text().splitlines()
    names, values = lines[0].split("\t")[1:], np.array(lines[1].split("\t")[1:], dtype=float)
    expected = ", ".join(names[i] for i in np.argsort(-values)[:10])
    assert page.row("component_1")[2][1] == expected


def test_a_folder_may_lack_all_but_one_solution(tmp_path):
    solution = tmp_path / "all_solutions" / "k_model"
    solution.mkdir(parents=True)
    write_table(solution / "factor_U1.tsv", np.eye(4)[:, :2], list("abcd"), ["one", "two"])
    write_table(solution / "factor_U2.tsv", np.eye(5)[:, :2])
    page = Page(write_report(tmp_path))
    assert len(page.all("img")) == 2 and "Largest U1 of every component" in page.text
    assert page.row("one")[2][1] == "a"


def test_mutation_channels_are_drawn_as_such(tmp_path):
    page = Page(write_report(write_folder(tmp_path, (2,), 2, CHANNELS)))
    assert "mutation channels" in page.all("img")[1]["alt"]


def test_no_rank_may_be_suggested(tmp_path):
    page = Page(write_report(write_folder(tmp_path, (2, 3), None)))
    assert not [attrs for attrs in page.all("tr") if "class" in attrs]
    assert [attrs["id"] for attrs in page.all("details") if "open" in attrs] == ["k3"]


def test_what_is_no_result_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match="it is no result folder"):
        write_report(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_browser_shows_sorts_and_prints_it(folder, tmp_path):
    assert show_in_browser(folder / "report.html", tmp_path) == {
        "focused": True,
        "up": ["2", "3", "15"],
        "down": ["3", "2", "15"],  # what is missing stays last
        "sort": "descending",
        "loaded": 0,
        "pictures": True,
        "opened": 0,
        "wide": [],
    }
