"""Data in blocks: every source gives what the array gives, and no more is read or held than needed."""

import gc
import os
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from tables import problem

from nnfactor import NGE, NMF, NTF, Chunked, GraphNMF, KernelNMF, SemiNMF
from nnfactor.core import as_data
from nnfactor.core.data.base import sample_sqnorms
from nnfactor.core.data.chunked.reading import Buffer, convert_into, read_ahead
from nnfactor.core.data.chunked.sources import Selected, as_source, read_in_ranges
from nnfactor.core.solve.minibatch import cut_batches

close = lambda a, b, tol=1e-10: torch.testing.assert_close(a, b, rtol=tol, atol=tol * float(b.abs().max()))


def memmap(X, folder):
    np.save(folder / "x.npy", X)
    return np.load(folder / "x.npy", mmap_mode="r")


def h5py_dataset(X, folder):
    file = pytest.importorskip("h5py").File(folder / "x.h5", "w")
    file.create_dataset("X", data=X, chunks=(4, *X.shape[1:]))
    return file["X"]


def zarr_array(X, folder):
    zarr = pytest.importorskip("zarr")
    made = zarr.open(str(folder / "x.zarr"), mode="w", shape=X.shape, chunks=(4, *X.shape[1:]), dtype=X.dtype)
    made[...] = X
    return made


def dask_array(X, folder):
    return pytest.importorskip("dask.array").from_array(X, chunks=(4, *X.shape[1:]))


def files(X, folder):
    paths = []
    for i, part in enumerate(np.array_split(X, 3)):
        np.save(folder / f"{i}.npy", part)
        paths.append(folder / f"{i}.npy")
    return paths


def sparse_files(X, folder):
    for i, part in enumerate((X[:5], X[5:])):
        sp.save_npz(folder / f"{i}.npz", sp.csr_matrix(part))
    return [str(folder / f"{i}.npz") for i in range(2)]


def backed(X, folder):
    anndata, h5py = pytest.importorskip("anndata"), pytest.importorskip("h5py")
    with h5py.File(folder / "x.h5ad", "w") as file:
        file.attrs["encoding-type"], file.attrs["encoding-version"] = "anndata", "0.1.0"
        anndata.io.write_elem(file, "X", X)
    return anndata.io.sparse_dataset(h5py.File(folder / "x.h5ad")["X"])


SOURCES = {
    "array": lambda X, folder: X,
    "fortran": lambda X, folder: np.asfortranarray(X),
    "reversed": lambda X, folder: X[::-1].copy()[::-1],
    "tensor": lambda X, folder: torch.from_numpy(X),
    "memory map": memmap,
    "rows of a memory map": lambda X, folder: memmap(np.concatenate([X, X]), folder)[len(X) :],
    "h5py": h5py_dataset,
    "zarr": zarr_array,
    "dask": dask_array,
    "files": files,
    "parts": lambda X, folder: [X[:1], memmap(X[1:6], folder), X[6:]],
}

SPARSE = {
    "csr": lambda X, folder: sp.csr_matrix(X),
    "csc": lambda X, folder: sp.csc_array(X),
    "parts": lambda X, folder: [sp.csr_array(X[:2]), sp.coo_array(X[2:])],
    "files": sparse_files,
    "torch": lambda X, folder: torch.from_numpy(X).to_sparse_coo(),
    "AnnData": lambda X, folder: backed(sp.csr_matrix(X), folder),
}


