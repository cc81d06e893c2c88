"""Result folders: what is in them, what an interrupted run goes on with, and that numbers are those of Python."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_iris

import nnfactor
from nnfactor import NGE, NMF, NTF, PARAFAC2, SULF, select_rank
from nnfactor.callbacks import JSONLines
from nnfactor.cli import arguments, jobs, main, requests
from nnfactor.cli import data as cli_data
from nnfactor.io import read_data

IRIS = load_iris()


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with the measurements of irises as text, their classes, and two halves of the columns."""
    monkeypatch.chdir(tmp_path)
    table = lambda columns: "flower," + ",".join(IRIS.feature_names[j] for j in columns) + "\n"
    rows = lambda columns: "".join(
        f"f{i}," + ",".join(repr(float(x[j])) for j in columns) + "\n" for i, x in enumerate(IRIS.data)
    )
    for name, columns in (("iris", range(4)), ("left", (0, 1)), ("right", (2, 3))):
        (tmp_path / f"{name}.csv").write_text(table(columns) + rows(columns))
    known = [IRIS.target_names[c] if i % 3 else "" for i, c in enumerate(IRIS.target)]
    (tmp_path / "types.csv").write_text("flower,type\n" + "".join(f"f{i},{t}\n" for i, t in enumerate(known)))
    np.save(tmp_path / "cube.npy", np.random.default_rng(0).random((9, 5, 4)))
    return tmp_path


def run(words, status=0):
    assert main([*words.split(), "-q"]) == status


def model_of(folder, where="suggested_solution"):
    return nnfactor.load(folder / where / "factors.safetensors")


def known_labels():
    return np.array([IRIS.target_names[c] if i % 3 else None for i, c in enumerate(IRIS.target)], dtype=object)


def test_numbers_and_names_are_those_of_the_user(here):
    run("fit iris.csv -k 3 --n-init 4 --seed 7 --alpha-W 0.001 --no-plots")
    alone = NMF(3, n_init=4, random_state=7, alpha_W=0.001).fit(IRIS.data)
    folder = here / "iris_NMF"
    components, usages = (read_data(folder / "suggested_solution" / f"{name}.tsv") for name in ("components", "usages"))
    np.testing.assert_array_equal(components.values, alone.components_)
    np.testing.assert_array_equal(usages.values, alone.embedding_)
    assert components.names[1] == tuple(IRIS.feature_names) and usages.names[0] == tuple(f"f{i}" for i in range(150))
    assert usages.names[1] == components.names[0] == ("component_1", "component_2", "component_3")
    restarts = read_data(folder / "suggested_solution" / "restarts.tsv").values
    np.testing.assert_array_equal(restarts[:, 1], alone.fit_info_["seeds"])
    np.testing.assert_array_equal(restarts[:, 2], alone.restarts_["loss"])
    kept = json.loads((folder / "metadata.json").read_text())
    assert kept["finished"] and kept["plan"]["seed"] == 7 and kept["environment"]["torch"]
    assert not (folder / "jobs").exists() and "fitted rank 3" in (folder / "log.txt").read_text()


@pytest.mark.parametrize("end", ["npy", "zarr", "h5"])
def test_files_read_in_blocks_give_the_same(here, end):
    path = here / f"big.{end}"
    match end:
        case "npy":
            np.save(path, IRIS.data)
        case "zarr":
            zarr = pytest.importorskip("zarr")
            zarr.open(str(path), mode="w", shape=(150, 4), chunks=(10, 4), dtype="f8")[...] = IRIS.data
        case "h5":
            with pytest.importorskip("h5py").File(path, "w") as file:
                file["X"] = IRIS.data
    run(f"fit big.{end} -k 3 --seed 0 --max-iter 20 --tol 0 --no-plots --max-bytes 2kB")
    alone = NMF(3, random_state=0, max_iter=20, tol=0).fit(IRIS.data)
    np.testing.assert_allclose(model_of(here / "big_NMF").components_, alone.components_, rtol=1e-7)
    assert "150 x 4, float64, read in blocks within 2kB" in (here / "big_NMF" / "log.txt").read_text()
    run(f"transform big_NMF big.{end} --max-bytes 2kB --output new.npy")
    np.testing.assert_allclose(np.load(here / "new.npy"), alone.transform(IRIS.data), rtol=1e-6, atol=1e-9)


