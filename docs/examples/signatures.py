"""
Signatures with consensus
=========================

Mutational signatures are distributions over 96 channels; a sample has a number of mutations of each. Which signatures
can one trust? Those that other starts find again.

The counts are generated here: three signatures, 60 samples. The names of the channels are the usual ones.
"""

import numpy as np

from nnfactor import NMF, consensus, select_rank
from nnfactor.plots import components_plot, selection_plot

rng = np.random.default_rng(0)
changes = ("C>A", "C>G", "C>T", "T>A", "T>C", "T>G")
channels = [f"{left}[{change}]{right}" for change in changes for left in "ACGT" for right in "ACGT"]
planted = rng.dirichlet(np.full(96, 0.1), 3)
counts = rng.poisson(rng.gamma(1.0, 400.0, (60, 3)) @ planted)

# %%
# How many signatures? Blocks of samples and channels are held out, and predicted from the rest.

estimator = NMF(2, loss="kl", normalize="l1", init="random")
found = select_rank(estimator, counts, ranks=range(1, 6), n_init=5, random_state=0)
print(found.reason)
selection_plot(found)

# %%
# Twenty restarts of that rank, and what they have in common. `stability` is the silhouette of each matched component,
# `spread` the standard deviation of each entry; the picture has it around the medians.

restarts = estimator.set_params(n_components=found.rank, n_init=20, random_state=0).fit(counts)
agreed = consensus(restarts, counts)
print(agreed, agreed.stability.round(3))
components_plot(agreed, names=(None, channels))

# %%
# The signatures that were planted are found: the largest cosine of each.

unit = lambda A: A / np.linalg.norm(A, axis=1, keepdims=True)
print((unit(planted) @ unit(agreed.components).T).max(axis=1).round(3))

# %%
# **The full run** reads your own table, `read_data("counts.tsv").values.T` (samples as rows), tries 1 to 25 signatures
# with 100 restarts each, and resamples: `batch_fit(estimators, [rng.poisson(counts) for _ in estimators])`.