def compare(data, X, seed=0):
    p = problem(X.ndim, seed=seed, shape=X.shape)
    dense, Fs = as_data(X), [p.factors[m].to(data.dtype) for m in p.modes]
    close(data.sqnorm(), dense.sqnorm())
    for mode in range(X.ndim):
        close(data.mttkrp(Fs, mode), dense.mttkrp(Fs, mode))
        for mine, theirs in zip(data.ratio_products(Fs, mode, 1), dense.ratio_products(Fs, mode, 1)):
            close(mine.expand_as(Fs[mode]), theirs.expand_as(Fs[mode]))
    close(data.divergence(Fs, 1), dense.divergence(Fs, 1))
    close(data.residual_sq(Fs), dense.residual_sq(Fs))
    rows = torch.tensor([8, 0, 3])
    for taken in (data.take(rows), data.take(torch.arange(9, -1, -1)).take(9 - rows)):
        close(taken.mttkrp([Fs[0][rows], *Fs[1:]], 0), dense.mttkrp(Fs, 0)[rows])
    whole = data.samples()
    np.testing.assert_array_equal(whole.toarray() if sp.issparse(whole) else whole.numpy(), X)
    close(sample_sqnorms(data), torch.from_numpy(X).flatten(1).square().sum(1))


@pytest.mark.parametrize("n_rows", [1, 4, 7, 50])
@pytest.mark.parametrize("kind", SOURCES)
def test_sources_give_what_the_array_gives(kind, n_rows, tmp_path):
    X = np.random.default_rng(0).random((10, 6))
    compare(Chunked(SOURCES[kind](X, tmp_path), n_rows=n_rows), X)


@pytest.mark.parametrize("kind", ["array", "memory map", "h5py", "zarr", "files"])
def test_sources_of_tensors(kind, tmp_path):
    X = np.random.default_rng(0).random((10, 3, 4))
    compare(Chunked(SOURCES[kind](X, tmp_path), n_rows=4), X)


@pytest.mark.parametrize("n_rows", [1, 4, 50])
@pytest.mark.parametrize("kind", SPARSE)
def test_sparse_sources_give_what_the_array_gives(kind, n_rows, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.random((10, 6)) * (rng.random((10, 6)) < 0.4)
    data = Chunked(SPARSE[kind](X, tmp_path), n_rows=n_rows)
    assert data.entries_read == (X != 0).sum() and data.smallest() == 0
    compare(data, X)


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "u1", "i2", "i8", "?", ">f8", ">i4"])
def test_numbers_of_every_kind_are_converted(dtype, tmp_path):
    X = np.random.default_rng(0).integers(0, 2 if dtype == "?" else 9, (10, 6)).astype(dtype)
    data, expected = Chunked(memmap(X, tmp_path), n_rows=4), as_data(X)
    assert data.dtype == expected.dtype
    assert torch.equal(data.samples(), expected.samples())
    half = Chunked(X, n_rows=4, dtype="float32")
    assert half.dtype == torch.float32 and torch.equal(half.samples(), expected.samples().float())
    assert torch.equal(data.scaled(0.25).samples(), expected.samples() * 0.25)


def test_half_precision_is_scaled_where_it_does_not_overflow():
    out = np.empty((1, 2), np.float32)
    convert_into(out, np.array([[60000, 2]], np.float16), 2.0**10)
    assert out.tolist() == [[60000 * 2.0**10, 2048]]
    assert Chunked(torch.ones(3, 2, dtype=torch.bfloat16)).dtype == torch.float32


@pytest.mark.filterwarnings("ignore:NMF has a loss_ beyond")
@pytest.mark.parametrize("size", [1e-200, 1e200, 1e-60, 1e60])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_unusual_sizes_are_divided_block_by_block(size, dtype):
    X = np.random.default_rng(0).random((12, 7)) + 0.1
    make = lambda: NMF(2, random_state=0, max_iter=20, tol=0, dtype=dtype)
    if dtype == "float32" and abs(np.log10(size)) > 38:  # of results, as for arrays
        with pytest.raises(ValueError, match="float32 cannot hold"):
            make().fit(Chunked(X * size, n_rows=5))
        return
    np.testing.assert_allclose(
        make().fit(Chunked(X * size, n_rows=5)).components_, make().fit(X * size).components_, rtol=1e-6
    )


