"""The steps of the models whose terms and rules are their own, on a fake accelerator; every model on a real one."""

import pickle
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from accelerator import fake_device
from tables import problem

import nnfactor
from nnfactor.core import L2, L21, Fit, m_matrix, multiplicative, objective, run, step
from nnfactor.core.data.dense import Dense
from nnfactor.core.rules.closed_form import least_squares, simplex, unconstrained
from nnfactor.core.terms.multiview import Labels, SemiFit, Views
from nnfactor.core.terms.polynomial import PrintedPolynomialFit
from nnfactor.models.factorization.local_nmf import _Divergence, _root_rule, _unit_sums

N, WIDTHS, K, CLASSES = 9, (6, 5), 4, 3


@pytest.fixture
def device():
    with fake_device() as device:
        yield device


def labels(device, printed=False):
    """Which rows are labelled is known on the host."""
    return Labels(torch.empty(N, CLASSES, device=device), np.arange(N) < 5, printed=printed)


def sulf(device, draw, printed=False, free=False):
    fit = SemiFit if free else Fit
    views = [Dense(torch.empty(N, m, device=device)) for m in WIDTHS]
    fits = tuple(fit(X, ("V", f"U{p + 1}")) for p, X in enumerate(views))
    terms = [Views(fits), labels(device, printed), L21("W", 0.1), L2("pi", 1.0)]
    basis = unconstrained if free else multiplicative
    rules = {"W": least_squares, "U1": basis, "U2": basis, "V": partial(multiplicative, power=0.5), "pi": simplex}
    shapes = {"V": (N, K), "U1": (WIDTHS[0], K), "U2": (WIDTHS[1], K), "W": (K, CLASSES), "pi": (1, len(WIDTHS))}
    return terms, rules, {name: draw(*shape) for name, shape in shapes.items()}


def single(device, draw, term, rules):
    """A model of one matrix; the factors are those that the rules name, samples first."""
    factors = {n: draw(N if n == "V" else WIDTHS[0], K) for n in ("V", *rules)}
    return [term(Dense(torch.empty(N, WIDTHS[0], device=device)), tuple(factors))], rules, factors


CASES = {
    "SULF": sulf,
    "SULF, printed": partial(sulf, printed=True),
    "SULF, signed views": partial(sulf, free=True),
    "SemiNMF": partial(single, term=SemiFit, rules={"U": unconstrained, "V": partial(multiplicative, power=0.5)}),
    "LNMF": partial(
        single, term=lambda X, modes: _Divergence(X, modes, 1.0, 1.0), rules={"V": _root_rule, "W": _unit_sums}
    ),
    "KernelNMF": partial(single, term=Fit, rules={"B": multiplicative, "V": multiplicative}),
    "PolynomialNMF, printed": partial(
        single, term=PrintedPolynomialFit, rules={"V": multiplicative, "W": multiplicative}
    ),
}


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("case", CASES)
def test_models_trace_without_mixing_devices_or_reading_the_host(device, case, batch):
    draw = lambda rows, k: torch.empty(*batch, k, rows, device=device).mT
    terms, rules, factors = CASES[case](device, draw)
    state = step(terms, rules)({"factors": factors})
    values = objective(terms, state["factors"])
    assert values.device == device and values.shape == batch and values.dtype == torch.float64
    for name, F in state["factors"].items():
        assert F.device == device and F.dtype == torch.float32 and F.shape == factors[name].shape, name


# On a real device


def data():
    rng = np.random.default_rng(0)
    parts = rng.random((4, 30)) ** 2
    X = np.eye(4)[np.arange(40) % 4] @ parts + 0.1 * rng.random((40, 30))
    return X, np.where(np.arange(40) % 5 == 4, -1, np.arange(40) % 4)


def models():
    """Estimators of one data matrix, with whether they are given labels."""
    fixed = {"max_iter": 20, "tol": 0, "random_state": 0}
    return {
        "NMF, hals": (nnfactor.NMF(4, solver="hals", **fixed), False),
        "NMF, multiplicative": (nnfactor.NMF(4, solver="mu", **fixed), False),
        "NMF, projected": (nnfactor.NMF(4, solver="projected", **fixed), False),
        "NMF, auto": (nnfactor.NMF(4, **fixed), False),
        "NMF, Itakura-Saito": (nnfactor.NMF(4, loss=0.5, **fixed), False),
        "N2S2L": (nnfactor.N2S2L(5, neighbors=3, **fixed), True),
        "GraphNMF": (nnfactor.GraphNMF(4, **fixed), False),
        "ConstrainedNMF": (nnfactor.ConstrainedNMF(4, **fixed), True),
        "LNMF": (nnfactor.LNMF(4, **fixed), False),
        "SemiNMF": (nnfactor.SemiNMF(4, **fixed), False),
        "KernelNMF": (nnfactor.KernelNMF(4, **fixed), False),
        "PolynomialNMF": (nnfactor.PolynomialNMF(4, **fixed), False),
    }


