"""Fits that are killed and started again, in processes of their own: `python killed_fits.py FOLDER N_KILLS`.

One process imports everything and forks a child for every attempt: importing torch takes longer than the fits. Prints a
line of JSON for every kind of fit: its kills, and whether its results are those of a fit that nobody disturbed.
"""

import json
import os
import signal
import sys
import time
import warnings
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import scipy.sparse as sp
import torch

from nnfactor import NGE, NMF, NTF, batch_fit

R = np.random.default_rng(0)
X, T, S = R.random((120, 60)), R.random((30, 12, 10)), sp.random_array((200, 80), density=0.1, rng=R, format="csr")
HOLES = np.where(R.random(X.shape) < 0.05, np.nan, X)
Y = np.arange(len(X)) % 5 - 1
SLOW = {"random_state": 0, "tol": 0, "max_iter": 250}


def ranks(**kept):
    """Several ranks and restarts, in batches and in parts of batches."""
    some = [NMF(k, n_init=3, init="random", random_state=k, tol=1e-4, max_iter=150) for k in (2, 3, 7)]
    return batch_fit(some, X, max_bytes=800_000, **kept)


KINDS = {
    "plain": lambda **kept: NMF(8, solver="hals", **SLOW).fit(X, **kept),
    "her": lambda **kept: NMF(8, **SLOW).fit(X, **kept),
    "bmme": lambda **kept: NMF(8, loss="kullback-leibler", **SLOW).fit(X, **kept),
    "restarts": lambda **kept: NMF(6, n_init=8, **{**SLOW, "tol": 1e-4, "max_iter": 1000}).fit(X, **kept),
    "mini-batches": lambda **kept: NMF(5, batch_size=40, n_init=2, **{**SLOW, "max_iter": 60}).fit(X, **kept),
    "masked": lambda **kept: NMF(6, missing="nan", n_init=2, **SLOW).fit(HOLES, **kept),
    "sparse": lambda **kept: NMF(6, **SLOW).fit(S, **kept),
    "tensor": lambda **kept: NTF(4, n_init=3, **SLOW).fit(T, **kept),
    "graph": lambda **kept: NGE(6, n_init=2, **SLOW).fit(X, Y, **kept),
    "several ranks": ranks,
}


def published(estimators):
    """Name all numbers that a fit publishes, and their bytes; but no time of day."""
    found = {}

    def add(value, name):
        if isinstance(value, dict):
            for key, part in value.items():
                if (name, key) != ("history_", "seconds"):
                    add(part, f"{name}.{key}" if name else key)
        elif isinstance(value, list | tuple):
            for i, part in enumerate(value):
                add(part, f"{name}[{i}]")
        elif isinstance(value, torch.Tensor):
            add(value.cpu().numpy(), name)
        elif isinstance(value, np.ndarray | np.generic):
            found[name] = np.asarray(value).tobytes().hex()
        elif isinstance(value, bool | int | float | str):
            found[name] = repr(value)

    for i, estimator in enumerate(estimators if isinstance(estimators, list) else [estimators]):
        for name, value in vars(estimator).items():
            if name.endswith("_"):
                before = set(found)
                add(value, name)
                for new in set(found) - before:
                    found[f"{i}: {new}"] = found.pop(new)
    return found


def attempt(kind, folder, kill_after=None):
    """Fit in a child; return whether it lived to its end."""
    child = os.fork()
    if not child:
        try:
            warnings.simplefilter("ignore")
            found = published(KINDS[kind](checkpoint=folder / "fit", checkpoint_every=0))
            (folder / "found.json").write_text(json.dumps(found))
            os._exit(0)
        finally:
            os._exit(1)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return False
    assert os.WEXITSTATUS(status) == 0, f"{kind}: the fit failed"
    return True


def main(folder, n_kills):
    torch.set_num_threads(1)
    random = np.random.default_rng(0)
    for number, kind in enumerate(KINDS):
        here = folder / str(number)
        here.mkdir()
        began = time.perf_counter()
        attempt(kind, here)  # how long it takes with all that saving
        seconds = time.perf_counter() - began
        for file in here.iterdir():
            file.unlink()
        kills = 0
        for moment in random.uniform(0, 1.2 * seconds / n_kills, n_kills):
            kills += not attempt(kind, here, moment)
        attempt(kind, here)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wanted = published(KINDS[kind]())
        found = json.loads((here / "found.json").read_text())
        differ = [name for name in wanted if found.get(name) != wanted[name]]
        print(json.dumps({"kind": kind, "kills": kills, "numbers": len(wanted), "differ": differ[:5]}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
