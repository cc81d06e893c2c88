"""
A term of your own
==================

Something you know belongs in the objective, and no class has it. Write it as a term: a value, and the Block that
describes it in one factor. Restarts, batches, devices, `transform` and pickle then work as ever.

Here bases should stay near spectra from a library: `weight ||U - target||^2`.
"""

from dataclasses import dataclass

import numpy as np
import torch

from nnfactor import NMF
from nnfactor.core import Block, Quad, Term
from nnfactor.plots import component_comparison_plot

# %%
# With F for the factor, `weight ||F - T||^2 = <F, F G> - 2 <weight T, F>` up to a constant, with G = weight I: one
# weight for each column. All coefficients are nonnegative, so that every rule can use them.


@dataclass(frozen=True, eq=False)
class Near(Term):
    """`weight ||F - target||^2`."""

    target: torch.Tensor
    on: str
    weight: float
    factor_names = property(lambda self: (self.on,))

    def block(self, factors, name):
        """Return the coefficients in F."""
        weights = self.weight * torch.ones_like(self.target[:1])
        return Block(quads=(Quad(weights),), linear_minus=self.weight * self.target)

    def value(self, factors):
        """Return the penalty."""
        return self.weight * (factors[self.on] - self.target).square().sum((-2, -1))


# %%
# Noisy mixtures of four overlapping spectra. No sample is pure, so that the data alone leave the spectra open; the
# library is nearly right:

rng = np.random.default_rng(0)
bands = np.linspace(0, 1, 60)[:, None]
spectra = np.exp(-(((bands - [0.3, 0.4, 0.5, 0.65]) / 0.12) ** 2))
X = (rng.dirichlet(np.full(4, 5.0), 80) @ spectra.T + 0.05 * rng.normal(size=(80, 60))).clip(min=0)
library = np.exp(-(((bands - [0.31, 0.39, 0.51, 0.64]) / 0.12) ** 2))

free = NMF(4, n_init=5, init="random", random_state=0).fit(X)
near = NMF(4, terms=[Near(torch.tensor(library), "U1", weight=5.0)], n_init=5, random_state=0).fit(X)
for name, model in {"without": free, "with the term": near}.items():
    U = model.factors_[0] / np.linalg.norm(model.factors_[0], axis=0)
    cosines = (U.T @ (spectra / np.linalg.norm(spectra, axis=0))).max(axis=0)
    print(f"{name:14} cosine with the true spectra: {cosines.round(3)}")

# %%
# The components of both fits, matched:

component_comparison_plot({"without": free, "with the term": near})

# %%
# **The full run**: a term is tested like those of the package by a row in a table (see *Extending*); half the gradient
# of its value, nonnegative coefficients, and a falling objective are then checked.
