"""Labels: in a file of their own or inside a table, in whatever order, they end up beside their samples."""

import gzip
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from nnfactor import NGE, io
from nnfactor.io import model_files, read_data, read_labels
from nnfactor.io.labels import as_labels

NAMES = ("a", "b", "c", "d")


@pytest.mark.parametrize(
    "given, wanted",
    [
        (["1", "2", "", "-1"], [1, 2, -1, -1]),
        (["1.0", "NaN", "2.0", "07"], [1, -1, 2, 7]),
        (["9007199254740993", "1"], [9007199254740993, 1]),
        (["B", "T", "", "NA"], ["B", "T", None, None]),
        (["1", "x", "-1"], ["1", "x", None]),
        (["1_2", "3"], ["1_2", "3"]),
        (["123456789012345678901", "3"], ["123456789012345678901", "3"]),
        (["", "NA"], [-1, -1]),
        (np.array([1.0, np.nan, 3.0], np.float32), [1, -1, 3]),
        (np.array([1, 255], np.uint8), [1, 255]),
        (np.array([True, False]), [True, False]),
        (np.array(["x ", "nan"]), ["x", None]),
        (np.array([b"x", b"y"]), ["x", "y"]),
        (np.array([3, None, float("nan"), pd.NA], dtype=object), [3, -1, -1, -1]),
        (np.array(["u", None, pd.NaT], dtype=object), ["u", None, None]),
    ],
)
def test_labels_are_what_estimators_take(given, wanted):
    found = as_labels(given, "y")
    assert found.tolist() == wanted
    assert found.dtype == (object if isinstance(wanted[0], str) else bool if isinstance(wanted[0], bool) else np.int64)


@pytest.mark.parametrize("end", ["txt", "txt.gz", "csv", "npy", "npz", "named.csv", "named.tsv", "parquet", "h5ad"])
def test_labels_of_every_kind_of_file(tmp_path, end):
    """Tables with names are in another order than the data."""
    path = tmp_path / f"y.{end}"
    labels = ["T", None, "B", "T"]
    shuffled = pd.DataFrame({"type": ["B", "T", "T"]}, index=pd.Index(["c", "d", "a"], name="cell"))
    match end:
        case "txt":
            path.write_text("T\n\nB\nT\n")
        case "txt.gz":
            path.write_bytes(gzip.compress(b"T\nNA\nB\nT"))
        case "csv":
            path.write_text("type\nT\n\nB\nT\n")
        case "npy":
            np.save(path, np.array(["T", "", "B", "T"]))
        case "npz":
            np.savez(path, type=np.array(["T", "", "B", "T"])[:, None], other=np.arange(3))
        case "named.csv":
            shuffled.assign(other=1).to_csv(path)
        case "named.tsv":
            shuffled.to_csv(path, sep="\t")
        case "parquet":
            pytest.importorskip("pyarrow")
            shuffled.to_parquet(path)
        case "h5ad":
            write_obs(path, ["c", "d", "a", "b"], ["B", "T", "T", ""])
    column = "type" if end in ("npz", "named.csv") else None
    assert read_labels(path, NAMES, column).tolist() == labels
    if end in ("txt", "csv", "npy"):
        assert read_labels(path, n_samples=4).tolist() == labels


def write_obs(path, names, labels):
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        for frame, index in (("obs", names), ("var", ["g"])):
            group = file.create_group(frame)
            group.attrs["_index"] = "id"
            group["id"] = [name.encode() for name in index]
        file["obs/type"] = [label.encode() for label in labels]
        file["X"] = np.ones((len(names), 1))


@pytest.mark.parametrize(
    "name, content, options, message",
    [
        ("y.txt", "1\n2\n", {"names": NAMES}, r"y.txt: 2 labels for 4 samples; each sample has one$"),
        (
            "y.txt",
            "type\n1\n2\n",
            {"n_samples": 2},
            r"3 labels for 2 samples; each sample has one; is the first line a",
        ),
        ("y.txt", "1\n2.5\n", {}, r"y.txt, line 2: 2.5 is no label; labels are whole numbers or text"),
        ("y.txt", "a\t1\n", {}, r"line 1: one label in each line, got several cells; save the table as .tsv"),
        ("y.txt", "1\n", {"column": "type"}, r"column='type' is for tables; a .txt file has one label in each line"),
        ("y.csv", "id,t\na,1\nx,2\n", {"names": NAMES}, r"column 't', line 3: 'x' is no sample of the data, which are"),
        ("y.csv", "id,t\na,1\nb,0\na,2\n", {"names": NAMES}, r"line 4: sample 'a' has a label in line 2 already"),
        ("y.csv", "id,t,u\na,1,2\n", {}, r"has several columns; name one as column: 't', 'u'"),
        ("y.csv", "id,type,u\na,1,2\n", {"column": "typ"}, r"has no column 'typ'; column= takes one of 'type'"),
        ("y.csv", "id,t,t\na,1,2\n", {"column": "t"}, r"has 2 columns 't'"),
        ("y.csv", "id,t\na,1\nb\n", {}, r"line 3: 1 cells, but the lines before have 2"),
        ("y.csv", "a,1\nb,2\n", {"names": NAMES}, r"line 1: 'a' is a sample, but that line holds the names"),
        ("y.csv", "id,t\na,1\n", {"names": ["a", "a"]}, r"the data have several samples called 'a'; names must differ"),
        ("y.csv", "id,t\na,1\n", {"n_samples": 3}, r"column 't': 1 labels for 3 samples"),
        ("y.csv", "id,t\na,0.5\n", {"names": NAMES}, r"column 't', line 2: 0.5 is no label"),
        ("y.csv", "id;t\na;1\n", {}, r"line 1: cells are separated by ';', but in a .csv file by ','"),
        (
            "y.csv",
            "t\n1\n2\n",
            {},
            r"3 lines for an unknown number of samples; is 't' in line 1 a label or a heading\?",
        ),
        ("y.csv", "t\n1\n2\n", {"column": "u"}, r"has no column 'u'; its first line is 't'"),
        ("y.csv", "", {}, r"the file is empty"),
        ("y.mtx", "", {}, r"files that end in '.mtx' are not known; use .txt"),
    ],
)
def test_labels_that_are_not_clear_are_refused(tmp_path, name, content, options, message):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(ValueError, match=message) as refused:
        read_labels(path, **options)
    assert "\n" not in str(refused.value) and str(refused.value).startswith(str(path))


