"""Studies: data sets that say what they miss, splits, resuming, workers, tables, claims, findings, the command line."""

import json
import re
import zlib
from base64 import b64decode
from dataclasses import replace
from html import unescape

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from benchmarks.__main__ import main
from benchmarks.data import splits
from benchmarks.data.datasets import DERIVED, FILES, load
from benchmarks.data.embedded import EMBEDDED
from benchmarks.data.pictures import png, tiles
from benchmarks.harness import config as configs
from benchmarks.harness import kinds as kinds_module
from benchmarks.harness.claims import Claim, PageTable, Paper, Try
from benchmarks.harness.errors import AbsentData, BenchmarkError, ConfigError, MissingData
from benchmarks.harness.journal import read_rows
from benchmarks.harness.results import Score
from benchmarks.harness.study import Job, seed_of
from benchmarks.report import findings, prose
from benchmarks.report.check import find_faults
from benchmarks.report.evidence import judge
from benchmarks.report.scores import Scores
from benchmarks.report.study_report import claim_table

TOY = """
experiment = "toy"
summary = "a toy"
[[paper]]
source = "Somebody 2000, Table 1"
[paper.values]
iris = { good = [86.0, 1.0], bad = [80.0] }
[[claims]]
text = "good ahead of bad"
methods = ["good"]
ahead_of = ["bad"]
[[tables]]
[[tables]]
settings = ["iris", "*/dark"]
columns = ["chosen", "best", "paper"]
[[tables]]
values = ["classes"]
"""


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """Runs the toy with some arguments; gives the exit status, notes of the jobs, and rows."""
    monkeypatch.setitem(kinds_module.KINDS, "toy", "toy_study")
    path, notes = tmp_path / "toy.toml", tmp_path / "notes"
    monkeypatch.setenv("TOY_NOTES", str(notes))
    path.write_text(TOY)

    def run(*arguments, folder="out"):
        notes.unlink(missing_ok=True)
        status = main([str(path), "--out", str(tmp_path / folder), *arguments])
        results = tmp_path / folder / "toy"
        done = notes.read_text().splitlines() if notes.exists() else []
        return status, done, read_rows(results) if (results / "results.jsonl").exists() else []

    return run


def without_times(rows):
    return [{k: v for k, v in r.items() if k != "seconds"} for r in rows]


# Data sets


@pytest.mark.parametrize("name", EMBEDDED)
def test_embedded_data(name):
    data = load(name, None, 0)
    assert {len(v) for v in data.views} == {len(data.y)}
    assert sorted(set(data.y)) == list(range(data.n_classes))
    for view in data.views:
        assert np.isfinite(view).all()
        assert view.min() >= 0
    if data.X.ndim > 2:
        assert data.X.max() <= 1
    assert data.flat.shape == (len(data.y), data.X[0].size)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_says_what_it_should_hold(name, tmp_path):
    with pytest.raises(AbsentData, match="data not available: no folder named") as error:
        load(name, None)
    assert all(key in str(error.value) or key[-1].isalpha() or key[0] == "X" for key in FILES[name].keys)
    with pytest.raises(AbsentData, match=rf"{name}\.npz is missing; {name}\.npz should hold"):
        load(name, tmp_path)


def test_files_are_checked(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 256, (400, 32, 32), dtype=np.uint8), np.repeat(np.arange(40), 10)
    path = tmp_path / "orl_32x32.npz"
    np.savez(path, X=X, y=3 * y + 5)
    data = load("orl_32x32", tmp_path)
    assert np.array_equal(data.X, X / 255)
    assert np.array_equal(data.y, y)
    small = load("orl_16x16", tmp_path)
    assert small.X.shape == (400, 16, 16)
    assert small.X[7, 3, 5] == pytest.approx(data.X[7, 6:8, 10:12].mean())
    np.savez(path, X=X[:, :16], y=y)
    with pytest.raises(
        MissingData, match=r"X is \(400, 16, 32\), expected shape \(400, 32, 32\); .* 32\).*: uint8 images"
    ):
        load("orl_32x32", tmp_path)
    np.savez(path, X=X)
    with pytest.raises(MissingData, match="y is absent, expected shape"):
        load("orl_32x32", tmp_path)
    path.write_bytes(b"no archive")
    with pytest.raises(MissingData, match="cannot be read") as error:
        load("orl_32x32", tmp_path)
    assert not isinstance(error.value, AbsentData)


