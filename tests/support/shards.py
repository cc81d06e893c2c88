"""Fits of data that are split over processes: `torchrun`-like ranks, each a fork of one process that imports once.

`python shards.py FOLDER SIZE PORT NAME` runs one scenario in SIZE processes that meet at the port; rank r writes what
it found to `FOLDER/r.pt`. Rank 0 never helps another: each has its own rows only.
"""

import datetime
import os
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import scipy.sparse as sp
import torch
import torch.distributed as dist

from nnfactor import (
    LNMF,
    N2S2L,
    NGE,
    NMF,
    NTF,
    SULF,
    ConstrainedNMF,
    Coupled,
    GraphNMF,
    KernelNMF,
    SemiNMF,
    batch_fit,
    select_rank,
)
from nnfactor.core import Chunked, Fit, Laplacian, Sharded, hals, run
from nnfactor.core.data.distributed.watch import LostProcess
from nnfactor.graphs import knn_graph
from nnfactor.io.checkpoints.shared_checkpoint import SharedCheckpoint
from nnfactor.penalties import L1, L2, L21, Orthogonal, Smooth

FOLDER = Path(".")  # of the scenario
TIMEOUT = datetime.timedelta(seconds=20)
R = np.random.default_rng(0)
X = R.random((37, 4)) @ R.random((4, 14)) + 0.1 * R.random((37, 14))
T = np.einsum("ik,jk,lk->ijl", R.random((29, 3)), R.random((6, 3)), R.random((5, 3))) + 0.1 * R.random((29, 6, 5))
S = sp.random_array((60, 18), density=0.2, rng=R, format="csr")
FEW = sp.random_array((60, 18), density=0.05, rng=R, format="csr")
ST = np.where(R.random(T.shape) < 0.3, T, 0.0)
G = knn_graph(X, 3).adjacency
H = np.where(R.random(X.shape) < 0.2, np.nan, X)
LOOSE = {"random_state": 0, "max_iter": 8, "tol": 0}
SETTLES = {"random_state": 0, "tol": 3e-3, "max_iter": 60}
KL = {"loss": "kullback-leibler"}


def sparse_tensor(A):
    return torch.as_tensor(A).to_sparse_coo()


# name: array, what makes rows of it into what a user holds, estimator
FITS = {
    "auto": (X, None, lambda: NMF(4, init="random", **LOOSE)),
    "hals": (X, None, lambda: NMF(4, solver="hals", init="random", **LOOSE)),
    "mu": (X, None, lambda: NMF(4, solver="mu", init="random", **LOOSE)),
    "projected": (X, None, lambda: NMF(4, solver="projected", init="random", **LOOSE)),
    "stops": (X, None, lambda: NMF(4, init="random", **SETTLES)),
    "svd": (X, None, lambda: NMF(4, **LOOSE)),
    "restarts": (X, None, lambda: NMF(3, n_init=4, keep_embeddings=True, **SETTLES)),
    "large": (X * 1e100, None, lambda: NMF(3, init="random", **LOOSE)),
    "l1": (X, None, lambda: NMF(3, init="random", normalize="l1", **LOOSE)),
    "penalties": (X, None, lambda: NMF(4, penalties={"V": [L1(0.05)], "U1": [L2(0.1)]}, init="random", **LOOSE)),
    "missing": (H, np.ma.masked_invalid, lambda: NMF(4, init="random", **LOOSE)),
    "graph": (X, None, lambda: GraphNMF(4, graph=G, init="random", **LOOSE)),
    "kl": (X, None, lambda: NMF(4, init="random", **KL, **LOOSE)),
    "kl mu": (X, None, lambda: NMF(4, init="random", solver="mu", n_init=2, **KL, **SETTLES)),
    "beta": (X, None, lambda: NMF(3, init="random", loss=1.5, **LOOSE)),
    "sparse": (S, None, lambda: NMF(4, init="random", **LOOSE)),
    "sparse svd": (FEW, None, lambda: NMF(4, n_init=2, **LOOSE)),
    "sparse kl": (S, None, lambda: NMF(4, init="random", **KL, **LOOSE)),
    "tensor": (T, None, lambda: NTF(3, init="random", **LOOSE)),
    "tensor mu": (T, None, lambda: NTF(3, solver="mu", n_init=3, **SETTLES)),
    "tensor kl": (T, None, lambda: NTF(3, init="random", **KL, **LOOSE)),
    "sparse tensor": (ST, sparse_tensor, lambda: NTF(3, init="random", **LOOSE)),
    "sparse tensor kl": (ST, sparse_tensor, lambda: NTF(3, init="random", **KL, **LOOSE)),
}