def test_sizes():
    assert [*map(arguments.read_size, ("2GB", "1.5 MiB", "300", "4k"))] == [2 * 10**9, 3 << 19, 300, 4000]


def test_large_folders_are_known_by_their_files(tmp_path, monkeypatch):
    monkeypatch.setattr(cli_data, "WHOLE", 10)
    monkeypatch.setattr(cli_data, "SMALL", 8)
    (tmp_path / "zarr.json").write_text("small")
    (tmp_path / "chunk").write_bytes(b"0" * 100)
    first = cli_data.digest(tmp_path)
    assert cli_data.digest(tmp_path) == first
    os.utime(tmp_path / "chunk", ns=(0, 0))
    assert cli_data.digest(tmp_path) != first


def test_data_files_may_stand_behind_the_ranks(here):
    run("fit -k 2 3 iris.csv --seed 0 --no-plots")
    assert sorted(p.name for p in (here / "iris_NMF" / "all_solutions").iterdir()) == ["k_02", "k_03"]


def test_names_from_files_of_their_own_are_in_results(here):
    """As of 10x Genomics, where columns are samples; new samples may come in another order of the features."""
    np.save(here / "X.npy", IRIS.data.T)
    np.save(here / "turned.npy", IRIS.data.T[::-1])
    (here / "features.tsv").write_text("".join(f"id{j}\tpart{j}\n" for j in range(4)))
    (here / "turned.txt").write_text("".join(f"part{j}\n" for j in range(4)[::-1]))
    (here / "barcodes.txt").write_text("".join(f"f{i}\n" for i in range(150)))
    run("fit X.npy --names features.tsv:2 barcodes.txt --transpose -k 2 --seed 0 --n-init 2 --no-plots")
    components, usages = (read_data(f"X_NMF/suggested_solution/{name}.tsv") for name in ("components", "usages"))
    assert components.names[1] == ("part0", "part1", "part2", "part3") and usages.names[0][149] == "f149"
    assert model_of(here / "X_NMF").components_.shape == (2, 4)
    run("consensus X_NMF")  # reads the data again, with their names
    run("transform X_NMF turned.npy --names turned.txt - --transpose --output new.tsv")
    np.testing.assert_allclose(read_data("new.tsv").values, usages.values, atol=1e-3)
    (here / "features.tsv").write_text("".join(f"id{j}\tother{j}\n" for j in range(4)))
    run("consensus X_NMF", status=2)  # names are checked as the data are