def test_views_are_as_many_as_a_file_has(tmp_path):
    from benchmarks.methods import latent

    rng = np.random.default_rng(0)
    views, path = {f"X{i}": rng.random((6, i + 2)) for i in range(11)}, tmp_path / "corel5k.npz"
    for count in (2, 3, 11):
        some = {key: views[key] for key in list(views)[:count]}
        np.savez(path, y=np.arange(6) // 2, **some)
        data = load("corel5k", tmp_path)
        assert [view.shape[1] for view in data.views] == list(range(2, count + 2))
        assert len(data.view_names) == count
    with pytest.raises(MissingData, match=r"corel5k has view 0, .*, the study takes view 0, view 1, view 2: give"):
        latent.scale_views(data, ("view 0", "view 1", "view 2"), "float64")
    np.savez(path, y=np.arange(6) // 2, X0=views["X0"], X1=views["X1"], X3=views["X3"])
    with pytest.raises(MissingData, match=r"views X0, X1, X3, expected X0, X1, \.\.\. without a gap"):
        load("corel5k", tmp_path)
    shapes = [(2000, m) for m in (76, 216, 64, 240, 47, 6, 3)]
    arrays = {f"X{i}": np.zeros(shape) for i, shape in enumerate(shapes)}
    np.savez(tmp_path / "mfeat_6views.npz", y=np.arange(2000) % 10, **arrays)
    with pytest.raises(MissingData, match="views X6 are not known"):
        load("mfeat_6views", tmp_path)


def test_vowel_is_the_training_part_of_its_file(tmp_path):
    is_test = np.arange(990) >= 528
    np.savez(tmp_path / "uci_vowel.npz", X=np.arange(9900.0).reshape(990, 10), y=np.arange(990) % 11, is_test=is_test)
    data = load("uci_vowel", tmp_path)
    assert data.X.shape == (528, 10)
    assert data.X[-1, 0] == 5270


def test_folds_may_leave_classes_whole():
    y = np.repeat(np.arange(6), 2)
    parts = list(splits.folds(y, 4, 0, within=False))
    assert sorted(np.concatenate([check for _, check in parts])) == list(range(12))
    for fit, check in parts:
        assert sorted([*fit, *check]) == list(range(12))
        assert sorted(np.bincount(y[fit])) == [1, 1, 1, 2, 2, 2]


def test_strengths_are_chosen_on_training_samples():
    from benchmarks.methods.faces import Fitted, Measure, TestSet, _project_all, measure_rows
    from benchmarks.methods.pipelines import Setup, build, fit_all

    data = load("faces_16x16", None, 0)
    train = splits.share_per_class(data.y, 0.5, 0)
    test = splits.rest(len(data.y), train)
    fit = lambda X, y: [Fitted(m) for m in fit_all([build("LNMF", Setup(20, max_iter=20, dtype="float64"))], X, y)]
    rows = {}
    for ridges in ((0.0,), (0.0, 0.1, 0.3), (0.1,)):
        measure = Measure(("pinv",), ("euclidean",), 3, 0, ridges)
        job = Job("faces_16x16", "LNMF")
        tests = [TestSet(data.flat[test], data.y[test])]
        found = list(measure_rows(job, fit, measure, data.flat[train], data.y[train], tests))
        assert [r["method"] for r in found] == ["LNMF", "LNMF-pinv"]
        rows[ridges] = found[0]
    chosen = rows[0.0, 0.1, 0.3]
    assert chosen["ridge"] in (0.0, 0.1, 0.3)
    assert chosen["cv"] >= max(rows[(0.0,)]["cv"] or 0, rows[(0.1,)]["cv"] or 0)
    if chosen["ridge"] == 0.1:
        assert chosen["accuracy"] == rows[(0.1,)]["accuracy"]
    # shrunk as transform shrinks, for bases of unit length
    model, X = fit(data.flat[train], data.y[train])[0].model, data.flat[train]
    lengths = np.linalg.norm(model.factors_[0], axis=0)
    shrunk = model.set_params(transform_method="ridge", ridge=0.1).transform(X) * lengths
    projection, _ = _project_all(model, X, [])
    assert np.allclose(projection.coefficients(0.1).numpy(), shrunk, rtol=1e-6, atol=1e-9 * np.abs(shrunk).max())


def test_a_wider_kernel_is_chosen_among_equals():
    sigmas = configs.load(configs.find("kernel_nmf_accuracy")).parameters.sigmas
    row = {"kind": "score", "problem": "p", "split": 0, "method": "m"}
    rows = [{**row, "point": {"sigma": s}, "cv": 90.0 if s > 0.5 else 80.0, "accuracy": s} for s in sigmas]
    assert Scores(rows).chosen("m", "p").mean == max(sigmas)


def test_own_copies_views_and_broken_samples(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "feret.npz", X=rng.random((6, 5, 4)), y=np.arange(6) // 2)
    assert load("feret", tmp_path).flat.shape == (6, 20)
    np.savez(tmp_path / "feret.npz", X=rng.random((6, 5, 4)), y=np.arange(4) // 2)
    with pytest.raises(MissingData, match=r"arrays of \[4, 6\] samples"):
        load("feret", tmp_path)
    X, corrupt = np.zeros((2414, 32, 32), np.uint8), np.arange(2414) == 3
    np.savez(tmp_path / "yaleb_ext_32x32.npz", X=X, y=np.arange(2414) % 38, corrupt=corrupt)
    assert len(load("yaleb_ext_32x32", tmp_path).sound().y) == 2413
    import scipy.sparse as sp

    S = sp.random_array((1200, 7), density=0.2, rng=rng, format="csr")
    parts = {"data": S.data, "indices": S.indices, "indptr": S.indptr, "shape": np.array(S.shape)}
    arrays = {f"X{i}_{name}": value for i in range(5) for name, value in parts.items()}
    np.savez(tmp_path / "reuters1200_5views.npz", y=np.arange(1200) % 6, **arrays)
    reuters = load("reuters1200_5views", tmp_path)
    assert len(reuters.views) == 5
    assert abs(reuters.views[4] - S).max() == 0
    for name, value in {"indices": S.indices + 1, "shape": np.array([1200, 3]), "indptr": S.indptr[::-1]}.items():
        np.savez(tmp_path / "reuters1200_5views.npz", y=np.arange(1200) % 6, **arrays | {f"X2_{name}": value})
        with pytest.raises(MissingData, match=r"reuters1200_5views.npz: .*; .* should hold"):
            load("reuters1200_5views", tmp_path)


def test_unknown_data_set():
    with pytest.raises(ConfigError, match="did you mean 'orl_32x32'"):
        load("orl_32", None)
    assert all(source in FILES or source in DERIVED for source, _ in DERIVED.values())


# Splits


def test_splits():
    y = np.array([2, 0, 0, 2, 1, 0, 2, 0, 1, 0, 2])  # five 0, two 1, four 2
    counts = lambda index: np.bincount(y[index], minlength=3).tolist()
    assert counts(splits.per_class(y, 3, 0)) == [3, 2, 3]
    assert counts(splits.share_per_class(y, 0.5, 0)) == [2, 1, 2]
    assert counts(splits.share_per_class(y, 0.1, 0)) == [1, 1, 1]
    assert splits.first_per_class(y).tolist() == [0, 1, 2, 3, 4]
    train = splits.share_per_class(y, 0.5, 1)
    assert sorted([*train, *splits.rest(11, train)]) == list(range(11))
    assert np.array_equal(splits.per_class(y, 2, 9), splits.per_class(y, 2, 9))
    assert len({tuple(splits.per_class(y, 2, s)) for s in range(20)}) > 5


def test_folds_cut_the_labelled_evenly():
    y = np.array([0, 0, 0, 0, 1, 1, 1, 2, 2, -1, -1])
    parts = list(splits.folds(y, 3, 0))
    assert len(parts) == 3
    assert sorted(np.concatenate([check for _, check in parts])) == list(range(9))
    assert all(sorted([*fit, *check]) == list(range(9)) for fit, check in parts)
    assert all((np.bincount(y[check], minlength=3) <= 2).all() for _, check in parts)
    assert len(list(splits.folds(np.array([0, 0, 1, 1]), 5, 0))) == 2


# Running, stopping, going on


def test_finished_points_are_not_run_again(toy, tmp_path, capsys):
    status, notes, rows = toy()
    assert status == 0
    assert len(notes) == 12
    again = toy()
    assert again[1] == []
    assert again[2] == rows  # times as well: nothing was run
    path = tmp_path / "out" / "toy" / "results.jsonl"
    lines = path.read_text().splitlines()
    keep = [i for i, line in enumerate(lines) if '"wine"' not in line or '"split": 1' not in line]
    torn = next(i for i, line in enumerate(lines) if '"iris"' in line and '"split": 2' in line and '"a": 2.0' in line)
    path.write_text("\n".join(lines[i] for i in keep if i != torn) + '\n{"kind": "sco')
    status, notes, resumed = toy()
    assert sorted(notes) == ["iris 2 good 1", "wine 1 bad 1", "wine 1 good 2"]
    assert without_times(resumed) == without_times(rows)
    assert "9 of 12 jobs are finished" in capsys.readouterr().err
    assert len(toy("--restart")[1]) == 12


def test_another_configuration_is_refused(toy, capsys):
    toy()
    status, notes, _ = toy("--set", "parameters.strength=2.5")
    assert (status, notes) == (2, [])
    assert "parameters.strength: 1.0 there, 2.5 here" in capsys.readouterr().err
    assert toy("--threads", "2")[0] == 0  # does not decide about results
    assert toy("--set", "parameters.strength=2.5", "--restart")[0] == 0


def test_what_was_finished_before_a_failure_stays(toy, monkeypatch, capsys):
    monkeypatch.setenv("TOY_FAIL", "iris, split 1, bad")
    status, _, rows = toy()
    assert status == 1
    assert "told to fail" in capsys.readouterr().err
    assert {(r["split"], r["method"]) for r in rows} == {(0, "good"), (0, "bad"), (1, "good")}


def test_workers_give_the_same_rows_and_a_failure_keeps_theirs(toy, monkeypatch, capsys):
    one = toy(folder="one")[2]
    monkeypatch.setenv("TOY_FAIL", "wine, split 2, bad")  # the last one
    status, _, rows = toy("--jobs", "2", folder="two")
    assert status == 1
    assert "told to fail" in capsys.readouterr().err
    assert len({(r["problem"], r["split"], r["method"]) for r in rows}) == 11
    monkeypatch.delenv("TOY_FAIL")
    status, notes, rows = toy(folder="two")
    assert (status, notes) == (0, ["wine 2 bad 1"])
    assert without_times(rows) == without_times(one)


def test_problems_without_data_are_skipped(toy, capsys):
    status, _, rows = toy("--set", 'parameters.problems=["iris", "ar"]')
    assert status == 0
    skipped = [r for r in rows if r["kind"] == "skipped"]
    assert [r["problem"] for r in skipped] == ["ar"]
    assert "your own copy of AR" in skipped[0]["why"]
    assert toy("--set", 'parameters.problems=["ar"]', folder="none")[0] == 2
    assert "nothing to run" in capsys.readouterr().err


def test_rows_must_be_those_of_the_points(toy, monkeypatch, capsys):
    import toy_study

    monkeypatch.setattr(toy_study, "solve", lambda job: [{"point": {"a": 3.0}, "accuracy": 1.0}])
    assert toy()[0] == 2
    assert "expected" in capsys.readouterr().err


def test_seeds_are_the_same_everywhere():
    assert seed_of(0, "iris", "", 1) == 143784457
    assert seed_of(0, "iris", "", 1) != seed_of(0, "iris", "", 2)


# Scores, claims, prose


def row(split, point, accuracy, cv=None, method="m", problem="p", setting="", run=0):
    base = {"kind": "score", "problem": problem, "setting": setting, "split": split, "method": method, "run": run}
    return {**base, "point": {"a": point}, "accuracy": accuracy, "cv": cv}


def test_chosen_on_training_data_best_on_test_data():
    rows = [
        *(row(0, 1, 70.0, 9.0, run=r) for r in range(2)),
        *(row(0, 2, 90.0, 8.0, run=r) for r in range(2)),
        *(row(1, 1, 60.0, 1.0, run=r) for r in range(2)),
        row(1, 2, 80.0, 2.0, run=0),
        row(1, 2, 84.0, 2.0, run=1),
    ]
    scores = Scores(rows, paper=Paper("x", {"p": {"m": (88.0, 2.0)}}))
    assert scores.chosen("m", "p") == Score.of([70.0, 70.0, 80.0, 84.0])
    assert scores.best("m", "p") == Score.of([90.0, 90.0, 80.0, 84.0])
    assert scores.best_point("m", "p") == '{"a": 2}'
    assert scores.printed("m", "p") == Score(88.0, 2.0)
    assert scores.chosen("m", "q") is None
    ties = Scores([row(0, 1, 1.0, 5.0), row(0, 2, 2.0, 5.0)])
    assert ties.chosen("m", "p").mean == 1.0


def scores_of(values, paper=None):
    """method -> setting -> accuracy."""
    rows = [row(0, 0, v, method=m, problem=s) for m, by in values.items() for s, v in by.items()]
    return Scores(rows, paper=Paper("x", paper or {}))


COLD = {"A": {"z": 70}, "B": {"z": 75}}


@pytest.mark.parametrize(
    ("claim", "verdict"),
    [
        ({"ahead_of": ("B",)}, "met"),
        ({"ahead_of": ("B",), "by": "every"}, "not met"),
        ({"ahead_of": ("B",), "by": "most"}, "met"),
        ({"ahead_of": ("B",), "settings": ("z*",)}, "not met"),
        ({"ahead_of": ("A",)}, "not met"),
        ({"ahead_of": ("C",)}, "not run"),
        ({"ahead_of": ("B",), "settings": ("q*",)}, "not run"),
        ({"at_least": 89.9, "settings": ("x",)}, "met"),
        ({"at_least": 90.1, "settings": ("x",)}, "not met"),
        ({"at_least": 90.1, "settings": ("x",), "smaller": True}, "met"),
        ({"within": 2.0, "settings": ("x",)}, "met"),
        ({"within": 1.0, "settings": ("x",)}, "not met"),
        ({"within": 9.0, "settings": ("y",)}, "not run"),
    ],
)
def test_claims(claim, verdict):
    scores = scores_of({"A": {"x": 90, "y": 80, "z": 70}, "B": {"x": 80, "y": 79, "z": 75}}, {"x": {"A": (91.5,)}})
    assert judge(Claim("t", ("A",), **claim), scores)[0] == verdict


def test_a_claim_says_what_it_lacks():
    scores = scores_of({"A": {"x": 90, "y": 80, "z": 70}, "B": {"x": 80, "y": 82, "z": 75}})
    for by, lacks in (("average", ""), ("every", "; lacks 5.0"), ("most", "; lacks 2.0")):
        assert judge(Claim("t", ("A",), ahead_of=("B",), by=by), scores)[1].endswith(lacks)


def test_a_claim_may_be_measured_in_other_ways():
    tries = (Try("cold", settings=("z",)), Try("alone", methods=("B",), ahead_of=("A",), equal=True))
    claim = Claim("t", ("A",), ahead_of=("B",), by="every", tried=tries)
    table = claim_table(configs.Config("t", configs.Header("t", claims=(claim,)), None), {"accuracy": scores_of(COLD)})
    assert [row[:3] for row in table.rows] == [
        ["paper", "t", "not met"],
        ["tried", "cold", "not met"],
        ["equally", "alone", "met"],
    ]
    with pytest.raises(ValueError, match="chosen on test data"):
        Try("best", column="best", equal=True)
    with pytest.raises(ValueError, match="by must be"):
        Claim("t", ("A",), ahead_of=("B",), tried=(Try("some", by="some"),))


def test_claims_are_checked():
    with pytest.raises(ValueError, match="needs ahead_of, within or at_least"):
        Claim("t", ("A",))
    with pytest.raises(ValueError, match="by must be"):
        Claim("t", ("A",), at_least=1.0, by="some")


def test_tables_of_a_page_are_checked():
    with pytest.raises(ValueError, match="columns may be"):
        PageTable(columns=("mean",))


# --check


def test_check_passes_where_everything_holds(toy, capsys):
    assert toy("--check")[0] == 0


def test_check_fails_where_a_bar_is_missed(toy, tmp_path, capsys):
    path = tmp_path / "toy.toml"
    target = '[[claims]]\norigin = "{}"\ntext = "bad is good"\nmethods = ["bad"]\nat_least = 99.0\n'
    path.write_text(TOY + target.format("paper"))  # a paper may be wrong
    assert toy("--check")[0] == 0
    path.write_text(TOY + target.format("target"))
    assert toy()[0] == 0
    assert toy("--check")[0] == 1
    assert "bar missed: bad is good: bad 7" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        ('[[claims]]\ntext = "t"\nmethods = ["god"]\nat_least = 1.0', "claim 't' names no method: god"),
        (
            '[[claims]]\ntext = "t"\nmethods = ["good"]\nahead_of = ["worse"]',
            "claim 't' names no method: worse",
        ),
        (
            '[[claims]]\ntext = "t"\nmethods = ["good"]\nat_least = 1.0\nsettings = ["irish"]',
            "claim 't' names no data set: irish",
        ),
        (
            '[[claims]]\ntext = "t"\nmethods = ["good"]\nat_least = 1.0\nsettings = ["iris/light"]',
            "claim 't' names no row: iris/light",
        ),
        (
            '[[claims]]\ntext = "t"\nmethods = ["good"]\nat_least = 1.0\nmetric = "speed"',
            "claim 't' names no metric: speed",
        ),
        ('[[tables]]\nvalues = ["clases"]', "table 4 names no figure: clases"),
        ('[[tables]]\nkind = "score"\nshow = ["acuracy"]', "table 4 names no figure: acuracy"),
        ('[[paper]]\nsource = "B"\n[paper.values]\niris = { gut = [1.0] }', "paper 'B' names no method: gut"),
    ],
)
def test_check_fails_where_a_statement_names_nothing(toy, tmp_path, capsys, statement, fault):
    (tmp_path / "toy.toml").write_text(f"{TOY}\n{statement}\n")
    assert toy()[0] == 0
    assert toy("--check")[0] == 1
    assert fault in capsys.readouterr().err


def test_check_knows_data_that_could_not_be_had(toy, tmp_path):
    claim = '[[claims]]\ntext = "t"\nmethods = ["good"]\nat_least = 1.0\nsettings = ["ar/dark"]\n'
    head, table = TOY.split("[[paper]]", 1)
    problems = '[parameters]\nproblems = ["iris", "wine", "ar"]\n'
    (tmp_path / "toy.toml").write_text(f"{head}{problems}[[paper]]{table}{claim}")
    assert toy("--check")[0] == 0


def test_check_fails_where_a_method_has_vanished(toy, monkeypatch, capsys):
    import toy_study

    plan = toy_study.plan
    monkeypatch.setattr(toy_study, "plan", lambda p: (job for job in plan(p) if job.method != "bad"))
    assert toy()[0] == 0
    assert toy("--check")[0] == 1
    assert "method vanished: bad has no result" in capsys.readouterr().err


def test_check_judges_no_numbers_of_a_smaller_run(toy, tmp_path, capsys):
    target = '[[claims]]\norigin = "target"\ntext = "t"\nmethods = ["bad"]\nat_least = 99.0\nsettings = ["wine"]\n'
    small = '[quick.parameters]\nproblems = ["iris"]\n'
    (tmp_path / "toy.toml").write_text(TOY + target + small)
    assert toy("--quick", "--check")[0] == 0
    assert toy("--check", folder="whole")[0] == 1


def test_check_knows_what_only_the_full_variant_runs(toy, tmp_path, capsys):
    claim = '[[claims]]\ntext = "t"\nmethods = ["good"]\nat_least = {}\nsettings = ["{}"]\norigin = "target"\n'
    full = '[full.parameters]\nproblems = ["iris", "wine", "digits_400"]\n'
    (tmp_path / "toy.toml").write_text(TOY + claim.format(1.0, "digits_400") + full)
    assert toy("--check")[0] == 0
    (tmp_path / "toy.toml").write_text(TOY + claim.format(1.0, "digits") + full)  # no variant has it
    assert toy("--check")[0] == 1
    assert "claim 't' names no row: digits" in capsys.readouterr().err
    (tmp_path / "toy.toml").write_text(TOY + claim.format(99.0, "digits_400") + full)
    assert toy("--full", "--check", folder="full")[0] == 1  # a full run is judged
    assert "bar missed: t" in capsys.readouterr().err


def test_check_reads_the_bars_of_measurements():
    config = configs.load(configs.find("peers"))
    config = replace(config, header=replace(config.header, tables=()))
    methods = [{"kind": "method", "method": m} for m in config.parameters.methods]
    bar = {"kind": "check", "claim": "c", "where": "w", "bar": "at most 1", "measured": 2.0}
    assert find_faults([*methods, {**bar, "verdict": "met"}], config, [config]) == []
    assert find_faults([*methods, {**bar, "verdict": "not met"}], config, [config]) == [
        "bar missed: c, w: 2.0, at most 1"
    ]


# Pages


PAGES = sorted(findings.FOLDER.glob("*.md"))


def test_every_config_has_a_page_and_the_index_names_it():
    names = {p.stem for p in configs.known_configs()}
    assert {p.stem for p in PAGES} == {*names, "index"}
    index = (findings.FOLDER / "index.md").read_text()
    assert all(f"({name}.md)" in index for name in names)
    assert len(index.splitlines()) <= 150


@pytest.mark.parametrize("page", [p for p in PAGES if p.stem != "index"], ids=lambda p: p.stem)
def test_numbers_in_the_text_of_a_page_stand_in_its_results(page):
    text = page.read_text()
    assert prose.untabled_numbers(text) == []
    assert "<details>" not in text
    assert len(text.splitlines()) <= 200
    assert f"python -m benchmarks {page.stem}" in text


def test_the_words_of_the_pages_are_in_their_results():
    assert prose.find_faults(findings.FOLDER) == []


def test_a_number_without_a_source_is_found():
    page = f"1.5\n{findings.BEGIN}\n| 2.5 |\n{findings.END}\nIt is 2.5, not 3.5."
    assert prose.untabled_numbers(page) == ["3.5"]


PAGE = f"""# toy

{prose.BEGIN}

| setting |  | A | B | C |
| --- | --- | --- | --- | --- |
| iris | ours | 90.0 ± 1.0 | 80.0 | - |
| `iris` | best | 91.0 | 92.0 | - |

| of the | claim | verdict | numbers |
| --- | --- | --- | --- |
| paper | A ahead of B | met | A 90.0, B 80.0 |
| paper | A ahead of C | not met | lacks 1.5 |
| tried | A ahead of C by day | not met | lacks 2.0 |
| tried | A ahead of C by night | not met | lacks 2.5 |

{prose.END}

## What holds

"""


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("A is ahead of B [met: A ahead of B]. So it is.", None),
        (
            "A is ahead of B: 90.0 and 80.0 [iris: A > B]. B leads [best iris: B > A], C is not behind [not met: A ahead of C].",
            None,
        ),
        ("A is\nahead of B.", "'ahead' without a claim: A is ahead of B."),
        ("A is as good as reproduced.", "'reproduced' without a claim"),
        ("A is ahead of B [met: A ahead of C].", "it is 'not met'"),
        ("A is ahead [met: A ahead].", "claims of both verdicts begin so"),
        ("A is ahead [met: A far ahead].", "no claim begins so"),
        ("B is ahead [iris: B > A].", "not in the table"),
        ("C is ahead [iris: C > A].", "no row iris has all of these methods"),
        ("It is 81.0.", "81.0 is in no table"),
    ],
)
def test_words_are_checked_against_the_results(tmp_path, text, fault):
    (tmp_path / "toy.md").write_text(PAGE + text + "\n")
    found = prose.find_faults(tmp_path)
    assert [f"toy: {fault}" in line or fault in line for line in found] == ([] if fault is None else [True])
    assert [(claim.text, claim.outcome) for claim in prose.judged_claims(PAGE)] == [
        ("A ahead of B", "met"),
        ("A ahead of C", "not met"),
    ]


