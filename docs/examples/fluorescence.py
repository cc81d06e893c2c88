"""
Fluorescence: a tensor, and core consistency
============================================

A sample's fluorescence is a matrix: excitation by emission. Several samples make a tensor, and the components of a
nonnegative CP model are substances: how much a sample has, a spectrum of excitation, and one of emission.

The data are generated, so that the answer is known: mixtures of three substances with bands as those of amino acids,
and noise.
"""

import numpy as np

from nnfactor import NTF
from nnfactor.metrics import core_consistency, factor_match_score
from nnfactor.plots import components_plot, core_element_plot

rng = np.random.default_rng(0)
excitation, emission = np.arange(240, 301, 3.0), np.arange(250, 451, 5.0)
bands = lambda x, centres, widths: np.exp(-(((x[:, None] - centres) / widths) ** 2))
amounts = rng.gamma(2.0, 1.0, (12, 3))
A = bands(excitation, np.array([258, 274, 280]), np.array([10, 9, 14]))
B = bands(emission, np.array([285, 305, 355]), np.array([14, 16, 35]))
X = np.einsum("nr,ir,jr->nij", amounts, A, B)
X = (X + 0.05 * X.std() * rng.normal(size=X.shape)).clip(min=0)
print(X.shape)

# %%
# How many substances? Core consistency (Bro and Kiers 2003) is 100 where components do not need each other, and falls,
# also below zero, where there are too many (here numbers below -100 are shown as that). The error says the same: it
# hardly falls from three components on.

fits = {k: NTF(k, n_init=3, random_state=0).fit(X) for k in (1, 2, 3, 4, 5)}
for k, fit in fits.items():
    error = fit.reconstruction_err_ / np.linalg.norm(X)
    print(f"{k} components: error {error:.3f}, core consistency {max(core_consistency(fit, X), -100):.0f}")

# %%
# The components, one row each: samples, excitation, emission.

names = (None, [f"{w:.0f}" for w in excitation], [f"{w:.0f}" for w in emission])
components_plot(fits[3], names=names, mode_names=("sample", "excitation (nm)", "emission (nm)"))

# %%
# They are the planted ones:

print(f"factor match score {factor_match_score(fits[3], (amounts, A, B)):.3f}")

# %%
# The entries of the best core: those of the model first, then the others, which should be zero.

core_element_plot(fits[3], X)

# %%
# **The full run** on measured data: scattered light has no components; mark it as missing (`missing="nan"`). Take more
# restarts, and `select_rank(NTF(2), X, ranks=range(1, 7), criterion="core_consistency")`.
# `tensorly.datasets.load_kinetic` has a measured tensor of four modes.
