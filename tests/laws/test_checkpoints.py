"""A fit that was interrupted and called again ends with the very numbers of one that was not."""

import json
import logging
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from estimators import MATRIX, blocks, labels
from killed_fits import KINDS, published

from nnfactor import NMF, NTF, PARAFAC2, SULF, Coupled, batch_fit
from nnfactor.io.checkpoints.fit_checkpoint import FitCheckpoint
from nnfactor.io.checkpoints.state_files import write_state

X, Y = blocks(30, 14), labels(30)
PROGRAM = Path(__file__).parents[1] / "support" / "killed_fits.py"
KILLS = 20


class Killed(BaseException):
    """The process would be gone."""


@pytest.fixture
def count_saves(monkeypatch):
    """Count savings; after `every` of them, if that is set, the fit is ended."""
    counts = {"saves": 0, "every": None}
    save = FitCheckpoint.save

    def counted(self, condition):
        save(self, condition)
        counts["saves"] += 1
        if counts["every"] and counts["saves"] % counts["every"] == 0:
            raise Killed

    monkeypatch.setattr(FitCheckpoint, "save", counted)
    monkeypatch.setattr(os, "fsync", lambda number: None)  # a disk is slower than these fits
    return counts


def fit_quietly(make, *data, **kept):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make().fit(*data, **kept)


def fit_in_pieces(counts, make, *data, path, every):
    """Call until the fit ends; return it, and how often it was called."""
    counts["every"] = every
    for calls in range(1, 1000):
        try:
            return fit_quietly(make, *data, checkpoint=path, checkpoint_every=0), calls
        except Killed:
            pass
    pytest.fail("the fit gets nowhere")


def same(first, second):
    first, second = published(first), published(second)
    assert first.keys() == second.keys()
    assert not [name for name in first if first[name] != second[name]]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_killed_at_any_moment_a_fit_goes_on():
    memory = Path("/dev/shm")
    where = memory if os.access(memory, os.W_OK) else None  # where fsync costs nothing
    with tempfile.TemporaryDirectory(dir=where) as folder:
        done = subprocess.run(
            [sys.executable, PROGRAM, folder, str(KILLS)],
            capture_output=True,
            text=True,
            timeout=600,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["kind"] for line in told] == list(KINDS)
    assert not [line for line in told if line["differ"]]
    assert min(line["numbers"] for line in told) > 10
    assert sum(line["kills"] for line in told) > KILLS * len(KINDS) / 2  # where the machine stalls, some end before


@pytest.mark.parametrize("key", MATRIX)
def test_every_estimator_goes_on(key, count_saves, tmp_path):
    make = lambda: MATRIX[key](random_state=0, max_iter=13, tol=0)
    model, calls = fit_in_pieces(count_saves, make, X, Y, path=tmp_path / "fit", every=5)
    same(model, fit_quietly(make, X, Y))
    assert calls >= 3


OTHERS = {
    "restarts that end at different times": (lambda: NMF(3, n_init=6, tol=1e-2, init="random", random_state=0), X),
    "two stages": (lambda: SULF(3, start="two_stage", random_state=0, max_iter=20, tol=0), [X, X[:, :6]], Y),
    "hidden samples": (
        lambda: NMF(3, missing="nan", random_state=0, max_iter=12, tol=0),
        np.where(np.random.default_rng(0).random(X.shape) < 0.5, np.nan, X),
    ),
    "mini-batches": (lambda: NMF(3, batch_size=7, n_init=2, random_state=0, max_iter=12, tol=0), X),
    "mini-batches, KL": (lambda: NMF(3, loss="kl", batch_size=7, random_state=0, max_iter=12, tol=0), X),
    "several tensors": (
        lambda: Coupled(3, modes=[("a", "b"), ("a", "c")], random_state=0, max_iter=12, tol=0),
        [X, X[:, :5]],
    ),
    "slices": (lambda: PARAFAC2(3, random_state=0, max_iter=12, tol=0), [X[:12], X[12:]]),
    "a tensor": (lambda: NTF(3, random_state=0, max_iter=12, tol=0, dtype="float32"), X.reshape(30, 7, 2)),
    "a tensor of torch": (lambda: NMF(3, random_state=0, max_iter=12, tol=0), torch.from_numpy(X)),
}


