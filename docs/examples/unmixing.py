"""
Unmixing: spectra of a piece of land
====================================

A hyperspectral image has a spectrum in every pixel. Most pixels are mixtures: their spectrum is a weighted sum of the
spectra of a few materials. `NMF` finds both, the spectra and how much of each a pixel has.

The data are a part of *Indian Pines*, which comes with TensorLy: farmland in 200 bands.
"""

import numpy as np
from tensorly.datasets import load_indian_pines

from nnfactor import NMF, penalties
from nnfactor.graphs import cube, pixels
from nnfactor.plots import components_plot, images_plot

scene = np.asarray(load_indian_pines().tensor, dtype="float32")[20:80, 20:80]
height, width, n_bands = scene.shape
print(scene.shape)

# %%
# Pixels are samples. Neighbouring bands have similar values: the penalty `Smooth` says so.

X = pixels(scene / scene.max())
model = NMF(4, penalties={"U1": [penalties.Smooth(1.0)]}, random_state=0).fit(X)
components_plot(model, kind="lines")

# %%
# How much of each component a pixel has, as images again:

images_plot(model, mode="samples", image_shape=(height, width), n_columns=4)

# %%
# The share of the data that the four components leave out:

print(f"{model.reconstruction_err_ / np.linalg.norm(X):.1%} of the norm")
print("abundances:", cube(model.embedding_, (height, width)).shape)

# %%
# Shares that sum to one
# ----------------------
# Where the spectra are known, `fixed` keeps them and `simplex` makes the shares of every pixel sum to one. Here the
# four spectra of above are taken for known.

shares = NMF(4, fixed={"U1": model.factors_[0]}, simplex="V", max_iter=200, tol=1e-3, random_state=0).fit(X[::10])
print(shares.embedding_.sum(axis=1).round(6)[:5])

# %%
# **The full run** takes all 145 x 145 pixels: leave out the slices in the first block. They are 34 MB in double
# precision. For scenes that do not fit in memory use `batch_size=`, or `partial_fit` strip by strip.
