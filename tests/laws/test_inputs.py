"""What estimators read, and what they refuse by name: masks, text, dates, formats, devices, dtypes."""

import datetime

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from estimators import MATRIX, SUPERVISED, blocks, labels

from nnfactor import (
    NMF,
    NTF,
    SULF,
    HarmonicFunction,
    PairwiseCoRegularizedSpectral,
    batch_fit,
    graphs,
    kernels,
    metrics,
)
from nnfactor.core import as_data, as_graph

X, Y = blocks(24), labels(24)
ALL = {**MATRIX, **SUPERVISED, "PairwiseCoRegularizedSpectral": lambda **kw: PairwiseCoRegularizedSpectral(2, **kw)}
ONE_A_CLASS = {type(make()).__name__: make for make in ALL.values()}
every_estimator = pytest.mark.parametrize("key", ONE_A_CLASS)


def make(key, **settings):
    estimator = ONE_A_CLASS[key](**settings)
    known, quick = estimator.get_params(), {"random_state": 0, "max_iter": 20, "tol": 0, "n_init": 1}
    return estimator.set_params(**{name: value for name, value in quick.items() if {name, "max_iter"} <= set(known)})


def masked(values, where=(3, 1)):
    hidden = np.zeros(np.shape(values), dtype=bool)
    hidden[where] = True
    return np.ma.masked_array(values, hidden)


class TestMaskedArrays:
    @every_estimator
    def test_a_mask_that_hides_something_is_refused_and_another_is_fine(self, key):
        with pytest.raises(ValueError, match=r"masked array with 1 masked entry.*X\.filled\(0\)"):
            make(key).fit(masked(X), Y)
        with pytest.raises(ValueError, match="2 masked entries"):
            make(key).fit([masked(row, 1) if i < 2 else row for i, row in enumerate(X)], Y)
        fine = make(key).fit(np.ma.masked_array(X), Y)
        expected = make(key).fit(X, Y)
        for method in ("transform", "predict"):
            if hasattr(fine, method) and key not in ("CoTraining",):
                assert np.array_equal(getattr(fine, method)(np.ma.masked_array(X)), getattr(expected, method)(X))
                with pytest.raises(ValueError, match="masked"):
                    getattr(fine, method)(masked(X))

    @every_estimator
    def test_a_masked_label_is_none(self, key):
        a, b = make(key).fit(X, masked(Y, 5)), make(key).fit(X, np.where(np.arange(24) == 5, -1, Y))
        for method in ("transform", "predict"):
            if hasattr(a, method):
                assert np.array_equal(getattr(a, method)(X), getattr(b, method)(X))

    def test_everything_else_that_is_read_refuses_a_mask(self):
        cube, S = blocks(12, 24).reshape(12, 4, 6), X @ X.T
        V, U = np.ones((24, 2)), np.ones((8, 2))
        cases = {
            "tensor": lambda: NTF(2).fit(masked(cube, (1, 2, 3))),
            "init": lambda: NMF(2, init=(masked(V), U)).fit(X),
            "a stream": lambda: NMF(2).partial_fit(masked(X)),
            "graph": lambda: HarmonicFunction(graph=masked(S)).fit(X, Y),
            "view": lambda: SULF(2).fit([X, masked(X)], Y),
            "view weights": lambda: SULF(2, view_weights=masked([1.0, 1.0], 1)).fit([X, X], Y),
            "coef_init": lambda: SULF(3, coef_init=masked(np.ones((3, 3)), (0, 1))).fit(X, Y),
            "sigma": lambda: HarmonicFunction(sigma=masked(np.ones(8), 1)).fit(X, Y),
            "knn": lambda: graphs.knn_graph(masked(X)),
            "adjacency": lambda: graphs.adjacency_graph(masked(S)),
            "as_graph": lambda: as_graph(masked(S)),
            "kernel": lambda: kernels.rbf(masked(X)),
            "data": lambda: as_data(masked(X)),
            "metric": lambda: metrics.hoyer_sparsity(masked(X)),
            "labellings": lambda: metrics.clustering_accuracy(masked(Y, 1), Y),
            "pixels": lambda: NMF(2).fit(graphs.pixels(masked(cube, (1, 2, 3)))),
        }
        for name, case in cases.items():
            with pytest.raises(ValueError, match="masked"):
                case()
                pytest.fail(name)

    def test_a_mask_behind_the_array_protocol_counts(self):
        class Variable:  # as libraries for files of measurements give it
            def __array__(self, dtype=None, copy=None):
                return masked(X)

        with pytest.raises(ValueError, match="masked"):
            NMF(2).fit(Variable())


