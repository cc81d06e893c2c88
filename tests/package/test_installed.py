"""What an installation holds: types where tools look for them, and nothing of the checkout beside the package."""

import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
build = pytest.importorskip("hatchling.build")


@pytest.fixture
def here(monkeypatch):
    monkeypatch.chdir(ROOT)


def test_a_wheel_holds_the_package_and_its_types(here, tmp_path):
    names = zipfile.ZipFile(tmp_path / build.build_wheel(str(tmp_path))).namelist()
    assert {name.split("/")[0] for name in names} == {"nnfactor", f"nnfactor-{version()}.dist-info"}
    assert {"nnfactor/py.typed", "nnfactor/plots/report.html"} <= set(names)
    sources = {p.relative_to(ROOT).as_posix() for p in (ROOT / "nnfactor").rglob("*.py")}
    assert sources == {name for name in names if name.endswith(".py")}


def test_an_editable_install_is_a_path_that_tools_follow(here, tmp_path):
    wheel = zipfile.ZipFile(tmp_path / build.build_editable(str(tmp_path)))
    (path,) = [name for name in wheel.namelist() if name.endswith(".pth")]
    assert wheel.read(path).decode().strip() == str(ROOT)
    assert not [name for name in wheel.namelist() if name.endswith(".py")]  # no import hook


def test_tensorly_is_optional():
    needed = lambda specs: {spec.split(">")[0] for spec in specs}
    assert needed(PROJECT["dependencies"]) == {"torch", "numpy", "scipy", "scikit-learn", "safetensors", "tqdm"}
    assert all(
        "tensorly" in needed(PROJECT["optional-dependencies"][extra]) for extra in ("tensorly", "bench", "peers")
    )


def version():
    import nnfactor

    return nnfactor.__version__
