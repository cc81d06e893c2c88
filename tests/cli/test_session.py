"""The session of `docs/command_line.md`, word for word: the data are made, every command runs, and what it tells is compared."""

import doctest
import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from nnfactor.cli import arguments, main

for package in ("matplotlib", "tensorly", "zarr"):
    pytest.importorskip(package)

PAGE = (Path(__file__).parents[2] / "docs" / "command_line.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, flags=re.DOTALL)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def commands(text):
    """Pairs of words and what is told."""
    for part in text.split("$ nnfactor ")[1:]:
        line, _, told = part.partition("\n")
        yield line, told


def test_the_session(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    used, left_out = set(), None
    for kind, text in BLOCKS:
        if kind == "python":
            left_out = None if "anndata" not in text or importlib.util.find_spec("anndata") else "iris"
            if left_out is None:
                subprocess.run([sys.executable, "-W", "ignore", "-c", text], check=True, env=environment)
        for line, told in commands(text) if kind == "console" else ():
            if left_out is None or left_out not in line:
                run(line, told, monkeypatch, capfd)
            used.add(line.split()[0])
    assert used == set(arguments.DESCRIPTIONS)
    assert (tmp_path / "spectra_NMF" / "suggested_solution" / "usages.tsv").read_text().startswith("\tcomponent_1")


def run(line, told, monkeypatch, capfd):
    """Run a command, and compare what it tells with the page."""
    capfd.readouterr()
    monkeypatch.setattr(sys, "argv", ["nnfactor", *shlex.split(line)])
    status = main()
    out, err = capfd.readouterr()
    assert status == (2 if "error:" in told else 0), err
    assert doctest.OutputChecker().check_output(told, out + err, FLAGS), f"{line}\n{out}{err}"


def test_the_table_of_files_is_complete(tmp_path):
    """Every file that the page names is written by some run of the tests beside this one, and none is forgotten."""
    from nnfactor.cli import folder, jobs, pictures, solutions

    written = set()
    for module in (folder, jobs, pictures, solutions):
        written |= set(
            re.findall(
                r'"([\w.]+\.(?:tsv|json|jsonl|txt|png|pdf|html|safetensors))"', Path(module.__file__).read_text()
            )
        )
    assert written and not [name for name in written if name not in PAGE]
