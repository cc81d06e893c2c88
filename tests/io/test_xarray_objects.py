"""xarray: dimensions and coordinates go in and come back."""

import numpy as np
import pytest

from nnfactor import NMF, NTD, NTF, SRC, SULF
from nnfactor.io import Table, read_data, to_xarray
from nnfactor.io.xarray_objects import table_of

xarray = pytest.importorskip("xarray")

CUBE = np.random.default_rng(0).random((5, 4, 3))
DIMS = ("time", "lat", "band")
COORDS = {"time": list("abcde"), "lat": [10.0, 20.0, 30.0, 40.0], "season": ("time", list("wssfw")), "site": "x"}


@pytest.fixture
def array():
    return xarray.DataArray(CUBE, dims=DIMS, coords=COORDS, name="light")


def test_estimators_take_arrays_of_xarray(array):
    given, plain = (NTF(2, random_state=0, max_iter=5, tol=0).fit(X) for X in (array, CUBE))
    np.testing.assert_array_equal(given.embedding_, plain.embedding_)
    np.testing.assert_array_equal(given.transform(array), plain.transform(CUBE))
    matrix = array[:, :, 0].rename(lat="columns")  # an attribute that tables of pandas have, too
    np.testing.assert_array_equal(
        NMF(1, random_state=0).fit_transform(matrix), NMF(1, random_state=0).fit_transform(CUBE[:, :, 0])
    )


def test_factors_come_back_with_dimensions_and_coordinates(array):
    model = NTF(2, random_state=0, max_iter=5, tol=0).fit(array)
    found = to_xarray(model, array)
    assert set(found.data_vars) == {"embedding", "factor_lat", "factor_band"}
    assert found.embedding.dims == ("time", "component") and found.factor_lat.dims == ("lat", "component")
    np.testing.assert_array_equal(found.embedding, model.embedding_)
    np.testing.assert_array_equal(found.factor_lat.sel(lat=20.0), model.factors_[0][1])
    assert found.season.values.tolist() == COORDS["season"][1] and found.site == "x" and found.attrs["model"] == "NTF"
    again = (found.embedding * found.factor_lat * found.factor_band).sum("component").transpose(*DIMS)
    np.testing.assert_allclose(again, model.inverse_transform(model.embedding_))


def test_new_samples_bring_their_embedding(array):
    model = NTF(2, random_state=0, max_iter=5, tol=0).fit(array)
    new = array[:2]
    found = to_xarray(model, new, model.transform(new))
    assert found.embedding.sizes == {"time": 2, "component": 2} and found.time.values.tolist() == ["a", "b"]
    with pytest.raises(ValueError, match=r"has factors of \(5, 4, 3\) rows; hand in the embedding of these samples"):
        to_xarray(model, new)


def test_a_core_has_components_of_every_dimension(array):
    model = NTD((2, 3, 1), random_state=0, max_iter=5, tol=0).fit(array)
    found = to_xarray(model, array)
    assert found.core.sizes == {"component_time": 2, "component_lat": 3, "component_band": 1}
    assert found.factor_lat.dims == ("lat", "component_lat")
    again = xarray.dot(found.core, found.embedding, found.factor_lat, found.factor_band).transpose(*DIMS)
    np.testing.assert_allclose(again, model.inverse_transform(model.embedding_))


def test_tables_have_dimensions_as_well(tmp_path, array):
    table = Table(CUBE[:, :, 0], (tuple("abcde"), None))
    found = to_xarray(NMF(2, random_state=0).fit(table.values), table)
    assert found.embedding.dims == ("sample", "component") and found.sample.values.tolist() == list("abcde")
    (tmp_path / "long.csv").write_text("user,film,tag,n\nu1,f1,t1,1\nu2,f2,t1,2\nu2,f1,t2,2\n")
    table = read_data(tmp_path / "long.csv", long=True)
    assert table.dims == ("user", "film", "tag") and "names of user and film and tag" in repr(table)
    found = to_xarray(NTF(1, random_state=0).fit(table.values), table)
    assert found.factor_film.dims == ("film", "component") and found.film.values.tolist() == ["f1", "f2"]


@pytest.mark.parametrize("engine", ["h5netcdf", "scipy"])
def test_netcdf(tmp_path, array, engine):
    pytest.importorskip("h5netcdf" if engine == "h5netcdf" else "scipy")
    array.to_netcdf(tmp_path / "x.nc", engine=engine)
    table = read_data(tmp_path / "x.nc")
    np.testing.assert_array_equal(table.values, CUBE)
    assert table.dims == DIMS and table.names == (tuple("abcde"), ("10.0", "20.0", "30.0", "40.0"), None)
    assert table.labels["season"].tolist() == COORDS["season"][1]
    assert read_data(tmp_path / "x.nc", labels="season").labels["season"].tolist() == COORDS["season"][1]
    with pytest.raises(ValueError, match="has no column 'seasons'; labels= takes one of 'season'"):
        read_data(tmp_path / "x.nc", labels="seasons")
    xarray.Dataset({"a": array, "b": array}).to_netcdf(tmp_path / "two.nc", engine=engine)
    with pytest.raises(ValueError, match="holds several arrays; name one as key: 'a', 'b'"):
        read_data(tmp_path / "two.nc")
    assert read_data(tmp_path / "two.nc", key="b").values.shape == (5, 4, 3)
    to_xarray(NTF(1, random_state=0).fit(array), array).to_netcdf(tmp_path / "r.nc", engine=engine)
    assert read_data(tmp_path / "r.nc", key="factor_lat").names[0] == ("10.0", "20.0", "30.0", "40.0")


def test_dates_are_names_and_labels(array):
    days = np.array(["2020-01-01", "2020-01-02"], dtype="datetime64[ns]")
    A = xarray.DataArray(
        CUBE[:2, :, 0], dims=("day", "lat"), coords={"day": days, "next": ("day", days + np.timedelta64(1, "ns"))}
    )
    table = table_of(A)
    assert table.names[0][0].startswith("2020-01-01") and table.labels["next"].dtype == object


def test_what_has_no_place_is_refused(array):
    model = NTF(2, random_state=0, max_iter=1, tol=0).fit(array)
    with pytest.raises(TypeError, match=r"X is a ndarray; to_xarray takes an xarray.DataArray or a Table"):
        to_xarray(model, CUBE)
    with pytest.raises(ValueError, match="X has a dimension or coordinate 'component'"):
        to_xarray(model, array.rename(band="component"))
    with pytest.raises(
        ValueError, match=r"X has shape \(5, 3, 4\), but NTF has factors of \(5, 4, 3\) rows; X must be"
    ):
        to_xarray(model, array.transpose("time", "band", "lat"))
    views = SULF(2, random_state=0, max_iter=1, tol=0).fit([CUBE[:, :, 0], CUBE[:, :, 1]], [0, 1, 0, 1, -1])
    with pytest.raises(ValueError, match=r"SULF has factors of \(5, 4, 4\) rows"):
        to_xarray(views, array[:, :, 0])
    with pytest.raises(TypeError, match="SRC has no embedding_ and factors_"):
        to_xarray(SRC().fit(CUBE[:, :, 0], [0, 1, 0, 1, 0]), array[:, :, 0])
