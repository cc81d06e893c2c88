"""What is measured on a device: for each part its cases, and the figures `(what, value, unit)` of one."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from statistics import median
from typing import Any
from xml.etree import ElementTree

import numpy as np
import scipy.sparse as sp
import torch

from nnfactor import NGE, NMF, NTF
from nnfactor.core import as_data, hals, tf32_first
from nnfactor.core.block import Block, Quad
from nnfactor.core.compiled import compiled_loops, without_compiled_loops
from nnfactor.core.factors import as_factor
from nnfactor.core.precision import ProductPrecision
from nnfactor.core.solve.cuda_graph import cuda_graph

from ...harness.kinds import Context
from ...timing import roofline
from ...timing.clock import Clock
from .parameters import SECONDS, Parameters

Figure = tuple[str, Any, str]

SWITCHES = ("NNFACTOR_TRITON", "NNFACTOR_CUDA_GRAPH", "NNFACTOR_DENSE")
WAYS = {  # of an iteration: what is decided by shape, and without one or the other
    "default": {},
    "without graph": {"NNFACTOR_CUDA_GRAPH": "0"},
    "without Triton": {"NNFACTOR_TRITON": "0"},
    "torch alone": {"NNFACTOR_CUDA_GRAPH": "0", "NNFACTOR_TRITON": "0"},
}
ROWS = 100_000  # of the factor that is swept over
TILES = (16, 32, 64)  # rows
INNER = 4  # sweeps for one product
LOOP = 5  # starts of scikit-learn's loop that are run; the loop's time is that of all, in proportion
TINY = 1e-30  # a tolerance that ends nothing


class Lab:
    """The device, its clock, its roofs, and data of a size."""

    def __init__(self, parameters: Parameters, context: Context) -> None:
        self.p, self.context, self.device = parameters, context, context.device
        self.clock = Clock.on(self.device, context.settings.threads)

    @cached_property
    def rates(self) -> roofline.Rates:
        """The roofs in float32."""
        return roofline.measure(self.device, torch.float32, self.p.repeats)

    def uniform(self, *shape: int) -> torch.Tensor:
        """Draw data of this shape, every side shrunk."""
        draw = torch.Generator(self.device).manual_seed(self.context.settings.seed)
        return torch.rand(*map(self.side, shape), device=self.device, generator=draw)

    def side(self, size: int) -> int:
        """Shrink a side."""
        return max(12, size // self.p.shrink)

    def seconds(self, work: Callable[[], Any]) -> float:
        """Time a call: the median of some."""
        return median(roofline.seconds_of(work, self.device) for _ in range(self.p.repeats))

    def iteration(self, make: Callable[..., Any], X: Any, y: Any = None) -> float:
        """Time an iteration of an estimator: a longer fit less a short one, both up to their last reading."""

        def fit(iterations: int) -> float:
            read: list[float] = []
            told = {"max_iter": iterations, "tol": TINY, "init": "random", "random_state": 0}
            model = make(callback=lambda progress: read.append(self.clock.read()), device=self.device, **told)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.fit(X, y)
            return read[-1] - read[0]

        fit(self.p.iterations)  # compiles, captures
        more = [fit(10 + self.p.iterations) - fit(10) for _ in range(self.p.repeats)]
        return max(median(more), 1e-9) / self.p.iterations


@contextmanager
def switched(switches: dict[str, str]) -> Iterator[None]:
    """Set the switches of `core.gpu` meanwhile, and no others."""
    before = {name: os.environ.pop(name) for name in SWITCHES if name in os.environ}
    os.environ.update(switches)
    try:
        yield
    finally:
        for name in switches:
            del os.environ[name]
        os.environ.update(before)


def roofs(lab: Lab, case: str) -> Iterator[Figure]:
    """Measure what copies and products reach."""
    if case == "copy":
        yield "bandwidth", lab.rates.bandwidth / 1e9, "GB/s"
    elif case == "float32":
        yield "products", lab.rates.operations / 1e12, "TFlop/s"
    else:
        with ProductPrecision(True):
            yield "products", roofline.measure(lab.device, torch.float32, lab.p.repeats).operations / 1e12, "TFlop/s"


def marked_tests(lab: Lab, case: str) -> Iterator[Figure]:
    """Run the tests marked `gpu` in a process of their own."""
    lab.context.folder.mkdir(parents=True, exist_ok=True)
    xml = lab.context.folder.resolve() / "gpu_tests.xml"
    xml.unlink(missing_ok=True)
    options = ["-n", "0", "-q", "-m", "gpu", "-p", "no:cacheprovider", f"--junitxml={xml}"]
    files = Path(case).rglob("test_*.py") if Path(case).is_dir() else [Path(case)]
    marked = [str(file) for file in sorted(files) if "gpu" in file.read_text(encoding="utf-8")]
    command = [sys.executable, "-m", "pytest", *options, *marked]
    try:
        subprocess.run(command, capture_output=True, timeout=SECONDS["tests"], check=False)
    except subprocess.TimeoutExpired:
        yield "cut off after", SECONDS["tests"], "s"
        return
    suites = list(ElementTree.parse(xml).getroot().iter("testsuite"))
    counts = {name: sum(int(s.get(name, 0)) for s in suites) for name in ("tests", "failures", "errors", "skipped")}
    bad = counts["failures"] + counts["errors"]
    yield "passed", counts["tests"] - bad - counts["skipped"], "tests"
    yield "failed", bad, "tests"
    yield "skipped", counts["skipped"], "tests"
    for test in (t for s in suites for t in s.iter("testcase") if t.find("failure") is not None):
        yield f"failed: {test.get('classname')}.{test.get('name')}", 1, "tests"


def sweep(lab: Lab, case: str) -> Iterator[Figure]:
    """Time inner sweeps of HALS over one factor: by torch, captured, and by compiled loops of several tiles."""
    k, n = int(case.removeprefix("k = ")), lab.side(ROWS)
    draw = torch.Generator(lab.device).manual_seed(lab.context.settings.seed)
    rand = partial(torch.rand, device=lab.device, generator=draw)
    B, F = rand(3 * k, k), as_factor(rand(n, k))
    G = B.mT @ B
    m = as_factor((rand(n, k) - 0.2) @ G)
    block, least = Block((Quad(G),), m), 3 * F.numel() * 4 / lab.rates.bandwidth
    work = lambda: hals(F, block, INNER)
    yield "roof: factor and linear part read, factor written", 1e6 * least, "us"
    with torch.no_grad():
        with without_compiled_loops():
            yield "torch", 1e6 * lab.seconds(work), "us"
            captured = lab.seconds(cuda_graph(work, lab.device)) if lab.device.type == "cuda" else None
            yield "torch, captured", captured and 1e6 * captured, "us"
        loops: Any = compiled_loops("columns", F, G)
        yield "compiled loops", 1e6 * lab.seconds(work) if loops else None, "us"
        for rows in TILES:
            args = (F.mT[None], m.mT[None], G[None], None, None, INNER, rows)
            tiled = partial(loops.minimise_columns, *args) if loops and lab.device.type == "cuda" else None
            yield f"Triton, tiles of {rows} rows", 1e6 * lab.seconds(tiled) if tiled else None, "us"


def iteration(lab: Lab, case: str) -> Iterator[Figure]:
    """Time an iteration of an estimator in several ways, beside the two products with the data that it needs."""
    name, _, size = case.partition(" ")
    *shape, k = (int(s) for s in size.replace(", k =", " x").split(" x "))
    k = min(k, lab.side(k) if lab.p.shrink > 1 else k)
    X, y = lab.uniform(*shape), None
    make: Any = {"NMF": NMF, "NTF": NTF, "KL": partial(NMF, loss="kullback-leibler"), "NGE": NGE}[name]
    if name == "NGE":
        y = np.arange(len(X)) % 6
    least = roofline.two_products(lab.rates, X.numel(), tuple(X.shape), k, False, 4)
    yield "roof: two products with the data", 1e3 * least, "ms"
    for way, switches in WAYS.items():
        with switched(switches):
            seconds = lab.iteration(partial(make, k), X, y)
        yield way, 1e3 * seconds, "ms"
        yield f"{way}: of the roof", least / seconds, ""


def sparse(lab: Lab, case: str) -> Iterator[Figure]:
    """Compare iterations on sparse data with those on the same data stored dense."""
    density, shape = int(case.removesuffix(" %")) / 100, (lab.side(20_000), lab.side(3_000))
    rng = np.random.default_rng(lab.context.settings.seed)
    X = sp.random_array(shape, density=density, format="csr", dtype=np.float32, rng=rng)
    stored = {"sparse": as_data(X, lab.device), "dense": torch.from_numpy(X.toarray()).to(lab.device)}  # read once
    times = {}
    with switched({"NNFACTOR_DENSE": "0"}):
        for way, data in stored.items():
            times[way] = lab.iteration(partial(NMF, min(20, lab.side(20))), data)
            yield way, 1e3 * times[way], "ms"
    yield "sparse over dense", times["sparse"] / times["dense"], ""


def restarts(lab: Lab, case: str) -> Iterator[Figure]:
    """Compare a batch of restarts with a loop of scikit-learn on the host, each at its usual tolerance."""
    from sklearn.decomposition import NMF as Rival

    count, k = int(case.split()[0]), 8
    rng = np.random.default_rng(lab.context.settings.seed)
    X = (rng.random((96, k)) @ rng.random((k, lab.side(2000))) + 0.1 * rng.random((96, lab.side(2000)))).astype("f4")
    fit = lambda: NMF(k, n_init=count, init="random", random_state=0, device=lab.device).fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit()
        batch, model = lab.clock.time(fit)
        starts = min(count, LOOP)
        rival = lambda seed: Rival(k, init="random", random_state=seed, max_iter=2000)
        runs = [Clock().time(partial(rival(seed).fit, X)) for seed in range(starts)]
    loop = sum(seconds for seconds, _ in runs) / starts * count
    losses = np.asarray(model.restarts_["loss"], dtype=float)
    theirs = [rival.reconstruction_err_**2 for _, rival in runs]
    yield "batch", batch, "s"
    yield f"scikit-learn's loop, {starts} starts in proportion", loop, "s"
    yield "loop over batch", loop / batch, ""
    yield "median squared error, batch over loop", float(np.median(losses) / np.median(theirs)), ""


def tf32(lab: Lab, case: str) -> Iterator[Figure]:
    """Compare a fit that begins in TF32 with one in float32, both to their usual stop."""
    n, m, k = (int(s) for s in case.replace(", k =", " x").split(" x "))
    X = lab.uniform(n, m)
    fit = lambda: NMF(min(k, lab.side(k)), init="random", random_state=0, device=lab.device).fit(X)
    ends: dict[str, tuple[float, Any]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):  # the first round compiles and captures
            ends["float32"] = lab.clock.time(fit)
            with tf32_first():
                ends["TF32, then float32"] = lab.clock.time(fit)
    for name, (seconds, model) in ends.items():
        yield name, seconds, "s"
        yield f"{name}: iterations", int(model.n_iter_), ""
    (a, exact), (b, first) = ends.values()
    yield "float32 over TF32 first", a / b, ""
    yield "objective, TF32 first over float32", float(first.loss_) / float(exact.loss_), ""


Cases = Callable[[Parameters], Sequence[str]]

PARTS: dict[str, tuple[Cases, Callable[[Lab, str], Iterator[Figure]]]] = {
    "roofs": (lambda p: ("copy", "float32", "TF32"), roofs),
    "tests": (lambda p: p.tests, marked_tests),
    "sweep": (lambda p: [f"k = {k}" for k in p.ranks], sweep),
    "iterations": (
        lambda p: (
            "NMF 20000 x 5000, k = 50",
            "NMF 400 x 4096, k = 40",
            "NTF 400 x 400 x 400, k = 20",
            "KL 20000 x 2000, k = 20",
            "NGE 2400 x 4096, k = 100",
        ),
        iteration,
    ),
    "sparse": (lambda p: [f"{d} %" for d in p.densities], sparse),
    "restarts": (lambda p: [f"{n} restarts of 96 x 2000, k = 8" for n in p.restarts], restarts),
    "tf32": (lambda p: ("20000 x 5000, k = 50", "5000 x 5000, k = 128"), tf32),
}
