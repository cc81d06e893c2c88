"""Files of checkpoints: what comes back, what is refused, and what happens where they cannot be written."""

import errno
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch

from nnfactor import NGE, NMF, NTF, GraphNMF, batch_fit, graphs, penalties
from nnfactor.core import Fit, as_data, hals, run
from nnfactor.io.checkpoints import digests, fit_checkpoint
from nnfactor.io.checkpoints.digests import describe_value, digest
from nnfactor.io.checkpoints.state_files import DamagedFile, read_state, write_state

X = np.random.default_rng(0).random((30, 14))


def fit(path, data=X, **settings):
    return NMF(3, **{"random_state": 0, "max_iter": 25, "tol": 0, **settings}).fit(data, checkpoint=path)


def again(content, tmp_path):
    with open(tmp_path / "state", "wb") as file:
        size = write_state(file, content)
    data = (tmp_path / "state").read_bytes()
    assert len(data) == size
    return read_state(data, "state")


class TestStates:
    @pytest.mark.parametrize(
        "make",
        [
            lambda: torch.rand(5, 3, dtype=torch.float64),
            lambda: torch.rand(4, 3, 5).mT,
            lambda: torch.rand(3, 5, 4).permute(2, 0, 1),
            lambda: torch.rand(7, 5)[:, 1:4],  # with gaps between its rows
            lambda: torch.rand(5, 1).expand(5, 4),
            lambda: torch.rand(()).expand(3),
            lambda: torch.rand(2, 1, 3)[:, :, :1],
            lambda: torch.rand(0, 3),
            lambda: torch.tensor(2.5),
            lambda: torch.tensor([True, False]),
            lambda: torch.arange(3),
            lambda: torch.tensor([float("nan"), -0.0, float("inf"), 5e-324], dtype=torch.float64),
        ],
    )
    def test_tensors_have_the_same_bits_in_the_same_order(self, make, tmp_path):
        F = make()
        got = again({"F": F}, tmp_path)["F"]
        assert got.dtype == F.dtype and got.shape == F.shape and got.stride() == F.stride()
        assert (
            got.contiguous().reshape(-1).view(torch.uint8).tolist()
            == F.contiguous().reshape(-1).view(torch.uint8).tolist()
        )
        assert got.untyped_storage().resizable()  # torch's own memory: products of it are kept

    def test_the_same_tensor_stays_the_same(self, tmp_path):
        F = torch.rand(3, 2)
        got = again({"a": F, "b": {0: F, 1: F.clone()}}, tmp_path)
        assert got["a"] is got["b"][0] and got["b"][1] is not got["a"]

    def test_everything_else(self, tmp_path):
        content = {
            "plain": [None, True, 3, 0.1, float("inf"), "ä\n"],
            "nested": {0: (1, [2]), "b": {}},
            "array": np.arange(6).reshape(2, 3).T,
            "empty": np.empty((0, 2)),
            "scalar": np.float64(0.1),
        }
        got = again(content, tmp_path)
        assert got["plain"] == content["plain"] and got["nested"] == content["nested"] and got["scalar"] == 0.1
        for name in ("array", "empty"):
            np.testing.assert_array_equal(got[name], content[name])
            assert got[name].dtype == content[name].dtype
        got["array"][0, 0] = 7  # it may be written to

    def test_what_cannot_be_held_is_named(self, tmp_path):
        with pytest.raises(TypeError, match="a checkpoint cannot hold <function"):
            again({"f": again}, tmp_path)

    def test_every_damage_is_seen(self, tmp_path):
        again({"a": np.arange(40.0), "b": [1, 2, "x"]}, tmp_path)
        data = (tmp_path / "state").read_bytes()
        for position in range(len(data)):
            bad = bytearray(data)
            bad[position] ^= 1
            with pytest.raises(ValueError):
                read_state(bytes(bad), "state")
        for length in range(len(data)):
            with pytest.raises(DamagedFile if length else ValueError):
                read_state(data[:length], "state")


