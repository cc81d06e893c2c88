"""Approximate nearest neighbours of very many samples, by pynndescent (extra `graphs`), and how many they get right."""

import warnings
from importlib import import_module
from importlib.util import find_spec

import numpy as np
import scipy.sparse as sp
import torch

from .neighbors import Pairs, Points, choose_nearest, find_nearest, join_pairs

LEAST_LIST = 15  # neighbours that the search keeps of a sample; with 6 it misses a third of five in uniform data

JUDGED = 200  # samples whose neighbours are found exactly as well, for the recall


def has_search() -> bool:
    """Tell whether pynndescent is installed."""
    return find_spec("pynndescent") is not None


def find_approximate(points: Points, p: int, seed: int = 0) -> tuple[Pairs, float]:
    """Find p near others of every sample, ordered by (sample, distance, other), and the share that are the nearest.

    Nearest neighbour descent (Dong, Moses and Li 2011) proposes in float32; distances are measured from differences,
    as in `find_nearest`, which searches for samples of which too few are found. The share is that of `JUDGED` random
    samples.

    Raises
    ------
    ImportError
        pynndescent is not installed.
    """
    size = max(p + 1, LEAST_LIST)  # the sample itself is one of them
    listed = _propose(points, size, seed) if size < points.n else np.full((points.n, 1), -1)
    i, j = np.repeat(np.arange(points.n), listed.shape[1]), listed.astype(np.int64).ravel()
    real = (j >= 0) & (j != i)
    i, j = i[real], j[real]
    ends = (torch.from_numpy(side).to(points.device) for side in (i, j))
    i, j, squared = choose_nearest((i, j, points.measure(*ends).cpu().numpy()), p)
    few = np.flatnonzero(np.bincount(i, minlength=points.n) < p)
    if len(few):
        enough = ~np.isin(i, few)
        found = join_pairs([(i[enough], j[enough], squared[enough]), find_nearest(points, p, few)])
        i, j, squared = choose_nearest(found, p)
    return (i, j, squared), _recall(points, (i, j, squared), p, seed)


def _propose(points: Points, size: int, seed: int) -> np.ndarray:
    """List `size` near samples of every one, -1 where the search found none."""
    try:
        search, numba = import_module("pynndescent"), import_module("numba")
    except ImportError as error:
        raise ImportError(
            "method='approximate' needs the package pynndescent; pip install pynndescent, or nnfactor[graphs]; "
            "method='exact' needs none"
        ) from error
    Z = points.samples
    Z = sp.csr_matrix(Z, dtype=np.float32) if sp.issparse(Z) else Z.float().cpu().numpy()
    threads = min(torch.get_num_threads(), numba.config.NUMBA_NUM_THREADS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of samples without enough neighbours, which get them afterwards
        index = search.NNDescent(Z, n_neighbors=size, random_state=seed, n_jobs=threads, low_memory=True)
        return np.asarray(index.neighbor_graph[0])


def _recall(points: Points, pairs: Pairs, p: int, seed: int) -> float:
    """Compute the share of the exact nearest neighbours of some samples that are no farther than those that were found.

    Distances are compared and not names: of samples that are equally far any will do.
    """
    rows = np.sort(np.random.default_rng(seed).choice(points.n, min(JUDGED, points.n), replace=False))
    nearest = find_nearest(points, p, rows)[2].reshape(len(rows), p)
    found = pairs[2].reshape(points.n, p)[rows]
    return float((found <= nearest[:, -1:]).mean())
