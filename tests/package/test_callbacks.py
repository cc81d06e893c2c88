"""What callbacks are told, the ready ones, and the logger."""

import json
import logging
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from sklearn.base import clone

from nnfactor import NMF, SULF, callbacks
from nnfactor.callbacks import JSONLines, ProgressBar
from nnfactor.core import Fit, hals, run
from nnfactor.core.solve.history import progress as told_of

X = np.random.default_rng(0).random((30, 12))


def starts(n):
    g = torch.Generator().manual_seed(0)
    return {name: torch.rand(n, d, 3, generator=g, dtype=torch.float64) for name, d in (("V", 30), ("U1", 12))}


def fit(**settings):
    return NMF(3, random_state=0, init="random", tol=1e-4, max_iter=500, **settings).fit(X)


class TestProgress:
    def test_every_problem_that_runs_is_told_of(self):
        seen = []
        model = fit(n_init=5, callback=lambda p: seen.append((p.iteration, p.running, p.objectives, p.objective)))
        assert len(seen[0][1]) == 5 and len(seen[-1][1]) < 5  # they end at different times
        for _, running, objectives, best in seen:
            assert len(running) == len(objectives) and best == objectives.min()
        last = {problem: value for _, running, values, _ in seen for problem, value in zip(running, values)}
        np.testing.assert_allclose([last[i] for i in range(5)], model.restarts_["loss"], rtol=1e-6)

    def test_names_and_limits(self):
        seen = []
        fit(callback=seen.append)
        assert {(p.name, p.max_iter) for p in seen} == {("NMF", 500)}

    def test_what_is_written_to_objectives_changes_nothing(self):
        def spoil(p):
            p.objectives[:] = -1

        assert fit(callback=spoil).history_["objective"].min() > 0

    def test_factors_are_copied_when_they_are_asked_for(self):
        seen = []
        result = run([Fit(torch.from_numpy(X), ("V", "U1"))], {"U1": hals, "V": hals}, starts(3), max_iter=20, tol=0,
                     callback=seen.append)  # fmt: skip
        assert all("factors" not in vars(p) for p in seen)
        assert torch.equal(seen[-1].factors["V"], result.factors["V"][result.best])  # asked for after the run
        assert seen[-1].factors is seen[-1].factors

    def test_memory_is_measured_when_it_is_asked_for(self, monkeypatch):
        asked = []
        monkeypatch.setattr(told_of, "resident_bytes", lambda: asked.append(1) or 7)
        seen = []
        fit(callback=seen.append)
        assert not asked and seen[0].memory == 7 and asked

    def test_memory_is_that_of_the_process(self):
        assert 2**24 < told_of.resident_bytes() < 2**44

    def test_one_of_several_stops_and_all_are_told(self):
        seen = []
        stop = lambda p: seen.append(("first", p.iteration)) or p.iteration >= 20
        model = fit(callback=[stop, lambda p: seen.append(("second", p.iteration))])
        assert model.n_iter_ == 20 and seen[-2:] == [("first", 20), ("second", 20)]

    @pytest.mark.parametrize("callback", [3, "print", [print, 3], {print}])
    def test_what_is_no_callback_is_refused(self, callback):
        with pytest.raises(ValueError, match="callback must be a function, a list of functions or None, got"):
            fit(callback=callback)

    def test_both_stages_of_a_model_are_told(self):
        names = []
        SULF(2, start="two_stage", random_state=0, max_iter=10, tol=0, callback=lambda p: names.append(p.name)).fit(
            [X, X[:, :5]], np.arange(30) % 3 - 1
        )
        assert set(names) == {"SULF without labels", "SULF"}

    def test_the_end_is_told_however_it_comes(self):
        class Listener:
            closed = 0

            def __call__(self, progress):
                if progress.iteration == self.at:
                    raise RuntimeError("no more")

            def close(self):
                self.closed += 1

        listener = Listener()
        listener.at = -1
        fit(callback=listener)
        assert listener.closed == 1
        listener.at = 10
        with pytest.raises(RuntimeError):
            fit(callback=listener)
        assert listener.closed == 2


