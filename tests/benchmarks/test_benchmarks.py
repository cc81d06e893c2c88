"""The benchmarks: strict configurations, a clock that is fair, rules that agree, and a small run end to end."""

import csv
import json
import re
import shutil
import subprocess
import sys
import time
from functools import partial
from html import unescape
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from benchmarks.__main__ import main
from benchmarks.data.problems import PROBLEMS, half_of_each_class, load
from benchmarks.experiments import l1_codes
from benchmarks.experiments.nge_speed.checks import judge_bars
from benchmarks.experiments.nge_speed.numbers import first_below
from benchmarks.experiments.nge_speed.parameters import LABELS, Parameters
from benchmarks.harness import config as configs
from benchmarks.harness.errors import ConfigError, MissingData
from benchmarks.report import findings
from benchmarks.timing.clock import Clock, Lane, pair_ratios, per_iteration, race, stops
from benchmarks.timing.memory import peak_growth

ROOT = Path(__file__).resolve().parents[2]


def write(folder, text):
    path = folder / "mine.toml"
    path.write_text('experiment = "nge_speed"\n' + text)
    return path


# Configurations


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[parameters]\niteratoins = 3", "parameters.iteratoins: unknown key; did you mean 'iterations'?"),
        ("iterations = 3", "iterations: unknown key; did you mean 'parameters.iterations'?"),
        ("[run]\nthread = 3", "run.thread: unknown key; did you mean 'threads'?"),
        ("[parameters]\nproblems = ['digit']", "unknown problem 'digit'; did you mean 'digits'?"),
        ("[parameters]\nproblems = ['digits']\nmethods = ['holes']", "unknown method 'holes'"),
        (
            "[parameters]\nproblems = ['digits']\niterations = 2.5",
            "parameters.iterations: expected an integer, got 2.5",
        ),
        ("[parameters]\nproblems = ['digits']\nmemory = 1", "parameters.memory: expected true or false, got 1"),
        ("[parameters]\nproblems = ['digits']\niterations = true", "expected an integer, got True"),
        ("[parameters]\nproblems = 'digits'", "parameters.problems: expected a list, got 'digits'"),
        ("[parameters]\nproblems = ['digits']\norders = [4]", "parameters.orders may be 2 (vectors) and 3"),
        ("[parameters]\niterations = 3", "parameters.problems: missing key"),
        ("[run]\ndtype = 'float16'\n[parameters]\nproblems = ['digits']", "run.dtype must be 'float32' or 'float64'"),
        ("[parameters]\nproblems = ['digits']\n[full.parameters]\nalpha = 3", "full.parameters.alpha: unknown key"),
        (
            "[bars]\nproduct = 1.2\n[parameters]\nproblems = ['digits']",
            "bars: unknown bar 'product'; did you mean 'products'",
        ),
        ("[parameters", "not valid TOML"),
    ],
)
def test_config_errors(tmp_path, text, message):
    with pytest.raises(ConfigError) as error:
        configs.load(write(tmp_path, text))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_unknown_kind_and_unknown_config(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('experiment = "nge_sped"')
    with pytest.raises(ConfigError, match="did you mean 'nge_speed'"):
        configs.load(path)
    with pytest.raises(ConfigError, match="nge_sped: no such config; did you mean 'nge_speed'"):
        configs.find("nge_sped")


def test_overrides_and_variants(tmp_path):
    path = write(tmp_path, "[parameters]\nproblems = ['digits']\n[quick.parameters]\niterations = 7\nalphas = [1]")
    assert configs.load(path).parameters == Parameters(problems=("digits",))
    quick = configs.load(path, ["parameters.alphas=[2, 3.5]", "run.device=cpu"], ["quick"])
    assert (quick.parameters.iterations, quick.parameters.alphas) == (7, (2.0, 3.5))
    with pytest.raises(ConfigError, match="expected key=value"):
        configs.load(path, ["parameters.alphas"])
    with pytest.raises(ConfigError, match=r"parameters.alpha: unknown key; did you mean 'alphas'"):
        configs.load(path, ["parameters.alpha=3"])


@pytest.mark.parametrize("path", configs.known_configs(), ids=lambda p: p.stem)
def test_resolved_configs_read_back_as_they_are(path, tmp_path):
    for variants in ([], ["full"], ["quick"]):
        config = configs.load(path, variants=variants)
        assert config.header.summary
        copy = tmp_path / path.name
        copy.write_text(configs.to_toml(config.tables()))
        assert configs.load(copy) == config


# The command line


def test_help_does_not_import_torch():
    code = "import sys; from benchmarks.__main__ import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
    code += "main(['list']); assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--quick" in done.stdout
    assert "nge_speed" in done.stdout


def test_a_run_that_cannot_start_says_why_in_one_line(capsys, tmp_path):
    assert main(["nge_speed", "--set", "parameters.max_itr=3"]) == 2
    assert main(["nothing"]) == 2
    assert main(["nge_speed", "--data", str(tmp_path / "absent")]) == 2
    assert main(["nge_speed", "--set", 'parameters.problems=["orl"]', "--out", str(tmp_path)]) == 2
    assert main(["nge_speed", "--data", str(tmp_path), "--out", str(tmp_path)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 5
    assert all(line.startswith("benchmarks: ") for line in lines)
    assert "no folder named" in lines[3]
    assert "orl_64x64.npz should hold ORL 64 x 64: X (400, 64, 64)" in lines[4]


def test_no_word_is_list(capsys):
    assert main([]) == 0
    assert "nge_speed" in capsys.readouterr().out


@pytest.mark.parametrize("device", ["gpu", "mps", "meta", "cuda:99"])
def test_a_device_that_is_not_there(capsys, tmp_path, device):
    assert main(["nge_speed", "--quick", "--device", device, "--out", str(tmp_path)]) == 2
    assert f"benchmarks: run.device='{device}'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        l1_codes.main(["absent.npz", "--device", device])
    assert f"error: device='{device}'" in capsys.readouterr().err


def test_results_stay_in_their_folder(capsys, tmp_path):
    shutil.copy(configs.FOLDER / "nge_speed.toml", tmp_path / "...toml")
    assert main([str(tmp_path / "...toml"), "--quick", "--out", str(tmp_path / "out")]) == 2
    assert "a config is called by its name before .toml" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["...toml"]


def test_quick_run_end_to_end(tmp_path):
    assert main(["nge_speed", "--quick", "--out", str(tmp_path), "--traceback"]) == 0
    folder = tmp_path / "nge_speed"
    rows = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    methods = [r for r in rows if r["kind"] == "method"]
    assert {r["method"] for r in methods} == set(LABELS)
    assert all(0 < r["ms_min"] <= r["ms_median"] <= r["ms_max"] for r in methods)
    curves = {}
    for r in (r for r in rows if r["kind"] == "curve"):
        curves.setdefault((r["problem"], r["method"]), []).append(r["objective"])
    assert len({c[0] for (problem, _), c in curves.items() if problem == "digits"}) == 1  # the same start
    assert all(b <= a * (1 + 1e-6) for c in curves.values() for a, b in pairwise(c))
    agreement = [r for r in rows if r["kind"] == "agreement"]
    assert agreement
    assert all(max(r["V"], r["objective"]) < 1e-8 for r in agreement)
    page = unescape((folder / "report.html").read_text())
    assert page.count("data:image/svg+xml;base64,") == 2
    assert "http" not in page.replace("http://www.w3.org", "").replace("http-equiv", "")
    assert "Run with --quick" in page
    assert "paper's Table 1</h2>" not in page  # nothing of those shapes was run: no heading without content
    with (folder / "summary.csv").open() as file:
        assert len(list(csv.DictReader(file))) == sum(r["kind"] != "curve" for r in rows)
    machine = json.loads((folder / "machine.json").read_text())
    assert machine["threads"] == 1
    assert machine["versions"]["torch"]
    assert machine["commit"]
    assert configs.load(folder / "config.toml").parameters.iterations == 15
    page = findings.write(tmp_path, tmp_path / "pages")[0].read_text()
    assert page.startswith("# nge_speed\n")
    assert "| setting | printed ahead up to iteration |" in page


def test_a_report_leaves_out_claims_about_what_was_not_run(tmp_path):
    assert main(["n2s2l_bases", "--quick", "--out", str(tmp_path), "--traceback"]) == 0
    page = (tmp_path / "n2s2l_bases" / "report.html").read_text()
    assert "Claims about what was not run: 1." in page and "(not run)" not in page and ">not run<" not in page


# The clock


def test_the_first_call_is_discarded_and_lanes_take_turns():
    order = []

    def step(name, state):
        order.append(name)
        if len(order) <= 2:
            time.sleep(0.2)
        return state + 1

    lanes = [Lane("a", partial(step, "a"), 0, 12), Lane("b", partial(step, "b"), 0, 3)]
    seen = []
    race(lanes, stops(12), Clock(), lambda lane, i: seen.append((lane.name, i, lane.state)))
    assert [lane.state for lane in lanes] == [12, 3]
    assert order[:8] == ["a", "b", "a", "b", "b", "a", "a", "b"]
    assert all(i == state for _, i, state in seen)
    assert sum(n for n, _ in lanes[0].stretches) == 12
    assert max(seconds for lane in lanes for _, seconds in lane.stretches) < 0.1
    assert per_iteration(lanes[0].stretches).count == 1  # the last two, timed together


def test_observers_are_outside_the_clock():
    lane = Lane("a", lambda s: s, 0, 3)
    race([lane], [0, 1, 2, 3], Clock(), lambda lane, i: time.sleep(0.05))
    assert sum(seconds for _, seconds in lane.stretches) < 0.05


def test_ratios_are_taken_within_a_turn():
    ours, theirs = [(1, 7.0), (5, 10.0), (5, 40.0), (5, 11.0)], [(1, 1.0), (5, 5.0), (5, 20.0), (5, 5.0)]
    assert pair_ratios(ours, theirs).median == 2
    assert pair_ratios(ours[:1], theirs).median == 7  # timed on its first turn only
    assert per_iteration(ours).median == 2.2


def test_peak_growth_counts_freed_memory():
    torch = pytest.importorskip("torch")
    cpu, size = torch.device("cpu"), 40 * 2**20
    for _ in range(2):  # the second time, the allocator could reuse what the first one freed
        growth = peak_growth(lambda: torch.zeros(size // 4), cpu)
        if growth is None:
            pytest.skip("this system cannot reset the high-water mark")
        assert 0.9 * size < growth < 1.5 * size


def test_first_below():
    curve = [(0, 10.0), (1, 8.0), (5, 4.0), (10, 4.0)]
    assert [first_below(curve, t) for t in (11, 10, 9, 8, 7, 6.5, 4, 3)] == [0, 0, 1, 1, 2, 3, 5, None]


# The problems


@pytest.mark.parametrize("name", [n for n in PROBLEMS if n != "orl"])
def test_problems(name):
    a, b = load(name, None, 0), load(name, None, 0)
    assert np.array_equal(a.X, b.X)
    assert a.X.min() >= 0
    assert a.X.max() <= 1
    assert len(a.X) == len(a.y)
    if name != "digits":
        assert not np.array_equal(a.X, load(name, None, 1).X)


def test_sizes_are_the_papers():
    sizes = {
        n: (len(p.X), p.X[0].size, p.n_components, p.n_discriminative)
        for n in PROBLEMS
        if n != "orl"
        for p in [load(n, None, 0)]
    }
    assert sizes["digits"] == (400, 64, 55, 10)
    assert sizes["orl_shape"] == (200, 4096, 191, 40)
    assert sizes["feret_shape"] == (210, 2576, 194, 70)
    assert sizes["pie_shape"] == (340, 1024, 255, 68)


def test_orl_is_read_and_checked(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 256, (400, 64, 64), dtype=np.uint8), np.repeat(np.arange(40, dtype=np.uint8), 10)
    np.savez(tmp_path / "orl_64x64.npz", X=X, y=y)
    orl = load("orl", tmp_path, 3)
    assert np.array_equal(orl.X, X[half_of_each_class(y, 3)] / 255)
    assert (np.bincount(orl.y) == 5).all()
    np.savez(tmp_path / "orl_64x64.npz", X=X[:, :32], y=y)
    with pytest.raises(MissingData, match=r"X is \(400, 32, 64\), expected shape \(400, 64, 64\)"):
        load("orl", tmp_path, 0)
    np.savez(tmp_path / "orl_64x64.npz", X=X)
    with pytest.raises(MissingData, match="y is absent"):
        load("orl", tmp_path, 0)


# The rules that only benchmarks use


@pytest.mark.parametrize("alpha", [0.1, 100.0, 1e4])
@pytest.mark.parametrize("zeros", [False, True])
def test_dense_solvers_equal_tight_cg(alpha, zeros):
    import torch

    from benchmarks.experiments.nge_speed.family import instance
    from benchmarks.methods import exact_solves as rules
    from nnfactor.core import block_of, m_matrix

    at = instance(load("small_faces", None, 0), 2, alpha, 0, torch.device("cpu"), torch.float64)
    V = at.start["V"].clone()
    if zeros:
        V[::3, ::2] = 0
        V[:, 5] = 0
    factors = {**at.start, "V": V}
    block = block_of(at.terms(), factors, "V")
    wanted = m_matrix(V, block, tol=1e-12)
    for rule in (rules.inverses, rules.cholesky):
        got = rule(V, block)
        torch.testing.assert_close(got, wanted, rtol=1e-8, atol=1e-10 * float(wanted.max()))
        assert got.mT.is_contiguous()
        assert (got[V == 0] == 0).all()


def test_products_and_objective_of_an_instance():
    import torch

    from benchmarks.experiments.nge_speed.family import family, instance
    from nnfactor.core import objective

    for order in (2, 3):
        at = instance(load("small_faces", None, 0), order, 10.0, 0, torch.device("cpu"), torch.float64)
        state = {"factors": at.start}
        assert at.products()(state) is state
        assert at.objective(state) == pytest.approx(float(objective(at.terms(), at.start)), rel=1e-10)
        after = at.sweep(family(1e-8)["auto"])(state)
        assert at.objective(after) < at.objective(state)


def test_checks_without_any_paper_shape():
    bars = configs.load(configs.find("nge_speed")).header.bars
    assert [bar.verdict for bar in judge_bars([], {"orl": "no folder"}, bars)] == ["not run"]
    assert judge_bars([], {"orl": "no folder"}, {}) == []


def test_a_run_names_its_commit(tmp_path):
    from benchmarks.harness.machine import commit

    assert commit(tmp_path).startswith("version ")
    git = lambda *words: subprocess.run(
        ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b", *words],
        check=True,
        capture_output=True,
    )
    git("init")
    (tmp_path / "a").write_text("1")
    git("add", "a")
    git("commit", "-m", "Begin")
    clean = commit(tmp_path)
    assert re.fullmatch("[0-9a-f]{10}", clean)
    (tmp_path / "a").write_text("2")
    assert commit(tmp_path) == f"{clean} with changes"
