"""Bad files: each is refused in one line that names the file and what is wrong with it, whole and in blocks."""

import gzip
import io

import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse as sp

from nnfactor.io import read_blocks, read_data

X = np.arange(1.0, 13).reshape(4, 3)


def npy(A):
    made = io.BytesIO()
    np.save(made, A, allow_pickle=True)
    return made.getvalue()


def npz(**arrays):
    made = io.BytesIO()
    np.savez(made, **arrays)
    return made.getvalue()


def mtx(A):
    made = io.BytesIO()
    scipy.io.mmwrite(made, sp.coo_array(A))
    return made.getvalue()


def mat(**arrays):
    made = io.BytesIO()
    scipy.io.savemat(made, arrays)
    return made.getvalue()


def hdf5(**items):
    h5py = pytest.importorskip("h5py")
    made = io.BytesIO()
    with h5py.File(made, "w") as file:
        for name, value in items.items():
            file[name.replace("__", "/")] = value
    return made.getvalue()


def parquet(**columns):
    pytest.importorskip("pyarrow")
    made = io.BytesIO()
    pd.DataFrame(columns).to_parquet(made)
    return made.getvalue()


def netcdf(**arrays):
    pytest.importorskip("h5netcdf")
    xarray = pytest.importorskip("xarray")
    made = xarray.Dataset({name: (tuple("uvw")[: A.ndim], A) for name, A in arrays.items()})
    return bytes(made.to_netcdf(engine="scipy"))


