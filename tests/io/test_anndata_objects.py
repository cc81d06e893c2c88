"""AnnData: results stand where scanpy looks for them, in objects and in files."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from nnfactor import NGE, NMF, NTF
from nnfactor.io import fit_anndata, read_blocks, read_data, read_labels, store_anndata, write_h5ad_results
from nnfactor.version import VERSION

h5py = pytest.importorskip("h5py")

pytestmark = pytest.mark.filterwarnings("ignore:The 'future.infer_string' option")  # anndata 0.12 asks pandas 3 for it

X = np.random.default_rng(0).poisson(1.0, (6, 4)).astype(np.float32) + np.eye(6, 4, dtype=np.float32)
ROWS, COLUMNS = tuple(f"s{i}" for i in range(6)), tuple(f"g{j}" for j in range(4))
TYPES = ["T", "B", None, "T", "B", "T"]


def fitted(**given):
    return NMF(2, random_state=0, max_iter=5, tol=0, **given)


class Observations:
    """What an AnnData object offers, for where its package is missing."""

    def __init__(self, X):
        self.X, self.layers, self.obsm, self.varm, self.uns = X, {"counts": 2 * X}, {}, {}, {}
        self.obs = pd.DataFrame({"type": pd.Categorical(TYPES)}, index=ROWS)
        self.n_obs, self.n_vars = X.shape


@pytest.fixture(params=["stand-in", "anndata"])
def adata(request):
    if request.param == "stand-in":
        return Observations(X)
    anndata = pytest.importorskip("anndata", reason="the package anndata is not installed")
    var = pd.DataFrame(index=list(COLUMNS))
    obs = pd.DataFrame({"type": pd.Categorical(TYPES)}, index=list(ROWS))
    return anndata.AnnData(sp.csr_matrix(X), obs=obs, var=var, layers={"counts": 2 * X})


def test_results_are_in_their_places(adata):
    model = fit_anndata(fitted(), adata)
    np.testing.assert_array_equal(adata.obsm["X_nmf"], model.embedding_)
    np.testing.assert_array_equal(adata.varm["NMF"], model.components_.T)
    about = adata.uns["nnfactor"]["nmf"]
    assert about["model"] == "NMF" and about["version"] == VERSION and about["n_iter"] == 5
    assert about["params"]["n_components"] == 2 and "callback" not in about["params"]
    reference = fitted().fit(sp.csr_array(X))
    np.testing.assert_allclose(model.components_, reference.components_, rtol=1e-4, atol=1e-6)


def test_layers_labels_and_keys(adata):
    model = fit_anndata(NGE(2, random_state=0, max_iter=3, tol=0), adata, layer="counts", labels="type", key="nge")
    assert model.classes_.tolist() == ["B", "T"] and set(adata.uns["nnfactor"]) == {"nge"}
    store_anndata(adata, fitted().fit(X))
    assert set(adata.obsm.keys()) == {"X_nge", "X_nmf"} and set(adata.uns["nnfactor"]) == {"nge", "nmf"}
    assert set(adata.varm.keys()) == {"NGE", "NMF"}


def test_what_is_not_there_is_refused_and_nothing_changes(adata):
    with pytest.raises(ValueError, match="adata has no 'count' in layers; use one of 'counts'"):
        fit_anndata(fitted(), adata, layer="count")
    with pytest.raises(ValueError, match="adata has no 'typ' in obs; use one of 'type'"):
        fit_anndata(fitted(), adata, labels="typ")
    with pytest.raises(
        ValueError, match=r"adata has 6 observations and 4 variables, but NMF was fitted to data of 5 x 4"
    ):
        store_anndata(adata, fitted().fit(X[:5]))
    with pytest.raises(ValueError, match=r"but NTF was fitted to data of 6 x 2 x 2"):
        store_anndata(adata, NTF(1, random_state=0).fit(X.reshape(6, 2, 2)))
    with pytest.raises(TypeError, match="NMF has no embedding_ and factors_; fit it"):
        store_anndata(adata, fitted())
    assert not adata.obsm and not adata.varm and not adata.uns


def write_plain(path):
    """An AnnData file by hand, with results of others in it."""
    with h5py.File(path, "w") as file:
        file.attrs["encoding-type"], file.attrs["encoding-version"] = "anndata", "0.1.0"
        file["X"] = X
        file["X"].attrs["encoding-type"], file["X"].attrs["encoding-version"] = "array", "0.2.0"
        for frame, names in (("obs", ROWS), ("var", COLUMNS)):
            group = file.create_group(frame)
            group.attrs["encoding-type"], group.attrs["encoding-version"] = "dataframe", "0.2.0"
            group.attrs["_index"], group.attrs["column-order"] = "id", np.array([], dtype=h5py.string_dtype())
            group["id"] = [name.encode() for name in names]
            group["id"].attrs["encoding-type"], group["id"].attrs["encoding-version"] = "string-array", "0.2.0"
        file["obsm/X_pca"] = X[:, :2]
        file["obsm/X_pca"].attrs["encoding-type"], file["obsm/X_pca"].attrs["encoding-version"] = "array", "0.2.0"


@pytest.mark.parametrize("torch", [False, True])
def test_results_are_written_without_the_package(tmp_path, torch):
    write_plain(tmp_path / "in.h5ad")
    before = (tmp_path / "in.h5ad").read_bytes()
    model = fitted(init="random").fit(pytest.importorskip("torch").from_numpy(X) if torch else X)
    for _ in range(2):  # an existing file is replaced
        write_h5ad_results(tmp_path / "in.h5ad", tmp_path / "out.h5ad", model)
    assert (tmp_path / "in.h5ad").read_bytes() == before and len(list(tmp_path.iterdir())) == 2
    with h5py.File(tmp_path / "out.h5ad") as file:
        np.testing.assert_array_equal(file["obsm/X_nmf"][()], np.asarray(model.embedding_))
        np.testing.assert_array_equal(file["varm/NMF"][()], np.asarray(model.components_).T)
        assert file["uns/nnfactor/nmf/model"][()] == b"NMF" and "X_pca" in file["obsm"]
    write_h5ad_results(tmp_path / "out.h5ad", tmp_path / "again.h5ad", model)  # results under the same key are replaced
    anndata = pytest.importorskip("anndata", reason="the package anndata is not installed")
    adata = anndata.read_h5ad(tmp_path / "again.h5ad")
    np.testing.assert_array_equal(adata.obsm["X_nmf"], np.asarray(model.embedding_))
    np.testing.assert_array_equal(adata.varm["NMF"], np.asarray(model.components_).T)
    about = adata.uns["nnfactor"]["nmf"]
    assert about["params"]["init"] == "random" and about["loss"] == model.loss_ and about["converged"] == False  # noqa: E712
    assert about["params"]["n_components"] == 2 and adata.obs_names.tolist() == list(ROWS)


@pytest.mark.parametrize("end", ["h5ad", "zarr"])
def test_files_of_the_package_are_read(tmp_path, end):
    """Categories, nullable columns and text as AnnData writes them, names that pandas holds in another way."""
    anndata = pytest.importorskip("anndata", reason="the package anndata is not installed")
    if hasattr(anndata.settings, "allow_write_nullable_strings"):
        anndata.settings.allow_write_nullable_strings = True
    obs = pd.DataFrame(
        {
            "type": pd.Categorical(TYPES),
            "code": pd.array([1, 2, None, 1, 2, 1], dtype="Int64"),
            "group": pd.Categorical([3, 4, 3, 4, 3, 4]),
            "name": list("uvwuvw"),
            "size": np.arange(6.0),
        },
        index=list(ROWS),
    )
    adata = anndata.AnnData(sp.csr_matrix(X), obs=obs, var=pd.DataFrame(index=list(COLUMNS)))
    fit_anndata(fitted(), adata)
    path = tmp_path / f"x.{end}"
    if end == "zarr":
        pytest.importorskip("zarr")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what the next version of anndata writes
        (adata.write_h5ad if end == "h5ad" else adata.write_zarr)(path)
    table = read_data(path)
    np.testing.assert_array_equal(table.values.toarray(), X)
    assert table.names == (ROWS, COLUMNS) and table.labels["type"].tolist() == TYPES
    wanted = {"code": [1, 2, -1, 1, 2, 1], "group": [3, 4, 3, 4, 3, 4], "name": list("uvwuvw"), "type": TYPES}
    for name, labels in wanted.items():
        assert read_labels(path, column=name).tolist() == labels
        assert read_data(path, labels=name).labels[name].tolist() == labels
    assert read_labels(path, ROWS[::-1], "type").tolist() == TYPES[::-1]
    blocks = list(read_blocks(path, 4, labels="type"))
    assert blocks[1].labels["type"].tolist() == TYPES[4:] and blocks[1].names == (ROWS[4:], COLUMNS)
    np.testing.assert_array_equal(np.concatenate([block.values.toarray() for block in blocks]), X)
    if end == "zarr":
        return
    assert anndata.read_h5ad(path).uns["nnfactor"]["nmf"]["model"] == "NMF"
    backed = anndata.read_h5ad(path, backed="r")
    fit_anndata(fitted(), backed, key="again")
    np.testing.assert_array_equal(backed.obsm["X_again"], adata.obsm["X_nmf"])
    backed.file.close()


def test_files_that_do_not_fit_are_refused(tmp_path):
    write_plain(tmp_path / "in.h5ad")
    with pytest.raises(ValueError, match=r"has 6 observations and 4 variables, but NMF was fitted to data of 5 x 4"):
        write_h5ad_results(tmp_path / "in.h5ad", tmp_path / "out.h5ad", fitted().fit(X[:5]))
    with pytest.raises(ValueError, match="is path_in, which stays as it is"):
        write_h5ad_results(tmp_path / "in.h5ad", tmp_path / "in.h5ad", fitted().fit(X))
    with pytest.raises(FileNotFoundError):
        write_h5ad_results(tmp_path / "in.h5ad", tmp_path / "nowhere" / "out.h5ad", fitted().fit(X))
    (tmp_path / "bad.h5ad").write_bytes(b"no HDF5")
    with pytest.raises(ValueError, match=r"bad.h5ad is damaged, truncated or no .h5ad file"):
        write_h5ad_results(tmp_path / "bad.h5ad", tmp_path / "out.h5ad", fitted().fit(X))
    assert {path.name for path in tmp_path.iterdir()} == {"in.h5ad", "bad.h5ad"}