def test_a_claim_that_does_not_hold_needs_two_tries(tmp_path):
    page = tmp_path / "toy.md"
    page.write_text(PAGE.replace("| tried | A ahead of C by night | not met | lacks 2.5 |\n", ""))
    (fault,) = prose.find_faults(tmp_path)
    assert fault == "toy: 1 of 2 other ways tried for a claim that does not hold: A ahead of C"
    page.write_text(PAGE.replace("tried | A ahead of C by day | not met", "equally | A ahead of C by day | met"))
    assert prose.find_faults(tmp_path) == []
    assert [claim.outcome for claim in prose.judged_claims(page.read_text())] == ["met", "met equally"]
    assert list(prose.list_claims(tmp_path))[1:3] == [
        "toy: met equally: A ahead of C (lacks 1.5)",
        "    equally, met: A ahead of C by day (lacks 2.0)",
    ]


def test_the_index_is_checked_against_the_pages(tmp_path):
    (tmp_path / "toy.md").write_text(PAGE)
    head = "| what | verdict | page |\n| --- | --- | --- |\n"
    row = "| Table 1 | {} | [toy](toy.md) |\n"
    for verdict, faults in (
        ("holds, 90.0 [met in toy: A ahead of B]", 0),
        ("not run", 0),
        ("holds", 1),
        ("Does not hold [met in toy: A ahead of C]", 1),
        ("holds, 95.0 [met in toy: A ahead of B]", 1),
    ):
        (tmp_path / "index.md").write_text(head + row.format(verdict))
        assert len(prose.find_faults(tmp_path)) == faults, verdict


