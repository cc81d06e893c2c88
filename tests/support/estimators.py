"""The tables of estimators: a new model adds a row and inherits every test of the shared surface.

What a law cannot ask of a model is declared in its row, with the reason; laws look at declarations, never at names.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnfactor import (
    DPCA,
    LNMF,
    MFA,
    N2S2L,
    NGE,
    NMF,
    NTD,
    NTF,
    SMFA,
    SRC,
    SRLSC,
    SULF,
    ConstrainedNMF,
    CoTraining,
    GraphNMF,
    HarmonicFunction,
    KernelNMF,
    LapRLSC,
    LocalGlobalConsistency,
    PolynomialNMF,
    SemiNMF,
)


def product(model, scale=1.0):
    """V U' (and so on for tensors) of data divided by `scale`."""
    letters = "abcdefg"[: 1 + len(model.factors_)]
    factors = [np.asarray(F, dtype=float) for F in (model.embedding_, *model.factors_)]
    factors[0] = factors[0] / scale
    if hasattr(model, "core_"):  # one rank for each mode
        ranks = "uvwxyz"[: len(factors)]
        pairs = ",".join(map("".join, zip(letters, ranks, strict=True)))
        return np.einsum(f"{ranks},{pairs}->{letters}", np.asarray(model.core_, dtype=float), *factors)
    return np.einsum(",".join(f"{x}z" for x in letters) + "->" + letters, *factors)


def polynomial_product(model, scale=1.0):
    """V against the squares of the bases, which are what (c W, V / c^2) keeps."""
    V, W = (np.asarray(F, dtype=float) for F in (model.embedding_, model.factors_[0]))
    return V @ ((W / scale) ** 2).T


def classes_and_others(n, m, k):
    """Shapes of ConstrainedNMF's start with `labels(n)`."""
    y = labels(n)
    return (len(np.unique(y[y >= 0])) + int((y < 0).sum()), k), (m, k)


@dataclass(frozen=True)
class Row:
    """One estimator with settings, and what it declares.

    Attributes
    ----------
    make : callable
        The estimator with 3 components and the given settings.
    tensors : bool
        Whether it takes data of any order.
    signed : bool
        Whether negative data are accepted. `free_bases`: whether bases have any sign.
    negative_features : bool
        Whether `transform` may answer below zero (least squares without a sign).
    reconstructs : bool
        V U' stands for X: `inverse_transform`, `reconstruction_err_`. Not in feature space.
    near : bool
        The fit brings V U' near X.
    monotone : bool
        The reported objective never rises.
    momentum : bool
        An iteration depends on the ones before: a fit that goes on from factors alone takes another way.
    lifts_zero_samples : bool
        A zero sample may have coefficients: a graph, a shared row or a label gives them.
    zero_features : bool
        `transform` of a zero sample is zero. It is not where zero is a point like others (Gaussian kernel).
    supervised : bool
        Labels move the fit, so that `transform`, which knows none, may be further from X than the embedding.
    scale_free : bool
        Multiplying the data only rescales the factors. Not for absolute penalties.
    power : int
        Of the data, which the factors hold: beyond the floating-point range the data are refused.
    kernel : bool
        The bases have a row per sample, and `components_` is absent.
    core : bool
        A core joins the factors, every mode has its own rank, and `components_` is absent.
    rank : str
        The parameter that is the number of components.
    shapes : callable (n, m, k) -> shapes of the arrays of `init`
    resume : callable model -> settings that continue its fit
    state : callable (model, scale) -> array
        What the data determine, of data divided by `scale`.
    """

    make: Callable[..., Any]
    tensors: bool = False
    signed: bool = False
    free_bases: bool = False
    negative_features: bool = False
    reconstructs: bool = True
    near: bool = True
    monotone: bool = True
    momentum: bool = False
    lifts_zero_samples: bool = False
    zero_features: bool = True
    supervised: bool = False
    scale_free: bool = True
    power: int = 1
    kernel: bool = False
    core: bool = False
    rank: str = "n_components"
    shapes: Callable[..., Any] = lambda n, m, k: ((n, k), (m, k))
    resume: Callable[..., Any] = lambda model: {"init": (model.embedding_, *model.factors_)}
    state: Callable[..., Any] = product

    def __call__(self, **settings):
        return self.make(**settings)


def extrapolating(make, **declared):
    """A model whose default solver has momentum."""
    return Row(make, monotone=False, momentum=True, **declared)