@pytest.mark.gpu
@pytest.mark.parametrize("dtype, tol", [("float32", 1e-4), ("float64", 1e-8)])
@pytest.mark.parametrize("case", models())
def test_every_model_agrees_on_cuda_and_cpu(case, dtype, tol):
    (model, labelled), (X, y) = models()[case], data()
    start = {} if case in ("KernelNMF", "PolynomialNMF") else {"init": "random"}
    fit = lambda device: model.set_params(device=device, **start).fit(X.astype(dtype), y if labelled else None).loss_
    np.testing.assert_allclose(fit("cuda"), fit("cpu"), rtol=tol)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "case", ["SULF", "LNMF", "PolynomialNMF, printed"]
)  # `unconstrained` takes eigh, which checks itself
def test_models_do_not_synchronise_inside_a_sweep(case):
    cuda = torch.device("cuda")
    draw = lambda rows, k: torch.rand(k, rows, device=cuda).mT
    terms, rules, factors = CASES[case](cuda, draw)
    sweep = step(terms, rules)
    state = sweep({"factors": factors})
    torch.cuda.set_sync_debug_mode("error")
    try:
        objective(terms, sweep(state)["factors"])
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
def test_auto_takes_the_device_that_is_there():
    X, _ = data()
    assert nnfactor.NMF(3, max_iter=5, tol=0).fit(X).fit_info_["device"].startswith("cuda")
    on_cpu = nnfactor.NMF(3, max_iter=5, tol=0).fit(torch.from_numpy(X))
    assert on_cpu.embedding_.device.type == "cpu"  # a tensor's own device comes first
    assert nnfactor.NMF(3, max_iter=5, tol=0).fit(torch.from_numpy(X).cuda()).embedding_.device.type == "cuda"


@pytest.mark.gpu
def test_a_model_fitted_on_cuda_is_read_where_there_is_none(tmp_path):
    X, _ = data()
    model = nnfactor.NMF(3, max_iter=5, tol=0, random_state=0).fit(torch.from_numpy(X).cuda())
    (tmp_path / "model.pkl").write_bytes(pickle.dumps(model))
    np.save(tmp_path / "V.npy", model.embedding_.cpu().numpy())
    code = """
import pickle, numpy as np, torch
assert not torch.cuda.is_available()
model = pickle.load(open("model.pkl", "rb"))
assert model.embedding_.device.type == "cpu"
np.testing.assert_array_equal(model.embedding_.numpy(), np.load("V.npy"))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(_root())},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.gpu
def test_restarts_and_kl_stay_near_the_data_on_cuda():
    X = torch.rand(4_000, 2_000, device="cuda")
    for model in (
        nnfactor.NMF(10, n_init=4, init="random", max_iter=10, tol=0),
        nnfactor.NMF(10, loss="kullback-leibler", init="random", max_iter=10, tol=0),
    ):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        model.fit(X)
        assert torch.cuda.max_memory_allocated() - before < 1.5 * X.numel() * X.element_size()


@pytest.mark.gpu
def test_a_sparse_graph_is_never_dense_on_cuda():
    n = 50_000
    i = np.repeat(np.arange(n), 8)
    A = sp.csr_array((np.ones(8 * n), (i, (i + np.tile(np.arange(1, 9), n)) % n)), shape=(n, n))
    p = problem(2, shape=(6, 5), k=4)  # a plain start of the right names
    X, V = torch.rand(n, 20, device="cuda"), torch.rand(4, n, device="cuda").mT
    terms = [Fit(X, p.modes), nnfactor.core.Laplacian(A.maximum(A.T), "V", weight=0.1)]
    torch.cuda.reset_peak_memory_stats()
    factors = {"V": V, "U1": torch.rand(4, 20, device="cuda").mT}
    run(terms, {"U1": multiplicative, "V": m_matrix}, factors, max_iter=5, tol=0)
    assert torch.cuda.max_memory_allocated() < 40 * V.numel() * V.element_size() + 200 * 2**20


def _root():
    from pathlib import Path

    return Path(nnfactor.__file__).resolve().parent.parent
