"""The comparison with other packages and the scaling runs: fair clocks, common starts and targets, small runs."""

import json
import os
import subprocess
import sys
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("matplotlib")

from benchmarks.__main__ import main
from benchmarks.experiments.peers import methods as peers_methods
from benchmarks.experiments.peers.checks import judge_bars, summarise
from benchmarks.experiments.peers.costs import data_products
from benchmarks.experiments.peers.environment import describe_environment
from benchmarks.experiments.peers.methods import Method, Timed, build, objective, why_not
from benchmarks.experiments.peers.mixtures import expression, spectra, spectrogram, video
from benchmarks.experiments.peers.numbers import Outcome, Reached, Trail
from benchmarks.experiments.peers.parameters import LABELS, Parameters
from benchmarks.experiments.peers.problems import PROBLEMS, RESTARTS, SPARSE, starts
from benchmarks.experiments.peers.race import Climb, Limits, climb, overhead
from benchmarks.experiments.peers.restarts import Restarts
from benchmarks.harness import config as configs
from benchmarks.harness.errors import ConfigError
from benchmarks.timing import roofline
from benchmarks.timing.clock import Clock, Spread

CPU, CLOCK = torch.device("cpu"), Clock()
SMALL = ["small", "small_kl", "small_counts", "small_ntf"]
ROOT = Path(__file__).resolve().parents[2]


def setting(name, count=1):
    spec = PROBLEMS[name]
    X = spec.make(None, 0).astype(np.float32)
    return spec, X, starts(X.shape, spec.n_components, X.mean(), count, 0)


# Methods


PAIRS = [(n, p) for n in LABELS for p in SMALL if why_not(n, PROBLEMS[p], CPU) != ""]  # "": it has no such model


@pytest.mark.parametrize(("name", "problem"), PAIRS)
def test_every_method_descends_from_the_given_start_which_it_leaves_alone(problem, name):
    spec, X, (start,) = setting(problem)
    reason = why_not(name, spec, CPU)
    if reason is not None:
        pytest.skip(reason)
    before, error = [F.copy() for F in start], objective(X, spec.loss)
    method = build(name, X, spec, CLOCK, CPU)
    one, five = method.fit(start, 1), method.fit(start, 5)
    assert all(np.array_equal(a, b) for a, b in zip(start, before, strict=True))
    assert [f.iterations for f in (one, five)] == [1, 5] and five.seconds > 0
    assert error(five.factors) < error(one.factors) < error(start)
    assert all(F.shape == G.shape for F, G in zip(five.factors, start, strict=True))
    if method.continues:  # what the ladder relies on
        halfway = error(one.factors)
        for _ in range(2):  # calls are repeated: none may write into what the one before gave
            rest = method.fit(one.factors, 4)
            assert error(one.factors) == halfway
            if name != "nnfac":  # it repeats inner sweeps by the clock: no two runs are the same
                assert error(rest.factors) == pytest.approx(error(five.factors), rel=1e-4)


@pytest.mark.parametrize("problem", ["small", "small_kl", "small_counts"])
def test_multiplicative_methods_of_all_packages_walk_the_same_way(problem):
    spec, X, (start,) = setting(problem)
    error = objective(X, spec.loss)
    names = [n for n in ("ours_mu", "sklearn_mu", "torchnmf") if why_not(n, spec, CPU) is None]
    ends = {n: error(build(n, X, spec, CLOCK, CPU).fit(start, 60).factors) for n in names}
    assert len(ends) >= 2
    assert max(ends.values()) < 1.02 * min(ends.values())  # orders of updates differ, limits do not


def test_objectives_are_those_of_a_plain_formula():
    for name in SMALL:
        spec, X, (start,) = setting(name)
        dense = np.asarray(X if isinstance(X, np.ndarray) else X.toarray(), dtype=float)
        axes = "abc"[: dense.ndim]
        Y = np.einsum(",".join(f"{a}z" for a in axes) + "->" + axes, *(F.astype(float) for F in start))
        kl = np.where(dense > 0, dense * np.log(np.where(dense > 0, dense, 1) / Y), 0) - dense + Y
        wanted = (kl if spec.group == "kullback-leibler" else (dense - Y) ** 2).sum()
        assert objective(X, spec.loss)(start) == pytest.approx(wanted, rel=1e-10)


