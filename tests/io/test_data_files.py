"""Data files: what is read equals what was written, names survive, and what is ambiguous is refused by its place."""

import gzip
import importlib

import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from nnfactor import NMF, NTF, select_rank
from nnfactor.io import Table, read_data

X = np.random.default_rng(0).poisson(1.0, (6, 4)).astype(float)
ROWS, COLUMNS = tuple(f"s{i}" for i in range(6)), tuple(f"g{j}" for j in range(4))
CUBE = np.random.default_rng(1).random((4, 3, 2))


def text(path, content):
    path.write_text(content, encoding="utf-8")
    return read_data(path)


@pytest.mark.parametrize("end", ["npy", "npz", "csv", "tsv", "txt", "csv.gz", "mtx", "mtx.gz", "mat"])
def test_numbers_are_those_that_were_written(tmp_path, end):
    path = tmp_path / f"x.{end}"
    write = {
        "npy": lambda: np.save(path, X),
        "npz": lambda: np.savez(path, X=X),
        "csv": lambda: np.savetxt(path, X, delimiter=","),
        "csv.gz": lambda: np.savetxt(path, X, delimiter=","),
        "tsv": lambda: np.savetxt(path, X, delimiter="\t"),
        "txt": lambda: np.savetxt(path, X),
        "mtx": lambda: scipy.io.mmwrite(path, sp.csr_array(X)),
        "mtx.gz": lambda: (
            scipy.io.mmwrite(tmp_path / "y.mtx", sp.csr_array(X)),
            path.write_bytes(gzip.compress((tmp_path / "y.mtx").read_bytes())),
        ),
        "mat": lambda: scipy.io.savemat(path, {"X": X}),
    }
    write[end]()
    table = read_data(path)
    found = table.values.toarray() if sp.issparse(table.values) else table.values
    np.testing.assert_allclose(found, X)
    assert table.names == (None, None) and str(path) in repr(table) and "6 x 4" in repr(table)
    assert NMF(2, max_iter=2, tol=0, random_state=0).fit(table.values).embedding_.shape == (6, 2)


def test_an_array_is_a_memory_map_and_a_tensor_keeps_its_order(tmp_path):
    np.save(tmp_path / "c.npy", CUBE)
    table = read_data(tmp_path / "c.npy")
    assert isinstance(table.values, np.memmap) and table.values.shape == (4, 3, 2)
    assert NTF(2, max_iter=2, tol=0, random_state=0).fit(table.values).sample_shape_ == (3, 2)


@pytest.mark.parametrize("sparse", [sp.csr_matrix, sp.csc_array, sp.coo_array])
def test_sparse_matrices_stay_sparse(tmp_path, sparse):
    sp.save_npz(tmp_path / "s.npz", sparse(X))
    table = read_data(tmp_path / "s.npz")
    assert sp.issparse(table.values) and "sparse float64" in repr(table)
    np.testing.assert_array_equal(table.values.toarray(), X)


@pytest.mark.parametrize("index, header", [(True, True), (True, False), (False, True), (False, False)])
@pytest.mark.parametrize("integers", [False, True])
def test_names_survive(tmp_path, index, header, integers):
    """As pandas writes tables: with names, or with numbers as names, and an empty cell at their head."""
    frame = (
        pd.DataFrame(X, index=range(6), columns=range(4)) if integers else pd.DataFrame(X, index=ROWS, columns=COLUMNS)
    )
    frame.to_csv(tmp_path / "t.csv", index=index, header=header)
    if integers and index != header:
        return  # numbers that nothing tells from data
    table = read_data(tmp_path / "t.csv", header=None if header or not index else False)
    np.testing.assert_allclose(table.values, X)
    names = (tuple(map(str, frame.index)) if index else None, tuple(map(str, frame.columns)) if header else None)
    assert table.names == names


def test_years_are_names_if_the_user_says_so(tmp_path):
    (tmp_path / "y.csv").write_text("country,1990,1991\nx,1,2\ny,3,4\n")
    assert read_data(tmp_path / "y.csv", header=True).names == (("x", "y"), ("1990", "1991"))
    assert read_data(tmp_path / "y.csv", header=False).names == (("country", "x", "y"), None)


def test_numbers_are_names_of_rows_if_the_user_says_so(tmp_path):
    path = tmp_path / "y.csv"
    path.write_text("id,a,b\n7,1,2\n8,3,4\n")
    table = read_data(path, row_names=True)
    assert table.names == (("7", "8"), ("a", "b")) and table.values.tolist() == [[1, 2], [3, 4]]
    assert read_data(path, row_names=False).names == (None, ("id", "a", "b"))
    path.write_text("7,1,2\n8,3,4\n")
    assert read_data(path, row_names=True).names == (("7", "8"), None)
    path.write_text("t,id,a\nT,7,2\nB,8,4\n")
    table = read_data(path, row_names=True, labels="t")
    assert table.names == (("7", "8"), ("a",)) and table.labels["t"].tolist() == ["T", "B"]


