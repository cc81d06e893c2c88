"""Epochs over a source: batches in an order of their own, a batch held out, and streams that go on where they stopped."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import nnfactor
from nnfactor import NGE, NMF, NTF, Chunked
from nnfactor.core import Sharded
from nnfactor.io import read_blocks

BATCHES = 7


def data(n=70, m=9, seed=0):
    rng = np.random.default_rng(seed)
    return rng.random((n, 3)) ** 2 @ rng.random((3, m)) + 0.02 * rng.random((n, m))


X = data()


def make(**told):
    return NMF(**({"n_components": 3, "batch_size": 10, "random_state": 0} | told))


def order_of(model, epoch, held=None):
    drawn = np.random.default_rng([model.stream_["seed"], epoch]).permutation(BATCHES)
    return [b for b in drawn if b != held]


class Failing:
    """Rows of an array, of which one reading fails."""

    def __init__(self, X, good):
        self.X, self.good, self.shape = X, good, X.shape

    def __getitem__(self, rows):
        self.good -= 1
        if self.good == -1:
            raise OSError("the disk is gone")
        return self.X[rows]


def same(a, b):
    np.testing.assert_array_equal(a.components_, b.components_)
    assert a.moments_.keys() == b.moments_.keys() and a.n_steps_ == b.n_steps_
    for name in a.moments_:
        np.testing.assert_array_equal(a.moments_[name], b.moments_[name])
    assert a.stream_ | {"began": 0} == b.stream_ | {"began": 0}
    assert a.history_.keys() == b.history_.keys()
    for name in a.history_.keys() - {"seconds"}:
        np.testing.assert_array_equal(a.history_[name], b.history_[name])


@pytest.mark.parametrize("loss", ["frobenius", "kullback-leibler"])
def test_epochs_are_batches_in_an_order_of_their_own(loss):
    model, by_hand = make(loss=loss).partial_fit(X, n_epochs=2), make(loss=loss)
    orders = [order_of(model, epoch) for epoch in range(2)]
    assert orders[0] != orders[1] and sorted(orders[0]) == [*range(BATCHES)]
    for b in np.concatenate(orders):
        by_hand.partial_fit(X[10 * b : 10 * b + 10])
    np.testing.assert_array_equal(model.components_, by_hand.components_)
    assert model.n_iter_ == 2 and model.n_steps_ == 14 and model.n_samples_seen_ == 140
    assert model.history_["iteration"].tolist() == [1, 2] and (np.diff(model.history_["seconds"]) >= 0).all()


@pytest.mark.parametrize("kind", ["chunked", "memmap", "zarr", "files", "list", "tensor", "frame", "function"])
def test_sources_of_every_kind_give_the_same(kind, tmp_path):
    n_epochs = 1 if kind == "function" else 3
    expected, told = make().partial_fit(X, n_epochs=n_epochs), {}
    np.save(tmp_path / "x.npy", X)
    if kind == "chunked":
        source = Chunked(X, n_rows=30)
    elif kind == "memmap":
        source = np.load(tmp_path / "x.npy", mmap_mode="r")
    elif kind == "zarr":
        source, told = pytest.importorskip("zarr").array(X, chunks=(10, 9)), {"batch_size": None}
    elif kind == "files":
        source = [tmp_path / "x.npy"]
    elif kind == "list":
        source = [X[a : a + 10] for a in range(0, 70, 10)]
    elif kind == "tensor":
        source = torch.from_numpy(X)
    elif kind == "frame":
        source = pytest.importorskip("pandas").DataFrame(X, columns=list("abcdefghi"))
    else:
        order = order_of(expected, 0)
        source = lambda: iter([X[10 * b : 10 * b + 10] for b in order])
    found = make(**told).partial_fit(source, n_epochs=n_epochs)
    np.testing.assert_allclose(np.asarray(found.components_), expected.components_, rtol=1e-12)


def test_blocks_of_files_come_in_turn(tmp_path):
    np.savetxt(tmp_path / "x.csv", X, delimiter=",")
    source, by_hand = (lambda: read_blocks(tmp_path / "x.csv", 10)), make()
    model = make().partial_fit(source, n_epochs=2, held_out=True)
    for block in [b for _ in range(2) for b in list(source())[1:]]:
        by_hand.partial_fit(block.values)
    np.testing.assert_array_equal(model.components_, by_hand.components_)
    once = make().partial_fit(source(), n_epochs=1, held_out=True).partial_fit(source(), n_epochs=1, held_out=True)
    same(model, once)
    assert model.history_["held_out"][-1] == -model.score(next(source()).values)


def test_a_batch_is_held_out_and_its_loss_falls():
    model = make(n_components=3).partial_fit(X, n_epochs=5, held_out=True)
    held = model.stream_["held_out"]
    assert model.n_samples_seen_ == 5 * 60 and 0 <= held < BATCHES
    rows = slice(10 * held, 10 * held + 10)
    losses = model.history_["held_out"]
    assert losses[-1] == -model.score(X[rows]) and len(losses) == 5
    assert (np.diff(losses) < 0).all() and losses[-1] < 0.01 * np.square(X[rows]).mean()
    other = make().partial_fit(X, n_epochs=2, held_out=data(20, seed=1) @ np.eye(9))
    assert len(other.history_["held_out"]) == 2 and other.n_samples_seen_ == 140


@pytest.mark.parametrize("again", [lambda m, path: pickle.loads(pickle.dumps(m)), lambda m, path: saved(m, path)])
@pytest.mark.parametrize("good", [3, 9])  # batches before the failure: in the first epoch, in the second
def test_an_interrupted_stream_goes_on_with_the_same_numbers(again, good, tmp_path):
    whole, broken = make().partial_fit(X, n_epochs=4, held_out=True), make()
    with pytest.raises(OSError, match="the disk is gone"):
        broken.partial_fit(Failing(X, good), n_epochs=4, held_out=True)
    assert 0 < broken.n_steps_ < 12
    done = broken.stream_["n_epochs"]
    resumed = again(broken, tmp_path / "model").partial_fit(X, n_epochs=4 - done, held_out=True)
    same(resumed, whole)
    more = again(make().partial_fit(X, n_epochs=1, held_out=True), tmp_path / "model")
    same(more.partial_fit(X, n_epochs=3, held_out=True), whole)


def saved(model, path):
    model.save(path)
    return nnfactor.load(path)


def test_a_checkpoint_goes_on_with_the_same_call(tmp_path):
    whole, kept = make().partial_fit(X, n_epochs=4, held_out=True), tmp_path / "stream"
    call = lambda source: make(callback=lambda p: None).partial_fit(
        source, n_epochs=4, held_out=True, checkpoint=kept, checkpoint_every=0
    )
    for good in (4, 6):
        with pytest.raises(OSError, match="the disk is gone"):
            call(Failing(X, good))
    same(call(X), whole)
    same(call(Failing(X, 0)), whole)  # it had ended: nothing is read
    with pytest.raises(ValueError, match="has n_components=3, the estimator n_components=2"):
        make(n_components=2).partial_fit(X, n_epochs=4, checkpoint=kept)
    make().fit(X).save(kept)
    with pytest.raises(ValueError, match="is no stream of NMF"):
        call(X)


def test_labels_weights_tensors_and_sparse_rows_come_with_their_batches():
    y = np.arange(70) % 3
    model, by_hand = (NGE(4, batch_size=35, random_state=0) for _ in range(2))
    model.partial_fit(X, y, classes=[0, 1, 2], n_epochs=2)
    for epoch in range(2):
        for b in np.random.default_rng([model.stream_["seed"], epoch]).permutation(2):
            rows = slice(35 * b, 35 * b + 35)
            by_hand.partial_fit(X[rows], y[rows], classes=[0, 1, 2])
    np.testing.assert_array_equal(model.components_, by_hand.components_)
    weights = np.random.default_rng(2).integers(0, 3, X.shape)
    weighted, one = make().partial_fit(X, weights=weights, n_epochs=1, held_out=True), make()
    held = weighted.stream_["held_out"]
    for b in order_of(weighted, 0, held):
        one.partial_fit(X[10 * b : 10 * b + 10], weights=weights[10 * b : 10 * b + 10])
    np.testing.assert_array_equal(weighted.components_, one.components_)
    of = slice(10 * held, 10 * held + 10)
    assert weighted.history_["held_out"][0] == -weighted.score(X[of], weights=weights[of])
    sparse = make().partial_fit(sp.csr_array(X), n_epochs=2)
    np.testing.assert_allclose(sparse.components_, make().partial_fit(X, n_epochs=2).components_, rtol=1e-8)
    assert NTF(2, batch_size=10).partial_fit(X.reshape(70, 3, 3), n_epochs=1).n_steps_ == 7


def test_a_stream_goes_on_with_another_source_but_not_inside_an_epoch():
    model = make().partial_fit(X, n_epochs=1, held_out=True)
    model.partial_fit(data(40, seed=3), n_epochs=1)
    assert model.n_iter_ == 2 and model.n_samples_seen_ == 60 + 40 and len(model.history_["iteration"]) == 1
    with pytest.raises(OSError):
        model.partial_fit(Failing(X, 3), n_epochs=1)
    with pytest.raises(ValueError, match="stopped inside an epoch of 7 batches"):
        model.partial_fit(data(40, seed=3), n_epochs=1)
    model.fit(X)
    assert not hasattr(model, "stream_")


def test_what_is_no_source_is_refused():
    held = Sharded.__new__(Sharded)
    held.sums = type("Sums", (), {"held": 3})()
    for bad, told, error, match in (
        (3, {}, TypeError, "X is a int, and n_epochs=2 reads a source"),
        ([[1, 2], [3, 4]], {}, TypeError, "X is a list"),
        (iter([X]), {}, ValueError, "gives its blocks once, and n_epochs=2"),
        (lambda: iter([]), {}, ValueError, "X gives no batch"),
        (lambda: None, {}, TypeError, "X is a function that returned NoneType"),
        (lambda: iter([X]), {"held_out": True}, ValueError, "X gives no batch to learn from beside the one"),
        (X[:10], {"held_out": True}, ValueError, "X has 1 batches, of which held_out=True leaves none"),
        (X, {"y": np.arange(3)}, ValueError, "y has 3 rows, but X has 70"),
        (lambda: [X], {"weights": X}, ValueError, "weights go with a source that is sliced"),
        ([X], {"weights": X}, ValueError, "X is a list of blocks"),
        (held, {}, ValueError, "X is Sharded"),
        (X, {"n_epochs": 0}, ValueError, "n_epochs must be None"),
        (X, {"checkpoint": "x", "checkpoint_every": -1}, ValueError, "checkpoint_every must be a number"),
    ):
        with pytest.raises(error, match=match):
            make().partial_fit(bad, **{"n_epochs": 2, **told})
    with pytest.raises(ValueError, match="held_out goes with n_epochs"):
        make().partial_fit(X, held_out=True)