def test_arrays_that_are_no_labels_are_refused(tmp_path):
    np.save(tmp_path / "y.npy", np.eye(2))
    with pytest.raises(ValueError, match=r"has shape \(2, 2\); labels are one number or text for each sample"):
        read_labels(tmp_path / "y.npy")
    np.save(tmp_path / "y.npy", np.array(["2020-01-01"], dtype="datetime64[D]"))
    with pytest.raises(ValueError, match=r"holds datetime64\[D\]; labels are whole numbers or text"):
        read_labels(tmp_path / "y.npy")
    np.savez(tmp_path / "y.npz", a=[1], b=[2])
    with pytest.raises(ValueError, match=r"holds several arrays; name one as column: 'a', 'b'"):
        read_labels(tmp_path / "y.npz")
    with pytest.raises(ValueError, match="3 stands among text; use labels of one kind"):
        as_labels(np.array(["x", 3], dtype=object), "y")
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        read_labels(tmp_path / "none.txt")


@pytest.mark.parametrize("end", ["csv", "tsv", "txt", "csv.gz", "parquet"])
@pytest.mark.parametrize("at", [0, 1, 3])
def test_a_column_of_labels_is_taken_out_of_a_table(tmp_path, end, at):
    frame = pd.DataFrame({"cell": list("abc"), "g1": [1.0, 2, 3], "g2": [0.5, 0, 4]})
    frame.insert(at, "type", ["T", None, "B"])
    path = tmp_path / f"x.{end}"
    if end == "parquet":
        pytest.importorskip("pyarrow")
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False, sep="," if "csv" in end else "\t")
    table = read_data(path, labels="type")
    assert table.labels["type"].tolist() == ["T", None, "B"] and "labels 'type'" in repr(table)
    assert table.names == (tuple("abc"), ("g1", "g2"))
    np.testing.assert_array_equal(table.values, [[1, 0.5], [2, 0], [3, 4]])


def test_labels_of_tables_that_leave_names_out(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("g1,type,g2\nr,1,T,2\ns,3,B,4\n")  # no head over the names of rows
    table = read_data(path, labels="type")
    assert table.names == (("r", "s"), ("g1", "g2")) and table.labels["type"].tolist() == ["T", "B"]
    path.write_text("year,day,g\n1990,1,2\n1991,2,4\n")  # several columns, and no names of rows
    table = read_data(path, labels=["year", "day"])
    assert table.names == (None, ("g",)) and table.labels["year"].tolist() == [1990, 1991]
    np.testing.assert_array_equal(table.values, [[2], [4]])


def test_names_with_underscores_are_no_numbers(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("id,g\n1_1,5\n1_2,6\n")
    assert read_data(path).names == (("1_1", "1_2"), ("g",))
    path.write_text("g,h\n1_000,5\n")
    assert read_data(path).names[0] == ("1_000",)
    path.write_text("g,h\n5,1_000\n")
    with pytest.raises(ValueError, match="line 2, column 2: '1_000' is no number"):
        read_data(path)


def test_a_fit_with_labels_of_a_file(tmp_path):
    path = tmp_path / "x.tsv"
    X = np.random.default_rng(0).random((8, 3))
    pd.DataFrame(X, columns=list("xyz")).assign(kind=["u", "v", None, "u"] * 2).to_csv(path, sep="\t", index=False)
    table = read_data(path, labels="kind")
    model = NGE(2, max_iter=3, tol=0, random_state=0).fit(table.values, table.labels["kind"])
    assert model.classes_.tolist() == ["u", "v"]


def test_reading_data_needs_no_torch():
    code = (
        "import sys, nnfactor.io.data_files, nnfactor.io as io; assert io.read_data and 'save' in dir(io)\n"
        "assert not {'torch', 'sklearn', 'pandas', 'h5py', 'xarray', 'anndata', 'zarr'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert io.load is model_files.load and io.save is model_files.save
    with pytest.raises(AttributeError, match="has no attribute 'lode'"):
        io.lode