Y = np.where(R.random(37) < 0.6, R.integers(0, 3, 37), -1)
NAMED = [None if c < 0 else "abc"[c] for c in Y]
B = (lambda A: A + A.T)(sp.random_array((37, 37), density=0.1, rng=R, format="csr"))
MOST = np.where(R.random(X.shape) < 0.75, np.nan, X)
BROAD = np.where(R.random((37, 900)) < 0.03, np.nan, X @ R.random((14, 900)))
HT = np.where(R.random(T.shape) < 0.3, np.nan, T)
W = R.random(X.shape)
Z, VIEWS = R.random((37, 8)), [("s", "a"), ("s", "b")]
KNOWN = np.where(R.random((37, 3)) < 0.3, R.random((37, 3)), np.nan)
R_V, R_U = R.random((37, 3)), R.random((14, 3))
PLAIN = {"init": "random"} | LOOSE

# name: a fit of some rows, by `fit(estimator, rows, labels, weights=..., missing=...)`
CASES = {
    "graph": lambda fit, r: fit(GraphNMF(3, graph=G, **PLAIN), X[r]),
    "graph, own rows": lambda fit, r: fit(GraphNMF(3, graph=G[r], solver="auto", scale_free=True, **PLAIN), X[r]),
    "graph of X": lambda fit, r: fit(GraphNMF(3, n_init=2, **LOOSE), X[r]),
    "graph, labels": lambda fit, r: fit(GraphNMF(3, graph=G, **PLAIN), X[r], Y[r]),
    "nge": lambda fit, r: fit(NGE(4, **PLAIN), X[r], Y[r]),
    "nge, names": lambda fit, r: fit(NGE(4, **LOOSE), X[r], NAMED[r]),
    "nge, graphs": lambda fit, r: fit(NGE(4, n_discriminative=2, graph=(G[r], B[r].toarray()), **PLAIN), X[r]),
    "nge, sparse": lambda fit, r: fit(NGE(4, **PLAIN), sp.csr_array(X)[r], Y[r]),
    "nge, tensor": lambda fit, r: fit(NGE(4, **PLAIN), T[r], Y[:29][r]),
    "n2s2l": lambda fit, r: fit(N2S2L(4, n_init=3, keep_embeddings=True, **PLAIN), X[r], Y[r]),
    "constrained": lambda fit, r: fit(ConstrainedNMF(4, **PLAIN), X[r], Y[r]),
    "semi": lambda fit, r: fit(SemiNMF(3, n_init=2, **LOOSE), X[r] - 0.5),
    "local": lambda fit, r: fit(LNMF(3, init="random", max_iter=12, random_state=0), X[r]),
    "smooth": lambda fit, r: fit(NMF(3, penalties={"V": [Smooth(0.3)]}, **PLAIN), X[r]),
    "ridge": lambda fit, r: fit(NMF(3, transform_method="ridge", ridge="cv", **PLAIN), X[r]),
    "missing": lambda fit, r: fit(NMF(3, missing="nan", **PLAIN), H[r], missing="nan"),
    "missing, svd": lambda fit, r: fit(NMF(3, missing="nan", n_init=2, **LOOSE), H[r], missing="nan"),
    "missing, mu": lambda fit, r: fit(NMF(3, missing="nan", solver="mu", **PLAIN), H[r], missing="nan"),
    "missing, kl": lambda fit, r: fit(NMF(3, missing="nan", **KL, **PLAIN), H[r], missing="nan"),
    "missing, most": lambda fit, r: fit(NMF(3, missing="nan", **PLAIN), MOST[r], missing="nan"),
    "missing, few": lambda fit, r: fit(NMF(3, missing="nan", **PLAIN), BROAD[r], missing="nan"),
    "missing, one": lambda fit, r: fit(
        NMF(3, missing="nan", **PLAIN), np.where(X[0, 0] == X, np.nan, X)[r], missing="nan"
    ),
    "missing, rank": lambda fit, r: fit(
        NMF(3, missing="nan", loss="itakura-saito", **PLAIN),
        np.where(np.arange(37)[:, None] < 16, X, np.nan)[r],
        missing="nan",
    ),
    "missing, unstored": lambda fit, r: fit(NMF(3, missing="unstored", **PLAIN), S[r], missing="unstored"),
    "missing, tensor": lambda fit, r: fit(NTF(3, missing="nan", **PLAIN), HT[r], missing="nan"),
    "missing, nge": lambda fit, r: fit(NGE(4, missing="nan", **PLAIN), H[r], Y[r], missing="nan"),
    "masked": lambda fit, r: fit(NMF(3, **PLAIN), np.ma.masked_invalid(H)[r]),
    "weights": lambda fit, r: fit(NMF(3, **PLAIN), X[r], weights=W[r]),
    "l1 l2": lambda fit, r: fit(NMF(3, penalties={"V": [L1(0.05), L2(0.1)], "U1": [L2(0.3)]}, **PLAIN), X[r]),
    "l1 l2, restarts": lambda fit, r: fit(
        NMF(3, n_init=3, penalties={"V": [L1(0.02)], "U1": [L1(0.1)]}, **SETTLES), X[r]
    ),
    "l2 u": lambda fit, r: fit(NMF(3, penalties={"U1": [L2(0.5)]}, **PLAIN), X[r]),
    "l1 v": lambda fit, r: fit(NMF(3, penalties={"V": [L1(0.5)]}, **PLAIN), X[r]),
    "l21": lambda fit, r: fit(NMF(3, penalties={"V": [L21(0.1)], "U1": [L21(0.1)]}, **PLAIN), X[r]),
    "orthogonal": lambda fit, r: fit(NMF(3, penalties={"V": [Orthogonal(0.2)], "U1": [Smooth(0.2)]}, **PLAIN), X[r]),
    "penalties, mu": lambda fit, r: fit(NMF(3, solver="mu", penalties={"V": [L21(0.1)], "U1": [L1(1)]}, **PLAIN), X[r]),
    "penalties, kl": lambda fit, r: fit(NMF(3, penalties={"V": [L1(0.1)], "U1": [L2(0.1)]}, **KL, **PLAIN), X[r]),
    "penalties, sparse": lambda fit, r: fit(NMF(3, penalties={"V": [L1(0.01)], "U1": [L2(0.1)]}, **PLAIN), S[r]),
    "alpha": lambda fit, r: fit(NMF(3, alpha_W=0.01, alpha_H=0.02, l1_ratio=0.3, **PLAIN), X[r]),
    "alpha, kl": lambda fit, r: fit(NMF(3, alpha_W=0.01, l1_ratio=0.3, **KL, **PLAIN), X[r]),
    "fixed": lambda fit, r: fit(NMF(3, fixed={"V": KNOWN[r], "U1": 2 * KNOWN[:14]}, **PLAIN), X[r]),
    "fixed v": lambda fit, r: fit(NMF(3, fixed={"V": KNOWN[r]}, solver="hals", **LOOSE), X[r]),
    "fixed wholly": lambda fit, r: fit(NMF(3, fixed={"V": np.nan_to_num(KNOWN, nan=1.0)[r]}, **PLAIN), X[r]),
    "bounds": lambda fit, r: fit(NMF(3, bounds={"V": (0.1, 1.5), "U1": (None, 2)}, **PLAIN), X[r]),
    "bounds, kl": lambda fit, r: fit(NMF(3, bounds={"V": (None, 1)}, **KL, **PLAIN), X[r]),
    "simplex": lambda fit, r: fit(NMF(3, simplex="V", **PLAIN), X[r]),
    "simplex, svd": lambda fit, r: fit(NMF(3, simplex="V", n_init=2, penalties={"U1": [L2(0.1)]}, **SETTLES), X[r]),
    "simplex u": lambda fit, r: fit(NMF(3, simplex="U1", solver="projected", **PLAIN), X[r]),
    "tensor, penalties": lambda fit, r: fit(NTF(3, penalties={"V": [L1(0.1)], "U2": [L2(0.1)]}, **PLAIN), T[r]),
    "tensor, penalty of u": lambda fit, r: fit(NTF(3, penalties={"U1": [L1(0.1)]}, **PLAIN), T[r]),
    "terms": lambda fit, r: fit(NMF(3, terms=[Laplacian(G, "V", weight=0.1)], **PLAIN), X[r]),
    "start": lambda fit, r: fit(NMF(3, init=(R_V[r], R_U), max_iter=12, tol=0), X[r]),
    "start, graph": lambda fit, r: fit(GraphNMF(3, graph=G, init=(R_V[r], R_U), max_iter=12, tol=0), X[r]),
    "missing, fixed": lambda fit, r: fit(NMF(3, missing="nan", fixed={"V": KNOWN[r]}, **PLAIN), H[r], missing="nan"),
    "coupled": lambda fit, r: fit(Coupled(3, modes=VIEWS, n_init=2, **LOOSE), [X[r], Z[r]]),
    "coupled, tensors": lambda fit, r: fit(
        Coupled(3, modes=[("s", "a", "b"), ("s", "c"), ("a", "d")], **PLAIN),
        [T[r], Z[:29][r], T[:6, :, 0] + 1],
        split=(0, 1),
    ),
    "coupled, start": lambda fit, r: fit(
        Coupled(3, modes=VIEWS, init={"s": R_V[r], "a": R_U, "b": R_V[:8]}, max_iter=8, tol=0), [X[r], Z[r]]
    ),
    "sulf": lambda fit, r: fit(SULF(3, **LOOSE), [X[r], Z[r]], Y[r]),
    "sulf, one": lambda fit, r: fit(SULF(3, classifier="coef", beta=1.0, gamma=0.1, **PLAIN), X[r], Y[r]),
    "sulf, missing": lambda fit, r: fit(SULF(3, missing="nan", **PLAIN), [H[r], Z[r]], missing="nan"),
    "blocks": lambda fit, r: fit(NMF(3, **LOOSE), Chunked(X[r], n_rows=5)),
    "blocks, mu": lambda fit, r: fit(NMF(3, solver="mu", n_init=2, **LOOSE), Chunked(X[r], n_rows=1)),
    "blocks, kl": lambda fit, r: fit(NMF(3, **KL, **PLAIN), Chunked(X[r], n_rows=4)),
    "blocks, sparse": lambda fit, r: fit(NMF(3, **PLAIN), Chunked(S[r], n_rows=7)),
    "blocks, sparse kl": lambda fit, r: fit(NMF(3, **KL, **PLAIN), Chunked(S[r], n_rows=7)),
    "blocks, tensor": lambda fit, r: fit(NTF(3, **PLAIN), Chunked(T[r], n_rows=4)),
    "blocks, graph": lambda fit, r: fit(GraphNMF(3, **PLAIN), Chunked(X[r], n_rows=5)),
    "part": lambda fit, r: fit(NMF(3, **LOOSE), X, source=X),
    "part, kl": lambda fit, r: fit(NMF(3, **KL, **PLAIN), S, source=S),
    "weights, kl": lambda fit, r: fit(NMF(3, **KL, **PLAIN), X[r], weights=W[r]),
}