class TestRefusals:
    @pytest.mark.parametrize(
        ("settings", "says"),
        [
            ({"n_init": 2}, "n_init is 1, not 2"),
            ({"solver": "mu"}, "solver is 'auto', not 'mu'"),
            ({"random_state": 1}, "random_state is 0, not 1"),
            ({"max_iter": 30, "tol": 1e-3}, "max_iter is 25, not 30, tol is 0, not 0.001"),
            ({"penalties": {"V": penalties.L1(0.1)}}, "penalties is None, not "),
            ({"init": (X[:, :3], X[:14, :3])}, "init is 'auto', not "),
        ],
    )
    def test_other_parameters(self, settings, says, tmp_path):
        fit(tmp_path / "fit")
        with pytest.raises(ValueError, match=says) as raised:
            fit(tmp_path / "fit", **settings)
        assert "delete the file to begin anew" in str(raised.value) and str(tmp_path / "fit") in str(raised.value)

    @pytest.mark.parametrize(
        "change",
        [
            lambda: {"init": (X[:, :3] * 2, X[:14, :3])},
            lambda: {"penalties": {"V": penalties.L1(0.2)}},
            lambda: {"bounds": {"V": (0, 2.0)}},
        ],
    )
    def test_other_arrays_and_objects_inside_parameters(self, change, tmp_path):
        first = {"init": (X[:, :3], X[:14, :3]), "penalties": {"V": penalties.L1(0.1)}, "bounds": {"V": (0, 1.0)}}
        fit(tmp_path / "fit", **first)
        fit(tmp_path / "fit", **{**first, "penalties": {"V": penalties.L1(0.1)}})
        with pytest.raises(ValueError, match="is of another fit"):
            fit(tmp_path / "fit", **first | change())

    def test_who_is_told_may_change(self, tmp_path):
        fit(tmp_path / "fit")
        fit(tmp_path / "fit", callback=print, verbose=1)

    def test_another_model(self, tmp_path):
        fit(tmp_path / "fit")
        with pytest.raises(ValueError, match="class is NMF, not GraphNMF"):
            GraphNMF(3).fit(X, checkpoint=tmp_path / "fit")
        with pytest.raises(ValueError, match="number of estimators is 1, not 2"):
            batch_fit([NMF(3), NMF(4)], X, checkpoint=tmp_path / "fit")

    def test_another_version(self, tmp_path, monkeypatch):
        fit(tmp_path / "fit")
        monkeypatch.setattr(fit_checkpoint, "VERSION", "9.9")
        with pytest.raises(ValueError, match=r"nnfactor is .*, not 9\.9; use another path"):
            fit(tmp_path / "fit")

    @pytest.mark.parametrize(
        ("data", "says"),
        [
            (X[:20], r"its X is Dense \(30, 14\) float64 on cpu with .*, now it is Dense \(20, 14\)"),
            (X.astype(np.float32), r"now it is Dense \(30, 14\) float32"),
            (sp.csr_array(X), r"now it is Sparse \(30, 14\)"),
            (np.where(np.arange(14) == 3, X * (1 + 1e-15), X), "is of other data: its X .* give the same data"),
        ],
    )
    def test_other_data(self, data, says, tmp_path):
        fit(tmp_path / "fit")
        before = (tmp_path / "fit").read_bytes()
        with pytest.raises(ValueError, match=says):
            fit(tmp_path / "fit", data)
        fit(tmp_path / "fit")  # and nothing was lost
        assert len((tmp_path / "fit").read_bytes()) == len(before)

    def test_other_labels_and_weights(self, tmp_path):
        y = np.arange(30) % 3
        model = lambda: NGE(3, random_state=0, max_iter=5, tol=0)
        model().fit(X, y, checkpoint=tmp_path / "a")
        with pytest.raises(ValueError, match="is of other data: its y is"):
            model().fit(X, np.roll(y, 1), checkpoint=tmp_path / "a")
        weights = np.ones_like(X)
        weights[0, 0] = 0
        plain = lambda: NMF(3, random_state=0, max_iter=5, tol=0)
        plain().fit(X, weights=weights, checkpoint=tmp_path / "b")
        with pytest.raises(ValueError, match="is of other data: its X is"):
            plain().fit(X, weights=np.roll(weights, 1), checkpoint=tmp_path / "b")

    def test_a_file_that_is_no_checkpoint_is_left_alone(self, tmp_path):
        (tmp_path / "data.csv").write_text("a,b\n1,2\n" * 20)
        with pytest.raises(ValueError, match="is no checkpoint of nnfactor; it is left as it is"):
            fit(tmp_path / "data.csv")
        assert (tmp_path / "data.csv").read_text().startswith("a,b")

    @pytest.mark.parametrize("every", [-1, float("nan"), "often"])
    def test_a_bad_period(self, every, tmp_path):
        with pytest.raises((ValueError, TypeError), match="checkpoint_every"):
            NMF(3).fit(X, checkpoint=tmp_path / "fit", checkpoint_every=every)


