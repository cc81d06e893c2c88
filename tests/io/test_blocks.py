"""Blocks of rows: what is streamed equals what is read whole, and no more than a block is in memory."""

import tracemalloc

import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse as sp

from nnfactor import NMF, Chunked
from nnfactor.io import open_data, read_blocks, read_data

X = np.random.default_rng(0).poisson(1.0, (11, 4)).astype(float) + np.eye(11, 4)
ROWS, COLUMNS = tuple(f"s{i}" for i in range(11)), tuple(f"g{j}" for j in range(4))
LABELS = ["1", "2", "", "1", "2", "x", "1", "1", "1", "1", "1"]  # numbers alone in the first block


def write_h5ad(path, values):
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        if sp.issparse(values):
            group = file.create_group("X")
            group.attrs["encoding-type"], group.attrs["shape"] = f"{values.format}_matrix", values.shape
            for name in ("data", "indices", "indptr"):
                group[name] = getattr(values, name)
        else:
            file["X"] = values
        for frame, names in (("obs", ROWS), ("var", COLUMNS)):
            group = file.create_group(frame)
            group.attrs["_index"] = "id"
            group["id"] = [name.encode() for name in names]
        file["obs/type"] = [label.encode() for label in LABELS]


def write(path, end):
    frame = pd.DataFrame(X, index=pd.Index(ROWS, name="id"), columns=COLUMNS).assign(type=LABELS)
    match end:
        case "csv" | "csv.gz" | "tsv" | "txt":
            frame.to_csv(path, sep="," if "csv" in end else "\t")
        case "npy":
            np.save(path, X)
        case "parquet":
            pytest.importorskip("pyarrow")
            frame.reset_index().to_parquet(path)
        case "h5":
            with pytest.importorskip("h5py").File(path, "w") as file:
                file["a/X"] = X
        case "dense.h5ad":
            write_h5ad(path, X)
        case "rows.h5ad":
            write_h5ad(path, sp.csr_array(X))
        case "zarr":
            pytest.importorskip("zarr").save_array(str(path), X)
        case "nc":
            pytest.importorskip("h5netcdf")
            xarray = pytest.importorskip("xarray")
            coords = {"cell": list(ROWS), "gene": list(COLUMNS), "type": ("cell", LABELS)}
            xarray.DataArray(X, dims=("cell", "gene"), coords=coords, name="X").to_netcdf(path, engine="h5netcdf")


KINDS = ["csv", "csv.gz", "tsv", "txt", "npy", "parquet", "h5", "dense.h5ad", "rows.h5ad", "zarr", "nc"]


