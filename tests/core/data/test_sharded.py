"""Samples split over processes: the fits of one process, few messages, and one end for all."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import shards
import torch

from nnfactor.core import Sharded

SCRIPT = Path(shards.__file__)
LIMIT = 120  # seconds after which the processes of a test are killed


def run_ranks(folder, name, size):
    """Run a scenario in a group of its own at a free port; return its status, what every rank found, and stderr."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    told = [sys.executable, str(SCRIPT), str(folder), str(size), str(port), name]
    path = os.pathsep.join([str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        told, stderr=subprocess.PIPE, text=True, process_group=0, env={**os.environ, "PYTHONPATH": path}
    )
    try:
        _, errors = process.communicate(timeout=LIMIT)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)  # the ranks too
            process.communicate()
    found = [torch.load(folder / f"{r}.pt", weights_only=False) for r in range(size) if (folder / f"{r}.pt").exists()]
    return process.returncode, found, errors


@pytest.fixture(scope="module", params=[2, 3, 4])
def ranks(request, tmp_path_factory):
    status, found, errors = run_ranks(tmp_path_factory.mktemp("ranks"), "fit", request.param)
    assert status == 0, errors
    return found


@pytest.fixture(scope="module", params=[2, 4])
def cases(request, tmp_path_factory):
    status, found, errors = run_ranks(tmp_path_factory.mktemp("ranks"), "cases", request.param)
    assert status == 0, errors
    return found


@cache
def alone(name):
    A, convert, make = shards.FITS[name]
    return shards.published(make().fit(convert(A) if convert else A))


def equal(mine, its, tol=1e-10):
    mine, its = np.asarray(mine, dtype=np.float64), np.asarray(its, dtype=np.float64)
    np.testing.assert_allclose(mine, its, rtol=0, atol=tol * max(float(np.abs(its).max()), 1e-300))


def fit_alone(model, A, y=None, weights=None, **of_ranks):
    return model.fit(A, y) if weights is None else model.fit(A, y, weights=weights)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", shards.FITS)
def test_processes_fit_what_one_fits(name, ranks):
    compare([found[name] for found in ranks], alone(name))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:.*without any observed entry:UserWarning")
@pytest.mark.parametrize("name", shards.CASES)
def test_processes_fit_their_rows_of_what_one_fits(name, cases):
    its = shards.published(shards.CASES[name](fit_alone, slice(None)))
    compare([found[name] for found in cases], its)


def compare(own, its):
    """Compare what every rank published with the fit of one process."""
    for rank in own:
        assert rank["n_iter_"] == its["n_iter_"] and rank["converged_"] == its["converged_"]
        for key in ("loss_", "reconstruction_err_", "objective"):
            equal(rank[key], its[key])
            np.testing.assert_array_equal(rank[key], own[0][key])
        for U, V, W in zip(rank["factors_"], its["factors_"], own[0]["factors_"], strict=True):
            equal(U, V)
            np.testing.assert_array_equal(U, W)
    for key in ("embedding_", "transduction_", "label_distributions_"):
        if key in its:
            equal(np.concatenate([rank[key] for rank in own]), its[key])
    if "restarts loss" in its:
        for rank in own:
            equal(rank["restarts loss"], its["restarts loss"])
            np.testing.assert_array_equal(rank["restarts n_iter"], its["restarts n_iter"])
    if "restarts embeddings" in its:
        equal(np.concatenate([r["restarts embeddings"] for r in own], axis=1), its["restarts embeddings"])


def test_a_sweep_sends_one_flat_message(tmp_path):
    """Sums of a mode come with V'V; momentum reads one number more, the objective; a tensor sends one for each mode."""
    status, found, errors = run_ranks(tmp_path, "messages", 2)
    assert status == 0, errors
    k, m = 4, 14
    expected = {"hals": [m * k + k * k], "mu": [m * k + k * k], "auto": [1, m * k + k * k], "kl": [m * k + k]}
    expected["penalties"] = expected["missing"] = expected["auto"]
    expected["graph"] = [m * k, 21 * k]  # X U of all rows, each process sending as many as the largest has
    expected["tensor"] = [1, 5 * 3, 6 * 3 + 3 * 3]
    assert found == [expected] * 2