class TestDamage:
    def spoil(self, path):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)

    def test_the_file_before_is_used(self, tmp_path):
        whole = fit(tmp_path / "fit")
        self.spoil(tmp_path / "fit")
        with pytest.warns(UserWarning, match="is damaged or truncated: .*; the fit goes on from the file before it"):
            again = fit(tmp_path / "fit")
        np.testing.assert_array_equal(again.embedding_, whole.embedding_)
        fit(tmp_path / "fit")  # written anew

    def test_a_damaged_file_never_replaces_the_one_before(self, tmp_path, monkeypatch):
        fit(tmp_path / "fit")
        before = (tmp_path / "fit.previous").read_bytes()
        self.spoil(tmp_path / "fit")
        replace = os.replace
        moved = []
        monkeypatch.setattr(os, "replace", lambda a, b: moved.append((str(a), str(b))) or replace(a, b))
        with pytest.warns(UserWarning, match="is damaged"):
            fit(tmp_path / "fit")
        assert not moved[0][1].endswith("previous") and before

    def test_a_file_that_is_missing_is_the_same(self, tmp_path):
        whole = fit(tmp_path / "fit")
        os.remove(tmp_path / "fit")  # as between the two moves
        np.testing.assert_array_equal(fit(tmp_path / "fit").embedding_, whole.embedding_)

    def test_two_damaged_files(self, tmp_path):
        fit(tmp_path / "fit")
        for name in ("fit", "fit.previous"):
            self.spoil(tmp_path / name)
        with pytest.raises(ValueError, match=r"is damaged .* there is none before it that is whole; use another path"):
            fit(tmp_path / "fit")

    @pytest.mark.parametrize("how", ["spoil", "remove"])
    def test_a_result_is_computed_again(self, how, tmp_path):
        whole = fit(tmp_path / "fit")
        path = tmp_path / "fit.results"
        self.spoil(path) if how == "spoil" else os.remove(path)
        with pytest.warns(UserWarning, match=r"a run is computed again: .*fit\.results"):
            model = fit(tmp_path / "fit")
        np.testing.assert_array_equal(model.embedding_, whole.embedding_)
        np.testing.assert_array_equal(fit(tmp_path / "fit").embedding_, whole.embedding_)

    def test_an_empty_file_is_none(self, tmp_path):
        (tmp_path / "fit").touch()
        fit(tmp_path / "fit")

    def test_files_of_interrupted_writing_are_replaced(self, tmp_path):
        (tmp_path / ".fit.new").write_bytes(b"half")
        fit(tmp_path / "fit")
        assert sorted(p.name for p in tmp_path.iterdir()) == ["fit", "fit.previous", "fit.results"]


