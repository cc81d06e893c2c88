"""Draw the picture of the README: `python docs/first_picture.py` writes `docs/_static/first_picture.png`."""

from pathlib import Path

import matplotlib

matplotlib.use("agg")

from sklearn.datasets import load_digits

from nnfactor import NMF
from nnfactor.plots import images_plot

X, _ = load_digits(return_X_y=True)
model = NMF(16, n_init=4, random_state=0).fit(X)
ax = images_plot(model, image_shape=(8, 8), n_columns=8)
ax.figure.set_size_inches(7, 2.2)
ax.figure.savefig(Path(__file__).parent / "_static" / "first_picture.png", dpi=110, bbox_inches="tight")
