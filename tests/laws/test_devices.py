"""Every step on a fake accelerator (no GPU needed), and on a real one where there is one."""

from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from accelerator import DataDependentOutputException, fake_device
from tables import MIXED, MODELS, RULES, TERMS, problem

from nnfactor import NGE, NMF, NTF
from nnfactor.core import (
    L2,
    BetaFit,
    Fit,
    Graph,
    Laplacian,
    bmme,
    hals,
    her,
    m_matrix,
    multiplicative,
    objective,
    step,
)
from nnfactor.core.data.dense import Dense
from nnfactor.core.data.sparse import Sparse
from nnfactor.core.data.sparse_tensor import SparseTensor
from nnfactor.core.rules.closed_form import least_squares, simplex
from nnfactor.core.solve.run import objective_of

gpu = pytest.mark.gpu
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
EVERYTHING = {key: terms for key, terms in {**TERMS, **MIXED}.items() if not key.startswith("stored")}


@pytest.fixture
def fake():
    with fake_device() as device:
        yield device


def there(p, device, dtype=torch.float32):
    """The problem's data and factors on the fake device, its graphs on the host."""
    p.X = torch.empty(p.X.shape, dtype=dtype, device=device)
    empty = lambda F: torch.empty((*F.shape[:-2], F.shape[-1], F.shape[-2]), dtype=dtype, device=device).mT
    weight = torch.empty(p.factors["weight"].shape, dtype=dtype, device=device)
    p.factors = {n: weight if n == "weight" else empty(F) for n, F in p.factors.items()}
    return p


@pytest.fixture
def no_validation(monkeypatch):
    """`as_data` and beta <= 0 look at the data on the host, once, before the sweeps; here there is nothing to see."""
    from nnfactor.core.terms import fit

    monkeypatch.setattr(fit, "as_data", lambda X, **_: X if isinstance(X, Dense | Sparse | SparseTensor) else Dense(X))
    monkeypatch.setattr(Dense, "smallest", lambda self: 1.0)


@pytest.mark.parametrize("rule", [r for r in RULES if r != "m_matrix, solved"])  # a tolerance reads the host
@pytest.mark.parametrize("key", EVERYTHING)
def test_sweeps_trace_without_mixing_devices_or_reading_the_host(fake, no_validation, key, rule):
    if not (key in MODELS or rule == "multiplicative"):
        return  # single terms and divergences are traced by the multiplicative rule
    for order, batch in ((2, ()), (3, (2,))):
        p = there(problem(order, batch), fake)
        terms = EVERYTHING[key](p)
        names = [n for n in p.order_of_updates if any(n in t.factor_names for t in terms)]
        state = step(terms, dict.fromkeys(names, RULES[rule]))({"factors": p.factors})
        values = objective(terms, state["factors"])
        assert values.device == fake and values.shape == batch and values.dtype == torch.float64
        for name in names:
            F = state["factors"][name]
            assert F.device == fake and F.dtype == torch.float32 and F.shape == p.factors[name].shape


@pytest.mark.parametrize(
    ("key", "method", "rule"),
    [
        ("fit", her, hals),
        ("nge", partial(her, unit=("U1",)), RULES["composed"]),
        ("beta 1", bmme, multiplicative),
        ("beta 1.5", bmme, multiplicative),
    ],
)
def test_sweeps_with_momentum_trace(fake, no_validation, key, method, rule):
    for order, batch in ((2, ()), (2, (3,)), (3, (2,))):
        p = there(problem(order, batch), fake)
        terms = EVERYTHING[key](p)
        sweep, state = method(terms, dict.fromkeys(p.order_of_updates, rule)), {"factors": p.factors}
        for _ in range(3):
            state = sweep(state)
        values = objective_of(terms, state)
        assert values.device == fake and values.shape == batch and values.dtype == torch.float64
        for name, F in state["factors"].items():
            assert F.device == fake and F.dtype == torch.float32 and F.shape == p.factors[name].shape


def test_coefficients_and_view_weights_trace(fake, no_validation):
    for order, batch in ((2, ()), (3, (2,))):
        p = there(problem(order, batch), fake)
        rules = {"W": least_squares, **dict.fromkeys(p.order_of_updates, multiplicative), "pi": simplex}
        state = step(EVERYTHING["sulf"](p), rules)({"factors": p.factors})
        assert all(
            state["factors"][n].device == fake and state["factors"][n].shape == p.factors[n].shape for n in rules
        )


def test_sparse_data_trace(fake):
    X = sp.random(9, 7, density=0.4, format="csr", dtype=np.float32, random_state=0)
    p = there(problem(2, (2,), shape=(9, 7)), fake)
    for terms in ([Fit(Sparse(X, fake, torch.float32), p.modes), Laplacian(p.own, "V")],):
        state = step(terms, dict.fromkeys(("U1", "V"), multiplicative))({"factors": p.factors})
        assert objective(terms, state["factors"]).device == fake


