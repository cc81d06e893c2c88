"""Replaying sweeps from a CUDA graph: one launch instead of hundreds, for problems that the launches dominate.

A captured sweep is `state -> state` like the one it wraps, and its states are values: what it hands out is never
written to again. What makes that true, and keeps memos right:

* Replays write to the graph's own buffers without a trace in any version counter. Nobody outside ever sees those
  tensors, so that no memo can take them for what they were: a state is copied in, and copies are handed out.
* A product that a memo handed out during the recording would be a constant for ever. Buffers are new, or were written
  to by the warm-up, when the recording starts, so that no memo knows them and every product of them is recorded.
* What does not depend on the state (a squared norm, a graph on its device) is made by the iterations before.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

State = dict[str, Any]

Sweep = Callable[[State], State]

Recorder = Callable[[Callable[[], Any]], Callable[[], Any]]

WARM_UP = 2  # sweeps of a new shape before it is captured: libraries load, lazy copies reach the device


def capture(sweep: Sweep, device: torch.device, record: Recorder | None = None) -> Sweep:
    """The same sweep, recorded once per shape of the state and replayed; on any device but CUDA `sweep` itself.

    Parameters
    ----------
    sweep : callable, state -> state
        Must not read the host (`m_matrix` with a tolerance does), and all that it remembers must be in the state, as
        tensors in nested dictionaries.
    device : torch.device
        Where the state is.
    record : callable, optional
        Takes some work, records what it does to tensors, and returns what replays it. Default: a CUDA graph.

    Notes
    -----
    Problems that leave a batch change its shape: it is warmed up and captured anew, and the old graph goes.
    """
    if device.type != "cuda" and record is None:
        return sweep
    return _Captured(sweep, record or partial(cuda_graph, device=device))


def cuda_graph(work: Callable[[], Any], device: torch.device) -> Callable[[], Any]:
    """Record `work` as a CUDA graph, warmed up on the same side stream; returns what replays it on the current one."""
    with torch.cuda.device(device):
        side, current = torch.cuda.Stream(), torch.cuda.current_stream()
        side.wait_stream(current)
        with torch.cuda.stream(side):
            work()
        current.wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=side):
            work()
    return graph.replay


class _Captured:
    """A sweep with the graph of the shape that it met last."""

    def __init__(self, sweep: Sweep, record: Recorder) -> None:
        self.sweep, self.record = sweep, record
        self.shape: Any = None
        self.seen = 0
        self.graph: _Graph | None = None

    def __call__(self, state: State) -> State:
        """One sweep: eager while a shape is new, then replayed."""
        shape = signature(state)
        if shape != self.shape:
            self.shape, self.seen, self.graph = shape, 0, None
        self.seen += 1
        if self.seen <= WARM_UP:
            return self.sweep(state)
        if self.graph is None:
            self.graph = _Graph(self.sweep, self.record, state)
        return self.graph(state)


class _Graph:
    """One recording: the buffers that it reads and leaves its results in, and its replay."""

    def __init__(self, sweep: Sweep, record: Recorder, state: State) -> None:
        self.buffers = _each(torch.clone, state)
        self.handed: State = {}

        def work() -> None:
            results = sweep(self.buffers)
            own = {_storage(F) for F in _leaves(self.buffers)}
            # what a state remembers of the last one must be out of the buffers before the new one goes in
            results = _each(lambda F: F.clone() if _storage(F) in own else F, results)
            _together(Tensor.copy_, self.buffers, results)

        self.replay = record(work)

    def __call__(self, state: State) -> State:
        if not _same(state, self.handed):
            _together(Tensor.copy_, self.buffers, state)
        self.replay()
        self.handed = _each(torch.clone, self.buffers)
        return self.handed


def signature(state: Any) -> Any:
    """Shapes, memory order and types of everything in a state.

    Raises
    ------
    TypeError
        An entry is neither a tensor nor a dictionary of them: a replay could not change it.
    """
    if isinstance(state, dict):
        return {key: signature(value) for key, value in state.items()}
    if not isinstance(state, Tensor):
        raise TypeError(f"a captured sweep needs tensors in its state, found {type(state).__name__}")
    return tuple(state.shape), state.stride(), state.dtype, state.device


def _each(f: Callable[[Tensor], Tensor], state: Any) -> Any:
    return {key: _each(f, value) for key, value in state.items()} if isinstance(state, dict) else f(state)


def _together(f: Callable[[Tensor, Tensor], Any], a: Any, b: Any) -> None:
    if not isinstance(a, dict):
        f(a, b)
        return
    for key in a:
        _together(f, a[key], b[key])


def _leaves(state: Any) -> list[Tensor]:
    return [F for value in state.values() for F in _leaves(value)] if isinstance(state, dict) else [state]


def _storage(F: Tensor) -> int:
    return F.untyped_storage().data_ptr()


def _same(a: Any, b: Any) -> bool:
    """Whether a state is the very one that was handed out; it is nobody's business to write into a state."""
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    return a is b