def test_a_header_may_leave_the_column_of_names_out(tmp_path):
    table = text(tmp_path / "r.tsv", "a\tb\nx\t1\t2\ny\t3\tNA\n")
    assert table.names == (("x", "y"), ("a", "b"))
    np.testing.assert_array_equal(table.values, [[1, 2], [3, np.nan]])
    assert "25.0% NaN" in repr(table)


def test_blank_lines_quotes_and_marks_of_encodings(tmp_path):
    table = text(tmp_path / "q.csv", '\ufeffname,"a, b",c\n\nx,1e3,-inf\n"y ""z""", 2 ,nan\n\n,,\n')
    assert table.names == (("x", 'y "z"'), ("a, b", "c"))
    np.testing.assert_array_equal(table.values, [[1000, -np.inf], [2, np.nan]])


@given(
    st.lists(st.lists(st.floats(allow_nan=False, width=64), min_size=3, max_size=3), min_size=1, max_size=5),
    st.booleans(),
)
@settings(max_examples=30, deadline=None)
def test_every_number_survives(tmp_path_factory, rows, named):
    path = tmp_path_factory.mktemp("f") / "n.csv"
    lines = [",".join(map(repr, row)) for row in rows]
    path.write_text("\n".join(["id,a,b,c", *(f"r{i},{line}" for i, line in enumerate(lines))] if named else lines))
    np.testing.assert_array_equal(read_data(path).values, np.array(rows))