# What is written


def test_the_page_shows_ours_beside_the_papers(toy, tmp_path):
    toy()
    folder = tmp_path / "out" / "toy"
    page = (folder / "report.html").read_text()
    assert "86.0 ± 1.0" in page
    assert "good ahead of bad" in page
    assert "data:image/png;base64," in page
    assert "docs/findings/toy.md" in page
    header = (folder / "summary.csv").read_text().splitlines()[0].split(",")
    assert {"chosen_mean", "chosen_std", "best_mean", "paper_mean"} <= set(header)
    assert configs.load(folder / "config.toml").header.paper[0].values["iris"]["bad"] == (80.0,)


def test_findings_are_written_from_runs(toy, tmp_path, capsys):
    with pytest.raises(BenchmarkError, match="no finished run"):
        findings.write(tmp_path, tmp_path / "pages")
    toy()
    (page,) = findings.write(tmp_path / "out", tmp_path / "pages")
    text = page.read_text()
    assert text.startswith("# toy\n")
    assert "| paper | good ahead of bad | met |" in text
    assert "| classes | 3.0 |" in text
    chosen = re.search(r"\| `iris` \| chosen \| ([\d.]+) ± ", text)
    rows = [r for r in toy()[2] if r["kind"] == "score" and r["problem"] == "iris" and not r["setting"]]
    at_one = [r["accuracy"] for r in rows if r["point"] == {"a": 1.0}]
    assert float(chosen.group(1)) == pytest.approx(np.mean(at_one), abs=0.05)
    assert "| `iris` | paper | 86.0 ± 1.0 | 80.0 |" in text
    dark = [r["chosen_mean"] for r in toy()[2] if r["kind"] == "summary" and "dark" in r["setting"]]
    assert f"| `*/dark` | chosen | {np.mean(dark[::2]):.1f} | {np.mean(dark[1::2]):.1f} |" in text