BAD = [  # name, content, options, what is said; what needs a package is made in the test
    ("x.csv", b"", {}, "the file is empty"),
    ("x.csv", b"\n \n", {}, "the file is empty"),
    ("x.csv", b"a,b\n", {}, "there are no numbers below or beside the names"),
    ("x.csv", b"a,b\n1,2\n3,x\n", {}, "line 3, column 2: 'x' is no number; .*; labels='b' reads its column as labels"),
    ("x.csv", b"id,a,kind\ns,1,T\n", {}, "line 2, column 3: 'T' is no number; .*; labels='kind' reads its column"),
    ("x.csv", b"1,2\n3,4,5\n", {}, "line 2: 3 cells, but the lines before have 2"),
    ("x.csv", b"a,b,c\n1,2\n", {}, "the first line has 3 names, and the second 2 cells"),
    (
        "x.csv",
        b"x,1,2\ny,3,4\n",
        {},
        "line 1: 'x' and numbers are names of columns, or a row and its name; say header=",
    ),
    (
        "x.csv",
        b"5.1,1.4,ox\n4.9,1.4,elk\n",
        {},
        "line 2, column 3: 'elk' is no number; .*; with a first line that names",
    ),
    ("x.csv", b"a,b,c\n1,2,3,\n4,5,6,\n", {}, "line 2: the line ends in a delimiter, or its last value is missing"),
    ("x.csv", b"a,b,c,\n1,2,3,\n4,5,6,\n", {}, "line 2: the line ends in a delimiter, or its last value is missing"),
    ("x.csv", b"a,b\n1,2\n,\n,\n3,4\n", {}, "line 3: all cells are empty; remove the line, or write NaN"),
    ("x.csv", b"# made by hand\n1,2\n3,4\n", {}, "line 1: '# made by hand' is a comment, or the name of a column"),
    ("x.csv", b"id,a\n1,2\n2,4\n", {}, "the first column is called 'id' and holds numbers; say row_names=True"),
    ("x.csv", b"a,b\nu,2\n", {"row_names": False}, "line 2, column 1: 'u' is no number"),
    ("x.csv", b"0,0,1\n", {"long": True, "header": True}, "header= is for text tables .*, not for long tables"),
    ("x.npy", npy(X), {"row_names": True}, "row_names= is for text tables .*, not for .npy"),
    ("x.csv", b"a;b\n1,5;2,5\n", {}, "line 1: cells are separated by ';', but in a .csv file by ','; .* with points"),
    ("x.csv", b"a\tb\n1\t2\n", {}, r"line 1: cells are separated by '\\t', but in a .csv file by ','"),
    ("x.tsv", b"a,b\n1,2\n", {}, r"line 1: cells are separated by ',', but in a .tsv file by '\\t'"),
    ("x.csv", "é,b\n1,2\n".encode("latin-1"), {}, "is no UTF-8 text .byte 0xe9.; save it in UTF-8"),
    ("x.csv", "a,b\n1,2\n".encode("utf-16"), {}, "is no UTF-8 text"),
    ("x.csv", b'a,b\n1,"2\n' + 70_000 * b"3,4\n", {}, "larger than field limit .*; is a quotation mark left open"),
    ("x.csv.gz", b"a,b\n1,2\n", {}, "is damaged, truncated or no .csv file: Not a gzipped file"),
    ("x.csv.gz", gzip.compress(b"a,b\n" + 999 * b"1,2\n")[:-12], {}, "is damaged, truncated or no .csv file"),
    ("x.csv", b"a,b\n1,2\n", {"labels": "kind"}, "has no column 'kind'; labels= takes one of 'a', 'b'"),
    ("x.csv", b"a,a\n1,2\n", {"labels": "a"}, "has 2 columns 'a'"),
    (
        "x.csv",
        b"a,b\n1,2.5\n",
        {"labels": "b"},
        "column 'b', line 2: 2.5 is no label; labels are whole numbers or text",
    ),
    (
        "x.csv",
        b"a,b\n1,2\n",
        {"labels": "b", "header": False},
        "labels are named by the first line, which header=False",
    ),
    ("x.csv", b"a\n1\n", {"labels": "a"}, "there are no numbers below or beside the names"),
    ("x.csv", b"0,0,1\n", {"labels": "b", "long": True}, "labels='b' names a column of .*, not of long tables"),
    ("x.csv", b"0,0,1\n0,0,2\n", {"long": True}, "the entry at 0, 0 is listed more than once"),
    ("x.csv", b"a,b\n1,2\n", {"key": "a"}, "key='a' is for files with several arrays"),
    ("x.npy", npy(X)[:-9], {}, "is damaged, truncated or no .npy file"),
    ("x.npy", b"a,b\n1,2\n", {}, "is damaged, truncated or no .npy file"),
    ("x.npy", npy(np.array([["a"]])), {}, "holds <U1; data are numbers"),
    ("x.npy", npy(np.array([[object()]])), {}, "is damaged, truncated or no .npy file"),
    ("x.npy", npy(X + 1j), {}, "holds complex128; data are numbers"),
    ("x.npy", npy(np.array([["2020-01-01"]], dtype="M8[D]")), {}, r"holds datetime64\[D\]; data are numbers"),
    ("x.npy", npy(np.zeros((2, 2), dtype=[("a", float)])), {}, "data are numbers"),
    ("x.npy", npy(X[0]), {}, r"has shape \(3,\); data have two dimensions at least, samples first"),
    ("x.npy", npy(X[:0]), {}, r"has shape \(0, 3\); data have no empty dimension"),
    ("x.npy", npy(X), {"long": True}, "long=True is for text tables .* not for .npy"),
    ("x.npy", npy(X), {"labels": "a"}, "labels='a' names a column of .*, not of .npy; read_labels reads labels from a"),
    ("x.npy.gz", npy(X), {}, "only .* are read from .gz; unpack it first"),
    ("x.npz", npz(a=X)[:40], {}, "is damaged, truncated or no .npz file"),
    ("x.npz", npz(a=X, b=X), {}, "holds several arrays; name one as key: 'a', 'b'"),
    ("x.npz", npz(a=X), {"key": "b"}, "holds no 'b'; name one as key: 'a'"),
    ("x.npz", npz(), {}, "holds no data"),
    ("x.mtx", b"1 2 3\n", {}, "is damaged, truncated or no .mtx file"),
    ("x.mtx", mtx(X)[:-8], {}, "is damaged, truncated or no .mtx file"),
    ("x.mat", b"1 2 3\n", {}, "is damaged, truncated or no .mat file"),
    ("x.mat", mat(text="a"), {}, "holds no data"),
    ("x.h5", b"1 2 3\n", {}, "is damaged, truncated or no .h5 file"),
    ("x.h5", lambda: hdf5(a=X)[:-90], {}, "is damaged, truncated or no .h5 file"),
    ("x.h5", lambda: hdf5(a=X[0]), {}, "holds no data"),
    ("x.h5", lambda: hdf5(a=X, g__b=X), {}, "holds several arrays; name one as key: 'a', 'g/b'"),
    ("x.h5ad", lambda: hdf5(X=X), {}, "has no table obs; write it with AnnData 0.7 or later"),
    ("x.h5ad", lambda: hdf5(layers__a=X), {}, "has no X; name one of its layers as key: 'a'"),
    ("x.h5ad", lambda: hdf5(X=X, obs___index=[b"s"], var___index=3 * [b"g"]), {}, "1 names for dimension 0, which has"),
    (
        "x.h5ad",
        lambda: hdf5(X__data=X, obs___index=[b"s"], var___index=[b"g"]),
        {},
        "/X is a group without an encoding",
    ),
    ("x.h5ad", lambda: hdf5(X=X, obs___index=4 * [b"s"], var___index=3 * [b"g"]), {"labels": "t"}, "has no column 't'"),
    ("x.parquet", b"1 2 3\n", {}, "is damaged, truncated or no .parquet file"),
    ("x.parquet", lambda: parquet(a=[1.0], kind=["T"]), {}, "column 'kind' holds text; .*; labels='kind' reads it as"),
    ("x.parquet", lambda: parquet(a=[1.0], b=[1]), {"labels": "c"}, "has no column 'c'; labels= takes one of 'a', 'b'"),
    ("x.nc", b"1 2 3\n", {}, "is damaged, truncated or no .nc file"),
    ("x.nc", lambda: netcdf(a=X, b=X), {}, "holds several arrays; name one as key: 'a', 'b'"),
    ("x.nc", lambda: netcdf(a=X[0]), {}, "holds no data"),
    ("x.zarr", b"1 2 3\n", {}, "is damaged, truncated or no .zarr file"),
    ("x.doc", b"1", {}, "files that end in '.doc' are not known; use .csv, .tsv"),
    ("x", b"1", {}, "files that end in 'nothing' are not known"),
]


