"""Tables of results: names and numbers read back as they were written, bit for bit."""

import os

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nnfactor import NMF
from nnfactor.io import read_data, write_table

X = np.random.default_rng(0).random((3, 2)) ** 9
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5).map(str.strip)


@pytest.mark.parametrize("end", ["tsv", "csv", "tsv.gz", "csv.gz"])
@given(
    st.lists(st.lists(st.floats(width=64), min_size=2, max_size=2), min_size=1, max_size=4),
    st.lists(texts, min_size=4, max_size=4),
    st.lists(texts, min_size=2, max_size=2),
)
@settings(max_examples=40, deadline=None)
def test_all_numbers_and_names_survive(tmp_path_factory, end, rows, row_names, column_names):
    path = tmp_path_factory.mktemp("t") / f"x.{end}"
    write_table(path, rows, row_names[: len(rows)], column_names)
    table = read_data(path)
    names = [
        names if any(names) else list(map(str, range(len(names)))) for names in (row_names[: len(rows)], column_names)
    ]
    assert table.names == tuple(map(tuple, names))
    assert table.values.tobytes() == np.where(np.isnan(rows), np.nan, rows).tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.uint8, bool])
def test_digits_are_those_of_the_precision(tmp_path, dtype):
    values = (X * 100).astype(dtype)
    write_table(tmp_path / "x.tsv", values, list("abc"), ["u", "v"])
    found = read_data(tmp_path / "x.tsv").values.astype(dtype)
    assert found.tobytes() == values.tobytes()
    write_table(tmp_path / "y.tsv", np.array([[0.1]], np.float32))
    assert (tmp_path / "y.tsv").read_text() == "0.1\n"


@pytest.mark.parametrize("rows", [None, ["1", "2", "3"]])
@pytest.mark.parametrize("columns", [None, ["1990", "1991"]])
def test_names_that_are_numbers_are_told_from_data(tmp_path, rows, columns):
    write_table(tmp_path / "x.csv", X, rows, columns)
    table = read_data(tmp_path / "x.csv")
    np.testing.assert_array_equal(table.values, X)
    if rows or columns:
        assert table.names == (tuple(rows or "012"), tuple(columns or "01"))


def test_factors_of_a_model_with_the_names_of_its_data(tmp_path):
    (tmp_path / "x.tsv").write_text("id\tg1\tg2\ns1\t1\t2\ns2\t3\t4\n")
    table = read_data(tmp_path / "x.tsv")
    model = NMF(1, random_state=0).fit(torch.from_numpy(table.values))
    write_table(tmp_path / "components.tsv", model.components_, ["k1"], table.names[1])
    found = read_data(tmp_path / "components.tsv")
    assert found.names == (("k1",), ("g1", "g2")) and found.values.tobytes() == model.components_.numpy().tobytes()


def test_arrays(tmp_path):
    write_table(tmp_path / "x.npy", torch.ones(2, 3, 4))
    assert np.load(tmp_path / "x.npy").shape == (2, 3, 4)


@pytest.mark.parametrize(
    "name, values, options, message",
    [
        ("x.txt", X, {}, "tables are written as .tsv, .csv or .npy"),
        ("x.npy.gz", X, {}, "tables are written as .tsv, .csv or .npy"),
        ("x.npy", X, {"row_names": list("abc")}, "a .npy file holds no names; use .tsv or .csv"),
        ("x.tsv", X, {"row_names": list("ab")}, "row_names has 2 names, but the table has 3"),
        ("x.tsv", X, {"column_names": list("abc")}, "column_names has 3 names, but the table has 2"),
        ("x.tsv", X[0], {}, r"values have shape \(2,\); a table has rows and columns"),
        ("x.tsv", X[:0], {}, r"values have shape \(0, 2\); a table has rows and columns"),
        ("x.tsv", [["a"]], {}, "a table holds real numbers"),
        ("x.tsv", X + 1j, {}, "a table holds real numbers"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path, name, values, options, message):
    with pytest.raises(ValueError, match=message):
        write_table(tmp_path / name, values, **options)
    assert not list(tmp_path.iterdir())


def test_an_earlier_file_stays_until_the_new_one_is_complete(tmp_path, monkeypatch):
    write_table(tmp_path / "x.tsv", X)
    before = (tmp_path / "x.tsv").read_bytes()

    def full(*arguments):
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="no space"):
        write_table(tmp_path / "x.tsv", 2 * X)
    assert (tmp_path / "x.tsv").read_bytes() == before and len(list(tmp_path.iterdir())) == 1
