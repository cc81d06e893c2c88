"""What a fit needs is told before anything is read, and what cannot fit is refused."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from nnfactor import NMF
from nnfactor.cli import main
from nnfactor.cli.memory import needs
from nnfactor.cli.memory.needs import Stored, told
from nnfactor.core.solve import memory_budget
from nnfactor.io import data_files

ROOT = str(Path(__file__).parents[2])

FIT = """
import numpy as np
from nnfactor import NMF
def read(key):
    return 1024 * int(next(line for line in open("/proc/self/status") if line.startswith(key)).split()[1])
NMF(2, random_state=0, max_iter=3, tol=0).fit(np.random.default_rng(0).random((50, 20), dtype="f4"))
X = np.random.default_rng(0).random(({n}, {m})).astype("{dtype}")
open("/proc/self/clear_refs", "w").write("5")
before = read("VmRSS")
NMF({k}, random_state=0, max_iter=4, tol=0, init="random", n_init={n_init}).fit(X)
print(read("VmHWM") - before)
"""


@pytest.fixture
def file(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((1000, 50), np.float32))
    return str(tmp_path / "x.npy")


def test_the_statement_names_every_part(file, capsys, monkeypatch):
    monkeypatch.setattr(needs, "free_bytes", lambda device: 1e9)
    assert main(["info", "--memory", file, "-k", "5", "--n-init", "20", "--max-bytes", "100kB"]) == 0
    text = capsys.readouterr().out
    assert "1000 x 50, float32, 200 kB in memory as stored" in text
    assert "NMF with k = 5, 20 restarts" in text and "factors (21 kB) and work" in text
    assert "  Python and libraries" in text and "200 kB       100 kB" in text
    assert "in memory: fits; 20 of 20 restarts run at once" in text and "with --max-bytes 100kB: fits" in text
    assert text.rstrip().endswith("free: 1 GB, for what comes beside Python and libraries")


def test_the_statement_says_what_would_fit(file, capsys, monkeypatch):
    monkeypatch.setattr(needs, "free_bytes", lambda device: 7e6)
    main(["info", "--memory", file, "-k", "5", "--n-init", "20"])
    assert "5 of 20 restarts run at once (--n-init 5 is the most that is one batch)" in capsys.readouterr().out
    monkeypatch.setattr(needs, "free_bytes", lambda device: 2.5e5)
    main(["info", "--memory", file, "-k", "5"])
    assert "in memory: does not fit, 76 kB too much" in capsys.readouterr().out
    assert main(["info", "--memory", file, "--model", "SRC"]) == 2
    assert "--memory is for models with a number of components, not for SRC" in capsys.readouterr().err


def test_files_are_not_read_for_it(tmp_path, capsys, monkeypatch):
    zarr = pytest.importorskip("zarr")
    zarr.open(str(tmp_path / "x.zarr"), mode="w", shape=(10**9, 1000), chunks=(1000, 1000), dtype="u1")
    assert main(["info", "--memory", str(tmp_path / "x.zarr"), "-k", "3"]) == 0
    text = capsys.readouterr().out
    assert "1000000000 x 1000, uint8, 1 TB in memory as stored" in text and "in memory: does not fit" in text
    assert main(["fit", str(tmp_path / "x.zarr"), "-k", "3", "--output-dir", str(tmp_path)]) == 2
    told_ = capsys.readouterr().err
    assert "x.zarr takes 9 TB in memory" in told_ and "--max-bytes" in told_ and not list(tmp_path.glob("x_NMF*"))


def test_copies_of_data_are_counted():
    for dtype, work, copies in (
        ("f4", None, 0),
        ("f8", "float32", 4),
        ("u1", None, 8),
        ("f2", None, 4),
        ("u2", "float32", 12),
    ):
        assert Stored.of(np.zeros((10, 3), dtype)).converted(work) == 30 * copies
    sparse = Stored.of(sp.random_array((20, 10), density=0.1, dtype=np.float32))
    assert sparse.bytes == 20 * 12 and sparse.converted(None) == 2 * 20 * 12
    assert told(999) == "999 B" and told(1.234e13) == "12.3 TB" and told(np.inf) == "an unknown size"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("dtype, n_init", [("float32", 1), ("float64", 1), ("float32", 4)])
def test_estimates_are_near_what_is_measured(dtype, n_init):
    n, m, k = 80_000, 30, 20
    words = FIT.format(n=n, m=m, k=k, dtype=dtype, n_init=n_init)
    run = subprocess.run([sys.executable, "-c", words], cwd=ROOT, capture_output=True, text=True, check=True)
    copies = needs.USUAL if n_init == 1 else memory_budget.COPIES * n_init
    estimate = memory_budget.copies_of_factors(n + m, k, copies) * np.dtype(dtype).itemsize
    measured = int(run.stdout)
    assert 0.9 < estimate / measured < 5
    least = memory_budget.copies_of_factors(n + m, k, memory_budget.LEAST_COPIES) * np.dtype(dtype).itemsize
    assert least < measured


def test_a_fit_without_room_is_refused_before_it_begins(monkeypatch):
    X = np.ones((300, 40))
    monkeypatch.setattr("nnfactor.models.shared.fitting.MANY", 1000)
    monkeypatch.setattr(memory_budget, "free_bytes", lambda device: 1e5)
    model = NMF(20, random_state=0)
    with pytest.raises(MemoryError, match=r"a fit of rank 20 holds 6 copies .* use n_components=6"):
        model.fit(X)
    assert not hasattr(model, "components_")
    NMF(3, random_state=0, init="random", max_iter=2, tol=0).fit(X)


def test_half_precision_is_converted_as_it_is_read(tmp_path, monkeypatch):
    h5py = pytest.importorskip("h5py")
    X = np.random.default_rng(0).random((60, 20)).astype(np.float16)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["X"] = X
    monkeypatch.setattr("nnfactor.cli.data.LARGE", 100)
    monkeypatch.setattr("nnfactor.io.data_files.PIECE", 400)
    words = ["-k", "2", "--seed", "0", "--no-plots", "-q", "--output-dir", str(tmp_path)]
    assert main(["fit", str(tmp_path / "x.h5"), *words]) == 0
    found = np.loadtxt(tmp_path / "x_NMF" / "suggested_solution" / "usages.tsv", skiprows=1)[:, 1:]
    expected = NMF(2, random_state=0).fit(X.astype(np.float32)).embedding_
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_files_are_read_row_by_row():
    class Chunks:
        shape, dtype, chunks, most = (10_000, 100), np.dtype("u1"), (300, 100), 0

        def __getitem__(self, rows):
            n = len(range(self.shape[0])[rows])
            self.most = max(self.most, n)
            assert rows.start % 300 == 0
            return np.full((n, 100), 3, "u1")

    stored = Chunks()
    found = data_files.read_rows(stored, np.float64)
    assert found.dtype == np.float64 and found.sum() == 3e6 and stored.most * 100 <= data_files.PIECE
