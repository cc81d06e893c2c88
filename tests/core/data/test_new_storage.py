"""What a storage kind costs: one written from scratch by the table in CONTRIBUTING, compared with dense data."""

from itertools import chain, pairwise
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from tables import problem

from nnfactor import NGE, NMF, NTF, GraphNMF, KernelNMF
from nnfactor.core import BetaFit, Data, Dense, Fit, as_data, hals, multiplicative, run
from nnfactor.core.data.base import filled_share, sample_sqnorms
from nnfactor.core.solve.memory_budget import bytes_per_problem

close = lambda a, b, tol=1e-10: torch.testing.assert_close(a, b, rtol=tol, atol=tol * float(b.abs().max()))


class Pieces(Data):
    """Samples in several arrays, as data larger than memory would be: products are sums or lists over the pieces."""

    def __init__(self, parts):
        rows = [len(part) for part in parts]
        super().__init__((sum(rows), *parts[0].shape[1:]), parts[0].dtype, parts[0].device, *parts)
        self.parts = [Dense(part, cut=1) for part in parts]
        self.rows = [slice(a, b) for a, b in pairwise(np.cumsum([0, *rows]).tolist())]

    def entries(self):
        return chain.from_iterable(part.entries() for part in self.parts)

    def samples(self):
        return torch.cat([part.X for part in self.parts])

    def scaled(self, factor):
        return Pieces([part.X * factor for part in self.parts])

    def take(self, rows):
        return Pieces([self.samples()[rows]])

    def times(self, F):
        return torch.cat([part.times(F).mT for part in self.parts], dim=-1).mT

    def times_transposed(self, F):
        return sum(part.times_transposed(F[..., rows, :]) for part, rows in zip(self.parts, self.rows))

    def divergence(self, factors, beta):
        return sum(part.divergence(Fs, beta) for part, Fs in self._each(factors))

    def ratio_products(self, factors, mode, beta):
        minus, plus = zip(*(part.ratio_products(Fs, mode, beta) for part, Fs in self._each(factors)))
        if mode:
            return sum(minus), sum(plus)
        return tuple(torch.cat([z.expand_as(m).mT for z, m in zip(part, minus)], -1).mT for part in (minus, plus))

    def _each(self, factors):
        V, *others = factors
        return [(part, [V[..., rows, :], *others]) for part, rows in zip(self.parts, self.rows)]


def pieces(X):
    return Pieces([part.clone() for part in X.split(3)])


ABSTRACT = {
    "entries",
    "samples",
    "scaled",
    "take",
    "times",
    "times_transposed",
    "divergence",
    "ratio_products",
}


def test_the_table_says_what_must_be_written():
    assert Data.__abstractmethods__ == ABSTRACT
    text = (Path(__file__).parents[3] / "CONTRIBUTING.md").read_text()
    must, free = (
        next(line for line in text.splitlines() if line.startswith(f"| {kind} |")) for kind in ("must", "free")
    )
    named = lambda line: {word.split("(")[0] for word in line.split("`")[1::2]}
    assert named(must) == ABSTRACT | {"super"}
    public = {name for name in vars(Data) if not name.startswith("_")} - {
        "sums",
        "cut",
        "chunk",
        "floor",
        "in_memory",
        "peak",
        "relaxes",
        "weighted",
        "stack_key",
        "together",
    }
    assert named(free) == public - ABSTRACT