NEEDED = {
    ".h5": ["h5py"],
    ".h5ad": ["h5py"],
    ".parquet": ["pandas", "pyarrow"],
    ".zarr": ["zarr"],
    ".nc": ["xarray", "h5netcdf"],
}


@pytest.mark.parametrize("name, content, options, message", BAD, ids=[f"{i} {row[0]}" for i, row in enumerate(BAD)])
def test_bad_files_are_refused_in_one_line(tmp_path, name, content, options, message):
    path = tmp_path / name
    for package in NEEDED.get(path.suffix, ()):
        pytest.importorskip(package)
    path.write_bytes(content() if callable(content) else content)
    with pytest.raises(ValueError, match=message) as refused:
        read_data(path, **options)
    told = str(refused.value)
    assert told.startswith(str(path)) and "\n" not in told
    if path.suffix not in (".npz", ".mtx", ".mat") and not options.get("long"):
        with pytest.raises(ValueError, match=message):
            list(read_blocks(path, 2, **options))


@pytest.mark.parametrize("name", ["x.csv", "x.npy", "x.zarr"])
def test_a_folder_is_no_file(tmp_path, name):
    if name == "x.zarr":
        pytest.importorskip("zarr")
    (tmp_path / name).mkdir()
    with pytest.raises(ValueError, match=r"is a folder; name a file in it|is damaged, truncated or no .zarr file"):
        read_data(tmp_path / name)
