"""What type checkers and editors see: kinds of parameters, and of what a fit leaves behind."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy")

ROOT = Path(__file__).parents[2]
ARRAY = "ndarray[tuple[Any, ...], dtype[Any]] | Tensor"

KNOWN = f"""
import numpy as np
import torch
from nnfactor import NGE, NMF, NTD, NTF, SULF, CoTraining, HarmonicFunction, MFA, batch_fit
from nnfactor.core import Fit, Laplacian

X = np.ones((4, 3))
model = NMF(2, loss="kl", solver="mu", init="random", device=torch.device("cpu"), dtype="float32").fit(X)
reveal_type(model)  # NMF
reveal_type(model.embedding_)  # {ARRAY}
reveal_type(model.components_)  # {ARRAY}
reveal_type(model.factors_)  # list[{ARRAY}]
reveal_type(model.transform(X))  # {ARRAY}
reveal_type(model.fit_transform(X))  # {ARRAY}
reveal_type(model.inverse_transform(model.transform(X)))  # {ARRAY}
reveal_type(model.loss_)  # float
reveal_type(model.n_iter_)  # int
reveal_type(batch_fit([NTF(2), NTF(3)], X))  # list[NTF]
reveal_type(NTD((2, 3)).core_)  # {ARRAY}
reveal_type(SULF(2).view_weights_)  # ndarray[tuple[Any, ...], dtype[Any]]
reveal_type(NGE(2).n_discriminative_)  # int
reveal_type(HarmonicFunction().fit(X, [0, 1, -1, -1]).label_distributions_)  # {ARRAY}
reveal_type(CoTraining().coef_)  # list[{ARRAY}]
reveal_type(MFA(2).transform(X))  # {ARRAY}
Fit(X, ("V", "U1")), Fit(torch.ones(4, 3), ("V", "U1")), Laplacian([[0, 1], [1, 0]], "V")
"""

REFUSED = """
from nnfactor import NMF, SULF
from nnfactor.core import Laplacian

NMF(2, solver="cd")
NMF(2, loss="hinge")
NMF(2, init="svd")
NMF(2, dtype="float16")
NMF(2).embeding_
NMF(2, transform_method="lstsq")
SULF(2, v_rule="paper")
SULF(2).predcit([])
Laplacian([[0, 1], [1, 0]], "V", split="both")
"""


def check(tmp_path, code):
    """Messages of mypy, as a user sees them who has no settings, by line."""
    (tmp_path / "script.py").write_text(code)
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(ROOT / ".mypy_cache"), "--ignore-missing-imports"]
    environment = {"MYPYPATH": str(ROOT), "PATH": "", "HOME": str(tmp_path)}
    done = subprocess.run([*command, "script.py"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    found = [line.split(": ", 2) for line in done.stdout.splitlines() if line.startswith("script.py:")]
    return {int(where.split(":")[1]): f"{kind}: {told}" for where, kind, told in found if told}


def test_results_have_types(tmp_path):
    found = check(tmp_path, KNOWN)
    expected = {i: line.split("  # ")[1] for i, line in enumerate(KNOWN.splitlines(), 1) if line.startswith("reveal")}
    short = lambda told: re.sub(r"\b(?:numpy|torch|builtins|nnfactor)\.(?:\w+\.)*(\w+)", r"\1", told)
    shown = {i: short(told).partition('Revealed type is "')[2].rstrip('"') for i, told in found.items()}
    assert shown == expected


def test_what_does_not_exist_is_an_error(tmp_path):
    found = check(tmp_path, REFUSED)
    lines = [i for i, line in enumerate(REFUSED.splitlines(), 1) if line.startswith(("NMF", "SULF", "Laplacian"))]
    assert sorted(found) == lines and all(told.startswith("error") for told in found.values())
