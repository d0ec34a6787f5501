"""What tests of CUDA kernels share, where they ask for nothing else."""

from dataclasses import replace

import pytest

from redlang.schedule.device import DEFAULT_DEVICE
from tests.cubin.device import simulated


@pytest.fixture
def gpu(monkeypatch):
    # Few SMs, so that few units fill them.
    with simulated(monkeypatch, replace(DEFAULT_DEVICE, sms=2)) as driver:
        yield driver