def test_an_absent_package_is_skipped_with_what_to_install(monkeypatch):
    from importlib.metadata import PackageNotFoundError

    spec = PROBLEMS["small_ntf"]
    monkeypatch.setattr(peers_methods, "version", lambda name: "0.9.0")
    assert "needs 0.10" in why_not("tensorly_hals", spec, CPU)

    def absent(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(peers_methods, "version", absent)
    assert '".[peers]"' in why_not("tensorly_mu", spec, CPU)
    assert why_not("sklearn_cd", spec, CPU) == ""  # no tensors there, and nobody expects any
    assert why_not("ours", spec, CPU) is None


def test_host_packages_do_not_run_against_a_device():
    assert "CPU only" in why_not("sklearn_cd", PROBLEMS["small"], torch.device("cuda"))


def test_packages_that_take_arrays_say_so_of_sparse_data(monkeypatch):
    monkeypatch.setattr(peers_methods, "version", lambda name: "1.0.0")
    assert why_not("tensorly_hals", PROBLEMS["text"], CPU) == "takes dense data only"
    assert why_not("nnfac", PROBLEMS["small_counts"], CPU) == "takes dense data only"
    assert why_not("tensorly_hals", PROBLEMS["small"], CPU) is None  # a matrix is a tensor of two modes


def test_a_package_that_fails_with_todays_numpy_is_skipped_with_its_error(monkeypatch):
    def fails(*arguments):
        raise ValueError("inhomogeneous shape")

    peers_methods._fault_of_nnfac.cache_clear()
    monkeypatch.setattr(peers_methods, "version", lambda name: "0.3.1")
    monkeypatch.setattr(peers_methods, "_nnfac", fails)
    assert "nn-fac 0.3.1 fails" in why_not("nnfac", PROBLEMS["small_ntf"], CPU)
    peers_methods._fault_of_nnfac.cache_clear()


# The ladder


def counting(continues, per_iteration=1.0, call=10.0):
    """A method whose factors count iterations: iteration n has error 1 / n, its clock is known."""

    def fit(start, iterations):
        return Timed(call + per_iteration * iterations, [start[0] + iterations], iterations)

    return Method("ours", fit, continues)


@pytest.mark.parametrize("continues", [True, False])
def test_going_on_and_starting_anew_see_the_same_iterations_and_times(continues):
    error = lambda F: 1 / (1 + F[0])
    (trail,) = climb([counting(continues)], [0], error, Limits(1e9, 40, 0.0, 1.5)).values()
    assert [n for n, _, _ in trail.points] == [0, 1, 2, 3, 4, 5, 6, 9, 14, 21, 32, 40]
    assert all(e == 1 / (1 + n) for n, _, e in trail.points)
    assert all(s == pytest.approx(10 + n) for n, s, _ in trail.points[1:])
    assert trail.end == "iterations" and trail.seconds == pytest.approx(1)


def test_methods_run_anew_get_as_long_a_run_as_those_that_go_on():
    error = lambda F: 1 / (1 + F[0])
    ends = [climb([counting(c)], [0], error, Limits(60.0, 1000, 0.0, 1.5))["ours"].points[-1] for c in (True, False)]
    assert ends[0] == pytest.approx(ends[1]) and ends[0][1] > 60


def test_overhead_is_what_a_call_costs_beside_its_iterations():
    assert overhead(counting(True, per_iteration=2.0, call=7.0), [0]) == 7.0


@pytest.mark.parametrize("continues", [True, False])
def test_the_first_call_is_in_no_measured_time(continues):
    """It compiles: for ours beyond the first reading of the objective, at ten iterations."""
    calls = []

    def fit(start, iterations):
        calls.append(iterations)
        return Timed(1000.0 * (len(calls) == 1) + iterations, [start[0] + iterations], iterations)

    (trail,) = climb([Method("ours", fit, continues)], [0], lambda F: 1 / (1 + F[0]), Limits(1e9, 9, 0.0, 1.5)).values()
    assert trail.points[-1][1] == pytest.approx(9)
    assert calls[0] == (1 if continues else 12)


def test_a_climb_ends_when_nothing_is_gained_or_time_is_up():
    flat = climb([counting(True)], [0], lambda F: 1 + 2.0 ** -F[0], Limits(1e9, 1000, 1e-4, 1.5))["ours"]
    assert flat.end == "settled" and flat.points[-1][0] < 60
    slow = climb([counting(True)], [0], lambda F: 1 / (1 + F[0]), Limits(60.0, 1000, 1e-4, 1.5))["ours"]
    assert slow.end == "time"
    early = Method("ours", lambda start, n: Timed(1.0, [start[0] + min(n, 3)], min(n, 3)), False)
    way = Climb(early, [0], lambda F: 1 / (1 + F[0]), Limits(1e9, 40, 0.0, 1.5))
    way.to(5)
    assert way.end == "stopped by itself" and way.points[-1][0] == 3


# Numbers


def outcome(ours, rival):
    trails = {"ours": tuple(ours), "sklearn_cd": tuple(rival)}
    spread = Spread(1e-3, 1e-3, 1e-3, 1)
    return Outcome("digits", "digits", "frobenius", (4, 3), 2, 12, trails, {}, spread, 1e-3, {}, 1)


def test_targets_follow_the_worse_of_the_two_and_times_are_taken_there():
    ours = Trail(((0, 0.0, 10.0), (10, 1.0, 2.0), (20, 2.0, 1.0)), "settled")
    theirs = Trail(((0, 0.0, 10.0), (10, 4.0, 4.0), (20, 8.0, 1.5)), "settled")
    o = outcome([ours], [theirs])
    assert o.targets(2.0) == [3.0]
    assert o.arrivals("ours", 2.0) == [Reached(8.75, 0.875)]
    assert o.arrivals("sklearn_cd", 2.0)[0].seconds == pytest.approx(5.6)
    assert o.speedups(2.0) == [pytest.approx(6.4)]
    assert "ours 8.75 iterations of 100 ms" in o.bound(2.0)


def test_the_fastest_rival_counts_start_by_start():
    line = lambda seconds, last=1.0: Trail(((0, 0.0, 9.0), (8, seconds, last)), "settled")
    o = outcome([line(1.0), line(1.0)], [line(2.0), line(8.0)])
    other = lambda **trails: Outcome(**{**vars(o), "trails": {**o.trails, **trails}})
    both = other(torchnmf=(line(4.0), line(4.0)))
    assert [name for name, _ in both.best(1.02)] == ["sklearn_cd", "torchnmf"]
    assert both.speedups(1.02) == [pytest.approx(2), pytest.approx(4)]
    assert "best was torchnmf from 1 start: " in both.bound(1.02)
    assert both.speedups(1.02, among=("sklearn_cd", "sklearn_mu")) == [pytest.approx(2), pytest.approx(8)]
    worse = other(torchnmf=(line(0.1, last=3.0), line(4.0)))  # fast, and never where the others end
    assert [name for name, _ in worse.best(1.02)] == ["sklearn_cd", "torchnmf"]
    assert other(torchnmf=(line(0.5),)).speedups(1.02) == o.speedups(1.02)  # not from every start: it does not count
    assert other(tensorly_mu=(line(0.5), line(0.5))).speedups(1.02) == o.speedups(1.02)  # no bar speaks about it


def test_a_race_is_summed_up_by_geometric_mean_and_worst():
    line = lambda seconds: Trail(((0, 0.0, 9.0), (8, seconds, 1.0)), "")
    sets = [outcome([line(1.0)], [line(ratio)]) for ratio in (2.0, 8.0)]
    sets = [Outcome(**{**vars(o), "title": title, "problem": title}) for o, title in zip(sets, "ab", strict=True)]
    found = type("Found", (), {"outcomes": sets, "sweeps": [], "restarts": [], "sparse": []})
    line, named = map(str, summarise(found))
    assert line == "NMF against the fastest rival, time to 1.005: geometric mean 4 on 2 sets, worst 2 (a)"
    assert named == line.replace("the fastest rival", "scikit-learn")
    mean, of_named, *each = judge_bars(found, {"nmf_mean": 5.0, "nmf_each": 1.5})
    assert (mean.measured, mean.verdict) == (pytest.approx(4), "not met")
    assert (of_named.measured, of_named.claim) == (mean.measured, "NMF against scikit-learn, time to 1.005")
    assert [b.verdict for b in each] == ["met", "met"]


def test_a_batch_that_never_arrives_misses_its_bar():
    r = Restarts("p", "p", 2, 1.0, 3.0, {}, {"median": Reached(4, 0.5), "best": None}, 1.0, 0.5)
    found = type("Found", (), {"outcomes": [], "sweeps": [], "restarts": [r], "sparse": []})
    bars = judge_bars(found, {"restarts_loop": 1.5})
    assert [(b.measured, b.verdict) for b in bars] == [(2.0, "met"), (0.0, "not met")]
    assert "never gets there" in bars[1].note
    alone = Restarts("p", "p", 2, None, None, {}, {"median": Reached(4, 0.5), "best": None}, 1.0, 0.5)
    assert alone.speedup("median") is None and alone.speedup("best") is None


def test_a_start_that_never_arrives_is_reported_and_not_averaged():
    good, bad = Trail(((0, 0.0, 9.0), (9, 1.0, 1.0)), ""), Trail(((0, 0.0, 9.0), (9, 1.0, 8.0)), "time")
    o = outcome([good, good], [good, good])
    other = Outcome(**{**vars(o), "trails": {**o.trails, "torchnmf": (bad,)}})
    assert other.arrivals("torchnmf", 1.02) == [None] and other.count_missed("torchnmf", 1.02) == 1
    assert other.speedups(1.02, "torchnmf") == []


def test_bars_without_a_rival_are_not_run():
    o = outcome([Trail(((0, 0.0, 9.0), (9, 1.0, 1.0)), "")], [])
    alone = Outcome(**{**vars(o), "trails": {"ours": o.trails["ours"]}, "skipped": {"sklearn_cd": "absent"}})
    found = type("Found", (), {"outcomes": [alone], "sweeps": [], "restarts": [], "sparse": []})
    bars = judge_bars(found, configs.load(configs.find("peers")).header.bars)
    assert [b.verdict for b in bars] == ["not run"] * 3 and bars[2].note == "absent"


# Problems, roofline


def test_problems_are_nonnegative_drawn_from_the_seed_and_of_their_kind():
    for name, spec in {**{n: PROBLEMS[n] for n in SMALL}, "restarts": RESTARTS["small"], "s": SPARSE["small"]}.items():
        a, b = spec.make(None, 0), spec.make(None, 1)
        assert a.min() >= 0 and a.shape == b.shape and abs(a - b).max() > 0, name
    counts = PROBLEMS["small_counts"].make(None, 0)
    assert 0.05 < counts.nnz / np.prod(counts.shape) < 0.15


GENERATED = [partial(spectra, (30, 40), 3, 0.1), partial(expression, (12, 50), 3), partial(spectrogram, (64, 40), 3)]


@pytest.mark.parametrize("make", [*GENERATED, partial(video, (8, 9, 10), 2)], ids=lambda make: make.func.__name__)
def test_generated_mixtures_are_nonnegative_and_drawn_from_the_seed(make):
    a, b = make(0), make(1)
    assert a.shape == make.args[0] and a.min() >= 0 and np.isfinite(a).all() and a.max() > 0
    assert np.array_equal(a, make(0)) and not np.array_equal(a, b)


SHIPPED = ["il2", "kinetic", "serology", "china", "patches", "breast_cancer", "wine"]


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_data_are_nonnegative_without_gaps_and_of_the_shape_that_the_title_says(name):
    try:
        X = PROBLEMS[name].make(None, 0)
    except ImportError as error:
        pytest.skip(str(error))
    assert np.isfinite(X).all() and X.min() >= 0 and X.max() > 0
    assert PROBLEMS[name].title.endswith(" x ".join(map(str, X.shape)))
    assert np.linalg.norm(X.reshape(len(X), -1), axis=0).min() > 0  # no feature that never occurs


def test_there_are_enough_sets_in_every_race():
    p = configs.load(configs.find("peers")).parameters
    groups = [PROBLEMS[n].group for n in p.problems if not PROBLEMS[n].folder]  # without a data folder
    assert groups.count("frobenius") >= 10 and groups.count("ntf") >= 8 and groups.count("kullback-leibler") >= 6
    assert len(p.restarts) >= 4


def test_the_roofline_is_the_slower_of_moving_and_computing():
    rates = roofline.Rates(bandwidth=10.0, operations=100.0)
    assert rates.seconds(50, 100) == 5 and rates.seconds(10, 900) == 9
    assert roofline.two_products(rates, 30, (5, 6), 1, False, 4) == 2 * (30 * 4 + 11 * 4) / 10
    assert roofline.two_products(rates, 30, (5, 6), 1, True, 4) == 2 * (30 * 8 + 11 * 4) / 10


def test_measured_rates_are_those_of_this_machine(monkeypatch):
    monkeypatch.setitem(roofline.COPY, "cpu", 1 << 20)
    monkeypatch.setitem(roofline.SIDE, "cpu", 64)
    rates = roofline.measure(CPU, torch.float32, repeats=2)
    assert 1e7 < rates.bandwidth < 1e13 and 1e7 < rates.operations < 1e15


def test_cuda_work_is_timed_by_events(monkeypatch):
    """Events are recorded around the calls, on the device at hand, and the last one is waited for."""
    log = []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            log.append("record")

        def synchronize(self):
            log.append("wait")

        def elapsed_time(self, end):
            return 30.0  # milliseconds

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: log.append("empty the queue"))
    monkeypatch.setattr(torch.cuda, "device", lambda device: __import__("contextlib").nullcontext())
    seconds = roofline.seconds_of(lambda: log.append("work"), torch.device("cuda"), calls=3)
    assert seconds == pytest.approx(0.01)
    assert log == ["work", "empty the queue", "record", "work", "work", "work", "record", "wait"]


