"""Wrong command lines and files: one line on standard error, exit status 2 (1 for a failure), never a traceback."""

import json
import re

import numpy as np
import pytest
import scipy.sparse as sp

from nnfactor.cli import main
from nnfactor.cli.arguments import ESTIMATORS
from nnfactor.cli.data import UNLABELLED
from nnfactor.cli.describe import find_model, model_parameters
from nnfactor.cli.values import rank_names


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Good files, bad files, and a finished result."""
    path = tmp_path_factory.mktemp("files")
    X = np.random.default_rng(0).random((12, 5)).round(3)
    text = "id,a,b,c,d,e\n" + "".join(f"s{i}," + ",".join(map(str, row)) + "\n" for i, row in enumerate(X))
    np.save(path / "cube.npy", np.random.default_rng(1).random((6, 3, 4)))
    np.savez(path / "two.npz", a=X, b=X)
    np.save(path / "negative.npy", X - 0.5)
    np.save(path / "hole.npy", np.where(X.max() == X, np.nan, X))
    np.save(path / "weights.npy", np.ones((12, 4)))
    files = {
        "good.csv": text,
        "other.csv": text.replace("id,a,b", "id,a,z"),
        "views.csv": text.replace("s3,", "t3,"),
        "text.csv": text.replace("s4,0", "s4,red0"),
        "words.csv": "id,a,the kind\ns,1,T\n",
        "ragged.csv": text + "s12,1,2\n",
        "empty.csv": "",
        "nan.csv": text.replace("s4,0.", "s4,nan\n#")[:20] + "\n",
        "types.csv": "id,type\n" + "".join(f"s{i},{'AB'[i % 2]}\n" for i in range(12)),
        "short.txt": "A\nB\n",
        "unknown.csv": "id,type\nq,A\n",
        "bad.toml": "model = [",
        "rising.csv": "400,410,420,430,440\n" + 3 * "1,2,3,2,1\n",
        "patients.csv": "patient_id,a,b\n1001,3,4\n1002,4,5\n",
        "kinds.toml": 'k = 2\ntranspose = "false"\n',
        "fraction.toml": "k = 2\nseed = 1.5\n",
        "word.toml": 'model = "NMF"\nk = 2\nalpa_W = 1\n',
        "table.toml": 'parameters = "alpha"\n',
        "damaged.safetensors": "no model",
        "data.xyz": "1 2",
        "counts.mtx": "%%MatrixMarket matrix coordinate real general\n2 2 5\n1 1 3\n",
    }
    for name, content in files.items():
        (path / name).write_text(content)
    sp.save_npz(path / "sparse.npz", sp.csr_array(X))
    (path / "no_result").mkdir()
    (path / "taken").mkdir()
    (path / "taken" / "mine.txt").write_text("keep")
    assert (
        main(["fit", str(path / "good.csv"), "-k", "2", "--seed", "0", "-q", "--no-plots", "--output-dir", str(path)])
        == 0
    )
    begun = path / "begun"
    begun.mkdir()
    (begun / "metadata.json").write_text(json.dumps({"finished": False, "plan": {}}))
    return path


WRONG = [  # words of a command line, and a part of what is told
    ("", "the following arguments are required: VERB"),
    ("fti good.csv", "no verb 'fti'; did you mean fit?"),
    ("fit", "needs a data file"),
    ("fit good.csv", "NMF needs -k"),
    ("fit good.csv -k", "expected at least one argument"),
    ("fit good.csv -k two", "-k two: ranks are whole numbers"),
    ("fit good.csv -k 0", "ranks are 1 or more"),
    ("fit good.csv -k 1.5", "-k 1.5: ranks are whole numbers"),
    ("fit -k 2 absent.csv", "absent.csv: there is no such file"),
    ("fit good.csv -k 5:2", "from its lower to its higher end"),
    ("fit absent.csv -k 2", "there is no such file"),
    ("fit data.xyz -k 2", "'.xyz' are not known"),
    ("fit empty.csv -k 2", "empty"),
    ("fit text.csv -k 2", "line 6, column 2: 'red0"),
    ("fit text.csv -k 2", "--labels a reads its column as labels, --drop-columns a leaves it out"),
    ("fit words.csv -k 2", "--labels 'the kind' reads its column as labels, --drop-columns 'the kind' leaves it out"),
    ("fit good.csv -k 2 --weights text.csv", "--labels a reads its column as labels"),
    ("fit ragged.csv -k 2", "line 14: 3 cells"),
    ("fit good.csv -k 2 --max-bytes 2GB", "cannot be opened in blocks; use .npy, .h5"),
    ("fit cube.npy -k 2 --model NTF --max-bytes much", "--max-bytes much: a size is a number with a unit"),
    ("fit cube.npy -k 2 --model NTF --max-bytes 10", "max_bytes=10 is too little for 3 blocks of one row of 96 bytes"),
    ("fit negative.npy -k 2 --max-bytes 1GB", "negative"),
    ("fit hole.npy -k 2 --max-bytes 1GB", "contains NaN: the first at"),
    ("fit negative.npy -k 2 --max-bytes 1GB --weights weights.npy", "--weights go with data in memory"),
    ("fit negative.npy -k 2 --max-bytes 1GB --transpose", "--transpose goes with files that are read whole"),
    ("fit good.csv good.csv -k 2 --model SULF --labels types.csv --max-bytes 1GB", "one data file of a model that"),
    ("fit two.npz -k 2", "several arrays"),
    ("fit two.npz --key c -k 2", "no 'c'"),
    ("fit counts.mtx -k 2", "counts.mtx"),
    ("fit negative.npy -k 2", "negative"),
    ("fit hole.npy -k 2", "hide them: --missing nan"),
    ("fit good.csv -k 2 --model NGE", "NGE requires --labels"),
    ("select-rank good.csv -k 2:4 --model SemiNMF --criterion bicross", "--criterion bicross does not go with"),
    ("fit good.csv -k 2 --model NFM", "no model 'NFM'; did you mean NMF?"),
    ("fit good.csv -k 2 --alpa-W 1", "no option --alpa-W; did you mean --alpha-W?"),
    ("fit good.csv -k 2 --alpha-W 1 --alpha-W 2", "given twice"),
    ("fit good.csv -k 2 --solver cd", "--solver cd is not known"),
    ("fit good.csv -k 2 --loss hinge", "--loss hinge"),
    ("fit good.csv -k 2 --max-iter ten", "--max-iter must be"),
    ("fit good.csv -k 2 --tol -1", "--tol must be"),
    ("fit good.csv -k 2 --penalties {'V':[L3(1)]}", "L3(...) is not known"),
    ("fit good.csv -k 2 --bounds {'V':(0,1),**x}", "lists its entries"),
    ("fit good.csv -k 2 --terms nowhere:f", "No module named 'nowhere'"),
    ("fit good.csv -k 2 --n-init 0", "--n-init 0 must be 1 or more"),
    ("fit good.csv -k 2 --n-init many", "invalid int value: 'many'"),
    ("fit good.csv -k 2 --seed -1", "--seed -1 must be"),
    ("fit good.csv -k 2 --labels types.csv:kind --model NGE", "kind"),
    ("fit good.csv -k 2 --labels obs:cell --model NGE", "cell"),
    ("fit good.csv -k 2 --labels gone.csv:type --model NGE", "error: gone.csv: there is no such file"),
    ("fit good.csv -k 2 --labels a", "NMF uses no labels"),
    ("fit rising.csv -k 2", "whole numbers that rise"),
    ("fit patients.csv -k 2", "'patient_id' and holds numbers; say --row-names"),
    ("transform good.csv good.csv", "is no model"),
    ("fit good.csv -k 2 --labels short.txt --model NGE", "2 labels for 12 samples"),
    ("fit good.csv -k 2 --labels unknown.csv:type --model NGE", "'q'"),
    ("fit good.csv -k 2 --weights weights.npy", "--weights"),
    ("fit good.csv -k 2 --weights good.csv --model LNMF", "LNMF takes no weights"),
    ("fit good.csv --model SRC", "SRC needs labels"),
    ("fit good.csv -k 2 --model HarmonicFunction", "has no number of components"),
    ("fit good.csv views.csv -k 2", "NMF takes one data file"),
    ("fit good.csv views.csv -k 2 --model SULF", "name 4 is 's3'"),
    ("fit cube.npy -k 2", "NTF"),
    ("fit cube.npy -k 2 --model NTF --names types.csv", "names has 1 entries for 3 dimensions"),
    ("fit good.csv views.csv -k 2 --model SULF --names types.csv", "--names is for one data file"),
    ("fit -k 2 --names types.csv - good.csv", "name it before --names"),
    ("fit cube.npy -k 2 --transpose", "--transpose is for matrices"),
    ("fit good.csv -k 2 --config bad.toml", "bad.toml"),
    ("fit good.csv --config word.toml", "no option --alpa-W; did you mean --alpha-W?"),
    ("fit good.csv -k 2 --config table.toml", "parameters must be a table"),
    ("fit good.csv -k 2 --config absent.toml", "absent.toml"),
    ("fit good.csv -k 2 --total-workers 2", "needs --seed"),
    ("fit good.csv -k 2 --seed 0 --total-workers 2 --worker-index 2", "indices are 0 to total - 1"),
    ("fit good.csv -k 2 --checkpoint soon", "invalid float value"),
    ("fit good.csv --model SRC --labels types.csv:type --checkpoint 1", "no state to save"),
    ("fit good.csv -k 2 --random-state 5", "--random-state is --seed here"),
    ("fit good.csv -k 2 --n-components 3", "-k and n_components say the same"),
    ("fit good.csv --config kinds.toml", "transpose must be true or false, got 'false'"),
    ("fit good.csv --config fraction.toml", "seed must be a whole number, got 1.5"),
    ("fit good.csv -k 2 --model KernelNMF --kernel os.path:join", "a model file cannot hold"),
    ("fit good.csv other.csv --model PARAFAC2 -k 2", "name 2 is 'b' in good.csv, 'z' in other.csv"),
    ("fit good.csv views.csv --model Coupled -k 2 --modes [('s','g'),('s','h')]", "name 4 is 's3'"),
    ("fit good.csv -k 2 --weights other.csv", "other.csv lacks 'b'"),
    ("transform good_NMF good.csv -k 2:3", "say one rank"),
    ("fit good.csv -k 2 --name taken", "no result folder"),
    ("fit good.csv -k 2 --output-dir good.csv", "good.csv"),
    ("select-rank good.csv -k 3", "compares ranks"),
    ("select-rank good.csv -k 2:4 --criterion bicros", "did you mean bicross?"),
    (
        "select-rank good.csv -k 2:40",
        "is too small for -k 40: a fold of --criterion bicross keeps 9 rows and 4 columns",
    ),
    ("select-rank good.csv -k 2:4 --labels types.csv:type", "uses no labels"),
    ("select-rank good.csv -k 2:4 --model SRC", "SRC has no number of components"),
    ("transform absent good.csv", "no such folder"),
    ("transform no_result good.csv", "no metadata.json"),
    ("transform good_NMF", "needs a data file"),
    ("transform good_NMF other.csv", "lacks 'b'"),
    ("transform good_NMF good.csv -k 7", "no solution of rank 7; say -k with one of 2"),
    ("transform good_NMF good.csv --predict", "gives no classes"),
    ("transform good_NMF good.csv --output out.xlsx", "ends in one of .tsv"),
    ("transform good_NMF good.csv --alpha 3", "no option --alpha"),
    ("transform damaged.safetensors good.csv", "damaged"),
    ("consensus good_NMF", "one run, which has no consensus"),
    ("consensus good_NMF --density-threshold high", "invalid float value"),
    ("combine good_NMF", "is complete"),
    ("plot no_result", "no metadata.json"),
    ("info absent.npy", "no such file"),
    ("info no_result", "no result folder"),
    ("export good_NMF", "required: --format"),
    ("export good_NMF --format cnfm", "did you mean cnmf?"),
    ("export good_NMF --format h5ad", "no .h5ad"),
    ("export good_NMF --format cnmf -k 2 3", "unrecognized arguments: 3"),
]


@pytest.mark.parametrize("words, told", WRONG, ids=[words or "nothing" for words, _ in WRONG])
def test_a_mistake_is_told_in_one_line(folder, capsys, monkeypatch, words, told):
    monkeypatch.chdir(folder)
    before = sorted(p.name for p in folder.iterdir())
    assert main(words.split()) == 2
    shown = capsys.readouterr()
    *before_it, line = shown.err.splitlines()
    assert shown.out == "" and all(o.startswith(("nnfactor: read ", "nnfactor: warning: ")) for o in before_it)
    assert line.startswith("nnfactor: error: ") and told in line
    assert sorted(p.name for p in folder.iterdir()) == before  # nothing is left behind


FITTED = {  # every parameter of every model, with the first model that has it
    name: model
    for model in ESTIMATORS
    for name in model_parameters(find_model(model))
    if name not in ("n_components", "n_init", "random_state", "n_clusters")
}


@pytest.mark.parametrize("name", FITTED)
def test_messages_of_models_name_options(folder, capsys, monkeypatch, tmp_path, name):
    """Whatever a model says of a value, it says in words of the command line."""
    monkeypatch.chdir(folder)
    model, option = FITTED[name], f"--{name.replace('_', '-')}"
    labels = [] if model in UNLABELLED else ["--labels", "types.csv:type"]
    data = ["good.csv"] * (1 + (model in ("Coupled", "SULF", "CoTraining", "PairwiseCoRegularizedSpectral")))
    rank = ["-k", "2"] if rank_names(find_model(model)) else []
    words = ["fit", *data, "--model", model, *rank, *labels, "--output-dir", str(tmp_path), "-q", "--no-plots"]
    main([*words, option, "nonsense"])
    told = capsys.readouterr().err
    assert not re.search(rf"(?<!-)\b{name}(=| must)", told) and "Traceback" not in told
    if "nonsense" in told:
        assert option in told or (name == "ranks" and "-k" in told)


def test_warnings_name_options(folder, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(folder)
    words = ["fit", "good.csv", "-k", "2", "--max-iter", "1", "--output-dir", str(tmp_path), "--no-plots"]
    assert main(words) == 0
    told = capsys.readouterr().err
    assert "--max-iter 1" in told and "; raise --max-iter or --tol\n" in told


@pytest.mark.parametrize(
    "scales, how, told",
    [
        (
            [1, 1000, 1],
            "",
            "warning: column 'b' has more than 99 % of the squared norm of wide.csv and decides the fit",
        ),
        ([1, 1000, 1], "--loss kl", None),
        ([1, 2, 1], "", None),
        ([1, 1000], "", None),
    ],
)
def test_a_column_that_decides_the_fit_is_told_of(capsys, monkeypatch, tmp_path, scales, how, told):
    monkeypatch.chdir(tmp_path)
    rows = (np.random.default_rng(0).random((9, len(scales))) + 0.5) * scales
    lines = [",".join("abc"[: len(scales)]), *(",".join(map(str, row)) for row in rows.tolist())]
    (tmp_path / "wide.csv").write_text("\n".join(lines))
    assert main(["fit", "wide.csv", "-k", "2", "--seed", "0", "--no-plots", *how.split()]) == 0
    shown = capsys.readouterr().err
    assert told in shown if told else "decides the fit" not in shown


def test_a_failure_is_one_line_and_status_1(folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)

    def fail(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("nnfactor.cli.jobs.write_solution", fail)
    assert main(["fit", "good.csv", "-k", "2", "--name", "full", "-q"]) == 1
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1 and "No space left on device" in shown and "Traceback" not in shown


def test_debug_shows_the_traceback(folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    assert main(["fit", "absent.csv", "-k", "2", "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_an_interruption_has_a_status_of_its_own(folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)

    def stop(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr("nnfactor.cli.jobs.write_solution", stop)
    assert main(["fit", "good.csv", "-k", "2", "--name", "stopped", "-q"]) == 130
    assert "interrupted" in capsys.readouterr().err
