"""Captured sweeps: a recorder on the CPU stands in for a CUDA graph; the real one where there is a device."""

from contextlib import ExitStack
from functools import partial

import numpy as np
import pytest
import torch
from tables import MODELS, RULES, TERMS, problem
from torch.autograd.grad_mode import _unsafe_preserve_version_counter
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from nnfactor.core import Fit, bmme, compose, hals, her, m_matrix, multiplicative, run, step, take
from nnfactor.core import factors as core_factors
from nnfactor.core.compiled import without_compiled_loops
from nnfactor.core.data.as_data import as_data
from nnfactor.core.gpu import replays_graph
from nnfactor.core.solve import cuda_graph as graphs
from nnfactor.core.solve.cuda_graph import capture, worth_capturing
from nnfactor.core.solve.momentum import extrapolation

CPU = torch.device("cpu")
COUNT = {"captures": 0}


@pytest.fixture(autouse=True)
def by_torch():
    """As on a GPU: compiled loops of the CPU are no operations of torch, which a graph records."""
    with without_compiled_loops():
        yield


class Record(TorchDispatchMode):
    """As a CUDA graph does: repeats operations on the tensors of the recording, and leaves no trace in versions."""

    def __init__(self, work):
        super().__init__()
        self.calls = []
        COUNT["captures"] += 1
        work()  # the warm-up on the side stream: memos meet the buffers before the recording
        with self:
            work()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, out))
        return out

    def __call__(self):
        for func, args, kwargs, out in self.calls:
            with ExitStack() as stack:
                for t in self._tensors((args, kwargs, out)):
                    stack.enter_context(_unsafe_preserve_version_counter(t))
                again = func(*args, **kwargs)
                for old, new in zip(self._tensors(out), self._tensors(again), strict=True):
                    if old.untyped_storage().data_ptr() != new.untyped_storage().data_ptr():
                        old.copy_(new)

    @staticmethod
    def _tensors(tree):
        return [t for t in tree_leaves(tree) if isinstance(t, torch.Tensor) and t.layout == torch.strided]


def sweeps(key, rule, batch):
    """An eager and a captured sweep of the same model, each with its own memory, and their common start."""
    p = problem(3, batch, seed=3)
    names = lambda terms: [n for n in p.order_of_updates if any(n in t.factor_names for t in terms)]
    make = lambda terms: step(terms, dict.fromkeys(names(terms), RULES[rule]))
    return make(MODELS[key](p)), capture(make(MODELS[key](p)), CPU, Record), {"factors": p.factors}


@pytest.mark.parametrize("rule", [r for r in RULES if r != "m_matrix, solved"])
@pytest.mark.parametrize("key", MODELS)
@pytest.mark.parametrize("batch", [(), (2,)])
def test_replays_are_the_eager_sweeps_bit_for_bit(key, rule, batch):
    eager, replayed, state = sweeps(key, rule, batch)
    with torch.no_grad():
        wanted, got, kept = state, state, []
        for _ in range(6):
            wanted, got = eager(wanted), replayed(got)
            kept.append((got, {n: F.clone() for n, F in got["factors"].items()}))
            for name, F in wanted["factors"].items():
                assert torch.equal(got["factors"][name], F), name
    for got, copies in kept:  # a state that was handed out is never written to again
        assert all(torch.equal(got["factors"][n], F) for n, F in copies.items())


def test_a_replay_starts_where_it_is_told():
    eager, replayed, state = sweeps("nge", "hals", ())
    with torch.no_grad():
        start = state
        for _ in range(4):
            state = replayed(state)
        other = {"factors": {n: 2 * F for n, F in start["factors"].items()}}
        other = eager(other)  # of the same memory order as what a sweep returns
        for name, F in eager(other)["factors"].items():
            assert torch.equal(replayed(other)["factors"][name], F)


def test_a_state_that_remembers_the_last_one():
    """Momentum: what it keeps are tensors of the state that it was given, under another name."""

    def sweep(state):
        V = state["factors"]["V"]
        return {"factors": {"V": V + 0.5 * (V - state["last"]["V"]) + 1}, "last": {"V": V}}

    state = {"factors": {"V": torch.ones(3, 2)}, "last": {"V": torch.zeros(3, 2)}}
    wanted, got, replayed = state, state, capture(sweep, CPU, Record)
    for _ in range(6):
        wanted, got = sweep(wanted), replayed(got)
        assert torch.equal(wanted["factors"]["V"], got["factors"]["V"])
        assert torch.equal(wanted["last"]["V"], got["last"]["V"])


@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize(
    ("method", "rule", "key"),
    [
        (her, hals, "fit"),
        (her, hals, "ridge, sparse"),
        (partial(her, unit=("U1", "U2")), RULES["composed"], "nge"),
        (bmme, multiplicative, "beta 1"),
    ],
)
def test_momentum_is_replayed_bit_for_bit(method, rule, key, batch, monkeypatch):
    for module in (core_factors, extrapolation):  # as on a device that has to be waited for
        monkeypatch.setattr(module, "at_hand", lambda answers: False)
    p = problem(3, batch, seed=4)
    make = lambda: method(TERMS[key](p), dict.fromkeys(p.order_of_updates, rule))
    eager, replayed = make(), capture(make(), CPU, Record)
    COUNT["captures"] = 0
    with torch.no_grad():
        wanted = got = {"factors": p.factors}
        for _ in range(25):
            wanted, got = eager(wanted), replayed(got)
    assert COUNT["captures"] == 1
    assert all(torch.equal(got["factors"][n], F) for n, F in wanted["factors"].items())