@pytest.mark.parametrize("order", [2, 3, 4])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_every_member_answers_as_dense(order, batch):
    p = problem(order, batch, seed=order, zeros=0.3)
    data, dense = pieces(p.X), as_data(p.X)
    Fs = [p.factors[m] + 0.1 for m in p.modes]  # no zeros: what they are clamped to differs between pieces
    assert as_data(data) is data
    for name in ("shape", "order", "dtype", "device", "entries_read"):
        assert getattr(data, name) == getattr(dense, name)
    assert [getattr(data, name)() for name in ("smallest", "largest")] == [dense.smallest(), dense.largest()]
    assert filled_share(data) == filled_share(dense)
    for name in ("mean", "sqnorm", "samples"):
        close(getattr(data, name)(), getattr(dense, name)())
    rows, wide = torch.tensor([3, 0, 2]), torch.rand(*batch, p.X[0].numel(), 2, dtype=p.X.dtype)
    flat, taken = dense.by_samples(), data.take(rows)
    assert data.by_samples().cut == flat.cut == taken.cut == 1
    close(data.times(wide), flat.times(wide))
    close(data.times_transposed(Fs[0]), flat.times_transposed(Fs[0]))
    close(taken.samples(), p.X[rows])
    close(data.pieces([rows])(0).sqnorm(), taken.sqnorm())
    close(data.scaled(0.5).residual_sq(Fs), dense.scaled(0.5).residual_sq(Fs))
    close(data.residual_sq(Fs), dense.residual_sq(Fs))
    close(sample_sqnorms(data), p.X.flatten(1).square().sum(1))
    assert data.rows_per_problem == sum(p.X.shape) and bytes_per_problem(data, 3) > 0
    for mode in range(order):
        close(data.mttkrp(Fs, mode), dense.mttkrp(Fs, mode))
        for beta in (0.5, 1, 2, 3):
            close(data.divergence(Fs, beta), dense.divergence(Fs, beta))
            for mine, its in zip(data.ratio_products(Fs, mode, beta), dense.ratio_products(Fs, mode, beta)):
                close(mine.expand_as(Fs[mode]), its.expand_as(Fs[mode]))


def test_writes_to_a_piece_are_seen():
    p = problem(2)
    data, Fs = pieces(p.X), [p.factors[m] for m in p.modes]
    before = [data.sqnorm(), data.mttkrp(Fs, 0)]
    data.parts[1].X.mul_(2)
    close(data.sqnorm(), data.samples().square().sum())
    assert not torch.equal(before[1], data.mttkrp(Fs, 0))


@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("term, rule", [(Fit, hals), (BetaFit, multiplicative)])
def test_models_run_on_it(order, term, rule):
    p = problem(order, seed=1)
    told = {"max_iter": 20, "tol": 0}
    rules = dict.fromkeys(p.order_of_updates, rule)
    mine, its = (run([term(X, p.modes)], rules, p.factors, **told) for X in (pieces(p.X), p.X))
    for name in p.modes:
        torch.testing.assert_close(mine.factors[name], its.factors[name])


@pytest.mark.parametrize("init", ["random", "nndsvda"])
@pytest.mark.parametrize("loss", ["frobenius", "kullback-leibler"])
def test_estimators_take_it(loss, init):
    X = torch.rand(20, 9, dtype=torch.float64)
    make = lambda: NMF(3, loss=loss, init=init, n_init=2, random_state=0, max_iter=20, tol=0)
    mine, its = make().fit(pieces(X)), make().fit(X)
    np.testing.assert_allclose(mine.embedding_, its.embedding_, rtol=1e-7, atol=1e-10)
    np.testing.assert_allclose(mine.transform(pieces(X)), its.transform(X), rtol=1e-5, atol=1e-7)
    with pytest.raises(ValueError, match="Negative values"):
        make().fit(pieces(X - 0.5))
    with pytest.raises(ValueError, match="8 features"):
        mine.transform(pieces(X[:, :8]))


def test_tensors_and_mini_batches_of_it():
    X, y = torch.rand(18, 4, 5, dtype=torch.float64), np.repeat([0, 1, 2], 6)
    for model, told in ((NTF(2), {}), (NGE(3, batch_size=6), {"y": y})):
        model.set_params(random_state=0, max_iter=5, tol=0)
        mine, its = (np.asarray(model.fit(Z, **told).embedding_) for Z in (pieces(X), X))
        np.testing.assert_allclose(mine, its, rtol=1e-6, atol=1e-9)


