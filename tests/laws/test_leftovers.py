"""What a fit leaves behind: its results, and nothing of the run's working memory."""

import gc

import numpy as np
import pytest
import torch
from estimators import MATRIX, blocks, labels

from nnfactor.kernels import Kernel

X, Y = torch.from_numpy(blocks(30, 14)), labels(30)


def memory(tensor):
    """The address of a tensor's memory, which its views share."""
    return tensor.untyped_storage().data_ptr() if tensor.layout == torch.strided else id(tensor)


def held(estimator):
    """Memory of tensors that live, none of them among the attributes of the estimator or its data."""
    gc.collect()
    known = {memory(X)}
    pending = [vars(estimator)]
    while pending:
        value = pending.pop()
        if isinstance(value, torch.Tensor):
            known.add(memory(value))
        elif isinstance(value, np.ndarray):
            known.add(value.__array_interface__["data"][0])
        elif isinstance(value, Kernel):  # keeps the samples that new ones are compared with
            pending.append(vars(value))
        elif isinstance(value, dict):
            pending.extend(value.values())
        elif isinstance(value, list | tuple):
            pending.extend(value)
    return {memory(t) for t in gc.get_objects() if issubclass(type(t), torch.Tensor)} - known


@pytest.mark.parametrize("key", MATRIX)
def test_no_tensor_of_a_run_outlives_the_fit(key):
    """Results are on the estimator; graphs and kernels that it publishes hold no copies on the device."""
    estimator = MATRIX[key](max_iter=3, tol=0)
    before = len(held(estimator))
    estimator.fit(X, Y)
    assert len(held(estimator)) <= before


def test_a_graph_that_a_user_gave_holds_nothing_of_a_run():
    from nnfactor import GraphNMF, graphs

    graph = graphs.knn_graph(X, 3)
    estimator = GraphNMF(3, graph=graph, solver="auto", max_iter=3, tol=0)
    before = len(held(estimator))
    estimator.fit(X)
    assert len(held(estimator)) == before
    assert np.isfinite(estimator.loss_)
