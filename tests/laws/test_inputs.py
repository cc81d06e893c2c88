"""What estimators read, and what they refuse by name: masks, text, dates, formats, devices, dtypes."""

import copy
import datetime
import inspect
import pickle
import re
import sys
from collections import namedtuple

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from estimators import MATRIX, SUPERVISED, blocks, labels
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import nnfactor
from nnfactor import (
    NMF,
    NTF,
    SULF,
    CoTraining,
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
FACTORIZATIONS = {type(make()).__name__ for make in MATRIX.values()}
Start = namedtuple("Start", ["V", "U"])
CoreStart = namedtuple("CoreStart", ["V", "U", "core"])
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
        hides = hasattr(make(key), "missing")
        if not hides:
            with pytest.raises(ValueError, match=r"masked array with 1 masked entry.*X\.filled\(0\)"):
                make(key).fit(masked(X), Y)
        with pytest.raises(ValueError, match="2 masked entries"):
            make(key).fit([masked(row, 1) if i < 2 else row for i, row in enumerate(X)], Y)
        fine = make(key).fit(np.ma.masked_array(X), Y)
        expected = make(key).fit(X, Y)
        for method in ("transform", "predict"):
            if hasattr(fine, method) and key not in ("CoTraining",):
                assert np.array_equal(getattr(fine, method)(np.ma.masked_array(X)), getattr(expected, method)(X))
                if not hides:
                    with pytest.raises(ValueError, match="masked"):
                        getattr(fine, method)(masked(X))

    @every_estimator
    def test_a_masked_label_is_none(self, key):
        a, b = make(key).fit(X, masked(Y, 5)), make(key).fit(X, np.where(np.arange(24) == 5, -1, Y))
        for method in ("transform", "predict"):
            if hasattr(a, method):
                assert np.array_equal(getattr(a, method)(X), getattr(b, method)(X))

    def test_everything_else_that_is_read_refuses_a_mask(self):
        S = X @ X.T
        V, U = np.ones((24, 2)), np.ones((8, 2))
        cases = {
            "init": lambda: NMF(2, init=(masked(V), U)).fit(X),
            "graph": lambda: HarmonicFunction(graph=masked(S)).fit(X, Y),
            "view": lambda: CoTraining().fit([X, masked(X)], Y),
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


class TestParameters:
    def test_names_of_losses(self):
        counts = np.random.default_rng(0).poisson(3.0, (12, 6)) + 1.0
        for name, beta in (("kl", 1), ("kullback-leibler", 1.0), ("itakura-saito", 0), ("frobenius", 2)):
            for k in (NMF, NTF):
                a, b = (k(2, loss=loss, random_state=0, max_iter=20, tol=0).fit(counts) for loss in (name, beta))
                assert a.loss_ == b.loss_
        assert NMF(2, loss="kl", batch_size=5, random_state=0, max_iter=2, tol=0).fit(counts).n_steps_ == 6
        assert NMF(2, loss="kl", random_state=0).partial_fit(counts).n_steps_ == 1
        with pytest.raises(ValueError, match="'itakura-saito' with data of 2 dimensions has no mini-batches"):
            NMF(2, loss="itakura-saito", batch_size=5).fit(counts)
        with pytest.raises(ValueError, match=r"loss='euclidean' is not known; use 'frobenius'.*'kl'"):
            NMF(2, loss="euclidean").fit(counts)

    @every_estimator
    def test_a_generator_of_numpy_draws_the_seeds(self, key):
        if "random_state" in make(key).get_params():
            a, b, c = (make(key).set_params(random_state=np.random.default_rng(seed)) for seed in (3, 3, 4))
            seeds = [model.fit(X, Y).fit_info_.get("seeds") for model in (a, b, c)]
            assert seeds[0] == seeds[1] and (seeds[0] is None or seeds[0] != seeds[2])
        stream = NMF(2, random_state=np.random.default_rng(0)).partial_fit(X)
        assert stream.n_steps_ == 1

    def test_no_global_generator_is_touched_with_a_seed(self):
        before = np.random.get_state()[1].copy(), torch.get_rng_state().clone()
        for key in ONE_A_CLASS:
            make(key).fit(X, Y)
        assert np.array_equal(before[0], np.random.get_state()[1]) and torch.equal(before[1], torch.get_rng_state())

    @every_estimator
    def test_named_tuples_are_pickled_and_copied(self, key):
        model = make(key)
        if "init" in model.get_params():
            first = model.fit(X, Y)
            arrays = (getattr(first, "Z_", first.embedding_), *first.factors_)
            start = CoreStart(*arrays, first.core_) if hasattr(first, "core_") else Start(*arrays)
            model = make(key).set_params(init=start).fit(X, Y)
            for again in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model), clone(model)):
                assert type(again.init) is type(start) and np.array_equal(again.init[1], start[1])