@pytest.mark.parametrize("key", OTHERS)
def test_so_do_other_fits(key, count_saves, tmp_path):
    make, *data = OTHERS[key]
    model, calls = fit_in_pieces(count_saves, make, *data, path=tmp_path / "fit", every=4)
    same(model, fit_quietly(make, *data))
    assert calls >= 3


@pytest.mark.gpu
@pytest.mark.parametrize("settings", [{}, {"n_init": 3}, {"loss": "kl"}, {"batch_size": 8}], ids=str)
def test_on_cuda(settings, count_saves, tmp_path):
    make = lambda: NMF(3, random_state=0, max_iter=12, tol=0, **settings)
    data, memory = torch.from_numpy(X).cuda(), []
    model, _ = fit_in_pieces(count_saves, make, data, path=tmp_path / "fit", every=4)
    same(model, fit_quietly(make, data))
    make().set_params(callback=lambda p: memory.append(p.memory)).fit(data)
    assert min(memory) >= data.nbytes


class TestBatches:
    def fits(self):
        return [NMF(k, n_init=2, init="random", random_state=k, max_iter=40, tol=0) for k in (2, 3, 9)]

    def test_no_run_that_ended_runs_again(self, count_saves, tmp_path, monkeypatch):
        whole = batch_fit(self.fits(), X, max_bytes=250_000, checkpoint=tmp_path / "other", checkpoint_every=0)
        sweeps, count_saves["saves"] = count_saves["saves"], 0
        count_saves["every"] = 61
        for _ in range(100):
            try:
                parts = batch_fit(self.fits(), X, max_bytes=250_000, checkpoint=tmp_path / "fit", checkpoint_every=0)
                break
            except Killed:
                pass
        same(parts, whole)
        assert count_saves["saves"] == sweeps  # every sweep ran once

    def test_the_size_of_batches_is_kept_when_memory_changes(self, count_saves, tmp_path, monkeypatch):
        from nnfactor.models.shared import fitting

        fits = lambda: [NMF(3, init="random", random_state=s, max_iter=30, tol=0) for s in range(6)]
        sizes = iter([4, 2, 6, 1, 3, 2, 5, 6, 1, 2, 3])
        monkeypatch.setattr(fitting, "problems_per_batch", lambda *args: next(sizes))
        count_saves["every"] = 25
        for _ in range(10):
            try:
                parts = batch_fit(fits(), X, checkpoint=tmp_path / "fit", checkpoint_every=0)
                break
            except Killed:
                pass
        count_saves["every"], sizes = None, iter([4])
        same(parts, batch_fit(fits(), X))

    def test_callbacks_and_mini_batches_have_runs_of_their_own(self, count_saves, tmp_path):
        seen = []
        fits = lambda: [
            NMF(3, random_state=0, max_iter=20, tol=0, callback=lambda p: seen.append(p.iteration)),
            NMF(3, random_state=0, max_iter=20, tol=0, batch_size=10),
            NMF(3, random_state=1, max_iter=20, tol=0),
        ]
        count_saves["every"] = 15
        for _ in range(10):
            try:
                parts = batch_fit(fits(), X, checkpoint=tmp_path / "fit", checkpoint_every=0)
                break
            except Killed:
                pass
        count_saves["every"] = None
        assert seen == [0, 10, 20]  # nobody is told twice
        same(parts, batch_fit(fits(), X))


class TestSeeds:
    def test_drawn_seeds_are_drawn_once(self, count_saves, tmp_path):
        make = lambda: NMF(3, init="random", n_init=3, random_state=None, max_iter=20, tol=0)
        model, _ = fit_in_pieces(count_saves, make, X, path=tmp_path / "fit", every=6)
        again = make().fit(X, checkpoint=tmp_path / "fit")
        assert again.fit_info_["seeds"] == model.fit_info_["seeds"]
        same(model, again)
        assert make().fit(X).fit_info_["seeds"] != model.fit_info_["seeds"]

    @pytest.mark.parametrize("state", [np.random.default_rng, np.random.RandomState])
    def test_generators_too(self, state, count_saves, tmp_path):
        make = lambda: NMF(3, init="random", random_state=state(), max_iter=20, tol=0)
        model, _ = fit_in_pieces(count_saves, make, X, path=tmp_path / "fit", every=6)
        same(model, make().fit(X, checkpoint=tmp_path / "fit"))


