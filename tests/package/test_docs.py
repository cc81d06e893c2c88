"""Pages of the documentation name all that is public, and nothing that is not there."""

import re
import shlex
import sys
from importlib import import_module
from pathlib import Path

import pytest

import nnfactor
from nnfactor import cli

MODULES = {"core", "graphs", "kernels", "metrics", "penalties"}  # each has sections of its own

DOCS = Path(__file__).parents[2] / "docs"


def listed():
    """The names of the API page by module, in the order of the page."""
    found, module = {}, ""
    for line in (DOCS / "api.rst").read_text().splitlines():
        if line.startswith(".. currentmodule::"):
            module = line.split()[-1]
        elif re.fullmatch(r"   \w+", line):
            found.setdefault(module, []).append(line.strip())  # the build lists those of nnfactor.io and the like
    return found


@pytest.mark.parametrize("module", sorted(listed()))
def test_what_the_api_page_lists_is_there_and_documented(module):
    for name in set(listed()[module]) - {"Rule"}:  # an alias of a type
        found = getattr(import_module(module), name, None) or import_module(f"{module}.{name}")
        assert found.__doc__, name


@pytest.mark.parametrize("module", ["nnfactor", "nnfactor.core", "nnfactor.metrics"])
def test_the_api_page_lists_all_public_names(module):
    names = listed()
    skipped = (
        {"__version__", "models", *MODULES} if module == "nnfactor" else {"Progress", "Chunked"}
    )  # listed elsewhere
    assert set(import_module(module).__all__) - skipped <= set(names[module])


def test_the_table_of_models_names_every_estimator_once_or_more():
    page = (DOCS / "choose_a_model.md").read_text()
    compared = {"CoTraining", "PairwiseCoRegularizedSpectral", "PolynomialNMF", "LNMF"}  # baselines of the experiments
    helpers = {"MarginalFisher", "LabelledOnly", "NDTF", "nnls"}
    assert {name for name in nnfactor.MODELS if name not in page} <= compared | helpers


def test_every_example_is_in_the_gallery():
    order = re.search(r"ORDER = \((.*)\)", (DOCS / "conf.py").read_text()).group(1)
    assert {p.stem for p in (DOCS / "examples").glob("*.py")} <= set(re.findall(r"\w+", order))


def test_the_commands_of_five_minutes_write_what_the_page_names(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    page = (DOCS / "five_minutes.md").read_text()
    monkeypatch.chdir(tmp_path)
    exec("\n".join(re.findall(r"^    >>> (.*)", page.partition("## Fifteen")[0], re.M)), {})
    commands = re.findall(r"^\$ nnfactor (.*)", page, re.M)
    assert commands
    for command in commands:
        monkeypatch.setattr(sys, "argv", ["nnfactor", *shlex.split(command)])
        assert cli.main() == 0
    named = re.findall(r"^\| `([\w/.]+)`", page.partition("## Two commands")[2].partition("## What")[0], re.M)
    assert named and all((tmp_path / "my_data_NMF" / name).exists() for name in named)