class TestWhereItCannotBeWritten:
    def test_a_folder_that_is_missing(self, tmp_path):
        began = []
        with pytest.raises(
            FileNotFoundError, match=r"checkpoint='.*no/fit' cannot be written: No such file.*; give the p"
        ):
            fit(tmp_path / "no" / "fit", callback=began.append)
        assert not began

    def test_a_folder_in_its_place(self, tmp_path):
        with pytest.raises(IsADirectoryError, match="cannot be read: Is a directory"):
            fit(tmp_path)

    @pytest.mark.skipif(not os.path.isdir("/proc/self") or not hasattr(os, "geteuid"), reason="a folder of Linux")
    def test_a_folder_that_cannot_be_written_to(self, tmp_path):
        with pytest.raises(OSError, match="checkpoint='/proc/self/fit' cannot be written: "):
            fit("/proc/self/fit")

    def test_a_read_only_folder(self, tmp_path):
        if os.geteuid() == 0:
            pytest.skip("root may write everywhere")
        tmp_path.chmod(0o500)
        with pytest.raises(PermissionError, match="cannot be written: Permission denied"):
            fit(tmp_path / "fit")

    def test_a_full_disk_is_found_at_the_first_sweep(self, tmp_path):
        """The limit of a file's size stands for the end of a disk: all that is needed later is asked for at once."""
        code = (
            "import resource, numpy as np; from nnfactor import NMF;"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000));"
            "X = np.random.default_rng(0).random((400, 300)); seen = [];"
            "model = NMF(20, random_state=0, callback=lambda p: seen.append(p.iteration));"
            "import sys\n"
            "try: model.fit(X, checkpoint=sys.argv[1])\n"
            "except OSError as error: print(seen, error)"
        )
        path = str(tmp_path / "fit")
        done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, timeout=120)
        assert f"[0] [Errno {errno.EFBIG}] checkpoint={path!r} cannot be written: File too large" in done.stdout, done
        assert sorted(p.name for p in tmp_path.iterdir()) == ["fit", "fit.results"]  # small, written before

    def test_where_another_fit_writes(self, tmp_path):
        pytest.importorskip("fcntl")

        def start_another(progress):
            with pytest.raises(BlockingIOError, match="cannot be written: another fit is writing to it; give the path"):
                fit(tmp_path / "fit")
            return True

        first = fit(tmp_path / "fit", callback=start_another)
        np.testing.assert_array_equal(fit(tmp_path / "fit").embedding_, first.embedding_)

    def test_later_the_fit_goes_on(self, tmp_path, monkeypatch):
        write, calls = fit_checkpoint.FitCheckpoint._write, []

        def fails(self, room=False):
            calls.append(room)
            if len(calls) > 3:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            write(self, room)

        monkeypatch.setattr(fit_checkpoint.FitCheckpoint, "_write", fails)
        with pytest.warns(RuntimeWarning, match="could not be written .*No space left on device.*; the fit goes on"):
            model = NMF(3, random_state=0, max_iter=25, tol=0).fit(X, checkpoint=tmp_path / "f", checkpoint_every=0)
        monkeypatch.undo()
        whole = NMF(3, random_state=0, max_iter=25, tol=0).fit(X)
        np.testing.assert_array_equal(model.embedding_, whole.embedding_)
        np.testing.assert_array_equal(fit(tmp_path / "f").embedding_, whole.embedding_)


