"""Nonnegative tensor factorization: CP models of any order."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..factorization.nmf import NMF
from ..shared.bases import read_factors


@dataclass(kw_only=True, eq=False, repr=False)
class NTF(NMF):
    """Nonnegative CP factorization `X ~ sum_j v_j o u^1_j o u^2_j o ...` of a tensor of any order, samples first.

    As `NMF` (which it is for matrices) with one feature factor per further mode. A sweep costs two products with the
    data at any order; the tensor is never unfolded. From order 3 on sparse `X` is a torch `sparse_coo` tensor, a scipy
    `coo_array` or a `sparse.COO` of PyData, with the loss "frobenius" or "kullback-leibler"; work and memory grow with
    the stored entries only.

    Parameters
    ----------
    n_components : int
        CP rank k; may exceed every dimension.
    sample_shape : tuple of int, optional
        Shape of one sample when `X` comes as flattened rows, as scikit-learn pipelines hand it on.
    loss : {"frobenius", "kullback-leibler", "kl", "itakura-saito"} or float, as for `NMF`
    solver : {"auto", "multiplicative", "mu", "hals", "projected"}, as for `NMF`
    init : {"auto", "random", "nndsvda"} or tuple (V, U1, U2, ...), where restart 0 begins, as for `NMF`
    n_init : int, restarts, run as one batch; the best is kept
    max_iter : int, iterations at most; 0 publishes the start
    tol : float, when to stop, as for `NMF`; 0 runs exactly `max_iter` iterations
    transform_method : {"nnls", "pinv", "ridge"}, coefficients of `transform`: nonnegative, or of any sign
    random_state : int, RandomState, Generator or None, draws one seed per restart
    device : str or torch.device; "auto" is a tensor's own, else CUDA if present, else the CPU
    dtype : {"auto", "float32", "float64"}; "auto" is that of the data
    callback : callable, list of them or None: called with `core.Progress` at every reading, a true answer stops the fit
    verbose : int, 1 prints a line at every reading of the objective, 2 also records every iteration
    keep_embeddings : bool, whether `restarts_` also holds the sample factor of every restart
    normalize : {"l2", "l1"} or None, the gauge of what is published, as for `NMF`
    transform_tol, transform_max_iter : float, int, when `transform` stops for other losses than Frobenius
    missing : {"nan", "unstored"} or None, what is missing, as for `NMF`
    penalties, fixed, bounds, simplex, terms : what is asked of "V", "U1", "U2", ..., as for `NMF`
    alpha_W, alpha_H, l1_ratio, sketch : for matrices, as `NMF` has them
    batch_size : int or None, samples of a mini-batch, as for `NMF`; tensors with the Frobenius loss only
    forgetting : float, how soon `partial_fit` forgets, as for `NMF`
    ridge : float >= 0 or "cv", strength of transform_method="ridge", as for `NMF`

    Attributes
    ----------
    embedding_ : (n_samples, k); factors_ : list of (d_b, k); components_ : (k, d_1), for matrices only
    sample_shape_ : tuple of int; `n_features_in_` and feature names count flattened features
    loss_, reconstruction_err_, n_iter_, converged_, history_, restarts_, fit_info_
        As for `NMF`.

    Examples
    --------
    >>> import numpy as np
    >>> from nnfactor import NTF
    >>> X = np.einsum("i,j,k->ijk", [1., 2.], [1., 0., 3.], [2., 1., 1., 5.])
    >>> model = NTF(n_components=1, random_state=0).fit(X)
    >>> [F.shape for F in model.factors_], bool(model.reconstruction_err_ < 1e-6)
    ([(3, 1), (4, 1)], True)
    """

    sample_shape: Sequence[int] | None = None
    sample_shape_: tuple[int, ...] = field(init=False)

    _tensors = True

    def _read_bases(self, components: Any) -> list[Any]:
        return read_factors(self, components)
