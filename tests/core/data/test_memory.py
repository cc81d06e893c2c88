"""Peak memory of a fresh process: growth over what was there before the fit.

The address space is measured, where every large array has a mapping of its own that ends with it: unlike resident
memory it does not depend on what else the machine does.
"""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import sys
import numpy as np, scipy.sparse as sp, torch
from nnfactor import NGE, NMF, NTF
from nnfactor.core import as_data
from nnfactor.core.graph.neighbors import read_points
from nnfactor.graphs import knn_graph
torch.set_num_threads(1)
peak = lambda: next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith("VmPeak")) / 1024
rng = np.random.default_rng(0)
{setup}
fit(200)           # libraries load, allocators warm up
before = peak()
fit({n})
print(peak() - before)
assert "sympy" not in sys.modules, "a fit loaded torch's symbolic shapes: seconds, and tens of megabytes"
"""

GRAPH = """
def fit(n):
    X = rng.random((n, 100), dtype=np.float32)
    i = np.repeat(np.arange(n), 10)
    A = sp.csr_array((np.ones(10 * n), (i, (i + np.tile(np.arange(1, 11), n)) % n)), shape=(n, n))
    A = A.maximum(A.T)
    NGE(50, n_discriminative=25, graph=(A, A), solver="{solver}", init="random", max_iter=2, tol=0).fit(X)
"""

SPARSE = """
def fit(n):
    i, j = rng.integers(n, size=(2, 20 * n))
    X = sp.csr_array((np.ones(20 * n, dtype=np.float32), (i, j)), shape=(n, n))
    NMF(20, init="random", loss="{loss}", max_iter=2, tol=0).fit(X)
"""

RATIOS = """
def fit(n):
    X = rng.random((n, 5 * n), dtype=np.float32)
    NMF(20, init="random", loss={loss}, n_init=15, solver="mu", max_iter=1, tol=0).fit(X)
"""

SPARSE_RATIOS = """
def fit(n):
    i, j = rng.integers(n, size=20 * n), rng.integers(5 * n, size=20 * n)
    X = sp.csr_array((np.ones(20 * n, dtype=np.float32), (i, j)), shape=(n, 5 * n))
    NMF(10, init="random", loss={loss}, solver="mu", max_iter=1, tol=0).fit(X)
"""

CLASSES = """
from nnfactor import SULF
def fit(n):
    SULF(5, init="random", max_iter=2, tol=0, random_state=0).fit([rng.random((n, 20))], np.arange(n) % (n // 3))
"""

LOOKED_AT = """
def fit(n):
    X = rng.random((n, 1000), dtype=np.float32)
    {call}
"""

TENSOR = """
def fit(n):
    at = torch.from_numpy(rng.integers(n, size=(3, 100 * n)))
    X = torch.sparse_coo_tensor(at, torch.ones(100 * n), (n, n, n), check_invariants=True)
    NTF(200, init="random", loss="{loss}", solver="mu", max_iter=1, tol=0).fit(X)
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and sets glibc's allocator")


def growth(setup, n):
    env = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SCRIPT.format(setup=setup, n=n)]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    return float(done.stdout)


@pytest.mark.parametrize("solver", ["multiplicative", "m_matrix", "auto"])
def test_a_sparse_graph_costs_a_few_copies_of_the_embedding(solver):
    # X 8 MB, V 4 MB, the graph 5 MB a copy; n x n would be 1.6 GB and n x n x k 80 GB
    assert growth(GRAPH.format(solver=solver), 20_000) < 250


@pytest.mark.parametrize("loss", ["frobenius", "kullback-leibler"])
def test_sparse_data_are_never_dense(loss):
    # 400 000 entries: 3 MB a copy, factors 1.6 MB each; dense would be 1.6 GB
    assert growth(SPARSE.format(loss=loss), 20_000) < 250


@pytest.mark.parametrize("loss", ["frobenius", "kullback-leibler"])
def test_sparse_tensors_need_no_row_of_a_factor_per_entry(loss):
    # 200 000 entries, hardly two of which share a pair of indices: 3 MB a copy, factors 2 MB each; a row of 200
    # numbers per entry would be 160 MB, and there would be several
    assert growth(TENSOR.format(loss=loss), 2_000) < 200


@pytest.mark.parametrize("loss", [1, 1.5])
def test_ratios_of_a_batch_are_summed_in_place(loss):
    # X 19 MB, the factors of 15 problems 7 MB; a factor for every block of rows would be 2.2 GB
    assert growth(RATIOS.format(loss=loss), 1_000) < 200


def test_powers_of_a_sparse_model_are_summed_in_place():
    # 80 000 entries, 1 MB, the factors 1 MB; a factor for every block of rows would be 240 MB
    assert growth(SPARSE_RATIOS.format(loss=1.5), 4_000) < 100


def test_label_distributions_cost_a_few_copies_of_the_labels():
    # 3000 samples, 1000 classes: 24 MB a copy; all pairs of classes for every sample would be 24 GB
    assert growth(CLASSES, 3000) < 500


@pytest.mark.parametrize(
    "call",
    [
        "d = as_data(X); d.largest(), d.smallest(), d.mean(), d.sqnorm()",
        "NMF(5, max_iter=2, tol=0).fit(X)",
        "NMF(5, loss=1, max_iter=2, tol=0).fit(X)",
        "NMF(5, loss=1.5, init='random', max_iter=2, tol=0).fit(X)",
        "NMF(5, max_iter=2, tol=0).fit(X[:50]).transform(X)",
        "NTF(5, max_iter=2, tol=0).fit(X.reshape(n, -1, 10))",
    ],
)
def test_dense_data_are_looked_at_in_pieces(call):
    assert growth(LOOKED_AT.format(call=call), 40_000) < 160 + 60  # X is 153 MB: no second copy of it


def test_samples_of_a_graph_are_copied_once():
    # X 153 MB in float32, its centred copy in float64 305 MB
    assert growth(LOOKED_AT.format(call="knn_graph(X[::20], 2); read_points(X)"), 40_000) < 153 + 305 + 80