@pytest.mark.parametrize("end", KINDS)
@pytest.mark.parametrize("n_rows", [1, 4, 11, 50])
def test_blocks_are_the_rows_of_the_whole(tmp_path, end, n_rows):
    path = tmp_path / f"x.{end}"
    write(path, end)
    labels = None if end in ("npy", "h5", "zarr") else "type"
    whole, blocks = read_data(path, labels=labels), list(read_blocks(path, n_rows, labels=labels))
    assert [len(b.values.shape) for b in blocks] == [2] * -(-11 // n_rows)
    stack = sp.vstack if sp.issparse(whole.values) else np.concatenate
    found, wanted = stack([b.values for b in blocks]), whole.values
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(*(A.toarray() if sp.issparse(A) else A for A in (found, wanted)))
    assert all(b.names[1] == whole.names[1] for b in blocks)
    if whole.names[0]:
        assert sum((b.names[0] for b in blocks), ()) == whole.names[0] == ROWS
    if labels:
        kept = [label for b in blocks for label in b.labels["type"]]
        assert kept == whole.labels["type"].tolist() == [None if label == "" else label for label in LABELS]
    assert blocks[-1].source == f"{path}, rows {(10 // n_rows) * n_rows} to 10"


@pytest.mark.parametrize("end", ["csv", "npy", "rows.h5ad"])
def test_learning_from_blocks_equals_learning_from_slices(tmp_path, end):
    path = tmp_path / f"x.{end}"
    write(path, end)
    labels = "type" if end == "csv" else None
    one, other = (NMF(2, random_state=0) for _ in range(2))
    for block in read_blocks(path, 4, labels=labels):
        one.partial_fit(block.values)
    for first in range(0, 11, 4):
        part = X[first : first + 4]
        other.partial_fit(sp.csr_array(part) if end == "rows.h5ad" else part)
    np.testing.assert_array_equal(one.components_, other.components_)
    assert one.n_samples_seen_ == 11


def test_a_file_larger_than_memory_is_counted_and_read_in_blocks(tmp_path):
    """32 million numbers, of which the file system holds next to nothing."""
    big = np.lib.format.open_memmap(tmp_path / "big.npy", "w+", np.float64, (4000, 8000))
    big[7, 5], big[3999, 7999] = 1.0, np.nan
    del big
    tracemalloc.start()
    told = repr(read_data(tmp_path / "big.npy"))
    rows = sum(block.values.shape[0] for block in read_blocks(tmp_path / "big.npy", 1000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "4000 x 8000, float64, 100.0% zeros, 0.0% NaN" in told and rows == 4000
    assert peak < 16 * 2**20


@pytest.mark.parametrize("shape", [(1, 3_000_000), (3, 1_500_000), (2_000_000, 2), (1, 1, 2_500_000)])
def test_shares_count_every_number_once(tmp_path, shape):
    A = np.zeros(shape, np.float32)
    A.flat[::4], A.flat[1::8] = 1, np.nan
    np.save(tmp_path / "a.npy", A)
    zeros, holes = read_data(tmp_path / "a.npy").shares()
    assert zeros == pytest.approx(0.625) and holes == pytest.approx(0.125)


def test_files_without_rows_of_their_own_are_refused_with_the_reason(tmp_path):
    scipy.io.mmwrite(tmp_path / "x.mtx", sp.csr_array(X))
    np.savez(tmp_path / "x.npz", X)
    scipy.io.savemat(tmp_path / "x.mat", {"X": X})
    for end, reason in (("mtx", "its entries come in any order"), ("npz", "it is packed"), ("mat", "it is packed")):
        with pytest.raises(ValueError, match=rf"x.{end} cannot be read in blocks: {reason}"):
            read_blocks(tmp_path / f"x.{end}", 2)
    write_h5ad(tmp_path / "x.h5ad", sp.csc_array(X))
    with pytest.raises(ValueError, match=r"/X is a csc_matrix, stored by columns; write it by rows"):
        next(read_blocks(tmp_path / "x.h5ad", 2))
    np.save(tmp_path / "x.npy", X)
    for n_rows in (0, -1, 1.5, True, "2"):
        with pytest.raises(ValueError, match="n_rows must be a whole number >= 1"):
            read_blocks(tmp_path / "x.npy", n_rows)
    np.save(tmp_path / "x.npy", X[0])
    with pytest.raises(ValueError, match="two dimensions at least"):
        next(read_blocks(tmp_path / "x.npy", 2))
    (tmp_path / "x.csv").write_text("a,b\n1,2\n3,x\n")
    blocks = read_blocks(tmp_path / "x.csv", 1)
    assert next(blocks).values.tolist() == [[1, 2]]
    with pytest.raises(ValueError, match="line 3, column 2: 'x' is no number"):
        next(blocks)


@pytest.mark.parametrize("end", ["npy", "h5", "dense.h5ad", "rows.h5ad", "zarr"])
def test_what_is_opened_is_what_is_read(tmp_path, end):
    path = tmp_path / f"x.{end}"
    write(path, end)
    labels = "type" if "h5ad" in end else None
    opened, whole = open_data(path, labels=labels), read_data(path, labels=labels)
    assert opened.names == whole.names and opened.source == whole.source and opened.values.shape == (11, 4)
    assert {k: v.tolist() for k, v in opened.labels.items()} == {k: v.tolist() for k, v in whole.labels.items()}
    data = Chunked(opened.values, n_rows=3)
    samples = data.samples()
    np.testing.assert_array_equal(samples.toarray() if sp.issparse(samples) else samples.numpy(), X)
    assert data.entries_read == (np.count_nonzero(X) if end == "rows.h5ad" else X.size)


def test_other_files_are_not_opened(tmp_path):
    write(tmp_path / "x.csv", "csv")
    with pytest.raises(ValueError, match=r"x.csv cannot be opened in blocks; use .npy, .h5, .hdf5, .h5ad, .zarr"):
        open_data(tmp_path / "x.csv")


def test_errors_of_the_caller_stay_his(tmp_path):
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(KeyError, match="mine"):
        for _ in read_blocks(tmp_path / "x.npy", 2):
            raise KeyError("mine")
