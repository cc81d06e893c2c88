"""`--processes N`: the files of one process, and one message when a process is lost."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import nnfactor
from nnfactor.cli import launch, main
from nnfactor.io import read_data

ROOT = Path(__file__).parents[2]
LIMIT = 150  # seconds for a command under load

# What a process runs first: one of the ranks is lost in the middle of a fit, and the limit is short.
LOSES = """
import os, signal, threading, time
if os.environ.get("NNFACTOR_MEET"):
    from nnfactor.core.data.distributed import watch
    watch.LIMIT = 4.0
    def lose():
        while not os.path.exists("x_NMF/log.jsonl"):
            time.sleep(0.05)
        os.kill(os.getpid(), getattr(signal, os.environ["LOSE"]))
    if os.environ["RANK"] == "1":
        threading.Thread(target=lose, daemon=True).start()
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with dense, sparse and chunked files of few samples."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    random = np.random.default_rng(0)
    np.save("x.npy", random.random((41, 3)) @ random.random((3, 12)) + 0.1 * random.random((41, 12)))
    sp.save_npz("few.npz", sp.random_array((40, 15), density=0.3, rng=random, format="csr"))
    return tmp_path


def run(words, status=0):
    told = [sys.executable, "-m", "nnfactor", *words.split()]
    done = subprocess.run(told, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == status, done.stderr
    return done


def assert_same_results(a, b):
    """Compare the tables of two result folders; both have the same files, but for the log."""
    names = [sorted(str(p.relative_to(f)) for p in f.rglob("*") if p.is_file()) for f in (a, b)]
    assert names[0] == names[1]
    for name in (n for n in names[0] if n.endswith((".tsv", "seeds.txt"))):
        if name == "all_solutions_stat.tsv":
            rows = [(f / name).read_text().splitlines() for f in (a, b)]
            assert rows[0][0] == rows[1][0] and len(rows[0]) == len(rows[1])
            continue
        values = [
            read_data(f / name).values if name.endswith(".tsv") else np.loadtxt(f / name, skiprows=1) for f in (a, b)
        ]
        np.testing.assert_allclose(*values, rtol=0, atol=1e-10 * np.abs(values[0]).max())
    models = [nnfactor.load(f / "suggested_solution" / "factors.safetensors") for f in (a, b)]
    assert models[0].loss_ == pytest.approx(models[1].loss_, rel=1e-10)
    assert models[0].n_iter_ == models[1].n_iter_


@pytest.mark.parametrize("data", ["x.npy --checkpoint 0", "few.npz", "x.npy --max-bytes 8kB"])
def test_processes_that_split_samples_write_what_one_writes(data, here):
    words = f"fit {data} -k 3 --seed 0 --max-iter 20 --tol 0 --init random --no-plots"
    done = run(f"{words} --processes 2 --name both")
    assert done.stderr.count("fitted rank 3") == 1 and done.stderr.count("wrote both") == 1
    assert main([*words.split(), "--name", "alone", "-q"]) == 0
    assert_same_results(here / "both", here / "alone")


def test_processes_share_ranks_restarts_and_folds(here):
    words = "select-rank x.npy -k 2:3 --n-init 3 --seed 0 --no-plots"
    run(f"{words} --processes 2 --name both")
    assert main([*words.split(), "--name", "alone", "-q"]) == 0
    assert_same_results(here / "both", here / "alone")
    assert not (here / "both" / "jobs").exists()


@pytest.mark.parametrize(
    "how, told",
    [
        ("SIGKILL", "rank 1 of 2 was ended by SIGKILL, perhaps for want of memory; the others ended with it"),
        ("SIGSTOP", "rank 1 of 2 did not answer within 4 s while the others waited for it"),
    ],
)
def test_a_lost_process_ends_the_run_with_one_message(how, told, here, monkeypatch):
    (here / "sitecustomize.py").write_text(LOSES)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(here), str(ROOT)]))
    monkeypatch.setenv("LOSE", how)
    begun = time.monotonic()
    done = run("fit x.npy -k 3 --seed 0 --max-iter 100000000 --tol 0 --no-plots --processes 2", status=1)
    lines = done.stderr.splitlines()
    assert [line for line in lines if "error" in line or "rank 1" in line] == [lines[-1]], done.stderr
    assert lines[-1].startswith(f"nnfactor: error: {told}")
    assert time.monotonic() - begun < 90


def test_an_error_is_told_once(here):
    X = np.load("x.npy")
    X[-1, -1] = np.nan  # which the last process alone reads
    np.save("hole.npy", X)
    lines = run("fit hole.npy -k 3 --seed 0 --processes 2", status=2).stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("nnfactor: error: rows of rank 1: Input X contains NaN")
    assert not (here / "hole_NMF").exists()


@pytest.mark.parametrize(
    "words, told",
    [
        ("fit x.npy -k 3 --gpus 64", "--gpus 64: torch sees"),
        ("fit x.npy -k 3 --processes 0", "--processes 0 must be 1 or more"),
        ("fit x.npy -k 3 --processes 2 --gpus 2", "--processes and --gpus say the same"),
        ("fit x.npy -k 3 --seed 0 --processes 2 --total-workers 2", "both split the work"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(words, told, here, capsys, monkeypatch):
    monkeypatch.setattr(launch, "_start", None)
    assert main(words.split()) == 2
    assert told in capsys.readouterr().err


def test_the_error_that_tells_most_is_chosen():
    lost = {"line": "nnfactor: error: rank 1 of 3 ended", "status": 1, "lost": [1]}
    own = {"line": "nnfactor: error: OSError: no room", "status": 1, "lost": None}
    assert launch.choose_error([1, -9, 1], set(), {0: lost, 2: lost})[0].startswith(
        "nnfactor: error: rank 1 of 3 was ended by SIGKILL"
    )
    assert launch.choose_error([1, 1, 1], set(), {0: lost, 1: own, 2: lost}) == (
        "nnfactor: error: rank 1 of 3: OSError: no room",
        1,
    )
    assert launch.choose_error([1, -15, 1], {1}, {0: lost, 2: {**lost, "lost": []}}) == (lost["line"], 1)
    assert launch.choose_error([2, 2], set(), {0: {**own, "status": 2}}) == (own["line"], 2)
