"""Mini-batches: sums over samples that stand for the samples, and a sweep that visits batch after batch.

The blocks of the bases depend on the samples only through sums: V'V, X'V and the graph energies (Mairal, Bach, Ponce
and Sapiro 2010), for Kullback-Leibler the ratio products weighted with the bases (Lefevre, Bach and Fevotte 2011).
These sums are a term, so that every rule takes them; they are in the state beside the factors, float64. When a batch
is visited again, its old share is subtracted (incremental, as Neal and Hinton 1998): `MiniBatchSweep` descends on the
objective of all samples, not on a noisy estimate of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any, cast

import numpy as np
import torch
from scipy.sparse.csgraph import reverse_cuthill_mckee
from torch import Tensor

from ..data.base import Data
from ..factors import as_factor, clone_factor, divide, gram, khatri_rao, select_rows, write_rows
from ..graph.graph import Graph
from ..rules.base import Rule
from ..terms.base import Factors, Term, add_blocks
from ..terms.batch_laplacian import BatchLaplacian, BatchNeighbourhood
from ..terms.laplacian import Laplacian
from ..terms.statistics import KLStatistics, SufficientStatistics, Sums, energies, quadratic, statistics_of, zero_sums
from .run import State


def update_sums(total: Sums, new: Sums, old: Sums | None = None) -> Sums:
    """Return totals with a new share and without an old one, which must be the numbers that were once added."""
    out = {key: total.get(key, 0) + share for key, share in new.items()}
    return out if old is None else {key: (out[key] - share).clamp_(min=0) for key, share in old.items()}


def improve_coefficients(terms: Sequence[Term], factors: Factors, rule: Rule, n_repeats: int) -> Tensor:
    """Apply `rule` to V `n_repeats` times, with one product with the data where the model is quadratic."""
    V, block = factors["V"], add_blocks(terms, factors, "V")
    for i in range(n_repeats):
        if i and not block.quadratic:
            block = add_blocks(terms, {**factors, "V": V}, "V")
        V = rule(V, block)
    return V


def start_coefficients(data: Data, factors: Factors, modes: Sequence[str]) -> Tensor:
    """Start coefficients of new samples: in every row one number for all columns, the best one."""
    Us = [factors[m] for m in modes]
    linear_minus = data.times(khatri_rao(Us)).sum(-1, keepdim=True)
    square = reduce(torch.mul, map(gram, Us)).sum((-2, -1), keepdim=True)
    best = divide(linear_minus, square.expand_as(linear_minus))
    return as_factor(best.expand(*best.shape[:-1], Us[0].shape[-1]))


def improve_bases(
    term: SufficientStatistics | KLStatistics, rules: Mapping[str, Rule], factors: Factors
) -> dict[str, Tensor]:
    """Improve every basis once on the sums, in mode order; return all factors."""
    factors = dict(factors)
    for name in term.modes:
        factors[name] = rules[name](factors[name], add_blocks([term], factors, name))
    return factors


def learn_batch(
    terms: Sequence[Term], rules: Mapping[str, Rule], bases: Factors, sums: Sums | None, rounds: int, n_repeats: int
) -> dict[str, Tensor]:
    """Learn from new samples, those of `terms`: in every round their coefficients, their share, then the bases.

    `sums` stand for earlier samples. Returned are all factors and the sums, with the new share.

    Without earlier samples the sums begin with a small share of what the bases themselves make of these samples. What
    the samples lack would otherwise become exactly zero, and a multiplicative rule would leave it there for ever. A
    feature of any positive size is at its right size after one application: the rule is a ratio, and blind to the scale
    of a row. Zeros of the bases given stay zeros.
    """
    fit, graphs, term = cast(Any, quadratic(terms[0])), cast("Sequence[Laplacian]", terms[1:]), statistics_of(terms[0])
    data = fit.data.by_samples()
    here, bare = [replace(fit, data=data), *graphs], [replace(g, norms_of=()) for g in graphs]
    factors = {**bases, "V": start_coefficients(data, bases, term.modes)}
    if sums is None:
        start = term.sum_model(factors | zero_sums(term, factors))
        sums = {key: term.start_weight * total for key, total in start.items()}
    for i in range(rounds):
        factors["V"] = improve_coefficients(here, factors, rules["V"], 1 if i else n_repeats)
        share = term.sum_samples(data, factors)
        if isinstance(term, SufficientStatistics):
            share["energy"] = energies(bare, factors["V"])
        else:
            share["counts"] = share["linear_minus"].sum(-1, keepdim=True)
        factors = improve_bases(term, rules, {**factors, **update_sums(sums, share)})
    return factors


class MiniBatchSweep:
    """A sweep (state -> state) over all mini-batches in a new random order: V of a batch, then all bases.

    The sums begin with all samples, their V solved for the first bases, and hold every sample ever after; the model of
    a batch includes its edges to the fixed samples around it. So no visit raises the objective of all samples (for
    Kullback-Leibler the sum of the majorisers, which begins as the objective), a start is never made worse, and what
    one batch lacks is known from the others: sums over some of the samples would make it zero, which a multiplicative
    rule never leaves.

    Parameters
    ----------
    terms : sequence of Term
        The model over all samples: `Fit` (or `BetaFit` with beta = 1), then `Laplacian`s on V.
    rules : mapping
        A rule for every basis and for "V".
    batches : sequence of integer arrays
        The rows of every batch; together all samples.
    seed : int
        Of the order of the visits.
    n_repeats : int
        Applications of the rule of V before the first epoch and after the last; in a visit one.

    Notes
    -----
    The shares of all batches are kept: one number for each batch, feature and component. Of sparse data the stored
    entries are kept a second time, batch by batch.
    """

    def __init__(
        self, terms: Sequence[Term], rules: Mapping[str, Rule], batches: Sequence[np.ndarray], seed: int, n_repeats: int
    ) -> None:
        self.fit, self.term = cast(Any, quadratic(terms[0])), statistics_of(terms[0])
        own = cast("Sequence[Laplacian]", terms[1:])
        self.graphs = [replace(g, norms_of=()) for g in own]
        self.data, self.rules, self.n_repeats = cast(Data, self.fit.data), rules, n_repeats
        self.rows = [torch.from_numpy(rows).to(self.data.device) for rows in batches]
        self.piece = self.data.pieces(self.rows)
        self.cuts = [[BatchNeighbourhood(g, rows) for g in own] for rows in batches]
        self.order = np.random.default_rng(seed)
        if isinstance(self.term, SufficientStatistics) and not self.data.weighted:
            self.term = replace(self.term, square=self.data.sqnorm())

    def begin(self, factors: Factors) -> State:
        """Return the state before the first epoch: V solved for the bases, the shares of all batches and their sum."""
        factors = {**self.settle(factors), **zero_sums(self.term, factors)}
        shares: dict[int, Sums] = {}
        for b, rows in enumerate(self.rows):
            shares[b] = self.term.sum_samples(self.piece(b), {**factors, "V": select_rows(factors["V"], rows)})
            factors |= update_sums(factors, shares[b])
        return {"factors": self._with_energy(factors), "shares": shares}

    def __call__(self, state: State) -> State:
        """Run one epoch."""
        factors = {**state["factors"], "V": clone_factor(state["factors"]["V"])}  # visits write rows of V in place
        shares = dict(state["shares"])
        for b in self.order.permutation(len(self.rows)).tolist():
            factors, shares[b] = self._visit(factors, b, shares[b])
        return {**state, "factors": self._with_energy(factors), "shares": shares}

    def skip(self, n: int) -> None:
        """Draw the orders of n epochs: this is where n calls leave the generator, which is not in the state."""
        for _ in range(n):
            self.order.permutation(len(self.rows))

    def settle(self, factors: Factors) -> dict[str, Tensor]:
        """Solve V once more with the bases fixed."""
        factors = {**factors, "V": clone_factor(factors["V"])}
        for b, rows in enumerate(self.rows):
            terms, here = self._here(factors, b)
            write_rows(factors["V"], rows, improve_coefficients(terms, here, self.rules["V"], self.n_repeats))
        return factors

    def _visit(self, factors: dict[str, Tensor], b: int, old: Sums) -> tuple[dict[str, Tensor], Sums]:
        """Visit one batch: its coefficients, its share of the sums, then the bases."""
        terms, here = self._here(factors, b)
        before = here["V"]
        here["V"] = V = improve_coefficients(terms, here, self.rules["V"], 1)
        share = self.term.sum_samples(terms[0].data, here)
        totals = update_sums(factors, share, old)
        if self.graphs:
            change = reduce(torch.add, (graph.energy(V) - graph.energy(before) for graph in terms[1:]))
            totals["energy"] = (factors["energy"] + change).clamp_(min=0)
        write_rows(factors["V"], self.rows[b], V)
        return improve_bases(self.term, self.rules, {**factors, **totals}), share

    def _here(self, factors: Factors, b: int) -> tuple[list, dict[str, Tensor]]:
        """Return the model of one batch with the other samples fixed, and its factors."""
        V, rows = factors["V"], self.rows[b]
        terms = [replace(self.fit, data=self.piece(b)), *(BatchLaplacian(cut, cut.outside(V)) for cut in self.cuts[b])]
        return terms, {**factors, "V": select_rows(V, rows)}

    def _with_energy(self, factors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Sum the energies of all edges anew: differences would collect rounding over many epochs."""
        return {**factors, "energy": energies(self.graphs, factors["V"]).double()} if self.graphs else factors


def cut_batches(
    n: int,
    size: int,
    seed: int,
    graphs: Sequence[Graph] = (),
    codes: np.ndarray | None = None,
    together: int = 1,
) -> list:
    """Cut rows 0 .. n - 1 into even batches of `size` at most: at random, or so that neighbours come together.

    Rows that are stored together, `together` of them, stay together: at random are the groups. Otherwise every batch
    would read every chunk of a file.

    With graphs, samples are ordered by class, within a class so that edges are short (reverse Cuthill-McKee):
    neighbours in one batch are solved together, and large weights of a graph then cost few epochs.
    """
    groups = np.random.default_rng(seed).permutation(-(-n // together))
    order = (groups[:, None] * together + np.arange(together)).ravel()
    order = order[order < n]
    if graphs:
        edges = reduce(lambda A, B: A + B, (g.adjacency for g in graphs))
        order = reverse_cuthill_mckee(edges.tocsr(), symmetric_mode=True).astype(np.int64)
        keys = [key for key in (*(g.cliques for g in graphs), codes) if key is not None]
        order = order[np.lexsort([key[order] for key in keys])] if keys else order
    return [np.ascontiguousarray(rows) for rows in np.array_split(order, -(-n // size))]