def test_what_needs_all_samples_is_refused_by_name_in_all_processes(tmp_path):
    status, found, errors = run_ranks(tmp_path, "refuse", 2)
    assert status == 0, errors
    assert found[0] == found[1]
    words = {
        "nan": "rows of rank 1: Input X contains NaN",
        "features": "rows of rank 1 are Dense of",
        "dtype": "torch.float32",
        "nested": "X is Sharded",
        "hidden": "no entry that counts",
        "mixed": "rows of rank 1 are Chunked",
        "few rows": "source has 1 rows, fewer than the 2 processes",
        "negative": "Negative values",
        "stored": "rows of SparseTensor stay in their process",
        "tensors": "X[1] has the modes ('s', 'b')",
        "views": "views that are Sharded and views that are not",
        "kernel": "KernelNMF does not take",
        "weighted": "SemiNMF does not take",
        "weights": "use Sharded(X, weights=...)",
        "graph": "graph: rank 1 gives 20 rows",
        "labels": "y: rank 1 gives 21 rows, and rank 0 nothing",
        "start": "init: V: rank 1 gives 22 rows",
        "sketch": "sketch needs",
        "batches": "batch_size needs",
        "fixed": "fixed['V']: rank 1 gives 20 rows",
        "fixed, one": "rank 1: fixed['V'] must hold finite numbers >= 0",
        "checkpoint": "cannot be written",
        "stream": "partial_fit takes a batch",
        "term": "Laplacian depends on 'V'",
    }
    assert list(words) == list(found[0])
    for name, word in words.items():
        assert word in found[0][name]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_processes_agree_where_they_could_part(tmp_path):
    """Seeds that differ, a callback that is true in one process only, and rows that are all zero."""
    status, found, errors = run_ranks(tmp_path, "agree", 2)
    assert status == 0, errors
    A = shards.X.copy()
    A[shards.own_rows(len(A), 1, 2)] = 0
    its = shards.NMF(3, random_state=0, n_init=2, max_iter=15, tol=0).fit(A)
    told = shards.NMF(3, random_state=0, tol=0, max_iter=5).fit(A)
    hidden = shards.NMF(3, random_state=0, max_iter=5, tol=0, missing="nan").fit(shards.H)
    nge = shards.NGE(4, random_state=0, max_iter=5, tol=0).fit(shards.X, shards.Y)
    np.testing.assert_array_equal(np.concatenate([rank["predicted"] for rank in found]), nge.predict(shards.X))
    for r, rank in enumerate(found):
        rows = shards.own_rows(len(A), r, 2)
        equal(rank["scores"], [told.score(A[rows]), hidden.score(shards.H[rows])])
        equal(rank["loss"], its.loss_)
        equal(rank["factors"][0], its.factors_[0])
        assert rank["n_iter"] == 20
        assert rank["transformed"] == 0


@pytest.mark.parametrize(
    "name, told",
    [
        ("killed", "rank 1 of 3 ended"),
        ("first killed", "rank 0 of 3 ended"),
        ("failing", "rank 2 of 3 ended"),
        ("dealt", "rank 1 of 3 ended"),
        ("hanging", "rank 1 of 3 did not answer within 6 s"),
    ],
)
def test_a_lost_process_ends_all_and_is_named(name, told, tmp_path):
    """The others end within the timeout of the group, with one message; a process that slept says the same."""
    status, found, errors = run_ranks(tmp_path, name, 3)
    assert status, errors
    assert len(found) == (3 if name == "hanging" else 2), errors
    for rank in found:
        assert rank["message"].startswith(f"{told} while the others waited")
        assert rank["ranks"] == [int(told[5])]
        assert rank["seconds"] < (20 if name == "hanging" else 8)
    assert len({rank["message"] for rank in found}) == 1


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_other_processes_and_one_go_on_from_a_checkpoint(tmp_path):
    """Two processes stop in the middle; three end their fits, or one that has all samples."""
    status, _, errors = run_ranks(tmp_path, "stop", 2)
    assert status == 0, errors
    shutil.copytree(tmp_path, tmp_path / "copy")
    status, found, errors = run_ranks(tmp_path, "resume", 3)
    assert status == 0, errors
    assert all("samples of X, or their order, differ" in rank.pop("others") for rank in found)
    for name in shards.STOPPED:
        kept = {"checkpoint": tmp_path / "copy" / f"{name}.checkpoint"}
        if name in shards.CASES:
            fit = lambda model, A, y=None, **of_ranks: shards.published(model.fit(A, y))
            whole = shards.CASES[name](fit, slice(None))
            fit = lambda model, A, y=None, kept=kept, **of_ranks: shards.published(model.fit(A, y, **kept))
            single = shards.CASES[name](fit, slice(None))
        else:
            A, _, make = shards.FITS[name]
            whole, single = alone(name), shards.published(make().fit(A, **kept))
        compare([rank[name] for rank in found], whole)
        compare([single], whole)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_restarts_and_folds_are_dealt_over_processes(tmp_path):
    """All processes get what one computes, draw alike without a seed, and send nothing while they fit."""
    status, found, errors = run_ranks(tmp_path, "deal", 2)
    assert status == 0, errors
    views = [shards.X, shards.X[::-1].copy(), shards.X + 0.1]
    makes = lambda n, **more: [shards.NMF(3, random_state=0, tol=0, **more) for _ in range(n)]
    batches = makes(1, batch_size=10, n_init=2, max_iter=4)
    fits = shards.batch_fit(shards.many(), shards.X), shards.batch_fit(makes(3, max_iter=9), views)
    whole = dict(zip(("many", "views"), fits, strict=True)) | {"batches": shards.batch_fit(batches, shards.X)}
    chosen = shards.select_rank(shards.NMF(2, max_iter=50), shards.X, (2, 3), "stability", n_init=5, random_state=0)
    for rank in found:
        for name, models in whole.items():
            for mine, its in zip(rank[name], models, strict=True):
                same_fit(mine, shards.published(its))
        assert rank["halves"][0] == chosen.reason
        for k, model in chosen.models.items():
            same_fit(rank["halves"][1][k], shards.published(model))
        assert rank["sent"] == 0 and rank["failed"] == ("the disk is full", ["in rank 1 of 2"])
    assert found[0]["any"][:2] == found[1]["any"][:2]
    np.testing.assert_array_equal(found[0]["any"][2], found[1]["any"][2])


def same_fit(mine, its):
    assert mine.keys() == its.keys() and mine["n_iter_"] == its["n_iter_"]
    for name in (
        "embedding_",
        "loss_",
        "objective",
        *(n for n in its if n in ("restarts loss", "restarts embeddings")),
    ):
        equal(mine[name], its[name])
    for U, V in zip(mine["factors_"], its["factors_"], strict=True):
        equal(U, V)


def test_without_a_process_group(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: False)  # tests of one process make a group
    with pytest.raises(RuntimeError, match="init_process_group"):
        Sharded(shards.X)