def with_graphs(model, **fixed):
    """A model of graphs on V: with momentum unless a solver is named."""
    row = Row if fixed.get("solver", "auto") != "auto" else extrapolating
    return row(lambda **kw: model(3, **fixed, **kw), tensors=True, lifts_zero_samples=True, supervised=True)


def nge(**fixed):
    return with_graphs(NGE, **fixed)


def n2s2l(**fixed):
    return with_graphs(N2S2L, **fixed)


def graph_nmf(**fixed):
    row = extrapolating if fixed.get("solver") == "auto" and fixed.get("scale_free") else Row
    return row(
        lambda **kw: GraphNMF(3, n_neighbors=3, **fixed, **kw),
        lifts_zero_samples=True,  # the mean of its neighbours
        supervised=True,
        scale_free=fixed.get("scale_free", False),  # else lam is an absolute penalty
    )


def constrained(**fixed):
    return Row(
        lambda **kw: ConstrainedNMF(3, **fixed, **kw),
        lifts_zero_samples=True,  # the row of its class
        supervised=True,
        shapes=classes_and_others,
        resume=lambda model: {"init": (model.Z_, *model.factors_)},
    )


def kernel_nmf(kernel="rbf", **fixed):
    return Row(
        lambda **kw: KernelNMF(3, kernel, **fixed, **kw),
        signed=kernel == "rbf",
        negative_features=True,
        reconstructs=False,
        lifts_zero_samples=kernel == "rbf",
        zero_features=kernel != "rbf",
        power={"rbf": 0, "poly": 2}[kernel],
        kernel=True,
        shapes=lambda n, m, k: ((n, k), (n, k)),
        state=lambda model, scale=1.0: product(model, {"rbf": 1.0, "poly": scale * scale}[kernel]),
    )


def sulf(**fixed):
    return Row(
        lambda **kw: SULF(3, **fixed, **kw),
        lifts_zero_samples=True,  # its label pulls
        supervised=True,
        resume=lambda model: {
            "init": (model.embedding_, *model.factors_, model.view_weights_),
            "coef_init": getattr(model, "coef_", None),
        },
    )


MATRIX = {  # take (n, m), dense or sparse
    "NMF": extrapolating(lambda **kw: NMF(3, **kw)),
    "NMF, hals": Row(lambda **kw: NMF(3, solver="hals", **kw)),
    "NMF, multiplicative": Row(lambda **kw: NMF(3, solver="multiplicative", **kw)),
    "NMF, projected": Row(lambda **kw: NMF(3, solver="projected", normalize=None, **kw)),
    "NMF, KL": extrapolating(lambda **kw: NMF(3, loss="kullback-leibler", **kw)),
    "NMF, KL multiplicative": Row(lambda **kw: NMF(3, loss="kullback-leibler", solver="mu", **kw)),
    "NMF, beta 1.5": extrapolating(lambda **kw: NMF(3, loss=1.5, **kw), scale_free=False),  # beyond the range of X^1.5
    "NMF, pinv": extrapolating(lambda **kw: NMF(3, transform_method="pinv", **kw), negative_features=True),
    "NMF, ridge": extrapolating(
        lambda **kw: NMF(3, transform_method="ridge", ridge="cv", **kw),
        negative_features=True,
    ),
    "NTF": extrapolating(lambda **kw: NTF(3, **kw), tensors=True),
    "NTF, ridge": extrapolating(
        lambda **kw: NTF(3, transform_method="ridge", ridge="cv", **kw),
        tensors=True,
        negative_features=True,
    ),
    "NGE": nge(),
    "NGE, multiplicative": nge(solver="multiplicative", basis_rule="paper"),
    "NGE, m_matrix": nge(solver="m_matrix"),
    "NGE, sweeps": nge(inner="sweeps", alpha=100.0),
    "N2S2L": n2s2l(neighbors=3),
    "N2S2L, multiplicative": n2s2l(neighbors=2, beta=100.0, solver="multiplicative"),
    "SULF": sulf(),
    "SULF, strong": sulf(beta=1e8, gamma=100.0, lam=1000.0, exponent=0.5),
    "SemiNMF": Row(lambda **kw: SemiNMF(3, **kw), signed=True, free_bases=True),
    "SemiNMF, multiplicative": Row(
        lambda **kw: SemiNMF(3, solver="multiplicative", **kw),
        signed=True,
        free_bases=True,
        lifts_zero_samples=True,  # its row creeps to zero and never arrives
    ),
    "LNMF": Row(
        lambda **kw: LNMF(3, **kw),
        near=False,  # V is in units of the root of the data
        monotone=False,  # a heuristic
        state=lambda model, scale=1.0: product(model, np.sqrt(scale)),
    ),
    "GraphNMF": graph_nmf(),
    "GraphNMF, scale-free": graph_nmf(scale_free=True, solver="auto"),
    "ConstrainedNMF": constrained(),
    "ConstrainedNMF, hals": constrained(solver="hals"),
    "KernelNMF": kernel_nmf(),
    "KernelNMF, poly": kernel_nmf("poly", features="paper"),
    "PolynomialNMF": Row(lambda **kw: PolynomialNMF(3, **kw), reconstructs=False, state=polynomial_product),
}
MATRIX |= {
    key: row(
        lambda solver=solver, **kw: NTD(3, solver=solver, normalize="l2" if solver == "auto" else None, **kw),
        tensors=True,
        core=True,
        rank="ranks",
        shapes=lambda n, m, k: ((n, k), (m, k), (k, k)),
        resume=lambda model: {"init": (model.embedding_, *model.factors_, model.core_)},
    )
    for key, solver, row in (("NTD", "auto", extrapolating), ("NTD, hals", "hals", Row), ("NTD, mu", "mu", Row))
}
TENSOR = {key: row for key, row in MATRIX.items() if row.tensors}

