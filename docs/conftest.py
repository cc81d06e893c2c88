"""Examples of the pages write their files to an empty folder, and draw without a screen."""

import os
from pathlib import Path

import pytest

os.environ.setdefault("MPLBACKEND", "agg")


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the examples of a page in a folder of their own."""
    monkeypatch.chdir(tmp_path)