def test_a_batch_that_shrinks_is_captured_anew(monkeypatch):
    p = problem(2, (5,), seed=1, shape=(12, 9))
    fit = lambda **kw: run(
        [Fit(p.X, p.modes)], dict.fromkeys(p.order_of_updates, hals), p.factors, tol=1e-6, max_iter=300, **kw
    )
    eager = fit()
    assert len(set(eager.n_iter)) > 1  # problems leave one after the other
    monkeypatch.setattr(graphs, "capture", lambda sweep, device, must: capture(sweep, device, Record))
    COUNT["captures"] = 0
    graph = fit(cuda_graph=True)
    assert COUNT["captures"] >= len(set(eager.n_iter)) - 1
    np.testing.assert_array_equal(graph.n_iter, eager.n_iter)
    np.testing.assert_allclose(graph.objective, eager.objective, rtol=1e-12)
    for name in p.modes:
        torch.testing.assert_close(graph.factors[name], eager.factors[name])


def test_what_is_replayed_is_decided_by_shape(monkeypatch):
    assert replays_graph("cuda", 400 * 4096, 40, 1) and not replays_graph("cpu", 400 * 4096, 40, 1)
    assert not replays_graph("cuda", 100_000 * 10_000, 40, 1)  # its products keep a card busy
    monkeypatch.setenv("NNFACTOR_CUDA_GRAPH", "1")
    assert replays_graph("cuda", 100_000 * 10_000, 40, 1)
    monkeypatch.setenv("NNFACTOR_CUDA_GRAPH", "0")
    assert not replays_graph("cuda", 400, 4, 1)


@pytest.mark.parametrize(
    ("rule", "known"),
    [
        (hals, True),
        (compose(partial(m_matrix, cg=4), partial(hals, sweeps=2)), True),
        (partial(m_matrix, tol=1e-3), False),  # reads the host
        (lambda F, block: F, False),
    ],
)
def test_only_rules_that_are_known_are_replayed_by_default(rule, known, monkeypatch):
    p = problem(2, (), seed=1)
    asked = []
    monkeypatch.setattr(graphs, "replays_graph", lambda *shape: bool(asked.append(shape)) or True)
    p.factors = {name: p.factors[name] for name in p.modes}
    terms = [Fit(as_data(p.X), p.modes)]
    assert worth_capturing(terms, {"V": rule, "U1": hals}, p.factors) == known
    assert asked == ([("cpu", p.X.numel(), p.factors["V"].shape[-1], 1)] if known else [])
    assert not worth_capturing(terms, {"V": rule}, p.factors)  # products of U1 are kept, which is frozen


def test_what_cannot_be_recorded_runs_as_it_is_unless_it_must(caplog):
    calls = []

    def fail(work):
        raise RuntimeError("operation not permitted when stream is capturing")

    def sweep(state):
        calls.append(state)
        return {"factors": {"V": state["factors"]["V"] + 1}}

    state, replayed = {"factors": {"V": torch.zeros(2, 2)}}, capture(sweep, CPU, fail, must=False)
    for _ in range(6):
        state = replayed(state)
    assert len(calls) == 6 and float(state["factors"]["V"][0, 0]) == 6
    assert sum("not replayed" in record.message for record in caplog.records) == 1
    strict = capture(sweep, CPU, fail)
    for _ in range(2):
        state = strict(state)
    with pytest.raises(RuntimeError, match="not permitted"):
        strict(state)


def test_off_cuda_nothing_is_captured():
    sweep = lambda state: state
    assert capture(sweep, CPU) is sweep


def test_a_state_must_hold_tensors():
    with pytest.raises(TypeError, match="needs tensors in its state, found int"):
        capture(lambda s: s, CPU, Record)({"factors": {}, "t": 3})


@pytest.mark.gpu
@pytest.mark.parametrize("rule", [multiplicative, hals, RULES["m_matrix"], RULES["composed"]])
@pytest.mark.parametrize("key", ["fit", "nge", "group"])
def test_a_cuda_graph_equals_eager_sweeps(key, rule):
    p = problem(3, (3,), seed=2, dtype=torch.float32)
    p.X, p.factors = (
        p.X.cuda(),
        {n: F.mT.contiguous().cuda().mT if F.dim() > 1 else F.cuda() for n, F in p.factors.items()},
    )
    ends = [
        run(
            MODELS[key](p),
            dict.fromkeys(p.order_of_updates, rule),
            p.factors,
            max_iter=40,
            tol=1e-7,
            cuda_graph=graph,
            warn=False,
        )
        for graph in (False, True)
    ]
    np.testing.assert_allclose(ends[1].objective, ends[0].objective, rtol=1e-4)
    assert take(ends[1].factors, 0)["V"].device.type == "cuda"