TEXT = {
    "str": X.astype(str),
    "bytes": X.astype(bytes),
    "objects": np.where(X > 1, X.astype(str), X).astype(object),
    "one string": np.array([[*X[0, :-1], "7"], *X[1:].tolist()], dtype=object),
    "datetime64": X.astype("M8[s]"),
    "timedelta64": X.astype("m8[s]"),
    "dates": np.full(X.shape, datetime.date(2020, 1, 2)),
    "list": [[str(x) for x in row] for row in X],
}


class TestTextAndDates:
    @every_estimator
    @pytest.mark.parametrize("kind", TEXT)
    def test_they_are_refused(self, key, kind):
        with pytest.raises(ValueError, match="must hold real numbers"):
            make(key).fit(TEXT[kind], Y)

    @every_estimator
    def test_a_column_of_a_frame_is_named(self, key):
        frame = pd.DataFrame(X, columns=[f"g{j}" for j in range(8)])
        for column in (["7"] * 24, pd.Categorical(["7"] * 24), pd.to_datetime(["2020-01-01"] * 24)):
            with pytest.raises(ValueError, match=r"column 'city'.*must hold real numbers"):
                make(key).fit(frame.assign(city=column), Y)
        make(key).fit(frame.assign(size=pd.Categorical(np.arange(24) % 3)), Y)

    def test_core_and_public_functions_refuse_them_as_well(self):
        for read in (as_data, graphs.knn_graph, kernels.rbf, metrics.hoyer_sparsity):
            for kind in TEXT:
                with pytest.raises(ValueError, match="must hold real numbers"):
                    read(TEXT[kind])

    def test_objects_that_are_numbers_are_read(self):
        assert as_data(X.astype(object)).dtype == torch.float64
        for key in ("NMF", "KernelNMF", "HarmonicFunction"):
            make(key).fit(X.astype(object), Y)


class TestWhatIsNoMatrix:
    @every_estimator
    def test_the_kind_is_named(self, key):
        for given, told in ((None, "X is None"), ({"a": X}, "X is a dict"), ((row for row in X), "X is a generator")):
            with pytest.raises(ValueError, match=told):
                make(key).fit(given, Y)

    def test_views_in_one_array_are_told_to_become_a_list(self):
        with pytest.raises(ValueError, match=r"list\(X\)"):
            SULF(2).fit(np.stack([X, X]), Y)

    def test_repeated_columns_are_named(self):
        with pytest.raises(ValueError, match="several columns called 'a'"):
            NMF(2).fit(pd.DataFrame(X, columns=list("abcdefga")))

    def test_batch_fit_takes_a_list(self):
        with pytest.raises(ValueError, match="estimators must be a list"):
            batch_fit(NMF(2), X)


class TestFormats:
    @every_estimator
    @pytest.mark.parametrize("kind", ["lil", "dok", "bsr", "dia"])
    def test_sparse_formats_are_converted(self, key, kind):
        D = X * (np.quantile(X, 0.2) < X)
        S = sp.csr_array(D)
        a, b = make(key).fit(S, Y), make(key).fit(S.asformat(kind), Y)
        for method in ("transform", "predict"):
            if hasattr(a, method):  # blocks store zeros, whose products are in another order
                np.testing.assert_allclose(getattr(a, method)(S), getattr(b, method)(S.asformat(kind)), atol=1e-9)

    def test_functions_convert_them_too(self):
        for kind in ("lil", "dok", "bsr", "dia"):
            S = sp.csr_array(X).asformat(kind)
            assert as_data(S).shape == X.shape
            assert graphs.knn_graph(S, 2).n_nodes == 24

    @every_estimator
    def test_half_precision_becomes_float32(self, key):
        for half in (X.astype(np.float16), pd.DataFrame(X.astype(np.float16))):
            assert make(key).fit(half, Y).fit_info_["dtype"] == "float32"


class TestDevicesAndDtypes:
    @every_estimator
    def test_a_device_that_is_not_there(self, key):
        for device in ("mps", "xpu", "meta", "nonsense", 3.5):
            with pytest.raises(ValueError, match=f"device={device!r}"):
                make(key, device=device).fit(X, Y)
        with pytest.raises(ValueError, match="meta device"):
            make(key).fit(torch.ones(24, 8, device="meta"), Y)

    @every_estimator
    def test_dtypes_by_any_name(self, key):
        for dtype in ("f4", "float32", np.float32, np.dtype("f4"), torch.float32):
            assert make(key, dtype=dtype).fit(X, Y).fit_info_["dtype"] == "float32"
        for dtype in (None, 3.5, "f2", "int64", int, "nonsense", []):
            with pytest.raises(ValueError, match=r"dtype=.* is not supported; use 'auto', 'float32' or 'float64'"):
                make(key, dtype=dtype).fit(X, Y)
