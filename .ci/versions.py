"""Run the tests on several versions of Python: the oldest with the oldest packages that pyproject.toml allows.

    python .ci/versions.py                 all versions of VERSIONS whose interpreter is on this machine
    python .ci/versions.py 3.11 --quick    one of them, fewer tests

The first of VERSIONS gets every package of the extras in its oldest stated version, the others the newest. A version
without an interpreter on PATH or under ~/.pyenv/versions is named as skipped; status 1 if a version failed.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
EXTRAS = (
    "bench",
    "fast",
    "files",
    "graphs",
    "plot",
)  # what users install; tools of tests may be newer
TESTS = ("tests/core", "tests/models", "tests/io", "tests/selection", "tests/plots", "tests/laws/test_scikit_learn.py")
QUICK = ("tests/core/terms", "tests/core/solve", "tests/models/factorization", "tests/io", "tests/plots")
# Of the oldest packages a deprecation is no error: what they use of each other has newer names by now, and torch
# before 2.6 warns of itself wherever a tensor is unpickled
TOLERATED = ("DeprecationWarning", "PendingDeprecationWarning", "FutureWarning:torch.storage")
SHOWN = ("torch", "numpy", "scipy", "scikit-learn")


def find_interpreter(version: str) -> str | None:
    """Find `python3.x` on PATH or among pyenv's versions."""
    for file in sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"), reverse=True):
        return str(file)
    return shutil.which(f"python{version}")


def oldest_packages() -> list[str]:
    """List `name==minimum` of every package with a stated minimum."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    stated = [*project["dependencies"], *(spec for name in EXTRAS for spec in project["optional-dependencies"][name])]
    return sorted({spec.replace(">=", "==") for spec in stated if re.fullmatch(r"[\w-]+>=[\d.]+", spec)})


def run_tests(version: str, tests: tuple[str, ...]) -> str:
    """Install into a new environment and run the tests; says how that went."""
    interpreter = find_interpreter(version)
    if interpreter is None:
        return f"Python {version}: skipped, there is no interpreter on this machine"
    oldest = version == VERSIONS[0]
    pins = oldest_packages() if oldest else ["torch"]
    with tempfile.TemporaryDirectory(prefix=f"nnfactor-{version}-") as folder:
        subprocess.run([interpreter, "-m", "venv", folder], check=True)
        python = str(Path(folder, "bin", "python"))
        subprocess.run([python, "-m", "pip", "install", "--quiet", *pins, "-e", ".[test]"], cwd=ROOT, check=True)
        asked = f"from importlib.metadata import version as v; print(*(f'{{p}} {{v(p)}}' for p in {SHOWN}), sep=', ')"
        told = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=True).stdout.strip()
        print(f"Python {version}: {told}", flush=True)
        quiet = [f"-Wdefault::{kind}" for kind in TOLERATED] if oldest else []
        began = time.perf_counter()
        done = subprocess.run([python, "-m", "pytest", *quiet, *tests], cwd=ROOT)
        how = "passed" if done.returncode == 0 else "FAILED"
        return f"Python {version}: {how} in {time.perf_counter() - began:.0f} s, {told}"


def main() -> int:
    """Read the command line, run the versions one after the other, and tell how each went."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="*", metavar="VERSION", help=f"some of {', '.join(VERSIONS)}; default: all")
    parser.add_argument("--quick", action="store_true", help="run fewer tests")
    options = parser.parse_args()
    if unknown := set(options.versions) - set(VERSIONS):
        parser.error(f"unknown versions {sorted(unknown)}; there are {', '.join(VERSIONS)}")
    told = [run_tests(version, QUICK if options.quick else TESTS) for version in options.versions or VERSIONS]
    print(*told, sep="\n")
    return int(any("FAILED" in line for line in told))


if __name__ == "__main__":
    sys.exit(main())