def test_what_is_written_by_hand_stays(toy, tmp_path):
    toy()
    (page,) = findings.write(tmp_path / "out", tmp_path / "pages")
    text = page.read_text()
    page.write_text(text.replace("# toy", "# A toy\n\nBefore.").replace("met", "old") + "\nAfter.\n")
    findings.write(tmp_path / "out", tmp_path / "pages")
    assert page.read_text() == text.replace("# toy", "# A toy\n\nBefore.") + "\nAfter.\n"
    page.write_text("# toy")
    with pytest.raises(BenchmarkError, match="no place for the results"):
        findings.write(tmp_path / "out", tmp_path / "pages")


def test_the_summary_of_a_run_on_another_processor_stays(toy, tmp_path):
    (tmp_path / "toy.toml").write_text(TOY + '[[tables]]\nkind = "summary"\nshow = ["method", "setting"]\n')
    toy()
    machine = tmp_path / "out" / "toy" / "machine.json"
    as_run, pages = json.loads(machine.read_text()), tmp_path / "pages"

    def write_as(processor):
        machine.write_text(json.dumps({**as_run, "device_name": processor}))
        (page,) = findings.write(tmp_path / "out", pages)
        text = page.read_text()
        return text, re.findall(r"Run: .* on cpu \((\w+)\)", text)

    text, runs = write_as("A")
    assert runs == ["A"]
    summary = text[text.index("| method | setting |") :].split("\n\n")[0]
    assert [write_as(name)[1] for name in ("B", "B", "A", "C")] == [["B", "A"], ["B", "A"], ["A", "B"], ["C", "A", "B"]]
    assert write_as("C")[0].count(summary) == 3


