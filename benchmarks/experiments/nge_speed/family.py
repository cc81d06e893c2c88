"""The solvers of NGE that are compared, and the problem as tensors that all of them start from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal

import torch
from torch import Tensor

from nnfactor.core import Fit, Graph, Laplacian, Rule, as_data, hals, m_matrix, multiplicative, projected_gradient, step
from nnfactor.core.factors import gram, khatri_rao
from nnfactor.core.solve import init
from nnfactor.graphs import marginal_fisher_graphs
from nnfactor.models.shared.solvers import cg_steps, fastest

from ...data.problems import Problem
from ...methods import exact_solves as rules

State = dict[str, Any]


@dataclass(frozen=True)
class Method:
    """One rule for every feature factor, one for V, and how the basis sees the graphs (`Laplacian.split`).

    `momentum`: V is its graph solve alone; `models.graph_rules` adds HALS sweeps and momentum, as in the estimators.
    """

    bases: Rule
    V: Rule
    split: Literal["net", "paper"] = "net"
    momentum: bool = False


def family(tight_tol: float) -> dict[str, Method]:
    """Every solver by name; `nge.LABELS` says what they are. `tight_tol` is for the reference "tight"."""
    exact = multiplicative
    return {
        "printed": Method(exact, exact, split="paper"),
        "multiplicative": Method(exact, exact),
        "inverses": Method(exact, rules.inverses),
        "cholesky": Method(exact, rules.cholesky),
        "tight": Method(exact, partial(m_matrix, tol=tight_tol)),
        "cg": Method(exact, m_matrix),
        "sweeps5": Method(exact, partial(m_matrix, cg=0, sweeps=5)),
        "sweeps20": Method(exact, partial(m_matrix, cg=0, sweeps=20)),
        "hals": Method(hals, hals),
        "projected": Method(projected_gradient, projected_gradient),
        "auto": Method(hals, m_matrix, momentum=True),
    }


@dataclass(frozen=True, eq=False)
class Instance:
    """A problem on a device: data of some order, graphs, and the start that all methods share.

    Attributes
    ----------
    X : Tensor (n, m) or (n, height, width)
    own, between : Links
        The intrinsic and the penalty graph.
    start : dict of Tensor
        V, U1, ...: random, component-major.
    k, q : int
        Components, and how many of them are discriminative.
    alpha : float
        The weight of the graphs.
    """

    X: Tensor
    own: Graph
    between: Graph
    start: dict[str, Tensor]
    k: int
    q: int
    alpha: float

    @property
    def modes(self) -> tuple[str, ...]:
        """Names of the factors, samples first."""
        return tuple(self.start)

    def to(self, dtype: torch.dtype) -> Instance:
        """Convert problem and start to another precision."""
        start = {name: F.to(dtype) for name, F in self.start.items()}
        return Instance(self.X.to(dtype), self.own, self.between, start, self.k, self.q, self.alpha)

    def terms(self, split: Literal["net", "paper"] = "net") -> tuple[Fit, Laplacian, Laplacian]:
        """Make the model, with its own memory of products, so that methods do not profit from each other."""
        norms_of = self.modes[1:]
        first = torch.arange(self.k, device=self.X.device) < self.q
        return (
            Fit(as_data(self.X), self.modes),
            Laplacian(self.own, "V", norms_of, self.alpha, first, split),
            Laplacian(self.between, "V", norms_of, self.alpha, ~first, split),
        )

    def sweep(self, method: Method) -> Callable[[State], State]:
        """One iteration: feature factors in mode order, then V."""
        if method.momentum:
            strength = self.alpha * max(self.own.mean_degree, self.between.mean_degree)
            rule: Any = method.V
            solve = partial(rule, cg=cg_steps(strength))
            rules, make = fastest(self.modes, self.X.shape, self.k, solve)
            return make(self.terms(method.split), rules)
        order = {name: method.bases for name in self.modes[1:]} | {"V": method.V}
        return step(self.terms(method.split), order)

    def objective(self, state: State) -> float:
        """In float64, from the residual itself, whatever precision the factors have."""
        factors = {name: F.double() for name, F in state["factors"].items()}
        fit, own, between = self._exact
        return float(fit.direct(factors) + own.value(factors) + between.value(factors))

    def products(self) -> Callable[[State], State]:
        """Make a lane that does nothing but an iteration's dense products, at the start, in the fastest memory order.

        For a matrix the six X'V, V'V, U(V'V), XU, U'U, V(U'U); for a tensor the two products with its matrix of
        samples x features and, per factor, a Gram and a product with one.
        """
        V, *bases = self.start.values()
        X, U = self.X.flatten(1), khatri_rao(bases)
        G = gram(V)

        def work(state: State) -> State:
            V.mT @ X
            U.mT @ X.mT
            for F in (V, *bases):
                F.mT @ F  # not `gram`, which remembers
                G @ F.mT
            return state

        return work

    @cached_property
    def _exact(self) -> tuple[Fit, Laplacian, Laplacian]:
        return self.to(torch.float64).terms()


def instance(problem: Problem, order: int, alpha: float, seed: int, device: Any, dtype: Any, **graph: Any) -> Instance:
    """Vectors (order 2) or images as matrices (order 3); `graph` goes to `marginal_fisher_graphs`."""
    X = torch.from_numpy(problem.X).to(device, dtype)
    X = X.flatten(1) if order == 2 else X
    own, between = marginal_fisher_graphs(problem.X.reshape(len(problem.X), -1), problem.y, **graph)
    k = problem.n_components
    names = ["V", *(f"U{b}" for b in range(1, X.dim()))]
    start = dict(zip(names, init.random(as_data(X), k, seed), strict=True))
    return Instance(X, own, between, start, k, problem.n_discriminative, alpha)
