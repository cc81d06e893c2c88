"""Every factory names its device: torch's default may be anywhere, as GPU users set it at the top of a notebook."""

import ast
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from estimators import MATRIX, SUPERVISED, TENSOR, blocks, labels

import nnfactor
from nnfactor import NGE, NMF, NTF, SULF, CoTraining, PairwiseCoRegularizedSpectral, batch_fit, graphs, kernels, metrics
from nnfactor.core import Fit, as_data, hals, her, run

FACTORIES = {
    *("zeros", "ones", "empty", "full", "eye", "arange", "linspace", "logspace", "tensor", "as_tensor"),
    *("rand", "randn", "randint", "randperm", "sparse_coo_tensor", "sparse_csr_tensor", "tril_indices", "triu_indices"),
}
X, Y = blocks(24), labels(24)
CUBE = blocks(24, 24).reshape(24, 4, 6)
ROWS = {
    **MATRIX,
    **SUPERVISED,
    "PairwiseCoRegularizedSpectral": lambda: PairwiseCoRegularizedSpectral(2, random_state=0),
}


@pytest.fixture
def elsewhere():
    """A default device that holds no numbers: whatever lands there by mistake fails."""
    torch.set_default_device("meta")
    yield
    torch.set_default_device(None)


def fitted(key, data):
    estimator = ROWS[key]()
    settings = {"random_state": 0, "max_iter": 5, "tol": 0, "n_init": 2} if key in MATRIX else {}
    return estimator.set_params(device="cpu", **settings).fit(data, Y)


def ask(model, data):
    said = [getattr(model, m)(data) for m in ("transform", "predict", "decision_function") if hasattr(model, m)]
    if hasattr(model, "inverse_transform"):
        said.append(model.inverse_transform(model.transform(data)))
    return [np.asarray(a) for a in said]


@pytest.mark.parametrize("key", ROWS)
@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy, sp.csr_array], ids=["numpy", "torch", "sparse"])
def test_estimators_work_where_their_data_are(key, kind, elsewhere):
    data = kind(X)
    answers = ask(fitted(key, data), data)
    torch.set_default_device("cpu")
    for found, expected in zip(answers, ask(fitted(key, data), data), strict=True):
        assert np.array_equal(found, expected)


@pytest.mark.parametrize("key", TENSOR)
def test_tensors(key, elsewhere):
    for data in (CUBE, torch.from_numpy(CUBE), torch.from_numpy(CUBE * (CUBE > 0.5)).to_sparse_coo()):
        model = MATRIX[key](random_state=0, max_iter=5, tol=0, device="cpu").fit(data, Y)
        model.inverse_transform(model.transform(data))


def test_all_else(elsewhere):
    here = torch.from_numpy(X)
    for settings in ({"batch_size": 8}, {"loss": "kullback-leibler", "batch_size": 8}, {"init": "random", "n_init": 3}):
        NMF(3, random_state=0, max_iter=3, tol=0, **settings).fit(here)
    for model in (NMF(3, random_state=0), NGE(3, random_state=0), NMF(3, loss=1, random_state=0)):
        model.partial_fit(X, Y).partial_fit(X, Y).transform(X)
    batch_fit([NGE(3, alpha=a, random_state=0, max_iter=3, tol=0) for a in (1.0, 10.0)], X, Y)
    NTF(2, random_state=0, max_iter=3, tol=0, sample_shape=(4, 2)).fit(sp.csr_array(X))
    NMF.from_components(X[:3]).transform(X)
    NTF.from_components([CUBE[0, :, :2], CUBE[1, :2].T]).transform(CUBE)
    SULF(3, random_state=0, max_iter=3, tol=0).fit([X, here], Y).predict([X, here])
    CoTraining().fit([X, here], Y).predict([X, here])
    graphs.marginal_fisher_graphs(X, Y)
    graphs.knn_graph(here, 3, weights="median")
    kernels.rbf(X), kernels.polynomial(sp.csr_array(X))
    metrics.hoyer_sparsity(X)
    factors = {"V": here[:, :3].clone(), "U1": here[:8, :3].clone()}
    for data in (here, as_data(sp.csr_array(X))):
        term = Fit(data, ("V", "U1"))
        run([term], {"U1": hals, "V": hals}, factors, method=her, max_iter=3, tol=0)
        metrics.kkt_residual([term], factors)


def test_every_factory_in_the_package_names_its_device():
    found = []
    for path in Path(nnfactor.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if called.removeprefix("torch.") in FACTORIES and called.startswith("torch."):
                found += [] if any(k.arg == "device" for k in node.keywords) else [(path.name, node.lineno)]
            if called == "torch.Generator" and not node.args:
                found.append((path.name, node.lineno))
    assert not found
