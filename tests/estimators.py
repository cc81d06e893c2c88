"""The table of estimators: a new model adds a row and inherits every test of the shared surface."""

import numpy as np

from nnfactor import N2S2L, NGE, NMF, NTF

MATRIX = {  # take (n, m), dense or sparse
    "NMF": lambda **kw: NMF(3, **kw),
    "NMF, multiplicative": lambda **kw: NMF(3, solver="multiplicative", **kw),
    "NMF, projected": lambda **kw: NMF(3, solver="projected", **kw),
    "NMF, KL": lambda **kw: NMF(3, loss="kullback-leibler", **kw),
    "NMF, beta 1.5": lambda **kw: NMF(3, loss=1.5, **kw),
    "NMF, pinv": lambda **kw: NMF(3, transform_method="pinv", **kw),
    "NTF": lambda **kw: NTF(3, **kw),
    "NGE": lambda **kw: NGE(3, **kw),
    "NGE, multiplicative": lambda **kw: NGE(3, solver="multiplicative", basis_rule="paper", **kw),
    "NGE, m_matrix": lambda **kw: NGE(3, solver="m_matrix", **kw),
    "N2S2L": lambda **kw: N2S2L(3, neighbors=3, **kw),
    "N2S2L, multiplicative": lambda **kw: N2S2L(3, neighbors=2, beta=100.0, solver="multiplicative", **kw),
    "NGE, sweeps": lambda **kw: NGE(3, inner="sweeps", alpha=100.0, **kw),
}
TENSOR = {key: make for key, make in MATRIX.items() if key.startswith(("NTF", "NGE", "N2S2L"))}

# Whose factors do not change (but for the scale) when the data are multiplied by a constant.
SCALE_FREE = {key: make for key, make in MATRIX.items() if "beta" not in key}


def labels(n):
    """Three classes and, in between, unlabelled samples."""
    return np.where(np.arange(n) % 4 == 3, -1, np.arange(n) % 4)


def blocks(n=12, m=8, seed=0, noise=0.05):
    """Samples of three classes with overlapping features, nonnegative."""
    rng = np.random.default_rng(seed)
    parts = rng.random((4, m)) ** 2
    return rng.random((n, 4)) @ parts + np.eye(4)[np.arange(n) % 4] @ parts + noise * rng.random((n, m))
