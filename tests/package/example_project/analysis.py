"""A program of a user, checked by `mypy --strict` against the installed package: there is no error in it."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from matplotlib.axes import Axes

import nnfactor
from nnfactor import (
    NMF,
    NTF,
    SULF,
    Consensus,
    GraphNMF,
    RankSelection,
    batch_fit,
    consensus,
    load,
    penalties,
    select_rank,
)
from nnfactor.callbacks import JSONLines, Progress, ProgressBar
from nnfactor.core import Fit, Laplacian, hals, run
from nnfactor.graphs import grid_graph, knn_graph
from nnfactor.io import Table, read_blocks, read_data, read_labels, write_table
from nnfactor.metrics import factor_match_score
from nnfactor.plots import components_plot, images_plot, selection_plot, write_report

Array = npt.NDArray[np.float64]


def stop_early(progress: Progress) -> bool:
    """Stop after a minute."""
    return progress.seconds > 60 or progress.objective < 1e-3


def fit_table(path: Path, rank: int) -> NMF:
    """Fit a table and write its components with their names."""
    table: Table = read_data(path)
    log = JSONLines(path.with_suffix(".jsonl"))
    model = NMF(rank, loss="kullback-leibler", n_init=3, random_state=0, callback=[ProgressBar(), log, stop_early])
    model = model.fit(table.values)
    names = [f"component_{j + 1}" for j in range(rank)]
    write_table(path.with_suffix(".tsv"), model.components_, names, table.names[1])
    labels = read_labels(path, names=table.names[0])
    known: int = int((labels != "").sum())
    print(model.loss_ / known, model.n_iter_)
    model.save(path.with_suffix(".safetensors"))
    return model


def choose(X: Array) -> tuple[int, NMF]:
    """Choose the number of components."""
    found: RankSelection[NMF] = select_rank(NMF(2, init="random"), X, range(1, 5), criterion="bicross", n_init=2)
    models: Mapping[int, NMF] = found.models
    rank = found.rank if found.rank is not None else max(models)
    agreed: Consensus = consensus(models[rank].set_params(keep_embeddings=True).fit(X))
    print(found.reason, agreed.components.shape)
    return rank, found.model


def draw(found: RankSelection[NMF], model: NMF, images: NTF, folder: str) -> list[Axes]:
    """Draw what was found."""
    first: Axes = images_plot(images, image_shape=(8, 8), n_columns=4)
    panels = components_plot(model, names={"features": ["a", "b"]})
    chosen = selection_plot(found)
    page: Path = write_report(folder)
    print(page.name)
    return [first, *panels.ravel(), *chosen.ravel()]


def fit_others(X: Array, cube: Array) -> float:
    """Fit tensors, graphs and views."""
    tensors: list[NTF] = batch_fit([NTF(k, random_state=k) for k in (2, 3)], cube)
    spatial = GraphNMF(2, graph=grid_graph((4, 5)), lam=1.0).fit(X)
    views = SULF(2).fit([X, X[:, :3]], [0, 1, -1, -1])
    sparse = NMF(2, penalties={"V": [penalties.L1(0.1)]}, bounds={"V": (0.0, 1.0)}, simplex="U1").fit(X)
    print(spatial.embedding_.shape, views.view_weights_.sum(), sparse.transform(X).shape, knn_graph(X, 3).mean_degree)
    return factor_match_score(tensors[0], tensors[1]) + tensors[0].loss_


def stream(path: Path) -> NMF:
    """Learn from blocks of a file."""
    model = NMF(3, random_state=0)
    for block in read_blocks(path, n_rows=100):
        model = model.partial_fit(block.values)
    loaded = load(path)
    print(nnfactor.__version__, model.n_samples_seen_, type(loaded).__name__)
    return model


def solve(X: torch.Tensor, adjacency: Array) -> torch.Tensor:
    """Solve without an estimator."""
    start = {"V": torch.rand(4, 2), "U1": torch.rand(3, 2)}
    result = run([Fit(X, ("V", "U1")), Laplacian(adjacency, "V")], {"V": hals, "U1": hals}, start, max_iter=10)
    return result.factors["V"]