def test_a_clock_on_cuda_empties_the_queue_before_every_reading(monkeypatch):
    log = []
    monkeypatch.setattr(torch.cuda, "synchronize", log.append)
    device = torch.device("cuda")
    Clock.on(device, threads=1).time(lambda: log.append("work"))
    assert log == [device, "work", device]


def test_data_products_are_the_two_of_an_iteration(monkeypatch):
    _, X, (start,) = setting("small_ntf")
    calls = []
    monkeypatch.setattr("nnfactor.core.data.dense.Dense.times", lambda self, F: calls.append(("times", tuple(F.shape))))
    monkeypatch.setattr(
        "nnfactor.core.data.dense.Dense.times_transposed", lambda self, F: calls.append(("transposed", tuple(F.shape)))
    )
    data_products(X, start, CPU)()
    assert calls == [("times", (15 * 12, 4)), ("transposed", (20, 4))]


# Configurations and runs


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"problems": ("digit",)}, "parameters.problems: unknown problem 'digit'; did you mean 'digits'?"),
        ({"problems": ("digits",), "methods": ("sklearn_cd",)}, "must name 'ours'"),
        ({"problems": ("digits",), "factors": (1.0,)}, "factors must be above 1"),
        ({"problems": ("digits",), "starts": 0}, "must be at least 1"),
        ({"problems": ("digits",), "restarts": ("digits", "catalog")}, "did you mean 'catalogue'?"),
    ],
)
def test_parameter_errors(kwargs, message):
    with pytest.raises((ConfigError, ValueError)) as error:
        Parameters(**kwargs)
    assert message in str(error.value)