class TestMessages:
    def test_modes_in_another_order_and_one_sample(self):
        cube = blocks(12, 24).reshape(12, 4, 6)
        model = NTF(2, random_state=0, max_iter=5, tol=0).fit(cube)
        with pytest.raises(ValueError, match=r"must be \(n_samples, 4, 6\): are its modes in another order"):
            model.transform(cube.transpose(0, 2, 1))
        for one in (cube[0], torch.from_numpy(cube[0])):
            with pytest.raises(ValueError, match=r"one sample. Reshape your data: X\[None\]"):
                model.transform(one)
        assert model.transform(cube[0][None]).shape == (1, 2)

    def test_a_loss_beyond_the_range_is_told(self):
        with pytest.warns(ConvergenceWarning, match="loss_ beyond the floating-point range"):
            model = NMF(2, random_state=0, max_iter=20, tol=0).fit(X * 1e300)
        assert np.isinf(model.loss_) and np.isfinite(model.embedding_).all()

    def test_numbers_below_the_smallest_normal_one(self):
        tiny = X.copy()
        tiny[2, 3] = 1e-310
        with pytest.raises(ValueError, match="without zeros, and without numbers below the smallest normal one"):
            NMF(2, loss=0).fit(tiny)

    @pytest.mark.parametrize("solver", ["multiplicative", "projected"])
    def test_a_start_with_equal_columns_is_told(self, solver):
        ones = (np.ones((24, 3)), np.ones((8, 3)))
        settings = {"random_state": 0, "max_iter": 20, "tol": 0}
        with pytest.warns(ConvergenceWarning, match="equal components 0 and 1, for init has"):
            NMF(3, solver=solver, init=ones, **settings).fit(X)
        NMF(3, init=ones, **settings).fit(X)  # one column after the other: they part
        with pytest.warns(ConvergenceWarning, match="positions 1.*equal components"):
            batch_fit([NMF(3, solver=solver, **settings), NMF(3, solver=solver, init=ones, **settings)], X)

    @every_estimator
    def test_versions(self, key):
        model = make(key).fit(X, Y)
        assert model.fit_info_["nnfactor"] == nnfactor.__version__
        pickle.loads(pickle.dumps(model))
        model.fit_info_["nnfactor"] = "0.0.1"
        with pytest.warns(UserWarning, match=f"{key} was pickled by nnfactor 0.0.1 and is loaded by"):
            pickle.loads(pickle.dumps(model))

    def test_tensorly_is_needed_for_its_own_kind_only(self, monkeypatch):
        model = make("NMF").fit(X)
        assert model.to_cp().rank == 3
        monkeypatch.setitem(sys.modules, "tensorly.cp_tensor", None)
        with pytest.raises(ImportError, match="to_cp needs TensorLy: pip install tensorly"):
            model.to_cp()

    @pytest.mark.parametrize("key", [key for key in ONE_A_CLASS if key in nnfactor.__all__])
    def test_every_parameter_has_a_line_of_its_own(self, key):
        cls = getattr(nnfactor, key)
        text = cls.__doc__.split("Parameters\n    ----------\n")[1].split("Attributes\n")[0]
        named = re.findall(r"^    ([a-zA-Z0-9_, ]+) :", text, re.MULTILINE)
        told = {name.strip() for names in named for name in names.split(",")}
        assert key not in FACTORIZATIONS or not set(inspect.signature(cls).parameters) - told