# Whose factors do not change (but for the scale) when the data are multiplied by a constant.
SCALE_FREE = {key: row for key, row in MATRIX.items() if row.scale_free}


class Drawn(np.random.RandomState):
    """A random state that always draws one seed."""

    def __init__(self, seed):
        super().__init__(0)
        self.seed_drawn = seed

    def randint(self, *args, size=None, **kwargs):
        return np.full(size, self.seed_drawn)


def labels(n):
    """Three classes and, in between, unlabelled samples."""
    return np.where(np.arange(n) % 4 == 3, -1, np.arange(n) % 4)


def blocks(n=12, m=8, seed=0, noise=0.05):
    """Samples of three classes with overlapping features, nonnegative."""
    rng = np.random.default_rng(seed)
    parts = rng.random((4, m)) ** 2
    return rng.random((n, 4)) @ parts + np.eye(4)[np.arange(n) % 4] @ parts + noise * rng.random((n, m))


@dataclass(frozen=True)
class Supervised:
    """A classifier or a projection with labels: what `fit(X, y)` makes of one matrix, some samples unlabelled.

    Attributes
    ----------
    make : callable
    answer : callable (model, X) -> array (n_samples, ...)
        What the model says of samples: class scores or coordinates.
    tol : float
        How near answers are that differ in rounding alone; codes are as near as their certified gap.
    degree : int
        Of the answers in the scale of the data.
    """

    make: Callable[..., Any]
    answer: Callable[..., Any]
    tol: float = 1e-6
    degree: int = 0

    def __call__(self, **settings):
        return self.make(**settings)


def decision(model, X):
    return model.decision_function(X)


def proba(model, X):
    return model.predict_proba(X)


def coordinates(model, X):
    return model.transform(X)


CLASSIFIERS = {
    "SRLSC": Supervised(lambda **kw: SRLSC(tol=1e-8, **kw), decision, tol=1e-4),
    "LapRLSC": Supervised(lambda **kw: LapRLSC(n_neighbors=5, **kw), decision),
    "SRC": Supervised(lambda **kw: SRC(tol=1e-8, **kw), decision, tol=1e-4),
    "HarmonicFunction": Supervised(lambda **kw: HarmonicFunction(n_neighbors=11, **kw), proba),
    "HarmonicFunction, mass": Supervised(lambda **kw: HarmonicFunction(n_neighbors=11, class_mass=True, **kw), proba),
    "LocalGlobalConsistency": Supervised(lambda **kw: LocalGlobalConsistency(n_neighbors=11, alpha=0.9, **kw), proba),
    "CoTraining": Supervised(lambda **kw: CoTraining(n_rounds=3, **kw), proba),
}
EMBEDDINGS = {
    "DPCA": Supervised(lambda **kw: DPCA(2, **kw), coordinates, degree=1),
    "MFA": Supervised(lambda **kw: MFA(2, n_pairs=5, **kw), coordinates, degree=1),
    "SMFA": Supervised(lambda **kw: SMFA(2, n_pairs=5, neighbors=3, **kw), coordinates, degree=1),
}
SUPERVISED = CLASSIFIERS | EMBEDDINGS
