"""Replay of sweeps from a CUDA graph: one launch instead of hundreds, where launches take longer than their work.

A captured sweep is `state -> state` like the one it wraps. The caches of products stay valid, for three reasons:

* Replays write to the graph's own buffers and leave no new version. No caller holds those tensors, so that no cache
  can return a product of their old values: a state is copied in, and copies are returned.
* A product that a cache returned during the recording would be a constant in all replays. Buffers are new, or were
  written to by the warm-up, when the recording starts: no cache holds them, and every product of them is recorded.
* What does not depend on the state (a squared norm, a graph on its device) is made by the iterations before.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from math import prod
from typing import Any

import torch
from torch import Tensor

from ..data.base import Data
from ..gpu import replays_graph
from ..rules.base import Rule, list_rules
from ..rules.hals import hals
from ..rules.m_matrix import m_matrix
from ..rules.multiplicative import multiplicative
from ..rules.projected_gradient import projected_gradient
from ..terms.base import Term

LOG = logging.getLogger("nnfactor")

State = dict[str, Any]
Sweep = Callable[[State], State]
Method = Callable[[Sequence[Term], Mapping[str, Rule]], Sweep]  # makes a sweep
Recorder = Callable[[Callable[[], Any]], Callable[[], Any]]

WARM_UP = 2  # sweeps of a new shape before it is captured: libraries load, lazy copies reach the device


# Rules that never read the host, and the settings with which they would.
REPLAYABLE: dict[Rule, tuple[str, ...]] = {
    multiplicative: (),
    hals: (),
    m_matrix: ("tol",),
    projected_gradient: (),
}


def choose_sweeps(
    method: Method,
    terms: Sequence[Term],
    rules: Mapping[str, Rule],
    factors: Mapping[str, Tensor],
    cuda_graph: bool | None,
) -> Callable[[Sequence[Term]], Sweep]:
    """Return what makes a sweep of terms: a captured one if that is asked for, or by default where it gains."""
    device = max(factors.values(), key=Tensor.dim).device
    if cuda_graph is None:
        cuda_graph, must = device.type == "cuda" and worth_capturing(terms, rules, factors), False
    else:
        must = cuda_graph
    if not cuda_graph:
        return lambda terms: method(terms, rules)
    return lambda terms: capture(method(terms, rules), device, must=must)


def worth_capturing(terms: Sequence[Any], rules: Mapping[str, Rule], factors: Mapping[str, Tensor]) -> bool:
    """Tell whether sweeps on CUDA are replayed unless the caller says otherwise: they can be, and gain by it."""
    used = [one for rule in rules.values() for one in list_rules(rule)]
    if not all(rule in REPLAYABLE and not {*REPLAYABLE[rule]} & {*settings} for rule, settings in used):
        return False
    if any(F.dim() > 1 and name not in rules for name, F in factors.items()):
        return False  # products of a frozen factor are kept; a graph would compute them in every replay
    data = [term.data for term in terms if isinstance(getattr(term, "data", None), Data)]
    if not data or any(X.weighted or not X.sums.alone for X in data):
        return False
    F = max(factors.values(), key=Tensor.dim)
    return replays_graph(F.device.type, sum(X.entries_read for X in data), F.shape[-1], prod(F.shape[:-2]))


def capture(sweep: Sweep, device: torch.device, record: Recorder | None = None, must: bool = True) -> Sweep:
    """Return the same sweep, recorded once per shape of the state and replayed; but on CUDA only.

    The sweep must not read the host (`m_matrix` with a tolerance does), and all that it needs later must be in the
    state, as tensors in nested dictionaries (else a TypeError). `record` calls a function, records its operations, and
    returns a function that replays them; default: a CUDA graph. Problems that leave a batch change its shape: it is
    warmed up and captured again, and the old graph is dropped. Unless it `must` be, a sweep that cannot be recorded
    runs as it is, and so does one with a generator of its own.
    """
    if (device.type != "cuda" and record is None) or (not must and hasattr(sweep, "skip")):
        return sweep
    recorder = record or partial(cuda_graph, device=device)
    shape: Any = None
    seen, replay, given_up = 0, sweep, False

    def captured(state: State) -> State:
        nonlocal shape, seen, replay, given_up
        if given_up:
            return sweep(state)
        try:
            prepare(state)
        except (RuntimeError, TypeError) as error:
            if must:
                raise
            LOG.warning("sweeps are not replayed from a CUDA graph: %s", error)
            given_up, replay = True, sweep
        return replay(state)

    def prepare(state: State) -> None:
        nonlocal shape, seen, replay
        if (new := _signature(state)) != shape:
            shape, seen, replay = new, 0, sweep
        elif seen == WARM_UP:
            replay = _record_sweep(sweep, recorder, state)
        seen += 1

    return captured


def cuda_graph(work: Callable[[], Any], device: torch.device) -> Callable[[], Any]:
    """Record `work` as a CUDA graph, warmed up on the same side stream; returns what replays it on the current one."""
    with torch.cuda.device(device):
        side, current = torch.cuda.Stream(), torch.cuda.current_stream()
        side.wait_stream(current)
        with torch.cuda.stream(side):
            work()
        current.wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):  # others may go on meanwhile
            work()
    return graph.replay


def _record_sweep(sweep: Sweep, record: Recorder, state: State) -> Sweep:
    """Record a sweep that reads buffers and leaves its results in them; return the sweep that replays it."""
    buffers = _each(torch.clone, state)
    handed: list[Tensor] = []  # the tensors of the last results: copied in only where the state holds others
    inputs = _leaves(buffers)
    own = {_storage(F) for F in inputs}

    def work() -> None:
        # a new state may contain a tensor of the old one: copy it before the buffers are overwritten
        results = [F.clone() if _storage(F) in own else F for F in _leaves(sweep(buffers))]
        for buffer, F in zip(inputs, results, strict=True):
            buffer.copy_(F)

    replay = record(work)

    def again(state: State) -> State:
        given = _leaves(state)
        if any(F is not known for F, known in zip_longest(given, handed)):
            for buffer, F in zip(inputs, given, strict=True):
                buffer.copy_(F)
        replay()
        results = _each(torch.clone, buffers)
        handed[:] = _leaves(results)
        return results

    return again


def _signature(state: Any) -> Any:
    """Return shapes, memory order and types of everything in a state; refuse what a replay could not change."""
    if isinstance(state, dict):
        return {key: _signature(value) for key, value in state.items()}
    if not isinstance(state, Tensor):
        raise TypeError(f"a captured sweep needs tensors in its state, found {type(state).__name__}")
    return tuple(state.shape), state.stride(), state.dtype, state.device


def _each(f: Callable[[Tensor], Tensor], state: Any) -> Any:
    return {key: _each(f, value) for key, value in state.items()} if isinstance(state, dict) else f(state)


def _leaves(state: Any) -> list[Tensor]:
    """List the tensors of a state by sorted keys: states of one shape may differ in the order of their keys."""
    return [F for key in sorted(state) for F in _leaves(state[key])] if isinstance(state, dict) else [state]


def _storage(F: Tensor) -> int:
    return F.untyped_storage().data_ptr()