class TestSparseKinds:
    """The members beyond the laws of all storage kinds."""

    @pytest.mark.parametrize("order", [2, 3, 4])
    @pytest.mark.parametrize("batch", [(), (2,)])
    def test_samples_and_products_as_a_matrix(self, order, batch):
        p = problem(order, batch, seed=2, zeros=0.7)
        data, dense = as_data(p.X.to_sparse_coo()), as_data(p.X).by_samples()
        rows, wide = torch.tensor([3, 0, 1]), torch.rand(*batch, p.X[0].numel(), 2, dtype=p.X.dtype)
        close(data.times(wide), dense.times(wide))
        close(data.times_transposed(p.factors["V"]), dense.times_transposed(p.factors["V"]))
        close(sample_sqnorms(data), p.X.flatten(1).square().sum(1))
        Fs = [p.factors[m][..., rows, :] if m == "V" else p.factors[m] for m in p.modes]
        piece = data.pieces([rows, torch.tensor([2])])
        for part in (data.take(rows), piece(0), piece(0)):
            close(part.residual_sq(Fs), dense.take(rows).residual_sq(Fs))
        assert piece(0) is not piece(0) and not piece(0).cache._kept
        assert float(piece(1).sqnorm()) == pytest.approx(float(p.X[2].square().sum()))
        assert data.entries_read == int((p.X != 0).sum())

    @pytest.mark.parametrize("shape", [(6, 5), (6, 5, 4)])
    def test_the_smallest_entry_may_be_a_stored_one(self, shape):
        X = torch.zeros(shape, dtype=torch.float64)
        assert as_data(X.to_sparse_coo()).smallest() == as_data(X.to_sparse_coo()).largest() == 0
        X[1, 1] = -2.0
        assert as_data(X.to_sparse_coo(), signed=True).smallest() == -2
        assert as_data((X + 3).to_sparse_coo()).smallest() == 1

    def test_mini_batches_of_sparse_tensors(self):
        rng = np.random.default_rng(0)
        X, y = rng.random((18, 4, 5)) * (rng.random((18, 4, 5)) > 0.5), np.repeat([0, 1, 2], 6)
        make = lambda: NGE(3, batch_size=6, random_state=0, max_iter=5, tol=0)
        dense, sparse = (np.asarray(make().fit(Z, y).embedding_) for Z in (X, torch.as_tensor(X).to_sparse_coo()))
        np.testing.assert_allclose(sparse, dense, rtol=1e-6, atol=1e-9)

    def test_coefficients_of_sparse_tensors_do_not_depend_on_the_batch(self):
        rng = np.random.default_rng(0)
        X = rng.random((12, 4, 5)) * (rng.random((12, 4, 5)) > 0.5)
        model = NTF(3, loss="kullback-leibler", random_state=0, max_iter=20, tol=0).fit(X)
        model.set_params(transform_tol=1e-12, transform_max_iter=20_000)  # dense samples take other steps
        sparse = torch.as_tensor(X).to_sparse_coo()
        np.testing.assert_allclose(model.transform(sparse).numpy(), model.transform(X), rtol=1e-5, atol=1e-8)

    def test_nearly_exact_fits_of_matrices_in_blocks(self, monkeypatch):
        p = problem(2, (2,), seed=2, zeros=0.5)
        V, U = (p.factors[m] for m in p.modes)
        X = V[0] @ U[0].mT
        nearly = [V * (1 + 1e-9), U]
        expected = as_data(X).residual_sq(nearly)
        for chunk in (3, 1 << 18):
            monkeypatch.setattr(Data, "chunk", chunk)
            close(as_data(sp.csr_array(X.numpy())).residual_sq(nearly), expected, 1e-5)


@pytest.mark.parametrize("storage", [lambda X: X, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize(
    "make",
    [
        lambda: GraphNMF(2, random_state=0, max_iter=10, tol=0),
        lambda: KernelNMF(2, "linear", random_state=0, max_iter=10),
    ],
    ids=["graph", "kernel"],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_graphs_and_kernels_are_made_of_data(make, storage):
    X = storage(np.random.default_rng(0).random((20, 6)))
    np.testing.assert_allclose(make().fit(as_data(X)).embedding_, make().fit(X).embedding_, rtol=1e-6, atol=1e-9)


def test_data_are_not_folded():
    with pytest.raises(ValueError, match=r"X is Dense of shape \(20, 6\), which sample_shape=\(3, 2\) cannot fold"):
        NTF(2, sample_shape=(3, 2)).fit(as_data(np.random.default_rng(0).random((20, 6))))
