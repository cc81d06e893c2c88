"""
Few labels: features that carry classes
=======================================

`NGE` learns nonnegative components of images and uses the labels of some: images of one class get similar coefficients.
The images are 400 digits that come with scikit-learn; four of each class have a label.
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

from nnfactor import NGE, NMF, LabelledOnly
from nnfactor.plots import images_plot

X, y = load_digits(return_X_y=True)
X, y, X_new, y_new = X[:400], y[:400], X[400:800], y[400:800]
first = np.concatenate([np.flatnonzero(y == c)[:4] for c in range(10)])
some = np.full(400, -1)
some[first] = y[first]  # -1: unlabelled
print(f"{(some >= 0).sum()} of {len(some)} images have a label")

# %%
# The components of a graph embedding are images, too.

model = NGE(40, transform_method="ridge", ridge=0.3, coefficients="all", random_state=0).fit(X, some)
images_plot(model, components=range(20), image_shape=(8, 8), n_columns=10)

# %%
# New images. `predict` compares the coefficients of a new image with those of the labelled ones. Beside it stands the
# same with `NMF`, and the nearest labelled image itself.

plain = make_pipeline(NMF(40, random_state=0), LabelledOnly(KNeighborsClassifier(1))).fit(X, some)
nearest = LabelledOnly(KNeighborsClassifier(1)).fit(X, some)
for name, estimator in {"NGE": model, "NMF + 1-NN": plain, "1-NN on pixels": nearest}.items():
    print(f"{name:15} {estimator.score(X_new, y_new):.3f}")

# %%
# On these digits labels add nothing to what the nearest labelled image knows; what `NGE` gives beside the class are
# nonnegative components. One split says little. `python -m benchmarks label_models` repeats it on several data sets,
# and the page of benchmarks has its table: faces, documents, logistic regression and shrinkage LDA.
#
# **The full run** on faces: `python -m benchmarks label_models --data DIR`, where DIR holds ORL and Yale.
