"""Constructors: what `help` and an editor show of them, in names, order, defaults and kinds."""

import inspect

import pytest
from sklearn.base import clone

import nnfactor

GRAPH = "graph='knn', n_neighbors=7, sigma=None, out_of_sample='all'"
FISHER = "n_neighbors=None, n_pairs=20, pca='auto', scaling='unit', graph='marginal_fisher'"
WHERE = "device='auto', dtype='auto'"
FIRST = "(n_components, *, init='auto', n_init=1, "
RUN = f"random_state=None, {WHERE}, callback=None, verbose=0"
LONG = f"{FIRST}max_iter=2000, tol=3e-05, {RUN}, "
BATCHES = "batch_size=None, forgetting=2.0, "
PLAIN = (
    "loss='frobenius', solver='auto', transform_method='nnls', keep_embeddings=False, transform_tol=1e-06, "
    "transform_max_iter=1000, normalize='l2', ridge=0.1, missing=None, penalties=None, fixed=None, bounds=None, "
    "simplex=None, terms=None, alpha_W=0.0, alpha_H='same', l1_ratio=0.0, sketch=False"
)
EMBEDDING = (
    "n_discriminative=None, alpha=10.0, graph='marginal_fisher', solver='auto', basis_rule='exact', inner='cg', "
    "inner_iter='auto', inner_tol=None, sample_shape=None, transform_method='nnls', keep_embeddings=False, ridge=0.1, "
    "classifier='nearest_neighbor', metric='euclidean', coefficients='discriminative', missing=None, "
    "terms=None"
)
NEIGHBOURS = "lam=1.0, graph='knn', n_neighbors=5, scale_free=False, solver='multiplicative', "
SHRUNK = "transform_method='nnls', ridge=0.1)"

SIGNATURES = {
    "CoTraining": f"(*, n_rounds=30, n_per_class=1, alpha=0.001, {WHERE})",
    "DPCA": f"(n_components=2, *, eta=1.0, lam=1.0, {WHERE})",
    "HarmonicFunction": f"(*, class_mass=False, {GRAPH}, {WHERE}, gamma=None)",
    "LabelledOnly": "(estimator)",
    "LapRLSC": (
        f"(*, CA=0.005, CI=0.01, sigma=0.5, graph='knn', n_neighbors=7, normalize=True, {WHERE}, gamma=None, "
        "laplacian='unnormalized')"
    ),
    "LocalGlobalConsistency": f"(*, alpha=0.99, {GRAPH}, {WHERE}, gamma=None)",
    "MFA": f"(n_components, *, {FISHER}, {WHERE})",
    "PairwiseCoRegularizedSpectral": (
        "(n_clusters, *, lam=0.05, kernel='rbf', sigma='median', degree=2, max_iter=100, tol=0.0001, n_init=20, "
        f"random_state=None, {WHERE})"
    ),
    "SMFA": f"(n_components, *, beta=1.0, neighbors=5, {FISHER}, {WHERE})",
    "SRC": f"(*, tol=0.0001, max_rounds=6, {WHERE})",
    "SRLSC": (
        f"(*, CA=0.005, CI=0.01, sigma=0.5, normalize=True, codes='l1', tol=0.0001, max_rounds=6, {WHERE}, gamma=None)"
    ),
}

FACTORIZATIONS = {  # they also hold what is not a parameter
    "ConstrainedNMF": f"{LONG}solver='multiplicative', {SHRUNK}",
    "Coupled": f"{LONG}modes, weights=None, solver='auto', transform_method='nnls')",
    "GraphNMF": f"{LONG}{NEIGHBOURS}{SHRUNK[:-1]}, missing=None, terms=None)",
    "LNMF": f"{FIRST}max_iter=200, tol=0.0, {RUN}, {SHRUNK}",
    "N2S2L": f"{LONG}{EMBEDDING}, beta=1.0, neighbors=5)",
    "NGE": f"{LONG}{BATCHES}{EMBEDDING})",
    "NMF": f"{LONG}{BATCHES}{PLAIN})",
    "NTD": (
        f"(ranks, *, {LONG.removeprefix('(n_components, *, ')}sample_shape=None, solver='auto', "
        "transform_method='nnls', keep_embeddings=False, normalize='l2')"
    ),
    "NTF": f"{LONG}{BATCHES}{PLAIN}, sample_shape=None)",
    "PARAFAC2": f"{LONG}evolving='free', coupling=10.0, momentum=True)",
    "SemiNMF": f"{LONG}solver='auto', exponent=0.5, {SHRUNK}",
}


@pytest.mark.parametrize("name", {**SIGNATURES, **FACTORIZATIONS})
def test_signatures_are_complete(name):
    signature = inspect.signature(getattr(nnfactor, name))
    assert all(p.annotation is not inspect.Parameter.empty for p in signature.parameters.values())
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    shown = signature.replace(parameters=plain, return_annotation=inspect.Signature.empty)
    assert str(shown) == {**SIGNATURES, **FACTORIZATIONS}[name]


@pytest.mark.parametrize("name", SIGNATURES)
def test_parameters_are_stored_as_given_and_nothing_else(name):
    cls = getattr(nnfactor, name)
    parameters = inspect.signature(cls).parameters
    required = {key: 2 for key, p in parameters.items() if p.default is inspect.Parameter.empty}
    default, model = cls(**required), cls(**{key: f"value of {key}" for key in parameters})
    assert repr(default) == f"{name}({', '.join(f'{key}=2' for key in required)})"
    assert list(vars(model)) == list(parameters) and vars(model) == model.get_params()
    assert vars(clone(model)) == vars(model)
    assert default.set_params(**model.get_params()) is default and vars(default) == vars(model)
    assert default != model and hash(default) != hash(model)  # by identity, not by parameters
