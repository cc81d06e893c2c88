"""
A race of solvers
=================

All solvers of `NMF` minimise the same objective from the same start. They differ in the work of an iteration and in
what it achieves. The picture has the objective against the iteration; seconds are those of the machine that built this
page.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from nnfactor import NMF

X = load_digits().data[:600]
solvers = ("multiplicative", "projected", "hals", "auto")
fits = {
    solver: NMF(20, solver=solver, init="nndsvda", max_iter=150, tol=0, verbose=0, random_state=0).fit(X)
    for solver in solvers
}

# %%
# The excess over the lowest objective that any of them reached:

lowest = min(fit.history_["objective"].min() for fit in fits.values())
fig, ax = plt.subplots(figsize=(6.4, 4))
for (solver, fit), line in zip(fits.items(), ("-", "--", "-.", ":"), strict=True):
    excess = fit.history_["objective"] / lowest - 1
    ax.semilogy(fit.history_["iteration"], np.maximum(excess, 1e-6), line, label=solver)
ax.set(xlabel="iteration", ylabel="excess over the lowest objective")
ax.legend()

# %%
# An iteration of "auto" has several HALS sweeps, which share one product with the data, and momentum.

for solver, fit in fits.items():
    print(f"{solver:15} excess {fit.history_['objective'][-1] / lowest - 1:.2e} after {fit.n_iter_} iterations")

# %%
# **The full run**: `python -m benchmarks peers` measures time to common errors, against scikit-learn, TensorLy and
# torchnmf, from common starts, on one thread. The page of benchmarks has its table.
