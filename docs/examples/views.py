"""
Several views of the same samples
=================================

Two descriptions of the same images: the upper half and the lower half. `SULF` has one embedding for both, a weight for
each view, and classes for the unlabelled images.
"""

import numpy as np
from sklearn.datasets import load_digits

from nnfactor import SULF, Coupled
from nnfactor.plots import images_plot

X, y = load_digits(return_X_y=True)
X, y = X[:400], y[:400]
views = [X[:, :32], X[:, 32:]]
some = np.where(np.arange(400) % 5 == 0, y, -1)  # a fifth has labels

model = SULF(20, random_state=0).fit(views, some)
hidden = some == -1
print("weights of the views:", model.view_weights_.round(2))
print(f"right among the unlabelled: {np.mean(model.transduction_[hidden] == y[hidden]):.3f}")

# %%
# The same from one view alone:

for name, view in {"upper half": views[0], "lower half": views[1]}.items():
    single = SULF(20, random_state=0).fit([view], some)
    print(f"{name}: {np.mean(single.transduction_[hidden] == y[hidden]):.3f}")

# %%
# Components of both views together are whole images again:

whole = np.vstack(model.factors_)
images_plot([model.embedding_, whole], image_shape=(8, 8), n_columns=10)

# %%
# Without labels
# --------------
# `Coupled` joins any tensors that share modes, here the images as a tensor and the same halves as matrices.
# `component_weights_` says how much of each component there is in each tensor.

modes = [("sample", "row", "column"), ("sample", "upper"), ("sample", "lower")]
both = Coupled(12, modes=modes, random_state=0).fit([X.reshape(-1, 8, 8), *views])
print("relative errors:", both.tensor_errors_.round(2))
print("weights:", both.component_weights_.round(0), sep="\n")

# %%
# Coefficients of new samples, of which only the upper half was measured:

print(both.transform([None, views[0][:5], None]).shape)

# %%
# **The full run** on documents in several languages: `python -m benchmarks sulf_classification --data DIR` with the
# Reuters multilingual data.