class TestInterrupts:
    def interrupted(self, path, at=17, error=KeyboardInterrupt, **settings):
        def interrupt(progress):
            if progress.iteration >= at:
                raise error

        model = NMF(3, random_state=0, max_iter=40, tol=0, callback=interrupt, **settings)
        with pytest.raises(error) as raised:
            model.fit(X, checkpoint=path, checkpoint_every=3600)
        return model, raised.value

    @pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
    def test_a_checkpoint_is_left_that_says_how_to_go_on(self, error, tmp_path, caplog, count_saves):
        path = tmp_path / "fit"
        model, raised = self.interrupted(path, error=error)
        assert not hasattr(model, "embedding_")
        (note,) = raised.__notes__
        assert f"checkpoint={str(path)!r} has what was done: the same call, with the same data, goes on" in note
        assert note in caplog.text
        seen = []
        count_saves["saves"] = 0
        more = NMF(3, random_state=0, max_iter=40, tol=0, callback=lambda p: seen.append(p.iteration))
        same(more.fit(X, checkpoint=path), NMF(3, random_state=0, max_iter=40, tol=0).fit(X))
        assert seen == [20, 30, 40]  # from the last whole sweep: 19, though nothing was due

    def test_before_the_first_sweep(self, tmp_path):
        _, raised = self.interrupted(tmp_path / "fit", at=0)
        assert raised.__notes__
        same(
            NMF(3, random_state=0, max_iter=40, tol=0).fit(X, checkpoint=tmp_path / "fit"),
            NMF(3, random_state=0, max_iter=40, tol=0).fit(X),
        )

    def test_an_error_is_no_interrupt(self, tmp_path):
        _, raised = self.interrupted(tmp_path / "fit", error=RuntimeError)
        assert not hasattr(raised, "__notes__")


class TestCost:
    def test_nothing_is_written_without_one(self, count_saves, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("nnfactor.io.checkpoints.identity.FitCheckpoint", None)
        NMF(3, random_state=0, max_iter=20, tol=0).fit(X)
        batch_fit([NMF(3, random_state=0, max_iter=20, tol=0)], X)
        assert not list(tmp_path.iterdir())

    def test_it_is_written_when_it_is_due(self, count_saves, tmp_path, monkeypatch):
        now = iter(range(0, 10**6, 2))  # two seconds between two questions
        monkeypatch.setattr("nnfactor.io.checkpoints.fit_checkpoint.time.monotonic", lambda: next(now))
        NMF(3, random_state=0, max_iter=200, tol=0).fit(X, checkpoint=tmp_path / "fit", checkpoint_every=60)
        assert 4 <= count_saves["saves"] <= 8

    def test_slow_disks_are_written_to_less_often(self, count_saves, tmp_path, monkeypatch):
        write = FitCheckpoint._write
        monkeypatch.setattr(FitCheckpoint, "_write", lambda self, room=False: (time.sleep(0.01), write(self, room))[1])
        began = time.perf_counter()
        NMF(3, random_state=0, max_iter=3000, tol=0).fit(X, checkpoint=tmp_path / "fit", checkpoint_every=1e-6)
        assert count_saves["saves"] * 0.01 < 0.3 * (time.perf_counter() - began)

    def test_it_says_what_it_does(self, count_saves, tmp_path, caplog):
        make = lambda: NMF(3, random_state=0, max_iter=20, tol=0)
        with caplog.at_level(logging.INFO, logger="nnfactor"):
            fit_in_pieces(count_saves, make, X, path=tmp_path / "fit", every=13)
            make().fit(X, checkpoint=tmp_path / "fit")
        assert "NMF: goes on after 13 iterations" in caplog.text and "NMF: this run had ended before" in caplog.text


def test_an_older_format_is_named(tmp_path, monkeypatch):
    path = tmp_path / "fit"
    monkeypatch.setattr("nnfactor.io.checkpoints.state_files.FORMAT", 7)
    with open(path, "wb") as file:
        write_state(file, {})
    monkeypatch.undo()
    with pytest.raises(
        ValueError, match="has format 7, and this version of nnfactor reads and writes format 1: go on wi"
    ):
        NMF(3).fit(X, checkpoint=path)