def test_compare(toy, tmp_path, capsys):
    toy(folder="a")
    toy("--set", "run.seed=1", folder="b")
    capsys.readouterr()
    assert main(["compare", str(tmp_path / "a" / "toy"), str(tmp_path / "b" / "toy")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["metric", "setting", "method", "A", "B", "B", "-", "A"]
    assert len(lines) == 1 + 8
    numbers = [float(v) for v in re.findall(r"-?\d+\.\d+", lines[1])]
    assert numbers[4] == pytest.approx(numbers[2] - numbers[0], abs=0.11)
    assert main(["compare", str(tmp_path)]) == 2
    assert main(["compare", str(tmp_path), str(tmp_path)]) == 2
    assert main(["toy", str(tmp_path)]) == 2


def test_rows_of_other_kinds_are_compared(tmp_path):
    from benchmarks.report.compare import compare

    for name, ms in (("a", 2.0), ("b", 3.5)):
        (tmp_path / name).mkdir()
        rows = [{"kind": "method", "method": "hals", "k": 3, "ms": ms}, {"kind": "method", "method": name, "ms": 1.0}]
        (tmp_path / name / "results.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    assert compare(tmp_path / "a", tmp_path / "b").rows == [["method hals 3", "ms", 2.0, 3.5, 1.5]]


def test_pictures():
    images = np.stack([np.eye(3), 5 * np.ones((3, 3)), 1 - np.eye(3)])
    sheet = tiles(images, columns=2, zoom=3)
    assert sheet["width"] == 3 * 9
    data = b64decode(sheet["png"])
    assert data == png(np.array(_decoded(data)))
    assert _decoded(data)[1:4, 1:4].tolist() == (255 * np.eye(3)).astype(int).tolist()
    assert (_decoded(data)[1:4, 5:8] == 0).all()  # a constant image is black


def _decoded(data):
    width, height = (int.from_bytes(data[i : i + 4], "big") for i in (16, 20))
    start = data.index(b"IDAT") + 4
    lines = zlib.decompress(data[start : data.index(b"IEND") - 8])
    return np.frombuffer(lines, np.uint8).reshape(height, width + 1)[:, 1:]


# The command line


def test_all_runs_every_config_and_fails_if_one_does(monkeypatch, tmp_path, capsys):
    from benchmarks import __main__ as command

    seen = []

    def run(options, path):
        seen.append(path.stem)
        if path.stem == "nge_speed":
            raise RuntimeError("no")
        return 0

    monkeypatch.setattr(command, "run", run)
    assert main(["all", "--quick", "--out", str(tmp_path)]) == 1
    assert seen == [p.stem for p in configs.known_configs()]
    assert "1 failed: nge_speed" in capsys.readouterr().err
    assert main(["all", "--jobs", "0"]) == 2


@pytest.mark.parametrize("path", configs.known_configs(), ids=lambda p: p.stem)
def test_quick_variants_need_no_folder(path):
    from benchmarks.data.problems import PROBLEMS
    from benchmarks.experiments.peers.problems import PROBLEMS as RACES

    parameters = configs.load(path, variants=["quick"]).parameters
    if path.stem in (
        "device",
        "growth",
        "larger_than_memory",
        "missing",
        "multiway",
        "rank_selection",
        "scaling",
        "stopping",
    ):  # make their data
        return
    if path.stem == "peers":  # what it reads from a folder is skipped with a reason
        assert any(not RACES[name].folder for name in parameters.problems)
        return
    own = {name for name, (_, source, _) in PROBLEMS.items() if source in EMBEDDED}
    assert all(name in EMBEDDED or name in own for name in parameters.problems)
    if path.stem != "nge_speed":
        full = configs.load(path).parameters.problems
        assert any(name in EMBEDDED for name in full)


SMALL = {
    "batch_speed": ["parameters.iterations=2", 'parameters.methods=["NMF"]'],
    "dpca_accuracy": ['parameters.problems=["iris"]', "parameters.runs=1", "parameters.eta=[1]"],
    "kernel_nmf_accuracy": ["parameters.iterations=5", "parameters.runs=1", "parameters.sigmas=[1, 2]"],
    "kernel_nmf_noise": ["parameters.iterations=5", "parameters.runs=1", "parameters.salt_and_pepper=[0.2]"],
    "label_models": ["parameters.labels=[4]", "parameters.iterations=10", "parameters.most_components=15"],
    "srlsc_accuracy": ['parameters.problems=["faces_16x16"]', "parameters.labelled.faces_16x16=[2]"],
    "srlsc_out_of_sample": ['parameters.problems=["faces_16x16"]', "parameters.labelled.faces_16x16=[2]"],
    "srlsc_noise": ["parameters.labelled.faces_16x16=[2]", "parameters.noise=[0]"],
    "kernel_nmf_time": ["parameters.iterations=2", "parameters.rounds=1", "parameters.sizes=[8, 16]"],
    "sulf_classification": ['parameters.methods=["NMF-a", "CCA", "SULF1", "CoTra", "SULF"]'],
    "sulf_clustering": ['parameters.methods=["CNMF-b", "SGNMF-a", "SULF2"]', "parameters.iterations=20"],
    "sulf_parameters": [
        'parameters.methods=["SULF"]',
        "parameters.beta=[1]",
        "parameters.gamma=[]",
        "parameters.lam=[]",
    ],
}


@pytest.mark.parametrize("name", SMALL)
def test_end_to_end(name, tmp_path):
    settings = [part for s in SMALL[name] for part in ("--set", s)]
    assert main([name, "--quick", *settings, "--out", str(tmp_path), "--traceback"]) == 0
    rows = read_rows(tmp_path / name)
    scores = [r for r in rows if r["kind"] == "score"]
    assert {r["method"] for r in scores} >= set(configs.load(tmp_path / name / "config.toml").parameters.methods)
    rates = [r["accuracy"] for r in scores if "accuracy" in r]
    assert all(0 <= rate <= 100 for rate in rates)
    assert not rates or max(rates) > 80
    assert rates or all(r.get("seconds", r.get("growth", r.get("speedup"))) > 0 for r in scores)
    page = unescape((tmp_path / name / "report.html").read_text())
    assert all(claim.text in page for claim in configs.load(configs.find(name)).header.claims)


def test_stops_are_measured_against_a_long_run(tmp_path):
    names = '["counts, k = 3", "noise 0.01, float32"]'
    assert main(["stopping", "--quick", "--set", f"parameters.problems={names}", "--out", str(tmp_path)]) == 0
    rows = [r for r in read_rows(tmp_path / "stopping") if r["kind"] == "score"]
    assert {r["problem"] for r in rows} == {"counts, k = 3", "noise 0.01, float32"}
    excess = {(r["problem"], r["method"]): r["excess"] for r in rows}
    assert len(rows) == len(excess) == 8 and all(e >= 0 or "float32" in problem for (problem, _), e in excess.items())
    assert excess["counts, k = 3", "default"] < min(0.5, excess["counts, k = 3", "start 1e-4"])


def test_ridge_classes_are_those_of_ridge_regression():
    from sklearn.linear_model import RidgeClassifier

    from benchmarks.experiments.sulf import ridge_classes

    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), 20)
    V = 7 * (rng.random((60, 5)) + 0.3 * np.eye(3, 5)[y])
    labels = splits.hide_labels(y, splits.per_class(y, 4, 0))
    unit = V / np.sqrt(np.square(V).sum() / 60)
    for alpha, found in zip((0.01, 10.0), ridge_classes(V, labels, (0.01, 10.0)), strict=True):
        peer = RidgeClassifier(alpha=alpha).fit(unit[labels >= 0], labels[labels >= 0]).predict(unit)
        assert np.array_equal(found, peer)


def test_views_are_scaled_and_clusters_judged_without_labels():
    from benchmarks.experiments import sulf
    from benchmarks.methods import latent

    job = Job("digit_views", "NMF-b", parameters=sulf.Parameters("clustering", ("digit_views",), ("NMF-b",)))
    views, y = sulf.prepare_views(job), job.dataset().y
    assert [np.square(v).sum() / len(y) for v in views.views] == pytest.approx([1, 1, 1], rel=1e-5)
    labels = splits.hide_labels(y, splits.share_per_class(y, 0.5, 0))
    # labelled rows that would be a cluster each, were they not left out
    V = np.eye(10)[y] + 100 * (labels >= 0)[:, None] * np.arange(len(y))[:, None]
    found = sulf.cluster_samples(job, y, latent.Learnt(V), labels, np.flatnonzero(labels < 0))
    assert found["", 0.0] == {"accuracy": 100, "nmi": pytest.approx(100)}


def test_methods_without_labels_learn_once_and_points_name_views():
    from benchmarks.experiments import sulf
    from benchmarks.methods import latent

    p = sulf.Parameters("classification", ("digit_views",), ("CCA",), runs=1, components=8, pca=(5, 9))
    jobs = list(sulf.plan(p))
    assert len(jobs) == p.splits
    assert [q["pair"] for q in jobs[0].points[::2]] == ["pixels+fourier", "pixels+profiles", "fourier+profiles"]
    job = replace(jobs[0], parameters=p)
    learn = sulf.learner(job)
    first = learn(job.dataset().y, 1)
    assert learn(np.full(600, -1), 1)[0][0] is first[0][0]
    V = first[0][1].V  # the mean of two sets of variates, each with the identity for its covariance
    assert V.shape == (600, 8)
    assert np.square(V).mean(0).max() <= 1 + 1e-9
    assert set(latent.METHODS) >= set(p.methods)


def test_shared_methods():
    from sklearn.neighbors import KNeighborsClassifier

    from benchmarks.methods.faces import Fitted, Measure, TestSet, Way, accuracies_of, cross_validate
    from benchmarks.methods.pipelines import METHODS, Setup, build, fit_all, nearest_neighbour

    data = load("faces_16x16", None, 0)
    train = splits.share_per_class(data.y, 0.5, 0)
    test = splits.rest(len(data.y), train)
    X, y, T, y_test = data.flat[train], data.y[train], data.flat[test], data.y[test]
    shown = splits.hide_labels(y, splits.per_class(y, 3, 0))
    known = shown >= 0
    for metric in ("euclidean", "cosine"):
        peer = KNeighborsClassifier(1, metric=metric, algorithm="brute").fit(X[known], shown[known]).predict(T)
        assert np.array_equal(nearest_neighbour(X, shown, T, metric), peer)
    setup = Setup(12, max_iter=30, dtype="float64")
    for name in METHODS:
        model = fit_all([build(name, setup)], X, y)[0]
        found = accuracies_of(Fitted(model), [way := Way("", "euclidean")], X, y, [TestSet(T, y_test)])
        assert found[way][0] > 30, name
    fit = lambda Z, z: [Fitted(build("NMF", replace(setup, n_components=k)).fit(Z, z)) for k in (2, 12)]
    few, many = cross_validate(fit, Measure((), ("euclidean",), 3, 0), X, y)[way]
    assert sum(many) > sum(few)
    with pytest.raises(ConfigError, match="did you mean 'N2S2L'"):
        build("N2SL", setup)


@pytest.mark.parametrize("kind", ["noise", "width"])
def test_noise_has_the_variance_that_it_should(kind):
    from scipy.spatial.distance import pdist

    from benchmarks.experiments.srlsc import Draw, samples_of

    clean, noisy = (samples_of(Draw("faces_32x32", None, 0, 1, 6, 0.5, noise)) for noise in ("", f"{kind}=0.05"))
    assert np.array_equal(clean.y, noisy.y)
    assert np.bincount(clean.y).tolist() == np.bincount(clean.y_new).tolist() == [3] * 15
    grey = lambda S: 255 * np.concatenate([S.X, S.T])
    noise = grey(noisy) - grey(clean)
    measure = 0.05 * pdist(grey(clean)).mean()
    assert noise.var() == pytest.approx(measure if kind == "noise" else measure**2 / 12, rel=0.02)
    assert abs(noise.mean()) < 0.02 * noise.std()
    assert abs(noise).max() < 1.001 * np.sqrt(3) * noise.std()


def test_codes_of_a_split_are_computed_once(monkeypatch, tmp_path):
    from benchmarks.experiments import srlsc
    from nnfactor.sparse_coding import basis_pursuit as l1

    seen, compute = [], l1.l1_codes
    monkeypatch.setattr(l1, "l1_codes", lambda X, tol: seen.append((len(X), tol)) or compute(X, tol=tol))
    srlsc.codes_of.cache_clear()
    two = ["--set", 'parameters.methods=["S-RLSC", "S-RLSC-tuned"]', "--set", "parameters.labelled.faces_16x16=[2]"]
    faces = ["--set", 'parameters.problems=["faces_16x16"]', "--set", 'parameters.gap_problems=["faces_16x16"]']
    assert main(["srlsc_accuracy", "--quick", *faces, *two, "--out", str(tmp_path)]) == 0
    assert seen == [(120, 0.01), (120, 0.0001)]
    values = {r["name"]: r["value"] for r in read_rows(tmp_path / "srlsc_accuracy") if "name" in r}
    assert 0 <= values["change-gap0.0001"] <= values["largest-gap0.0001"] < 5


def test_unit_lda_is_fishers_discriminant():
    import scipy.linalg

    from benchmarks.methods.pipelines import UnitLDA

    data = load("iris", None)
    lda = UnitLDA().fit(data.X, data.y)
    means = np.array([data.X[data.y == c].mean(0) for c in range(3)])
    within = (data.X - means[data.y]).T @ (data.X - means[data.y])
    between = 50 * (means - data.X.mean(0)).T @ (means - data.X.mean(0))
    W = scipy.linalg.eigh(between, within)[1][:, ::-1][:, :2]
    W /= np.linalg.norm(W, axis=0)
    assert np.abs((W * lda.components_.T).sum(0)) == pytest.approx([1, 1], abs=1e-8)
