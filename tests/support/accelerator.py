"""The fake accelerator, registered once per process (torch refuses a second time)."""

from contextlib import contextmanager

import pytest
import torch

try:
    from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

    _setup_privateuseone_for_python_backend("fakegpu")
except Exception as error:  # private API of torch
    pytest.skip(f"torch has no fake accelerator here: {error}", allow_module_level=True)

__all__ = ["DataDependentOutputException", "fake_device"]


@contextmanager
def fake_device():
    """Tensors without data on a device that is not the CPU: mixing devices and reading the host raise."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        yield torch.device("fakegpu:0")
