"""Model files: what is loaded answers as what was saved; what is damaged, foreign or newer is refused."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import nnfactor
from nnfactor import NMF, LabelledOnly, penalties
from nnfactor.core import L2
from nnfactor.io import model_files
from tests.laws.test_circumstances import COUNTS, SUBJECTS, expected_answers

X = np.random.default_rng(0).random((20, 8))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


def content(path):
    with safe_open(str(path), "pt") as file:
        names = file.keys()
        return {name: file.get_tensor(name) for name in names}, dict(file.metadata())


def alike(a, b):
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, np.ndarray):
        return type(b) is np.ndarray and a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
    if isinstance(a, dict):
        return type(a) is type(b) and list(a) == list(b) and all(alike(a[k], b[k]) for k in a)
    if type(a) in (list, tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(alike, a, b))
    if type(a).__module__.startswith(("nnfactor", "scipy")):
        return type(a) is type(b)
    return a == b or (a != a and b != b)


@pytest.mark.parametrize("key", SUBJECTS)
def test_what_is_loaded_is_what_was_saved(key, path):
    """Every estimator: parameters, fitted attributes and answers, bit for bit."""
    model, _ = expected_answers(key)
    if type(model) is LabelledOnly:
        with pytest.raises(TypeError, match=r"LabelledOnly\.estimator"):
            model.save(path)
        return
    model.save(path)
    again = nnfactor.load(path)
    assert type(again) is type(model) and repr(again) == repr(model)
    assert not [k for k, v in vars(model).items() if not alike(v, vars(again)[k])]
    for method in ("transform", "predict"):
        if hasattr(model, method):
            given = SUBJECTS[key]
            rows = [COUNTS[:, :4], COUNTS[:, 4:]] if given.views else COUNTS
            np.testing.assert_array_equal(getattr(again, method)(rows), getattr(model, method)(rows))


def test_parameters_of_every_kind(path):
    unfitted = NMF(
        3, init=(X[:, :3], X.T[:, :3].copy()), tol=float("inf"), device=torch.device("cpu"), dtype=np.dtype("float32").name,
        penalties={"V": [penalties.L1(0.1)], "U1": (penalties.Smooth(1.0, np.eye(8)[::-1]),)}, bounds={"V": (0, None)},
    )  # fmt: skip
    unfitted.save(path)
    again = nnfactor.load(path)
    assert again.penalties["V"] == [penalties.L1(0.1)] and again.bounds == {"V": (0, None)} and again.tol == np.inf
    np.testing.assert_array_equal(again.init[1], unfitted.init[1])
    (path.parent / "plain").touch()
    assert os.stat(path).st_mode == os.stat(path.parent / "plain").st_mode
    assert again.device == torch.device("cpu") and not hasattr(again, "factors_")


@pytest.mark.parametrize("labels", [["a", "b"], [1.5, 2.5], [True, False], [3, 7]])
def test_classes_of_every_kind(labels, path):
    y = np.array(labels * 10) if labels != [1.5, 2.5] else np.array([1.0, 2.0] * 10)
    model = nnfactor.NGE(3, random_state=0, max_iter=5, tol=0).fit(X, y)
    model.save(path)
    np.testing.assert_array_equal(nnfactor.load(path).predict(X), model.predict(X))
    assert nnfactor.load(path).classes_.dtype == model.classes_.dtype


@pytest.mark.parametrize(
    ("kw", "where"),
    [
        ({"callback": print}, r"NMF\.callback"),
        ({"random_state": np.random.default_rng(0)}, r"NMF\.random_state"),
        ({"terms": [L2("V", 1.0)]}, r"NMF\.terms\[0\]"),
    ],
)
def test_what_a_file_cannot_hold_is_named_and_nothing_is_written(kw, where, path):
    with pytest.raises(TypeError, match=where):
        NMF(2, **kw).save(path)
    assert not os.listdir(path.parent)


def test_a_full_or_missing_folder_leaves_no_file(path, monkeypatch):
    NMF(2).save(path)
    before = path.read_bytes()
    monkeypatch.setattr(model_files, "save_file", lambda *a, **kw: (_ for _ in ()).throw(OSError(28, "No space left")))
    with pytest.raises(OSError, match="No space left"):
        NMF(3).save(path)
    assert os.listdir(path.parent) == [path.name] and path.read_bytes() == before
    with pytest.raises(FileNotFoundError):
        NMF(2).save(path.parent / "none" / "model")
    with pytest.raises(FileNotFoundError):
        nnfactor.load(path.parent / "none")


def test_damage_is_noticed_wherever_it_is(path):
    model = NMF(2, random_state=0, max_iter=5, tol=0).fit(X)
    model.save(path)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for at in (*range(0, 200, 7), *rng.integers(0, len(whole), 60), len(whole) - 1):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        try:
            again = nnfactor.load(path)
        except ValueError:
            continue
        np.testing.assert_array_equal(again.embedding_, model.embedding_)  # a bit of the layout that says nothing
        assert repr(again) == repr(model)
    for size in (0, 7, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match="damaged"):
            nnfactor.load(path)


def rewrite(path, **changed):
    tensors, metadata = content(path)
    metadata |= changed
    if "sha256" not in changed:
        metadata["sha256"] = model_files._checksum(metadata["nnfactor"], tensors)
    save_file(tensors, path, metadata=metadata)


def test_foreign_newer_and_hostile_files_are_refused(path):
    save_file({"a": torch.ones(2)}, path)
    with pytest.raises(ValueError, match="of another program"):
        nnfactor.load(path)
    path.write_bytes(b"\x80\x04\x95 a pickle")
    with pytest.raises(ValueError, match="damaged, truncated or no model file"):
        nnfactor.load(path)
    NMF(2).save(path)
    rewrite(path, format="2", version="9.9")
    with pytest.raises(ValueError, match=r"format 2, written by nnfactor 9\.9"):
        nnfactor.load(path)
    NMF(2).save(path)
    rewrite(path, nnfactor=json.dumps({"$object": "Popen", "state": {"$dict": []}}))
    with pytest.raises(ValueError, match="holds a Popen"):
        nnfactor.load(path)
    rewrite(path, nnfactor=json.dumps({"$torch": "dtype", "value": "load"}))
    with pytest.raises(ValueError, match="names the dtype"):
        nnfactor.load(path)
    rewrite(path, nnfactor=json.dumps({"$call": "print"}))
    with pytest.raises(ValueError, match="does not know"):
        nnfactor.load(path)


def test_a_file_of_the_first_format_is_read():
    """This file was written once; every later version reads it."""
    model = nnfactor.load(os.path.join(os.path.dirname(__file__), "nmf_format_1.safetensors"))
    assert type(model) is NMF and model.n_components == 2
    np.testing.assert_allclose(model.transform([[1.0, 2.0, 4.0]]) @ model.components_, [[1.0, 2.0, 4.0]], atol=1e-6)


def test_another_process_reads_it(path):
    model = NMF(2, random_state=0, max_iter=5, tol=0).fit(X)
    model.save(path)
    code = f"import nnfactor; print(nnfactor.load({str(path)!r}).components_.sum().hex())"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.strip() == model.components_.sum().hex()