@pytest.mark.parametrize(
    "words, make, data",
    [
        ("cube.npy --model NTF -k 2", lambda: NTF(2, random_state=0), lambda X: np.load("cube.npy")),
        ("iris.csv --model NGE -k 6 --labels types.csv:type --alpha 5", lambda: NGE(6, alpha=5.0, random_state=0), None),
        ("left.csv right.csv --model SULF -k 2", lambda: SULF(2, random_state=0), lambda X: [X[:, :2], X[:, 2:]]),
        ("cube.npy --model PARAFAC2 -k 2", lambda: PARAFAC2(2, random_state=0), lambda X: np.load("cube.npy")),
        ("iris.csv --model SemiNMF -k 2", lambda: nnfactor.SemiNMF(2, random_state=0), None),
        ("iris.csv --model DPCA -k 2 --labels types.csv:type", lambda: nnfactor.DPCA(2), None),
        ("iris.csv --model SRC --labels types.csv:type", nnfactor.SRC, None),
        ("cube.npy --model NTD --ranks (2,3,2)", lambda: nnfactor.NTD((2, 3, 2), random_state=0), lambda X: np.load("cube.npy")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_models_of_all_kinds_are_those_of_python(here, words, make, data):
    run(f"fit {words} --seed 0 --name found --no-plots")
    X = IRIS.data if data is None else data(IRIS.data)
    alone = make().fit(X, known_labels() if "labels" in words else None)
    found = model_of(here / "found")
    for name in ("embedding_", "components_", "core_", "loss_"):
        if hasattr(alone, name) and np.ndim(getattr(alone, name)) != 3:
            np.testing.assert_allclose(getattr(found, name), getattr(alone, name), rtol=1e-9, atol=1e-12)
    if "labels" in words and hasattr(alone, "predict"):
        lines = (here / "found" / "suggested_solution" / "predictions.tsv").read_text().splitlines()
        assert [line.split("\t")[2] for line in lines[1:]] == alone.predict(X).tolist()


def test_every_parameter_can_be_set_and_in_a_file_too(here):
    words = "iris.csv -k 2 --seed 0 --penalties {'U1':[Smooth(0.5)]} --bounds {'V':(0,3)} --max-iter 40 --no-plots"
    run(f"fit {words} --name words")
    (here / "fit.toml").write_text(
        'data = "iris.csv"\nk = 2\nseed = 0\nname = "file"\nno-plots = true\nmax_iter = 40\n'
        "[parameters]\npenalties = \"{'U1': [Smooth(0.5)]}\"\nbounds = {V = [0, 3]}\n"
    )
    run("fit --config fit.toml")
    run("fit --config fit.toml --max-iter 5 --name fewer")
    words, file, fewer = (model_of(here / name) for name in ("words", "file", "fewer"))
    np.testing.assert_array_equal(words.components_, file.components_)
    assert words.penalties["U1"][0].weight == 0.5 and words.bounds == {"V": (0, 3)}
    assert file.max_iter == 40 and fewer.max_iter == 5


def test_what_a_text_file_leaves_open_can_be_said(here):
    (here / "numbers.csv").write_text("1,2,3\n4,5,6\n7,8,9\n")
    run("fit numbers.csv -k 1 --seed 0 --no-plots --name all")
    run("fit numbers.csv -k 1 --seed 0 --no-plots --name named --header --row-names")
    assert model_of(here / "all").components_.shape == (1, 3)
    usages = read_data(here / "named" / "suggested_solution" / "usages.tsv", row_names=True)
    assert usages.names[0] == ("4", "7") and model_of(here / "named").components_.shape == (1, 2)


def test_labels_are_a_column_of_the_data_by_name_and_others_may_be_dropped(here):
    lines = (here / "iris.csv").read_text().splitlines()
    rows = [f"{line},{'ab'[i % 2]},x{i},{i / 8}" for i, line in enumerate(lines[1:])]
    (here / "both.csv").write_text("\n".join([f"{lines[0]},kind,barcode,age", *rows]) + "\n")
    run("fit both.csv -k 4 --model NGE --labels kind --drop-columns barcode age --seed 0 --max-iter 20")
    model = model_of(here / "both_NGE")
    assert model.classes_.tolist() == ["a", "b"] and model.components_.shape == (4, 4)
    assert (here / "both_NGE" / "suggested_solution" / "components.png").exists()


def test_every_word_that_decides_what_is_read_is_in_the_plan():
    words = {name: action.dest for name, action in arguments.make_parser()[1]["fit"]._option_string_actions.items()}
    read = set(words.values()) - set(requests.OF_THE_CALL) - {"seed", "k", "weights"}  # these have entries of their own
    assert read == set(requests.OF_THE_PLAN) - {"verb"}


def test_labels_with_names_for_data_without_are_told_of(here, capsys):
    np.save("plain.npy", IRIS.data)
    words = "fit plain.npy -k 4 --model NGE --labels types.csv:type --seed 0 --max-iter 20 --no-plots"
    assert main(words.split()) == 0
    assert "taken in the order of types.csv" in capsys.readouterr().err


def test_words_of_a_parameter_are_no_numbers(here):
    text = (here / "iris.csv").read_text().replace("5.1,", ",", 1)
    (here / "holes.csv").write_text(text)
    run("fit holes.csv -k 2 --seed 0 --missing nan --normalize none --no-plots")
    model = model_of(here / "holes_NMF")
    assert (model.missing, model.normalize) == ("nan", None)


def test_arrays_come_from_files(here):
    np.save("known.npy", np.where(np.arange(2) < 1, np.ones((4, 2)), np.nan))
    run("fit iris.csv -k 2 --seed 0 --fixed {'U1':'@known.npy'} --no-plots")
    assert (model_of(here / "iris_NMF").factors_[0][:, 0] == 1).all()


def test_choosing_a_rank_is_that_of_python(here):
    run("select-rank iris.csv -k 1:3 --seed 0 --no-plots")
    alone = select_rank(NMF(2), IRIS.data, range(1, 4), random_state=0)
    folder = here / "iris_NMF"
    kept = json.loads((folder / "metadata.json").read_text())
    reason = alone.reason.replace("criterion='stability'", "--criterion stability")
    assert (kept["suggested"], kept["reason"]) == (alone.rank, reason) and "--criterion" in reason
    losses = read_data(folder / "held_out.tsv").values
    np.testing.assert_allclose(losses, alone.losses, rtol=1e-6)
    assert model_of(folder).n_components == alone.rank
    header = (folder / "all_solutions_stat.tsv").read_text().splitlines()[0].split("\t")
    assert {"rank", "loss", "held_out", "held_out_se", "restarts_mean", "suggested"} <= set(header)


@pytest.mark.parametrize("verb", ["fit", "select-rank"])
@pytest.mark.parametrize("how", ["", "--criterion stability --n-init 4"])
def test_workers_together_give_what_one_run_gives(here, verb, how):
    how = how if verb == "select-rank" else "--n-init 5"
    base = f"{verb} iris.csv -k 2:3 --seed 3 {how} --no-plots"
    run(f"{base} --name whole")
    for worker in (2, 0):
        run(f"{base} --name split --total-workers 3 --worker-index {worker}")
    run("combine split", status=2)
    run(f"{base} --name split --total-workers 3 --worker-index 1")
    run("combine split --no-plots")
    a, b = (json.loads((here / name / "metadata.json").read_text()) for name in ("whole", "split"))
    assert (a["suggested"], a["reason"]) == (b["suggested"], b["reason"])
    for k in (2, 3):
        whole, split = (model_of(here / name, f"all_solutions/k_{k:02d}") for name in ("whole", "split"))
        np.testing.assert_allclose(split.components_, whole.components_, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(split.restarts_["loss"], whole.restarts_["loss"], rtol=1e-6)
        assert split.fit_info_["seeds"] == whole.fit_info_["seeds"] and split.n_init == whole.n_init


def test_an_interrupted_choice_computes_nothing_twice(here, monkeypatch):
    base = "select-rank iris.csv -k 1:3 --n-init 2 --no-plots"
    fits, parts, limit = [], [], [3]
    write, compute_part = jobs.write_solution, jobs._write_part

    def count(done, function):
        def counted(path, *rest):
            if len(fits) + len(parts) >= limit[0]:
                raise KeyboardInterrupt
            function(path, *rest)
            done.append(path)

        return counted

    monkeypatch.setattr(jobs, "write_solution", count(fits, write))
    monkeypatch.setattr(jobs, "_write_part", count(parts, compute_part))
    while main([*base.split(), "-q"]) == 130:
        limit[0] += 4
    assert len(fits) == 3 and len(parts) == 10  # each once, over all calls, with a seed that was drawn by the first
    seed = json.loads((here / "iris_NMF" / "metadata.json").read_text())["plan"]["seed"]
    monkeypatch.undo()
    monkeypatch.chdir(here)
    run(f"{base} --seed {seed} --name whole")
    for name in ("held_out.tsv", "all_solutions_stat.tsv", "seeds.txt", "suggested_solution/components.tsv"):
        assert (here / "whole" / name).read_text() == (here / "iris_NMF" / name).read_text()


@pytest.mark.parametrize("how", ["", "--total-workers 2 --worker-index 1"])
def test_a_fit_that_was_interrupted_goes_on_from_its_checkpoint(here, monkeypatch, how):
    base = f"fit iris.csv -k 3 --n-init 4 --seed 5 --tol 0 --max-iter 120 --no-plots {how}"
    run(f"{base} --name whole")
    tell, seen, stops = JSONLines.__call__, [], [60]

    def stop(self, progress):
        tell(self, progress)
        seen.append(progress.iteration)
        if progress.iteration in stops:
            stops.clear()
            raise KeyboardInterrupt

    monkeypatch.setattr(JSONLines, "__call__", stop)
    run(f"{base} --name stopped --checkpoint 0", status=130)
    begun = len(seen)
    run(f"{base} --name stopped --checkpoint 0")
    assert seen[begun] >= 50 and seen[-1] == 120  # the second call begins where the first one ended
    if how:
        whole, stopped = (
            nnfactor.load(next((here / n).rglob("restarts_1_of_2.safetensors"))) for n in ("whole", "stopped")
        )
    else:
        whole, stopped = model_of(here / "whole"), model_of(here / "stopped")
        lines = [json.loads(line) for line in (here / "stopped" / "log.jsonl").read_text().splitlines()]
        assert [line["iteration"] for line in lines] == seen and len(lines[0]["objectives"]) == 4
        assert not list((here / "stopped").rglob("*.checkpoint*"))
    np.testing.assert_array_equal(stopped.components_, whole.components_)


def test_an_earlier_result_is_moved_and_nothing_is_overwritten(here):
    run("fit iris.csv -k 2 --seed 0 --no-plots")
    first = (here / "iris_NMF" / "suggested_solution" / "components.tsv").read_bytes()
    run("fit iris.csv -k 3 --seed 0 --no-plots")
    run("fit iris.csv -k 3 --seed 0 --no-plots")
    moved = sorted(here.glob("iris_NMF_previous_*"))
    assert len(moved) == 2 and (moved[0] / "suggested_solution" / "components.tsv").read_bytes() == first


@pytest.mark.parametrize("written", [b"{", b"", b"\xff\xfe"])
@pytest.mark.parametrize("words", ["info damaged", "transform damaged iris.csv", "fit iris.csv -k 2 --name damaged"])
def test_a_damaged_folder_is_named_and_left_as_it_is(here, capsys, written, words):
    (here / "damaged").mkdir()
    (here / "damaged" / "metadata.json").write_bytes(written)
    assert main(words.split()) == 2
    assert "metadata.json is damaged" in capsys.readouterr().err
    assert [file.name for file in here.glob("damaged*/*")] == ["metadata.json"]


def test_data_that_changed_are_not_combined(here):
    base = "fit iris.csv -k 2 --n-init 2 --seed 3 --no-plots --name split --total-workers 2 --worker-index"
    run(f"{base} 0")
    run(f"{base} 1")
    (here / "iris.csv").write_text((here / "left.csv").read_text())
    run("combine split", status=2)


def test_transform_takes_columns_by_name_and_predicts(here):
    run("fit iris.csv --model NGE -k 6 --labels types.csv:type --seed 0 --no-plots")
    table = read_data("iris.csv")
    order = [2, 0, 3, 1]
    nnfactor.io.write_table(
        "new.tsv", table.values[:20, order], table.names[0][:20], [table.names[1][j] for j in order]
    )
    run("transform iris_NGE new.tsv --output usages.csv")
    run("transform iris_NGE new.tsv --predict --output classes.tsv")
    run("transform iris_NGE/suggested_solution/factors.safetensors iris.csv --output all.npy")
    model = model_of(here / "iris_NGE")
    usages = read_data("usages.csv")
    np.testing.assert_array_equal(usages.values, model.transform(IRIS.data[:20]))
    assert usages.names[0] == tuple(f"f{i}" for i in range(20))
    lines = [line.split("\t") for line in (here / "classes.tsv").read_text().splitlines()]
    assert [line[1] for line in lines[1:]] == model.predict(IRIS.data[:20]).tolist()
    np.testing.assert_array_equal(np.load("all.npy"), model.transform(IRIS.data))


def test_without_matplotlib_there_are_results_and_no_pictures(here, monkeypatch):
    monkeypatch.setattr("nnfactor.cli.pictures.importlib.util.find_spec", lambda name: None)
    run("fit iris.csv -k 2 --seed 0")
    assert json.loads((here / "iris_NMF" / "metadata.json").read_text())["finished"]
    assert "matplotlib is missing" in (here / "iris_NMF" / "log.txt").read_text()
    assert not list((here / "iris_NMF").rglob("*.png"))
    run("plot iris_NMF", status=2)


def test_consensus_and_exports(here):
    run("fit iris.csv -k 2 --n-init 6 --init random --seed 0 --no-plots")
    run("consensus iris_NMF")
    found = nnfactor.consensus(model_of(here / "iris_NMF"), IRIS.data)
    medians = read_data("iris_NMF/consensus_k_02/components.tsv")
    np.testing.assert_array_equal(medians.values, found.components)
    assert medians.names[1] == tuple(IRIS.feature_names)
    (here / "iris.csv").unlink()  # factors and names are in the folder
    for what in ("cnmf", "csv", "npz"):
        run(f"export iris_NMF --format {what} --output out")
    with np.load("out/factors.npz") as file:
        np.testing.assert_array_equal(file["components"], model_of(here / "iris_NMF").components_)
        assert file["components_columns"].tolist() == IRIS.feature_names
    spectra = (here / "out" / "iris_NMF.spectra.k_2.dt_2_0.consensus.txt").read_text().splitlines()
    assert spectra[0].split("\t")[1:] == IRIS.feature_names and spectra[1].startswith("1\t")


def test_info_tells_what_there_is(here, capsys):
    sp.save_npz("counts.npz", sp.csr_array(np.eye(4)))
    run("select-rank iris.csv -k 1:3 --seed 0 --no-plots")
    for words, told in (
        ("iris.csv", "150 x 4, float64"),
        ("counts.npz", "4 x 4, sparse float64, 75.0% zeros"),
        ("iris_NMF", "solutions: 1, 2, 3"),
        ("iris_NMF/suggested_solution/factors.safetensors", "NMF(n_components=3"),
    ):
        assert main(["info", words]) == 0
        assert told in capsys.readouterr().out


def test_help_is_quick_and_needs_no_torch():
    for words in (["--help"], ["fit", "--help"], ["--version"]):
        code = (
            f"import sys; from nnfactor.cli import main; assert main({words}) == 0; assert 'torch' not in sys.modules"
        )
        times = []
        for _ in range(3):
            begin = time.perf_counter()
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
            times.append(time.perf_counter() - begin)
        assert ("usage: nnfactor" in done.stdout or "nnfactor 0" in done.stdout) and min(times) < 3


def test_help_of_a_model_lists_all_its_parameters(capsys):
    assert main(["fit", "--model", "NGE", "--help"]) == 0
    told = capsys.readouterr().out
    names = [name for name in NGE(2).get_params() if name not in ("callback", "verbose")]
    assert [name for name in names if f"--{name.replace('_', '-')}" not in told] == []


def test_the_module_is_the_command(here):
    words = [sys.executable, "-m", "nnfactor", "fit", "iris.csv", "-k", "2", "--seed", "0", "--no-plots"]
    path = {"PYTHONPATH": str(Path(nnfactor.__file__).parents[1])}
    done = subprocess.run(words, capture_output=True, text=True, cwd=here, env=os.environ | path)
    assert done.returncode == 0 and done.stdout == "" and "\r" not in done.stderr
    assert done.stderr.splitlines()[-1] == "nnfactor: wrote iris_NMF"


def table(path, X, rows, columns):
    nnfactor.io.write_table(path, X, [f"s{i}" for i in rows], [f"g{j}" for j in columns])


class TestNamesDecide:
    """Whatever has names goes by them, or is refused; order and part of a file belong to the run."""

    X = np.random.default_rng(0).random((12, 5)) + 0.1
    W = np.random.default_rng(1).integers(0, 3, (12, 5))
    rows, columns = np.random.default_rng(2).permutation(12), np.random.default_rng(3).permutation(5)

    @pytest.fixture(autouse=True)
    def files(self, here):
        table("a.tsv", self.X, range(12), range(5))
        table("w.tsv", self.W, range(12), range(5))
        table("a_moved.tsv", self.X[:, self.columns], range(12), self.columns)
        table("w_moved.tsv", self.W[self.rows][:, self.columns], self.rows, self.columns)

    def test_weights_of_a_fit_and_of_new_samples(self, here):
        run("fit a.tsv -k 2 --seed 0 --weights w.tsv --no-plots --name plain")
        run("fit a.tsv -k 2 --seed 0 --weights w_moved.tsv --no-plots --name moved")
        np.testing.assert_array_equal(model_of(here / "plain").components_, model_of(here / "moved").components_)
        run("transform plain a.tsv --weights w.tsv --output one.npy")
        run("transform plain a_moved.tsv --weights w_moved.tsv --output two.npy")
        np.testing.assert_allclose(np.load("one.npy"), np.load("two.npy"), rtol=1e-9, atol=1e-12)

    def test_columns_of_views(self, here):
        run("fit a.tsv w.tsv --model SULF -k 2 --seed 0 --no-plots --name views")
        table("w_columns.tsv", self.W[:, self.columns], range(12), self.columns)
        run("transform views a.tsv w.tsv --output one.npy")
        run("transform views a_moved.tsv w_columns.tsv --output two.npy")
        np.testing.assert_allclose(np.load("one.npy"), np.load("two.npy"), rtol=1e-9, atol=1e-12)

    def test_columns_of_more_slices_than_were_fitted(self, here):
        table("short.tsv", self.X[:7], range(7), range(5))
        run("fit a.tsv short.tsv --model PARAFAC2 -k 2 --seed 0 --max-iter 20 --no-plots --name slices")
        run("transform slices a.tsv short.tsv a.tsv --output one.npy")
        run("transform slices a.tsv short.tsv a_moved.tsv --output two.npy")
        np.testing.assert_allclose(np.load("one.npy"), np.load("two.npy"), rtol=1e-7, atol=1e-9)

    def test_modes_of_a_long_table(self, here):
        cube = np.einsum("ik,jk,lk->ijl", self.X[:6, :2], self.X[6:10, :2], self.X[10:, :2].repeat(2, axis=0)[:3])
        for name, genes, times in (("cube.csv", range(4), range(3)), ("turned.csv", (2, 0, 3, 1), (1, 2, 0))):
            cells = [f"s{i},g{j},t{m},{cube[i, j, m]}" for i in range(6) for j in genes for m in times]
            (here / name).write_text("\n".join(["sample,gene,time,value", *cells]) + "\n")
        run("fit cube.csv --long --model NTF -k 2 --seed 0 --max-iter 20 --no-plots --name cube")
        run("transform cube cube.csv --long --output one.npy")
        run("transform cube turned.csv --long --output two.npy")
        np.testing.assert_allclose(np.load("one.npy"), np.load("two.npy"), rtol=1e-9, atol=1e-12)

    def test_names_that_are_there_twice(self, here):
        nnfactor.io.write_table("twice.tsv", self.X, None, ["g", "g", "h", "i", "j"])
        nnfactor.io.write_table("other.tsv", self.X[:, ::-1], None, ["j", "i", "h", "g", "g"])
        run("fit twice.tsv -k 2 --seed 0 --no-plots")
        run("transform twice_NMF twice.tsv --output out.npy")
        run("transform twice_NMF other.tsv --output out.npy", status=2)

    def test_names_that_only_the_fitted_data_have_twice(self, here, capsys):
        nnfactor.io.write_table("twice.tsv", self.X, None, ["g0", "g0", "g1", "g1", "g2"])
        run("fit twice.tsv -k 2 --seed 0 --no-plots")
        run("transform twice_NMF a.tsv --output out.npy", status=2)
        assert "the fitted data the name 'g0' twice" in capsys.readouterr().err
        assert not (here / "out.npy").exists()

    def test_the_order_and_the_part_of_files(self, here):
        base = "-k 2 --seed 1 --n-init 2 --no-plots --name split --total-workers 2 --worker-index"
        run(f"fit a.tsv --weights w.tsv {base} 0")
        run(f"fit w.tsv --weights a.tsv {base} 1", status=2)


def test_a_repeated_run_draws_a_new_seed_and_an_interrupted_one_keeps_its_own(here, monkeypatch):
    seed = lambda: json.loads((here / "iris_NMF" / "metadata.json").read_text())["plan"]["seed"]
    run("fit iris.csv -k 2 --no-plots")
    first = seed()
    run("fit iris.csv -k 2 --no-plots")
    assert seed() != first


def test_pictures_that_were_interrupted_are_drawn_by_the_same_command(here, monkeypatch):
    def stop(folder):
        raise KeyboardInterrupt

    monkeypatch.setattr(jobs, "draw", stop)
    run("fit iris.csv -k 2", status=130)
    monkeypatch.undo()
    monkeypatch.chdir(here)
    written = (here / "iris_NMF" / "all_solutions" / "k_02" / "components.tsv").stat().st_mtime_ns
    run("fit iris.csv -k 2")
    assert (here / "iris_NMF" / "all_solutions" / "k_02" / "components.tsv").stat().st_mtime_ns == written
    assert (here / "iris_NMF" / "report.html").exists() and not list(here.glob("*_previous_*"))


def test_a_worker_whose_values_are_refused_leaves_the_others_alone(here):
    np.save("bad.npy", -np.ones((150, 2)))
    base = "fit iris.csv -k 2 --seed 1 --n-init 2 --no-plots --name split --total-workers 2 --worker-index"
    run(f"{base} 0 --init nndsvd", status=2)
    assert (here / "split" / "metadata.json").exists()


def test_terms_of_a_users_own_are_fitted_and_left_out_of_the_file(here, monkeypatch):
    (here / "mine.py").write_text("from nnfactor.core import L2\n\ndef terms(shapes):\n    return [L2('V', 0.5)]\n")
    monkeypatch.syspath_prepend(str(here))
    run("fit iris.csv -k 2 --seed 0 --terms mine:terms --no-plots --name with")
    run("fit iris.csv -k 2 --seed 0 --no-plots --name without")
    found, other = model_of(here / "with"), model_of(here / "without")
    assert found.terms is None and found.loss_ > other.loss_


def test_a_file_wins_only_where_the_command_line_is_silent(here):
    (here / "header.toml").write_text("header = true\nk = 1\nno_plots = true\n")
    (here / "plain.csv").write_text("3,1,2\n4,5,6\n7,8,9\n")
    run("fit plain.csv --config header.toml --no-header --seed 0 --name all")
    run("fit plain.csv --config header.toml --seed 0 --name fewer")
    assert len(model_of(here / "all").embedding_) == 3 and len(model_of(here / "fewer").embedding_) == 2