class TestJSONLines:
    def test_a_line_for_every_reading(self, tmp_path):
        path = tmp_path / "log.jsonl"
        counts = []
        watch = lambda p: counts.append(len(path.read_text().splitlines()))  # complete before the next callback
        model = fit(n_init=3, callback=[JSONLines(path), watch])
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert counts == list(range(1, len(lines) + 1))
        assert [line["iteration"] for line in lines] == list(range(0, lines[-1]["iteration"] + 1, 10))
        first = lines[0]
        assert first["name"] == "NMF" and first["max_iter"] == 500 and first["running"] == [0, 1, 2]
        assert len(first["objectives"]) == 3 and min(first["objectives"]) == first["objective"]
        assert first["memory"] > 2**20 and np.diff([line["seconds"] for line in lines]).min() >= 0
        assert lines[-1]["iteration"] == model.restarts_["n_iter"].max()

    def test_it_appends_and_nothing_infinite_is_written(self, tmp_path):
        path = tmp_path / "log.jsonl"
        state, write = starts(2), JSONLines(path)
        for values in ([1.0, np.nan], [np.inf, 2.0]):
            write(callbacks.Progress("a", 0, 5, values[0], np.array(values), np.arange(2), 0.1, state, True))
        lines = [json.loads(line, parse_constant=pytest.fail) for line in path.read_text().splitlines()]
        assert [line["objectives"] for line in lines] == [[1.0, None], [None, 2.0]] and lines[1]["objective"] is None


class TestProgressBar:
    def test_nothing_in_a_pipe(self):
        code = (
            "import numpy as np; from nnfactor import NMF; from nnfactor.callbacks import ProgressBar;"
            "NMF(2, random_state=0, callback=ProgressBar()).fit(np.random.default_rng(0).random((20, 9)))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

    def test_a_bar_on_a_terminal(self, monkeypatch, capsys):
        pytest.importorskip("tqdm")
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        bar = ProgressBar()
        fit(callback=bar, n_init=2)
        shown = capsys.readouterr().err
        assert "NMF" in shown and "objective=" in shown and "/500" in shown and bar._bar is None

    def test_without_tqdm(self, monkeypatch):
        monkeypatch.setattr(callbacks, "tqdm", None)
        fit(callback=ProgressBar())

    @pytest.mark.parametrize("callback", [ProgressBar(), JSONLines("log.jsonl")])
    def test_they_can_be_copied(self, callback):
        model = NMF(2, callback=[callback])
        assert repr(pickle.loads(pickle.dumps(clone(model))).callback) == repr([callback])


class TestLogger:
    def test_readings_and_ends(self, caplog):
        with caplog.at_level(logging.DEBUG, logger="nnfactor"):
            model = fit()
        ends = [r.getMessage() for r in caplog.records if r.levelno == logging.INFO]
        readings = [r.getMessage() for r in caplog.records if r.levelno == logging.DEBUG]
        assert ends == [
            "NMF: begins, V float64 (30, 3), U1 float64 (12, 3), on cpu",
            f"NMF: objective {model.loss_:.6g} after {model.n_iter_} iterations",
        ]
        assert len(readings) == model.n_iter_ // 10 and readings[0].startswith("NMF: iteration 10: objective ")

    def test_a_library_configures_nothing(self, capsys):
        logger = logging.getLogger("nnfactor")
        assert logger.level == logging.NOTSET and [type(h) for h in logger.handlers] == [logging.NullHandler]
        fit()
        assert capsys.readouterr() == ("", "")

    def test_verbose_prints(self, capsys):
        fit(verbose=1)
        assert capsys.readouterr().out.startswith("[NMF] iteration 10: objective ")