class TestDigests:
    def test_equal_values_have_equal_digests(self):
        pairs = [
            (X, X.copy()),
            (torch.from_numpy(X), torch.from_numpy(X.copy())),
            (sp.csr_array(X), sp.csr_array(X)),
            (pd.DataFrame(X), pd.DataFrame(X.copy())),
            ({"a": [1, (2, None)]}, {"a": [1, (2, None)]}),
            (np.array(["a", None], dtype=object), np.array(["a", None], dtype=object)),
            (graphs.knn_graph(X, 3), graphs.knn_graph(X.copy(), 3)),
            (penalties.L1(0.5), penalties.L1(0.5)),
            (hals, hals),
            (Fit(X, ("V", "U1")), Fit(X.copy(), ("V", "U1"))),
        ]
        for a, b in pairs:
            assert digest(a) == digest(b)

    def test_different_values_have_different_ones(self):
        moved = sp.coo_array(([1.0, 2.0], ([0, 1], [1, 0])), shape=(3, 3))
        values = [
            X, X[::-1], X.T, X.astype(np.float32), X.reshape(14, 30), X + 1e-16, X[:0], moved, moved.T, moved * 2,
            torch.from_numpy(X), sp.csr_array(X), graphs.knn_graph(X, 3), graphs.knn_graph(X, 4), penalties.L1(0.5),
            penalties.L1(0.4), penalties.L2(0.5), hals, run, [1, 2], [2, 1], [[1], 2], (1, 2), {"a": 1}, {"b": 1}, "a",
            None, pd.DataFrame(X, columns=list("abcdefghijklmn")), Fit(X, ("V", "U1")), Fit(X, ("V", "U2")),
        ]  # fmt: skip
        assert len({digest(value) for value in values}) == len(values)

    @pytest.mark.parametrize(
        "data",
        [X, sp.csr_array(X * (X > 0.5)), torch.from_numpy(np.where(X > 0.5, X, 0).reshape(6, 5, 14)).to_sparse_coo()],
        ids=["dense", "sparse", "sparse tensor"],
    )
    def test_what_is_kept_of_data_does_not_count(self, data):
        data = as_data(data)
        before = digest(data)
        NTF(2, max_iter=3, tol=0).fit(data)
        assert digest(data) == before

    def test_nor_what_is_kept_of_graphs(self):
        graph = graphs.knn_graph(X, 3)
        before = digest(graph)
        GraphNMF(2, graph=graph, max_iter=3, tol=0).fit(X)
        assert digest(graph) == before

    def test_what_refers_to_itself(self):
        value = [1]
        value.append(value)
        assert digest(value) != digest([1, [1]])

    def test_of_large_arrays_samples_and_sums_count(self, monkeypatch):
        monkeypatch.setattr(digests, "WHOLE", 800)
        monkeypatch.setattr(digests, "PIECE", 80)
        A = np.arange(1000.0).reshape(100, 10)
        whole = digest(A)
        for position in range(0, 1000, 37):  # in samples or not
            B = A.copy()
            B.flat[position] += 1
            assert digest(B) != whole
        assert digest(A.copy()) == whole

    def test_descriptions_are_short(self):
        assert describe_value(np.int64(3)) == "3" and describe_value((2, 3)) == "(2, 3)"
        assert describe_value(X).startswith("ndarray (30, 14) with digest ")
        assert len(describe_value("x" * 1000)) < 60


def test_a_run_of_ones_own_takes_any_store():
    class InMemory:
        def __init__(self):
            self.kept, self.ended, self.saves = None, None, 0

        def load(self):
            return self.ended or self.kept

        def is_due(self):
            return True

        def save(self, content):
            self.kept = {
                **content,
                "state": {k: dict(v) if isinstance(v, dict) else v for k, v in content["state"].items()},
            }
            self.saves += 1
            if self.saves == 13:
                raise KeyboardInterrupt

        def save_result(self, content):
            self.ended = content

    g = torch.Generator().manual_seed(0)
    start = {name: torch.rand(2, n, 3, generator=g, dtype=torch.float64) for name, n in (("V", 30), ("U1", 14))}
    whole = lambda **more: run(
        [Fit(torch.from_numpy(X), ("V", "U1"))], {"U1": hals, "V": hals}, start, max_iter=30, tol=0, **more
    )
    store = InMemory()
    with pytest.raises(KeyboardInterrupt):
        whole(checkpoint=store)
    for result in (whole(checkpoint=store), whole(checkpoint=store)):
        assert all(torch.equal(F, result.factors[name]) for name, F in whole().factors.items())
    assert store.saves == 14 + 30 - 13


def test_functions_of_one_name_are_told_apart():
    def make(d, by=2):
        return lambda A, more=by: (1 + A) ** d

    first, same, enclosed, default = make(1), make(1), make(3), make(1, by=4)
    other = [lambda A: A + 1, lambda A: A + 2]
    modules = [(lambda m: lambda A: m.exp(A))(m) for m in (np, torch)]  # named, not walked through
    sums = [digest(f) for f in (first, enclosed, default, *other, *modules)]
    assert digest(first) == digest(same) and len(set(sums)) == len(sums)
