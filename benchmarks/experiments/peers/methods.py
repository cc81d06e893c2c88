"""One call per package: so many iterations from given factors, timed, and the factors that come out."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from ...timing.clock import Clock
from .problems import FROBENIUS, KL, NTF, Spec

TINY = 1e-15  # a tolerance that nothing meets before its objective stands still in its own precision

MODELS = {  # the groups of problems that a method of another package has a model for; the others have tensors only
    "sklearn_cd": (FROBENIUS,),
    "sklearn_mu": (FROBENIUS, KL),
    "torchnmf": (FROBENIUS, KL),
    "tensorly_hals": (FROBENIUS, NTF),
    "nnfac": (FROBENIUS, KL, NTF),
}

Factors = list[Any]


@dataclass(frozen=True)
class Timed:
    """What a call did: seconds, the factors (samples first), and how many iterations it ran."""

    seconds: float
    factors: Factors
    iterations: int


@dataclass(frozen=True)
class Method:
    """A package's solver on one problem.

    Attributes
    ----------
    name : str
        In `peers.LABELS`.
    fit : callable (start, iterations) -> Timed
        From the start, on data that it already holds; what it needs to convert is outside its clock.
    continues : bool
        Whether going on from its factors is what a longer run does. Extrapolated solvers remember more than factors.
    label : str
        What distinguishes it here (a backend), for the report.
    """

    name: str
    fit: Callable[[Factors, int], Timed]
    continues: bool
    label: str = ""


def why_not(name: str, spec: Spec, device: Any) -> str | None:
    """Why a method cannot run here, None if it can; "" if it has no such model and nobody would expect it to."""
    package = name.split("_")[0]
    if package == "ours":
        return "" if name == "ours_hals" and spec.loss == KL else None
    if spec.group not in MODELS.get(name, (NTF,)):
        return ""
    if reason := _absent(package):
        return reason
    if device.type != "cpu" and package in ("sklearn", "nnfac"):
        return f"runs on the CPU only, this run is on {device}"
    if spec.sparse and package in ("tensorly", "nnfac"):
        return "takes dense data only"
    return _fault_of_nnfac(2 + (spec.group == NTF)) if package == "nnfac" else None


def _absent(package: str) -> str | None:
    distribution = {"sklearn": "scikit-learn", "nnfac": "nn-fac"}.get(package, package)
    try:
        found = version(distribution)
    except PackageNotFoundError:
        return f'{distribution} is not installed; install with: python -m pip install -e ".[peers]"'
    if package == "tensorly" and tuple(map(int, found.split(".")[:2])) < (0, 10):
        return f"TensorLy {found} runs up to 100 inner sweeps because of a stop test that 0.10 mended; needs 0.10"
    return None


@cache
def _fault_of_nnfac(order: int) -> str | None:
    """Say what its solver for data of some order raises with the packages that are here, None if it runs."""
    shape = (3, 4, 5)[:order]
    start = [np.ones((n, 1), dtype=np.float32) for n in shape]
    try:
        _nnfac(np.ones(shape, dtype=np.float32), Clock(), FROBENIUS, start, 1)
    except Exception as error:  # releases for the TensorLy of today are older than the NumPy of today
        return f"nn-fac {version('nn-fac')} fails with NumPy {np.__version__} here: {type(error).__name__}"
    return None


def build(name: str, X: Any, spec: Spec, clock: Clock, device: Any) -> Method:
    """Make a method on some data (float32 array or CSR)."""
    k, loss = spec.n_components, spec.loss
    if name.startswith("ours"):
        solver = {"ours": "auto", "ours_hals": "hals", "ours_mu": "multiplicative"}[name]
        model = partial(ours, on_device(X, device), clock, k, loss, solver)
        return Method(name, model, continues=solver != "auto")
    if name.startswith("sklearn"):
        return Method(name, partial(_sklearn, X, clock, k, loss, name.removeprefix("sklearn_")), continues=True)
    if name == "torchnmf":
        return Method(name, partial(_torchnmf, on_device(X, device), clock, 1 if loss == KL else 2), continues=True)
    if name == "nnfac":
        return Method(name, partial(_nnfac, X, clock, loss), continues=True, label=f"version {version('nn-fac')}")
    return _tensorly(name, X, clock, device)


def on_device(X: Any, device: Any) -> Any:
    """Put data where a method computes; the CPU takes arrays as they are."""
    if device.type == "cpu":
        return X
    import torch

    if isinstance(X, np.ndarray):
        return torch.from_numpy(X).to(device)
    return torch.sparse_csr_tensor(X.indptr, X.indices, X.data, X.shape, device=device)


def ours(
    X: Any, clock: Clock, k: int, loss: Any, solver: Any, start: Factors, iterations: int, tol: float = TINY
) -> Timed:
    """`NMF` or `NTF`, up to the last reading of its objective: the final residual in float64 is not iteration time.

    A tolerance above zero reads the objective every ten iterations, as a user's run does. Should that stop it early,
    the run is repeated, and timed, with `tol=0`, which reads it at every iteration.
    """
    from nnfactor import NMF, NTF

    read: list[float] = []
    estimator = NMF if X.ndim == 2 else NTF
    model = estimator(
        k,
        loss=loss,
        solver=solver,
        init=tuple(start),
        max_iter=iterations,
        tol=tol,
        normalize=None,  # the next call goes on from these factors, in the same order of components
        callback=lambda progress: read.append(clock.read()),
    )
    with quiet():
        began = clock.read()
        model.fit(X)
    if model.n_iter_ < iterations and tol > 0:
        return ours(X, clock, k, loss, solver, start, iterations, tol=0.0)
    return Timed(read[-1] - began, [model.embedding_, *model.factors_], int(model.n_iter_))


def _sklearn(X: Any, clock: Clock, k: int, loss: str, solver: str, start: Factors, iterations: int) -> Timed:
    from sklearn.decomposition import non_negative_factorization as factorize

    V, U = start
    W, H = V.copy(), np.array(U.T, order="C")  # it writes into both, and going on, U.T may be what it gave
    work = partial(
        factorize, X, W, H, n_components=k, init="custom", solver=solver, beta_loss=loss, tol=0, max_iter=iterations
    )
    with quiet():
        seconds, (W, H, done) = clock.time(work)
    return Timed(seconds, [W, H.T], done)


def _torchnmf(X: Any, clock: Clock, beta: int, start: Factors, iterations: int) -> Timed:
    import torch

    with quiet():  # it compiles itself with torch.jit, which says that it is deprecated
        from torchnmf.nmf import NMF

    X = _sparse_tensor(X) if not isinstance(X, np.ndarray | torch.Tensor) else torch.as_tensor(X)
    H, W = (torch.as_tensor(F).clone().to(X.device).contiguous() for F in start)
    model = NMF(W=W, H=H)
    with quiet():  # products of sparse data are deprecated ones of torch
        seconds, done = clock.time(lambda: model.fit(X, beta=beta, tol=float("-inf"), max_iter=iterations))
    return Timed(seconds, [model.H.detach(), model.W.detach()], done)


def _sparse_tensor(X: Any) -> Any:
    import torch

    coo = X.tocoo()
    places, entries = torch.from_numpy(np.stack(coo.coords)), torch.from_numpy(coo.data)
    return torch.sparse_coo_tensor(places, entries, coo.shape, check_invariants=False)


def _tensorly(name: str, X: np.ndarray, clock: Clock, device: Any) -> Method:
    """Take the faster of its two backends that matter here, by two iterations of each; the first call is discarded."""
    fits = {"pytorch": partial(_tensorly_fit, name, X, clock, "pytorch", device)}
    if device.type == "cpu":
        fits["numpy"] = partial(_tensorly_fit, name, X, clock, "numpy", device)
    trial = [np.full((d, 4), 0.5, dtype=np.float32) for d in X.shape]
    seconds = {b: min(fit(trial, 2).seconds for _ in range(3)) for b, fit in fits.items()}
    backend = min(seconds, key=lambda b: seconds[b])
    return Method(name, fits[backend], continues=True, label=f"{backend} backend")


def _tensorly_fit(
    name: str, X: np.ndarray, clock: Clock, backend: str, device: Any, start: Factors, iterations: int
) -> Timed:
    import tensorly as tl
    from tensorly.cp_tensor import CPTensor
    from tensorly.decomposition import non_negative_parafac, non_negative_parafac_hals

    solve = non_negative_parafac_hals if name == "tensorly_hals" else non_negative_parafac
    with tl.backend_context(backend, local_threadsafe=True):
        there = {"device": device} if backend == "pytorch" else {}
        tensor = tl.tensor(X, **there)
        init = CPTensor((None, [tl.tensor(_host(F), **there) for F in start]))
        work = partial(solve, tensor, init.rank, n_iter_max=iterations, init=init, tol=0)
        with quiet():
            seconds, result = clock.time(work)
        return Timed(seconds, [_host(F) for F in result.factors], iterations)


def _nnfac(X: np.ndarray, clock: Clock, loss: str, start: Factors, iterations: int) -> Timed:
    """Run `nmf`, or the steps of `ntf`; both evaluate their objective in every iteration, inside the clock.

    Their HALS repeats inner sweeps for as long as the products took, as measured: no two runs are the same. A later
    version calls that "hals_acc" and has it for matrices only.
    """
    with quiet():
        from nn_fac.nmf import nmf
        from nn_fac.update_rules import nnls

    if X.ndim > 2:
        work = partial(_nnfac_tensor, X, start, iterations)
    else:
        V, U = start
        limits: dict[str, Any] = {"n_iter_max": iterations, "tol": 0, "sparsity_coefficients": [None] * 2}
        limits["normalize"] = [False] * 2
        if loss == KL:
            limits.update(update_rule="mu", beta=1)
        elif hasattr(nnls, "switch_alternate_hals_acc"):
            limits.update(update_rule="hals_acc")
        work = partial(nmf, X, V.shape[1], init="custom", U_0=V, V_0=np.array(U.T, order="C"), **limits)
    with quiet():
        seconds, factors = clock.time(work)
    factors = [factors[0], factors[1].T] if X.ndim == 2 else factors
    return Timed(seconds, [np.asarray(F) for F in factors], iterations)


def _nnfac_tensor(X: np.ndarray, start: Factors, iterations: int) -> list[Any]:
    """Do what `ntf` does: the function itself ends with an array of all factors, which NumPy refuses since 1.24."""
    from nn_fac.ntf import one_ntf_step

    factors, nothing, no = [F.copy() for F in start], [None] * X.ndim, [False] * X.ndim
    unfolded = [np.moveaxis(X, mode, 0).reshape(X.shape[mode], -1) for mode in range(X.ndim)]
    norm = np.linalg.norm(X.ravel())
    for _ in range(iterations):
        factors, _ = one_ntf_step(unfolded, factors[0].shape[1], factors, norm, "hals", 2, nothing, [], no)
    return factors


def _host(F: Any) -> np.ndarray:
    return F if isinstance(F, np.ndarray) else F.detach().cpu().numpy()


def objective(X: Any, loss: str) -> Callable[[Sequence[Any]], float]:
    """`||X - [[factors]]||^2` or the divergence, in float64, outside every clock; holds the data in float64."""
    import torch

    from nnfactor.core import BetaFit, Fit, as_data
    from nnfactor.core.factors import as_factor

    data = as_data(X.astype(np.float64))
    modes = ("V", *(f"U{b}" for b in range(1, X.ndim)))
    measure = Fit(data, modes).direct if loss != KL else BetaFit(data, modes, 1.0).value

    def value(factors: Sequence[Any]) -> float:
        Fs = [as_factor(torch.as_tensor(_host(F)).double()) for F in factors]
        return float(measure(dict(zip(modes, Fs, strict=True))))

    return value


@contextmanager
def quiet() -> Iterator[None]:
    """Silence runs that end at their last iteration: here they are meant to."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
