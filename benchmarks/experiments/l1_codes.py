"""Time against certified gap of the l1 codes of a data set: `python -m benchmarks.experiments.l1_codes DATA.npz`.

DATA.npz holds X (n, ...), one sample a row. For every tolerance all codes are computed from nothing; printed, and
written with --out as CSV: tolerance, seconds, the median, ninth decile and maximum of the certified relative gaps, the
mean value of the codes and their mean number of entries.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch

from nnfactor.models.shared.inputs import choose_device
from nnfactor.sparse_coding.basis_pursuit import Codes, l1_codes

from ..report.page import write_csv
from ..timing.clock import Clock

# tolerance, rounds, ADMM sweeps: the first two are step 2 alone
SETTINGS = ((0.0, 0, 50), (0.0, 0, 200), *((tol, 6, 200) for tol in (1e-2, 1e-3, 1e-4, 1e-5)))

FIELDS = ("tol", "rounds", "sweeps", "seconds", "gap_median", "gap_q90", "gap_max", "value", "entries")


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", help="an .npz file with X")
    parser.add_argument("--samples", type=int, default=2000, help="how many, drawn with seed 0")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", help="CSV file to write")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    try:
        device = choose_device(options.device, None)
    except ValueError as error:
        parser.error(str(error))
    rows = [_row(_samples(options.data, options.samples, device), *setting) for setting in SETTINGS]
    if options.out:
        write_csv(Path(options.out), rows)


def _samples(path: str, count: int, device: torch.device) -> torch.Tensor:
    X = np.load(path)["X"]
    chosen = np.random.default_rng(0).permutation(len(X))[:count]
    return torch.from_numpy(X[chosen].reshape(len(chosen), -1).astype(np.float64)).to(device)


def _row(X: torch.Tensor, tol: float, rounds: int, sweeps: int) -> dict[str, float]:
    seconds, found = Clock.on(X.device).time(lambda: l1_codes(X, tol=tol, max_rounds=rounds, sweeps=sweeps))
    row = dict(zip(FIELDS, (tol, rounds, sweeps, seconds, *_summary(found)), strict=True))
    print("  ".join(f"{name} {value:.4g}" for name, value in row.items()), flush=True)
    return row


def _summary(found: Codes) -> list[float]:
    quantiles = torch.quantile(found.gap.cpu(), torch.tensor([0.5, 0.9, 1.0], dtype=torch.float64)).tolist()
    entries = (found.codes != 0).sum(1).double().mean()
    return [*quantiles, float(found.values.mean()), float(entries)]


if __name__ == "__main__":
    main()