@pytest.mark.parametrize("storage", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize(("dtype", "power"), [("float32", -135), ("float64", -1040)])
@pytest.mark.parametrize("n_rows", [5, 12])
def test_denormal_numbers_are_read_as_they_are(dtype, power, storage, n_rows):
    """A run takes them for zeros: not in what it reads meanwhile, which it raises to a usual size."""
    X = np.ldexp(np.random.default_rng(0).random((12, 7)) + 0.1, power).astype(dtype)
    make = lambda: NMF(2, random_state=0, max_iter=20, tol=0)
    blocks, whole = make().fit(Chunked(storage(X), n_rows=n_rows)), make().fit(X)
    np.testing.assert_allclose(blocks.components_, whole.components_, atol=1e-4 * whole.components_.max())


class Counted:
    """An array that counts how often it was read."""

    def __init__(self, X):
        self.X, self.shape, self.dtype, self.n = X, X.shape, X.dtype, 0

    def __getitem__(self, rows):
        self.n += len(self.X[rows])
        return self.X[rows]

    @property
    def passes(self):
        return (self.n - 1) / len(self.X)  # one row at the beginning, to see what it is


@pytest.mark.parametrize(
    "parameters, sweeps, more",
    [
        ({}, 20, 4),  # checks, one product before the first sweep, the loss of the run and of what is published
        ({"solver": "multiplicative"}, 20, 4),
        ({"loss": "kullback-leibler", "solver": "multiplicative"}, 20, 25),  # and all readings, for tol=0
        ({"n_init": 3}, 20, 4),  # restarts run as one batch
        ({"init": "nndsvda"}, 20, 14),
    ],
)
def test_data_are_read_no_more_often_than_needed(parameters, sweeps, more):
    X = np.random.default_rng(0).random((40, 12))
    source = Counted(X)
    model = NMF(3, **({"random_state": 0, "max_iter": sweeps, "tol": 0, "init": "random"} | parameters)).fit(
        Chunked(source, n_rows=9)
    )
    assert source.passes <= 2 * sweeps + more
    np.testing.assert_allclose(model.embedding_, NMF(**model.get_params()).fit(X).embedding_, rtol=1e-6, atol=1e-9)
    before = source.passes
    model.transform(Chunked(source, n_rows=9))
    assert source.passes - before <= 3.1  # checks, and one product, or one more that iterates block by block


def test_one_block_is_read_ahead_and_errors_come_through():
    running, seen = [], []

    def read(i):
        seen.append(i)
        running.append(threading.current_thread() is not threading.main_thread())
        if i == 3:
            raise OSError("lost")
        return i

    blocks = read_ahead(read, range(5))
    assert next(blocks) == 0 and next(blocks) == 1 and max(seen) <= 2
    assert next(blocks) == 2
    with pytest.raises(OSError, match="lost"):
        next(blocks)
    assert all(running) and not [t for t in threading.enumerate() if t.name.startswith("nnfactor-reader")]
    assert list(read_ahead(lambda i: i, [7])) == [7]


def test_a_pass_inside_another_has_its_own_memory():
    X = np.random.default_rng(0).random((9, 4))
    data, found = Chunked(X, n_rows=2), []
    for rows, block in data.blocks():
        data.times(torch.rand(4, 2, dtype=torch.float64))
        found.append(block.samples().clone())
    np.testing.assert_array_equal(torch.cat(found).numpy(), X)
    abandoned = data.blocks()
    next(abandoned)
    abandoned.close()
    gc.collect()
    assert len(data._blocks.buffers._idle) == 2


def test_buffers_wait_for_the_copy_of_a_device():
    class Event:
        waited = 0

        def synchronize(self):
            self.waited += 1

    buffer = Buffer(3, 2, torch.float64, torch.device("cpu"))
    buffer.copied = Event()
    buffer.writable()[:] = 1
    assert buffer.copied.waited == 1 and buffer.placed(2, torch.device("cpu"), None).tolist() == [[1, 1], [1, 1]]


def test_limits():
    X = np.zeros((1000, 50), np.uint8) + np.arange(50, dtype=np.uint8)
    assert Chunked(X, max_bytes=120_000).n_rows == 100  # three shares of 400 bytes a row
    assert Chunked(X, max_bytes=120_000, dtype="float32").n_rows == 200
    assert Chunked(X).n_rows == 1000 and Chunked(X, n_rows=5000).n_rows == 1000
    with pytest.raises(ValueError, match=r"max_bytes=100 is too little for 3 blocks of one row of 400 bytes; use 1203"):
        Chunked(X, max_bytes=100)
    for name, value in (("max_bytes", 0), ("max_bytes", 1.5), ("n_rows", -1), ("n_rows", True)):
        with pytest.raises(ValueError, match=f"{name} must be None or a whole number >= 1"):
            Chunked(X, **{name: value})
    with pytest.raises(ValueError, match="dtype='int8' is not supported"):
        Chunked(X, dtype="int8")


def test_blocks_are_whole_chunks_of_the_source(tmp_path):
    data = Chunked(zarr_array(np.ones((64, 10)), tmp_path), max_bytes=3 * 80 * 15)
    assert data.source.together == 4 and data.n_rows == 12
    with pytest.warns(UserWarning, match="stores 4 rows together, of which max_bytes allows 3 in a block: .* 2 times"):
        Chunked(data.source, max_bytes=3 * 80 * 3)


def test_rows_that_are_stored_together_are_read_together():
    source = as_source(Counted(np.arange(2000.0 * 100).reshape(2000, 100)))
    source.together, rows = 500, np.array([1999, 3, 700, 1, 1500])
    before = source.values.n
    np.testing.assert_array_equal(read_in_ranges(source, rows), source.values.X[rows])
    assert source.values.n - before == 3 + 1 + 500  # rows 1 to 3, 700, and 1500 to 1999
    np.testing.assert_array_equal(Selected(source, rows).read(slice(1, 3)), source.values.X[rows[1:3]])


@pytest.mark.parametrize("sparse", [False, True])
def test_bad_entries_are_refused_with_their_place(sparse):
    for value, what in ((np.nan, "NaN"), (np.inf, "infinity")):
        X = np.ones((10, 4))
        X[7, 2] = value
        with pytest.raises(ValueError, match=rf"Input X contains {what}: the first at \(7, 2\)"):
            NMF(2).fit(Chunked(sp.csr_array(X) if sparse else X, n_rows=3))
    with pytest.raises(ValueError, match=r"Negative values in data passed to X; .*SemiNMF"):
        NMF(2).fit(Chunked(-np.ones((4, 3)), n_rows=3))
    SemiNMF(2, max_iter=5, tol=0).fit(Chunked(np.random.default_rng(0).normal(size=(9, 4)), n_rows=4))


def test_what_is_no_source_is_refused():
    for bad, error, match in (
        (3, TypeError, "source is a int; it must have a shape and give blocks of rows"),
        ([], ValueError, "empty list"),
        (np.ones(3), ValueError, "at least two dimensions"),
        (np.ones((0, 3)), ValueError, "no empty dimension"),
        (np.ones((2, 3), complex), ValueError, "real numbers"),
        (np.array([["a"]]), ValueError, "real numbers"),
        ([np.ones((2, 3)), np.ones((2, 4))], ValueError, r"source\[1\] is dense \(2, 4\), but source\[0\] dense"),
        ([np.ones((2, 3)), sp.csr_array(np.ones((2, 3)))], ValueError, r"source\[1\] is sparse"),
        ("x.zarr", ValueError, "nnfactor.io.open_data opens other kinds"),
    ):
        with pytest.raises(error, match=match):
            Chunked(bad)


def test_masks_are_refused_for_blocks_have_no_missing_entries():
    X = np.ma.masked_array(np.ones((9, 4)), mask=np.arange(36).reshape(9, 4) == 31)
    with pytest.raises(ValueError, match="source gives masked entries"):
        NMF(2).fit(Chunked(X, n_rows=3))
    with pytest.raises(ValueError, match="source gives masked entries"):
        Chunked(X[7:])
    NMF(2, max_iter=5, tol=0).fit(Chunked(X[:7], n_rows=3))


def test_what_needs_all_samples_is_refused_by_name_where_they_do_not_fit():
    X = np.random.default_rng(0).random((200, 30))
    small, fits = (lambda: Chunked(X, max_bytes=24_000)), (lambda: Chunked(X, max_bytes=10**6))
    told = {"random_state": 0, "max_iter": 5, "tol": 0}
    for model in (GraphNMF(3, **told), KernelNMF(3, "linear", random_state=0, max_iter=5)):
        with pytest.raises(ValueError, match=r"Chunked of shape \(200, 30\), and graphs, kernels .* Hand in a graph"):
            model.fit(small())
    graph = GraphNMF(3, **told).fit(X)
    np.testing.assert_allclose(GraphNMF(3, **told).fit(fits()).embedding_, graph.embedding_, rtol=1e-6, atol=1e-9)
    given = GraphNMF(3, graph=graph.graph_, **told).fit(small())
    np.testing.assert_allclose(given.embedding_, graph.embedding_, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("loss", ["frobenius", "kullback-leibler", "itakura-saito"])
@pytest.mark.parametrize("storage", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_matrices_of_every_loss(loss, storage):
    X = np.random.default_rng(0).random((50, 12)) + 0.1
    make = lambda: NMF(3, loss=loss, random_state=0, max_iter=30, tol=0)
    mine, its = make().fit(Chunked(storage(X), n_rows=11)), make().fit(X)
    np.testing.assert_allclose(mine.embedding_, its.embedding_, rtol=1e-8, atol=1e-10)
    assert mine.loss_ == pytest.approx(its.loss_, rel=1e-10)
    assert mine.reconstruction_err_ == pytest.approx(its.reconstruction_err_, rel=1e-10)
    np.testing.assert_allclose(
        mine.transform(Chunked(storage(X), n_rows=11)), its.transform(storage(X)), rtol=1e-5, atol=1e-8
    )


@pytest.mark.parametrize("batch_size", [None, 8, 30])
def test_tensors_labels_graphs_and_mini_batches(batch_size):
    X, y = np.random.default_rng(0).random((40, 4, 5)), np.repeat([0, 1, 2, 3], 10)
    told = {"random_state": 0, "max_iter": 5, "tol": 0}
    for model, labels in ((NTF(2, **told), None), (NGE(3, batch_size=batch_size, **told), y)):
        mine, its = (np.asarray(model.fit(Z, labels).embedding_) for Z in (Chunked(X, n_rows=9), X))
        np.testing.assert_allclose(mine, its, rtol=1e-6, atol=1e-9)


def test_mini_batches_read_a_chunk_of_the_source_in_one_visit(tmp_path):
    X = np.random.default_rng(0).random((50, 6))
    order = np.concatenate(cut_batches(50, 10, 0, together=4))
    assert sorted(order) == [*range(50)] and not np.array_equal(order, np.arange(50))
    assert (np.diff(order[order < 48]) == 1).sum() >= 36  # twelve groups of four
    source = Counted(X)
    source.chunks = (10, 6)
    data = Chunked(source, n_rows=10)
    model = NMF(2, batch_size=10, random_state=0, init="random", max_iter=5, tol=0).fit(data)
    assert data.together == 10 and source.passes <= 5 + 6  # an epoch is one pass: batches are chunks
    assert model.loss_ < 1.2 * NMF(2, random_state=0).fit(X).loss_


def test_dtype_is_that_of_the_estimator_and_streams_take_blocks():
    X = np.random.default_rng(0).random((40, 12))
    assert NMF(2, dtype="float32", random_state=0).fit(Chunked(X)).embedding_.dtype == np.float32
    one, other = (NMF(2, random_state=0) for _ in range(2))
    for rows in (slice(0, 20), slice(20, 40)):
        one.partial_fit(Chunked(X[rows], n_rows=7))
        other.partial_fit(X[rows])
    np.testing.assert_allclose(one.components_, other.components_, rtol=1e-8)


def test_checkpoints_know_the_data_and_pickles_give_them_again(tmp_path):
    X = np.random.default_rng(0).random((20, 6))
    make = lambda: NMF(2, random_state=0, max_iter=5, tol=0)
    make().fit(Chunked(X, n_rows=6), checkpoint=tmp_path / "fit")
    make().fit(Chunked(X, n_rows=9), checkpoint=tmp_path / "fit")  # the same numbers
    with pytest.raises(ValueError, match="other"):
        make().fit(Chunked(X + 1, n_rows=6), checkpoint=tmp_path / "fit")
    again = pickle.loads(pickle.dumps(Chunked(X, n_rows=6).scaled(2.0)))
    np.testing.assert_array_equal(again.samples().numpy(), 2 * X)


def test_writes_to_a_tensor_are_noticed_and_to_other_sources_by_new_data():
    X = torch.rand(6, 4, dtype=torch.float64)
    data, A = Chunked(X, n_rows=2), X.numpy()
    before = data.sqnorm()
    X.mul_(2)
    close(data.sqnorm(), 4 * before)
    mapped = Chunked(A, n_rows=2)
    kept = mapped.sqnorm()
    A *= 2
    assert mapped.sqnorm() == kept  # documented: the source must not change while it is in use
    close(Chunked(A, n_rows=2).sqnorm(), 4 * kept)


def test_changes_of_a_memory_map_are_kept(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((6, 4)))
    for mode, left in (("c", 1.0), ("r+", 5.0)):
        mapped = np.load(tmp_path / "x.npy", mmap_mode=mode)
        mapped[2, 3] = 5.0
        assert Chunked(mapped, n_rows=2).largest() == mapped[2, 3] == 5.0
        assert np.load(tmp_path / "x.npy")[2, 3] == left


PEAK = """
import resource, sys
import numpy as np
from nnfactor import NMF, Chunked
from nnfactor.io import open_data

told = dict(random_state=0, max_iter=3, tol=0, init="random", loss=sys.argv[2])
NMF(5, **told).fit(Chunked(open_data(sys.argv[1]).values[:3000], max_bytes=24_000_000))  # code, threads, small buffers
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
NMF(5, **told).fit(Chunked(open_data(sys.argv[1]).values, max_bytes=24_000_000))
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ru_maxrss counts in other units elsewhere")
@pytest.mark.parametrize(
    "kind, loss", [("npy", "frobenius"), ("npy", "kullback-leibler"), ("h5", "frobenius"), ("zarr", "frobenius")]
)
def test_memory_stays_within_the_limit(kind, loss, tmp_path):
    """Of 160 MB of data, ten times what blocks may take, the resident size grows by a third at most."""
    rng, path, shape = np.random.default_rng(0), tmp_path / f"x.{kind}", (40_000, 1000)
    match kind:
        case "npy":
            target = np.lib.format.open_memmap(path, "w+", np.float32, shape)
        case "h5":
            target = pytest.importorskip("h5py").File(path, "w").create_dataset("X", shape, "f4", chunks=(1000, 1000))
        case _:
            zarr = pytest.importorskip("zarr")
            target = zarr.open(str(path), mode="w", shape=shape, chunks=(1000, 1000), dtype="f4")
    part = rng.random((1000, 1000), dtype=np.float32) + 0.1
    for first in range(0, shape[0], 1000):
        target[first : first + 1000] = part
    if kind == "h5":
        target.file.close()
    del target
    words = [sys.executable, "-c", PEAK, str(path), loss]
    done = subprocess.run(words, check=True, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert int(done.stdout.split()[-1]) < 55_000_000