def test_the_quick_comparison_end_to_end(tmp_path, capsys):
    more = ["--set", "parameters.seconds=0.05", "--set", "parameters.max_iter=30"]
    assert main(["peers", "--quick", "--out", str(tmp_path), "--traceback", *more]) == 0
    folder = tmp_path / "peers"
    rows = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    curves = {}
    for r in (r for r in rows if r["kind"] == "curve"):
        curves.setdefault((r["problem"], r["start"]), {}).setdefault(r["method"], []).append(r)
    for methods in curves.values():
        assert len({c[0]["error"] for c in methods.values()}) == 1  # the same start
        assert all(a["seconds"] <= b["seconds"] for c in methods.values() for a, b in pairwise(c))
    assert {(m, s) for (_, s), c in curves.items() for m in c if m == "ours"} == {("ours", 0), ("ours", 1)}
    assert any(r["kind"] == "skipped" and "no data folder" in r["why"] for r in rows)
    said = capsys.readouterr().err
    races = [r for r in rows if r["kind"] == "summary"]
    assert len(races) >= 4 and all(f"{r['race']}: geometric mean {r['mean']:.3g}" in said for r in races)
    machine = {r["what"]: r["is"] for r in rows if r["kind"] == "environment"}
    assert machine["processor"] and any(what.startswith("BLAS of ") for what in machine)
    assert machine["sweeps of nnfactor"].startswith(("compiled by numba", "torch"))
    assert {r["verdict"] for r in rows if r["kind"] == "check"} <= {"met", "not met"}
    assert [r["count"] for r in rows if r["kind"] == "restarts"] == [6]
    page = (folder / "report.html").read_text()
    assert page.count("data:image/svg+xml;base64,") == len(SMALL)
    assert "what bounds it" in page and "bandwidth" in page
    assert json.loads((folder / "machine.json").read_text())["rates"]["bandwidth"] > 0