@pytest.mark.parametrize("chunk", [1, 1 << 20])
def test_sparse_tensors_trace(fake, monkeypatch, chunk):
    monkeypatch.setattr("nnfactor.core.data.sparse_tensor.CHUNK", chunk)
    X, at = np.ones(20, np.float32), np.unravel_index(np.arange(0, 120, 6), (6, 4, 5))
    p = there(problem(3, (2,)), fake)
    data = SparseTensor(at, X, (6, 4, 5), fake, torch.float32)
    monkeypatch.setattr(SparseTensor, "largest", lambda self: 1.0)  # read once, before the sweeps
    for terms, rule in (([Fit(data, p.modes)], hals), ([BetaFit(data, p.modes)], multiplicative)):
        state = step(terms, dict.fromkeys(p.order_of_updates, rule))({"factors": p.factors})
        assert objective(terms, state["factors"]).device == fake


def test_the_fake_device_catches_what_it_should(fake):
    F = torch.empty(3, 2, device=fake)
    with pytest.raises(DataDependentOutputException):
        bool((F > 0).any())
    with pytest.raises(RuntimeError, match="device"):
        F @ torch.empty(2, 3)


def cuda_cases():
    rng = np.random.default_rng(0)
    X = rng.random((40, 6, 5))
    y = np.repeat(np.arange(4), 10)
    flat = X.reshape(40, -1)
    return {
        "nmf": (NMF(4), flat, None),
        "kl": (NMF(4, loss="kullback-leibler"), flat, None),
        "sparse": (NMF(4), sp.csr_array(flat * (flat > 0.7)), None),
        "ntf": (NTF(4), X, None),
        "ntf, sparse": (NTF(4), torch.from_numpy(X * (X > 0.7)).to_sparse_coo(), None),
        "ntf, sparse, kl": (NTF(4, loss="kullback-leibler"), torch.from_numpy(X * (X > 0.7)).to_sparse_coo(), None),
        "nge": (NGE(6), X, y),
        "nge, m_matrix": (NGE(6, solver="m_matrix"), X, y),
        "nge, multiplicative": (NGE(6, solver="mu"), X, y),
    }


@gpu
@needs_cuda
@pytest.mark.parametrize("dtype, tol", [("float32", 1e-4), ("float64", 1e-8)])
@pytest.mark.parametrize("case", cuda_cases())
def test_cuda_agrees_with_the_cpu(case, dtype, tol):
    model, X, y = cuda_cases()[case]
    X = X.to(getattr(torch, dtype)) if isinstance(X, torch.Tensor) else X.astype(dtype)
    model.set_params(max_iter=30, tol=0, random_state=0, init="random")
    losses = [model.set_params(device=device).fit(X, y).loss_ for device in ("cpu", "cuda")]
    np.testing.assert_allclose(losses[1], losses[0], rtol=tol)
    assert isinstance(model.embedding_, torch.Tensor if isinstance(X, torch.Tensor) else np.ndarray)
    assert str(model.embedding_.dtype).removeprefix("torch.") == dtype


@gpu
@needs_cuda
@pytest.mark.parametrize("rule", [multiplicative, m_matrix, hals])
def test_no_synchronisation_inside_a_sweep(rule):
    X = torch.rand(60, 50, device="cuda")
    own = Graph(sp.csr_array(np.triu(np.ones((60, 60)), 1) + np.tril(np.ones((60, 60)), -1)))
    terms = [Fit(X, ("V", "U1")), Laplacian(own, "V", norms_of=("U1",)), L2("V", 0.1)]
    state = {"factors": {"V": torch.rand(60, 8, device="cuda"), "U1": torch.rand(50, 8, device="cuda")}}
    sweep = step(terms, dict.fromkeys(("U1", "V"), rule))
    state = sweep(state)
    objective(terms, state["factors"])
    torch.cuda.set_sync_debug_mode("error")
    try:
        objective(terms, sweep(state)["factors"])
    finally:
        torch.cuda.set_sync_debug_mode("default")


@gpu
@needs_cuda
def test_a_fit_ignores_tf32_free_products_and_autocast():
    u, v = 1 + torch.arange(256.0) / 4096, 1 + torch.arange(128.0) / 8192
    X = torch.outer(u, v).cuda()  # needs more than the ten bits of TF32
    with torch.autocast("cuda", dtype=torch.float16):
        model = NMF(1, random_state=0).fit(X)
    assert model.reconstruction_err_ < 5e-6 * float(X.norm()) and model.embedding_.device.type == "cuda"


@gpu
@needs_cuda
def test_memory_stays_near_the_data():
    X = torch.rand(20_000, 2_000, device="cuda")
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    NMF(20, max_iter=20, tol=0, init="random", random_state=0).fit(X)
    assert torch.cuda.max_memory_allocated() - before < 0.5 * X.numel() * 4


def test_autocast_on_the_cpu_changes_nothing():
    X = np.random.default_rng(0).random((20, 10)).astype(np.float32)
    plain = NMF(3, max_iter=20, tol=0, random_state=0).fit(X)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = NMF(3, max_iter=20, tol=0, random_state=0).fit(X)
        transformed = cast.transform(X)
    np.testing.assert_array_equal(plain.embedding_, cast.embedding_)
    np.testing.assert_array_equal(plain.transform(X), transformed)