@pytest.mark.parametrize(
    "content, message",
    [
        ("a,b\n1,2\n3,x\n", r"line 3, column 2: 'x' is no number"),
        ("id,a,b\nx,1,2\ny,3,oh\n", r"line 3, column 3: 'oh' is no number"),
        ("1,2\n3\n", r"line 2: 1 cells, but the lines before have 2"),
        ("a,b,c\n1,2\n", r"the first line has 3 names, and the second 2 cells"),
        ("", r"the file is empty"),
        ("x,1,2\ny,3,4\n", r"line 1: 'x' and numbers are names of columns, or a row and its name; say header=True"),
        ("a,b\n", r"there are no numbers"),
        ("x\ny\n", r"there are no numbers"),
    ],
)
def test_bad_text_is_refused_by_line_and_column(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        text(tmp_path / "bad.csv", content)


def test_long_tables_are_sparse(tmp_path):
    path = tmp_path / "long.csv"
    path.write_text("row,column,value\nx,a,1\ny,b,2\nx,b,3\n")
    table = read_data(path, long=True)
    assert sp.issparse(table.values) and table.names == (("x", "y"), ("a", "b"))
    np.testing.assert_array_equal(table.values.toarray(), [[1, 3], [0, 2]])
    path.write_text("0,2,1,5\n1,0,0,7\n")
    cube = read_data(path, long=True)
    assert cube.values.shape == (2, 3, 2) and cube.names == (None, None, None)
    np.testing.assert_array_equal(cube.values.toarray()[0, 2], [0, 5])
    assert NTF(1, max_iter=2, tol=0, random_state=0).fit(cube.values).embedding_.shape == (2, 1)


@pytest.mark.parametrize(
    "content, message",
    [
        ("x,a,1\nx,a,2\n", "the entry at x, a is listed more than once"),
        ("x,a,1\nx,b\n", "line 2: 2 cells, but the lines before have 3"),
        ("x,a,1\nx,b,z\n", "line 2, column 3: 'z' is no number"),
        ("x,1\n", "line 1: an entry has at least two positions"),
        ("i,j,v\n", "there are no entries"),
    ],
)
def test_bad_long_tables_are_refused(tmp_path, content, message):
    path = tmp_path / "long.csv"
    path.write_text(content)
    with pytest.raises(ValueError, match=message):
        read_data(path, long=True)


def test_several_arrays_need_a_key(tmp_path):
    np.savez(tmp_path / "two.npz", A=X, B=CUBE)
    with pytest.raises(ValueError, match="holds several arrays; name one as key: 'A', 'B'"):
        read_data(tmp_path / "two.npz")
    with pytest.raises(ValueError, match="holds no 'C'"):
        read_data(tmp_path / "two.npz", key="C")
    assert read_data(tmp_path / "two.npz", key="B").values.shape == (4, 3, 2)
    scipy.io.savemat(tmp_path / "two.mat", {"A": X, "B": sp.csc_array(X), "name": "text"})
    assert sp.issparse(read_data(tmp_path / "two.mat", key="B").values)


def test_matlab_files_that_are_hdf5(tmp_path):
    """Version 7.3: dimensions in reverse, text as marked numbers, sparse matrices as groups."""
    h5py = pytest.importorskip("h5py")
    S = sp.csc_array(X)
    with h5py.File(tmp_path / "x.mat", "w", userblock_size=512) as file:
        file["cube"] = CUBE.T
        file["text"] = np.zeros((3, 1), np.uint16)
        file["text"].attrs["MATLAB_class"] = np.bytes_("char")
        group = file.create_group("sparse")
        group.attrs["MATLAB_sparse"] = np.uint64(6)
        group["data"], group["ir"], group["jc"] = S.data, S.indices.astype(np.uint64), S.indptr.astype(np.uint64)
        empty = file.create_group("empty")
        empty.attrs["MATLAB_sparse"], empty["jc"] = np.uint64(3), np.zeros(3, np.uint64)
    content = bytearray((tmp_path / "x.mat").read_bytes())
    content[:128] = b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM"
    (tmp_path / "x.mat").write_bytes(content)
    np.testing.assert_array_equal(read_data(tmp_path / "x.mat", key="cube").values, CUBE)
    np.testing.assert_array_equal(read_data(tmp_path / "x.mat", key="sparse").values.toarray(), X)
    np.testing.assert_array_equal(read_data(tmp_path / "x.mat", key="empty").values.toarray(), np.zeros((3, 2)))
    with pytest.raises(ValueError, match="holds several arrays; name one as key: 'empty', 'sparse', 'cube'"):
        read_data(tmp_path / "x.mat")


def test_what_is_no_data_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        read_data(tmp_path / "none.csv")
    (tmp_path / "x.doc").write_text("1")
    with pytest.raises(ValueError, match=r"files that end in '.doc' are not known; use .csv"):
        read_data(tmp_path / "x.doc")
    (tmp_path / "x.npy.gz").write_text("1")
    with pytest.raises(ValueError, match="unpack it first"):
        read_data(tmp_path / "x.npy.gz")
    np.save(tmp_path / "v.npy", X[0])
    with pytest.raises(ValueError, match="two dimensions at least"):
        read_data(tmp_path / "v.npy")
    np.save(tmp_path / "t.npy", np.array([["a", "b"]]))
    with pytest.raises(ValueError, match="data are numbers"):
        read_data(tmp_path / "t.npy")
    np.save(tmp_path / "c.npy", X)
    with pytest.raises(ValueError, match="long=True is for text tables"):
        read_data(tmp_path / "c.npy", long=True)
    with pytest.raises(ValueError, match=r"Object arrays cannot be loaded|memory-mapped"):
        np.save(tmp_path / "o.npy", np.array([[object()]]), allow_pickle=True)
        read_data(tmp_path / "o.npy")
    with pytest.raises(ValueError, match="3 names for dimension 1, which has length 4"):
        Table(X, (None, ("a", "b", "c")))
    with pytest.raises(ValueError, match="labels 'kind' has 2 entries for 6 rows"):
        Table(X, (None, None), {"kind": np.arange(2)})


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    (tmp_path / "x.h5").write_bytes(b"")

    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ImportError, match=r"reading it needs the package h5py; pip install h5py, or nnfactor\[files\]"):
        read_data(tmp_path / "x.h5")


def test_hdf5(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["group/X"] = X
        file["label"] = np.arange(6)
    np.testing.assert_array_equal(read_data(tmp_path / "x.h5").values, X)


@pytest.mark.parametrize("kind", ["csr_matrix", "csc_matrix", "array"])
def test_anndata(tmp_path, kind):
    """Names of observations and variables, labels, and layers, as AnnData 0.8 and later write them."""
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "x.h5ad", "w") as file:
        if kind == "array":
            file["X"] = X
        else:
            S = (sp.csr_matrix if kind == "csr_matrix" else sp.csc_matrix)(X)
            group = file.create_group("X")
            group.attrs["encoding-type"], group.attrs["shape"] = kind, X.shape
            for name in ("data", "indices", "indptr"):
                group[name] = getattr(S, name)
        file["layers/counts"] = 2 * X
        for frame, names in (("obs", ROWS), ("var", COLUMNS)):
            group = file.create_group(frame)
            group.attrs["_index"] = "id"
            group["id"] = [name.encode() for name in names]
        file["obs/size"] = np.arange(6.0)
        file["obs/celltype/codes"] = np.array([0, 1, -1, 0, 1, 1])
        file["obs/celltype/categories"] = [b"B", b"T"]
    table = read_data(tmp_path / "x.h5ad")
    found = table.values.toarray() if sp.issparse(table.values) else table.values
    np.testing.assert_array_equal(found, X)
    assert table.names == (ROWS, COLUMNS) and list(table.labels["celltype"]) == ["B", "T", None, "B", "T", "T"]
    np.testing.assert_array_equal(table.labels["size"], np.arange(6.0))
    np.testing.assert_array_equal(read_data(tmp_path / "x.h5ad", key="counts").values, 2 * X)