def test_the_quick_scaling_run_end_to_end(tmp_path):
    assert main(["scaling", "--quick", "--out", str(tmp_path), "--traceback"]) == 0
    rows = [json.loads(line) for line in (tmp_path / "scaling" / "results.jsonl").read_text().splitlines()]
    slopes = [r for r in rows if r["kind"] == "slope"]
    parameters = configs.load(configs.find("scaling"), variants=["quick"]).parameters
    assert len(slopes) == len(parameters.vary) * len(parameters.solvers)
    sizes = {r["vary"]: r["size"] for r in rows if r["kind"] == "point"}
    assert sizes["samples"] == 80 and sizes["rank"] == 8 and sizes["order"] == 3 and sizes["restarts"] == 2


def test_a_slope_is_that_of_the_medians():
    from benchmarks.experiments.scaling.cases import Curve, Point

    points = tuple(Point(n, Spread(1e-3 * n**2, 0, 0, 1), 1e-4) for n in (1, 2, 4, 8))
    assert Curve("samples", "auto", points).slope == pytest.approx(2)
    assert Curve("samples", "auto", points).last_slope == pytest.approx(2)


# The BLAS of the rivals


def test_a_program_starts_anew_without_the_variables_that_choose_a_kernel():
    """Only where an experiment asks for it, and only once."""
    code = (
        "import os, sys\n"
        "from benchmarks.harness.machine import restart_on_fastest_blas\n"
        "restart_on_fastest_blas(sys.argv[1:])\n"
        "print(sorted(name for name in os.environ if name.startswith('OPENBLAS_')))\n"
    )
    environment = {**os.environ, "OPENBLAS_CORETYPE": "Haswell", "OPENBLAS_L2_SIZE": "512"}
    for experiment, left in (("peers", "[]"), ("sulf", "['OPENBLAS_CORETYPE', 'OPENBLAS_L2_SIZE']")):
        words = [sys.executable, "-c", code, "sulf", experiment]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, env=environment)
        assert done.stdout.strip() == left, done.stderr
        assert done.stderr.count("starting anew") == (experiment == "peers")