N_ROWS = {"missing, unstored": 60, "blocks, sparse": 60, "blocks, sparse kl": 60, "penalties, sparse": 60}
N_ROWS |= {name: 29 for name in CASES if "tensor" in name}


def own_rows(n, rank, size):
    """Rows of a rank: uneven, and few for the last."""
    cuts = [0, *(n * (2 * r + 3) // (2 * size + 3) + 1 for r in range(size - 1)), n]
    return slice(cuts[rank], cuts[rank + 1])


def published(model):
    """What a fit publishes, as tensors."""
    found = {name: getattr(model, name) for name in ("embedding_", "factors_", "loss_", "reconstruction_err_")}
    if isinstance(model.factors_, dict):  # the first is that of the samples
        found["factors_"] = list(model.factors_.values())[1:]
    found |= {name: getattr(model, name) for name in ("transduction_", "label_distributions_") if hasattr(model, name)}
    found |= {"n_iter_": model.n_iter_, "converged_": model.converged_, "objective": model.history_["objective"]}
    if hasattr(model, "restarts_"):
        found |= {f"restarts {name}": value for name, value in model.restarts_.items()}
    return found


def fit_all(rank, size):
    """Fit everything in `FITS`; count messages of the fits that make no decisions."""
    found = {}
    for name, (A, convert, make) in FITS.items():
        rows = A[own_rows(A.shape[0], rank, size)]
        data = Sharded(convert(rows) if convert else rows)
        found[name] = published(make().fit(data))
    return found


def fit_cases(rank, size):
    """Fit everything in `CASES`."""

    def fit(model, A, y=None, source=None, split=None, **given):
        if isinstance(A, list):
            parts = [Sharded(a, **given) if split is None or p in split else a for p, a in enumerate(A)]
            return model.fit(parts, y)
        return model.fit(Sharded(A, **given) if source is None else Sharded.part_of(source, n_rows=5), y)

    return {name: published(case(fit, own_rows(N_ROWS.get(name, 37), rank, size))) for name, case in CASES.items()}


def checkpoint_of(name):
    return FOLDER / f"{name}.checkpoint"


def fit_shard(name, rank, size, **kept):
    """Fit the rows of a rank, of an entry of `FITS` or of `CASES`."""
    if name in CASES:
        shard = lambda A, how: [shard(part, how) for part in A] if isinstance(A, list) else Sharded(A, **how)
        fit = lambda model, A, y=None, **how: model.fit(shard(A, how), y, **kept)
        return published(CASES[name](fit, own_rows(37, rank, size)))
    A, _, make = FITS[name]
    return published(make().fit(Sharded(A[own_rows(A.shape[0], rank, size)]), **kept))


class Stopped(BaseException):
    """A process would be gone."""


# name: after how many savings the fit is stopped
STOPPED = {
    "auto": 5,
    "restarts": 7,
    "kl": 4,
    "sparse svd": 5,
    "tensor mu": 12,
    "nge": 4,
    "graph of X": 5,
    "missing": 4,
    "sulf": 4,
}


def stop(rank, size):
    """Begin fits with checkpoints, and leave them before their end."""
    save = SharedCheckpoint.save
    for name, often in STOPPED.items():
        saves = []

        def counted(self, content, often=often, saves=saves):
            save(self, content)
            saves.append(1)
            if len(saves) == often:
                raise Stopped

        SharedCheckpoint.save = counted
        try:
            fit_shard(name, rank, size, checkpoint=checkpoint_of(name), checkpoint_every=0)
        except Stopped:
            continue
        raise AssertionError(f"{name} ended after {len(saves)} savings")


def resume(rank, size):
    """Go on with what other processes began, twice: the second time the results are read."""
    found = {}
    for name in STOPPED:
        found[name] = fit_shard(name, rank, size, checkpoint=checkpoint_of(name))
        again = fit_shard(name, rank, size, checkpoint=checkpoint_of(name))
        assert np.array_equal(again["embedding_"], found[name]["embedding_"])
    try:
        NMF(4, init="random", **LOOSE).fit(Sharded(X[::-1][own_rows(37, rank, size)]), checkpoint=checkpoint_of("auto"))
    except ValueError as error:
        found["others"] = str(error)
    return found


def many():
    """Make estimators whose restarts are dealt: of several ranks, a Generator, and with random numbers of no seed."""
    made = [NMF(k, n_init=3, keep_embeddings=k == 3, **SETTLES) for k in (2, 3, 7)]
    return [*made, NMF(3, init="random", random_state=np.random.default_rng(5), max_iter=9, tol=0)]


def deal(rank, size):
    """Deal restarts, data sets, mini-batches and folds over the processes, and count what they send meanwhile."""
    sent, reduce = [], dist.all_reduce
    dist.all_reduce = lambda *given: (sent.append(1), reduce(*given))
    found = {"many": [published(fit) for fit in batch_fit(many(), X, distributed="auto")]}
    views = [X, X[::-1].copy(), X + 0.1]
    fits = batch_fit([NMF(3, random_state=0, max_iter=9, tol=0) for _ in views], views, distributed="auto")
    found["views"] = [published(fit) for fit in fits]
    stream = [NMF(3, batch_size=10, n_init=2, random_state=0, max_iter=4, tol=0)]
    found["batches"] = [published(fit) for fit in batch_fit(stream, X, distributed=dist.group.WORLD)]
    chosen = select_rank(NMF(2, max_iter=50), X, range(1, 5), n_init=3, random_state=None, distributed="auto")
    found["any"] = chosen.rank, chosen.reason, chosen.losses
    halves = select_rank(NMF(2, max_iter=50), X, (2, 3), "stability", n_init=5, random_state=0, distributed="auto")
    found["halves"] = halves.reason, {k: published(model) for k, model in halves.models.items()}
    dist.all_reduce = reduce
    found["sent"] = len(sent)
    fails = NMF(2, n_init=size, random_state=0, callback=lambda told: fail() if rank == 1 else None)
    try:
        batch_fit([fails], X, distributed="auto")
    except OSError as error:
        found["failed"] = str(error), error.__notes__
    return found


def count_messages(rank, size):
    """Count the messages of one more sweep, for fits of 20 and of 21 sweeps, and how long they are."""
    found, reduce, gather = {}, dist.all_reduce, dist.all_gather
    for name in ("hals", "mu", "auto", "kl", "tensor", "penalties", "missing", "graph"):
        A, convert, make = FITS[name]
        rows = A[own_rows(A.shape[0], rank, size)]
        data, lengths = Sharded(convert(rows) if convert else rows), []
        for sweeps in (21, 22):
            sent = []
            dist.all_reduce = lambda flat, *rest, sent=sent: (sent.append(flat.numel()), reduce(flat, *rest))
            dist.all_gather = lambda parts, own, *rest, sent=sent: (sent.append(own.numel()), gather(parts, own, *rest))
            model = make().set_params(max_iter=sweeps, verbose=0, tol=1e-30)
            (model.set_params(normalize=None) if hasattr(model, "normalize") else model).fit(data)
            lengths.append(sent)
        dist.all_reduce, dist.all_gather = reduce, gather
        longer, shorter = (list(sorted(sent)) for sent in lengths[::-1])
        for length in shorter:
            longer.remove(length)
        found[name] = longer
    return found


def refuse(rank, size):
    """List the messages of what is refused, equal in all processes."""
    A = X[own_rows(len(X), rank, size)]
    wrong = A.copy()
    if rank == size - 1:
        wrong[0, 0] = np.nan
    good, model = Sharded(A), NMF(2, init="random", max_iter=3, tol=0)
    start = {"V": torch.ones(len(A), 2, dtype=torch.float64), "U1": torch.ones(14, 2, dtype=torch.float64)}
    attempts = {
        "nan": lambda: Sharded(wrong),
        "features": lambda: Sharded(A[:, : 5 + rank]),
        "dtype": lambda: Sharded(A.astype("float32" if rank else "float64")),
        "nested": lambda: Sharded(good),
        "hidden": lambda: Sharded(np.full_like(A, np.nan), missing="nan"),
        "mixed": lambda: Sharded(Chunked(A) if rank else A),
        "few rows": lambda: Sharded.part_of(X[: size - 1]),
        "negative": lambda: model.fit(Sharded(A - 1)),
        "stored": lambda: NGE(2).fit(
            Sharded(sparse_tensor(ST[own_rows(29, rank, size)])), Y[:29][own_rows(29, rank, size)]
        ),
        "tensors": lambda: Coupled(2, modes=VIEWS).fit([good, X]),
        "views": lambda: SULF(2).fit([good, X], Y[own_rows(len(X), rank, size)]),
        "kernel": lambda: KernelNMF(2).fit(good),
        "weighted": lambda: SemiNMF(2).fit(Sharded(A, weights=A)),
        "weights": lambda: NMF(2).fit(good, weights=A),
        "graph": lambda: GraphNMF(2, graph=G[own_rows(len(X), rank, size)][: -rank or None]).fit(good),
        "labels": lambda: NGE(2).fit(good, Y[own_rows(len(X), rank, size)] if rank else None),
        "start": lambda: NMF(2, init=(np.ones((len(A) + rank, 2)), np.ones((14, 2)))).fit(good),
        "sketch": lambda: NMF(2, sketch=True).fit(good),
        "batches": lambda: NMF(2, batch_size=3).fit(good),
        "fixed": lambda: NMF(2, fixed={"V": KNOWN[: len(A) - rank]}).fit(good),
        "fixed, one": lambda: NMF(2, fixed={"V": KNOWN[: len(A), :2] * (1 - 2 * rank)}).fit(good),
        "checkpoint": lambda: model.fit(good, checkpoint="no/such/folder"),
        "stream": lambda: model.partial_fit(good),
        "term": lambda: run([Fit(good, ("V", "U1")), Laplacian(np.eye(37), "V")], {"V": hals, "U1": hals}, start),
    }
    found = {}
    for name, attempt in attempts.items():
        try:
            attempt()
            found[name] = "nothing was refused"
        except (ValueError, OSError) as error:
            found[name] = str(error)
    return found


def agree(rank, size):
    """Differ in everything that could make processes part: seeds, callbacks, time, rows of zeros."""
    A = X.copy()
    A[own_rows(len(X), size - 1, size)] = 0
    own = Sharded(A[own_rows(len(X), rank, size)])
    alone = NMF(3, random_state=rank, n_init=2, max_iter=15, tol=0).fit(own)
    stops = NMF(3, random_state=0, tol=0, callback=lambda told: rank == size - 1 and told.iteration >= 20).fit(own)
    answers = stops.transform(own)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # rows of zeros in one process are no factor of zeros
        told = NMF(3, random_state=0, tol=0, max_iter=5).fit(own)
    part, hidden = own_rows(len(X), rank, size), Sharded(H[own_rows(len(X), rank, size)], missing="nan")
    nge = NGE(4, random_state=0, max_iter=5, tol=0).fit(Sharded(X[part]), Y[part])
    return {
        "loss": alone.loss_,
        "factors": alone.factors_,
        "n_iter": stops.n_iter_,
        "scores": [told.score(own), NMF(3, random_state=0, max_iter=5, tol=0).fit(hidden).score(hidden)],
        "predicted": nge.predict(Sharded(X[part])),
        "transformed": np.abs(answers - stops.transform(A[own_rows(len(X), rank, size)])).max(),
    }


def lose(lost):
    """Make a scenario in which one process does something in the middle of a fit that others wait for."""

    def scenario(rank, size):
        own = Sharded(X[own_rows(len(X), rank, size)])
        begun = time.monotonic()
        there = lambda told: lost[1]() if rank == lost[0] else None
        try:
            NMF(3, max_iter=10**6, tol=0, callback=there).fit(own)
        except LostProcess as error:
            return {"message": str(error), "ranks": error.ranks, "seconds": time.monotonic() - begun}

    return scenario


def fail():
    raise OSError("the disk is full")


SHORT = datetime.timedelta(seconds=6)  # the timeout of groups that lose a process


def fit_dealt_and_die(rank, size):
    """Lose a process in the middle of fits that the others have ended."""
    dies = lambda told: os.kill(os.getpid(), signal.SIGKILL) if rank == 1 else None
    try:
        batch_fit([NMF(2, n_init=size, random_state=0, callback=dies)], X, distributed="auto")
    except LostProcess as error:
        return {"message": str(error), "ranks": error.ranks, "seconds": 0.0}


LOST = {
    "dealt": fit_dealt_and_die,
    "killed": lose((1, lambda: os.kill(os.getpid(), signal.SIGKILL))),
    "first killed": lose((0, lambda: os.kill(os.getpid(), signal.SIGKILL))),
    "failing": lose((2, fail)),
    "hanging": lose((1, lambda: time.sleep(12))),
}

SCENARIOS = {
    "fit": fit_all,
    "cases": fit_cases,
    "messages": count_messages,
    "refuse": refuse,
    "agree": agree,
    "stop": stop,
    "resume": resume,
    "deal": deal,
    **LOST,
}


def work(folder, rank, size, port, name):
    """Be one rank of a group."""
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group(
        "gloo", init_method=address, rank=rank, world_size=size, timeout=SHORT if name in LOST else TIMEOUT
    )
    globals()["FOLDER"] = Path(folder)
    found = SCENARIOS[name](rank, size)
    torch.save(found, Path(folder) / f"{rank}.pt")
    if name in LOST:
        os._exit(1)  # what is left of the group would wait for the lost one
    dist.barrier()
    dist.destroy_process_group()


def main(folder, size, port, name):
    """Fork one process for each rank, and end with the worst of their statuses."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    children = []
    for rank in range(int(size)):
        child = os.fork()
        if not child:
            status = 1
            try:
                work(folder, rank, int(size), int(port), name)
                status = 0
            except BaseException:  # a fork never returns to what called it
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        children.append(child)
    sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))


if __name__ == "__main__":
    main(*sys.argv[1:])