def test_parquet(tmp_path):
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame(X, columns=COLUMNS)
    frame.to_parquet(tmp_path / "x.parquet")
    assert read_data(tmp_path / "x.parquet").names == (None, COLUMNS)
    frame.insert(0, "sample", ROWS)
    frame.to_parquet(tmp_path / "x.parquet")
    table = read_data(tmp_path / "x.parquet")
    assert table.names == (ROWS, COLUMNS)
    frame["note"] = "text"
    frame.to_parquet(tmp_path / "x.parquet")
    with pytest.raises(ValueError, match="column 'note' holds text"):
        read_data(tmp_path / "x.parquet")


def test_zarr(tmp_path):
    zarr = pytest.importorskip("zarr")
    zarr.save_array(str(tmp_path / "x.zarr"), CUBE)
    np.testing.assert_array_equal(read_data(tmp_path / "x.zarr").values, CUBE)
    with pytest.raises(ValueError, match="holds one array, and no 'a'; leave key out"):
        read_data(tmp_path / "x.zarr", key="a")
    with pytest.raises(ValueError, match="holds no columns that labels='a' could name"):
        read_data(tmp_path / "x.zarr", labels="a")


def test_the_only_data_of_an_npz_need_no_key(tmp_path):
    X = np.arange(6.0).reshape(2, 3)
    np.savez(
        tmp_path / "named.npz", X=X, samples=np.array(["a", "b"]), classes=np.array([0, 1]), texts=np.array([["a"]])
    )
    np.testing.assert_array_equal(read_data(tmp_path / "named.npz").values, X)


def test_a_table_is_no_array(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,2\n3,4\n")
    for use in (NMF(1).fit, lambda X: select_rank(NMF(1), X, [1])):
        with pytest.raises(TypeError, match="hand in its values"):
            use(read_data(path))


def test_names_come_from_files_of_their_own(tmp_path):
    """As of 10x Genomics: genes x cells, with several cells in a line of features.tsv."""
    scipy.io.mmwrite(tmp_path / "matrix.mtx", sp.coo_array(np.arange(6.0).reshape(3, 2)))
    with gzip.open(tmp_path / "features.tsv.gz", "wt") as file:
        file.write("".join(f"ENSG{i}\tgene {i}\tGene Expression\n" for i in range(3)))
    (tmp_path / "barcodes.tsv").write_text("AAC-1\nAAG-1\n")
    (tmp_path / "heads.csv").write_text("id,symbol\n" + "".join(f"{i},S{i}\n" for i in range(3)))
    (tmp_path / "words.txt").write_text("New York, NY\nSan José\n\n")
    np.save(tmp_path / "cube.npy", np.zeros((2, 3, 4)))
    at = lambda name: str(tmp_path / name)
    read = lambda *names, file="matrix.mtx": read_data(tmp_path / file, names=names).names
    assert read(at("features.tsv.gz"), at("barcodes.tsv")) == (("ENSG0", "ENSG1", "ENSG2"), ("AAC-1", "AAG-1"))
    assert read(at("features.tsv.gz:2"), None) == (("gene 0", "gene 1", "gene 2"), None)
    assert read(at("heads.csv:symbol"), ["a", "b"]) == (("S0", "S1", "S2"), ("a", "b"))
    assert read(tmp_path / "heads.csv", None) == (("0", "1", "2"), None)
    assert read(None, at("words.txt")) == (None, ("New York, NY", "San José"))
    assert read(["x", "y"], at("heads.csv"), range(4), file="cube.npy") == (("x", "y"), ("0", "1", "2"), tuple("0123"))


@pytest.mark.parametrize(
    "names, told",
    [
        (["few.txt", None], "few.txt has 2 lines for 4 names"),
        ([None, "heads.csv:sybmol"], "no column 'sybmol'; its first line has 'id', 'symbol'"),
        ([None, "heads.csv:3"], "no column '3'"),
        ([["a"], None], "1 names for dimension 0"),
        ([None], "names has 1 entries for 2 dimensions"),
        ("few.txt", "an entry for each dimension"),
        (["absent.txt", None], "no such file"),
        (["X.npy", None], "'.npy' are not known"),
    ],
)
def test_names_that_do_not_fit_are_refused(tmp_path, monkeypatch, names, told):
    monkeypatch.chdir(tmp_path)
    np.save("X.npy", np.zeros((4, 2)))
    (tmp_path / "few.txt").write_text("a\nb\n")
    (tmp_path / "heads.csv").write_text("id,symbol\n1,a\n2,b\n")
    with pytest.raises((ValueError, FileNotFoundError), match=told):
        read_data("X.npy", names=names)
