"""One thread for every process: the problems here are small, and several workers share the cores."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported anywhere

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)

settings.register_profile("ci", derandomize=True)  # the same examples in every run; elsewhere new ones are searched
if os.environ.get("CI"):
    settings.load_profile("ci")


def pytest_collection_modifyitems(items):
    """Tests marked `gpu` are skipped, with their reason, where there is no CUDA device."""
    missing = pytest.mark.skip(reason="no CUDA device")
    for item in items:
        if "gpu" in item.keywords and not torch.cuda.is_available():
            item.add_marker(missing)
