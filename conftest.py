"""How tests and examples run: one thread for every process, for several workers share the cores."""

import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported anywhere
os.environ.setdefault("MPLBACKEND", "agg")  # pictures without a screen

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # before Triton is imported anywhere: its kernels run on the CPU

settings.register_profile("ci", derandomize=True)  # the same examples in every run; elsewhere new ones are searched
if os.environ.get("CI"):
    settings.load_profile("ci")

DOCS = Path(__file__).parent / "docs"


@pytest.fixture(autouse=True)
def empty_folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the examples of a page, which write files, in a folder of their own."""
    if DOCS in request.path.parents:
        monkeypatch.chdir(tmp_path)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked `gpu`, with their reason, where there is no CUDA device."""
    missing = pytest.mark.skip(reason="no CUDA device")
    for item in items:
        if "gpu" in item.keywords and not torch.cuda.is_available():
            item.add_marker(missing)
