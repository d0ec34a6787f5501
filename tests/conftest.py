"""What all tests share."""

import zlib

import numpy as np
import pytest
from hypothesis import settings

# A busy machine is no mistake: how long one example takes is not judged.
settings.register_profile("default", deadline=None)
settings.load_profile("default")


@pytest.fixture
def rng(request):
    """A generator of random numbers, the same in every run of a test."""
    return np.random.default_rng(zlib.crc32(request.node.nodeid.encode()))


def pytest_addoption(parser):
    parser.addoption(
        "--renew-golden", action="store_true", help="write the golden files instead of comparing"
    )
