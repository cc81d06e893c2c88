"""New tensors in a sweep, by what torch is asked to do, and new pages, which the system has to hand out."""

import platform
from collections import Counter

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from nnfactor import N2S2L, NGE, NMF, NTF, GraphNMF

pytest.importorskip("numba")
RNG = np.random.default_rng(0)
X, T = (torch.from_numpy(RNG.random(shape, dtype=np.float32)) for shape in ((300, 200), (60, 50, 40)))
Y = RNG.integers(0, 5, 300)
SMALLEST = {"matrix": 200 * 10 * 4, "tensor": 40 * 8 * 4}  # bytes of a factor

# Estimator, data, labels, and how many new tensors a sweep of the default solver makes at most. Two are the products
# with the data, and each factor is new and extrapolated: a state is a value, of which nothing is written again. The
# conjugate gradients of graphs have their vectors.
CASES = {
    "NMF": (lambda **p: NMF(10, **p), X, None, 7),
    "NMF, restarts": (lambda **p: NMF(10, n_init=20, init="random", **p), X, None, 14),
    "NMF, Kullback-Leibler": (lambda **p: NMF(10, loss="kl", **p), X, None, 11),
    "NTF": (lambda **p: NTF(8, **p), T, None, 12),
    "GraphNMF": (lambda **p: GraphNMF(10, **p), X, None, 9),
    "NGE": (lambda **p: NGE(10, **p), X, Y, 80),
    "N2S2L": (lambda **p: N2S2L(10, **p), X, Y, 105),
}


class NewTensors(TorchDispatchMode):
    """Counts results in memory that no argument had."""

    def __init__(self, least):
        super().__init__()
        self.least, self.count = least, Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        known = {t.untyped_storage().data_ptr() for t in _strided((args, kwargs))}
        for t in _strided(result):
            memory = t.untyped_storage()
            self.count[function.__name__] += memory.data_ptr() not in known and memory.nbytes() >= self.least
        return result


def _strided(tree):
    return [t for t in tree_leaves(tree) if isinstance(t, torch.Tensor) and t.layout == torch.strided]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", CASES)
def test_a_sweep_makes_few_new_tensors(name):
    make, data, labels, most = CASES[name]
    counts = []
    for iterations in (20, 40):
        model = make(max_iter=iterations, tol=1e-30, random_state=0)
        with NewTensors(SMALLEST["tensor" if data is T else "matrix"]) as new:
            model.fit(data) if labels is None else model.fit(data, labels)
        counts.append(new.count)
    each = (counts[1].total() - counts[0].total()) / 20
    assert 0 < each <= most, counts[1] - counts[0]


def small_models(iterations, told):
    """Every default solver, with factors of some hundred kilobytes."""
    limits = {"max_iter": iterations, "tol": 1e-30, "random_state": 0, "callback": told}
    rows, cube = (RNG.random(shape, dtype=np.float32) for shape in ((3000, 600), (1500, 40, 30)))
    labels = RNG.integers(0, 5, 3000)
    yield "NMF", lambda: NMF(20, init="random", **limits).fit(rows)
    yield "NMF, restarts", lambda: NMF(20, n_init=4, init="random", **limits).fit(rows)
    yield "NMF, Kullback-Leibler", lambda: NMF(20, loss="kl", init="random", **limits).fit(rows)
    yield "NTF", lambda: NTF(20, init="random", **limits).fit(cube)
    yield "NGE", lambda: NGE(20, init="random", **limits).fit(rows, labels)
    yield "N2S2L", lambda: N2S2L(20, init="random", **limits).fit(rows, labels)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries keep other memory")
def test_sweeps_live_on_the_memory_of_the_sweeps_before():
    import resource

    seen = []
    told = lambda at: seen.append((at.iteration, resource.getrusage(resource.RUSAGE_SELF).ru_minflt))
    for name, fit in small_models(60, told):
        seen.clear()
        fit()
        (first, before), (last, after) = seen[3], seen[-1]
        pages = (after - before) / (last - first)
        factor = (1500 if name == "NTF" else 3000) * 20 * 4 / resource.getpagesize()
        assert pages < factor / 2, (name, pages)