def test_variables_that_are_still_set_are_named(monkeypatch):
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    rows = {r["what"]: r["is"] for r in describe_environment("a processor")}
    assert "OPENBLAS_CORETYPE=Haswell" in rows["variables that choose a kernel"]


# What importing costs


def modules_after(code):
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_importing_the_package_brings_little_beside_torch_scipy_sparse_and_sklearn_base():
    base = modules_after("import torch, scipy.sparse, sklearn.base")
    ours = modules_after("import nnfactor") - base
    heavy = {m.split(".")[0] for m in ours} & {"matplotlib", "pandas", "tensorly", "jinja2", "torchnmf", "benchmarks"}
    assert not heavy
    lazy = ("scipy.stats", "scipy.optimize", "scipy.spatial", "sklearn.cluster", "sklearn.datasets", "torch._dynamo")
    assert not [m for m in lazy if m in ours]
    foreign = [m for m in ours if not m.startswith("nnfactor")]
    assert len(foreign) < 60, sorted(foreign)


@pytest.mark.parametrize("name", ["peers", "scaling"])
def test_parameters_are_read_without_torch(name):
    found = modules_after(f"from benchmarks.harness import config\nconfig.load(config.find({name!r}))")
    assert not found & {"torch", "sklearn", "scipy", "tensorly", "nnfactor"}
