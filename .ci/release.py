"""Build wheel and sdist, look into both, and use the wheel as its first user would: in an environment of its own.

    python .ci/release.py                    with the torch that pip chooses
    python .ci/release.py torch==2.13.0      with this one, which is installed first

It needs hatchling and mypy. What pip downloads stays in its cache. Status 1, and a sentence, where something is wrong.
"""

import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "tests" / "package" / "example_project"
DATA = "sample,a,b,c,d\n" + "".join(f"s{i},{i % 3},{i % 5},{i % 3 + i % 5},{2 * (i % 3)}\n" for i in range(30))
BESIDE = {
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "CITATION.cff",
    "PKG-INFO",
    ".gitignore",
}  # in an sdist


def check(holds: bool, told: str) -> None:
    """Stop with a sentence where something does not hold."""
    if not holds:
        raise SystemExit(f"release check: {told}")


def call(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Run a command; its output, or a stop with its output."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=kept | environment, capture_output=True, text=True)
    check(
        done.returncode == 0, f"{' '.join(map(str, command))} ended with {done.returncode}\n{done.stdout}{done.stderr}"
    )
    return done.stdout


def package_files() -> set[str]:
    """List what the package consists of, by the index of git: no file of a build, and none that somebody left."""
    return set(call("git", "ls-files", "nnfactor", cwd=ROOT).split())


def read_wheel(path: Path) -> dict[str, bytes]:
    """Read all files of a wheel."""
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def build(folder: Path) -> tuple[Path, Path]:
    """Build both from the checkout, and the wheel once more from the unpacked sdist: all of it must be the same."""
    call(sys.executable, "-m", "hatchling", "build", "-d", folder / "dist", cwd=ROOT)
    (wheel,), (sdist,) = ((folder / "dist").glob(kind) for kind in ("*.whl", "*.tar.gz"))
    with tarfile.open(sdist) as file:
        file.extractall(folder / "unpacked", filter="data")
    (source,) = (folder / "unpacked").iterdir()
    call(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder / "again", cwd=source)
    (again,) = (folder / "again").glob("*.whl")
    check(read_wheel(again) == read_wheel(wheel), "the wheel that is built from the sdist is another one")
    return wheel, sdist


def look_inside(wheel: Path, sdist: Path) -> None:
    """Compare the files of both with those of the package."""
    expected = package_files()
    check({"nnfactor/py.typed", "nnfactor/plots/report.html"} <= expected, "py.typed or report.html is not in git")
    names = set(read_wheel(wheel))
    inside = {name for name in names if not PurePosixPath(name).parts[0].endswith(".dist-info")}
    check(inside == expected, f"the wheel differs from the package in {sorted(inside ^ expected)}")
    about = {PurePosixPath(name).relative_to(PurePosixPath(name).parts[0]).as_posix() for name in names - inside}
    check(
        about == {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}, f"metadata: {sorted(about)}"
    )
    with tarfile.open(sdist) as file:
        parts = {PurePosixPath(member.name).parts[1:] for member in file if member.isfile()}
    inside = {"/".join(part) for part in parts}
    check(
        inside == expected | BESIDE,
        f"the sdist differs from what it should hold in {sorted(inside ^ (expected | BESIDE))}",
    )


def install(folder: Path, wheel: Path, extra: str = "") -> Path:
    """Install the wheel, torch first; the interpreter of the environment."""
    python = folder / "venv" / "bin" / "python"
    if not python.exists():
        call(sys.executable, "-m", "venv", folder / "venv", cwd=folder)
        call(python, "-m", "pip", "install", "--quiet", *(sys.argv[1:] or ["torch"]), cwd=folder)
    call(python, "-m", "pip", "install", "--quiet", f"{wheel}{extra}", cwd=folder)
    return python


def smoke(folder: Path, python: Path, pictures: bool) -> None:
    """Use the command and the package, outside of the checkout."""
    home = folder / ("pictures" if pictures else "plain")
    home.mkdir()
    (home / "table.csv").write_text(DATA, encoding="utf-8")
    command = python.with_name("nnfactor")
    check("select-rank" in call(command, "--help", cwd=home), "nnfactor --help does not name its verbs")
    call(command, "fit", "table.csv", "-k", "2", "--seed", "0", *(() if pictures else ("--no-plots",)), cwd=home)
    check("NMF" in call(command, "info", "table_NMF", cwd=home), "nnfactor info does not name the model")
    check((home / "table_NMF" / "report.html").exists() == pictures, "report.html: there without pictures, or missing")
    code = "import nnfactor as n, importlib.metadata as m; print(n.__version__, m.version('nnfactor'), n.__file__)"
    ours, stated, place = call(python, "-c", code, cwd=home).split()
    check(ours == stated, f"nnfactor.__version__ is {ours}, the metadata say {stated}")
    check(Path(place).is_relative_to(folder), f"{place} is not the installed package")


def check_types(folder: Path, python: Path) -> None:
    """Check a program of a user strictly, and that wrong calls are errors, against the installed package."""
    for name in ("analysis.py", "misuse.py"):
        (folder / name).write_bytes((EXAMPLE / name).read_bytes())
    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(python), "--no-incremental"]
    kept = {name: value for name, value in os.environ.items() if name != "MYPYPATH"}
    done = subprocess.run([*command, "analysis.py", "misuse.py"], cwd=folder, env=kept, capture_output=True, text=True)
    found = set(re.findall(r"^(\w+\.py):(\d+): error: .*\[([\w-]+)\]$", done.stdout, re.M))
    lines = (EXAMPLE / "misuse.py").read_text(encoding="utf-8").splitlines()
    marked = {i: m[1] for i, line in enumerate(lines, 1) if (m := re.search(r"  # error: ([\w-]+)$", line))}
    expected = {("misuse.py", str(i), code) for i, code in marked.items()}
    check(len(expected) > 20, "misuse.py has lost its wrong calls")
    check(
        found == expected,
        f"types: unexpected {sorted(found - expected)}, missed {sorted(expected - found)}\n{done.stdout}{done.stderr}",
    )


def main() -> None:
    """Do all of it."""
    with tempfile.TemporaryDirectory(prefix="nnfactor-release-") as name:
        folder = Path(name).resolve()
        wheel, sdist = build(folder)
        look_inside(wheel, sdist)
        smoke(folder, install(folder, wheel), pictures=False)
        python = install(folder, wheel, "[plot]")
        smoke(folder, python, pictures=True)
        check_types(folder, python)
        print(f"release check: {wheel.name} and {sdist.name} are complete, install, run, and have types")


if __name__ == "__main__":
    main()
